"""The proof that a kernel whose text came from a file does no harm: it touches its own memory only, and it ends.

Every index is shown to lie inside of its buffer (`tensor.bounds`). An index that depends on data is refused, unless it
is known between which numbers the data lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from ...model import KernelCode
from ...tensor.bounds import is_within
from ...tensor.calls import Operand
from ...tensor.errors import TensorError
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.intervals import Facts, Interval
from ...tensor.ir import (
    Allocate,
    BinOp,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    TensorIntrinsic,
    Var,
)
from ...tensor.linear import Linear, linear_form
from ...tensor.parser import parse
from ...tensor.printer import expr_text
from ...tensor.verify import verify
from ...tensor.visitor import children, loads, stores_of
from ..errors import CompileError
from .kernel_code import KERNEL, kernel_symbol, touched_bytes
from .workspace import plan_workspace

TEXT_AT_MOST = 1 << 20
"""Characters of a kernel's text."""

ITERATIONS_AT_MOST = 1 << 40
"""Iterations of one loop."""

WORK_AT_MOST = 1 << 52
"""Elements that a kernel computes in one run."""

STATEMENTS_AT_MOST = 1 << 15
"""Statements after loops are written out, which a kernel's machine code grows with."""

STACK_AT_MOST = 1 << 19
"""Bytes of all buffers on a thread's stack."""

COPIES_OF_LANES = 16
"""How often the body of a loop over lanes is written out, at most."""


class UncheckedKernelError(CompileError):
    """A kernel of which it is not known that it does no harm."""


@dataclass(frozen=True)
class CheckedKernel:
    """What a program must keep to when it launches a kernel: its parameters, which of them it writes, and which must be
    constants of which `bears_pairs`, or products of bytes are not exact."""

    params: tuple[Buffer, ...]
    written: tuple[bool, ...]
    paired: tuple[bool, ...]


Elements = Mapping[int, tuple[Interval, ...]]
"""For parameters by number: between which numbers their elements lie, as `Facts.elements`; they stay as they are while
the kernel runs."""


def check_kernel(
    code: KernelCode, threads: int, intrinsics: Callable[[str], TensorIntrinsic], elements: Elements | None = None
) -> CheckedKernel:
    """Prove that a kernel does no harm. UncheckedKernelError names the kernel, and the buffer or loop at fault."""
    try:
        func = _parsed(code, intrinsics)
        _check_sizes(code, func, threads)
        written = {buffer.name for buffer, _ in stores_of(func.body)}
        known = {func.params[number].name: each for number, each in (elements or {}).items()}
        overwritten = sorted(known.keys() & written)
        if overwritten:
            raise UncheckedKernelError("it is written, but its elements were checked before", at=overwritten[0])
        prover = _Prover({buffer.name: _strides(code, buffer) for buffer in func.params})
        effort = prover.statement(func.body, Facts(known), ())
        if effort.work > WORK_AT_MOST or effort.statements > STATEMENTS_AT_MOST:
            raise UncheckedKernelError(f"it computes {effort.work:,} elements in {effort.statements:,} statements",
                                       at="loops")  # fmt: skip
    except TensorError as error:
        raise UncheckedKernelError(str(error), at=f"kernel {code.symbol!r}") from error
    except RecursionError as error:
        raise UncheckedKernelError("it is nested too deeply", at=f"kernel {code.symbol!r}") from error
    except UncheckedKernelError as error:
        raise UncheckedKernelError(error.message, at=f"kernel {code.symbol!r}, {error.at}", hint=error.hint) from None
    return CheckedKernel(
        func.params,
        tuple(buffer.name in written for buffer in func.params),
        tuple(buffer in prover.paired for buffer in func.params),
    )


def _has_steps(strides: tuple[int, ...], operand: Operand) -> bool:
    """Whether a tile's steps are those that the intrinsic declares, or any forward where the call has them."""
    if len(strides) != len(operand.strides):
        return False
    return all(
        step == own if own is not None else step > 0 and step % operand.align == 0
        for step, own in zip(strides, operand.strides, strict=True)
    )


def _strides(code: KernelCode, buffer: Buffer) -> tuple[int, ...]:
    return code.windows.get(buffer.name, buffer.strides)


def _parsed(code: KernelCode, intrinsics: Callable[[str], TensorIntrinsic]) -> PrimFunc:
    if len(code.text) > TEXT_AT_MOST:
        raise UncheckedKernelError(f"its text has {len(code.text):,} characters", at="text")
    if code.symbol != kernel_symbol(code.text, code.windows):
        raise UncheckedKernelError("its name is not that of its content", at="text")
    func = parse(code.text, intrinsics)
    if func.name != KERNEL:
        raise UncheckedKernelError(f"its function is called {func.name!r}, not {KERNEL!r}", at="text")
    verify(func)
    return func


def _check_sizes(code: KernelCode, func: PrimFunc, threads: int) -> None:
    """What stands beside the text must be what follows from it."""
    for name, strides in code.windows.items():
        shapes = [buffer.shape for buffer in func.params if buffer.name == name]
        if not shapes or len(shapes[0]) != len(strides) or any(stride < 0 for stride in strides):
            raise UncheckedKernelError(f"strides {strides} fit no parameter", at=f"buffer {name!r}")
    if any(buffer.alignments for buffer in func.params):
        raise UncheckedKernelError("a parameter cannot be aligned", at="parameters")
    nbytes = tuple(touched_bytes(buffer, _strides(code, buffer)) for buffer in func.params)
    workspace = plan_workspace(func)
    needed = (nbytes, workspace.total(threads), workspace.parts if threads > 1 else 0)
    if (tuple(code.nbytes), code.workspace_bytes, code.parts) != needed:
        raise UncheckedKernelError("bytes, workspace or parts are not those of its text", at="memory")
    if workspace.stack > STACK_AT_MOST:
        raise UncheckedKernelError(f"its buffers take {workspace.stack:,} bytes of stack", at="memory")


@dataclass(frozen=True)
class _Effort:
    """Elements that a statement computes, and statements after loops are written out."""

    work: int
    statements: int


@dataclass(frozen=True)
class _Prover:
    """``strides``: of the parameters in memory. ``paired``: those found whose elements must bear sums of pairs."""

    strides: Mapping[str, tuple[int, ...]]
    paired: set[Buffer] = field(default_factory=set)

    def statement(self, stmt: Stmt, facts: Facts, loops: tuple[tuple[Var, Expr], ...]) -> _Effort:
        match stmt:
            case For():
                return self.loop(stmt, facts, loops)
            case Seq(body=items):
                efforts = [self.statement(item, facts, loops) for item in items]
                return _Effort(sum(each.work for each in efforts), sum(each.statements for each in efforts))
            case Allocate(body=body):
                return self.statement(body, facts, loops)
            case If(cond, then):
                self.value(cond, facts, loops)
                return self.statement(then, facts.given(cond, True), loops)
            case Block(body=store, init=init):
                if init is not None:
                    self.value(init, facts, loops)
                return self.statement(store, facts, loops)
            case Store(buffer, indices, value):
                self.access(buffer, indices, facts, loops)
                self.value(value, facts, loops)
                return _Effort(1, 1)
            case IntrinsicCall(intrinsic=intrinsic):
                self.call(stmt, facts, loops)
                elements = prod(extent for _, extent in intrinsic.loops)
                return _Effort(elements, max(1, elements // COPIES_OF_LANES))
        raise UncheckedKernelError(f"{type(stmt).__name__} is not expected", at="statements")

    def loop(self, loop: For, facts: Facts, loops: tuple[tuple[Var, Expr], ...]) -> _Effort:
        self.value(loop.extent, facts, loops)
        most = max(1, facts.interval(loop.extent)[1])
        if most > ITERATIONS_AT_MOST:
            raise UncheckedKernelError("its extent has no bound", at=f"loop {loop.var.name!r}")
        inner = self.statement(loop.body, facts.inside_loop(loop.var, loop.extent), (*loops, (loop.var, loop.extent)))
        copies = {"unroll": most, "vectorize": COPIES_OF_LANES}.get(loop.kind, 1)
        return _Effort(inner.work * most, inner.statements * copies)

    def value(self, expr: Expr, facts: Facts, loops: tuple[tuple[Var, Expr], ...]) -> None:
        """All that is read, divided and shifted to compute an expression."""
        match expr:
            case Select(cond, a, b):
                self.value(cond, facts, loops)
                self.value(a, facts.given(cond, True), loops)
                self.value(b, facts.given(cond, False), loops)
                return
            case Load(buffer, indices):
                self.access(buffer, indices, facts, loops)
                return
            case BinOp("floordiv" | "mod", _, divisor) if not facts.is_nonzero(divisor):
                raise UncheckedKernelError(f"the divisor {expr_text(divisor)} may be 0", at="arithmetic")
            case BinOp("shl" | "shr", a, amount):
                low, high = facts.with_rereads().interval(amount)
                if low < 0 or high >= 8 * ITEM_BYTES[a.dtype]:
                    raise UncheckedKernelError(f"{a.dtype} may be shifted by another amount: {expr_text(amount)}",
                                               at="arithmetic")  # fmt: skip
            case BinOp("add" | "sub" | "mul") if expr.dtype == "int64" and not facts.is_exact(expr):
                # The emitter says of arithmetic on loop variables that it does not wrap.
                if not loads(expr):
                    raise UncheckedKernelError(f"this may wrap: {expr_text(expr)}", at="arithmetic")
        for child in children(expr):
            self.value(child, facts, loops)

    def access(
        self, buffer: Buffer, indices: tuple[Expr, ...], facts: Facts, loops: tuple[tuple[Var, Expr], ...]
    ) -> None:
        """One element, read or written."""
        for index in indices:
            self.value(index, facts, loops)
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not is_within(index, extent - 1, facts, loops):
                raise UncheckedKernelError(
                    f"an index may be outside of the {extent} elements of axis {axis}: {expr_text(index)}",
                    at=f"buffer {buffer.name!r}",
                )

    def call(self, call: IntrinsicCall, facts: Facts, loops: tuple[tuple[Var, Expr], ...]) -> None:
        """The tiles of an intrinsic, whose code goes by its own shapes and strides. Only what declares ``fills`` begins
        with a value for its result, which is one of the tiles."""
        filled = call.init is None or (not call.init and getattr(call.intrinsic.emits, "fills", False))
        if not filled or call.scalars:
            raise UncheckedKernelError("a call of an intrinsic cannot fill its result", at=f"block {call.block!r}")
        for operand, region in zip(call.intrinsic.operands, call.operands, strict=True):
            buffer = region.buffer
            strides = self.strides.get(buffer.name, buffer.strides)
            declared = (operand.shape, operand.dtype)
            if (region.shape, buffer.dtype) != declared or not _has_steps(region.strides, operand):
                raise UncheckedKernelError(f"the tile for {operand.name!r} of {call.intrinsic.name!r} is another",
                                           at=f"buffer {buffer.name!r}")  # fmt: skip
            if operand.name == getattr(call.intrinsic.emits, "bears_pairs", ""):
                self._bears_pairs(call, region)
            for index in region.indices:
                self.value(index, facts, loops)
            self._flat(buffer, _position(region.indices, strides), _span(region), facts, loops)

    def _bears_pairs(self, call: IntrinsicCall, region: Region) -> None:
        """The pairs of an intrinsic must be those of a parameter's last axis."""
        buffer = region.buffer
        whole = region.indices[-1] == Const(0) and buffer.shape[-1] == region.shape[-1]
        if not whole or self.strides.get(buffer.name) != buffer.strides:
            raise UncheckedKernelError(f"it is no parameter, or its last axis is not that of {call.intrinsic.name!r}",
                                       at=f"buffer {buffer.name!r}")  # fmt: skip
        self.paired.add(buffer)

    def _flat(
        self, buffer: Buffer, position: Expr, span: int, facts: Facts, loops: tuple[tuple[Var, Expr], ...]
    ) -> None:
        """The elements from ``position`` to ``span`` behind it."""
        strides = self.strides.get(buffer.name, buffer.strides)
        last = sum((extent - 1) * stride for extent, stride in zip(buffer.shape, strides, strict=True))
        if not is_within(position, last - span, facts, loops):
            raise UncheckedKernelError(f"an index may be outside of its {last + 1} elements: {expr_text(position)}",
                                       at=f"buffer {buffer.name!r}")  # fmt: skip


def _position(indices: tuple[Expr, ...], strides: tuple[int, ...]) -> Expr:
    """The element counted through the buffer."""
    total = Linear()
    for index, stride in zip(indices, strides, strict=True):
        total = total.add(linear_form(index), stride)
    return total.to_expr()


def _span(region: Region) -> int:
    """Elements from the first of a tile to its last."""
    return sum((extent - 1) * stride for extent, stride in zip(region.shape, region.strides, strict=True))
