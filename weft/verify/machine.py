"""The instruction set (``docs/isa.md``) over the field: one pass over a program in its order, which the checker of
tokens has proved to be as good as every order that the engines may take.

inp, out and tab hold elements in 8 bits; acc holds polynomials, with bounds for each entry of the numbers that they
stand for, of their coefficients and their degree. wgt holds numbers, and elements where an activation was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.config import LOOP_LEVELS, CoreConfig
from ..hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Vector,
    VectorOp,
    VectorTarget,
    multiplier_bits,
)
from ..hw.load_counts import entries_of, takes_records
from ..hw.memories import Memory
from ..roundings import HALF_UP
from .errors import NotProvedError
from .field import (
    MOST_TERMS,
    Elements,
    Numbers,
    add,
    halves,
    join,
    matrix_product,
    multiply,
    of_int,
    subtract,
    weighted,
)
from .keyed import Keys
from .nests import UNSET, Indices, Level, independent, micro_ops, product_indices, turns
from .normal_forms import (
    BYTE,
    INT32,
    LARGEST,
    LEAST,
    TABLE_ENTRIES,
    Kinds,
    closed,
    extreme,
    looked_up,
    narrowed,
    requantise,
    table_digest,
    vanishes,
)
from .values import MOST_DEGREE_OF_BYTE, MOST_SIZE, MOST_SIZE_OF_BYTE
from .window import Window

FACTOR = (-(1 << 24), (1 << 24) - 1)
"""Of what the vector engine multiplies by: it takes the low 25 bits."""

Floats = npt.NDArray[np.float64]
After = Callable[[int], None]


class Operand:
    """Accumulators (entries, lanes), with bounds (entries, 1)."""

    def __init__(
        self, elements: Elements, kind: Kinds, low: Numbers, high: Numbers, size: Floats, degree: Floats
    ) -> None:
        self.elements, self.kind, self.low, self.high, self.size, self.degree = elements, kind, low, high, size, degree


class Machine:
    """A core at the start of a program: scratchpads hold random elements, loops are reset. ``degree``: the highest of
    any polynomial so far."""

    def __init__(self, config: CoreConfig, window: Window, keys: Keys) -> None:
        c = self.config = config
        self.window, self.keys = window, keys
        self.inp = halves(keys.atoms((c.depth(Memory.INP), c.batch * c.block_in), "inp"))
        shape = (c.depth(Memory.WGT), c.block_out, c.block_in)
        self.wgt = keys.bytes_of(shape, "wgt").astype(np.float64)
        self.computed: dict[int, Elements] = {}  # entries of wgt that hold elements
        depth = c.depth(Memory.ACC)
        self.acc = keys.atoms((depth, c.lanes), "acc")
        self.kind = np.zeros((depth, c.lanes), np.uint8)
        self.low, self.high = (np.full((depth, 1), end, np.int64) for end in INT32)
        self.size, self.degrees = np.ones((depth, 1)), np.ones((depth, 1))
        self.out = keys.atoms((c.depth(Memory.OUT), c.lanes), "out")
        self.tab = keys.atoms((c.tables * TABLE_ENTRIES, c.lanes), "tab")
        self.digests: dict[int, Elements] = {}  # of tables, until tab is written
        self.levels: dict[Engine, list[Level]] = {
            engine: [UNSET] * LOOP_LEVELS for engine in (Engine.GEMM, Engine.VECTOR)
        }
        self.number = 0
        self.degree = 1.0

    def run(self, instructions: Sequence[Instruction], after: After) -> None:
        """Until FINISH; ``after`` is told the number of each instruction that is done. NotProvedError for what no
        proof covers."""
        for self.number, instruction in enumerate(instructions):
            match instruction:
                case Loop():
                    strides = instruction.dst_stride, instruction.a_stride, instruction.b_stride
                    self.levels[instruction.engine][instruction.level] = (instruction.extent, *strides)
                case Load():
                    self._load(instruction)
                case Store():
                    self._store(instruction)
                case Gemm():
                    self._gemm(instruction)
                case Vector():
                    self._vector(instruction)
                case Finish():
                    return
            after(self.number)
        raise NotProvedError("the program has no FINISH")

    def _check(self, memory: Memory, least: int, most: int) -> None:
        if least < 0 or most >= self.config.depth(memory):
            raise NotProvedError(f"it reaches entries {least}..{most} of {memory.value}")

    # Transfers

    def _load(self, i: Load) -> None:
        c = self.config
        if takes_records(c, i):
            self._load_records(i)
            return
        entry_bytes, item = i.scratchpad.dram_bytes(c), i.scratchpad.dram_bits // 8
        lanes = entry_bytes // item
        rows, columns = i.pad_top + i.rows + i.pad_bottom, i.pad_left + i.columns + i.pad_right
        if not rows * columns:
            return
        self._check(i.scratchpad.memory, i.index, i.index + rows * columns - 1)
        read: npt.NDArray[Any] = np.zeros((0, 0), np.int64)
        constant = True
        if i.rows and i.columns:
            start = i.offset * c.granule_bytes
            read, constant = self.window.read(start, i.rows, i.columns * entry_bytes, i.stride * entry_bytes, item)
        values = read.reshape(i.rows, i.columns, lanes)
        if (rows, columns) != (i.rows, i.columns):
            pad: Any = np.int64(i.pad_value) if constant else of_int(i.pad_value)
            values = np.full((rows, columns, lanes), pad, np.int64 if constant else np.uint64)
            values[i.pad_top : i.pad_top + i.rows, i.pad_left : i.pad_left + i.columns] = read.reshape(
                i.rows, i.columns, lanes
            )
        entries = values.reshape(-1, lanes)
        to = slice(i.index, i.index + len(entries))
        if i.scratchpad is Scratchpad.WGT:
            self._put_weights(to, entries, constant)
        elif i.scratchpad is Scratchpad.INP:
            self.inp[:, to] = halves(self._matrix_rows(of_int(entries) if constant else entries))
        else:
            self.acc[to], self.kind[to], self.degrees[to] = of_int(entries) if constant else entries, 0, 0
            if constant:
                self.low[to], self.high[to] = entries.min(1, keepdims=True), entries.max(1, keepdims=True)
                self.size[to] = np.maximum(np.abs(entries).max(1, keepdims=True), 1)
            else:
                is_pad = np.ones((rows, columns), bool)
                is_pad[i.pad_top : i.pad_top + i.rows, i.pad_left : i.pad_left + i.columns] = False
                padding = is_pad.reshape(-1, 1)
                self.low[to], self.high[to] = (np.where(padding, i.pad_value, end) for end in BYTE)
                self.size[to], self.degrees[to] = MOST_SIZE_OF_BYTE, MOST_DEGREE_OF_BYTE

    def _load_records(self, i: Load) -> None:
        """Weights of 4 bits; only constants, since a program that computes codes is none that a compiler makes."""
        c = self.config
        entries = entries_of(c, i)
        if not entries:
            return
        self._check(Memory.WGT, i.index, i.index + entries - 1)
        size = c.weight_record_bytes
        start = i.offset * c.granule_bytes
        read, constant = self.window.read(start, i.rows, i.columns * size, i.stride * size, 1)
        if not constant:
            raise NotProvedError("it loads weights of 4 bits that are not constants")
        records = read.reshape(-1, size)
        pairs = records[:, None, : c.block_out, None] & 255
        packed = records[:, c.weight_head_bytes :].reshape(-1, c.weight_record_entries, c.block_out, c.block_in // 2)
        codes = np.stack([packed & 15, packed >> 4 & 15], -1).reshape(*packed.shape[:3], c.block_in)
        values = (codes - (pairs >> 4)) * (pairs & 15) & 255
        weights = np.where(values > 127, values - 256, values).reshape(entries, -1)
        self._put_weights(slice(i.index, i.index + entries), weights, constant=True)

    def _put_weights(self, to: slice, entries: npt.NDArray[np.int64] | Elements, constant: bool) -> None:
        matrices = entries.reshape(-1, self.config.block_out, self.config.block_in)
        if constant:
            self.wgt[to] = matrices
        if self.computed or not constant:
            for number in range(to.start, to.stop):
                self.computed.pop(number, None)
                if not constant:
                    self.computed[number] = matrices[number - to.start].astype(np.uint64)

    def _store(self, i: Store) -> None:
        if not i.rows * i.columns:
            return
        self._check(Memory.OUT, i.index, i.index + i.rows * i.columns - 1)
        c = self.config
        values = self.out[i.index : i.index + i.rows * i.columns].reshape(i.rows, -1)
        self.window.store(i.offset * c.granule_bytes, values, i.stride * c.out_bytes, self.number)

    # Lanes

    def _matrix_rows(self, entries: Elements) -> Elements:
        """Entries of inp in memory order -> (..., batch * block_in), one row of a matrix after another."""
        c = self.config
        split = entries.reshape(-1, c.block_in // c.sub_block, c.batch, c.sub_block)
        return split.swapaxes(1, 2).reshape(-1, c.batch * c.block_in)

    def _lanes(self, values: Elements) -> Elements:
        """(..., batch, block_out) -> accumulator entries in memory order."""
        c = self.config
        split = values.reshape(*values.shape[:-1], c.block_out // c.sub_block, c.sub_block)
        return split.swapaxes(-3, -2).reshape(*values.shape[:-2], c.lanes)

    # Products

    def _gemm(self, i: Gemm) -> None:
        """One product for all micro-ops that do not move all three operands; one by one where accumulators meet
        again."""
        levels = tuple(level for level in self.levels[Engine.GEMM][: i.levels][::-1] if level[0] > 1)
        reach = max(i.src_offsets)
        ends = [sum((level[0] - 1) * level[place] for level in levels) for place in (1, 2, 3)]
        self._check(Memory.ACC, i.dst, i.dst + ends[0])
        self._check(Memory.INP, i.src, i.src + reach + ends[1])
        self._check(Memory.WGT, i.wgt, i.wgt + ends[2])
        parts = product_indices(levels)
        if parts is None:
            ops = micro_ops(levels)
            for number in range(len(ops.dst)):
                one = (np.array([[base + int(to[number])]]) for base, to in
                       ((i.dst, ops.dst), (i.src, ops.a), (i.wgt, ops.b)))  # fmt: skip
                self._product(i, *one, zero=bool(i.zero and ops.first[number]))
            return
        for to_dst, to_src, to_wgt in parts.around:
            self._product(i, parts.dst + (i.dst + to_dst), parts.src + (i.src + to_src), parts.wgt + (i.wgt + to_wgt),
                          zero=bool(i.zero))  # fmt: skip

    def _product(self, i: Gemm, dst: Indices, src: Indices, wgt: Indices, *, zero: bool) -> None:
        """acc[dst[p, o]] (+)= sum over r of inp[src[p, r]] times wgt[wgt[o, r]]; no dst comes twice."""
        c = self.config
        entries = wgt.ravel().tolist()
        computed = bool(self.computed) and not self.computed.keys().isdisjoint(entries)
        terms = src.shape[1] * (len(i.src_offsets) if i.depthwise else c.block_in)
        if i.depthwise:
            sums = self._tapped(i, src, wgt, computed, terms)
        else:
            sums = self._matrices(src, wgt, entries if computed else None)
        size = terms * MOST_SIZE_OF_BYTE * (MOST_SIZE_OF_BYTE if computed else float(-BYTE[0]))
        degree = float(MOST_DEGREE_OF_BYTE * (2 if computed else 1))
        low, high = (np.full((1, 1), end, np.int64) for end in INT32)
        if zero:
            self._put(dst, sums, low, high, np.full((1, 1), size), np.full((1, 1), degree))
            return
        before = self._closed(self._operand(dst))
        sums = add(before.elements, sums)
        self._put(dst, sums, low, high, before.size + size, np.maximum(before.degree, degree))

    def _tapped(self, i: Gemm, src: Indices, wgt: Indices, computed: bool, terms: int) -> Elements:
        if computed or terms > MOST_TERMS:
            raise NotProvedError("a depthwise product of computed weights, or of too many terms")
        weights = self.wgt[wgt]  # (outputs, terms, rows of taps, lanes)
        taps = [(offset, 4 * (place // 3) + place % 3) for place, offset in enumerate(i.src_offsets)]
        found = [
            sum((half[src + offset][:, None] * weights[:, :, row] for offset, row in taps), np.zeros(())).sum(2)
            for half in self.inp
        ]
        return join(np.stack(found))

    def _matrices(self, src: Indices, wgt: Indices, computed: list[int] | None) -> Elements:
        c, (count, terms), outs = self.config, src.shape, len(wgt)
        left = np.take(self.inp, src.ravel(), 1).reshape(2, count, terms, c.batch, c.block_in)
        left = left.swapaxes(2, 3).reshape(2, count * c.batch, terms * c.block_in)
        if computed is not None:
            right = np.stack([self.computed[e] if e in self.computed else of_int(self.wgt[e]) for e in computed])
            right = right.reshape(outs, terms, c.block_out, c.block_in).swapaxes(1, 2)
            found = matrix_product(join(left), right.reshape(outs * c.block_out, -1).T)
        else:
            weights = np.take(self.wgt, wgt, 0).swapaxes(1, 2).reshape(outs * c.block_out, terms * c.block_in)
            found = weighted(left, weights.T)
        return self._lanes(found.reshape(count, c.batch, outs, c.block_out).swapaxes(1, 2))

    def _operand(self, entries: Indices) -> Operand:
        return Operand(self.acc[entries], self.kind[entries], self.low[entries], self.high[entries], self.size[entries],
                       self.degrees[entries])  # fmt: skip

    def _put(
        self, dst: Indices, values: Elements, low: Numbers, high: Numbers, size: Floats, degree: Floats,
        kind: Kinds | int = 0,
    ) -> None:  # fmt: skip
        """What may wrap may be any number."""
        wraps = (high > INT32[1]) | (low < INT32[0])
        self.acc[dst], self.kind[dst] = values, kind
        self.low[dst], self.high[dst] = np.where(wraps, INT32[0], low), np.where(wraps, INT32[1], high)
        self.size[dst], self.degrees[dst] = size, degree
        self.degree = max(self.degree, float(degree.max()))
        if size.max() > MOST_SIZE:
            raise NotProvedError("numbers grow so large that equal remainders would prove nothing")

    # The vector engine

    def _vector(self, i: Vector) -> None:
        ops = micro_ops(tuple(self.levels[Engine.VECTOR][: i.levels][::-1]))
        d, a, b = ops.dst + i.dst, ops.a + i.a, ops.b + i.b
        of_d, of_a, of_b = ops.ends
        self._check(i.target.memory, i.dst + of_d[0], i.dst + of_d[1])
        self._check(Memory.ACC, i.a + of_a[0], i.a + of_a[1])
        reads = [a]
        if i.b_entries:
            self._check(Memory.ACC, i.b + of_b[0], i.b + of_b[1] + i.b_entries - 1)
            reads += [b + number for number in range(i.b_entries)]
        if i.op is VectorOp.REQUANTISE and i.target is not VectorTarget.ACC:
            offsets, each = ops.distinct
            self._finish(i, d, self._requantised(i, a, offsets + i.b, each))
            return
        parts: list[Indices]
        if i.op.accumulates:
            repeats = bool(np.isin(a, d).any() or (i.b_entries and np.isin(b, d).any()))
            parts = [np.array([number]) for number in range(len(d))] if repeats else turns(d)
        elif i.target is VectorTarget.ACC:
            parts = []
            begin = 0
            while begin < len(d):
                count = independent(d[begin:], np.stack(reads)[:, begin:], self.config.depth(Memory.ACC))
                parts.append(np.arange(begin, begin + count))
                begin += count
        else:
            parts = [np.arange(len(d))]
        for part in parts:
            self._step(i, d[part], a[part], b[part], ops.first[part][:, None] & bool(i.zero))

    def _step(self, i: Vector, d: Indices, a: Indices, b: Indices, start: npt.NDArray[np.bool_]) -> None:
        """Micro-ops of which none reads what another writes; ``start``: those that begin from the identity."""
        if i.op is VectorOp.REQUANTISE:
            self._finish(i, d, self._requantised(i, a, *np.unique(b, return_inverse=True)))
            return
        x = self._operand(a)
        if i.op in (VectorOp.MAX, VectorOp.MIN, VectorOp.MAX_ACCUMULATE, VectorOp.MIN_ACCUMULATE):
            result = self._extreme(i, x, self._other(i, d, b, start))
        else:
            result = self._arithmetic(i, self._closed(x), d, b, start)
        self._finish(i, d, result)

    def _finish(self, i: Vector, d: Indices, result: Operand) -> None:
        """Results on their way through a table to where they belong."""
        if i.table:
            result = self._looked_up(i, result)
        if i.target is VectorTarget.ACC:
            self._put(d, result.elements, result.low, result.high, result.size, result.degree, result.kind)
            return
        values = self._narrowed(result)
        if i.target is VectorTarget.INP:
            self.inp[:, d] = halves(self._matrix_rows(values))
        elif i.target is VectorTarget.OUT:
            self.out[d] = values
        else:
            self.tab[d] = values
            self.digests.clear()

    def _closed(self, x: Operand) -> Operand:
        """Without open sums: a closed one is a random element."""
        if not x.kind.any():
            return x
        single = (x.kind != 0).all(1, keepdims=True)
        size, degree = np.where(single, 1.0, x.size), np.where(single, 1.0, x.degree)
        return Operand(closed(self.keys, x.elements, x.kind), np.zeros_like(x.kind), x.low, x.high, size, degree)

    def _narrowed(self, x: Operand) -> Elements:
        """The low 8 bits; what keeps its polynomial must have a small one, as all values in memories of bytes."""
        x = self._closed(x)
        kept = (x.low >= BYTE[0]) & (x.high <= BYTE[1])
        if (kept & ((x.size > MOST_SIZE_OF_BYTE) | (x.degree > MOST_DEGREE_OF_BYTE))).any():
            raise NotProvedError("a value in 8 bits is too long a sum to be proved equal")
        return narrowed(self.keys, x.elements, x.low, x.high)

    def _immediate(self, number: int, count: int) -> Operand:
        numbers = np.full((count, 1), number, np.int64)
        kind = np.zeros((count, 1), np.uint8)
        return Operand(of_int(numbers), kind, numbers, numbers, np.abs(numbers) * 1.0, np.zeros((count, 1)))

    def _other(self, i: Vector, d: Indices, b: Indices, start: npt.NDArray[np.bool_]) -> Operand:
        """The second operand of the largest or the least: B, or what was accumulated so far."""
        if not i.op.accumulates:
            return self._operand(b) if i.b_entries else self._immediate(i.b, len(b))
        old, identity = self._operand(d), i.op.identity or 0
        return Operand(
            np.where(start, of_int(identity), old.elements), np.where(start, 0, old.kind).astype(np.uint8),
            np.where(start, identity, old.low), np.where(start, identity, old.high),
            np.where(start, 0.0, old.size), np.where(start, 0.0, old.degree),
        )  # fmt: skip

    def _extreme(self, i: Vector, x: Operand, y: Operand) -> Operand:
        largest = i.op in (VectorOp.MAX, VectorOp.MAX_ACCUMULATE)
        best = np.maximum if largest else np.minimum
        elements, kind = extreme(
            self.keys, LARGEST if largest else LEAST, (x.elements, x.kind), (y.elements, y.kind), (x.low, x.high),
            (y.low, y.high),
        )  # fmt: skip
        which, of_x, of_y = LARGEST if largest else LEAST, (x.low, x.high), (y.low, y.high)
        size = np.where(vanishes(which, of_x, of_y), 0.0, x.size) + np.where(vanishes(which, of_y, of_x), 0.0, y.size)
        degree = np.maximum(x.degree, y.degree)
        return Operand(elements, kind, best(x.low, y.low), best(x.high, y.high), size, degree)

    def _requantised(self, i: Vector, a: Indices, entries: Indices, each: Indices) -> Operand:
        """``each``: for every micro-op which of the ``entries`` its parameters begin at."""
        low, high = self.low[entries + 1], self.high[entries + 1]
        end = 1 << multiplier_bits(self.config) - 1
        if (low < -end).any() or (high >= end).any():
            raise NotProvedError(f"a multiplier may have more than {multiplier_bits(self.config)} bits")
        bias, factor, amount = (closed(self.keys, self.acc[entries + n], self.kind[entries + n]) for n in range(3))
        x, rows, kind = self.acc, a, self.kind[a]
        if kind.any():
            x, rows = closed(self.keys, x[a], kind), np.arange(len(a))
        limits = i.zero_point, i.low, i.high
        elements = requantise(
            self.keys, x, bias, factor, amount, limits, i.left_shift, (rows, each),
            rounding=self.config.rounding if i.rounding else HALF_UP,
        )  # fmt: skip
        none, one = np.zeros((1, 1), np.uint8), np.ones((1, 1))
        least, most = (np.full((1, 1), min(end, i.high) << i.left_shift, np.int64) for end in (i.low, i.high))
        size = one * ((1 + abs(i.zero_point) + abs(i.high)) << i.left_shift)
        return Operand(elements, none, least, most, size, one)

    def _arithmetic(self, i: Vector, x: Operand, d: Indices, b: Indices, start: npt.NDArray[np.bool_]) -> Operand:
        op, none = i.op, np.zeros_like(x.kind)
        if op is VectorOp.SUM:
            return self._accumulated(x, d, start)
        y = self._closed(self._operand(b) if i.b_entries else self._immediate(i.b, len(b)))
        other = y.elements
        size, degree = x.size + y.size, np.maximum(x.degree, y.degree)
        match op:
            case VectorOp.ADD:
                return Operand(add(x.elements, other), none, x.low + y.low, x.high + y.high, size, degree)
            case VectorOp.SUB:
                return Operand(subtract(x.elements, other), none, x.low - y.high, x.high - y.low, size, degree)
            case VectorOp.SHR:
                return self._shifted(x, y)
            case VectorOp.MUL | VectorOp.MAC:
                if (y.low < FACTOR[0]).any() or (y.high > FACTOR[1]).any():
                    raise NotProvedError("a factor may have more than 25 bits")
                ends = np.stack([p * q for p in (x.low, x.high) for q in (y.low, y.high)])
                made = Operand(multiply(x.elements, other), none, ends.min(0), ends.max(0), x.size * y.size,
                               x.degree + y.degree)  # fmt: skip
                return made if op is VectorOp.MUL else self._accumulated(made, d, start)
        raise NotProvedError(f"an operation {op.name}")

    def _accumulated(self, x: Operand, d: Indices, start: npt.NDArray[np.bool_]) -> Operand:
        old = self._closed(self._operand(d))
        return Operand(
            np.where(start, x.elements, add(old.elements, x.elements)), np.zeros_like(x.kind),
            np.where(start, x.low, x.low + old.low), np.where(start, x.high, x.high + old.high),
            np.where(start, x.size, x.size + old.size), np.where(start, x.degree, np.maximum(x.degree, old.degree)),
        )  # fmt: skip

    def _shifted(self, x: Operand, y: Operand) -> Operand:
        if (y.low != y.high).any():
            raise NotProvedError("a shift by a number that is not known")
        amount = y.low
        right, left = np.clip(amount, 0, 31), np.clip(-amount, 0, 31)
        moved = multiply(x.elements, of_int(np.int64(1) << left))
        hashed = self.keys.hashed(x.elements, "shifted right", np.broadcast_to(of_int(right), x.elements.shape))
        elements = np.where(amount > 0, hashed, np.where(amount < -31, np.uint64(0), moved))
        size = np.where(amount > 0, 1.0, x.size * 2.0**left)
        low, high = (np.where(amount < -31, 0, (end >> right) << left) for end in (x.low, x.high))
        return Operand(elements, np.zeros_like(x.kind), low, high, size, np.where(amount > 0, 1.0, x.degree))

    def _looked_up(self, i: Vector, x: Operand) -> Operand:
        part = slice(i.table_entries.start, i.table_entries.stop)
        self._check(Memory.TAB, part.start, part.stop - 1)
        if i.table not in self.digests:
            self.digests[i.table] = table_digest(self.keys, self.tab[part])
        elements = looked_up(self.keys, self._narrowed(x), self.digests[i.table])
        low, high = (np.full_like(x.low, end) for end in BYTE)
        return Operand(elements, np.zeros_like(x.kind), low, high, np.ones_like(x.size), np.ones_like(x.degree))
