"""Where graphs run: a Dask client's workers, or a scheduler in this process; one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import dask.base
import dask.threaded
from dask.task_spec import DataNode

from dask_mcsvm.errors import ClusterLostError

if TYPE_CHECKING:
    from distributed import Client

Graph = dict[Any, Any]

#: Share of the workers' memory that rows may take to stay there between epochs.
RESIDENT_SHARE = 0.4


class Runner(Protocol):
    """Runs graphs that refer to values held from earlier ones."""

    def run(self, graph: Graph, hold: Sequence[Any], fetch: Sequence[Any]) -> list[Any]:
        """Compute; the values of ``hold`` stay where they are, those of ``fetch`` come back."""

    def release(self, keys: Iterable[Any]) -> None:
        """Forget held values."""

    @property
    def memory(self) -> int:
        """Bytes of all workers together."""

    @property
    def is_local(self) -> bool:
        """Whether everything that runs graphs sees this machine's folders."""


def find_runner() -> Runner:
    """The scheduler that Dask would use now: `dask.config`, a client, or threads."""
    get = dask.base.get_scheduler()
    client = getattr(get, "__self__", None)
    if client is None or not hasattr(client, "scheduler_info"):
        return LocalRunner(get or dask.threaded.get)
    if client.asynchronous:
        raise TypeError(
            "the current Dask client is asynchronous, and fit would block its event loop; use "
            "Client(...) without asynchronous=True, or call fit in a thread with a client of its "
            "own."
        )
    return ClientRunner(client)


class LocalRunner:
    """Threads, processes or a plain loop; held values are in this process."""

    def __init__(self, get: Callable[..., Any]) -> None:
        self.get, self.held = get, dict[Any, Any]()

    def run(self, graph: Graph, hold: Sequence[Any], fetch: Sequence[Any]) -> list[Any]:
        known = {key: DataNode(key, value) for key, value in self.held.items()}
        values = list(self.get({**known, **graph}, [*hold, *fetch]))
        self.held.update(zip(hold, values, strict=False))
        return values[len(hold) :]

    def release(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self.held.pop(key, None)

    @property
    def memory(self) -> int:
        from distributed.system import MEMORY_LIMIT

        return int(MEMORY_LIMIT)

    @property
    def is_local(self) -> bool:
        return True


class ClientRunner:
    """A cluster; held values are futures."""

    def __init__(self, client: Client) -> None:
        self.client, self.held = client, dict[Any, Any]()

    def run(self, graph: Graph, hold: Sequence[Any], fetch: Sequence[Any]) -> list[Any]:
        from concurrent.futures import CancelledError

        from distributed.comm.core import CommClosedError

        keys = [*hold, *fetch]
        try:
            futures = list(self.client.get(graph, keys, sync=False))
            values: list[Any] = self.client.gather(futures[len(hold) :])
        except (CommClosedError, CancelledError) as error:
            raise ClusterLostError(f"the Dask cluster went away ({error!r})") from error
        self.held.update(zip(hold, futures, strict=False))
        return values

    def release(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self.held.pop(key, None)

    @property
    def memory(self) -> int:
        limits = [w["memory_limit"] for w in self._workers()]
        return sum(limits) if all(limits) else LocalRunner(dask.threaded.get).memory

    @property
    def is_local(self) -> bool:
        address = str(self.client.scheduler_info()["address"])
        host = address.split("://")[-1].rsplit(":", 1)[0]
        hosts = {worker["host"] for worker in self._workers()}
        return address.startswith("inproc") or (hosts | {host} <= this_machine())

    def _workers(self) -> list[dict[str, Any]]:
        return list(self.client.scheduler_info()["workers"].values())


def this_machine() -> set[str]:
    """Addresses that are sure to be here."""
    from distributed.utils import get_ip

    return {"127.0.0.1", "localhost", "::1", get_ip()}
