"""What workers do before their first task, restarted workers included."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from distributed import Worker, WorkerPlugin

logger = logging.getLogger("dask_mcsvm")


class CompileKernels(WorkerPlugin):
    """Run a small piece of work on each worker, so that what it calls is compiled there.

    Registered once under a name; a second one of that name is ignored by the scheduler. It stays
    registered after the fit: the next fit of the kind finds its kernels ready.

    Parameters
    ----------
    what : str
        What is compiled; the plugin is named after it.
    work : callable
        A function of a module, or a `functools.partial` of one; called without arguments.
    """

    idempotent = True

    def __init__(self, what: str, work: Callable[[], object]) -> None:
        self.name = f"dask-mcsvm-{what}"
        self.work = work

    async def setup(self, worker: Worker) -> None:
        """Compile in a thread: a worker whose event loop is busy is taken for dead."""
        try:
            await asyncio.to_thread(self.work)
        except Exception:  # logged; the first task will raise it
            logger.exception("%s: kernels were not compiled on %s", self.name, worker.address)


class IgnoreInterrupts(WorkerPlugin):
    """Let worker processes live when Ctrl-C is typed.

    A terminal sends it to them as well as to the client, which still needs them then: they have
    the state that it is about to save. For clusters that end with their client.
    """

    name = "dask-mcsvm-ignore-interrupts"

    def setup(self, worker: Worker) -> None:
        """In the main thread of the worker's process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
