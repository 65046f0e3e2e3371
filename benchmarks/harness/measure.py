"""What a number needs beside it: processor and versions, CPU and wall time, peak memory."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

PACKAGES = ("liblinear-official", "numba", "numpy", "scikit-learn", "scipy")
HERE = Path(__file__).parent


def _numba_cache() -> str:
    """A folder of this user's own, named after the text of all kernels, as in tests/conftest.py.

    Numba looks only at the file of the function it caches: after an edit of a helper in another
    file, a benchmark would go on measuring the old code.
    """
    spec = find_spec("dask_mcsvm")  # imports nothing
    own = Path(spec.origin).parent if spec and spec.origin else HERE  # HERE: a peer's environment
    kernels = sorted((own / "solvers").rglob("*.py"))
    stamp = sha256(b"".join(p.name.encode() + p.read_bytes() for p in kernels)).hexdigest()[:12]
    user = os.getuid() if hasattr(os, "getuid") else "user"
    base = Path(tempfile.gettempdir(), f"dask_mcsvm-{user}")
    base.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and base.stat().st_uid != os.getuid():
        base = Path(tempfile.mkdtemp(prefix="dask_mcsvm-"))  # a cache is code that will run
    return str(base / stamp)


# Here, because numba reads it once, when it is imported, and LIBLINEAR's own package imports numba.
if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = _numba_cache()


def environment() -> dict[str, Any]:
    """The machine and the software of this run."""
    import dask_mcsvm

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "memory_bytes": _total_memory(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": _commit(),
        "versions": {
            "dask-mcsvm": dask_mcsvm.__version__,
            **{name: _version(name) for name in PACKAGES},
        },
    }


def describe(env: dict[str, Any]) -> str:
    """The environment in three lines."""
    memory = f", {env['memory_bytes'] / 2**30:.0f} GiB" if env["memory_bytes"] else ""
    load = f", load {env['load']:.1f} at the start" if env["load"] is not None else ""
    versions = ", ".join(f"{k} {v or 'missing'}" for k, v in env["versions"].items())
    return (
        f"{env['cpu']}, {env['usable_cores']} of {env['cores']} cores{memory}{load}\n"
        f"{env['system']}, Python {env['python']}, commit {env['commit'] or 'unknown'}\n"
        f"{versions}"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _commit() -> str | None:
    """Of the code; "-dirty" if it was changed since. Results and docs are no code."""
    code = [":/dask_mcsvm", ":/benchmarks", ":(top,exclude)benchmarks/results"]
    head = _git("rev-parse", "--short", "HEAD")
    return head + "-dirty" * bool(_git("status", "--porcelain", "--", *code)) if head else None


def _git(*command: str) -> str:
    try:
        done = subprocess.run(
            ["git", *command], cwd=HERE, capture_output=True, text=True, timeout=30
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Watch:
    """Seconds, CPU seconds and peak memory of a with block, beyond what was there before.

    After ``limit`` seconds the system ends the process: code of others cannot be asked to give up.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.found = limit, dict[str, float]()

    def __enter__(self) -> Self:
        forget_peak()
        self.bytes, self.clocks = resident_bytes(), Stopwatch()
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        clocks = self.clocks.read()
        self.found = {
            "seconds": clocks["wall"],
            "cpu_seconds": clocks["cpu"],
            "peak_bytes": resident_bytes(peak=True) - self.bytes,
        }


class Stopwatch:
    """CPU seconds of this process and wall seconds, since it was made.

    One thread is measured by its CPU time, which a neighbour on the machine changes least; several
    by the wall clock.
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "cpu": time.process_time() - self._cpu,
            "wall": time.perf_counter() - self._wall,
        }


def resident_bytes(peak: bool = False) -> int:
    """Memory of this process now, or its peak (VmRSS, VmHWM); where there is no /proc, the peak."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    field = "VmHWM:" if peak else "VmRSS:"
    (line,) = [line for line in status.splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def forget_peak() -> bool:
    """Give free memory back and set the peak to what is in use; False where Linux is not."""
    gc.collect()
    with suppress(AttributeError, OSError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def within(patience: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What ``call`` returns, or None if it took more than ``patience`` CPU seconds.

    It runs in a forked child, which sees everything of this process: the code of others cannot be
    asked to give up.
    """
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=_limited, args=(answer, patience, call))
    child.start()
    child.join()
    return answer.get() if child.exitcode == 0 else None


def _limited(answer: Any, patience: float, call: Callable[[], dict[str, Any]]) -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + patience) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    answer.put(call())
