"""Folders for the state of a fit on Dask carry their owner; what a killed one left is removed."""

import subprocess
import sys

from dask_mcsvm.storage._owner import owned_name
from dask_mcsvm.storage.scratch import PREFIX
from dask_mcsvm.training.runner import find_runner
from dask_mcsvm.training.runs.on_dask import state_folder

OWNER = f"from dask_mcsvm.storage._owner import owned_name; print(owned_name({PREFIX!r}))"


def test_a_state_folder_has_an_owner_and_removes_those_of_the_dead(tmp_path):
    done = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=True)
    dead = tmp_path / done.stdout.strip()
    (dead / "state").mkdir(parents=True)
    alive = tmp_path / owned_name(PREFIX)
    alive.mkdir()
    stranger = tmp_path / f"{PREFIX}another-host-1-2-abcdef12"
    stranger.mkdir()
    odd = tmp_path / f"{PREFIX}host-{10**30}-2-abcdef12"
    odd.mkdir()
    with state_folder(str(tmp_path), find_runner()) as folder:
        assert folder.startswith(f"{tmp_path}/{PREFIX}")
        assert not dead.exists()
    assert set(tmp_path.iterdir()) == {alive, stranger, odd}
