"""Launches as LLVM IR for NVIDIA's processors, and that as PTX.

Integers and floats mean what they mean in the loop IR, by the expressions that machine code for CPUs is made of
(`targets.llvm`). Functions without an instruction are polynomials: LLVM ends the process over others.

A parameter is the address of its tensor. All code of a launch is in one function; what a phase does is guarded by the
number of the thread, barriers are outside of all guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import llvmlite.binding as llvm
import llvmlite.ir as ll

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.intervals import Facts
from ...tensor.ir import Allocate, Block, Buffer, Expr, For, If, IntrinsicCall, PrimFunc, Seq, Stmt, Store, Var
from ...tensor.simplify import Linear, linear_form
from ...tensor.visitor import free_vars
from ..errors import CompileError
from ..llvm.control import emit_first, emit_loop
from ..llvm.double_functions import call_double
from ..llvm.expressions import Expressions, Memory
from ..llvm.llvm_types import I8, I32, I64, MEMORY_TYPES, Value, declared, i64
from ..llvm.optimise import optimised
from .devices import GpuDescription
from .digits import BLOCK_AXES, Digit
from .phases import Barrier, Grid, Phase
from .warp_calls import emit_warp_call

TRIPLE = "nvptx64-nvidia-cuda"
GLOBAL, SHARED = ll.PointerType(addrspace=1), ll.PointerType(addrspace=3)

VECTOR_BYTES = (2, 4, 8, 16)
"""What one instruction loads or stores."""

UNROLLED_AT_MOST = 8
"""A loop that runs at most so often is written out, with conditions where it does not always: with indices that are
known, what a thread holds stays in registers."""


def ptx_text(name: str, func: PrimFunc, grids: Sequence[Grid], windows: Mapping[str, tuple[int, ...]],
             device: GpuDescription) -> str:  # fmt: skip
    """The launches of ``func`` as kernels ``name_0``, ``name_1``, ... of a PTX text.

    Parameters of each: the addresses of the grid's ``params`` in their order, then of the workspace where the grid has
    such buffers. ``windows``: as in `KernelCode`.
    """
    module = ll.Module(name)
    module.triple = TRIPLE
    for number, grid in enumerate(grids):
        _Emitter(module, f"{name}_{number}", func, grid, windows, device.warp).run()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=device.architecture, features=device.features, opt=3
    )
    return str(machine.emit_assembly(optimised(str(module), machine, TRIPLE, vectorise=False)))


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
        warp: int,
    ) -> None:
        self.module, self.name, self.func, self.grid, self.warp = module, name, func, grid, warp
        count = len(grid.params) + bool(grid.workspace)
        self.function = ll.Function(module, ll.FunctionType(ll.VoidType(), [GLOBAL] * count), name)
        self.function.calling_convention = "ptx_kernel"
        module.add_named_metadata("nvvm.annotations", [self.function, "maxntidx", ll.Constant(I32, grid.threads)])
        self.entry = self.function.append_basic_block("entry")
        self.builder = ll.IRBuilder(self.function.append_basic_block("body"))
        self.expressions = Expressions(self.builder, {}, call_double)
        self.facts = Facts({})
        arguments = list(self.function.args)
        for number, pointer in zip(grid.params, arguments, strict=False):
            buffer = func.params[number]
            self.expressions.memory[buffer.name] = Memory(pointer, windows.get(buffer.name, buffer.strides))
        for buffer, offset in grid.workspace:
            pointer = self.builder.gep(arguments[-1], [i64(offset)], inbounds=True, source_etype=I8)
            self.expressions.memory[buffer.name] = Memory(pointer, buffer.strides)
        for buffer in grid.shared:
            self.share(buffer)
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

    def share(self, buffer: Buffer) -> None:
        kind = ll.ArrayType(MEMORY_TYPES[buffer.dtype], buffer.size)
        place = ll.GlobalVariable(self.module, kind, f"{self.name}_{len(self.expressions.memory)}", addrspace=3)
        place.linkage, place.align, place.initializer = "internal", 16, ll.Constant(kind, ll.Undefined)
        place.type = SHARED
        self.expressions.memory[buffer.name] = Memory(place, buffer.strides, 16)

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
                self.builder.call(declared(self.module, "llvm.nvvm.barrier0", ll.FunctionType(ll.VoidType(), [])), [])
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

    def is_whole(self, buffer: Buffer, indices: Sequence[Expr], var: Var, count: int) -> bool:
        """Whether a loop walks ``count`` neighbours that begin at an address which is a multiple of their bytes."""
        memory, size = self.expressions.memory[buffer.name], ITEM_BYTES[buffer.dtype]
        if count * size not in VECTOR_BYTES or max(memory.align, size) % (count * size):
            return False
        position = Linear()
        for index, stride in zip(indices, memory.strides, strict=True):
            position = position.add(linear_form(index), stride)
        others = [step for atom, step in position.terms.items() if atom != var]
        alone = all(var not in free_vars(atom) for atom in position.terms if atom != var)
        return alone and position.terms.get(var) == 1 and not any(each % count for each in (*others, position.constant))

    def store_together(self, store: Store, var: Var, count: int) -> None:
        """Neighbours by one instruction."""
        kind = MEMORY_TYPES[store.buffer.dtype]
        wide = ll.Constant(ll.VectorType(kind, count), ll.Undefined)
        for lane in range(count):
            self.expressions.env[var] = lane
            value = self.expressions.memory_value(store.buffer, self.expressions.value(store.value))
            wide = self.builder.insert_element(wide, value, ll.Constant(I32, lane))
        self.expressions.env[var] = 0
        start, known, _ = self.expressions.position(store.buffer, store.indices)
        address = self.expressions.address(store.buffer, start, known)
        self.builder.store(wide, address, align=count * ITEM_BYTES[store.buffer.dtype])

    def loop(self, loop: For) -> None:
        outer = self.facts
        most = outer.interval(loop.extent)[1]
        extent = self.expressions.index(loop.extent)
        self.facts = outer.inside_loop(loop.var, loop.extent)
        if loop.kind == "vectorize" and isinstance(extent, int) and isinstance(loop.body, Block):
            store = loop.body.body
            if loop.body.init is None and self.is_whole(store.buffer, store.indices, loop.var, extent):
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
        case Phase() | Barrier():
            return True
        case Seq(body=items):
            return any(map(_has_phases, items))
        case For(body=body):
            return _has_phases(body)
    return False
