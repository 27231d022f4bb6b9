"""From scheduled loop IR to the sequential instruction stream.

The emitter walks the loops with concrete values. A *context* is one active virtual thread: where the walk reaches a
virtual-thread loop, each iteration becomes a context of its own, and every statement below is emitted for each of them
in turn, which weaves the threads into one stream. Nothing here knows any operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .....hw.config import CoreConfig
from .....hw.isa import Engine
from .....hw.memories import Memory
from ....tensor.bounds import require_bounds
from ....tensor.ir import Allocate, Block, Buffer, Const, Expr, For, If, IntrinsicCall, PrimFunc, Seq, Stmt, Var
from ....tensor.ir import Store as StoreStmt
from ....tensor.visitor import below, free_vars, statements
from ...errors import CompileError
from ..operators.intrinsic_nest import Evaluator, IntrinsicNest, analyse_nest, compile_expr, nest_call
from ..operators.intrinsics import EmitFill, EmitGemm, EmitLoad, EmitStore, EmitVector
from ..schedule.pipelined import find_nest, is_pipelined, turns
from ..stream.rows import Rows
from ..stream.scratchpads import Ring, Zone, accumulator_zones
from ..stream.stream import Issue
from .emit_nest import Context, DramBuffer, NestEmitter
from .unplaced import HeldLevels, Take, Unplaced, address, buffer_of

Steps = Iterator[float]
"""Emits instructions up to the next step's end, and gives the share of the result that is stored by then."""


class Emitter:
    """Emits functions one after another into one stream; scratchpad positions and loop registers carry over.

    ``rings``: consecutive tiles take different entries; otherwise the same, as far as they are free. Then virtual
    threads share no copies: those of one are loaded while the other works.
    """

    def __init__(self, config: CoreConfig, *, rings: bool = True) -> None:
        self.config = config
        self.shares = rings
        self._parts: list[Rows] = []
        self.rings = {memory: Ring(memory, config.depth(memory), turns=rings) for memory in config.scratchpads}
        self.levels: HeldLevels = {Engine.GEMM: {}, Engine.VECTOR: {}}
        self.tiles = 0  # of the layer, so far

    @property
    def rows(self) -> Rows:
        """The stream so far."""
        self._parts = [Rows.joined(self._parts)]
        return self._parts[0]

    @property
    def issues(self) -> list[Issue]:
        """The instructions of the stream so far."""
        return list(self.rows)

    @property
    def has_none(self) -> bool:
        """Whether the stream has no instruction so far."""
        return not any(map(len, self._parts))

    def add(self, rows: Rows) -> None:
        """Append instructions that have their places, after which tokens are all that is missing."""
        self._parts.append(rows)

    def restart_rings(self) -> None:
        """Let the next function's buffers begin where each scratchpad does."""
        self.rings = {memory: Ring(memory, ring.depth, turns=ring.turns) for memory, ring in self.rings.items()}

    def emit(self, function: PrimFunc, dram: Mapping[str, DramBuffer], layer: int = 0) -> None:
        """Append the instructions of ``function``; ``dram`` places its parameters. Raises as :meth:`walked` and
        :meth:`append`."""
        self.append(self.walked([(function, dram)]), [dram], layer)

    def walked(self, functions: Sequence[tuple[PrimFunc, Mapping[str, DramBuffer]]]) -> Unplaced:
        """The instructions of functions that do not depend on one another, in turn: the next is the one of whose result
        the smallest share is stored. They hold wherever their tensors and their room are (:func:`movable`).

        Raises BoundsError where a function is not proved to stay inside its buffers, CompileError naming the stage that
        no instruction computes, and ScratchpadFullError naming the buffer that has no room behind what is emitted.
        """
        for function, _ in functions:
            require_bounds(function)
        found = _Found(self.config, self.shares, self._copied_rings(), tiles=len(functions) - 1)
        walks, buffers = [], 1
        for tile, (function, dram) in enumerate(functions):
            numbered = {name: _numbered(self.config, buffer, buffers + place)
                        for place, (name, buffer) in enumerate(dram.items())}  # fmt: skip
            walks.append(self._steps(_Walk(found, function, numbered, in_turn=len(functions) > 1), tile))
            buffers += len(dram)
        found.buffers = buffers
        stored = dict.fromkeys(range(len(walks)), 0.0)
        while stored:
            number = min(stored, key=stored.__getitem__)
            share = next(walks[number], None)
            if share is None:
                del stored[number]
            else:
                stored[number] = share
        return Unplaced.of(found.turns, found.issues, found.tiles)

    def append(self, unplaced: Unplaced, drams: Sequence[Mapping[str, DramBuffer]], layer: int = 0) -> None:
        """Append what functions were :meth:`walked` to. ``drams``: where the parameters of each are.

        Raises ScratchpadFullError naming the buffer; the stream is then as it was.
        """
        rings = self._copied_rings()
        room = unplaced.taken(rings)
        self.rings = rings
        tensors = [buffer.offset // self.config.granule_bytes for dram in drams for buffer in dram.values()]
        self.add(unplaced.placed([*tensors, *room], self.levels, layer))
        self.tiles = unplaced.tiles

    def _copied_rings(self) -> dict[Memory, Ring]:
        return {memory: ring.copy() for memory, ring in self.rings.items()}

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


def movable(config: CoreConfig, buffer: DramBuffer) -> DramBuffer:
    """The same for all buffers that one walk serves: without their place, as far as instructions are only moved by it.
    Moves know places in the window, whatever the offset."""
    return buffer if buffer.moved else replace(buffer, offset=buffer.offset % config.granule_bytes)


def _numbered(config: CoreConfig, buffer: DramBuffer, number: int) -> DramBuffer:
    """The buffer, with its number as its place (`unplaced`)."""
    if buffer.moved:
        return buffer
    return replace(buffer, offset=address(number) * config.granule_bytes + buffer.offset % config.granule_bytes)


@dataclass
class _Found:
    """What walks through functions have found: requests for room and what was given back, instructions, tiles.
    ``buffers``: the number of the first buffer in a scratchpad. ``rings``: as they are when the functions begin."""

    config: CoreConfig
    shares: bool
    rings: dict[Memory, Ring]
    tiles: int
    buffers: int = 0
    turns: list[Take | int] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    levels: HeldLevels = field(default_factory=lambda: {Engine.GEMM: {}, Engine.VECTOR: {}})
    _room: list[tuple[Ring, int]] = field(default_factory=list)

    def take(self, take: Take) -> int:
        """The address of room for a buffer."""
        ring = self.rings[take.memory]
        self._room.append((ring, ring.take(take.entries, take.name, take.zones, leaving=take.leaving)))
        self.turns.append(take)
        return address(self.buffers + len(self._room) - 1)

    def release(self, first: int) -> None:
        """Give the room of a buffer back."""
        number = buffer_of(first) - self.buffers
        ring, start = self._room[number]
        ring.release(start)
        self.turns.append(number)


class _Walk:
    """The walk through one function."""

    def __init__(self, stream: _Found, function: PrimFunc, dram: Mapping[str, DramBuffer], *, in_turn: bool) -> None:
        self.stream = stream
        self.config = stream.config
        self.function = function
        self.dram = dram
        self._emission = NestEmitter(stream.config, stream.issues, stream.levels, dram)
        self._filled_by = _filled_by(function)
        array = "matrix" in self._filled_by.values()
        self._zones = accumulator_zones(stream.config, in_turn=in_turn, array=array)
        self._computed = self._entries_computed(function.body)
        self._thread_variables = frozenset(
            each.var for each in statements(function.body) if isinstance(each, For) and each.kind == "vthread"
        )
        self._common: set[str] = set()  # names of live buffers that all virtual threads have together
        self._calls: dict[int, IntrinsicCall | None] = {}
        self._nests: dict[int, IntrinsicNest] = {}
        self._evaluators: dict[int, Evaluator] = {}
        self._copies: dict[int, bool] = {}
        self._keep_alive: list[object] = []  # the caches are keyed by identity

    def steps(self, stmt: Stmt, contexts: list[Context], outer: list[tuple[Var, Expr]]) -> Steps:
        """Emit a statement for all contexts. A step ends where they have stored a part of the result; it gives the
        share of the result that is stored."""
        call = self._nest_call(stmt)
        if call is not None:
            nest = self._intrinsic_nest(stmt, outer)
            for context in contexts[:1] if self._common and _written(call).name in self._common else contexts:
                self._emission.emit(nest, context)
            if isinstance(call.intrinsic.emits, EmitStore):
                for context in contexts:
                    if not context.is_thread:
                        self.stream.tiles += 1
                        context.tile = self.stream.tiles
                yield self._emission.stored / call.operand("dst").buffer.size
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

    def _nest_call(self, stmt: Stmt) -> IntrinsicCall | None:
        if id(stmt) not in self._calls:
            self._calls[id(stmt)] = nest_call(stmt)
            self._keep_alive.append(stmt)
        return self._calls[id(stmt)]

    def _intrinsic_nest(self, stmt: Stmt, outer: list[tuple[Var, Expr]]) -> IntrinsicNest:
        if id(stmt) not in self._nests:
            self._nests[id(stmt)] = analyse_nest(stmt, outer)
            self._keep_alive.append(stmt)
        return self._nests[id(stmt)]

    def _allocate(self, stmt: Allocate, contexts: list[Context], outer: list[tuple[Var, Expr]]) -> Steps:
        buffer = stmt.buffer
        is_common = self.stream.shares and len(contexts) > 1 and self._is_common(stmt)
        if is_common:
            self._common.add(buffer.name)
        first = self._take(buffer)
        for number, context in enumerate(contexts):
            context.bases[buffer.name] = first if is_common or number == 0 else self._take(buffer)
        yield from self.steps(stmt.body, contexts, outer)
        bases = dict.fromkeys(context.bases.pop(buffer.name) for context in contexts)
        for base in bases:
            self.stream.release(base)
        self._common.discard(buffer.name)

    def _is_common(self, stmt: Allocate) -> bool:
        """Whether the buffer holds the same for all virtual threads."""
        if id(stmt) not in self._copies:
            self._copies[id(stmt)] = _is_copy(stmt, stmt.buffer, self._thread_variables)
            self._keep_alive.append(stmt)
        return self._copies[id(stmt)]

    def _take(self, buffer: Buffer) -> int:
        """The address of room for a buffer."""
        if buffer.scope not in self.config.scratchpads:
            raise CompileError(
                f"buffer {buffer.name!r} has scope {buffer.scope!r}, which the accelerator does not have",
                hint=f"the scopes are global (parameters only), {', '.join(self.config.scratchpads)}",
            )
        memory = Memory(buffer.scope)
        entries = -(-buffer.size // self.config.entry_elements(memory))
        leaving = self._computed if self._filled_by.get(buffer.name) == "parameters" else 0
        return self.stream.take(Take(memory, entries, buffer.name, self._zones_of(buffer), leaving))

    def _entries_computed(self, stmt: Stmt, threads: int = 1) -> int:
        """Entries of the accumulator for what the vector engine computes, that are in use beside parameters."""
        own = 0
        if isinstance(stmt, Allocate) and self._filled_by.get(stmt.buffer.name) == "vector":
            own = threads * -(-stmt.buffer.size // self.config.entry_elements(Memory.ACC))
        if isinstance(stmt, For) and stmt.kind == "vthread" and isinstance(stmt.extent, Const):
            threads *= int(stmt.extent.value)
        return own + sum(self._entries_computed(each, threads) for each in below(stmt))

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
                self.stream.release(bases.pop((name, index)))


def _written(call: IntrinsicCall) -> Buffer:
    """The buffer that a call writes."""
    return next(
        operand.buffer for operand, declared in zip(call.operands, call.intrinsic.operands, strict=True)
        if declared.mode != "in"
    )  # fmt: skip


def _is_copy(stmt: Stmt, buffer: Buffer, threads: frozenset[Var]) -> bool:
    """Whether all that ``stmt`` writes to ``buffer`` comes from DRAM, and is the same in each of the ``threads``."""
    if not any(isinstance(each, IntrinsicCall) and _written(each) == buffer for each in statements(stmt)):
        return True
    match stmt:
        case IntrinsicCall(operands=operands, scalars=scalars):
            if not isinstance(stmt.intrinsic.emits, EmitLoad | EmitFill):
                return False
            used = [*(index for region in operands for index in region.indices), *(value for _, value in scalars)]
        case For(extent=extent):
            used = [extent]
        case If(cond=cond):
            used = [cond]
        case _:
            used = []
    return not any(free_vars(each) & threads for each in used) and all(
        _is_copy(each, buffer, threads) for each in below(stmt)
    )


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
