"""The picture of a report in README and first steps: a fit on 20 Newsgroups, in a browser.

    python docs/make_report.py DATA

DATA has `news20_bydate.npz` (see benchmarks/harness/data.py); Chromium takes the picture.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.report import write_report

PICTURE, SIZE = Path(__file__).parent / "images" / "report.png", "1100,1150"


def main(data: str) -> None:
    """Fit twice, since the first fit compiles; show the second one."""
    with np.load(f"{data}/news20_bydate.npz") as found:
        train, test = (
            sp.csr_matrix(
                tuple(found[f"X_{name}_{part}"] for part in ("data", "indices", "indptr")),
                tuple(found[f"X_{name}_shape"]),
            )
            for name in ("train", "test")
        )
        y, y_test = found["y_train"], found["y_test"]
    model = LinearMCSVC(tol=1e-4, random_state=0).fit(train, y).fit(train, y)
    with TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        write_report(model, page, test, y_test)
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        picture = [f"--window-size={SIZE}", f"--screenshot={PICTURE}", page.as_uri()]
        subprocess.run([*browser, *picture], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1])
