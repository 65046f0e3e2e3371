"""The picture of Dask's dashboard in the guide: a fit by rounds, seen by a browser.

    python docs/make_dashboard.py

It needs bokeh, which draws the dashboard, and Chromium, which is told over its debugging port when
to take the picture: a page that is fed by a websocket never finishes loading.
"""

import asyncio
import base64
import json
import re
import subprocess
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.datasets import load_digits
from tornado.websocket import websocket_connect

from dask_mcsvm import LinearMCSVC

PICTURE = Path(__file__).parent / "images" / "dashboard.png"
WIDTH, HEIGHT, SECONDS = 1280, 720, 25.0


async def photograph(port: str, url: str, fit: threading.Thread) -> None:
    """Open a page, begin the fit, and take the picture some seconds later."""
    request = Request(f"http://127.0.0.1:{port}/json/new?{url}", method="PUT")
    page = await websocket_connect(
        json.load(urlopen(request))["webSocketDebuggerUrl"], max_message_size=10**8
    )

    async def tell(method: str, **given: Any) -> Any:
        await page.write_message(json.dumps({"id": 1, "method": method, "params": given}))
        return json.loads(await page.read_message())["result"]

    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    await tell("Emulation.setDeviceMetricsOverride", **size)
    fit.start()
    await asyncio.sleep(SECONDS)
    found = await tell("Page.captureScreenshot", format="png")
    PICTURE.write_bytes(base64.b64decode(found["data"]))


def main() -> None:
    """Weston-Watkins by four groups of classes on two workers."""
    X, y = load_digits(return_X_y=True)
    X, y = np.tile(X / 16, (8, 1)), np.tile(y, 8)
    rows = da.from_array(X, chunks=(len(X) // 4, -1)), da.from_array(y, chunks=len(y) // 4)
    seen = threading.Event()
    model = LinearMCSVC(
        formulation="ww", solver="rounds", C=0.01, tol=0, max_epochs=10_000, random_state=0,
        solver_options={"groups": 4, "slices": 2}, callbacks=(lambda _: seen.is_set(),),
    )  # fmt: skip
    fit = threading.Thread(target=model.fit, args=rows)
    with (
        TemporaryDirectory() as profile,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             f"--user-data-dir={profile}", "--remote-debugging-port=0", "--remote-allow-origins=*"],
            stderr=subprocess.PIPE, text=True,
        ) as browser,
    ):  # fmt: skip
        try:
            assert browser.stderr is not None
            (port,) = next(
                filter(None, (re.findall(r"ws://.*?:(\d+)/", s) for s in browser.stderr))
            )
            asyncio.run(photograph(port, client.dashboard_link, fit))
            seen.set()
            fit.join()
        finally:
            browser.terminate()


if __name__ == "__main__":
    main()
