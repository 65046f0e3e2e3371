"""Runs, which the loop drives: in memory, out of core, on Dask."""
