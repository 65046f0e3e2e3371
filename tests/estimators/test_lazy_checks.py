"""Rows that are not in memory are checked as rows in memory are, by fit and by every question."""

import re
from functools import partial

import dask
import dask.array as da
import dask.bag
import numpy as np
import pytest
import scipy.sparse as sp
from training.sets import svm

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import write_dataset

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe needs pandas, pyarrow")

RNG = np.random.default_rng(0)
COLUMNS = list("abcde")
FRAME = pd.DataFrame(RNG.normal(size=(240, 5)), columns=COLUMNS)
Y = FRAME[["a", "b", "c"]].to_numpy().argmax(axis=1)
NAMES = np.array(["ash", "birch", "cedar"])
X = FRAME.to_numpy()
QUESTIONS = {
    LinearMCSVC: ("predict", "decision_function", "predict_topk", "score"),
    LaRankSVC: ("predict", "decision_function", "score"),
}
both = pytest.mark.parametrize(
    "new",
    [
        partial(LinearMCSVC, tol=0, max_epochs=5, random_state=0),
        partial(LaRankSVC, kernel="linear", random_state=0),
    ],
    ids=["linear", "larank"],
)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module", params=QUESTIONS, ids=["linear", "larank"])
def model(request):
    """Fitted on a frame, so that it knows names."""
    return request.param(random_state=0).fit(FRAME, NAMES[Y])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Twelve small files with more columns than are used, so that Dask reads several as one."""
    folder = tmp_path_factory.mktemp("files")
    whole = FRAME.assign(label=NAMES[Y], code=pd.array(Y, dtype="Int64"))
    whole = whole.assign(**{f"other{j}": RNG.normal(size=240) for j in range(4)})
    for i in range(12):
        whole[20 * i : 20 * i + 20].to_parquet(folder / f"part{i:02}.parquet")
    return dd.read_parquet(folder)


def says(sentence):
    return pytest.raises(ValueError, match="^" + re.escape(sentence) + "$")


def ask(model, question, rows):
    """The answer, computed."""
    more = {"predict_topk": (2,), "score": (NAMES[Y],)}.get(question, ())
    answer = getattr(model, question)(rows, *more)
    return answer.compute() if hasattr(answer, "compute") else answer


def lazy(rows):
    return da.from_array(rows, chunks=(80, -1))


def altered(chunk, change):
    """X whose other chunks are as Dask was told, and one is not."""

    def some(block, block_id):
        return change(block) if block_id[0] == chunk else block

    return lazy(X).map_blocks(some, dtype=X.dtype, meta=np.empty((0, 0)))


# -- frames ----------------------------------------------------------------------------------------


@both
def test_files_that_dask_reads_together(new, table):
    rows, labels = table[COLUMNS], table["label"]
    chunks = rows.to_dask_array().numblocks[0]
    assert labels.astype(object).to_dask_array().numblocks[0] < chunks < rows.npartitions == 12
    model = new().fit(rows, labels)
    same = new().fit(da.from_array(X, chunks=(240 // chunks, -1)), NAMES[Y])
    assert model.decision_function(FRAME).tobytes() == same.decision_function(X).tobytes()
    assert model.feature_names_in_.tolist() == COLUMNS
    assert model.classes_.tolist() == NAMES.tolist()
    for question in QUESTIONS[type(model)]:
        there, here = ask(model, question, rows), ask(model, question, FRAME)
        if question == "decision_function":
            np.testing.assert_allclose(there, here, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(there, here)
    assert model.score(rows, labels) == model.score(FRAME, NAMES[Y])


def test_a_path_over_files_keeps_the_names(table):
    found = svm().path(table[COLUMNS], table["label"], [0.1, 1.0], validation=0.2)
    assert found.best_.feature_names_in_.tolist() == COLUMNS
    assert found.best_.predict(table[COLUMNS]).compute().shape == (240,)


@both
def test_nullable_labels_stay_integers(new, table):
    nullable = pd.Series(Y, dtype="Int64")
    forms = [(FRAME, nullable), (table[COLUMNS], table["code"]), (lazy(X), nullable)]
    for rows, labels in forms:
        model = new().fit(rows, labels)
        assert model.classes_.tolist() == [0, 1, 2]
        assert model.classes_.dtype.kind == "i"


@both
@pytest.mark.parametrize("kind", ["Int64", "string", "category", "object"])
def test_a_missing_label_is_named_by_its_row(new, kind):
    labels = pd.Series(Y if kind == "Int64" else NAMES[Y], dtype=kind)
    labels[117] = None
    frames = [dd.from_pandas(part, npartitions=3, sort=False) for part in (FRAME, labels)]
    sentence = (
        "y has no label in row 117; every row needs a label: drop the others with X[keep], y[keep]."
    )
    with says(sentence):
        new().fit(*frames)
    with says(sentence):
        new().fit(lazy(X), labels)
    with says(sentence):
        new().fit(X, labels)


def test_a_missing_label_among_rows_that_are_dealt_out_or_scored(model):
    labels = da.from_array(np.where(np.arange(240) == 200, None, NAMES[Y].astype(object)), 80)
    sentence = (
        "y has no label in row 200; every row needs a label: drop the others with X[keep], y[keep]."
    )
    with says(sentence):
        model.score(dd.from_pandas(FRAME, npartitions=2), labels)
    with says(sentence):
        svm().path(lazy(X), labels, [1.0], validation=0.3)


@both
def test_text_left_in_a_frame_is_named(new):
    texts = FRAME.assign(city=NAMES[Y], number=Y.astype(object))
    lazy_texts = dd.from_pandas(texts.assign(day=pd.Timestamp(0)), npartitions=2)
    with says(
        f"X has columns that are no numbers: 'city' ({lazy_texts['city'].dtype}), 'number' "
        f"({lazy_texts['number'].dtype}), 'day' ({lazy_texts['day'].dtype}); drop them with "
        "X.drop(columns=['city', 'number', 'day']), or encode them with "
        "sklearn.preprocessing.OneHotEncoder."
    ):
        new().fit(lazy_texts, Y)
    model = new().fit(texts.drop(columns="city"), Y)  # objects that are numbers, in memory
    for ask_of in (lambda: new().fit(texts, Y), lambda: model.predict(texts)):
        with says(
            f"X has columns that are no numbers: 'city' ({texts['city'].dtype}); drop them with "
            "X.drop(columns=['city']), or encode them with sklearn.preprocessing.OneHotEncoder."
        ):
            ask_of()


@both
def test_times_and_categories_of_text_are_named(new):
    day = pd.Timestamp(0)
    frame = FRAME.assign(
        day=day, zone=day.tz_localize("UTC"), span=day - day, month=day.to_period("M"),
        kind=pd.Categorical(NAMES[Y]),
    )  # fmt: skip
    for name in frame.columns[5:]:
        sentence = (
            f"X has columns that are no numbers: '{name}' ({frame[name].dtype}); drop them with "
            f"X.drop(columns=['{name}']), or encode them with sklearn.preprocessing.OneHotEncoder."
        )
        for rows in (frame[["a", name]], frame[[name]]):
            with says(sentence):
                new().fit(rows, Y)


@both
def test_masked_values_are_not_read(new):
    hidden = np.arange(240) == 117
    rows = np.ma.masked_array(X, np.repeat(hidden, 5).reshape(X.shape))
    sentence = (
        "{} has masked values, the first in row {}; fill them, for example with {}.filled(0), or "
        "drop those rows."
    )
    model = new().fit(np.ma.masked_array(X), np.ma.masked_array(Y))  # nothing is hidden
    for ask_of in (lambda: new().fit(rows, Y), lambda: model.predict(rows)):
        with says(sentence.format("X", 117, "X")):
            ask_of()
    there = da.from_array(rows, (80, 5), asarray=False)
    with says(sentence.format("X", "37 of chunk 1 of X (rows 80:160)", "X")):
        new().fit(there, Y)
    with says(sentence.format("X", "37 of chunk 1", "X")):
        model.predict(there).compute()
    weights = np.ma.masked_array(np.ones(240), hidden)
    for asked in (new().fit, model.score):
        for questioned in (X, lazy(X)):
            with says(sentence.format("sample_weight", 117, "sample_weight")):
                asked(questioned, Y, sample_weight=weights)
    lazy_weights = da.from_array(weights, 80, asarray=False)
    where = {"fit": "37 of the rows 80:160", "score": "37 of the 80 rows from 80 on"}
    for asked in (new().fit, model.score):
        with says(sentence.format("sample_weight", where[asked.__name__], "sample_weight")):
            asked(da.from_array(X, (80, 5)), Y, sample_weight=lazy_weights)


@both
def test_a_masked_label_is_a_missing_one(new, model):
    labels = np.ma.masked_array(Y, np.arange(240) == 117)
    forms = [(X, labels), (lazy(X), labels), (lazy(X), da.from_array(labels, 80, asarray=False))]
    for rows, given in forms:
        for asked in (new().fit, new().fit(X, Y).score):
            with says(
                "y has no label in row 117; every row needs a label: drop the others with "
                "X[keep], y[keep]."
            ):
                asked(rows, given)


@both
def test_labels_in_a_frame_of_dask_are_refused(new):
    frames = [dd.from_pandas(part, npartitions=3) for part in (FRAME, pd.DataFrame({"y": Y}))]
    with says("y has 2 dimensions; pass shape (n,), one per row."):
        new().fit(*frames)


@both
def test_columns_of_mixed_and_nullable_numbers(new):
    mixed = FRAME.assign(flag=Y > 0, count=pd.array(Y, dtype="Int64"))
    mixed["b"] = mixed["b"].astype("Float64")
    plain = lazy(np.c_[X, Y > 0, Y]).rechunk((120, -1))
    same = new().fit(plain, Y)
    model = new().fit(dd.from_pandas(mixed, npartitions=2), Y)
    np.testing.assert_array_equal(model.decision_function(mixed), same.decision_function(plain))
    mixed.loc[3, "count"] = pd.NA
    with pytest.raises(ValueError, match="NaN"):
        new().fit(dd.from_pandas(mixed, npartitions=2), Y)


# -- columns and values ----------------------------------------------------------------------------


def test_columns_in_another_order_are_refused_as_in_memory(model):
    swapped = FRAME[["b", "a", "c", "d", "e"]]
    renamed = FRAME.rename(columns={"a": "A"})
    for frame in (swapped, renamed, FRAME[["a", "b"]]):
        for question in QUESTIONS[type(model)]:
            with pytest.raises(ValueError, match=r"^The feature names should match") as here:
                ask(model, question, frame)
            with pytest.raises(ValueError, match=r"^The feature names should match") as there:
                ask(model, question, dd.from_pandas(frame, npartitions=2))
            assert str(there.value) == str(here.value)


def test_rows_without_names_warn_as_in_memory(model):
    with pytest.warns(UserWarning, match=r"^X does not have valid feature names, but ") as here:
        model.predict(X)
    with pytest.warns(UserWarning, match=r"^X does not have valid feature names, but ") as there:
        model.predict(lazy(X))
    assert [str(w.message) for w in there] == [str(w.message) for w in here]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("d", [3, 8])
def test_another_number_of_columns_is_refused(model, d, tmp_path):
    rows = RNG.normal(size=(240, d))
    write_dataset(tmp_path / "set.zarr", rows, NAMES[Y])
    for question in QUESTIONS[type(model)]:
        for given in (rows, lazy(rows), lazy(rows).map_blocks(sp.csr_matrix)):
            with says(
                f"X has {d} features, but {type(model).__name__} is expecting 5 features as input; "
                "pass the columns that fit saw, in the same order."
            ):
                ask(model, question, given)
    with pytest.raises(ValueError, match=f"X has {d} features"):
        model.score(tmp_path / "set.zarr")


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize(
    ("bad", "found", "advice"),
    [
        (np.nan, "NaN", "fill the gaps with sklearn.impute.SimpleImputer, or drop those rows"),
        (-np.inf, "infinity or a value too large for dtype('float64')",
         "drop those rows with X[numpy.isfinite(X).all(axis=1)], or clip them"),
    ],
)  # fmt: skip
def test_a_value_that_is_no_number_has_no_label(model, csr, bad, found, advice):
    rows = X.copy()
    rows[97, 3] = bad
    given = lazy(rows).map_blocks(sp.csr_matrix) if csr else lazy(rows)
    for question in QUESTIONS[type(model)]:
        with says(f"Input X contains {found} in row 17 of chunk 1; {advice}."):
            ask(model, question, given)
        with says(f"Input X contains {found}; {advice}."):
            ask(model, question, rows)


# -- chunks unlike the others ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_chunk_with_other_columns_is_named_by_predictions(model):
    for question in QUESTIONS[type(model)]:
        with says(
            "chunk 1 of X has shape (80, 4), and X has 5 columns; every chunk needs the same "
            "columns, in the same order."
        ):
            ask(model, question, altered(1, lambda block: block[:, 1:]))
        with says("chunk 2 of X has dtype <U32; X must be numeric: type X.astype(float)."):
            ask(model, question, altered(2, lambda block: block.astype(str)))


def test_a_chunk_with_other_columns_is_named_by_fit():
    rows = altered(1, lambda block: block[:, 1:])
    for new in (svm, LaRankSVC):
        with says(
            "chunk 1 of X (rows 80:160) has shape (80, 4), and X has 5 columns; every chunk needs "
            "the same columns, in the same order."
        ):
            new().fit(rows, Y)
    unknown = da.concatenate([
        da.from_delayed(dask.delayed(part), (np.nan, 5), X.dtype) for part in (X[:80], X[80:, 1:])
    ])  # fmt: skip
    for new in (svm, LaRankSVC):
        with says(
            "chunk 1 of X has shape (160, 4) and chunk 0 has shape (80, 5); every chunk needs the "
            "same columns, in the same order."
        ):
            new().fit(unknown, Y)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_dense_and_sparse_chunks(model):
    """A fit of shards wants one kind; chunks that are looked at one by one may be of either."""
    rows = altered(1, sp.csr_matrix)
    with says(
        "chunk 1 of X is sparse and chunk 0 is dense; chunks must be all dense or all sparse: type "
        "X.map_blocks(scipy.sparse.csr_matrix)."
    ):
        svm().fit(rows, Y)
    np.testing.assert_array_equal(ask(model, "predict", rows), model.predict(FRAME))
    streams = [LaRankSVC(random_state=0).fit(given, Y) for given in (rows, lazy(X))]
    np.testing.assert_array_equal(*(stream.support_ for stream in streams))


def test_options_that_are_no_dict():
    with says(
        "solver_options is [1]; it must be a dict of option to value, or None, for example "
        'solver_options={"schedule": "uniform"}.'
    ):
        svm(solver_options=[1]).fit(lazy(X), Y)


@both
def test_what_has_no_shape_is_refused(new):
    """It was iterated over, or asked whether it is true: in Dask's words, not ours."""
    later, lazy = dask.delayed(np.asarray), da.from_array(X, chunks=(80, -1))
    fitted = new().fit(X, Y)
    asked = {
        "X": (lambda: new().fit(later(X), Y), lambda: fitted.predict(later(X))),
        "y": (lambda: new().fit(X, later(Y)), lambda: new().fit(lazy, later(Y))),
        "sample_weight": (
            lambda: new().fit(X, Y, later(Y + 1)), lambda: new().fit(lazy, Y, later(Y + 1)),
        ),
    }  # fmt: skip
    for name, calls in asked.items():
        sentence = (
            f"{name} is a Delayed of Dask, which does not say its shape; type "
            f"dask.array.from_delayed({name}, shape=..., dtype=...), or {name}.compute()."
        )
        for call in calls:
            with pytest.raises(TypeError, match=f"^{re.escape(sentence)}$"):
                call()
    with pytest.raises(TypeError, match="X is a Bag of Dask"):
        new().fit(dask.bag.from_sequence(X.tolist()), Y)
