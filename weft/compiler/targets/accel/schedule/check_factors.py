"""Second operands that the core does not take whole: factors of more than 25 bits, shifts outside of 1 to 63.

The meanings of the intrinsics of MUL, MAC and REQUANTISE multiply and shift in full, so a schedule with other numbers
would run, and give other integers. Between which numbers an operand lies is worked out from what writes its buffer.
Data from DRAM are not known here: they are marked, and looked at when the function runs.

This stands before programs of scheduled functions (`function_program`), which are written by hand. The linker of
networks does not ask: its factors are immediates, packed multipliers, or what was int8 before it was widened
(`docs/compiler.md`), and it tries many schedules of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from .....hw.isa import VectorOp
from ....tensor.interpreter import interpret
from ....tensor.intervals import Facts, Interval
from ....tensor.intrinsic import call_loops, flat_buffer
from ....tensor.ir import (
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
from ....tensor.linear import linear_form
from ....tensor.simplify import Simplifier
from ....tensor.tree import leaves, ranges_of
from ....tensor.visitor import accumulation, free_vars, loads, statements
from ...errors import FactorError
from ..operators.intrinsics import IMMEDIATE_RANGE, EmitVector

FACTOR_RANGE = IMMEDIATE_RANGE
"""What a second factor may be."""

CORE_SHIFTS = (1, 63)
"""What the shift of REQUANTISE may be: the core looks at six bits, and adds no half where they are 0. The contract's
are a part of them (`numerics.SHIFT_RANGE`)."""


@dataclass(frozen=True)
class Limit:
    """What an operand is called, which numbers it may be, and the reason."""

    operand: str
    least: int
    most: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}, {self.least}..{self.most}"

    def fits(self, interval: Interval) -> bool:
        return self.least <= interval[0] and interval[1] <= self.most


FACTOR = Limit("second factor", *FACTOR_RANGE, "the core multiplies by 25 bits")
SHIFT = Limit("shift", *CORE_SHIFTS, "the core shifts by six bits and at least once")

Mask = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.int8]

_LIMITS: Mapping[VectorOp, Mapping[int, Limit]] = {
    VectorOp.MUL: {0: FACTOR},
    VectorOp.MAC: {0: FACTOR},
    VectorOp.REQUANTISE: {1: FACTOR, 2: SHIFT},
}
"""Of each operation: which entries of its second operand have limits."""


@dataclass(frozen=True)
class Limited:
    """Elements of a parameter whose data must lie within a limit; ``mask`` has the parameter's shape."""

    param: str
    limit: Limit
    mask: Mask = field(repr=False)


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


def check_factors(func: PrimFunc) -> list[Limited]:
    """The elements of parameters that become operands with a limit, and may lie outside of it.

    FactorError for an operand that the function computes, and that is not known to be within its limit.
    """
    ranges, masks = _Ranges.of(func), dict[tuple[str, Limit], Mask]()
    for path in leaves(func.body):
        call = path[-1]
        if not isinstance(call, IntrinsicCall):
            continue
        for entry, limit in _limits(call).items():
            writers = ranges.writers(call.operand("b").buffer)
            wide = [each for each in writers if not limit.fits(ranges.written(each))]
            places = _places(path, call, entry) if wide else np.zeros(0, np.int8)
            for writer in wide:
                _check_writer(func, call, limit, writer, places, ranges, masks)
    return [Limited(name, limit, mask) for (name, limit), mask in masks.items()]


def _limits(call: IntrinsicCall) -> Mapping[int, Limit]:
    """Limits of the entries that a call reads. An immediate has 25 bits in any case."""
    emits = call.intrinsic.emits
    return _LIMITS.get(emits.op, {}) if isinstance(emits, EmitVector) and emits.entry_b else {}


def _check_writer(
    func: PrimFunc,
    call: IntrinsicCall,
    limit: Limit,
    writer: _Writer,
    places: Marks,
    ranges: _Ranges,
    masks: dict[tuple[str, Limit], Mask],
) -> None:
    """Mark what is copied to the places of an operand, and refuse what is computed there."""
    source = writer.loaded
    if source is not None:
        met = _met(writer, places, replace(source.buffer, dtype="int8"), source.indices)
        key = source.buffer.name, limit
        masks[key] = masks.get(key, np.zeros_like(met)) | met
    elif _met(writer, places, Buffer(".met", (1,), "int8"), (Const(0),)).any():
        raise _refusal(func, call, limit, ranges, ranges.written(writer))


def _places(path: tuple[Stmt, ...], call: IntrinsicCall, entry: int) -> Marks:
    """1 at those elements of the second operand's buffer that are this entry of it."""
    region = call.operand("b")
    place, shape, strides = region.offset, region.shape, region.strides
    if len(_limits(call)) > 1:  # entries are the first axis
        place, shape, strides = place + strides[0] * entry, shape[1:], strides[1:]
    loops = tuple((Var(f".{axis}"), extent) for axis, extent in enumerate(shape))
    for (var, _), stride in zip(loops, strides, strict=True):
        place = place + var * stride
    marks = replace(flat_buffer(region.buffer), dtype="int8")
    nest = _nest(path, loops, Store(marks, (place,), Const(1, "int8")))
    return interpret(PrimFunc("places", (marks,), nest), {marks.name: np.zeros(marks.shape, np.int8)})[marks.name]


def _met(writer: _Writer, places: Marks, target: Buffer, indices: tuple[Expr, ...]) -> Mask:
    """The elements of ``target`` at whose ``indices`` the writer writes to one of the places."""
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


def _refusal(func: PrimFunc, call: IntrinsicCall, limit: Limit, ranges: _Ranges, interval: Interval) -> FactorError:
    a, b = call.operand("a").buffer, call.operand("b").buffer
    source = next(
        (node.source for node in statements((func.origin or func).body)
         if isinstance(node, Block) and node.name == call.block), "",
    )  # fmt: skip
    hint = f"clamp it to {limit.least}..{limit.most} in stages of their own, a maximum and a minimum"
    if len(_limits(call)) == 1 and limit.fits(ranges.interval(a)):
        hint += f", or swap the factors: {a.name!r} fits"
    return FactorError(
        f"the {limit.operand} of {call.intrinsic.name!r}, {b.name!r}, may be {interval[0]}..{interval[1]}, but {limit}",
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
        facts = Facts({load.buffer.name: (self.interval(load.buffer),) for load in loads(value)})
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
