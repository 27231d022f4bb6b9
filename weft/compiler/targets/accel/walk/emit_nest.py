"""From an intrinsic call and the loops around it to instructions.

What all iterations of a nest have in common is worked out once: the strides of its operands in entries, and for each
shape that the loops have the levels or rectangles that they fold into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .....hw.config import STRIDE_BITS, TABLE_ENTRIES, CoreConfig
from .....hw.isa import TAP_COLUMNS, TAP_ROWS, Engine, Gemm, Instruction, Load, Loop, Scratchpad, Store, Vector
from .....hw.memories import Memory
from .....hw.weight_form import FOUR_BITS
from ....tensor.ir import Buffer
from ...errors import CompileError
from ..operators.empty_matrices import Mask, Run, parts_of
from ..operators.filled_parameters import TOGETHER, Filled
from ..operators.intrinsic_nest import Environment, Evaluator, IntrinsicNest
from ..operators.intrinsics import EmitFill, EmitGemm, EmitLoad, EmitStore, EmitVector
from ..stream.stream import Access, Issue, dram_access
from .fold import (
    CopyLoop,
    Folded,
    Gap,
    NestLoop,
    Ranges,
    Rectangle,
    boxes,
    fold_copies,
    fold_levels,
    iterate,
    over_gaps,
)  # fmt: skip
from .moved_loads import Places, moved_loads
from .unplaced import HeldLevels, buffer_of, inside

ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4}


Accesses = tuple[Access, ...]
Pitches = tuple[int, int] | None
"""Of a product in the depthwise mode."""


@dataclass(frozen=True)
class DramBuffer:
    """Where a global buffer lies: ``offset`` in bytes in the window. ``constant``: no program writes it. ``kept``: of
    matrices, one after another, which are loaded; the others are zero. ``pitch``: of matrices,
    how many entries each is from the next (`packed_layout.matrix_pitch`). ``records``: of matrices, how many are a
    record of 4-bit weights; 0 where they have 8 bits. ``filled``: of parameters, the entry that is not stored.
    ``moved``: of entries that a load puts into another order, their numbers in the window as int64; below 0 those of
    `moves.entry_of_fill`. ``offset`` then counts bytes of the tensor that they make, not of the window."""

    offset: int
    constant: bool = False
    kept: Mask | None = field(default=None, repr=False, compare=False)
    pitch: int = 1
    records: int = 0
    filled: Filled | None = None
    moved: bytes = field(default=b"", repr=False)


@dataclass
class Context:
    """One active virtual thread: values of the loop variables, first entries of the live buffers, tile number."""

    environment: Environment
    bases: dict[str, int]
    tile: int
    is_thread: bool = True  # otherwise it is all that there is, and one tile follows another in it


@dataclass(frozen=True, slots=True)
class _Operand:
    """Where an operand of a nest lies: ``elements`` of an entry, and ``strides`` of the folded loops in entries."""

    buffer: str
    base: Evaluator
    elements: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Levels:
    """The loops around a micro-op, folded; of each of its operands (dst, a, b), extents and strides of its walk."""

    loops: tuple[NestLoop, ...]
    folded: Folded
    walks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class NestEmitter:
    """Appends the instructions of a function's nests to ``issues``. ``held`` says what the loop registers hold, and is
    kept so. ``dram`` places the function's parameters. A nest must live as long: it is known by its identity."""

    def __init__(
        self, config: CoreConfig, issues: list[Issue], held: HeldLevels, dram: Mapping[str, DramBuffer], layer: int = 0
    ) -> None:
        self.stored = 0  # elements of the result
        self._left_out: dict[int, Mask] = {}  # of buffers in `wgt`, entries of matrices that were not loaded
        self._leaves_out = any(buffer.kept is not None for buffer in dram.values())
        self._config = config
        self._issues = issues
        self._held = held
        self._dram = dram
        self._layer = layer
        self._largest_stride = (1 << config.index_bits) - 1
        self._operands: dict[tuple[int, str], _Operand] = {}
        self._levels: dict[tuple[int, bool, tuple[int, ...]], _Levels] = {}
        self._copies: dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]], tuple[Rectangle, ...]] = {}

    def emit(self, nest: IntrinsicNest, context: Context, depth: int = 0) -> None:
        """Append the instructions of a nest, in one virtual thread. Raises CompileError, naming the stage."""
        if depth < len(nest.iterated):
            name, extent = nest.iterated[depth]
            for index in range(extent(context.environment)):
                context.environment[name] = index
                self.emit(nest, context, depth + 1)
            return
        extents = tuple([extent(context.environment) for _, extent in nest.folded])
        if min(extents, default=1) < 1:
            return
        match nest.call.intrinsic.emits:
            case EmitGemm() as emits:
                self._emit_gemm(nest, context, extents, emits)
            case EmitVector() as emits:
                self._emit_vector(nest, context, extents, emits)
            case EmitLoad() as emits:
                self._emit_load(nest, context, extents, emits)
            case EmitFill() as emits:
                self._emit_fill(nest, context, extents, emits)
            case EmitStore():
                self._emit_store(nest, context, extents)
            case other:
                name = nest.call.intrinsic.name
                raise CompileError(f"intrinsic {name!r} does not belong to the accelerator: it emits {other!r}")

    def _add(self, instruction: Instruction, context: Context, reads: Accesses = (), writes: Accesses = ()) -> None:
        self._issues.append(Issue(instruction, reads, writes, self._layer, context.tile))

    # Compute: gemm and vector

    def _operand(self, nest: IntrinsicNest, operand: str) -> _Operand:
        key = (id(nest), operand)
        if key not in self._operands:
            place = next(i for i, declared in enumerate(nest.call.intrinsic.operands) if declared.name == operand)
            position = nest.positions[place]
            elements = self._config.entry_elements(Memory(position.buffer.scope))
            if any(stride % elements for stride in position.strides):
                raise _off_entries(nest, operand, elements)
            strides = tuple(stride // elements for stride in position.strides)
            self._operands[key] = _Operand(position.buffer.name, position.base, elements, strides)
        return self._operands[key]

    def _entry(self, nest: IntrinsicNest, operand: str, context: Context) -> int:
        """First entry of an operand in its scratchpad."""
        found = self._operand(nest, operand)
        entry, rest = divmod(found.base(context.environment), found.elements)
        if rest:
            raise _off_entries(nest, operand, found.elements)
        return context.bases[found.buffer] + entry

    def _operand_loops(
        self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], operands: tuple[str, ...]
    ) -> tuple[list[int], _Levels, bool]:
        """First entries, loops around the micro-op (strides for dst, a, b), and whether it starts from the identity."""
        starts = nest.starting is not None and not any(context.environment.get(name, 0) for name in nest.starting)
        key = (id(nest), starts, extents)
        levels = self._levels.get(key)
        if levels is None:
            names = {var.name for var in nest.call.init or ()} if starts else set()
            places = [self._operand(nest, name).strides for name in operands]
            loops = []
            for place, ((name, _), extent) in enumerate(zip(nest.folded, extents, strict=True)):
                strides = tuple(each[place] for each in places)
                loops.append(NestLoop(extent, (*strides, *(0,) * (3 - len(strides))), name in names))
            levels = self._levels[key] = self._fold(tuple(loops), starts)
        return [self._entry(nest, name, context) for name in operands], levels, starts

    def _fold(self, loops: tuple[NestLoop, ...], starts: bool) -> _Levels:
        folded = fold_levels(loops, starts, self._largest_stride)
        return _Levels(loops, folded, tuple(_walk(folded.levels, operand) for operand in range(3)))

    def _set_levels(self, engine: Engine, levels: tuple[NestLoop, ...], context: Context) -> None:
        held = self._held[engine]
        for number, level in enumerate(levels):
            wanted = (level.extent, *level.strides)
            if held.get(number) != wanted:
                held[number] = wanted  # type: ignore[assignment]
                dst, a, b = level.strides
                loop = Loop(engine=engine, level=number, extent=level.extent, dst_stride=dst, a_stride=a, b_stride=b)
                self._add(loop, context)

    def _emit_gemm(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], emits: EmitGemm) -> None:
        firsts, levels, starts = self._operand_loops(nest, context, extents, ("acc", "inp", "wgt"))
        self._check_identity(nest, 0)
        pitches = self._tap_pitches(nest) if emits.depthwise else None
        if not self._leaves_out:
            self._emit_products(firsts, levels, starts, context, pitches)
            return
        # Of the loops over matrices those over results come first: of each of these, one part starts the sum.
        over = [place for place, loop in enumerate(levels.loops) if loop.strides[2]]
        over.sort(key=lambda place: levels.loops[place].strides[0] == 0)
        entries = np.array(firsts[2])
        for place in over:
            entries = np.add.outer(entries, levels.loops[place].strides[2] * np.arange(levels.loops[place].extent))
        left_out = self._left_out[buffer_of(firsts[2])][inside(entries)]
        if left_out.any():
            self._emit_kept_products(firsts, levels.loops, over, ~left_out, starts, context, pitches)
        else:
            self._emit_products(firsts, levels, starts, context, pitches)

    def _emit_kept_products(
        self, firsts: list[int], loops: tuple[NestLoop, ...], over: list[int], kept: Mask, starts: bool,
        context: Context, pitches: Pitches,
    ) -> None:  # fmt: skip
        """Products with the matrices that were loaded; ``kept`` has an axis for each of the loops at the places
        ``over``, those over results first."""
        results = sum(loops[place].strides[0] != 0 for place in over)
        started: tuple[Run, ...] | None = None
        for part in parts_of(kept):
            first = starts and part[:results] != started
            started = part[:results]
            runs = dict(zip(over, part, strict=True))
            self._emit_products(*self._part(firsts, loops, runs, first), first, context, pitches)
        if starts:
            self._fill_unstarted(firsts, loops, kept, over[:results], context)

    def _part(
        self, firsts: list[int], loops: tuple[NestLoop, ...], runs: Mapping[int, Run], starts: bool
    ) -> tuple[list[int], _Levels]:
        """First entries and levels of a part of a nest: ``runs`` of some of its loops."""
        some, moved = [], list(firsts)
        for place, loop in enumerate(loops):
            first, step, count = runs.get(place, (0, 1, loop.extent))
            moved = [entry + first * stride for entry, stride in zip(moved, loop.strides, strict=True)]
            strides = tuple(step * stride for stride in loop.strides)
            some.append(NestLoop(count, strides, loop.starts and starts))
        return moved, self._fold(tuple(some), starts)

    def _fill_unstarted(
        self, firsts: list[int], loops: tuple[NestLoop, ...], kept: Mask, results: list[int], context: Context
    ) -> None:
        """Zeros as results of which all matrices that count come with later products."""
        for part in parts_of(~np.any(kept, axis=tuple(range(len(results), kept.ndim)))):
            moved, levels = self._part(firsts, loops, dict(zip(results, part, strict=True)), False)
            copies = tuple(CopyLoop(loop.extent, loop.strides[0], 0, 0, 0) for loop in levels.loops if loop.strides[0])
            self._add_fills(Scratchpad.ACC8, moved[0], copies, 0, context)

    def _emit_products(
        self, firsts: list[int], levels: _Levels, starts: bool, context: Context, pitches: Pitches
    ) -> None:
        (dst, src, wgt), (row, column) = firsts, pitches or (0, 0)
        folded, (to_acc, from_inp, from_wgt) = levels.folded, levels.walks
        if pitches is not None:
            from_inp = (*from_inp[0], TAP_ROWS, TAP_COLUMNS), (*from_inp[1], row, column)
        self._set_levels(Engine.GEMM, folded.levels, context)
        for offsets, at_start in iterate(folded.outer):
            to_dst, to_src, to_wgt = offsets or (0, 0, 0)
            instruction = Gemm(
                zero=int(starts and at_start), levels=len(folded.levels),
                dst=dst + to_dst, src=src + to_src, wgt=wgt + to_wgt,
                depthwise=int(pitches is not None), row_pitch=row, column_pitch=column,
            )  # fmt: skip
            written = Access(Memory.ACC, instruction.dst, *to_acc)
            source = Access(Memory.INP, instruction.src, *from_inp)
            weights = Access(Memory.WGT, instruction.wgt, *from_wgt)
            self._add(instruction, context, (source, weights, written), (written,))

    def _tap_pitches(self, nest: IntrinsicNest) -> tuple[int, int]:
        """Entries of ``inp`` from one row of taps to the next, and from one column to the next."""
        region = nest.call.operand("inp")
        row, column = (stride // self._config.entry_elements(Memory.INP) for stride in region.strides[:2])
        if row % 2 == 0:
            raise CompileError(
                f"rows of taps lie {row} entries apart in {region.buffer.name!r}, but an odd number is needed to read "
                "three of them at once",
                at=f"stage {nest.call.block!r}",
                hint="storage_align the buffer's rows, and dilate them by an odd number",
            )
        return row, column

    def _emit_vector(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], emits: EmitVector) -> None:
        operands = ("d", "a", "b") if emits.entry_b else ("d", "a")
        firsts, levels, starts = self._operand_loops(nest, context, extents, operands)
        if emits.op.identity is not None:
            self._check_identity(nest, emits.op.identity)
        scalars = {name: value(context.environment) for name, value in nest.scalars.items()}
        immediate = scalars.get("immediate", 0) * (-1 if emits.negate else 1)
        fields = {name: scalars[name] for name in emits.clamps}
        table = 0
        if emits.table:
            table = context.bases[nest.call.operand("table").buffer.name] // TABLE_ENTRIES + 1
        if not emits.padded:
            self._emit_vector_nest(firsts, levels, starts, immediate, fields, context, emits, table)
            return
        inside, borders = boxes(levels.loops, self._inside(nest, context, extents))
        if inside is not None:
            within = self._fold(inside.loops, False)
            self._emit_vector_nest(inside.starts(firsts), within, False, immediate, fields, context, emits, table)
        # Clamped to one number, whatever it is made of: the first entry of what would be requantised.
        constant = {**fields, "zero_point": 0, "low": scalars["pad"], "high": scalars["pad"], "left_shift": 0}
        sources = [context.bases[nest.call.operand(name).buffer.name] for name in operands]
        for border in borders:
            still = self._fold(tuple(replace(loop, strides=(loop.strides[0], 0, 0)) for loop in border.loops), False)
            first = [border.starts(firsts)[0], *sources[1:]]
            self._emit_vector_nest(first, still, False, 0, constant, context, emits, 0)

    def _emit_vector_nest(
        self, firsts: list[int], levels: _Levels, starts: bool, immediate: int, fields: dict[str, int],
        context: Context, emits: EmitVector, table: int,
    ) -> None:  # fmt: skip
        """``table``: the number of the table that results pass through, from 1; 0: none."""
        folded, (to_target, from_a, from_b) = levels.folded, levels.walks
        if emits.entry_b and emits.op.b_entries > 1:
            from_b = (*from_b[0], emits.op.b_entries), (*from_b[1], 1)
        self._set_levels(Engine.VECTOR, folded.levels, context)
        for offsets, at_start in iterate(folded.outer):
            to_d, to_a, to_b = offsets or (0, 0, 0)
            b = firsts[2] + to_b if emits.entry_b else immediate
            instruction = Vector(
                op=emits.op, zero=int(starts and at_start), levels=len(folded.levels), target=emits.target,
                rounding=int(emits.rounds),
                b_immediate=int(not emits.entry_b), dst=firsts[0] + to_d, a=firsts[1] + to_a, b=b,
                low=fields.get("low", 0), high=fields.get("high", 0), zero_point=fields.get("zero_point", 0),
                left_shift=fields.get("left_shift", 0), table=table,
            )  # fmt: skip
            written = Access(emits.target.memory, instruction.dst, *to_target)
            reads = [Access(Memory.ACC, instruction.a, *from_a)]
            if emits.entry_b:
                reads.append(Access(Memory.ACC, b, *from_b))
            if emits.op.accumulates:
                reads.append(written)
            if table:
                reads.append(Access(Memory.TAB, instruction.table_entries.start, (TABLE_ENTRIES,), (1,)))
            self._add(instruction, context, tuple(reads), (written,))

    def _check_identity(self, nest: IntrinsicNest, identity: int) -> None:
        value = nest.call.init_value
        if nest.call.init is not None and value is not None and value.value != identity:
            raise CompileError(
                f"the reduction starts from {value.value}, but {nest.call.intrinsic.name!r} starts from {identity}",
                at=f"stage {nest.call.block!r}",
            )

    def _inside(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...]) -> Ranges | None:
        """The part of each folded loop in which the nest's conditions hold; None if they hold nowhere."""
        ranges = [(0, extent) for extent in extents]
        for bound in nest.bounds:
            low, high = ranges[bound.loop] if bound.loop >= 0 else (0, 1)
            low, high = bound.limit(context.environment, low, high)
            if high <= low:
                return None
            if bound.loop >= 0:
                ranges[bound.loop] = (low, high)
        return ranges

    # Copies: load and store

    def _rectangles(
        self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], scratchpad: str, dram: str,
        entry_bytes: int,
    ) -> tuple[int, int, tuple[Rectangle, ...]]:  # fmt: skip
        """First scratchpad entry, DRAM position in bytes, and the rectangles of a copy."""
        place = next(i for i, declared in enumerate(nest.call.intrinsic.operands) if declared.name == dram)
        position = nest.positions[place]
        item, pitch = ITEM_BYTES[position.buffer.dtype], self._dram[position.buffer.name].pitch
        ranges = self._inside(nest, context, extents)
        key = (id(nest), extents, ((-1, -1),) if ranges is None else tuple(ranges))
        rectangles = self._copies.get(key)
        if rectangles is None:
            strides = self._operand(nest, scratchpad).strides
            steps = [source * item * pitch for source in position.strides]
            loops = []
            full = [(0, extent) for extent in extents]
            for extent, stride, step, (low, high) in zip(extents, strides, steps, ranges or full, strict=True):
                if step % entry_bytes:
                    raise CompileError(
                        f"DRAM stride of {step} bytes is no multiple of the entry's {entry_bytes}",
                        at=f"stage {nest.call.block!r}",
                    )
                loops.append(CopyLoop(extent, stride, step // entry_bytes, low, high))
            if ranges is None:
                loops.append(CopyLoop(1, 1, 1, 0, 0))
            if scratchpad == "dst":
                loops = over_gaps(loops, self._gaps(nest.call.operand(scratchpad).buffer))
            rectangles = self._copies[key] = fold_copies(tuple(loops), (1 << STRIDE_BITS) - 1)
        start = self._dram[position.buffer.name].offset + position.base(context.environment) * item * pitch
        return self._entry(nest, scratchpad, context), start, rectangles

    def _gaps(self, buffer: Buffer) -> list[Gap]:
        """Gaps that alignment leaves in a buffer, in entries."""
        elements = self._config.entry_elements(Memory(buffer.scope))
        gaps = []
        for item in buffer.alignments:
            pitch, step = buffer.strides[item.axis : item.axis + 2]
            if step % elements == 0 and pitch % step == 0 and pitch > step * buffer.shape[item.axis + 1]:
                gaps.append(Gap(step // elements, buffer.shape[item.axis + 1], pitch // step))
        return gaps

    def _offset(self, position: int) -> int:
        granule = self._config.granule_bytes
        if position % granule:
            raise CompileError(f"DRAM position {position} is no multiple of {granule} bytes",
                               hint="choose a core whose batch is at most its larger block")  # fmt: skip
        return position // granule

    def _dram_access(self, buffer: str, rectangle: Rectangle, offset: int, entry_bytes: int) -> tuple[Access, ...]:
        if self._dram[buffer].constant:
            return ()
        return self._rectangle_access(rectangle, offset, entry_bytes)

    def _rectangle_access(self, piece: Rectangle, offset: int, entry_bytes: int) -> tuple[Access, ...]:
        """The granules of DRAM that a rectangle touches, from ``offset`` on."""
        if not piece.rows or not piece.columns:
            return ()
        return (dram_access(self._config, offset, piece.rows, piece.columns, piece.stride, entry_bytes),)

    def _emit_load(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], emits: EmitLoad) -> None:
        entry_bytes = emits.scratchpad.dram_bytes(self._config)
        index, start, rectangles = self._rectangles(nest, context, extents, "dst", "src", entry_bytes)
        pad = nest.scalars["pad"](context.environment) if emits.padded else 0
        buffer = nest.call.operand("src").buffer.name
        if emits.scratchpad is Scratchpad.WGT and self._dram[buffer].records:
            self._emit_records(context, index, start, rectangles, self._dram[buffer])
            return
        if (filled := self._dram[buffer].filled) is not None:
            self._emit_filled(context, emits, index, start, rectangles, self._dram[buffer].offset, filled)
            return
        if self._dram[buffer].moved:
            numbers = np.frombuffer(self._dram[buffer].moved, np.int64)
            self._emit_moved(context, emits, index, start, rectangles, numbers, pad)
            return
        if emits.scratchpad is Scratchpad.WGT:
            rectangles = self._without_empty(rectangles, index, start, self._dram[buffer])
        for piece in rectangles:
            offset = self._offset(start + piece.dram * entry_bytes) if piece.rows and piece.columns else 0
            instruction = Load(
                engine=emits.engine, scratchpad=emits.scratchpad, index=index + piece.scratchpad, offset=offset,
                rows=piece.rows, columns=piece.columns, stride=piece.stride, pad_top=piece.top, pad_bottom=piece.bottom,
                pad_left=piece.left, pad_right=piece.right, pad_value=pad,
            )  # fmt: skip
            written = Access(emits.scratchpad.memory, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, self._dram_access(buffer, piece, offset, entry_bytes), (written,))

    def _emit_moved(
        self, context: Context, emits: EmitLoad, index: int, start: int, rectangles: tuple[Rectangle, ...],
        numbers: Places, pad: int,
    ) -> None:  # fmt: skip
        """Loads of entries that lie in another order: a copy of what begins at byte ``start`` of them."""
        entry_bytes = emits.scratchpad.dram_bytes(self._config)
        for piece, instruction in moved_loads(self._config, emits, index, start, rectangles, numbers, pad):
            if emits.scratchpad is Scratchpad.WGT:
                self._leave_out(instruction.index, piece.entries)
            written = Access(emits.scratchpad.memory, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, self._rectangle_access(piece, instruction.offset, entry_bytes), (written,))

    def _emit_records(
        self, context: Context, index: int, start: int, rectangles: tuple[Rectangle, ...], source: DramBuffer
    ) -> None:
        """Loads of 4-bit weights: a copy of 8-bit ones from byte ``start``, whose rows are whole records."""
        config, each = self._config, source.records
        for piece in rectangles:
            first, rest = divmod((start - source.offset) // Scratchpad.WGT.dram_bytes(config) + piece.dram, each)
            rows_apart = piece.stride if piece.rows > 1 else 0
            if rest or piece.columns % each or rows_apart % each or piece.entries != piece.rows * piece.columns:
                raise CompileError(
                    f"a load of {piece.rows} x {piece.columns} matrices is no load of whole groups, which have {each}",
                    hint="the schedule must take a reduction in whole groups of 4-bit weights",
                )
            instruction = Load(
                engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=index + piece.scratchpad,
                offset=self._offset(source.offset + first * config.weight_record_bytes), rows=piece.rows,
                columns=piece.columns // each, stride=piece.stride // each, pad_value=FOUR_BITS,
            )  # fmt: skip
            self._leave_out(instruction.index, piece.entries)
            self._add(instruction, context, (), (Access(Memory.WGT, instruction.index, (piece.entries,), (1,)),))

    def _emit_filled(
        self, context: Context, emits: EmitLoad, index: int, start: int, rectangles: tuple[Rectangle, ...],
        offset: int, filled: Filled,
    ) -> None:  # fmt: skip
        """Loads of parameters, of whose groups an entry is not stored: a copy of all entries from byte ``start``."""
        entry_bytes, left = emits.scratchpad.dram_bytes(self._config), TOGETHER - 1
        for piece in rectangles:
            apart = piece.stride if piece.rows > 1 else piece.columns
            first, rest = divmod((start - offset) // entry_bytes + piece.dram, TOGETHER)
            if rest or piece.columns % TOGETHER or apart % TOGETHER or piece.entries != piece.rows * piece.columns:
                raise CompileError(
                    f"a load of {piece.rows} x {piece.columns} entries is no load of the parameters of whole groups",
                    hint=f"the schedule must take parameters {TOGETHER} entries at a time",
                )
            groups = piece.columns // TOGETHER
            for row in range(piece.rows):
                place = first + row * apart // TOGETHER
                written = Access(Memory.ACC, index + piece.scratchpad + row * piece.columns, (piece.columns,), (1,))
                instruction = Load(
                    engine=emits.engine, scratchpad=emits.scratchpad, index=written.start,
                    offset=self._offset(offset + place * left * entry_bytes), rows=groups, columns=left,
                    stride=left if groups > 1 else 0, pad_left=int(filled.first), pad_right=int(not filled.first),
                    pad_value=filled.value,
                )  # fmt: skip
                self._add(instruction, context, (), (written,))

    def _emit_fill(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...], emits: EmitFill) -> None:
        index, strides = self._entry(nest, "dst", context), self._operand(nest, "dst").strides
        loops = tuple(CopyLoop(extent, stride, 0, 0, 0) for extent, stride in zip(extents, strides, strict=True))
        self._add_fills(emits.scratchpad, index, loops, nest.scalars["pad"](context.environment), context)

    def _add_fills(
        self, scratchpad: Scratchpad, index: int, loops: tuple[CopyLoop, ...], pad: int, context: Context
    ) -> None:
        for piece in fold_copies((*loops, CopyLoop(1, 1, 1, 0, 0)), (1 << STRIDE_BITS) - 1):
            instruction = Load(
                scratchpad=scratchpad, index=index + piece.scratchpad, offset=0, rows=0, columns=piece.columns,
                pad_top=1, pad_value=pad,
            )  # fmt: skip
            written = Access(scratchpad.memory, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, (), (written,))

    def _without_empty(
        self, rectangles: tuple[Rectangle, ...], index: int, start: int, source: DramBuffer
    ) -> tuple[Rectangle, ...]:
        """A copy of matrices from byte ``start`` to ``wgt`` without those that do not count; notes which are there."""
        pieces: list[Rectangle] = []
        for piece in rectangles:
            if source.kept is None or piece.entries != piece.rows * piece.columns:
                self._leave_out(index + piece.scratchpad, piece.entries)
                pieces.append(piece)
                continue
            first = (start - source.offset) // Scratchpad.WGT.dram_bytes(self._config) + piece.dram
            places = first + np.arange(piece.rows)[:, None] * piece.stride + np.arange(piece.columns)
            kept = source.kept[places // source.pitch]
            self._leave_out(index + piece.scratchpad, piece.entries, ~kept.ravel())
            pieces += [piece] if kept.all() else _loaded(piece, kept)
        return tuple(pieces)

    def _leave_out(self, first: int, entries: int, which: Mask | bool = False) -> None:
        """Note of entries of ``wgt`` which of them stand for matrices that are not loaded."""
        if self._leaves_out:
            buffer = self._left_out.setdefault(buffer_of(first), np.zeros(self._config.wgt_depth, np.bool_))
            buffer[inside(first) : inside(first) + entries] = which

    def _emit_store(self, nest: IntrinsicNest, context: Context, extents: tuple[int, ...]) -> None:
        entry_bytes = self._config.out_bytes
        index, start, rectangles = self._rectangles(nest, context, extents, "src", "dst", entry_bytes)
        buffer = nest.call.operand("dst").buffer.name
        for piece in rectangles:
            self.stored += piece.entries * self._config.lanes
            offset = self._offset(start + piece.dram * entry_bytes)
            instruction = Store(
                index=index + piece.scratchpad, offset=offset, rows=piece.rows, columns=piece.columns,
                stride=piece.stride,
            )  # fmt: skip
            read = Access(Memory.OUT, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, (read,), self._dram_access(buffer, piece, offset, entry_bytes))


def _loaded(piece: Rectangle, kept: Mask) -> Iterator[Rectangle]:
    """The parts of a copy, row by row, that are kept; what lies in one piece at both ends is one row."""
    if piece.stride == piece.columns:
        kept = kept.reshape(1, -1)
    for row, of_row in enumerate(kept):
        edges = np.flatnonzero(np.diff(of_row, prepend=False, append=False))
        for first, stop in edges.reshape(-1, 2).tolist():
            scratchpad, dram = piece.scratchpad + row * kept.shape[1] + first, piece.dram + row * piece.stride + first
            yield Rectangle(scratchpad, dram, 1, stop - first)


def _walk(levels: tuple[NestLoop, ...], operand: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides of the levels that move an operand."""
    used = [(level.extent, level.strides[operand]) for level in levels if level.strides[operand]]
    return tuple(extent for extent, _ in used), tuple(stride for _, stride in used)


def _off_entries(nest: IntrinsicNest, operand: str, elements: int) -> CompileError:
    return CompileError(
        f"operand {operand!r} of {nest.call.intrinsic.name!r} does not lie at entries of {elements} elements",
        at=f"stage {nest.call.block!r}",
    )
