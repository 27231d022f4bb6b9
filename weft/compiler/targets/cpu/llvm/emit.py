"""Statements of the loop IR as LLVM IR: one function a kernel, which all threads of a team run together.

A kernel's signature is ``(pointer to each parameter..., workspace, thread, counters)``. Each statement at its top is
one part of the work (see ``threads``): a ``parallel`` loop, or nest of such, has its iterations shared out; any other
statement runs once, on whichever thread comes first. Further in, ``parallel`` means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import llvmlite.ir as ll

from ....tensor.bounds import require_bounds
from ....tensor.evaluate import ITEM_BYTES
from ....tensor.intrinsic import call_loops
from ....tensor.ir import (
    FLOATS,
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....tensor.visitor import loads, statements, walk_exprs
from ...errors import CompileError
from ...llvm.control import emit_first, emit_loop
from ...llvm.expressions import Expressions, Lanes, Memory, is_table_of_bytes, vectorisable
from ...llvm.llvm_types import (
    I8,
    I64,
    MEMORY_TYPES,
    POINTER,
    Int,
    Value,
    add,
    declared,
    i64,
    intrinsic,
    multiply,
)
from ...loops.workspace import Workspace, plan_workspace
from ...memory_plan import ALIGNMENT
from ..intrinsics import MicroKernel
from ..processor import Processor
from .byte_tables import looked_up, table_form
from .combine import combine_by_lanes
from .libm import call_libm
from .micro_kernels import emit_micro_kernel
from .narrowing import limited_bytes
from .threads import DONE_OFFSET, PART_BYTES

WAIT = "weft_wait"
TAKEN_IN_PARTS = 8
"""A thread's share of a parallel loop is taken in about so many parts."""

WIDEST = 64
"""Bytes of registers of which a tile leaves none for what its pixels share: LLVM would put sums on the stack for that,
in the loop over their products."""

PACKED = 2
"""Registers of int32 that become bytes together: an instruction packs two. In AVX-512 it takes one."""

UNROLLED_CHUNKS = 8
"""A vectorised loop of at most so many registers is written out, so that its indices are constant."""


Strided = Mapping[str, tuple[int, ...]]
"""Strides, in elements, of parameters that are windows into larger tensors."""


def emit_kernel(
    module: ll.Module, func: PrimFunc, target: Processor, threads: int, windows: Strided | None = None, *,
    proved: bool = False,
) -> Workspace:  # fmt: skip
    """Add ``func`` to the module under its name; gives the workspace that its code uses.

    ``proved``: it is the function of a `KernelCode`, which was proved when that was made or read. Otherwise BoundsError
    names an access that may be outside of its buffer. CompileError names the loop or buffer that has no machine code.
    """
    if not proved:
        require_bounds(func)
    emitter = Emitter(module, func, target, threads, windows or {})
    emitter.run()
    if threads > 1 and emitter.parts != emitter.workspace.parts:
        raise CompileError(f"{emitter.parts} parts have code, but {emitter.workspace.parts} are planned",
                           at=f"kernel {func.name!r}")  # fmt: skip
    return emitter.workspace


class Emitter:
    """Emits one kernel. ``builder`` stands where the next instruction goes."""

    def __init__(self, module: ll.Module, func: PrimFunc, target: Processor, threads: int, windows: Strided) -> None:
        self.func, self.target, self.threads = func, target, threads
        kind = ll.FunctionType(ll.VoidType(), [POINTER] * len(func.params) + [POINTER, I64, POINTER])
        self.function = ll.Function(module, kind, func.name)
        self.entry = self.function.append_basic_block("entry")
        self.builder = ll.IRBuilder(self.function.append_basic_block("body"))
        *params, self.space, self.thread, self.counters = self.function.args
        memory: dict[str, Memory] = {}
        for buffer, pointer in zip(func.params, params, strict=True):
            memory[buffer.name] = Memory(pointer, windows.get(buffer.name, buffer.strides))
        self.expressions = Expressions(self.builder, memory, call_libm, looked_up=partial(looked_up, target),
                                       limited_bytes=partial(limited_bytes, target))  # fmt: skip
        self.workspace = plan_workspace(func)
        allocations = (node for node in statements(func.body) if isinstance(node, Allocate))
        self._places = {id(node): place for node, place in zip(allocations, self.workspace.places, strict=True)}
        self.parts = 0  # that have been emitted

    def run(self) -> None:
        for item in self._top(self.func.body):
            self._part(item)
        self.builder.ret_void()
        ll.IRBuilder(self.entry).branch(self.function.blocks[1])

    # Memory

    def _top(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements at the top, whose buffers are placed on the way."""
        match stmt:
            case Allocate(buffer, body):
                self._allocate(stmt, buffer)
                yield from self._top(body)
            case Seq(body=items):
                for item in items:
                    yield from self._top(item)
            case _:
                yield stmt

    def _allocate(self, node: Allocate, buffer: Buffer) -> None:
        place = self._places[id(node)]
        if place.memory == "stack":
            pointer = self.slot(ll.ArrayType(MEMORY_TYPES[buffer.dtype], buffer.size), buffer.name)
            pointer.align = ALIGNMENT
        else:
            start: Int = place.offset
            if place.memory == "private":
                start = add(self.builder, multiply(self.builder, self.thread, self.workspace.private),
                            place.offset + self.workspace.shared)  # fmt: skip
            pointer = self.builder.gep(self.space, [i64(start)], inbounds=True, source_etype=I8)
        self.expressions.memory[buffer.name] = Memory(pointer, buffer.strides)

    def slot(self, kind: ll.Type, name: str = "") -> Value:
        """Memory on the stack; at the start of the function, else a loop would take more of it every time."""
        pointer = ll.IRBuilder(self.entry).alloca(kind, name=name)
        pointer.type = POINTER
        return pointer

    # Statements

    def _part(self, stmt: Stmt) -> None:
        """One statement at the top, done by all threads together."""
        nest = _parallel_nest(stmt)
        if nest:
            extents = [self.expressions.index(loop.extent) for loop in nest]
            size: Int = 1
            for extent in extents:
                size = multiply(self.builder, size, extent)
            flat = Var(".part")

            def body() -> None:
                rest = self.expressions.env[flat]
                for loop, extent in zip(reversed(nest[1:]), reversed(extents[1:]), strict=True):
                    if isinstance(rest, int) or (isinstance(extent, int) and extent == 1):
                        self.expressions.env[loop.var] = 0 if not isinstance(rest, int) else rest % extent
                        rest = rest if not isinstance(rest, int) else rest // extent
                    else:
                        self.expressions.env[loop.var] = self.builder.urem(rest, i64(extent))
                        rest = self.builder.udiv(rest, i64(extent))
                self.expressions.env[nest[0].var] = rest
                self.emit(nest[-1].body)

            self._share(flat, size, body)
        else:
            self._share(Var(".part"), 1, lambda: self.emit(stmt))

    def _share(self, var: Var, size: Int, body: Callable[[], None]) -> None:
        """``body`` for ``size`` iterations: each thread claims a few at a time, as long as there are any."""
        if self.threads == 1:
            self.loop(var, 0, size, body)
            return
        if not isinstance(size, int):
            raise CompileError("a parallel loop at the top has no constant extent", at=f"kernel {self.func.name!r}")
        builder = self.builder
        counter = self._counter(self.parts * PART_BYTES)
        done = self._counter(self.parts * PART_BYTES + DONE_OFFSET)
        self.parts += 1
        count = max(1, size // (self.threads * TAKEN_IN_PARTS))
        head, inside, after = (builder.append_basic_block(f"take.{name}") for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        start = builder.atomic_rmw("add", counter, ll.Constant(I64, count), "acq_rel")
        builder.cbranch(builder.icmp_signed("<", start, ll.Constant(I64, size)), inside, after)
        builder.position_at_end(inside)
        end = intrinsic(builder, "llvm.smin", I64, [builder.add(start, i64(count)), i64(size)])
        self.loop(var, start, end, body)
        builder.atomic_rmw("add", done, builder.sub(end, start), "acq_rel")
        builder.branch(head)
        builder.position_at_end(after)
        kind = ll.FunctionType(ll.VoidType(), [POINTER, I64])
        builder.call(declared(builder.module, WAIT, kind), [done, i64(size)])

    def _counter(self, byte: int) -> Value:
        return self.builder.gep(self.counters, [i64(byte)], inbounds=True, source_etype=I8)

    def emit(self, stmt: Stmt) -> None:
        """Emit a statement and all in it."""
        match stmt:
            case For():
                self._for(stmt)
            case Seq(body):
                for item in body:
                    self.emit(item)
            case Allocate(buffer, body):
                self._allocate(stmt, buffer)
                self.emit(body)
            case If(cond, then):
                with self.builder.if_then(self.expressions.value(cond)):
                    self.emit(then)
            case Block(body=store):
                self._block(stmt, store)
            case Store(buffer, indices, value):
                self.expressions.store(buffer, indices, self.expressions.value(value))
            case IntrinsicCall():
                self._call(stmt)
            case _:
                raise CompileError(f"{type(stmt).__name__} has no machine code", at=f"kernel {self.func.name!r}")

    def _for(self, loop: For) -> None:
        extent = self.expressions.index(loop.extent)
        if loop.kind == "vectorize" and isinstance(extent, int) and self._lanes_agree(loop):
            self._vectorised(loop, extent)
        elif loop.kind == "unroll" and isinstance(extent, int):
            outermost = not self.expressions.steady and self.target.vector_bytes < WIDEST
            if outermost:
                self.expressions.hold_steady(self._steady(loop))
            for value in range(extent):
                self.expressions.env[loop.var] = value
                self.emit(loop.body)
            if outermost:
                self.expressions.hold_steady(frozenset())
        elif not combine_by_lanes(self, loop):
            self.loop(loop.var, 0, extent, lambda: self.emit(loop.body))

    def _steady(self, loop: For) -> frozenset[str]:
        """Parameters that iterations without branches, written out one behind the other, read and do not write. A
        result may lie where an operand did, but only one with elements of the same size (`loops.in_place`)."""
        sizes = set()
        for node in statements(loop.body):
            if not isinstance(node, For | Seq | Block | Store) or (isinstance(node, Block) and node.init is not None):
                return frozenset()
            if any(isinstance(each, Select) for expr in _expressions(node) for each in walk_exprs(expr)):
                return frozenset()
            if isinstance(node, Block | Store):
                store = node.body if isinstance(node, Block) else node
                sizes.add(ITEM_BYTES[store.buffer.dtype])
        return frozenset(buffer.name for buffer in self.func.params if ITEM_BYTES[buffer.dtype] not in sizes)

    def loop(self, var: Var, begin: Int, end: Int, body: Callable[[], None]) -> None:
        """``body`` for every value of ``var`` from ``begin`` to before ``end``."""
        self.expressions.hold_steady(frozenset())
        emit_loop(self.expressions, var, begin, end, body)

    def _block(self, block: Block, store: Store) -> None:
        if block.init is not None:
            first = Store(store.buffer, store.indices, _init(block))
            emit_first(self.expressions, block.reduce_vars, lambda: self.emit(first))
        self.emit(store)

    # Vectors

    def _lanes_agree(self, loop: For) -> bool:
        """Whether the loop's iterations can be lanes; otherwise it runs as a plain loop."""
        return all(
            isinstance(node, Block | Store | Seq) and all(vectorisable(expr, loop.var) for expr in _expressions(node))
            for node in statements(loop.body)
        )

    def _vectorised(self, loop: For, extent: int) -> None:
        """As many whole registers as there are, then the rest in smaller powers of two."""
        width = max(1, self.target.vector_bytes // _widest(loop.body))
        if self.target.vector_bytes < WIDEST and _makes_bytes(loop.body):
            width = max(width, PACKED * self.target.float_lanes)
        if table_form(self.target, self.target.vector_bytes) and _reads_tables(loop.body):
            width = max(width, self.target.vector_bytes)
        chunks = extent // width

        def chunk(base: Int, count: int) -> None:
            if count == 1:
                self.expressions.env[loop.var] = base
            else:
                self.expressions.lanes = Lanes(loop.var, base, count)
            self.emit(loop.body)
            self.expressions.lanes = None

        if chunks <= UNROLLED_CHUNKS:
            for number in range(chunks):
                chunk(number * width, width)
        else:
            counter = replace(loop.var, name=f"{loop.var.name}.chunk")
            body = lambda: chunk(multiply(self.builder, self.expressions.env[counter], width), width)  # noqa: E731
            self.loop(counter, 0, chunks, body)
        done = chunks * width
        while done < extent:
            count = 1 << ((extent - done).bit_length() - 1)
            chunk(done, count)
            done += count

    # Intrinsics

    def _call(self, call: IntrinsicCall) -> None:
        if call.init is not None:
            raise CompileError(
                f"block {call.block!r} fills its result inside of intrinsic {call.intrinsic.name!r}",
                at=f"kernel {self.func.name!r}",
                hint="decompose_reduction before tensorize",
            )
        if isinstance(call.intrinsic.emits, MicroKernel):
            emit_micro_kernel(self, call, call.intrinsic.emits)
            return
        for region in call.operands:
            if self.expressions.memory[region.buffer.name].strides != region.buffer.strides:
                raise CompileError(f"intrinsic {call.intrinsic.name!r} has no code for the inside of a larger tensor",
                                   at=f"kernel {self.func.name!r}, buffer {region.buffer.name!r}")  # fmt: skip
        loops, store = call_loops(call)
        stmt: Stmt = store
        for var, extent in reversed(loops):
            stmt = For(var, Const(extent), "serial", stmt)
        flat = {name: replace(place, strides=(1,)) for name, place in self.expressions.memory.items()}
        self.expressions.memory, kept = flat, self.expressions.memory
        self.emit(stmt)
        self.expressions.memory = kept


def _parallel_nest(stmt: Stmt) -> list[For]:
    """Parallel loops directly inside one another, which are shared out as one; their extents do not depend on each
    other."""
    nest: list[For] = []
    while isinstance(stmt, For) and stmt.kind == "parallel" and (not nest or isinstance(stmt.extent, Const)):
        nest.append(stmt)
        stmt = stmt.body
    return nest


def _init(block: Block) -> Expr:
    if block.init is None:
        raise CompileError(f"block {block.name!r} has no initial value")
    return block.init


def _expressions(stmt: Stmt) -> list[Expr]:
    match stmt:
        case Block(body=Store(buffer, indices, value)) | Store(buffer, indices, value):
            return [value, Load(buffer, indices)]
    return []


def _makes_bytes(stmt: Stmt) -> bool:
    """Whether all that the statement writes are bytes, and all that it computes are integers."""
    stored = [node.body.buffer if isinstance(node, Block) else node.buffer
              for node in statements(stmt) if isinstance(node, Block | Store)]  # fmt: skip
    floats = any(
        each.dtype in FLOATS for node in statements(stmt) for expr in _expressions(node) for each in walk_exprs(expr)
    )
    return not floats and all(ITEM_BYTES[buffer.dtype] == 1 for buffer in stored)


def _widest(stmt: Stmt) -> int:
    """Bytes of the widest element that the statement reads or writes."""
    sizes = [1]
    for node in statements(stmt):
        for expr in _expressions(node):
            sizes += [ITEM_BYTES[each.buffer.dtype] for each in loads(expr)]
    return max(sizes)


def _reads_tables(stmt: Stmt) -> bool:
    """Whether a statement reads tables of bytes."""
    return any(isinstance(each, Load) and is_table_of_bytes(each.buffer, each.indices)
               for node in statements(stmt) for expr in _expressions(node) for each in walk_exprs(expr))  # fmt: skip
