"""Block minimization (Yu et al. 2012) for one-vs-rest: what early shrinking competes with.

Every pass reads all chunks; each is solved by N passes of dual coordinate ascent with all others
held fixed. The same kernels, threads and reader as early shrinking: only the method differs.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dask_mcsvm.solvers.early_shrink.visits import ascend, certify_class, make_block
from dask_mcsvm.training import Source


def block_minimization(
    source: Source, *, C: float, tau: float, tol: float, inner_passes: int, n_jobs: int,
    patience: float, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Train to a certified relative gap; alpha stays in memory, which flatters the method."""
    begun = time.perf_counter()
    n_blocks, k = len(source.row_offsets) - 1, source.n_classes
    W = np.zeros((k, source.shape[1] + 1), source.dtype)
    alphas = [np.zeros((k, rows), source.dtype) for rows in np.diff(source.row_offsets)]
    passes, gap, primal = 0, 1.0, np.inf
    with ThreadPoolExecutor(n_jobs) as pool, ThreadPoolExecutor(1) as reader:
        while gap > tol and time.perf_counter() - begun < patience:
            rng = np.random.default_rng([seed, passes])
            order = rng.permutation(n_blocks).tolist()
            seeds = rng.integers(2**63, size=(n_blocks, k))
            rise = 0.0
            for b, block in _blocks(source, order, reader, C, tau):
                ids = np.arange(block.y.size, dtype=np.int32)

                def solve(m, b=b, block=block, ids=ids, seeds=seeds, W=W):
                    seed = seeds[b, m]
                    return ascend(block, m, ids, alphas[b][m], W[m], inner_passes, 0.0, seed)[0]

                rise += sum(pool.map(solve, range(k)))
            passes += 1
            # A certificate costs a pass as well: look when the dual hardly rises, and now and then.
            if passes % 5 == 0 or rise <= tol * (np.sum([a.sum() for a in alphas])):
                primal, dual, W = _certify(source, alphas, W, pool, reader, C, tau)
                gap = (primal - dual) / primal
    return {
        "wall": time.perf_counter() - begun, "passes": passes, "gap": gap, "primal": primal,
        "W": np.ascontiguousarray(W.T), "reached": gap <= tol,
    }  # fmt: skip


def _blocks(source, order, reader, C, tau):
    ahead = reader.submit(source.read, order[0])
    for b, after in zip(order, [*order[1:], None], strict=True):
        chunk = ahead.result()
        if after is not None:
            ahead = reader.submit(source.read, after)
        yield b, make_block(chunk.X, chunk.y, C * chunk.weight, tau)


def _certify(source, alphas, W, pool, reader, C, tau):
    exact, loss, linear = np.zeros(W.shape), np.zeros(len(W)), np.zeros(len(W))
    for b, block in _blocks(source, list(range(len(alphas))), reader, C, tau):

        def look(m, b=b, block=block):
            w, awake = W[m].astype(np.float64), np.empty(block.y.size, np.bool_)
            lost, total = certify_class(block, m, alphas[b][m], w, 0.0, exact[m], awake)
            loss[m] += lost
            linear[m] += total

        list(pool.map(look, range(len(W))))
    squares = 0.5 * float(np.sum(np.square(W, dtype=np.float64)))
    dual = float(linear.sum() - 0.5 * np.sum(exact * exact))
    return squares + float(loss.sum()), dual, exact.astype(W.dtype)
