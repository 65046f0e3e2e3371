"""``dask mcsvm``: the command line.

Every ``dask`` command imports this module, so it and the modules of the commands import click and
the standard library; all else waits until a command runs.
"""

import click

from dask_mcsvm import __version__
from dask_mcsvm.cli._convert import convert
from dask_mcsvm.cli._demo import demo
from dask_mcsvm.cli._look import info, report
from dask_mcsvm.cli._predict import predict, score
from dask_mcsvm.cli._train import fit, path


@click.group()
@click.version_option(__version__, prog_name="dask-mcsvm")
def mcsvm() -> None:
    """Exact multi-class support vector machines.

    From raw data to a model with a proof of its quality: convert, then fit or path, then score,
    predict and report.

    Exit codes: 0 done, 1 failed, 2 bad input or usage (nothing was changed), 3 the model was
    trained but did not reach its tolerance, 130 stopped by Ctrl-C.
    """


for _command in (demo, convert, fit, path, predict, score, info, report):
    mcsvm.add_command(_command)
