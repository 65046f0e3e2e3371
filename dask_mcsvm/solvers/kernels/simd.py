"""Loops over the nonzeros of a row that keep their sums in registers.

A compiler vectorizes `for m in range(k): s[m] += x * w[m]` for long loops only: with 20 classes it
falls back on single numbers, and with any k it loads and stores ``s`` again for each nonzero. Sums
over a few listed classes it turns into gathers, which are slower still. Here LLVM is given the
vectors themselves, which it cuts to what the processor has.

``values`` (nnz,) and ``columns`` (nnz,) hold the nonzeros begin..end of a row; a dense row has
``columns`` None. Functions ending in _1 to _4 work on so many vectors, or so many listed classes.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

#: Numbers in a vector, and the most vectors at a time: two sums for each fill 16 registers.
LANES = 8
WIDEST = 4
#: How sums may be rounded; without "reassoc" LLVM leaves single numbers to themselves.
_FLAGS = ("contract", "nnan", "nsz")


class _Row:
    """Code for the nonzeros of one row against W; ``lanes`` adjacent classes at a time."""

    def __init__(self, context, builder, kinds, args, lanes):
        values, columns, _, _, W = kinds
        self.builder, self.lanes = builder, lanes
        self.begin, self.end = args[2], args[3]
        self.size = self.begin.type
        self.values = context.make_array(values)(context, builder, value=args[0])
        self.columns = None
        if columns is not types.none:
            self.columns = context.make_array(columns)(context, builder, value=args[1])
        self.W = context.make_array(W)(context, builder, value=args[4])
        self.real = context.get_value_type(W.dtype)
        self.height, self.k = (builder.extract_value(self.W.shape, axis) for axis in (0, 1))

    def row_of(self, p):
        """Where the row of W begins that belongs to nonzero p."""
        j = self.builder.sub(p, self.begin)
        if self.columns is not None:
            j = self.builder.load(self.builder.gep(self.columns.data, [p]))
            j = self.builder.sext(j, self.size) if j.type != self.size else j
        return self.row(j)

    def row(self, j):
        return self.builder.gep(self.W.data, [self.builder.mul(j, self.k)])

    def value(self, p, real):
        return self.spread(self.builder.load(self.builder.gep(self.values.data, [p])), real)

    def spread(self, x, real):
        """One number, as ``real``, in all lanes."""
        builder, vector = self.builder, ir.VectorType(real, self.lanes)
        x = builder.fpext(x, real) if x.type != real else x
        anything = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(anything, x, ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(first, anything, everywhere)

    def load(self, base, at, stored, real):
        """``lanes`` numbers from base[at] on, as ``real``."""
        found = self.builder.load(self._pointer(base, at, stored), align=_bytes(stored))
        if stored == real:
            return found
        return self.builder.fpext(found, ir.VectorType(real, self.lanes))

    def store(self, vector, base, at):
        real = vector.type.element
        self.builder.store(vector, self._pointer(base, at, real), align=_bytes(real))

    def _pointer(self, base, at, real):
        where = self.builder.gep(base, [at])
        return self.builder.bitcast(where, ir.VectorType(real, self.lanes).as_pointer())

    def multiply_add(self, x, w, total):
        return self.builder.fadd(total, self.builder.fmul(x, w, flags=_FLAGS), flags=_FLAGS)

    def sums(self, tau, starts, real):
        """tau W[-1] + Σ_p values[p] W[columns[p]], ``lanes`` classes from each start on."""
        builder, vector = self.builder, ir.VectorType(real, self.lanes)
        # Two sums each, for every other nonzero: an addition waits for the one before it.
        even, odd = ([cgutils.alloca_once(builder, vector) for _ in starts] for _ in range(2))
        bottom = self.row(builder.sub(self.height, self.size(1)))
        constant = self.spread(tau, real)
        for at, one, two in zip(starts, even, odd, strict=True):
            builder.store(builder.fmul(constant, self.load(bottom, at, self.real, real)), one)
            builder.store(ir.Constant(vector, [0.0] * self.lanes), two)

        def add(p, totals):
            row, x = self.row_of(p), self.value(p, real)
            for at, total in zip(starts, totals, strict=True):
                w = self.load(row, at, self.real, real)
                builder.store(self.multiply_add(x, w, builder.load(total)), total)

        count = builder.sub(self.end, self.begin)
        with cgutils.for_range(builder, builder.ashr(count, self.size(1))) as pair:
            p = builder.add(self.begin, builder.shl(pair.index, self.size(1)))
            add(p, even)
            add(builder.add(p, self.size(1)), odd)
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            add(builder.sub(self.end, self.size(1)), even)
        return [
            builder.fadd(builder.load(one), builder.load(two))
            for one, two in zip(even, odd, strict=True)
        ]

    def add_multiples(self, starts, changes):
        """W[columns[p]] += values[p] change, ``lanes`` classes from each start on."""
        builder = self.builder
        with cgutils.for_range(builder, builder.sub(self.end, self.begin)) as loop:
            p = builder.add(self.begin, loop.index)
            row, x = self.row_of(p), self.value(p, self.real)
            # All loads come before all stores: where two starts overlap, both store the same.
            rows = [self.load(row, at, self.real, self.real) for at in starts]
            for at, w, change in zip(starts, rows, changes, strict=True):
                self.store(self.multiply_add(x, change, w), row, at)


def _bytes(real):
    return 4 if real == ir.FloatType() else 8


def _need_contiguous(*arrays):
    for array in arrays:
        if array is not types.none and array.layout != "C":
            raise TypingError(f"{array} is not C-contiguous")


def _stripe(row, first, last, vectors):
    """Where the vectors of the classes first..last begin; the last may overlap its neighbour."""
    starts = [row.builder.add(first, row.size(LANES * v)) for v in range(vectors - 1)]
    return [*starts, row.builder.sub(last, row.size(LANES))]


def _listed(row, classes, first, count):
    """The classes first..first + count of a list, and their places in it."""
    builder = row.builder
    places = [builder.add(first, row.size(c)) for c in range(count)]
    found = [builder.load(builder.gep(classes.data, [place])) for place in places]
    return [builder.sext(m, row.size) for m in found], places


INT = types.intp


def _make_scores(vectors):
    @intrinsic
    def scores(typing, values, columns, begin, end, W, tau, first, last, s):
        """s[first:last] = tau W[-1, first:last] + Σ_p values[p] W[columns[p], first:last]."""

        def generate(context, builder, signature, args):
            row = _Row(context, builder, signature.args[:5], args, LANES)
            out = context.make_array(s)(context, builder, value=args[8])
            starts = _stripe(row, args[6], args[7], vectors)
            sums = row.sums(args[5], starts, context.get_value_type(s.dtype))
            for at, total in zip(starts, sums, strict=True):
                row.store(total, out.data, at)
            return context.get_dummy_value()

        _need_contiguous(values, columns, W, s)
        return types.none(values, columns, INT, INT, W, tau, INT, INT, s), generate

    return scores


def _make_scores_of(count):
    @intrinsic
    def scores_of(typing, values, columns, begin, end, W, tau, classes, first, s):
        """s[c] = tau W[-1, classes[c]] + Σ_p values[p] W[columns[p], classes[c]] from c = first."""

        def generate(context, builder, signature, args):
            row = _Row(context, builder, signature.args[:5], args, 1)
            listed = context.make_array(classes)(context, builder, value=args[6])
            out = context.make_array(s)(context, builder, value=args[8])
            starts, places = _listed(row, listed, args[7], count)
            sums = row.sums(args[5], starts, context.get_value_type(s.dtype))
            for at, total in zip(places, sums, strict=True):
                row.store(total, out.data, at)
            return context.get_dummy_value()

        _need_contiguous(values, columns, W, classes, s)
        return types.none(values, columns, INT, INT, W, tau, classes, INT, s), generate

    return scores_of


def _make_update(vectors):
    @intrinsic
    def update(typing, values, columns, begin, end, W, first, last, delta):
        """W[columns[p], first:last] += values[p] delta[first:last] for all p."""

        def generate(context, builder, signature, args):
            row = _Row(context, builder, signature.args[:5], args, LANES)
            change = context.make_array(delta)(context, builder, value=args[7])
            starts = _stripe(row, args[5], args[6], vectors)
            row.add_multiples(
                starts, [row.load(change.data, at, row.real, row.real) for at in starts]
            )
            return context.get_dummy_value()

        _need_contiguous(values, columns, W, delta)
        return types.none(values, columns, INT, INT, W, INT, INT, delta), generate

    return update


def _make_update_of(count):
    @intrinsic
    def update_of(typing, values, columns, begin, end, W, classes, first, delta):
        """W[columns[p], classes[c]] += values[p] delta[c] for all p, from c = first."""

        def generate(context, builder, signature, args):
            row = _Row(context, builder, signature.args[:5], args, 1)
            listed = context.make_array(classes)(context, builder, value=args[5])
            change = context.make_array(delta)(context, builder, value=args[7])
            starts, places = _listed(row, listed, args[6], count)
            row.add_multiples(
                starts, [row.load(change.data, at, row.real, row.real) for at in places]
            )
            return context.get_dummy_value()

        _need_contiguous(values, columns, W, classes, delta)
        return types.none(values, columns, INT, INT, W, classes, INT, delta), generate

    return update_of


@intrinsic
def largest_of_vectors(typing, s, start, stop):
    """max(s[start:stop]) of at least eight numbers."""

    def generate(context, builder, signature, args):
        array = context.make_array(s)(context, builder, value=args[0])
        start, stop = args[1:]
        real, size = context.get_value_type(s.dtype), start.type
        vector = ir.VectorType(real, LANES)

        def load(at):
            pointer = builder.bitcast(builder.gep(array.data, [at]), vector.as_pointer())
            return builder.load(pointer, align=_bytes(real))

        def larger(one, two):
            return builder.select(builder.fcmp_ordered(">", one, two, flags=_FLAGS), one, two)

        top = cgutils.alloca_once_value(builder, load(builder.sub(stop, size(LANES))))
        whole = builder.sdiv(builder.sub(stop, start), size(LANES))
        with cgutils.for_range(builder, whole) as loop:
            at = builder.add(start, builder.mul(loop.index, size(LANES)))
            builder.store(larger(load(at), builder.load(top)), top)
        found, lanes = builder.load(top), LANES
        while lanes > 1:  # the upper half against the lower
            lanes //= 2
            both = ir.VectorType(ir.IntType(32), lanes)
            low, high = (
                builder.shuffle_vector(found, found, ir.Constant(both, list(half)))
                for half in (range(lanes), range(lanes, 2 * lanes))
            )
            found = larger(low, high)
        return builder.extract_element(found, ir.IntType(32)(0))

    _need_contiguous(s)
    return s.dtype(s, INT, INT), generate


@intrinsic
def add_list(typing, classes, values, start, size, x, s):
    """s[classes[t]] += x values[t] for start <= t < start + size, where no class is listed twice.

    Four at a time are read before any is written, which the compiler cannot know to be the same.
    """

    def generate(context, builder, signature, args):
        arrays = (context.make_array(signature.args[n]) for n in (0, 1, 5))
        listed, stored, out = (
            make(context, builder, value=args[n]) for make, n in zip(arrays, (0, 1, 5), strict=True)
        )
        start, size, x = args[2:5]
        word, real = size.type, context.get_value_type(s.dtype)

        def add(t, count):
            at = [builder.add(t, word(c)) for c in range(count)]
            found = [builder.load(builder.gep(listed.data, [p])) for p in at]
            where = [builder.gep(out.data, [builder.zext(m, word)]) for m in found]
            weights = [builder.load(builder.gep(stored.data, [p])) for p in at]
            weights = [w if w.type == real else builder.fpext(w, real) for w in weights]
            sums = [
                builder.fadd(builder.load(p), builder.fmul(x, w, flags=_FLAGS), flags=_FLAGS)
                for p, w in zip(where, weights, strict=True)
            ]
            for total, p in zip(sums, where, strict=True):
                builder.store(total, p)

        whole = builder.ashr(size, word(2))
        with cgutils.for_range(builder, whole) as loop:
            add(builder.add(start, builder.shl(loop.index, word(2))), 4)
        with cgutils.for_range(builder, builder.and_(size, word(3))) as loop:
            add(builder.add(builder.add(start, builder.shl(whole, word(2))), loop.index), 1)
        return context.get_dummy_value()

    _need_contiguous(classes, values, s)
    return types.none(classes, values, INT, INT, s.dtype, s), generate


@intrinsic
def find_in_list(typing, classes, start, size, m):
    """Where class m is among classes[start:start + size], counted from start; -1 if it is not.

    Classes are compared eight at a time: up to seven behind the list are read, too.
    """

    def generate(context, builder, signature, args):
        listed = context.make_array(classes)(context, builder, value=args[0])
        start, size, m = args[1:]
        word, number = size.type, context.get_value_type(classes.dtype)
        vector = ir.VectorType(number, LANES)
        anything = ir.Constant(vector, ir.Undefined)
        if number != m.type:
            m = builder.trunc(m, number)
        first = builder.insert_element(anything, m, ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        wanted = builder.shuffle_vector(first, anything, everywhere)
        place = cgutils.alloca_once_value(builder, word(-1))
        whole = builder.ashr(builder.add(size, word(LANES - 1)), word(3))
        count = ir.FunctionType(ir.IntType(LANES), [ir.IntType(LANES), ir.IntType(1)])
        first_bit = builder.module.declare_intrinsic("llvm.cttz", [ir.IntType(LANES)], count)
        with cgutils.for_range(builder, whole) as loop:
            at = builder.shl(loop.index, word(3))
            where = builder.gep(listed.data, [builder.add(start, at)])
            size_of = context.get_abi_sizeof(number)
            found = builder.load(builder.bitcast(where, vector.as_pointer()), align=size_of)
            same = builder.bitcast(builder.icmp_signed("==", found, wanted), ir.IntType(LANES))
            with builder.if_then(builder.icmp_signed("!=", same, same.type(0))):
                bit = builder.call(first_bit, [same, ir.IntType(1)(1)])
                builder.store(builder.add(at, builder.zext(bit, word)), place)
                loop.do_break()
        found = builder.load(place)
        return builder.select(builder.icmp_signed("<", found, size), found, word(-1))

    _need_contiguous(classes)
    return INT(classes, INT, INT, types.int32), generate


@intrinsic
def prefetch(typing, array, at):
    """Fetch the cache line of number ``at`` while something else is computed.

    Numbers are counted through all of a contiguous array, and along one whose numbers stand apart.
    """

    def generate(context, builder, signature, args):
        where = context.make_array(array)(context, builder, value=args[0])
        pointer = builder.bitcast(where.data, ir.IntType(8).as_pointer())
        size = context.get_abi_sizeof(context.get_data_type(array.dtype))
        stride = ir.Constant(args[1].type, size)
        if array.layout != "C":
            stride = builder.extract_value(where.strides, 0)
        pointer = builder.gep(pointer, [builder.mul(args[1], stride)])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(call, [pointer, number(0), number(3), number(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.none(array, INT), generate


@intrinsic
def publish_count(typing, counts, at, count):
    """counts[at] = count, after all that this thread wrote before."""

    def generate(context, builder, signature, args):
        where = context.make_array(counts)(context, builder, value=args[0])
        pointer = builder.gep(where.data, [args[1]])
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.none(counts, INT, types.int64), generate


@intrinsic
def count_of(typing, counts, at):
    """counts[at]; what is read next is at least as new."""

    def generate(context, builder, signature, args):
        where = context.make_array(counts)(context, builder, value=args[0])
        return builder.load_atomic(builder.gep(where.data, [args[1]]), "acquire", 8)

    return types.int64(counts, INT), generate


scores_1, scores_2, scores_3, scores_4 = map(_make_scores, (1, 2, 3, 4))
scores_of_1, scores_of_2, scores_of_3, scores_of_4 = map(_make_scores_of, (1, 2, 3, 4))
update_1, update_2, update_3, update_4 = map(_make_update, (1, 2, 3, 4))
update_of_1, update_of_2, update_of_3, update_of_4 = map(_make_update_of, (1, 2, 3, 4))
