"""The harness of all benchmarks: cases, each in a process of its own; results; tables for docs.

A study is a file in benchmarks/studies with two functions. ``cases(quick)`` is a generator of
`Case`: what a yield returns is the `Result` of that case, or None where there is none, so that a
case may depend on one before it. ``tables(results)`` makes named tables of all results. A third,
``pictures(results, folder)``, is optional. ``READS``, also optional, names studies whose results
come along.
"""

from .case import Case, Result, Results
from .tables import Table, best, number, ratio

__all__ = ["Case", "Result", "Results", "Table", "best", "number", "ratio"]
