"""From scheduled loop IR to the sequential instruction stream.

The emitter walks the loops with concrete values. A *context* is one active virtual thread: where the walk reaches a
virtual-thread loop, each iteration becomes a context of its own, and every statement below is emitted for each of them
in turn, which weaves the threads into one stream. Nothing here knows any operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....hw.config import STRIDE_BITS, CoreConfig
from ....hw.isa import TAP_COLUMNS, TAP_ROWS, Engine, Gemm, Instruction, Load, Loop, Store, Vector
from ....hw.memories import SCRATCHPADS, Memory
from ...tensor.bounds import require_bounds
from ...tensor.ir import Allocate, Block, Buffer, Expr, For, If, IntrinsicCall, PrimFunc, Seq, Stmt, Var
from ...tensor.ir import Store as StoreStmt
from ...tensor.visitor import statements
from ..errors import CompileError
from .fold import CopyLoop, Gap, NestLoop, Ranges, Rectangle, boxes, fold_copies, fold_levels, iterate, over_gaps
from .intrinsic_nest import Environment, Evaluator, IntrinsicNest, analyse_nest, compile_expr, nest_call
from .intrinsics import EmitFill, EmitGemm, EmitLoad, EmitStore, EmitVector
from .pipelined import find_nest, is_pipelined, turns
from .scratchpads import Ring, Zone, accumulator_zones
from .stream import Access, Issue

ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4}


Accesses = tuple[Access, ...]
Steps = Iterator[float]
"""Emits instructions up to the next step's end, and gives the share of the result that is stored by then."""


@dataclass(frozen=True)
class DramBuffer:
    """Where a global buffer lies: ``offset`` in bytes in the window. ``constant``: no program writes it."""

    offset: int
    constant: bool = False


@dataclass
class Context:
    """One active virtual thread: values of the loop variables, first entries of the live buffers, tile number."""

    environment: Environment
    bases: dict[str, int]
    tile: int
    is_thread: bool = True  # otherwise it is all that there is, and one tile follows another in it


class Emitter:
    """Emits functions one after another into one stream; scratchpad positions and loop registers carry over.

    ``rings``: consecutive tiles take different entries; otherwise the same, as far as they are free.
    """

    def __init__(self, config: CoreConfig, *, rings: bool = True) -> None:
        self.config = config
        self.issues: list[Issue] = []
        self.rings = {memory: Ring(memory, config.depth(memory), turns=rings) for memory in SCRATCHPADS}
        self.levels: dict[Engine, dict[int, tuple[int, int, int, int]]] = {Engine.GEMM: {}, Engine.VECTOR: {}}
        self.tiles = 0  # of the layer, so far

    def emit(self, function: PrimFunc, dram: Mapping[str, DramBuffer], layer: int = 0) -> None:
        """Append the instructions of ``function``; ``dram`` places its parameters. Raises as :meth:`emit_in_turn`."""
        self.emit_in_turn([(function, dram)], layer)

    def emit_in_turn(self, functions: Sequence[tuple[PrimFunc, Mapping[str, DramBuffer]]], layer: int = 0) -> None:
        """Append functions that do not depend on one another, in turn: the next is the one of whose result the smallest
        share is stored.

        Raises BoundsError where a function is not proved to stay inside its buffers, CompileError naming the stage that
        no instruction computes, and ScratchpadFullError naming the buffer; the stream is then as it was.
        """
        for function, _ in functions:
            require_bounds(function)
        before = {scope: ring.copy() for scope, ring in self.rings.items()}
        length = len(self.issues)
        levels = {engine: dict(held) for engine, held in self.levels.items()}
        self.tiles = len(functions) - 1
        zones = accumulator_zones(self.config, in_turn=len(functions) > 1)
        walks = [
            self._steps(_Walk(self, function, dram, layer, zones), tile)
            for tile, (function, dram) in enumerate(functions)
        ]
        stored = dict.fromkeys(range(len(walks)), 0.0)
        try:
            while stored:
                number = min(stored, key=stored.__getitem__)
                share = next(walks[number], None)
                if share is None:
                    del stored[number]
                else:
                    stored[number] = share
        except CompileError:
            self.rings, self.levels = before, levels
            del self.issues[length:]
            raise

    @staticmethod
    def _steps(walk: _Walk, tile: int) -> Steps:
        function = walk.function
        missing = [param.name for param in function.params if param.name not in walk.dram]
        if missing:
            raise CompileError(f"parameter {missing[0]!r} has no place in the window", at=f"function {function.name!r}")
        try:
            yield from walk.steps(function.body, [Context({}, {}, tile, is_thread=False)], [])
        except CompileError as error:
            raise type(error)(error.message, at=error.at or f"function {function.name!r}", hint=error.hint) from error


class _Walk:
    """The walk through one function."""

    def __init__(
        self, stream: Emitter, function: PrimFunc, dram: Mapping[str, DramBuffer], layer: int,
        zones: dict[str, tuple[Zone, ...]],
    ) -> None:  # fmt: skip
        self.stream = stream
        self.config = stream.config
        self.function = function
        self.dram = dram
        self._layer = layer
        self._zones = zones
        self._filled_by = _filled_by(function)
        self._largest_stride = (1 << stream.config.index_bits) - 1
        self._stored = 0  # elements of the result
        self._nests: dict[int, IntrinsicNest] = {}
        self._evaluators: dict[int, Evaluator] = {}
        self._keep_alive: list[object] = []  # both caches are keyed by identity

    def steps(self, stmt: Stmt, contexts: list[Context], outer: list[tuple[Var, Expr]]) -> Steps:
        """Emit a statement for all contexts. A step ends where they have stored a part of the result; it gives the
        share of the result that is stored."""
        call = nest_call(stmt)
        if call is not None:
            nest = self._intrinsic_nest(stmt, outer)
            for context in contexts:
                self._emit_nest(nest, context)
            if isinstance(call.intrinsic.emits, EmitStore):
                for context in contexts:
                    if not context.is_thread:
                        self.stream.tiles += 1
                        context.tile = self.stream.tiles
                yield self._stored / call.operand("dst").buffer.size
            return
        match stmt:
            case Seq(body):
                for child in body:
                    yield from self.steps(child, contexts, outer)
            case Allocate():
                yield from self._allocate(stmt, contexts, outer)
            case For(kind="vthread"):
                yield from self.steps(stmt.body, self._threads(stmt, contexts), [*outer, (stmt.var, stmt.extent)])
            case For(kind="serial" | "unroll"):
                yield from self._serial(stmt, contexts, [*outer, (stmt.var, stmt.extent)])
            case For(var=var, kind=kind):
                raise CompileError(f"loop {var.name!r} is {kind!r}, but the accelerator has no such loops",
                                   hint="leave it serial, or make it a virtual thread")  # fmt: skip
            case If(cond, then):
                evaluate = self._evaluator(cond)
                chosen = [context for context in contexts if evaluate(context.environment)]
                yield from self.steps(then, chosen, outer)
            case Block(name=name):
                raise CompileError(f"stage {name!r} was not tensorized: the accelerator has no instruction for it",
                                   hint="tensorize it to one of the core's intrinsics")  # fmt: skip
            case StoreStmt(buffer=buffer):
                raise CompileError(f"a plain store to {buffer.name!r} cannot run on the accelerator")

    def _evaluator(self, expr: Expr) -> Evaluator:
        if id(expr) not in self._evaluators:
            self._evaluators[id(expr)] = compile_expr(expr)
            self._keep_alive.append(expr)
        return self._evaluators[id(expr)]

    def _intrinsic_nest(self, stmt: Stmt, outer: list[tuple[Var, Expr]]) -> IntrinsicNest:
        if id(stmt) not in self._nests:
            self._nests[id(stmt)] = analyse_nest(stmt, outer)
            self._keep_alive.append(stmt)
        return self._nests[id(stmt)]

    def _allocate(self, stmt: Allocate, contexts: list[Context], outer: list[tuple[Var, Expr]]) -> Steps:
        buffer = stmt.buffer
        for context in contexts:
            context.bases[buffer.name] = self._take(buffer)
        yield from self.steps(stmt.body, contexts, outer)
        for context in contexts:
            self.stream.rings[Memory(buffer.scope)].release(context.bases.pop(buffer.name))

    def _take(self, buffer: Buffer) -> int:
        """The first entry of room for a buffer."""
        if buffer.scope not in SCRATCHPADS:
            raise CompileError(
                f"buffer {buffer.name!r} has scope {buffer.scope!r}, which the accelerator does not have",
                hint=f"the scopes are global (parameters only), {', '.join(SCRATCHPADS)}",
            )
        memory = Memory(buffer.scope)
        entries = -(-buffer.size // self.config.entry_elements(memory))
        return self.stream.rings[memory].take(entries, buffer.name, self._zones_of(buffer))

    def _zones_of(self, buffer: Buffer) -> tuple[Zone, ...]:
        return self._zones.get(self._filled_by.get(buffer.name, ""), ()) if buffer.scope == Memory.ACC else ()

    def _threads(self, loop: For, contexts: list[Context]) -> list[Context]:
        extent = self._evaluator(loop.extent)
        threads = []
        for context in contexts:
            for index in range(extent(context.environment)):
                environment = {**context.environment, loop.var.name: index}
                threads.append(Context(environment, dict(context.bases), self.stream.tiles))
                self.stream.tiles += 1
        return threads

    def _serial(self, loop: For, contexts: list[Context], outer: list[tuple[Var, Expr]]) -> Steps:
        if is_pipelined(loop):
            for context in contexts:
                yield from self._pipelined(loop, context, outer[:-1])
            return
        extent = self._evaluator(loop.extent)
        extents = [extent(context.environment) for context in contexts]
        for index in range(max(extents, default=0)):
            active = [context for context, count in zip(contexts, extents, strict=True) if index < count]
            for context in active:
                context.environment[loop.var.name] = index
            yield from self.steps(loop.body, active, outer)

    def _pipelined(self, loop: For, context: Context, outer: list[tuple[Var, Expr]]) -> Steps:
        """The iterations of a nest of loops, overlapped; each is a tile."""
        nest = find_nest(loop, outer)
        extents = [self._evaluator(each.extent)(context.environment) for each in nest.loops]
        bases: dict[tuple[str, tuple[int, ...]], int] = {}
        inside = Context(dict(context.environment), dict(context.bases), context.tile)
        first_tile = self.stream.tiles
        for turn in turns(nest, extents):
            for each, value in zip(nest.loops, turn.index, strict=True):
                inside.environment[each.var.name] = value
            for allocate, index in turn.first:
                bases[allocate.buffer.name, index] = self._take(allocate.buffer)
            for name in turn.stage.reads | turn.stage.writes:
                if name in nest.buffers:
                    inside.bases[name] = bases[name, turn.index[: nest.buffers[name][1]]]
            inside.tile = first_tile + turn.number
            self.stream.tiles = max(self.stream.tiles, inside.tile)
            yield from self.steps(turn.stage.stmt, [inside], list(turn.stage.outer))
            for name, index in turn.last:
                self.stream.rings[Memory(nest.buffers[name][0].buffer.scope)].release(bases.pop((name, index)))

    def _emit_nest(self, nest: IntrinsicNest, context: Context, depth: int = 0) -> None:
        if depth < len(nest.iterated):
            name, extent = nest.iterated[depth]
            for index in range(extent(context.environment)):
                context.environment[name] = index
                self._emit_nest(nest, context, depth + 1)
            return
        extents = [extent(context.environment) for _, extent in nest.folded]
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
        self.stream.issues.append(Issue(instruction, reads, writes, self._layer, context.tile))

    # Compute: gemm and vector

    def _entries(self, nest: IntrinsicNest, operand: str, context: Context) -> tuple[int, tuple[int, ...]]:
        """First entry of an operand in its scratchpad, and its strides in entries."""
        place = next(i for i, declared in enumerate(nest.call.intrinsic.operands) if declared.name == operand)
        position = nest.positions[place]
        elements = self.config.entry_elements(Memory(position.buffer.scope))
        first = position.base(context.environment)
        if first % elements or any(stride % elements for stride in position.strides):
            raise CompileError(
                f"operand {operand!r} of {nest.call.intrinsic.name!r} does not lie at entries of {elements} elements",
                at=f"stage {nest.call.block!r}",
            )
        base = context.bases[position.buffer.name]
        return base + first // elements, tuple(stride // elements for stride in position.strides)

    def _operand_loops(
        self, nest: IntrinsicNest, context: Context, extents: list[int], operands: tuple[str, ...]
    ) -> tuple[list[int], tuple[NestLoop, ...], bool]:
        """First entries, loops around the micro-op (strides for dst, a, b), and whether it starts from the identity."""
        entries = [self._entries(nest, name, context) for name in operands]
        starting = nest.call.init
        starts = starting is not None and all(
            context.environment.get(var.name, 0) == 0 for var in starting if var.name not in dict(nest.folded)
        )
        names = {var.name for var in starting or ()} if starts else set()
        loops = []
        for place, ((name, _), extent) in enumerate(zip(nest.folded, extents, strict=True)):
            strides = tuple(strides[place] for _, strides in entries)
            loops.append(NestLoop(extent, (*strides, *(0,) * (3 - len(strides))), name in names))
        return [first for first, _ in entries], tuple(loops), starts

    def _set_levels(self, engine: Engine, levels: tuple[NestLoop, ...], context: Context) -> None:
        held = self.stream.levels[engine]
        for number, level in enumerate(levels):
            wanted = (level.extent, *level.strides)
            if held.get(number) != wanted:
                held[number] = wanted  # type: ignore[assignment]
                dst, a, b = level.strides
                loop = Loop(engine=engine, level=number, extent=level.extent, dst_stride=dst, a_stride=a, b_stride=b)
                self._add(loop, context)

    def _emit_gemm(self, nest: IntrinsicNest, context: Context, extents: list[int], emits: EmitGemm) -> None:
        (dst, src, wgt), loops, starts = self._operand_loops(nest, context, extents, ("acc", "inp", "wgt"))
        self._check_identity(nest, 0)
        row, column = self._tap_pitches(nest) if emits.depthwise else (0, 0)
        folded = fold_levels(loops, starts, self._largest_stride)
        self._set_levels(Engine.GEMM, folded.levels, context)
        for offsets, at_start in iterate(folded.outer):
            to_dst, to_src, to_wgt = offsets or (0, 0, 0)
            instruction = Gemm(
                zero=int(starts and at_start), levels=len(folded.levels),
                dst=dst + to_dst, src=src + to_src, wgt=wgt + to_wgt,
                depthwise=int(emits.depthwise), row_pitch=row, column_pitch=column,
            )  # fmt: skip
            written = _access(Memory.ACC, instruction.dst, folded.levels, 0)
            source = _access(Memory.INP, instruction.src, folded.levels, 1)
            if emits.depthwise:
                pitches = (instruction.row_pitch, instruction.column_pitch)
                source = replace(source, extents=(*source.extents, TAP_ROWS, TAP_COLUMNS),
                                 strides=(*source.strides, *pitches))  # fmt: skip
            weights = _access(Memory.WGT, instruction.wgt, folded.levels, 2)
            self._add(instruction, context, (source, weights, written), (written,))

    def _tap_pitches(self, nest: IntrinsicNest) -> tuple[int, int]:
        """Entries of ``inp`` from one row of taps to the next, and from one column to the next."""
        region = nest.call.operand("inp")
        row, column = (stride // self.config.entry_elements(Memory.INP) for stride in region.strides[:2])
        if row % 2 == 0:
            raise CompileError(
                f"rows of taps lie {row} entries apart in {region.buffer.name!r}, but an odd number is needed to read "
                "three of them at once",
                at=f"stage {nest.call.block!r}",
                hint="storage_align the buffer's rows, and dilate them by an odd number",
            )
        return row, column

    def _emit_vector(self, nest: IntrinsicNest, context: Context, extents: list[int], emits: EmitVector) -> None:
        operands = ("d", "a", "b") if emits.entry_b else ("d", "a")
        firsts, loops, starts = self._operand_loops(nest, context, extents, operands)
        if emits.op.identity is not None:
            self._check_identity(nest, emits.op.identity)
        scalars = {name: value(context.environment) for name, value in nest.scalars.items()}
        immediate = scalars.get("immediate", 0) * (-1 if emits.negate else 1)
        fields = {name: scalars[name] for name in emits.clamps}
        if not emits.padded:
            self._emit_vector_nest(firsts, loops, starts, immediate, fields, context, emits)
            return
        inside, borders = boxes(loops, self._inside(nest, context, extents))
        if inside is not None:
            self._emit_vector_nest(inside.starts(firsts), inside.loops, False, immediate, fields, context, emits)
        # Clamped to one number, whatever it is made of: the first entry of what would be requantised.
        constant = {**fields, "zero_point": 0, "low": scalars["pad"], "high": scalars["pad"], "left_shift": 0}
        sources = [context.bases[nest.call.operand(name).buffer.name] for name in operands]
        for border in borders:
            still = tuple(replace(loop, strides=(loop.strides[0], 0, 0)) for loop in border.loops)
            self._emit_vector_nest([border.starts(firsts)[0], *sources[1:]], still, False, 0, constant, context, emits)

    def _emit_vector_nest(
        self, firsts: list[int], loops: tuple[NestLoop, ...], starts: bool, immediate: int, fields: dict[str, int],
        context: Context, emits: EmitVector,
    ) -> None:  # fmt: skip
        folded = fold_levels(loops, starts, self._largest_stride)
        self._set_levels(Engine.VECTOR, folded.levels, context)
        for offsets, at_start in iterate(folded.outer):
            to_d, to_a, to_b = offsets or (0, 0, 0)
            b = firsts[2] + to_b if emits.entry_b else immediate
            instruction = Vector(
                op=emits.op, zero=int(starts and at_start), levels=len(folded.levels), target=emits.target,
                b_immediate=int(not emits.entry_b), dst=firsts[0] + to_d, a=firsts[1] + to_a, b=b,
                low=fields.get("low", 0), high=fields.get("high", 0), zero_point=fields.get("zero_point", 0),
                left_shift=fields.get("left_shift", 0),
            )  # fmt: skip
            written = _access(instruction.target.memory, instruction.dst, folded.levels, 0)
            reads = [_access(Memory.ACC, instruction.a, folded.levels, 1)]
            if emits.entry_b:
                reads.append(_access(Memory.ACC, b, folded.levels, 2, instruction.b_entries))
            if emits.op.accumulates:
                reads.append(written)
            self._add(instruction, context, tuple(reads), (written,))

    def _check_identity(self, nest: IntrinsicNest, identity: int) -> None:
        value = nest.call.init_value
        if nest.call.init is not None and value is not None and value.value != identity:
            raise CompileError(
                f"the reduction starts from {value.value}, but {nest.call.intrinsic.name!r} starts from {identity}",
                at=f"stage {nest.call.block!r}",
            )

    def _inside(self, nest: IntrinsicNest, context: Context, extents: list[int]) -> Ranges | None:
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
        self, nest: IntrinsicNest, context: Context, extents: list[int], scratchpad: str, dram: str, entry_bytes: int
    ) -> tuple[int, int, tuple[Rectangle, ...]]:
        """First scratchpad entry, DRAM position in bytes, and the rectangles of a copy."""
        index, strides = self._entries(nest, scratchpad, context)
        place = next(i for i, declared in enumerate(nest.call.intrinsic.operands) if declared.name == dram)
        position = nest.positions[place]
        item = ITEM_BYTES[position.buffer.dtype]
        loops = []
        ranges = self._inside(nest, context, extents)
        empty = ranges is None
        full = [(0, extent) for extent in extents]
        for extent, stride, source, (low, high) in zip(extents, strides, position.strides, ranges or full, strict=True):
            if source * item % entry_bytes:
                raise CompileError(
                    f"DRAM stride of {source * item} bytes is no multiple of the entry's {entry_bytes}",
                    at=f"stage {nest.call.block!r}",
                )
            loops.append(CopyLoop(extent, stride, source * item // entry_bytes, low, high))
        if empty:
            loops.append(CopyLoop(1, 1, 1, 0, 0))
        if scratchpad == "dst":
            loops = over_gaps(loops, self._gaps(nest.call.operand(scratchpad).buffer))
        start = self.dram[position.buffer.name].offset + position.base(context.environment) * item
        return index, start, fold_copies(tuple(loops), (1 << STRIDE_BITS) - 1)

    def _gaps(self, buffer: Buffer) -> list[Gap]:
        """Gaps that alignment leaves in a buffer, in entries."""
        elements = self.config.entry_elements(Memory(buffer.scope))
        gaps = []
        for item in buffer.alignments:
            pitch, step = buffer.strides[item.axis : item.axis + 2]
            if step % elements == 0 and pitch % step == 0 and pitch > step * buffer.shape[item.axis + 1]:
                gaps.append(Gap(step // elements, buffer.shape[item.axis + 1], pitch // step))
        return gaps

    def _offset(self, position: int) -> int:
        granule = self.config.granule_bytes
        if position % granule:
            raise CompileError(f"DRAM position {position} is no multiple of {granule} bytes")
        return position // granule

    def _dram_access(self, buffer: str, rectangle: Rectangle, offset: int, entry_bytes: int) -> tuple[Access, ...]:
        if self.dram[buffer].constant or not rectangle.rows or not rectangle.columns:
            return ()
        units = entry_bytes // self.config.granule_bytes
        if rectangle.rows == 1 or rectangle.stride == rectangle.columns:
            return (Access(Memory.DRAM, offset, (rectangle.rows * rectangle.columns * units,), (1,)),)
        extents, strides = (rectangle.rows, rectangle.columns * units), (rectangle.stride * units, 1)
        return (Access(Memory.DRAM, offset, extents, strides),)

    def _emit_load(self, nest: IntrinsicNest, context: Context, extents: list[int], emits: EmitLoad) -> None:
        entry_bytes = emits.scratchpad.dram_bytes(self.config)
        index, start, rectangles = self._rectangles(nest, context, extents, "dst", "src", entry_bytes)
        pad = nest.scalars["pad"](context.environment) if emits.padded else 0
        buffer = nest.call.operand("src").buffer.name
        for piece in rectangles:
            offset = self._offset(start + piece.dram * entry_bytes) if piece.rows and piece.columns else 0
            instruction = Load(
                engine=emits.engine, scratchpad=emits.scratchpad, index=index + piece.scratchpad, offset=offset,
                rows=piece.rows, columns=piece.columns, stride=piece.stride, pad_top=piece.top, pad_bottom=piece.bottom,
                pad_left=piece.left, pad_right=piece.right, pad_value=pad,
            )  # fmt: skip
            written = Access(emits.scratchpad.memory, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, self._dram_access(buffer, piece, offset, entry_bytes), (written,))

    def _emit_fill(self, nest: IntrinsicNest, context: Context, extents: list[int], emits: EmitFill) -> None:
        index, strides = self._entries(nest, "dst", context)
        loops = tuple(CopyLoop(extent, stride, 0, 0, 0) for extent, stride in zip(extents, strides, strict=True))
        pad = nest.scalars["pad"](context.environment)
        for piece in fold_copies((*loops, CopyLoop(1, 1, 1, 0, 0)), (1 << STRIDE_BITS) - 1):
            instruction = Load(
                scratchpad=emits.scratchpad, index=index + piece.scratchpad, offset=0, rows=0, columns=piece.columns,
                pad_top=1, pad_value=pad,
            )  # fmt: skip
            written = Access(emits.scratchpad.memory, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, (), (written,))

    def _emit_store(self, nest: IntrinsicNest, context: Context, extents: list[int]) -> None:
        entry_bytes = self.config.out_bytes
        index, start, rectangles = self._rectangles(nest, context, extents, "src", "dst", entry_bytes)
        buffer = nest.call.operand("dst").buffer.name
        for piece in rectangles:
            self._stored += piece.entries * self.config.lanes
            offset = self._offset(start + piece.dram * entry_bytes)
            instruction = Store(
                index=index + piece.scratchpad, offset=offset, rows=piece.rows, columns=piece.columns,
                stride=piece.stride,
            )  # fmt: skip
            read = Access(Memory.OUT, instruction.index, (piece.entries,), (1,))
            self._add(instruction, context, (read,), self._dram_access(buffer, piece, offset, entry_bytes))


def _filled_by(function: PrimFunc) -> dict[str, str]:
    """For each buffer of the accumulator, the kind of instruction that fills it."""
    kinds: dict[str, str] = {}
    for stmt in statements(function.body):
        if isinstance(stmt, IntrinsicCall):
            for operand, declared in zip(stmt.operands, stmt.intrinsic.operands, strict=True):
                if declared.mode != "in" and declared.scope == Memory.ACC:
                    match stmt.intrinsic.emits:
                        case EmitGemm():
                            kind = "matrix"
                        case EmitLoad(engine=Engine.LOADW):
                            kind = "parameters"
                        case EmitLoad() | EmitFill():
                            kind = "load"
                        case _:
                            kind = "vector"
                    kinds.setdefault(operand.buffer.name, kind)
    # Data of a depthwise layer are read together with its weights: they lie where loaded data do.
    for stmt in statements(function.body):
        if isinstance(stmt, IntrinsicCall) and isinstance(stmt.intrinsic.emits, EmitVector):
            emits, data = stmt.intrinsic.emits, stmt.operand("a").buffer.name
            if emits.op.accumulates and emits.entry_b and kinds.get(data) == "vector":
                kinds[data] = "load"
    return kinds


def _access(memory: Memory, first: int, levels: tuple[NestLoop, ...], operand: int, entries: int = 1) -> Access:
    used = [(level.extent, level.strides[operand]) for level in levels if level.strides[operand]]
    if entries > 1:
        used.append((entries, 1))
    return Access(memory, first, tuple(extent for extent, _ in used), tuple(stride for _, stride in used))
