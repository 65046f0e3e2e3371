"""What steps add to W, and how threads learn of each other's.

Each thread has a W of its own and notes what its visits add to it. After every few visits it
publishes what it has noted and repeats at its own W what the others have published since. Nobody
waits, no addition needs a lock, and no line of W goes to and fro between cores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.dense_weights import updates_all
from dask_mcsvm.solvers.kernels.hybrid_weights import Hybrid
from dask_mcsvm.solvers.kernels.jit import apart, bare_by_type, bare_kernel, bare_part
from dask_mcsvm.solvers.kernels.rows import (
    add_to_all,
    moves_prefetch,
    place_prefetch,
    row_axpy,
    row_prefetch,
    row_update,
    row_update_all,
)
from dask_mcsvm.solvers.kernels.simd import count_of, publish_count
from dask_mcsvm.solvers.kernels.standard_rows import kind_of
from dask_mcsvm.solvers.kernels.weights import Noted

#: Rows ahead of which memory is asked for a row, and before that for where it is.
NEAR, FAR = 4, 10
#: Visits after which a thread publishes its moves, some 20 microseconds. With 256 a fit of 450,000
#: rows has a gap of 1.3e-2 after eight epochs, with 64 one of 1.2e-2, as with one thread.
BLOCK = 64
#: Classes that there is room for in a move, on average: Crammer-Singer moves two or three.
CLASSES = 8
#: Numbers of an int64 array that no two threads may write to lie so far apart.
FAR_APART = 16
#: Of a thread's progress: the visit from which on it looks again, its moves, classes in them.
NEXT, MOVES, PLACES = range(3)


class Moves(NamedTuple):
    """The moves of all threads, from the last time on that all weights were alike."""

    rows: np.ndarray  # (threads, moves) int32: the row that was added ...
    ends: np.ndarray  # the same: ... in the classes up to this place of the lists
    classes: np.ndarray  # (threads, places) int32
    deltas: np.ndarray  # (threads, places)
    published: np.ndarray  # (threads, FAR_APART) int64: how many moves, in the first column


def make_moves(threads: int, visits: int, k: int, dtype: np.dtype) -> Moves:
    """Room for the moves of so many visits by each thread."""
    places = visits * CLASSES + k + 1
    return Moves(
        np.empty((threads, visits), np.int32),
        np.empty((threads, visits), np.int32),
        np.empty((threads, places), np.int32),
        np.empty((threads, places), dtype),
        np.zeros((threads, FAR_APART), np.int64),
    )


def note_in(W: np.ndarray, moves: Moves, thread: int, tau: np.floating) -> Noted:
    """W of a thread that has noted nothing and repeated nothing."""
    progress, others = apart(3, np.int64), apart(W.shape[1], np.float64)
    repeated = apart(moves.rows.shape[0], np.int64)
    progress[:], others[:], repeated[:] = 0, 0, 0
    return Noted(W, moves, thread, progress, repeated, tau, others)


@bare_kernel
def has_room(W):
    """Whether a thread can note one more move, of however many classes."""
    moves, move, place = W.moves, W.progress[MOVES], W.progress[PLACES]
    has_places = place + W.W.shape[1] + 1 <= moves.classes.shape[1]
    return has_places and move < moves.rows.shape[1]


@bare_part
def move_weights(data, i, W, shift, k, scratch, q):
    """W += what the step of example i found; it is the same code for all losses."""
    classes, delta, moved = scratch.classes, scratch.delta, scratch.out[4]
    touched = 0
    for c in range(q):
        if delta[c] != 0:
            classes[touched], classes[c] = classes[c], classes[touched]
            scratch.a[touched], scratch.a[c] = scratch.a[c], scratch.a[touched]
            delta[touched] = delta[c]
            touched += 1
    add_to_weights(data.rows, i, W, data.tau, scratch, touched)
    note_move(W, i, scratch, touched)
    if shift.size > 0 and moved != 0:
        scale = scratch.a.dtype.type(moved / k)
        row_axpy(data.rows, i, shift, data.tau, scale)
        add_to_all(data.rows, i, scale)


def add_to_weights(rows, i, W, tau, scratch, touched):
    """W += delta x_i in the first ``touched`` listed classes."""


@bare_by_type(add_to_weights)
def _add_to_weights(rows, i, W, tau, scratch, touched):
    if kind_of(W) is Hybrid:
        return lambda rows, i, W, tau, scratch, touched: row_update(
            rows, i, W, tau, scratch.classes, scratch.delta, touched
        )
    if kind_of(W) is Noted:
        return lambda rows, i, W, tau, scratch, touched: add_to_weights(
            rows, i, W.W, tau, scratch, touched
        )

    def dense(rows, i, W, tau, scratch, touched):
        if touched > 2 and updates_all(W):
            spread = scratch.s
            spread[:] = 0
            for c in range(touched):
                spread[scratch.classes[c]] = scratch.delta[c]
            row_update_all(rows, i, W, tau, spread)
        else:
            row_update(rows, i, W, tau, scratch.classes, scratch.delta, touched)

    return dense


def note_move(W, i, scratch, touched):
    """Note what was added to W, where others are to repeat it."""


@bare_by_type(note_move)
def _note_move(W, i, scratch, touched):
    if kind_of(W) is not Noted:
        return lambda W, i, scratch, touched: None

    def note(W, i, scratch, touched):
        moves, t = W.moves, W.thread
        move, place = W.progress[MOVES], W.progress[PLACES]
        for c in range(touched):
            moves.classes[t, place + c] = scratch.classes[c]
            moves.deltas[t, place + c] = scratch.delta[c]
        moves.rows[t, move], moves.ends[t, move] = i, place + touched
        W.progress[MOVES], W.progress[PLACES] = move + 1, place + touched

    return note


def can_visit(rows, t, W, scratch):
    """Whether there is room to note what visit t adds; looks at other threads' notes at times."""


@bare_by_type(can_visit)
def _can_visit(rows, t, W, scratch):
    if kind_of(W) is not Noted:
        return lambda rows, t, W, scratch: True

    def noted(rows, t, W, scratch):
        if t >= W.progress[NEXT]:
            W.progress[NEXT] = t + BLOCK
            exchange_moves(rows, W, scratch)
        return has_room(W)

    return noted


@bare_kernel
def exchange_moves(rows, W, scratch):
    """Publish what a thread has noted, and repeat what others have published since."""
    published, me = W.moves.published, W.thread
    publish_count(published, me * FAR_APART, W.progress[MOVES])
    for s in range(published.shape[0]):
        if s != me:
            repeat_moves(rows, W, s, count_of(published, s * FAR_APART), scratch)


@bare_part
def repeat_moves(rows, W, s, count, scratch):
    """Add to W what thread s added to its own, up to so many moves."""
    moves, tau, first = W.moves, W.tau, W.repeated[s]
    visited, ends, classes = moves.rows[s], moves.ends[s], moves.classes[s]
    place = ends[first - 1] if first > 0 else 0
    for move in range(first, count):
        if move + FAR < count:
            place_prefetch(rows, visited[move + FAR])
        if move + NEAR < count:
            row_prefetch(rows, visited[move + NEAR])
        if move + 1 < count:
            moves_prefetch(rows, visited[move + 1], W.W, classes, ends[move], ends[move + 1])
        touched = ends[move] - place
        for c in range(touched):
            scratch.classes[c] = classes[place + c]
            scratch.delta[c] = moves.deltas[s, place + c]
            W.others[classes[place + c]] += tau * moves.deltas[s, place + c]
        add_to_weights(rows, visited[move], W.W, tau, scratch, touched)
        place = ends[move]
    W.repeated[s] = count
