"""Epochs of a fit in MLflow, and the model with them; a tracking server may be away.

    pip install mlflow-skinny
    python examples/mlflow_run.py
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dask_mcsvm import LinearMCSVC

if find_spec("mlflow") is None:
    raise SystemExit(print("this example needs MLflow; type: pip install mlflow-skinny"))

import mlflow


def to_mlflow(record):
    """A callback: an error of its own would end the fit, so what it cannot log it tells."""
    try:
        found = {name: record[name] for name in ("gap", "primal", "dual", "seconds")}
        mlflow.log_metrics(found, step=round(record["epoch"]))
    except (mlflow.MlflowException, OSError) as error:
        print("not logged:", error)


X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, stratify=y, random_state=0)
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # for the folder below; a server needs it not

with TemporaryDirectory() as folder:
    mlflow.set_tracking_uri(Path(folder, "mlruns").as_uri())
    with mlflow.start_run() as run:
        model = LinearMCSVC(C=0.1, callbacks=(to_mlflow,), random_state=0)
        mlflow.log_params({name: str(value) for name, value in model.get_params().items()})
        model.fit(X_train, y_train)
        mlflow.log_metrics({"accuracy": model.score(X_test, y_test), "certified_gap": model.gap_})
        model.save(f"{folder}/digits.zarr", notes={"mlflow run": run.info.run_id})
        mlflow.log_artifacts(f"{folder}/digits.zarr", "digits.zarr")
    kept = mlflow.get_run(run.info.run_id)
    local = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="digits.zarr")
    again = LinearMCSVC.load(local)
    print(json.dumps(kept.data.metrics, indent=1))
    same = (again.predict(X_test) == model.predict(X_test)).all()
    print("the same model from its artifacts:", same)
