"""Launches as LLVM IR for NVIDIA's processors, and that as PTX.

Integers and floats mean what they mean in the loop IR, by the expressions that machine code for CPUs is made of
(`targets.llvm`). Functions without an instruction are polynomials: LLVM ends the process over others.

A parameter is the address of its tensor. All code of a launch is in one function; what a phase does is guarded by the
number of the thread, barriers are outside of all guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import gcd

import llvmlite.binding as llvm
import llvmlite.ir as ll

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.intervals import Facts
from ...tensor.ir import (
    Allocate,
    Block,
    Buffer,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
)
from ..errors import CompileError
from ..llvm.control import emit_first, emit_loop
from ..llvm.double_functions import call_double
from ..llvm.expressions import Expressions, Memory
from ..llvm.llvm_types import I8, I32, I64, MEMORY_TYPES, Value, declared, i64
from ..llvm.optimise import optimised
from ..loops.nests import REGISTER
from .devices import GpuDescription
from .digits import BLOCK_AXES, Digit
from .exponential import emit_exp
from .launches import Barrier, Commit, Grid, Landed, Phase
from .pipeline import copied
from .shared_memory import ALIGNMENT
from .vector_loops import taken_apart
from .vector_values import is_uniform, is_whole, values_together
from .warp_calls import emit_warp_call

TRIPLE = "nvptx64-nvidia-cuda"
GLOBAL, SHARED = ll.PointerType(addrspace=1), ll.PointerType(addrspace=3)

LEAST_ASYNCHRONOUS = 4
"""Bytes of an asynchronous copy, at least."""

DECLARED_AT_MOST = 48 << 10
"""Bytes of shared memory in a kernel's text."""

UNROLLED_AT_MOST = 8
"""A loop that runs at most so often is written out, with conditions where it does not always: with indices that are
known, what a thread holds stays in registers."""


def ptx_text(name: str, func: PrimFunc, grids: Sequence[Grid], windows: Mapping[str, tuple[int, ...]],
             device: GpuDescription, aligned: Sequence[int] = ()) -> str:  # fmt: skip
    """The launches of ``func`` as kernels ``name_0``, ``name_1``, ... of a PTX text.

    Parameters of each: the addresses of the grid's ``params`` in their order, then of the workspace where the grid
    has such buffers. ``windows``: as in `KernelCode`. ``aligned``: bytes that the address of each parameter of
    ``func`` is a multiple of, and then that of the workspace; none is known where it is empty.
    """
    module = ll.Module(name)
    module.triple = TRIPLE
    for number, grid in enumerate(grids):
        _Emitter(module, f"{name}_{number}", func, grid, windows, device, aligned).run()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=device.architecture, features=device.features, opt=3
    )
    return str(machine.emit_assembly(optimised(str(module), machine, TRIPLE, vectorise=False, level=3)))


_HEAD = re.compile(r"^\s*\.(version|target|address_size)\b[^\n]*\n", re.MULTILINE)


def joined(texts: Iterable[str]) -> str:
    """PTX texts for one architecture as one; their names must differ, but for tables, which are equal."""
    head, bodies, tables = "", [], set[str]()
    for text in texts:
        head = head or "".join(match.group() for match in _HEAD.finditer(text))
        body = _HEAD.sub("", text)
        for table in re.findall(r"^\.global [^;{]*= \{[^}]*\};\n", body, re.MULTILINE):
            if table in tables:
                body = body.replace(table, "")
            tables.add(table)
        bodies.append(body)
    return head + "".join(bodies)


def asks_for(grid: Grid) -> int:
    """Bytes of shared memory that a launch has to ask for, since a kernel may not declare so many; else 0."""
    return grid.shared_bytes if grid.shared_bytes > DECLARED_AT_MOST else 0


class _Emitter:
    """Emits one launch. ``builder`` stands where the next instruction goes; ``facts``: between which numbers the
    variables lie there."""

    def __init__(
        self,
        module: ll.Module,
        name: str,
        func: PrimFunc,
        grid: Grid,
        windows: Mapping[str, tuple[int, ...]],
        device: GpuDescription,
        aligned: Sequence[int],
    ) -> None:
        self.ahead = False
        self.module, self.name, self.func, self.grid, self.warp = module, name, func, grid, device.warp
        count = len(grid.params) + bool(grid.workspace)
        self.function = ll.Function(module, ll.FunctionType(ll.VoidType(), [GLOBAL] * count), name)
        self.function.calling_convention = "ptx_kernel"
        module.add_named_metadata("nvvm.annotations", [self.function, "maxntidx", ll.Constant(I32, grid.threads)])
        self.entry = self.function.append_basic_block("entry")
        self.builder = ll.IRBuilder(self.function.append_basic_block("body"))
        self.expressions = Expressions(self.builder, {}, call_double, emit_exp, has_extremes=device.has_extremes)
        self.facts = Facts({})
        arguments = list(self.function.args)
        for number, pointer in zip(grid.params, arguments, strict=False):
            buffer = func.params[number]
            align = aligned[number] if aligned else 0
            self.expressions.memory[buffer.name] = Memory(pointer, windows.get(buffer.name, buffer.strides), align)
        for buffer, offset in grid.workspace:
            pointer = self.builder.gep(arguments[-1], [i64(offset)], inbounds=True, source_etype=I8)
            space = aligned[len(func.params)] if len(aligned) > len(func.params) else 1
            self.expressions.memory[buffer.name] = Memory(pointer, buffer.strides, gcd(space, offset))
        self.share()
        for buffer in grid.registers:
            self.hold(buffer)

    def run(self) -> None:
        self.thread = self.special("tid.x")
        for axis, digits in zip(BLOCK_AXES, self.grid.blocks, strict=True):
            if digits:
                self.digits(digits, self.special(f"ctaid.{axis[-1]}"))
        self.statement(self.grid.body)
        self.builder.ret_void()
        ll.IRBuilder(self.entry).branch(self.function.blocks[1])

    # Memory

    def share(self) -> None:
        """The group's memory as one array; beyond what a kernel may declare, as one of open size."""
        if not self.grid.shared:
            return
        is_open = asks_for(self.grid) > 0
        kind = ll.ArrayType(I8, 0 if is_open else self.grid.shared_bytes)
        start = ll.GlobalVariable(self.module, kind, f"{self.name}_shared", addrspace=3)
        start.linkage, start.align = "external" if is_open else "internal", ALIGNMENT
        if not is_open:
            start.initializer = ll.Constant(kind, ll.Undefined)
        start.type = SHARED
        for buffer, offset in zip(self.grid.shared, self.grid.places, strict=True):
            place = self.builder.gep(start, [i64(offset)], inbounds=not is_open, source_etype=I8)
            self.expressions.memory[buffer.name] = Memory(place, buffer.strides, ALIGNMENT)

    def hold(self, buffer: Buffer) -> None:
        """Elements of a thread's own; registers, where all indices are known."""
        pointer = ll.IRBuilder(self.entry).alloca(ll.ArrayType(MEMORY_TYPES[buffer.dtype], buffer.size))
        pointer.type = ll.PointerType()
        pointer.align = 16
        self.expressions.memory[buffer.name] = Memory(pointer, buffer.strides)

    # Numbers

    def special(self, name: str) -> Value:
        kind = ll.FunctionType(I32, [])
        return self.builder.call(declared(self.module, f"llvm.nvvm.read.ptx.sreg.{name}", kind), [])

    def instruction(self, name: str, *arguments: Value) -> None:
        """An instruction without a result."""
        kind = ll.FunctionType(ll.VoidType(), [each.type for each in arguments])
        self.builder.call(declared(self.module, name, kind), arguments)

    def digits(self, digits: Sequence[Digit], number: Value) -> None:
        """The variables of digits, of a number of 32 bits."""
        for digit in digits:
            value = number
            if digit.weight > 1:
                value = self.builder.udiv(value, ll.Constant(I32, digit.weight))
            if digit is not digits[0]:
                value = self.builder.urem(value, ll.Constant(I32, digit.radix))
            known = digit.radix == 1
            self.expressions.env[digit.var] = 0 if known else self.builder.zext(value, I64)
            self.facts = self.facts.inside_loop(digit.var, digit.extent)

    # Statements

    def statement(self, stmt: Stmt) -> None:
        facts = self.facts
        match stmt:
            case Phase():
                self.phase(stmt)
            case Barrier():
                # Both versions of LLVM know it; it orders all memory among the threads of a group.
                self.instruction("llvm.nvvm.barrier0")
            case Commit():
                self.instruction("llvm.nvvm.cp.async.commit.group")
            case Landed(left):
                self.instruction("llvm.nvvm.cp.async.wait.group", ll.Constant(I32, left))
            case Seq(body=items):
                for item in items:
                    self.statement(item)
            case For():
                self.loop(stmt)
            case Allocate(buffer, body):
                self.hold(buffer)
                self.statement(body)
            case If(cond, then):
                with self.builder.if_then(self.expressions.value(cond)):
                    self.facts = facts.given(cond, True)
                    self.statement(then)
            case Block(body=store):
                if stmt.init is not None:
                    first = Store(store.buffer, store.indices, stmt.init)
                    emit_first(self.expressions, stmt.reduce_vars, lambda: self.statement(first))
                self.statement(store)
            case Store(buffer, indices, value):
                self.expressions.store(buffer, indices, self.expressions.value(value))
            case IntrinsicCall():
                lane = self.builder.and_(self.thread, ll.Constant(I32, self.warp - 1))
                emit_warp_call(self.expressions, stmt, lane)
            case _:
                raise CompileError(f"{type(stmt).__name__} has no code in PTX", at=f"kernel {self.func.name!r}")
        self.facts = facts

    def phase(self, phase: Phase) -> None:
        builder = self.builder
        guards: list[Value] = []
        if phase.threads < self.grid.threads:
            guards.append(builder.icmp_unsigned("<", self.thread, ll.Constant(I32, phase.threads)))
        self.ahead = phase.ahead
        self.digits(phase.digits, self.thread)
        for digit in phase.digits:
            if digit.is_guarded:
                value, extent = (i64(self.expressions.index(each)) for each in (digit.var, digit.extent))
                guards.append(builder.icmp_signed("<", value, extent))
        if not guards:
            self.statement(phase.body)
            return
        condition = guards[0]
        for other in guards[1:]:
            condition = builder.and_(condition, other)
        with builder.if_then(condition):
            self.statement(phase.body)

    def store_together(self, store: Store, var: Var, count: int) -> None:
        """Neighbours by one instruction, and loads of neighbours, too."""
        copy = copied(store)
        if copy is not None and is_whole(self.expressions, copy[0].buffer, copy[0].indices, var, count):
            load, conditions = copy
            if all(is_uniform(each, var, count) for each in conditions):
                self.expressions.env[var] = 0
                self.copy_together(store, load, conditions, count * ITEM_BYTES[store.buffer.dtype])
                return
        expressions, builder = self.expressions, self.builder
        value = values_together(expressions, taken_apart(store.value, var, count), var, count)
        if store.buffer.scope == REGISTER:  # each element in a register of its own
            for lane in range(count):
                expressions.env[var] = lane
                expressions.store(store.buffer, store.indices, builder.extract_element(value, ll.Constant(I32, lane)))
            return
        wide = expressions.memory_value(store.buffer, value)
        builder.store(wide, self.address(store.buffer, store.indices), align=count * ITEM_BYTES[store.buffer.dtype])

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        start, known, _ = self.expressions.position(buffer, indices)
        return self.expressions.address(buffer, start, known)

    def copy_together(self, store: Store, load: Load, conditions: Sequence[Expr], nbytes: int) -> None:
        """Copy so many bytes, or zeros where a condition does not hold; while the thread goes on, where it may."""
        builder = self.builder
        target, source = self.address(store.buffer, store.indices), self.address(load.buffer, load.indices)
        inside: Value = None
        for condition in conditions:
            value = self.expressions.value(condition)
            inside = value if inside is None else builder.and_(inside, value)
        if self.ahead and nbytes >= LEAST_ASYNCHRONOUS:
            # Past the first cache, which keeps what threads read one after the other; only whole vectors can.
            name = f"llvm.nvvm.cp.async.{'cg' if nbytes == 16 else 'ca'}.shared.global.{nbytes}"
            if inside is None:
                self.instruction(name, target, source)
            else:
                count = builder.select(inside, ll.Constant(I32, nbytes), ll.Constant(I32, 0))
                self.instruction(f"{name}.s", target, source, count)
            return
        words = ll.VectorType(I32, nbytes // 4) if nbytes > 4 else ll.IntType(8 * nbytes)
        before = builder.block
        if inside is None:
            value = builder.load(source, align=nbytes, typ=words)
        else:
            with builder.if_then(inside):
                loaded, there = builder.load(source, align=nbytes, typ=words), builder.block
            value = builder.phi(words)
            value.add_incoming(ll.Constant(words, None), before)
            value.add_incoming(loaded, there)
        builder.store(value, target, align=nbytes)

    def loop(self, loop: For) -> None:
        outer = self.facts
        most = outer.interval(loop.extent)[1]
        extent = self.expressions.index(loop.extent)
        self.facts = outer.inside_loop(loop.var, loop.extent)
        if loop.kind == "vectorize" and isinstance(extent, int) and isinstance(loop.body, Block):
            store = loop.body.body
            whole = is_whole(self.expressions, store.buffer, store.indices, loop.var, extent)
            if loop.body.init is None and (whole or store.buffer.scope == REGISTER):
                self.store_together(store, loop.var, extent)
                return
        if isinstance(extent, int) and (loop.kind in ("unroll", "vectorize") or extent <= UNROLLED_AT_MOST):
            if not _has_phases(loop.body):
                for value in range(extent):
                    self.expressions.env[loop.var] = value
                    self.statement(loop.body)
                return
        elif most <= UNROLLED_AT_MOST and not _has_phases(loop.body):
            for value in range(int(most)):
                self.expressions.env[loop.var] = value
                with self.builder.if_then(self.builder.icmp_signed("<", i64(value), extent)):
                    self.statement(loop.body)
            return
        emit_loop(self.expressions, loop.var, 0, extent, lambda: self.statement(loop.body))


def _has_phases(stmt: Stmt) -> bool:
    match stmt:
        case Phase() | Barrier() | Commit() | Landed():
            return True
        case Seq(body=items):
            return any(map(_has_phases, items))
        case For(body=body):
            return _has_phases(body)
    return False
