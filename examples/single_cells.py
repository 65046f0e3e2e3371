"""Cell types from log counts: labels by column, genes by name, doubtful cells left open.

    python examples/single_cells.py [cells.h5ad obs/cell_type [layer]]

Without a file it takes scanpy's pbmc68k_reduced, if scanpy is installed, or makes cells up.
"""

import sys
import warnings
from importlib.util import find_spec

import anndata
import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

from dask_mcsvm import LinearMCSVC


def cells():
    """An AnnData, the column of its labels, and where its log counts are (None is X)."""
    if len(sys.argv) > 2:
        return anndata.read_h5ad(sys.argv[1]), sys.argv[2], (*sys.argv, None)[3]
    if find_spec("scanpy"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the age of the file
            import scanpy

            return scanpy.datasets.pbmc68k_reduced(), "obs/bulk_labels", "raw/X"
    rng = np.random.default_rng(0)
    kinds = rng.choice(5, size=600, p=[0.5, 0.25, 0.15, 0.07, 0.03])
    shares = rng.gamma(0.3, size=200) * rng.lognormal(0, 0.4, size=(5, 200))
    counts = 1 + rng.poisson(60 * (shares / shares.sum(axis=1, keepdims=True))[kinds])
    X = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4).astype(np.float32)
    made_up = anndata.AnnData(X, var=pd.DataFrame(index=[f"gene{i}" for i in range(200)]))
    made_up.obs["cell_type"] = pd.Categorical(np.array(["T", "B", "NK", "DC", "Mk"])[kinds])
    return made_up, "obs/cell_type", None


adata, label, layer = cells()
test = np.random.default_rng(1).random(adata.n_obs) < 0.3
truth = adata.obs[label.removeprefix("obs/")][test].astype(str)

# Rare types count as much as common ones; a held-out fifth teaches how sure to be.
model = LinearMCSVC(C=1e-3, class_weight="balanced", probability=True, layer=layer, tol=1e-5,
                    random_state=0)
model.fit(adata[~test], y=label)
found = model.predict(adata[test])
right, f1 = found == truth, f1_score(truth, found, average="macro")
print(f"{adata.n_obs} cells, {model.classes_.size} types; relative gap {model.gap_:.0e}")
print(f"accuracy {np.mean(right):.3f}, macro F1 {f1:.3f}")

sure = model.predict_proba(adata[test]).max(axis=1) > 0.7
print(f"sure of {sure.mean():.0%} of the cells: accuracy {np.mean(right[sure]):.3f}")
print(f"{np.sum(~sure)} would be left open, of which {np.sum(~right & ~sure)} were wrong")
print(f"{model.certain(adata[test]).mean():.0%} of the labels are those of the exact optimum")
