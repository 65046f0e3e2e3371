"""One case in a process of its own, with a limit of time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from .case import DONE, FAILED, OVER, Case, Result
from .data import Places, checksum
from .environments import python_of
from .measure import environment

RUN = Path(__file__).parents[1] / "run.py"
#: Where methods are; the others are functions of studies.
MODULES = {"": "harness.methods", "peers": "harness.peers", "simulation": "harness.simulation"}
#: Seconds beyond the limit of a fit for reading rows, compiling and warming up.
GRACE = 1800.0


def measure(case: Case, places: Places, limit: float) -> Result:
    """Start the process, wait, end whatever it leaves behind."""
    job = {"case": asdict(case), "places": places.plain(), "limit": limit}
    own = case.options.get("environment")
    child = subprocess.Popen(
        [python_of(own) if own else sys.executable, str(RUN), "--child", json.dumps(job)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    found: dict[str, Any] = {}
    try:
        out, err = child.communicate(timeout=2 * limit + GRACE)
        if child.returncode == 0:
            found = json.loads(out.splitlines()[-1])
            status = found.pop("status", DONE)
        elif child.returncode == -signal.SIGALRM:
            status = OVER
        else:
            status, found = FAILED, {"error": f"exit {child.returncode}: {err[-3000:]}"}
    except subprocess.TimeoutExpired:
        status = OVER
    finally:  # its workers too; on Ctrl-C as well
        _end(child)
    return Result(case, status, limit, found, checksum(case.data, places), environment())


def _end(child: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main(job: str) -> None:
    """What the process does: the method of the case; one line of JSON."""
    given = json.loads(job)
    case = Case(**given["case"])
    study, _, function = case.method.rpartition(":")
    module = import_module(MODULES.get(study, f"studies.{study}"))
    found = getattr(module, function)(case, Places(**given["places"]), given["limit"])
    print(json.dumps(found))
