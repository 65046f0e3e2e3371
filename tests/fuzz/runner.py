"""Runs random cases in a child process, so that a crash or a hang is counted and not fatal.

A fuzzer is a function of a random generator. It raises `Wrong` for a result that is not right, and
lets errors of the package through: `is_refusal` tells sentences for the user from exceptions that
escaped. Every case has a seed of its own, which is printed when it fails and repeats it.
"""

import argparse
import faulthandler
import json
import linecache
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("wrong", "crash", "hang", "raw")
TITLES = {
    "fine": "accepted",
    "refused": "refused in words",
    "wrong": "wrong results",
    "crash": "crashes",
    "hang": "hangs",
    "raw": "raw exceptions",
}

Case = Callable[[np.random.Generator], None]


class Wrong(AssertionError):
    """A result that is not right."""


def check(fine: Any, what: str) -> None:
    """Raise `Wrong` unless `fine`."""
    if not fine:
        raise Wrong(what)


# What an exception is ---------------------------------------------------------------------------


def is_refusal(error: BaseException) -> bool:
    """Whether an exception is a sentence for the user.

    That is one of our own classes, or a ValueError, TypeError or error about a file that a `raise`
    in the package or anything in scikit-learn's validation has made. The same types from NumPy,
    Zarr, Numba or a kernel are exceptions that nobody expected.
    """
    from sklearn.exceptions import NotFittedError

    from dask_mcsvm import errors

    if getattr(errors, type(error).__name__, None) is type(error):
        return True
    if not isinstance(error, ValueError | TypeError | OSError | NotFittedError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return False
    inner = frames[-1]
    if f"{os.sep}sklearn{os.sep}" in inner.filename:
        return True
    line = linecache.getline(inner.filename, inner.lineno or 0).strip()
    return f"{os.sep}dask_mcsvm{os.sep}" in inner.filename and line.startswith("raise")


def outcome(case: Case, seed: int) -> tuple[str, str]:
    """Kind and description of what a case came to."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(np.random.default_rng(seed))
    except Wrong as error:
        return "wrong", str(error)
    except (Exception, KeyboardInterrupt) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.name}"
        text = str(error).splitlines()[0][:160] if str(error) else ""
        kind = "refused" if is_refusal(error) else "raw"
        return kind, f"{type(error).__name__} at {place}: {text}"
    return "fine", ""


# What a hang is ---------------------------------------------------------------------------------


class Watch:
    """Tells a process that hangs from one that a busy machine lets wait.

    It hangs if it worked for `seconds` of CPU time, or for as long did not work at all. Time counts
    as the watcher waited, who is stopped, too, when all processes are.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._process, self._seconds = psutil.Process(pid), seconds
        self._used = self._idle = 0.0
        self._begun = self._cpu_seconds()

    def is_hanging(self, waited: float) -> bool:
        """Asked after each wait; ``waited`` is how long it was to be."""
        before, self._used = self._used, self._cpu_seconds()
        self._idle = self._idle + waited if self._used == before else 0.0
        return max(self._idle, self._used - self._begun) > self._seconds

    def _cpu_seconds(self) -> float:
        with suppress(psutil.Error):  # it has ended
            times = self._process.cpu_times()
            return times.user + times.system
        return self._used


# The child --------------------------------------------------------------------------------------


def work(case: Case) -> None:
    """Answer every seed on stdin with a line of JSON on what stdout was; "ready" comes first."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # prints of the package do not mix with answers
        answers.write("ready\n")
        answers.flush()
        for line in sys.stdin:
            answers.write(json.dumps(outcome(case, int(line))) + "\n")
            answers.flush()


class Child:
    """A process that tries cases one by one; its temporary files go to `folder`."""

    def __init__(self, script: str, stderr: Any, folder: str) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, script, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=stderr, text=True, env={**os.environ, "PYTHONPATH": path, "TMPDIR": folder},
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the child failed before its first case; run one with --case")

    def ask(self, seed: int, timeout: float) -> tuple[str, str]:
        """What the case came to; afterwards the process may be gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
            watch, ready = Watch(self.process.pid, timeout), []
            while not ready and not watch.is_hanging(0.5):
                ready, _, _ = select.select([self.process.stdout], [], [], 0.5)
        except BrokenPipeError:
            ready = [self.process.stdout]
        if not ready:
            self.process.send_signal(signal.SIGUSR1)  # a traceback of all threads
            time.sleep(0.5)
            self.end()
            return "hang", f"no answer within {timeout:g} s of work, or idle for as long"
        answer = self.process.stdout.readline()
        if not answer:
            return "crash", f"the process ended with {self.process.wait()}"
        kind, text = json.loads(answer)
        return kind, text

    def dismiss(self) -> None:
        """Let it clean up and go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.end()

    def end(self) -> None:
        """Kill it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# The parent -------------------------------------------------------------------------------------


def main(
    case: Case,
    script: str,
    *,
    cases: str = "inputs",
    timeout: float = 300.0,
) -> None:
    """The command line of a fuzzer; exits with 1 if anything went wrong.

    `timeout` leaves room for compilation.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--cases", type=int, default=None, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, default=None, help="repeat one, in this process")
    parser.add_argument("--timeout", type=float, default=timeout,
        help="seconds of work, or of none, until it hangs")  # fmt: skip
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(case)
    elif given.case is not None:
        faulthandler.enable()
        with tempfile.TemporaryDirectory() as folder:
            tempfile.tempdir = folder
            case(np.random.default_rng(given.case))
        print(f"case {given.case}: nothing wrong")
    else:
        sys.exit(_fuzz(script, given, cases))


def _fuzz(script: str, given: argparse.Namespace, cases: str) -> int:
    counts, failed = Counter[str](), dict[tuple[str, str], list[int]]()
    print(f"seed {given.seed}", flush=True)
    # A child that is killed leaves its files behind: the folder is ours.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as stderr:
        child: Child | None = Child(script, stderr, folder)
        begun = time.monotonic()
        while time.monotonic() - begun < given.seconds and sum(counts.values()) != given.cases:
            number = sum(counts.values())
            seed = int(np.random.SeedSequence([given.seed, number]).generate_state(1)[0])
            child = child or Child(script, stderr, folder)
            kind, text = child.ask(seed, given.timeout)
            counts[kind] += 1
            if kind in ("crash", "hang"):
                text += _last_words(stderr)
                child.end()
                child = None
            if kind in KINDS:
                if not (known := failed.setdefault((kind, text.split("\n")[0]), [])):
                    print(f"{kind}, --case {seed}: {text}", flush=True)
                known.append(seed)
        if child is not None:
            child.dismiss()
    print(f"\n{cases} tried: {sum(counts.values())}")
    for kind, title in TITLES.items():
        print(f"{title}: {counts[kind]}")
    for (kind, text), seeds in failed.items():
        print(f"  {len(seeds)} x {kind}, --case {' '.join(map(str, seeds[:3]))}: {text}")
    return int(any(counts[kind] for kind in KINDS))


def _last_words(stderr: Any) -> str:
    """Where a process was when it ended."""
    stderr.seek(0)
    lines = [line for line in stderr.read().splitlines() if "dask_mcsvm" in line or "Fatal" in line]
    stderr.seek(0)
    stderr.truncate()
    return "".join(f"\n    {line.strip()}" for line in lines[-8:])
