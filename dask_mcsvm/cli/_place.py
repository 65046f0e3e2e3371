"""Where the tasks of a command run: ``--scheduler`` and ``--workers``."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar

import click

from dask_mcsvm.cli._console import Console, Refused

Command = TypeVar("Command", bound=Callable[..., Any])

#: Of a cluster that a command starts: seen from this machine only, on any free port.
OWN_DASHBOARD = "127.0.0.1:0"


def place_options(command: Command) -> Command:
    """Add ``--scheduler`` and ``--workers``."""
    command = click.option("--workers", type=int, help="Worker processes to start [one per core].")(
        command
    )
    return click.option(
        "--scheduler",
        metavar="ADDRESS|threads|processes",
        help="Work chunk by chunk with Dask: on a cluster, or on threads or worker processes of "
        "this machine.",
    )(command)


def check_place(scheduler: str | None, workers: int | None) -> None:
    """Refuse workers that nothing would start."""
    if workers is not None and scheduler != "processes":
        raise Refused("--workers is for --scheduler processes; add it, or leave --workers out.")


@contextmanager
def running_on(console: Console, scheduler: str | None, workers: int | None) -> Iterator[None]:
    """What the options say about where tasks run, for as long as the command takes."""
    if scheduler is None:
        yield
    elif scheduler == "threads":
        import dask

        with dask.config.set(scheduler="threads"):
            yield
    elif scheduler == "processes":
        with own_cluster(workers) as client:
            note_dashboard(console, client)
            yield
    else:
        with client_of(scheduler) as client:
            note_dashboard(console, client)
            yield


@contextmanager
def own_cluster(workers: int | None) -> Iterator[Any]:
    """Worker processes on this machine, which live through Ctrl-C until their client ends."""
    from distributed import Client, LocalCluster

    from dask_mcsvm.plugin import IgnoreInterrupts

    try:
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=OWN_DASHBOARD
        )
    except ValueError as error:
        raise Refused(f"--scheduler processes: {error}") from error
    with cluster, Client(cluster) as client:
        client.register_plugin(IgnoreInterrupts())
        yield client
        # Idle workers that a busy machine ends late are killed, which concerns nobody.
        logging.getLogger("distributed.nanny").setLevel(logging.ERROR)


def client_of(address: str) -> Any:
    """A client of the scheduler at an address."""
    from distributed import Client

    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise Refused(
            f"--scheduler {address}: no scheduler answers there ({error}); start one with "
            "`dask scheduler`, or use threads or processes."
        ) from error


def note_dashboard(console: Console, client: Any) -> None:
    """Say where to watch."""
    if "dashboard" in client.scheduler_info().get("services", {}):
        needs = "" if find_spec("bokeh") else " (its pages need bokeh: pip install bokeh)"
        console.note(f"Dashboard {client.dashboard_link}{needs}")
