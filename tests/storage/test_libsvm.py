"""LIBSVM text: the fast parser equals the slow one, which says what is wrong and where."""

import bz2
import gzip
import lzma
import os
import re
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from dask_mcsvm.storage import _stream, _svmlight, _write, convert_libsvm, libsvm, open_dataset

TEXT = b"""\
+1 1:0.5 3:-2 10:1e-3
-1 2:1
# a comment, 9:9
-1   3:.25\t7:4.  # and another
+1

1.0 1:1
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def says(text, kind=ValueError):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def convert(text, **options):
    Path("t.svm").write_bytes(text)
    return convert_libsvm("t.svm", "t.zarr", overwrite=True, **options)


# The parser ---------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats(width=64).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.6g}"),
    st.floats(-1e3, 1e3).map(lambda x: f"{x:+.15f}"),
    st.from_regex(r"[+-]?[0-9]{0,9}\.[0-9]{1,9}", fullmatch=True),
    st.from_regex(r"[0-9]{1,17}\.", fullmatch=True),
)
lines = st.builds(
    lambda label, pairs, space, end: (
        label + "".join(f"{space}{i}:{v}" for i, v in sorted(pairs.items())) + end
    ),
    st.sampled_from(["1", "-1", "+3.5", "cat", "2,3", "", " 7"]),
    st.dictionaries(st.integers(0, 2**31 - 1), numbers, max_size=4),
    st.sampled_from([" ", "  ", "\t"]),
    st.sampled_from(["\n", " \n", "\r\n"]),
)
noise = st.text(alphabet="0123456789:.-+e# \n,a_é", max_size=40).map(lambda text: text + "\n")


def outcome(parse, text):
    try:
        found = parse(text)
    except _svmlight.LineError as error:
        return error.line, str(error)
    if found is None:
        return None
    arrays = (found.data, found.indices, found.indptr, found.labels, found.lines)
    return [array.tolist() for array in arrays[1:]], found.data.tobytes()


@given(st.lists(lines, min_size=1, max_size=5).map("".join) | noise)
@example("1 1:.\n")
@example("1 1:1.2.3\n")
@example("1 1:2:3 4\n")
@example("1 1:- 2:3\n")
@example("1 :3\n")
@example("1 3: 4:1\n")
@example("1 2147483648:1\n")
@example("1 00000000000000000001:1\n")
@example("1 5:1 5:2\n")
@example("1 1/:2\n")
@example("1 1:12345678.12345678 2:/2345678 3:1234567:\n")
@example("\n\n1\n")
@example("1\n2 1:1\n3\n")
def test_the_fast_parser_equals_the_slow_one(text):
    text = text.encode()
    fast = outcome(_svmlight.parse_fast, text)
    if fast is not None:  # it left the text to the slow one
        assert fast == outcome(_svmlight.parse_slow, text)


def test_the_fast_parser_takes_ordinary_text():
    for text in (
        b"1 1:0.5 2:-3\n2\n",
        b"a 7:1e-5 9:123456.789012\n\n1 1:nan 2:0.12345678901234567\n",
    ):
        assert _svmlight.parse_fast(text) is not None


# Rows and labels ----------------------------------------------------------------------------------


def test_a_text_with_all_its_liberties():
    dataset = convert(TEXT)
    expected = np.zeros((5, 10), dtype=np.float32)
    expected[0, [0, 2, 9]] = 0.5, -2, 1e-3
    expected[1, 1] = 1
    expected[2, [2, 6]] = 0.25, 4
    expected[4, 0] = 1
    assert np.array_equal(dataset.read_rows(0, 5).toarray(), expected)
    assert dataset.dtype == np.float32
    assert dataset.classes.tolist() == [-1, 1]
    assert dataset.classes.dtype == np.int64
    assert dataset.read_labels().tolist() == [1, 0, 0, 1, 1]
    dataset.validate()
    assert sorted(os.listdir()) == ["t.svm", "t.zarr"]


@pytest.mark.parametrize(
    ("precision", "zero_based"), [("%.16g", True), ("%.6g", False), ("%.3f", True)]
)
def test_it_reads_what_scikit_learn_reads(monkeypatch, precision, zero_based):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 40)) < 0.2, rng.standard_normal((300, 40)), 0)
    lines = []
    for row, label in zip(X, rng.integers(0, 5, 300), strict=True):
        columns = np.flatnonzero(row)
        pairs = [f"{c + 1 - zero_based}:{precision % row[c]}" for c in columns]
        lines.append(" ".join([str(label), *pairs]))
    Path("t.svm").write_text("\n".join(lines))  # no newline at the end
    monkeypatch.setattr(libsvm, "PIECE_BYTES", 500)
    dataset = convert_libsvm("t.svm", "t.zarr", dtype="float64", block_bytes=3000)
    expected, y = load_svmlight_file("t.svm")
    assert (dataset.read_rows(0, 300) != expected).nnz == 0
    assert dataset.shape == expected.shape
    assert np.array_equal(dataset.classes[dataset.read_labels()], y)
    dump_svmlight_file(expected, y, "again.svm", zero_based=zero_based)
    again = convert_libsvm("again.svm", "again.zarr", dtype="float64")
    assert again.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("3 \u0663", ["3", "\u0663"]),  # a digit of another script is a name
        ("0x10 16", ["0x10", "16"]),
        ("class_1 _1 1_", ["1_", "_1", "class_1"]),
        ("9007199254740993.0 9007199254740992", [9007199254740992, 9007199254740993]),
        ("99999999999999999998 99999999999999999999", ["9" * 19 + "8", "9" * 20]),
        ("0.1 0.10000000000000000001", ["0.1", "0.10000000000000000001"]),
        ("0 1e-400", ["0", "1e-400"]),
        ("1 02 +3", [1, 2, 3]),
        ("1 1.5 2", [1.0, 1.5, 2.0]),
        ("1 1.0 1e0", [1]),
        ("9007199254740993 1 2", [1, 2, 9007199254740993]),
        ("ham spam 1", ["1", "ham", "spam"]),
        ("nan 1 2", ["1", "2", "nan"]),
        ("café b 1e400", ["1e400", "b", "café"]),
    ],
)
def test_kinds_of_labels(labels, classes):
    text = "".join(f"{label} 1:1\n" for label in labels.split())
    dataset = convert(text.encode())
    assert dataset.classes.tolist() == classes
    assert dataset.classes.dtype.kind == {int: "i", float: "f", str: "U"}[type(classes[0])]


def test_query_ids_and_a_byte_order_mark_are_left_out():
    dataset = convert(b"\xef\xbb\xbf1 qid:3 1:5\n2 qid:4 2:6\n")
    assert dataset.read_rows(0, 2).toarray().tolist() == [[5, 0], [0, 6]]
    assert dataset.classes.tolist() == [1, 2]


@pytest.mark.parametrize(("suffix", "module"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
def test_compressed_text(suffix, module):
    with module.open(f"t.svm.{suffix}", "wb") as file:
        file.write(TEXT * 100)
    dataset = convert_libsvm(f"t.svm.{suffix}", "t.zarr")
    assert dataset.shape == (500, 10)
    stored = Path(f"t.svm.{suffix}").read_bytes()
    for damaged in (stored[:-20], b"no such format"):
        Path(f"bad.svm.{suffix}").write_bytes(damaged)
        with pytest.raises(
            ValueError, match=rf"^bad.svm.{suffix}: can not be decompressed \(.+\); fetch the file"
        ):
            convert_libsvm(f"bad.svm.{suffix}", "bad.zarr")
    assert "bad.zarr" not in os.listdir()


def test_the_number_of_features_and_where_indices_begin():
    text = b"1 1:1 4:2\n2 2:3\n"
    assert convert(text).shape == (2, 4)
    assert convert(text, zero_based=True).shape == (2, 5)
    assert convert(text, n_features=9).shape == (2, 9)
    assert convert(text, n_features=4, zero_based=False).read_rows(0, 1).indices.tolist() == [0, 3]
    assert convert(b"1 0:1 4:2\n").shape == (1, 5)
    assert convert(b"1\n2\n").shape == (2, 1)


def test_blocks_and_progress(monkeypatch):
    monkeypatch.setattr(libsvm, "PIECE_BYTES", 200)
    calls = []
    text = b"".join(b"%d 1:%d 2:0.5\n" % (i % 3, i) for i in range(500))
    dataset = convert(text, block_bytes=1000, progress=lambda *c: calls.append(c), block_rows=100)
    assert dataset.n_blocks == 5
    assert calls == sorted(calls)
    assert 5 < len(calls) < 20
    assert calls[-1] == (500, len(text), len(text))
    assert dataset.read_rows(0, 500).toarray()[:, 0].tolist() == list(range(500))


def test_a_url():
    Path("t.svm").write_bytes(TEXT)
    source = f"file://{Path('t.svm').absolute()}"
    dataset = convert_libsvm(source, "memory://libsvm-test/t.zarr", overwrite=True)
    assert open_dataset("memory://libsvm-test/t.zarr").id == dataset.id


# What is wrong, and where -------------------------------------------------------------------------

PAIR = "where index:value is needed, for example 7:0.5."


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1 3:1 2:1", "index 2 comes after 3; sort the pairs of a line and merge equal ones."),
        ("1 3:1 3:2", "index 3 appears twice; sort the pairs of a line and merge equal ones."),
        ("1 a:1", f"found 'a:1' {PAIR}"),
        ("1 -2:1", f"found '-2:1' {PAIR}"),
        ("1 2:", f"found '2:' {PAIR}"),
        ("1 2:x", f"found '2:x' {PAIR}"),
        ("1 2", f"found '2' {PAIR}"),
        ("1 1:2:3", f"found '1:2:3' {PAIR}"),
        ("1 1: 2", f"found '1:' {PAIR}"),
        (f"1 1:{'9' * 50}z", f"found '1:{'9' * 35}...' {PAIR}"),
        (" 1:2 3:4", "no label before the first pair; a line begins with its label."),
        ("1 1:1_000", f"found '1:1_000' {PAIR}"),
        ("1 1_0:1", f"found '1_0:1' {PAIR}"),
        ("1 \u0663:1", f"found '\u0663:1' {PAIR}"),
        ("1 1:\u0663", f"found '1:\u0663' {PAIR}"),
        ("1 1:0x10", f"found '1:0x10' {PAIR}"),
        ("1 +1:2", f"found '+1:2' {PAIR}"),
        (
            "1_2 1:1",
            "label '1_2' may be a name or the number 12; write the number without underscores, or "
            "a name that begins with a letter.",
        ),
        (
            "1.5_0e1 1:1",
            "label '1.5_0e1' may be a name or the number 1.50e1; write the number without "
            "underscores, or a name that begins with a letter.",
        ),
        (
            "C# 1:1",
            "label 'C#' holds '#', which begins a comment; put a blank before a comment, or take "
            "another name for the class.",
        ),
        ("1\u00a0 1:1", "label '1\\xa0' holds a character that can not be seen; take it out."),
        ("\ufeff1 1:1", "label '\\ufeff1' holds a character that can not be seen; take it out."),
        ("x" * 300, f"label '{'x' * 37}...' has 300 bytes; at most 256 are stored."),
        ("1 1:1\r2 1:1", "a carriage return inside a line; end lines with a newline."),
        ("1 1:1 # c\r2 1:1", "a carriage return inside a line; end lines with a newline."),
        (
            "1 1:1\x00 2:2",
            "holds the byte '\\x00', which text does not have; fetch the file again, or convert it "
            "to UTF-8 text.",
        ),
        ("1 2:1 3:nan", "3:nan is not a finite number; leave the pair or the line out."),
        ("1 2:1 3:-Infinity", "3:-inf is not a finite number; leave the pair or the line out."),
        ("1 3:1e39", "3:1e+39 does not fit float32; pass dtype='float64'."),
        (
            f"1 {'0' * 30}1:1 {'9' * 5000}:1",
            "index of 5,000 digits is above 2147483647, the largest that is stored.",
        ),
        ("1,2 1:1", "label '1,2' names several classes; one label per line is needed."),
        (
            "1 2147483648:1",
            "index 2147483648 is above 2147483647, the largest that is stored.",
        ),
    ],
)
def test_a_line_that_can_not_be_read(monkeypatch, line, text):
    monkeypatch.setattr(libsvm, "PIECE_BYTES", 64)  # the line is in a later piece
    with says(f"t.svm, line 52: {text}"):
        convert(b"1 1:1\n\n" * 25 + f"# comment\n{line}\n1 1:1\n".encode())
    assert os.listdir() == ["t.svm"]


def test_lines_that_look_odd_and_are_right():
    text = f"class_1 {'0' * 30}1:+1.5e+0 2:1E2\r\n2 1:.5 # \x00 C#\r\r\n \t\r\ncafé 3:007\n"
    dataset = convert(text.encode())
    assert dataset.classes.tolist() == ["2", "café", "class_1"]
    assert dataset.read_rows(0, 3).toarray().tolist() == [[1.5, 100, 0], [0.5, 0, 0], [0, 0, 7]]


def test_bytes_that_are_no_text():
    with says("t.svm, line 2: label b'\\xff' is not UTF-8 text; convert the file to UTF-8."):
        convert(b"1 1:1\n\xff 1:1\n")
    with pytest.raises(ValueError, match=r"^t\.svm, line 1: holds the byte '\\x00'"):
        convert("1 1:1\n".encode("utf-16"))
    with says("t.svm, line 2: 1:0.5 does not fit int32; pass dtype='float64'."):
        convert(b"1 1:3\n2 1:0.5\n", dtype="int32")


def test_a_file_without_newlines(monkeypatch):
    monkeypatch.setattr(libsvm, "PIECE_BYTES", 64)
    monkeypatch.setattr(libsvm, "MAX_LINE_BYTES", 1000)
    with says("t.svm, line 3: has more than 1,000 bytes; pass svmlight text."):
        convert(b"1 1:1\n2 1:2\n" + b"\0" * 10**6)


def test_a_pipe_is_read_and_one_without_a_writer_is_refused(monkeypatch):
    os.mkfifo("t.svm")
    calls = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(Path("t.svm").write_bytes, TEXT * 5000)  # more than a pipe holds
        dataset = convert_libsvm("t.svm", "t.zarr", progress=lambda *c: calls.append(c))
        writing.result(timeout=60)
    assert dataset.shape == (25000, 10)
    assert calls[-1] == (25000, len(TEXT) * 5000, 0)
    monkeypatch.setattr(_stream, "WRITER_SECONDS", 0.0)
    with says(
        "t.svm is a pipe that no program writes to; start that program first, or pass a file."
    ):
        convert_libsvm("t.svm", "u.zarr")
    with says("/dev/zero is a device or a socket, not a file; pass a file or a pipe."):
        convert_libsvm("/dev/zero", "u.zarr")
    assert sorted(os.listdir()) == ["t.svm", "t.zarr"]


def test_indices_that_do_not_fit():
    with says("t.svm, line 2: index 9 is beyond n_features=8; pass a larger n_features."):
        convert(b"1 8:1\n1 9:1\n", n_features=8)
    with says("t.svm, line 2: index 8 is beyond n_features=8; pass a larger n_features."):
        convert(b"1 7:1\n1 8:1\n", n_features=8, zero_based=True)
    text = "index 0 in text that counts from 1; pass zero_based=True or 'auto'."
    with says(f"t.svm, line 3: {text}"):
        convert(b"1 8:1\n\n1 0:1\n", zero_based=False)
    with says(
        "t.svm: index 8 needs 9 features, n_features is 8; indices count from 0 here because "
        "index 0 occurs."
    ):
        convert(b"1 8:1\n1 0:1\n", n_features=8)


def test_other_bad_input():
    with says("t.svm: holds no rows; is it the right file?"):
        convert(b"# nothing\n\n")
    with says("gone.svm: there is no such file; check the path.", FileNotFoundError):
        convert_libsvm("gone.svm", "t.zarr")
    with says("zero_based is 'maybe'; it must be True, False or 'auto'."):
        convert(TEXT, zero_based="maybe")
    with says("n_features is 0; it must be at least 1, or None."):
        convert(TEXT, n_features=0)
    with says(
        "X has dtype complex64; a dataset stores integers, float32 or float64. "
        "Use X.astype('float64').",
        TypeError,
    ):
        convert(TEXT, dtype="complex64")
    convert(TEXT)
    with says("t.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        convert_libsvm("t.svm", "t.zarr")
    assert sorted(os.listdir()) == ["t.svm", "t.zarr"]


def test_memory_does_not_grow_with_the_text(monkeypatch):
    monkeypatch.setattr(_write, "SIZES", _write.Sizes(chunk_entries=1 << 17))
    line = " ".join(["1", *(f"{i}:0.{i}" for i in range(1, 1000))]).encode() + b"\n"
    Path("t.svm").write_bytes(line * 1500)  # 16 MB
    tracemalloc.start()
    try:
        convert_libsvm("t.svm", "t.zarr", block_bytes=1 << 19)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
