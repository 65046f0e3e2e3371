"""Where graphs run: a Dask client's workers, or a scheduler in this process; one interface."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import dask.base
import dask.multiprocessing
import dask.threaded
from dask.optimization import cull
from dask.system import CPU_COUNT
from dask.task_spec import DataNode

from dask_mcsvm.errors import ClusterLostError, WorkersKilledError

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger("dask_mcsvm")

Graph = dict[Any, Any]
Keys = Sequence[Any]
Places = Mapping[Any, int]

#: Share of the workers' memory that rows may take to stay there between epochs.
RESIDENT_SHARE = 0.4
#: How often to look whether the scheduler is still there while waiting for it.
LOOK_SECONDS = 2.0
NO_WORKERS = (
    "the Dask cluster has no workers, and the fit waits for one: start some. Workers that closed "
    "by themselves could not import what a task needs; their log names it."
)

THREADS_INSTEAD = (
    'Dask\'s scheduler is "processes", which starts new processes for every graph, and a fit is '
    "many graphs: it runs in threads, which share the rows and all cores. For processes that stay, "
    "start a distributed.Client()."
)


NO_PLACES: Places = {}


class Spent(NamedTuple):
    """What workers did so far."""

    seconds: dict[str, float]  # inside tasks, by kind of task: "cs-solve", "cs-combine"
    sent: int  # bytes, to each other and to the client

    def since(self, before: Spent) -> Spent:
        """What was added; a worker that died has taken its part along."""
        seconds = {k: s - before.seconds.get(k, 0.0) for k, s in self.seconds.items()}
        return Spent({k: s for k, s in seconds.items() if s > 0}, max(0, self.sent - before.sent))


class Runner(Protocol):
    """Runs graphs that refer to values held from earlier ones."""

    held: dict[Any, Any]  # values, or futures of them, by key

    def run(self, graph: Graph, hold: Keys, fetch: Keys, places: Places = NO_PLACES) -> list[Any]:
        """Compute; the values of ``hold`` stay where they are, those of ``fetch`` come back.

        ``places`` numbers those of ``hold`` that had better be on different workers (see `Stage`).
        """

    def release(self, keys: Iterable[Any]) -> None:
        """Forget held values."""
        for key in keys:
            self.held.pop(key, None)

    def prepare(self, what: str, work: Callable[[], object]) -> None:
        """Have every process that runs graphs, also a later one, do some work before others."""

    def spent(self) -> Spent:
        """Of all workers since they were started; empty where it is not counted."""

    @property
    def memory(self) -> int:
        """Bytes of all workers together."""

    @property
    def memory_of_each(self) -> int:
        """Bytes of the smallest of them."""

    def room_for_rows(self, memory_limit: int | None) -> float:
        """Bytes of rows that may stay in memory between epochs."""
        return RESIDENT_SHARE * min(memory_limit or self.memory, self.memory)

    @property
    def is_local(self) -> bool:
        """Whether everything that runs graphs sees this machine's folders."""


def find_runner() -> Runner:
    """The scheduler that Dask would use now: `dask.config`, a client, or threads.

    In place of a pool of processes, which lives for one graph, it is threads.
    """
    try:
        get = dask.base.get_scheduler()
    except RuntimeError as error:
        raise TypeError(
            "the current Dask client is asynchronous, and fit would block its event loop; use "
            "Client(...) without asynchronous=True, or call fit in a thread with a client of its "
            "own."
        ) from error
    if get is dask.multiprocessing.get:
        tell_of_threads()
        get = dask.threaded.get
    if is_guest_of_a_pool():
        get = get_beside
    client = getattr(get, "__self__", None)
    if client is None or not hasattr(client, "scheduler_info"):
        return LocalRunner(get or dask.threaded.get)
    return ClientRunner(client)


def is_guest_of_a_pool() -> bool:
    """Whether this may be a task of the very pool that the user gave Dask for all tasks."""
    pools = dask.config.get("pool", None), dask.config.get("scheduler", None)
    given = any(isinstance(pool, Executor) for pool in pools)
    return given and threading.current_thread() is not threading.main_thread()


def get_beside(graph: Graph, keys: Keys) -> Any:
    """Run a graph by threads of its own.

    A task that waits for tasks of its own pool waits for ever once all threads of it do the same.
    """
    with ThreadPoolExecutor(dask.config.get("num_workers", None) or CPU_COUNT) as pool:
        return dask.threaded.get(graph, keys, pool=pool)


@contextmanager
def spanned(*names: str) -> Iterator[None]:
    """Tasks that are run in here are a span of the scheduler, if there is one."""
    if not isinstance(find_runner(), ClientRunner):
        yield
        return
    from distributed import span

    with span(*names):
        yield


@cache
def tell_of_threads() -> None:
    """Log once that the scheduler asked for is not taken."""
    logger.warning(THREADS_INSTEAD)


class LocalRunner(Runner):
    """Threads, processes or a plain loop; held values are in this process."""

    def __init__(self, get: Callable[..., Any]) -> None:
        self.get, self.held = get, dict[Any, Any]()

    def run(self, graph: Graph, hold: Keys, fetch: Keys, places: Places = NO_PLACES) -> list[Any]:
        known = {key: DataNode(key, value) for key, value in self.held.items()}
        # Threads would run all of it, also what is not fetched.
        needed, _ = cull({**graph, **known}, [*hold, *fetch])
        values = list(self.get(needed, [*hold, *fetch]))
        self.held.update(zip(hold, values, strict=False))
        return values[len(hold) :]

    def prepare(self, what: str, work: Callable[[], object]) -> None:
        """Nothing: kernels are compiled when they are first called, here."""

    def spent(self) -> Spent:
        return Spent({}, 0)

    @property
    def memory(self) -> int:
        from distributed.system import MEMORY_LIMIT

        return int(MEMORY_LIMIT)

    @property
    def memory_of_each(self) -> int:
        return self.memory

    @property
    def is_local(self) -> bool:
        return True


class ClientRunner(Runner):
    """A cluster; held values are futures."""

    def __init__(self, client: Client) -> None:
        self.client, self.held = client, dict[Any, Any]()

    def run(self, graph: Graph, hold: Keys, fetch: Keys, places: Places = NO_PLACES) -> list[Any]:
        self._refuse_lost()
        with translated_losses(), lent_thread():
            futures = self._submit(graph, [*hold, *fetch], places)
            try:
                self._wait(futures[len(hold) :])
                values: list[Any] = self.client.gather(futures[len(hold) :])
            except KeyboardInterrupt:  # what is left of the graph must not go on
                self.client.cancel(futures)
                raise
        self.held.update(zip(hold, futures, strict=False))
        return values

    def _submit(self, graph: Graph, keys: Keys, places: Places) -> list[Any]:
        """Futures of the keys; those with a place begin on a worker of their own, if it is free.

        A hint, not a condition: a task that must run on a worker waits for ever when that dies.
        """
        workers = sorted(self._workers()) if places else []
        if len(workers) < 2:
            return list(self.client.get(graph, keys, sync=False))
        after = all_that_need(places, graph)
        before = {key: graph[key] for key in graph if key not in places and key not in after}
        # What later ones read has to stay until they are there to ask for it.
        later = [graph[key] for key in (*places, *after)]
        needed = {dep for task in later for dep in task.dependencies if dep not in after}
        wanted = [*dict.fromkeys([*(key for key in keys if key not in after), *needed])]
        wanted = [key for key in wanted if key not in places]
        futures = dict(zip(wanted, self.client.get(before, wanted, sync=False), strict=True))
        for place in sorted(set(places.values())):
            mine = [key for key in places if places[key] == place]
            futures |= zip(
                mine,
                self.client.get(
                    {key: graph[key] for key in mine}, mine, sync=False,
                    workers=[workers[place % len(workers)]], allow_other_workers=True,
                ),
                strict=True,
            )  # fmt: skip
        ends = [key for key in keys if key in after]
        rest = {key: graph[key] for key in after}
        if ends:
            futures |= zip(ends, self.client.get(rest, ends, sync=False), strict=True)
        return [futures[key] for key in keys]

    def _wait(self, futures: list[Any]) -> None:
        """Until all are done; a client whose scheduler is gone would wait for it to come back."""
        from distributed import wait

        is_told = False
        while futures:
            try:
                wait(futures, timeout=LOOK_SECONDS)
                return
            except TimeoutError as late:
                # Its frames hold the futures, in a circle: keys would stay on the scheduler.
                while late is not None:
                    traceback.clear_frames(late.__traceback__)
                    late.__traceback__, late = None, late.__context__  # type: ignore[assignment]
                self._refuse_lost()
                if not is_told and not self._workers() and not self._awaits_workers():
                    is_told = True
                    logger.warning(NO_WORKERS)

    def _awaits_workers(self) -> bool:
        """Whether this client's cluster has asked for workers, as an adaptive one does."""
        return bool(getattr(self.client.cluster, "plan", ()))

    def _refuse_lost(self) -> None:
        if self.client.status != "running":
            raise ClusterLostError(
                f"the Dask cluster went away (the client is {self.client.status})"
            )

    def prepare(self, what: str, work: Callable[[], object]) -> None:
        from dask_mcsvm.plugin import CompileKernels

        with translated_losses():
            self.client.register_plugin(CompileKernels(what, work))

    def spent(self) -> Spent:
        with translated_losses():
            found = self.client.run(worker_spent, on_error="ignore").values()
        kinds = sorted({kind for part in found for kind in part.seconds})
        seconds = {kind: sum(part.seconds.get(kind, 0.0) for part in found) for kind in kinds}
        return Spent(seconds, sum(part.sent for part in found))

    @property
    def memory(self) -> int:
        limits = [w["memory_limit"] for w in self._workers().values()]
        return sum(limits) if all(limits) else LocalRunner(dask.threaded.get).memory

    @property
    def memory_of_each(self) -> int:
        limits = [w["memory_limit"] for w in self._workers().values()]
        return min(limits) if limits and all(limits) else LocalRunner(dask.threaded.get).memory

    @property
    def is_local(self) -> bool:
        address = str(self.client.scheduler_info()["address"])
        host = address.split("://")[-1].rsplit(":", 1)[0]
        hosts = {worker["host"] for worker in self._workers().values()}
        return address.startswith("inproc") or (hosts | {host} <= this_machine())

    def _workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of each worker, by address."""
        info = self.client.scheduler_info()
        if info.get("n_workers", 0) > len(info["workers"]):  # some versions tell of five only
            info = self.client.scheduler_info(n_workers=-1)
        return dict(info["workers"])


def all_that_need(keys: Iterable[Any], graph: Graph) -> set[Any]:
    """What a graph computes from some keys, from that, and so on; without these themselves."""
    readers: dict[Any, list[Any]] = {}
    for key, task in graph.items():
        for dep in getattr(task, "dependencies", ()):
            readers.setdefault(dep, []).append(key)
    found: set[Any] = set()
    left = [*keys]
    while left:
        new = [key for key in readers.get(left.pop(), ()) if key not in found]
        found.update(new)
        left += new
    return found


@contextmanager
def lent_thread() -> Iterator[None]:
    """Where a fit is itself a task, the worker's thread serves others while the fit waits.

    A worker of one thread would otherwise wait for ever, for tasks that it should run itself.
    """
    from distributed import rejoin, secede

    try:
        secede()
        is_lent = True
    except Exception:  # as in Dask's own `Client.get`: no task, or one that has left already
        is_lent = False
    try:
        yield
    finally:
        if is_lent:
            rejoin()


@contextmanager
def translated_losses() -> Iterator[None]:
    """Dask's several ways to say that workers or all of the cluster are gone, in our words."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CommClosedError, CancelledError) as error:
        raise ClusterLostError(f"the Dask cluster went away ({error!r})") from error
    except KilledWorker as error:
        name = error.task[0] if isinstance(error.task, tuple) else error.task
        limit = getattr(error.last_worker, "memory_limit", 0)
        room = f" with a memory limit of {limit / 2**20:,.0f} MiB" if limit else ""
        raise WorkersKilledError(
            f"the task {name!r} was running on {error.allowed_failures + 1} workers, one after "
            f"another, when they died, the last one{room}: its chunk of rows is probably too large "
            "for them; use smaller chunks, X.rechunk({0: rows}) or write_dataset(..., "
            "block_rows=rows), or workers with more memory"
        ) from error


def worker_spent(dask_worker: Any) -> Spent:
    """What one worker did so far, by its fine performance metrics."""
    seconds: dict[str, float] = {}
    sent = 0
    for (context, *names), value in dict(dask_worker.digests_total).items():
        if context == "execute" and names[-2:-1] in (["thread-cpu"], ["thread-noncpu"]):
            seconds[names[1]] = seconds.get(names[1], 0.0) + value
        elif context == "get-data" and names[-1] == "bytes":
            sent += int(value)
    return Spent(seconds, sent)


def this_machine() -> set[str]:
    """Addresses that are sure to be here."""
    from distributed.utils import get_ip

    return {"127.0.0.1", "localhost", "::1", get_ip()}
