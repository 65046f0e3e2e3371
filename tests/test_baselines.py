"""What benchmarks compare with finds the optimum that an interior-point solver finds."""

from pathlib import Path

import numpy as np
import pytest
from reference import solve

pytestmark = pytest.mark.scripts
C, K = 0.5, 4


@pytest.fixture(autouse=True)
def baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture
def toy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(60) % K
    X = rng.normal(size=(K, 6))[y] + rng.normal(size=(60, 6))
    return np.where(rng.random(X.shape) < 0.8, X, 0.0), y


def optimum(name: str, X: np.ndarray, y: np.ndarray) -> float:
    return solve(name, X, y, np.full(y.size, C), K)[1]


@pytest.mark.parametrize(("name", "turns", "within"), [
    ("ExponentiatedGradient", 400, 1e-3), ("CuttingPlane", 120, 1e-4),
])  # fmt: skip
def test_linear_baselines_rise_to_the_optimum(
    name: str, turns: int, within: float, toy: tuple[np.ndarray, np.ndarray]
) -> None:
    import baselines

    X, y = toy
    run = getattr(baselines, name)(baselines.as_rows(X), y, K, C)
    best = optimum("crammer_singer", X, y)
    duals = []
    for _ in range(turns):
        run.advance()
        duals.append(run.dual())
    assert np.all(np.diff(duals) > -1e-9 * best)
    assert duals[-1] <= best * (1 + 1e-9)
    assert duals[-1] == pytest.approx(best, rel=within)
    scores = X @ run.W + (np.arange(K) != y[:, None])
    loss = scores.max(axis=1) - scores[np.arange(y.size), y]
    assert 0.5 * np.vdot(run.W, run.W) + C * loss.sum() == pytest.approx(best, rel=0.05)


def test_pegasos_comes_near_the_optimum_of_one_vs_rest(
    toy: tuple[np.ndarray, np.ndarray],
) -> None:
    from baselines import Pegasos, as_rows

    X, y = toy
    run = Pegasos(as_rows(X), y, K, C)
    for _ in range(3000):
        run.advance()
    best = optimum("one_vs_rest", X, y)
    assert best <= run.primal() <= 1.01 * best


@pytest.mark.parametrize("name", ["mcsvm", "svm_struct"])
def test_methods_with_kernels_find_the_dual_optimum(
    name: str, toy: tuple[np.ndarray, np.ndarray]
) -> None:
    import baselines

    X, y = toy
    K_ = (X @ X.T).astype(np.float32)
    found = getattr(baselines, name)(K_, y, K, C, 1e-4)
    assert found.dual(K_, y) == pytest.approx(optimum("crammer_singer", X, y), rel=1e-3)
    assert found.kernels > 0
    np.testing.assert_allclose(found.beta.sum(axis=1), 0, atol=1e-9)


def test_a_perceptron_that_ends_makes_no_mistake_and_mira_solves_each_example_once(
    toy: tuple[np.ndarray, np.ndarray],
) -> None:
    from baselines import averaged_perceptron, mira

    X, y = toy
    K_ = (X @ X.T + 50 * np.eye(y.size)).astype(np.float32)  # separable
    found = averaged_perceptron(K_, y, K, 60)
    assert ((K_ @ found.beta).argmax(axis=1) == y).all()
    assert found.arg_max == 60 * y.size

    one = mira(K_[:1, :1], y[:1], K, C)
    assert one.dual(K_[:1, :1], y[:1]) == pytest.approx(optimum_of_one(float(K_[0, 0])))
    assert (mira(K_, y, K, C).beta.max(axis=1) <= C).all()


def optimum_of_one(square: float) -> float:
    """Of one example with three rivals: max of a - a²/2 (1 + 1/3) square, 0 <= a <= C."""
    a = min(C, 1 / (square * (1 + 1 / (K - 1))))
    return a - a**2 / 2 * square * (1 + 1 / (K - 1))
