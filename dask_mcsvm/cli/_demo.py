"""``dask mcsvm demo``."""

from typing import Any

import click

# Ten or a hundred times more gives the same accuracies after five or twenty times the epochs.
DEMO_C = 0.1

FORMULATIONS = ("crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest")

WHAT_IT_MEANS = """\
The gap is a proof: no weights have an objective lower by more than this share. So the accuracies
compare formulations, not solvers. Lee-Lin-Wahba asks for absolute margins, which a linear model of
few features cannot give."""

SAME_IN_PYTHON = f"""\
    from dask_mcsvm import LinearMCSVC
    model = LinearMCSVC(formulation="{FORMULATIONS[0]}", C={DEMO_C}, random_state=0)
    print(model.fit(X_train, y_train).gap_, model.score(X_test, y_test))"""


@click.command()
def demo() -> None:
    """Train the four formulations on handwritten digits, in memory."""
    import time

    from dask_mcsvm import LinearMCSVC

    X_train, X_test, y_train, y_test = _digits()
    n, d = X_train.shape
    click.echo(f"scikit-learn's digits: {n} rows to train, {len(X_test)} to test, {d} features.")
    click.echo("Kernels are compiled once and kept: the first run needs up to a minute for that.\n")
    click.echo(f"{'formulation':16}{'epochs':>8}{'seconds':>9}{'rel. gap':>10}{'accuracy':>10}")
    for formulation in FORMULATIONS:
        model = LinearMCSVC(formulation=formulation, C=DEMO_C, random_state=0)
        # One epoch that nobody sees: compilation is not part of the method's seconds.
        LinearMCSVC(formulation=formulation, tol=0, max_epochs=1).fit(X_train[:100], y_train[:100])
        start = time.perf_counter()
        model.fit(X_train, y_train)
        seconds = time.perf_counter() - start
        accuracy = model.score(X_test, y_test)
        click.echo(
            f"{formulation:16}{model.n_iter_:8d}{seconds:9.2f}{model.gap_:10.1e}{accuracy:10.3f}"
        )
    click.echo(f"\n{WHAT_IT_MEANS}\n\nThe same in Python:\n\n{SAME_IN_PYTHON}")


def _digits() -> Any:
    """Images of 8 x 8 pixels in [0, 1], a quarter of them held back."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.25, stratify=y, random_state=0)
