"""Second factors of MUL, MAC and REQUANTISE that may have more than the 25 bits which the core multiplies by.

The meanings of the intrinsics multiply in full, so a schedule with a larger factor would run, and give other integers.
Between which numbers a factor lies is worked out from what writes its buffer. Data from DRAM are not known here: they
are marked, and looked at when the function runs.

This stands before programs of scheduled functions (`function_program`), which are written by hand. The linker of
networks does not ask: its factors are immediates, packed multipliers, or what was int8 before it was widened
(`docs/compiler.md`), and it tries many schedules of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ....hw.isa import VectorOp
from ...tensor.interpreter import interpret
from ...tensor.intervals import Facts, Interval
from ...tensor.intrinsic import call_loops, flat_buffer
from ...tensor.ir import (
    INTEGER_RANGES,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Var,
    loop_nest,
    maximum,
)
from ...tensor.simplify import Simplifier, linear_form
from ...tensor.tree import leaves, ranges_of
from ...tensor.visitor import accumulation, free_vars, statements, walk_exprs
from ..errors import FactorError
from .intrinsics import IMMEDIATE_RANGE, EmitVector

FACTOR_RANGE = IMMEDIATE_RANGE
"""What a second factor may be."""

Mask = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.int8]

_MULTIPLICATIONS = (VectorOp.MUL, VectorOp.MAC, VectorOp.REQUANTISE)


@dataclass(frozen=True)
class _Writer:
    """A call that writes a buffer: what is around it, its own loops, and its one store to flat memory."""

    path: tuple[Stmt, ...]
    call: IntrinsicCall
    loops: tuple[tuple[Var, int], ...]
    store: Store

    @property
    def loaded(self) -> Load | None:
        """The element of DRAM that is copied as it is."""
        value = self.store.value
        return value if isinstance(value, Load) and value.buffer.scope == "global" else None

    @property
    def around(self) -> list[tuple[Var, Expr]]:
        """All loops, outermost first."""
        return [*ranges_of(self.path), *((var, Const(extent)) for var, extent in self.loops)]


def check_factors(func: PrimFunc) -> dict[str, Mask]:
    """Elements of parameters, by name, that become second factors of 32 bits: their data must be in ``FACTOR_RANGE``.

    FactorError for a factor that the function computes, and that is not known to be in that range.
    """
    ranges, masks = _Ranges.of(func), dict[str, Mask]()
    for path in leaves(func.body):
        call = path[-1]
        if isinstance(call, IntrinsicCall) and _multiplication(call) is not None:
            wide = [each for each in ranges.writers(call.operand("b").buffer) if not _fits(ranges.written(each))]
            places = _factor_places(path, call) if wide else np.zeros(0, np.int8)
            for writer in wide:
                _check_writer(func, call, writer, places, ranges, masks)
    return masks


def _multiplication(call: IntrinsicCall) -> VectorOp | None:
    """The operation, if it multiplies by an entry. An immediate has 25 bits in any case."""
    emits = call.intrinsic.emits
    found = isinstance(emits, EmitVector) and emits.entry_b and emits.op in _MULTIPLICATIONS
    return emits.op if found else None  # type: ignore[attr-defined]


def _fits(interval: Interval) -> bool:
    return FACTOR_RANGE[0] <= interval[0] and interval[1] <= FACTOR_RANGE[1]


def _check_writer(
    func: PrimFunc, call: IntrinsicCall, writer: _Writer, places: Marks, ranges: _Ranges, masks: dict[str, Mask]
) -> None:
    """Mark what is copied to the places of a factor, and refuse what is computed there."""
    source = writer.loaded
    if source is not None:
        met = _met(writer, places, replace(source.buffer, dtype="int8"), source.indices)
        masks[source.buffer.name] = masks.get(source.buffer.name, np.zeros_like(met)) | met
    elif _met(writer, places, Buffer(".met", (1,), "int8"), (Const(0),)).any():
        raise _refusal(func, call, ranges, ranges.written(writer))


def _factor_places(path: tuple[Stmt, ...], call: IntrinsicCall) -> Marks:
    """1 at those elements of the second operand's buffer that are factors: of REQUANTISE's entries only the second."""
    region = call.operand("b")
    place, shape, strides = region.offset, region.shape, region.strides
    if _multiplication(call) is VectorOp.REQUANTISE:
        place, shape, strides = place + strides[0], shape[1:], strides[1:]
    loops = tuple((Var(f".{axis}"), extent) for axis, extent in enumerate(shape))
    for (var, _), stride in zip(loops, strides, strict=True):
        place = place + var * stride
    marks = replace(flat_buffer(region.buffer), dtype="int8")
    nest = _nest(path, loops, Store(marks, (place,), Const(1, "int8")))
    return interpret(PrimFunc("factors", (marks,), nest), {marks.name: np.zeros(marks.shape, np.int8)})[marks.name]


def _met(writer: _Writer, places: Marks, target: Buffer, indices: tuple[Expr, ...]) -> Mask:
    """The elements of ``target`` at whose ``indices`` the writer writes a factor."""
    marks = replace(writer.store.buffer, dtype="int8")
    value = maximum(Load(target, indices), Load(marks, writer.store.indices))
    nest = _nest(writer.path, writer.loops, Store(target, indices, value))
    arrays = {marks.name: places, target.name: np.zeros(target.shape, np.int8)}
    return interpret(PrimFunc("met", (marks, target), nest), arrays)[target.name].astype(np.bool_)


def _nest(path: Sequence[Stmt], loops: Sequence[tuple[Var, int]], store: Store) -> Stmt:
    """The loops and conditions of a path, and a call's own loops, around another store."""
    body = loop_nest([(var, Const(extent)) for var, extent in loops], store)
    for node in reversed(path):
        match node:
            case For(var=var, extent=extent):
                body = For(var, extent, "serial", body)
            case If(cond=cond):
                body = If(cond, body)
    return body


def _refusal(func: PrimFunc, call: IntrinsicCall, ranges: _Ranges, interval: Interval) -> FactorError:
    (least, most), a, b = FACTOR_RANGE, call.operand("a").buffer, call.operand("b").buffer
    source = next(
        (node.source for node in statements((func.origin or func).body)
         if isinstance(node, Block) and node.name == call.block), "",
    )  # fmt: skip
    hint = f"clamp it to {least}..{most} in stages of their own, a maximum and a minimum"
    if _multiplication(call) is not VectorOp.REQUANTISE and _fits(ranges.interval(a)):
        hint += f", or swap the factors: {a.name!r} fits"
    return FactorError(
        f"the second factor of {call.intrinsic.name!r}, {b.name!r}, may be {interval[0]}..{interval[1]}, but the core "
        f"multiplies by 25 bits, {least}..{most}",
        at=f"function {func.name!r}: stage {call.block!r}", hint=f"{hint}; in {source}" if source else hint,
    )  # fmt: skip


@dataclass
class _Ranges:
    """Between which numbers the elements of buffers lie, by all that is ever written to them."""

    _writers: Mapping[str, Sequence[_Writer]]
    _known: dict[str, Interval] = field(default_factory=dict)

    @staticmethod
    def of(func: PrimFunc) -> _Ranges:
        writers: dict[str, list[_Writer]] = {}
        for path in leaves(func.body):
            if isinstance(path[-1], IntrinsicCall):
                writer = _Writer(path, path[-1], *call_loops(path[-1]))
                writers.setdefault(writer.store.buffer.name, []).append(writer)
        return _Ranges(writers)

    def writers(self, buffer: Buffer) -> Sequence[_Writer]:
        return self._writers.get(buffer.name, ())

    def interval(self, buffer: Buffer) -> Interval:
        """Of all elements of a buffer. What depends on itself counts as any number."""
        if buffer.dtype != "int32" or not self.writers(buffer):
            return INTEGER_RANGES[buffer.dtype]
        if buffer.name not in self._known:
            self._known[buffer.name] = INTEGER_RANGES[buffer.dtype]
            low, high = zip(*map(self.written, self.writers(buffer)), strict=True)
            self._known[buffer.name] = min(low), max(high)
        return self._known[buffer.name]

    def written(self, writer: _Writer) -> Interval:
        """What one call leaves in its buffer, but for what was there before."""
        store, whole = writer.store, INTEGER_RANGES[writer.store.buffer.dtype]
        # A minimum or a maximum is its term, or what was there before; it is never the initial value.
        op, value = accumulation(store) or ("", store.value)
        loads = [node for node in walk_exprs(value) if isinstance(node, Load)]
        facts = Facts({load.buffer.name: (self.interval(load.buffer),) for load in loads})
        for var, extent in writer.around:
            facts = facts.inside_loop(var, extent)
        low, high = facts.interval(value)
        if op == "add":
            terms = _terms(writer, facts) if len(self.writers(store.buffer)) == 1 else None
            if terms is None:
                return whole
            low, high = min(0, low * terms), max(0, high * terms)
        return (low, high) if whole[0] <= low and high <= whole[1] else whole


def _terms(writer: _Writer, facts: Facts) -> int | None:
    """The most terms that are added to one element from one initial value to the next; None if that is not known.

    Loops outside of those that sum begin anew. Of those inside of them some tell the elements apart: those whose steps
    go further than all smaller steps together. Each iteration of the others may meet the same element.
    """
    init, loops = writer.call.init, writer.around
    if init is None:
        return None
    first = next((at for at, (var, _) in enumerate(loops) if var in init), len(loops) - len(writer.loops))
    position = linear_form(Simplifier(loops).simplify(writer.store.indices[0]))
    conditions = [node.cond for node in writer.path if isinstance(node, If)]
    choosing = [*position.terms, *(extent for _, extent in loops), *conditions]
    if any(free_vars(expr) & set(init) for expr in choosing):
        return None  # the first iteration does not begin all elements
    crooked = {var for atom in position.terms if not isinstance(atom, Var) for var in free_vars(atom)}
    steps = [
        (0 if var in crooked else abs(position.terms.get(var, 0)), max(1, facts.interval(extent)[1]))
        for var, extent in loops[first:]
    ]
    terms, reach = 1, 0
    for step, extent in sorted(steps):
        if step > reach:
            reach += step * (extent - 1)
        else:
            terms *= extent
    return terms
