"""Damaged and tampered files: read as they were, or refused in one sentence with the path.

    python tests/fuzz/fuzz_files.py --seconds 600 --seed 0
    python tests/fuzz/fuzz_files.py --case SEED

Flipped bits, truncated, deleted and swapped files, other values in JSON: of linear and LaRank
models, datasets, checkpoints and svmlight text. Damaged bytes must never give another answer;
JSON that was changed to something allowed may.
"""

import json
import os
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from runner import Wrong, check, main

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import convert_libsvm, describe, open_dataset, write_dataset

Rng = np.random.Generator


def rows():
    """Overlapping clusters, three classes; two of five entries are zero."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(3, 6))[y] + rng.normal(size=(90, 6))
    return X * (rng.random(X.shape) < 0.6), y


class Stopped(Exception):
    """A fit that was left after two epochs."""


def stop_after_two(record, seen=[]):  # noqa: B006
    seen.append(record)
    if len(seen) % 2 == 0:
        raise Stopped


# Files as they should be ------------------------------------------------------------------------

#: Costs of mistakes, standardized columns and probabilities at once.
ALL = {"margins": 1.5 * (1 - np.eye(3)), "standardize": True, "probability": True}

NAMES = np.array(["ham", "spam", "egg & bacon"])
MARGINS = {
    "table": ALL["margins"], "pairs": {("ham", "spam"): 3.0},
    "tree": {"ham": "meat", "egg & bacon": "meat", "spam": "food", "meat": "food"},
}  # fmt: skip

CHECKPOINTS = {
    "blocks": {"memory_limit": "64MB"},
    "early": {"memory_limit": "64MB", "formulation": "ovr"},
    "shards": {"solver": "shards"},
    "rounds": {"solver": "rounds", "formulation": "ww"},
    "blocks, all": {"memory_limit": "64MB", **ALL},
    "shards, all": {"solver": "shards", **ALL},
}


def checkpointed(name: str, folder: Path, **more) -> LinearMCSVC:
    """The same fit each time, with a checkpoint in `folder`."""
    X, y = rows()
    model = LinearMCSVC(
        C=0.1, tol=1e-4, max_epochs=12, checkpoint=folder / name, random_state=0,
        **CHECKPOINTS[name], **more,
    )  # fmt: skip
    if "memory_limit" in CHECKPOINTS[name]:
        return model.fit(source("csr"))
    chunks = (30, -1)
    return model.fit(da.from_array(X, chunks=chunks), da.from_array(y, chunks=30))


@cache
def folder_of_files() -> Path:
    """A folder of this process, in the one that `runner.main` removes."""
    return Path(tempfile.mkdtemp(prefix="files-"))


@cache
def source(name: str) -> Path:
    """A whole file of some kind, made when it is asked for."""
    folder = folder_of_files()
    X, y = rows()
    names = NAMES[y]
    match name:
        case "linear":
            LinearMCSVC(random_state=0).fit(X, names).save(folder / name, notes={"from": [1, {}]})
        case "sparse":
            LinearMCSVC(random_state=0).fit(sp.csr_matrix(X), y).sparsify().save(folder / name)
        case "table" | "pairs" | "tree":
            more = ALL | {"margins": MARGINS[name]}
            LinearMCSVC(random_state=0, **more).fit(X, names).save(folder / name)
        case "larank rbf" | "larank linear":
            LaRankSVC(kernel=name.split()[1], random_state=0).fit(X, names).save(folder / name)
        case "larank csr":
            stream = LaRankSVC(random_state=0).partial_fit(sp.csr_matrix(X), y, classes=[0, 1, 2])
            stream.save(folder / name)
        case "csr":
            weight = y + 1.0
            write_dataset(
                folder / name, sp.csr_matrix(X), names, block_rows=20, sample_weight=weight
            )
        case "dense":
            write_dataset(folder / name, X.astype(np.float32), y, block_rows=40)
        case _:
            with suppress(Stopped):
                checkpointed(name, folder, callbacks=(stop_after_two,))
                raise AssertionError("a fit of two epochs ended by itself")
    return folder / name


@cache
def fitted(name: str) -> LinearMCSVC:
    """What the fit of a checkpoint comes to."""
    with tempfile.TemporaryDirectory() as folder:
        return checkpointed(name, Path(folder))


# Damage -----------------------------------------------------------------------------------------


def damage(rng: Rng, folder: Path) -> str:
    """Damage one file below `folder`; says how."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    if not files:  # what came before has left none
        return f"{folder} is empty"
    file = files[int(rng.integers(len(files)))]
    if file.suffix == ".json" and rng.random() < 0.6:
        with suppress(ValueError, RecursionError):  # it was damaged before
            return tamper(rng, file)
    data = bytearray(file.read_bytes())
    how = str(rng.choice(["flip", "flip", "flip", "cut", "delete", "zero", "grow", "swap", "pipe"]))
    match how:
        case "flip" if data:
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        case "cut":
            data = data[: int(rng.integers(len(data) + 1)) or 0]
        case "zero":
            data = bytearray(len(data))
        case "grow":
            data += rng.bytes(int(rng.integers(1, 100)))
        case "swap":
            other = files[int(rng.integers(len(files)))]
            data = bytearray(other.read_bytes())
        case "delete" | "pipe":
            file.unlink()
            if how == "pipe":
                os.mkfifo(file)
            return f"{how} {file.name}"
    file.write_bytes(data)
    return f"{how} {file.name}"


ODD = (
    None, True, 0, -1, 1, 2, 3, 1e400, -1e308, 1.5, 2**31, 2**40, 2**63, -(2**70), "", "x", "nan",
    "../../etc", [], [1], [[1]], {}, {"a": 1}, "<f8", "<i4", "|O", "float32", "\ud800", "a" * 9999,
)  # fmt: skip


def tamper(rng: Rng, file: Path) -> str:
    """Change one value of a JSON file."""
    document = json.loads(file.read_text())
    places = list(walk(document))
    holder, key = places[int(rng.integers(len(places)))]
    was = holder[key]
    how = rng.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.3 and isinstance(was, int | float) and not isinstance(was, bool):
        holder[key] = was + int(rng.choice([-1, 1, 7, 10**6]))
    elif how < 0.4 and isinstance(was, list) and was:
        holder[key] = was[:-1] if rng.random() < 0.5 else was + was
    else:
        holder[key] = ODD[int(rng.integers(len(ODD)))]
    text = json.dumps(document)
    if rng.random() < 0.03:
        text = "[" * 100_000 + text
    file.write_text(text)
    return f"tamper with {key!r} of {file.name}"


def walk(value):
    """Every place of a JSON document: its holder and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, dict | list):
            yield from walk(item)


# Cases ------------------------------------------------------------------------------------------


def damaged(rng: Rng, name: str, folder: str) -> tuple[Path, bool]:
    """A copy of a file with some damage, and whether JSON was changed on purpose."""
    target = Path(folder, "it")
    shutil.copytree(source(name), target)
    done = [damage(rng, target) for _ in range(int(rng.integers(1, 3)))]
    return target, any("tamper" in how or "swap" in how or "grow" in how for how in done)


MODELS = (
    "linear", "sparse", "larank rbf", "larank linear", "larank csr", "table", "pairs", "tree",
)  # fmt: skip


def case_model(rng: Rng) -> None:
    name = str(rng.choice(MODELS))
    kind = LaRankSVC if name.startswith("larank") else LinearMCSVC
    X, y = rows()
    expected = kind.load(source(name)).decision_function(X)
    with tempfile.TemporaryDirectory() as folder:
        path, meant = damaged(rng, name, folder)
        if rng.random() < 0.2:
            describe(path)
        model = kind.load(path)
        found = model.predict(X)
        check(found.shape == (90,), "labels of another shape")
        check(set(found.tolist()) <= set(model.classes_.tolist()), "labels that are no classes")
        if not meant:
            same = np.array_equal(model.decision_function(X), expected)
            check(same, "a damaged model gives other scores")
        if getattr(model, "probability", False):
            likely = model.predict_proba(X)
            check((likely >= 0).all() and np.allclose(likely.sum(axis=1), 1), "no probabilities")
            check(np.isfinite([model.mean_, model.scale_]).all(), "columns that are not finite")
        if kind is LinearMCSVC and rng.random() < 0.5:
            model.certain(X)
            labels = y if name == "sparse" else NAMES[y]
            proof = model.certify(X, labels)
            near = abs(proof.primal - model.primal_) <= 1e-6 * proof.primal
            check(meant or near, "a damaged model has another primal")
        if kind is LaRankSVC and rng.random() < 0.5:
            model.partial_fit(X, model.classes_[y % len(model.classes_)])
            check(np.isfinite(model.decision_function(X)).all(), "scores that are not finite")
        elif rng.random() < 0.3:
            model.save(Path(folder, "again"))


def case_dataset(rng: Rng) -> None:
    name = str(rng.choice(["csr", "dense"]))
    whole = open_dataset(source(name))
    expected = read_all(whole)
    with tempfile.TemporaryDirectory() as folder:
        path, meant = damaged(rng, name, folder)
        dataset = open_dataset(path)
        found = read_all(dataset)
        if not meant:
            same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
            check(same, "a damaged dataset gives other rows")
        if rng.random() < 0.3:
            dataset.validate()
        if rng.random() < 0.3:
            LinearMCSVC(memory_limit="64MB", max_epochs=3, random_state=0).fit(dataset)


def read_all(dataset) -> list[np.ndarray]:
    n = dataset.shape[0]
    X = dataset.read_rows(0, n)
    weight = dataset.read_weights()
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    labels = dataset.classes[dataset.read_labels()]
    return [dense, labels, np.ones(n) if weight is None else weight]


def case_checkpoint(rng: Rng) -> None:
    name = str(rng.choice(list(CHECKPOINTS)))
    whole = fitted(name)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source(name), Path(folder, name))
        done = [damage(rng, Path(folder, name)) for _ in range(int(rng.integers(1, 3)))]
        model = checkpointed(name, Path(folder), resume=True)
        check(model.gap_ >= -1e-6, f"a gap below zero: {model.gap_}")
        if not any("tamper" in how or "swap" in how or "grow" in how for how in done):
            check(np.array_equal(model.coef_, whole.coef_), "a resumed fit gives another model")


PIECES = (
    b"1", b"-2", b"+3", b"cat", b"1_2", b"1.5", b"nan", b"007", b" ", b"\t", b"\n", b"\r\n", b"\r",
    b":", b"1:2", b"3:0.5", b"7:1e3", b"7:1_0", b"9:nan", b"5:1e39", b"4:-.5", b"8:+1.", b"0:1",
    b"2147483648:1", b"#", b"# c", b"qid:3", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xc2\xa0", b",",
)  # fmt: skip
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def case_text(rng: Rng) -> None:
    """svmlight text: rows as read line by line with a pattern, or refused."""
    lines = []
    for _ in range(int(rng.integers(1, 8))):
        columns = np.sort(rng.choice(9, int(rng.integers(5)), replace=False)) + 1
        pairs = "".join(f" {c}:{rng.normal():.6g}" for c in columns)
        lines.append(f"{rng.choice(['1', '2', '-1', 'cat', '2.0'])}{pairs}\n")
    text = bytearray("".join(lines).encode())
    for _ in range(int(rng.integers(4))):
        at = int(rng.integers(len(text) + 1))
        if rng.random() < 0.5:
            text[at : at + int(rng.integers(2))] = PIECES[int(rng.integers(len(PIECES)))]
        elif text:
            text[min(at, len(text) - 1)] ^= 1 << int(rng.integers(8))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "t.svm")
        file.write_bytes(text)
        dataset = convert_libsvm(file, Path(folder, "t"), dtype="float64")
        found, labels = dataset.read_rows(0, dataset.shape[0]).toarray(), dataset.read_labels()
        names = dataset.classes[labels].tolist()
    plain = bytes(text).removeprefix(b"\xef\xbb\xbf")
    expected, spelled = read_text(plain.decode(errors="replace"))  # comments may hold any byte
    check(len(expected) == len(found), "another number of rows than lines")
    check(np.array_equal(found, expected[:, : found.shape[1]]), "other rows than the text has")
    check(not expected[:, found.shape[1] :].any(), "rows of too few columns")
    by_name = {}
    for name, text_label in zip(names, spelled, strict=True):
        exact = float(text_label) if NUMBER.fullmatch(text_label) else text_label
        numeric = not isinstance(name, str)
        check(name == exact if numeric else name == text_label, f"{text_label!r} became {name!r}")
        by_name.setdefault(name, set()).add(exact)
    check(all(len(same) == 1 for same in by_name.values()), "two labels became one class")


def read_text(text: str) -> tuple[np.ndarray, list[str]]:
    """The same by regular expressions."""
    rows, labels = [], []
    for line in text.split("\n"):
        line = re.sub(r"(?<=[ \t])qid:\S*", "", line.partition("#")[0])
        label, *pairs = line.split() or [""]
        if not label:
            continue
        row = {}
        for pair in pairs:
            index, colon, value = pair.partition(":")
            fine = colon and re.fullmatch("[0-9]+", index) and NUMBER.fullmatch(value)
            check(fine, f"{pair!r} was read as a pair")
            check(int(index) not in row and int(index) > max(row, default=-1), "unsorted pairs")
            row[int(index)] = float(value)
        rows.append(row)
        labels.append(label)
    width = max((i for row in rows for i in row), default=0) + 1
    if width > 10**6:
        raise Wrong(f"{width} columns")
    dense = np.zeros((len(rows), width + 1))
    for number, row in enumerate(rows):
        dense[number, list(row)] = list(row.values())
    from_zero = any(0 in row for row in rows)
    return dense if from_zero else dense[:, 1:], labels


def case(rng: Rng) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        chosen = rng.choice([case_model, case_dataset, case_checkpoint, case_text],
                            p=[0.35, 0.25, 0.15, 0.25])  # fmt: skip
        chosen(rng)


if __name__ == "__main__":
    main(case, __file__, cases="files")
