"""Clusters that several tests share: to start worker processes takes seconds."""

import pytest
from distributed import Client
from training.sets import local_cluster


@pytest.fixture(scope="session")
def process_cluster():
    """Two worker processes, each with a nanny that starts it again when it dies."""
    with local_cluster(processes=True) as cluster:
        yield cluster


@pytest.fixture
def two_processes(process_cluster):
    """A client, for one test, of two workers that are there."""
    with Client(process_cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def two_threads():
    """A cluster in this process, and its client, for one test."""
    with local_cluster(processes=False) as cluster, Client(cluster) as client:
        yield client
