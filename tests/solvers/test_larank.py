"""LaRank's compiled operations against the specification, and what must not change its path."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.larank_reference import ReferenceLaRank

from dask_mcsvm.data.validation import as_rows
from dask_mcsvm.formulations import CrammerSinger
from dask_mcsvm.solvers.larank import BLOCK_ROWS, Kernel, LaRank, kernel_matrix

N, D, K = 90, 6, 4
GAMMA = 0.1


def problem(*, csr=False, seed=0):
    """Overlapping clusters with unequal costs; CSR rows have zeros, and the first is empty."""
    rng = np.random.default_rng(seed)
    y = (np.arange(N) % K).astype(np.int32)
    X = rng.normal(size=(K, D))[y] + rng.normal(size=(N, D))
    if csr:
        X *= rng.random(X.shape) < 0.7
        X[0] = 0.0
    return X, y, rng.choice([0.5, 1.0, 2.0], N)


def rows_of(X, csr):
    return as_rows(sp.csr_array(X), X.dtype) if csr else X


def gram(X, name):
    products = X @ X.T
    squares = np.diag(products)
    if name == "linear":
        return products
    return np.exp(-GAMMA * np.maximum(squares[:, None] + squares - 2 * products, 0))


def make_run(X, name="rbf", *, csr=False, kernel=None, **options):
    kernel = kernel or Kernel(name, GAMMA)
    return LaRank(
        n_classes=K, n_features=X.shape[1], is_sparse=csr, dtype=X.dtype, kernel=kernel,
        seed=options.pop("seed", 7), **options,
    )  # fmt: skip


def dense_beta(run):
    beta = np.zeros((N, K))
    beta[run.pattern_ids()] = run.coefficients().toarray().T
    return beta


def processed(run, X, y, C, epochs=1, **options):
    examples = run.examples(X, y, C)
    for epoch in range(epochs):
        run.process(examples, np.random.default_rng(epoch).permutation(N), **options)
    return examples


def same_model(a, b):
    """Whether two runs hold the same bytes."""
    ours, theirs = a.export(), b.export()
    names = set(ours) - {"counts", "rows"}
    return all(np.array_equal(ours[name], theirs[name]) for name in names)


# -- the specification -----------------------------------------------------------------------------


@pytest.mark.parametrize("max_support", [None, 30])
@pytest.mark.parametrize("schedule", ["cost", "fixed"])
@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_the_run_takes_the_path_of_the_specification(name, csr, schedule, max_support):
    X, y, C = problem(csr=csr)
    width = np.count_nonzero(X, axis=1) if csr else D
    nonzeros = width if name == "linear" else None
    options = {"schedule": schedule, "max_support": max_support}
    reference = ReferenceLaRank(gram(X, name), y, C, K, nonzeros=nonzeros, seed=7, **options)
    run = make_run(X, name, csr=csr, **options)
    examples = run.examples(rows_of(X, csr), y, C)
    settled = C[0] if csr and name == "linear" else 0.0  # K(x, x) = 0: not in the reference's dual
    for epoch in range(3):
        order = np.random.default_rng(epoch).permutation(N)
        reference.run(order)
        run.process(examples, order, keep_rows=True)
        np.testing.assert_allclose(dense_beta(run), reference.beta, atol=1e-11)
        assert run.counters["operations"] == tuple(reference.performed)
        assert run.counters["arg_max"] == reference.arg_max
        assert run.dual == pytest.approx(reference.dual(), abs=1e-10)
        primal, dual = run.objective(examples)
        assert primal == pytest.approx(reference.primal(), abs=1e-9)
        assert dual == pytest.approx(reference.dual() + settled, abs=1e-9)
    if max_support is None:
        assert run.counters["dual_lost"] == 0
    else:
        assert run.n_patterns == max_support
        assert run.counters["dual_lost"] == pytest.approx(reference.dual_lost, rel=1e-9)


def test_primal_and_dual_are_those_of_the_formulation():
    X, y, C = problem()
    run = make_run(X, "linear")
    examples = processed(run, X, y, C)
    form, beta = CrammerSinger(K, C), dense_beta(run)
    primal, dual = run.objective(examples)
    assert form.feasible(dense_beta(run), y, atol=1e-15)
    assert dual == pytest.approx(form.dual(beta, X, y), rel=1e-12)
    assert primal == pytest.approx(form.primal(form.weights(beta, X, y), X, y), rel=1e-12)
    estimated, _ = run.objective(examples, exact=False)
    assert estimated == pytest.approx(primal, rel=1e-12)  # nothing moved since


def test_a_linear_kernel_evaluates_no_kernel_value():
    X, y, C = problem()
    run = make_run(X, "linear")
    processed(run, X, y, C, epochs=2)
    assert run.counters["kernel_evaluations"] == 0


@pytest.mark.parametrize("operations", [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 0.0, 1.0)])
def test_operations_can_be_left_out(operations):
    X, y, C = problem()
    run = make_run(X, operations=operations)
    processed(run, X, y, C)
    performed = np.array(run.counters["operations"])
    assert ((performed > 0) == (np.array(operations) > 0)).all()


def test_the_schedule_by_time_reaches_a_similar_dual():
    X, y, C = problem()
    runs = [make_run(X, schedule=schedule) for schedule in ("cost", "time")]
    examples = [processed(run, X, y, C, epochs=4) for run in runs]
    duals = [run.objective(seen)[1] for run, seen in zip(runs, examples, strict=True)]
    assert duals[1] == pytest.approx(duals[0], rel=0.05)


# -- what must not change the path -----------------------------------------------------------------


@pytest.mark.parametrize("max_support", [None, 20])
@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_chunks_of_a_stream_give_the_bytes_of_the_whole(name, max_support):
    X, y, C = problem()
    whole, parts = (make_run(X, name, max_support=max_support) for _ in range(2))
    whole.process(whole.examples(X, y, C), np.arange(N))
    for part in np.array_split(np.arange(N), [1, 30, 31, 80]):
        parts.process(parts.examples(X[part], y[part], C[part]), np.arange(part.size))
    assert same_model(whole, parts)


def test_a_small_cache_costs_work_and_changes_nothing():
    X, y, C = problem()
    roomy, tight = make_run(X), make_run(X, cache_bytes=5 * 96 * 8)
    for run in (roomy, tight):
        processed(run, X, y, C, epochs=2, keep_rows=True)
    assert same_model(roomy, tight)
    assert roomy.counters["cache_misses"] == 0
    assert tight.counters["cache_misses"] > 0
    assert tight.counters["kernel_evaluations"] > roomy.counters["kernel_evaluations"]
    assert tight.model.values.nbytes <= 5 * 96 * 8


def test_kept_rows_spare_kernel_values():
    X, y, C = problem()
    kept, fresh = make_run(X), make_run(X)
    processed(kept, X, y, C, epochs=3, keep_rows=True)
    processed(fresh, X, y, C, epochs=3)
    assert same_model(kept, fresh)
    assert kept.counters["kernel_evaluations"] < fresh.counters["kernel_evaluations"]


def test_kernel_rows_of_patterns_are_not_computed_again():
    X, y, C = problem()
    run = make_run(X)
    examples = processed(run, X, y, C, epochs=2, keep_rows=True)
    run.tau = np.inf  # nothing moves any more: all that is left are values within a block
    counts = []
    for _ in range(3):
        run.process(examples, np.arange(N), keep_rows=True)
        counts.append(run.counters["kernel_evaluations"])
    blocks = [len(part) for part in np.split(np.arange(N), range(BLOCK_ROWS, N, BLOCK_ROWS))]
    assert np.diff(counts).tolist() == [sum(b * (b - 1) // 2 for b in blocks)] * 2


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_a_run_moved_to_another_process_goes_on_alike(name, csr):
    X, y, C = problem(csr=csr)
    half = N // 2
    rows = rows_of(X, csr)
    stayed = make_run(X, name, csr=csr)
    stayed.process(stayed.examples(rows[:half], y[:half], C[:half]), np.arange(half))
    moved = pickle.loads(pickle.dumps(stayed))
    assert same_model(stayed, moved)
    for run in (stayed, moved):
        run.process(run.examples(rows[half:], y[half:], C[half:]), np.arange(N - half))
    np.testing.assert_allclose(dense_beta(moved), dense_beta(stayed), atol=1e-12)
    if not csr:
        assert same_model(stayed, moved)


def test_rows_seen_before_are_recognised_by_their_number():
    X, y, C = problem()
    run = make_run(X)
    processed(run, X, y, C)
    again = run.examples(X, y, C, base=0)
    np.testing.assert_array_equal(np.flatnonzero(again.slot_of >= 0), np.sort(run.pattern_ids()))
    assert run.n_seen == N


# -- kernels ---------------------------------------------------------------------------------------

KERNELS = {
    "rbf": lambda X, Z: np.exp(-0.3 * ((X[:, None] - Z[None]) ** 2).sum(axis=2)),
    "poly": lambda X, Z: (0.3 * X @ Z.T + 0.5) ** 2,
    "sigmoid": lambda X, Z: np.tanh(0.3 * X @ Z.T + 0.5),
}


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_values(name, csr):
    X, _, _ = problem(csr=csr)
    kernel = Kernel(name, 0.3, 2.0, 0.5)
    found = kernel_matrix(kernel, rows_of(X[:7], csr), rows_of(X[5:], csr))
    np.testing.assert_allclose(found, KERNELS[name](X[:7], X[5:]), rtol=1e-12, atol=1e-14)
    alone = kernel_matrix(kernel, rows_of(X[3:4], csr), rows_of(X[11:12], csr))
    assert alone[0, 0] == found[3, 6]  # a value does not depend on its block
    if not csr:
        assert kernel_matrix(kernel, X[11:12], X[3:4])[0, 0] == found[3, 6]


def test_float32_rows_keep_float32_values():
    X, y, C = problem()
    run = make_run(X.astype(np.float32))
    processed(run, X.astype(np.float32), y, C)
    assert run.model.values.dtype == run.store.dtype == np.float32
    exact = make_run(X)
    processed(exact, X, y, C)
    assert run.dual == pytest.approx(exact.dual, rel=0.05)


@pytest.mark.parametrize("cache_bytes", [2**20, 5 * 96 * 8], ids=["roomy", "tight"])
def test_a_kernel_in_python_takes_the_path_of_the_specification(cache_bytes):
    X, y, C = problem()
    calls = []

    def rbf(A, B):
        calls.append((A.shape[0], B.shape[0]))
        return np.exp(-GAMMA * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    reference = ReferenceLaRank(rbf(X, X), y, C, K, seed=7)
    calls.clear()
    run = make_run(X, kernel=Kernel("callable", function=rbf), cache_bytes=cache_bytes)
    examples = run.examples(X, y, C)
    reference.run(np.arange(N))
    run.process(examples, np.arange(N))
    np.testing.assert_allclose(dense_beta(run), reference.beta, atol=1e-11)
    assert run.counters["kernel_evaluations"] == sum(a * b for a, b in calls)
    assert run.objective(examples)[0] == pytest.approx(reference.primal(), abs=1e-9)


def test_a_precomputed_kernel_takes_the_path_of_the_specification():
    X, y, C = problem()
    matrix = gram(X, "rbf")
    reference = ReferenceLaRank(matrix, y, C, K, seed=7)
    run = make_run(matrix, kernel=Kernel("precomputed"), cache_bytes=5 * 96 * 8)
    examples = run.examples(matrix, y, C)
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(N)
        reference.run(order)
        run.process(examples, order, keep_rows=True)
        np.testing.assert_allclose(dense_beta(run), reference.beta, atol=1e-11)
    assert run.counters["kernel_evaluations"] == 0
