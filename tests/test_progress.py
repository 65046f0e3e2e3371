"""The live line, its pace, and events on a cluster."""

import io
import os
import pickle
import sys
import threading

import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.base import clone

from dask_mcsvm import LinearMCSVC, progress
from dask_mcsvm.progress import (
    EVERY_SECONDS,
    LINE_SECONDS,
    SHOWN,
    ClusterEvents,
    LiveLine,
    Pace,
    RichBar,
    TqdmBar,
    bar,
    line_of,
    listening,
)
from dask_mcsvm.storage import write_dataset


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))


def draw(line, *records):
    for seconds, gap in records:
        line({"epoch": seconds, "seconds": seconds, "gap": gap, "active": 0.5, "primal": 1.0})


def test_a_line_has_a_bar_the_numbers_and_the_time_left():
    screen = Terminal()
    line = LiveLine(tol=1e-3, stream=screen)
    draw(line, (1.0, 1.0), (2.0, 0.1))
    last = screen.getvalue().split("\r")[-1]
    full = "█" * 6 + "░" * 12
    assert last == f"{full}  epoch 2  2.00 s  gap 1.0e-01  active 50%  about 2 s left\x1b[K"
    line.close()
    assert screen.getvalue().endswith("\x1b[K\n")


def test_a_line_stays_on_one_line(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((30, 24)))
    screen = Terminal()
    draw(LiveLine(tol=1e-3, stream=screen), (1.0, 1.0), (2.0, 0.1))
    assert all(len(part.removesuffix("\x1b[K")) < 30 for part in screen.getvalue().split("\r"))
    assert "\n" not in screen.getvalue()


def test_fast_epochs_are_not_all_drawn_but_the_last_is():
    screen = Terminal()
    line = LiveLine(stream=screen)
    draw(line, *((0.01 * EVERY_SECONDS * i, 0.5 / i) for i in range(1, 150)))
    assert screen.getvalue().count("\r") == 2
    line.close()
    assert "epoch 0.15  " in screen.getvalue().split("\r")[-1]


def test_without_a_terminal_nothing_is_written():
    file = io.StringIO()
    line = LiveLine(tol=1e-3, stream=file)
    draw(line, (1.0, 1.0))
    line.close()
    assert file.getvalue() == ""


def test_without_a_terminal_a_long_fit_says_a_line_now_and_then():
    file = io.StringIO()
    line = LiveLine(tol=1e-3, stream=file)
    draw(line, *((0.5 * LINE_SECONDS * i, 0.5**i) for i in range(1, 7)))
    line.note("half of it")
    line.close()
    lines = file.getvalue().splitlines()
    assert [text.split()[3] for text in lines[:-1]] == ["15.00", "25.00"]
    assert lines[-1] == "half of it"
    assert "\x1b" not in file.getvalue()


def test_a_long_pass_says_how_far_it_is(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    screen, file = Terminal(), io.StringIO()
    lines = [LiveLine(stream=stream) for stream in (screen, file)]
    with caplog.at_level("INFO", "dask_mcsvm"), listening([line.note for line in lines]):
        meter = progress.Meter(4000)
        for _ in range(4):
            now[0] += 0.6 * LINE_SECONDS
            meter.add(1000)
    said = ["2,000 of 4,000 rows, about 12 s left in this pass",
            "4,000 of 4,000 rows, about 1 s left in this pass"]  # fmt: skip
    assert file.getvalue().splitlines() == said
    assert [record.message.strip() for record in caplog.records] == said
    assert screen.getvalue() == "".join(f"\r{text}\x1b[K" for text in said)
    meter.add(0)  # nobody listens any more, and nothing is due


@pytest.mark.parametrize("formulation", ["cs", "ovr"])
def test_fits_out_of_core_say_how_far_they_are(formulation, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    write_dataset(tmp_path / "rows", *toy, block_rows=20)
    file = io.StringIO()
    line = LiveLine(stream=file)
    model = LinearMCSVC(formulation=formulation, memory_limit="64MB", callbacks=(line,))
    model.fit(tmp_path / "rows")
    said = file.getvalue()
    assert "20 of 60 rows\n40 of 60 rows, about " in said  # compiling is not its pace
    assert "  gap " in said
    if formulation == "ovr":
        assert "2 of 3 classes of active rows, about " in said


def test_a_terminal_that_knows_no_blocks_gets_a_plain_bar():
    screen = Terminal()
    screen.encoding = "ascii"
    draw(LiveLine(tol=1e-3, stream=screen), (1.0, 1.0))
    assert f"\r{bar(0, blocks=False)}  epoch 1" in screen.getvalue()
    screen.getvalue().encode("ascii")


def test_the_bar_does_not_go_back_and_ends_full():
    pace = Pace(tol=1e-3)
    shares = []
    for seconds, gap in enumerate([1.0, 0.1, 0.3, 1e-4]):
        pace.add({"seconds": seconds, "gap": gap})
        shares.append(pace.share)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert pace.seconds_left == 0


@pytest.mark.parametrize("gap", [float("nan"), float("inf"), 0.0, None])
def test_a_gap_that_says_nothing_moves_nothing(gap):
    pace = Pace(tol=1e-3)
    pace.add({"seconds": 1.0, "gap": gap})
    assert pace.share is None
    assert pace.seconds_left is None


def test_a_fit_that_begins_below_tol_is_done():
    pace = Pace(tol=1e-1)
    pace.add({"seconds": 1.0, "gap": 1e-2})
    assert pace.share == 1


def test_a_fit_draws_and_ends_the_line(toy):
    screen = Terminal()
    line = LiveLine(tol=1e-3, stream=screen)
    for fits in (1, 2):  # a path or a second fit begins anew
        LinearMCSVC(callbacks=(line,), random_state=0).fit(*toy)
        assert screen.getvalue().count("\n") == fits
    assert "█" * 18 in screen.getvalue()


def test_the_line_is_ended_when_a_fit_fails(toy):
    screen = Terminal()

    def fail(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LinearMCSVC(callbacks=(LiveLine(stream=screen), fail), random_state=0).fit(*toy)
    assert screen.getvalue().endswith("\n")


@pytest.mark.parametrize("callback", [LiveLine(tol=0.1), ClusterEvents("mine")])
def test_callbacks_survive_clone_and_pickle(callback):
    model = clone(LinearMCSVC(callbacks=(callback,)))
    (again,) = pickle.loads(pickle.dumps(model)).callbacks
    assert vars(again).get("topic") == vars(callback).get("topic")
    assert vars(again).get("tol") == vars(callback).get("tol")


def test_subscribers_of_the_topic_see_every_epoch(toy):
    seen, heard, all_there = [], threading.Event(), threading.Event()

    def handler(event):
        match event[1]:
            case "first":
                heard.set()
            case "last":
                all_there.set()
            case record:
                seen.append(record)

    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.subscribe_topic("dask-mcsvm", handler)
        for _ in range(1000):  # a subscription arrives when it arrives
            client.log_event("dask-mcsvm", "first")
            if heard.wait(0.02):
                break
        model = LinearMCSVC(callbacks=(ClusterEvents(),), random_state=0).fit(*toy)
        client.log_event("dask-mcsvm", "last")
        assert all_there.wait(30)
    assert len(seen) == len(model.history_)
    assert seen[:-1] == model.history_[:-1]  # the last record is certified once more
    assert set(seen[-1]) == set(model.history_[-1])


def test_without_a_client_it_says_what_to_type(toy):
    text = (
        r"^ClusterEvents found no Dask client to send events to; "
        r"type client = distributed\.Client\(\.\.\.\) before the fit\.$"
    )
    with pytest.raises(RuntimeError, match=text):
        LinearMCSVC(callbacks=(ClusterEvents(),)).fit(*toy)


# -- bars of others --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TqdmBar, RichBar])
def test_a_bar_of_another_library_is_drawn_and_ends(kind, toy, capsys):
    shown = kind(tol=1e-2)
    model = LinearMCSVC(tol=1e-2, callbacks=(shown,), random_state=0).fit(*toy)
    told = "".join(capsys.readouterr())
    assert line_of({name: model.history_[-1].get(name) for name in SHOWN})[:12] in told
    assert shown._bar is None
    shown.note("200 of 1,000 rows")
    pickle.dumps(shown)
    shown.close()
    assert "200 of 1,000 rows" in "".join(capsys.readouterr())
    assert clone(model).callbacks[0].tol == 1e-2


@pytest.mark.parametrize(("kind", "package"), [(TqdmBar, "tqdm"), (RichBar, "rich")])
def test_a_bar_without_its_library_says_what_to_type(kind, package, monkeypatch):
    for module in ("tqdm.auto", "rich.progress"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"type: pip install {package}, or use LiveLine"):
        kind(tol=1e-3)({"epoch": 1, "seconds": 1.0, "gap": 0.1})
