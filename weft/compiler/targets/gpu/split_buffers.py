"""Buffers in registers, around phases, split among the threads that use them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ...tensor.ir import Buffer, Const, Expr, IntrinsicCall, Region, Stmt, Var
from ...tensor.linear import Linear, linear_form
from ...tensor.printer import expr_text
from ...tensor.simplify import constant_range
from ...tensor.tree import leaves, loops_of, ranges_of
from ...tensor.visitor import free_vars, loads_of, map_accesses, stores_of
from ..errors import CompileError
from .digits import SHARED, Digit, Loops, digits_of, is_thread
from .intrinsics import LaneDigit, WarpStep


@dataclass(frozen=True)
class _Touched:
    """Elements of a buffer: their index, and of what it is made. ``digits``: of the thread's number; ``loops``: all
    else, with extents. ``tile``: whether it is the first element of an intrinsic's tile that is replaced, by an index
    without the loops of the tile."""

    indices: tuple[Expr, ...]
    digits: Mapping[Var, Digit]
    loops: Loops


def _touched(buffer: Buffer, body: Stmt, around: Loops, warp: int) -> Iterator[_Touched]:
    """All accesses to a buffer below a statement; the tile of an intrinsic by the digits of the lanes that hold it."""
    for path in leaves(body):
        leaf = path[-1]
        nest = [loop for loop in loops_of(path) if is_thread(loop)]
        loops = (*around, *ranges_of(path))
        if not isinstance(leaf, IntrinsicCall):
            digits = {digit.var: digit for digit in digits_of(nest, around)}
            for accessed, indices in (*stores_of(leaf), *loads_of(leaf)):
                if accessed == buffer:
                    yield _Touched(indices, digits, loops)
            continue
        digits = {digit.var: digit for digit in digits_of(nest, around, warp)}
        step = leaf.intrinsic.emits
        for operand, region in zip(leaf.intrinsic.operands, leaf.operands, strict=True):
            if region.buffer != buffer:
                continue
            if not isinstance(step, WarpStep) or operand.name not in step.lanes:
                raise _unsplit(buffer, f"lanes do not hold {operand.name!r} of {leaf.intrinsic.name!r}")
            yield _tile_of_warp(region, step.lanes[operand.name], digits, loops)


def _tile_of_warp(region: Region, lanes: Sequence[LaneDigit], digits: Mapping[Var, Digit], loops: Loops) -> _Touched:
    """The elements of a tile, by digits of the lane, and by loops over what is left."""
    buffer = region.buffer
    indices, digits, added = list(region.indices), dict(digits), list(loops)
    for place, (size, stride) in enumerate(zip(region.shape, region.strides, strict=True)):
        if size == 1:
            continue
        axis = max((each for each in range(buffer.ndim) if buffer.strides[each] == stride and buffer.shape[each] > 1),
                   default=-1)  # fmt: skip
        if axis < 0:
            raise _unsplit(buffer, f"a tile of {list(region.shape)} goes across its axes")
        parts = [1, size]  # where digits begin and end
        for lane in (each for each in lanes if each.axis == place):
            var = Var(f".lane{lane.weight}")
            digits[var] = Digit(var, lane.radix, lane.weight, Const(lane.radix))
            indices[axis] = indices[axis] + var * lane.step
            parts = [1, lane.step, lane.step * lane.radix, size]
        for number in range(0, len(parts), 2):
            low, high = parts[number], parts[number + 1]
            if high > low:
                var = Var(f".part{place}_{number}")
                added.append((var, Const(high // low)))
                indices[axis] = indices[axis] + var * low
    return _Touched(tuple(indices), digits, tuple(added))


def split_buffer(buffer: Buffer, body: Stmt, around: Loops, warp: int) -> tuple[Buffer, Stmt]:
    """The part of a buffer that one thread holds, and the statement on that.

    In each access, the digits of the thread must decide whose element it is, the same way everywhere: along an axis, a
    digit counts steps that are longer than all that is below it together, and all that is above goes by whole turns of
    it. Then the element's owner follows from its index, and what is left of the index finds it among the owner's:
    steps above a digit are shorter there by all that the digit counts. What intrinsics give to all lanes of a warp is
    told by the digits of the warp alone.
    """
    everywhere = warp if _is_of_all_lanes(buffer, body) else 0
    owners: set[tuple[tuple[int, int, int, int], ...]] = set()
    for touched in _touched(buffer, body, around, warp):
        owner: list[tuple[int, int, int, int]] = []
        for axis, index in enumerate(touched.indices):
            mine = _digits_in(buffer, index, touched)
            owner += [(digit.weight, digit.radix, axis, step) for digit, step in mine if digit.radix > 1]
        if sorted(weight for weight, *_ in owner) != sorted(
            digit.weight
            for digit in touched.digits.values()
            if digit.radix > 1 and digit.weight * digit.radix > everywhere
        ):
            raise _unsplit(buffer, "not every loop over threads finds elements of its own")
        owners.add(tuple(sorted(owner)))
    if len(owners) > 1:
        raise _unsplit(buffer, "two phases give its elements to threads in different ways")
    owner_steps = next(iter(owners), ())
    steps = [[(step, radix) for _, radix, axis, step in owner_steps if axis == place] for place in range(buffer.ndim)]
    shape = [1] * buffer.ndim
    for touched in _touched(buffer, body, around, warp):
        for axis, index in enumerate(touched.indices):
            left = _without_digits(index, touched.digits.keys(), steps[axis])
            most = sum(step * constant_range(atom, touched.loops)[1] for atom, step in left.terms.items())
            shape[axis] = max(shape[axis], left.constant + most + 1)
    threads = {digit for touched in _touched(buffer, body, around, warp) for digit in touched.digits}
    part = Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope)

    def kept(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(
            _without_digits(index, threads, turns).to_expr() for index, turns in zip(indices, steps, strict=True)
        )

    return part, map_accesses(body, buffer, part, kept)


def _is_of_all_lanes(buffer: Buffer, body: Stmt) -> bool:
    """Whether nothing but intrinsics that give all lanes of a warp the same stores to a buffer."""
    given = False
    for path in leaves(body):
        leaf = path[-1]
        if not isinstance(leaf, IntrinsicCall):
            if any(stored == buffer for stored, _ in stores_of(leaf)):
                return False
            continue
        step = leaf.intrinsic.emits
        for operand, region in zip(leaf.intrinsic.operands, leaf.operands, strict=True):
            if region.buffer == buffer and operand.mode != "in":
                if not isinstance(step, WarpStep) or step.lanes.get(operand.name) != ():
                    return False
                given = True
    return given


def _without_digits(index: Expr, digits: Collection[Var], steps: Sequence[tuple[int, int]]) -> Linear:
    """What is left of an index without the digits that tell an element's owner; ``steps`` and radices of those."""
    form = linear_form(index)
    terms = {
        atom: step // prod(radix for other, radix in steps if step > other)
        for atom, step in form.terms.items()
        if atom not in digits
    }
    return Linear(terms, form.constant)


def _digits_in(buffer: Buffer, index: Expr, touched: _Touched) -> list[tuple[Digit, int]]:
    """The digits of the thread in an index, with their steps; refused unless they tell the element's owner."""
    digits = touched.digits
    form = linear_form(index)
    mine = [(digits[atom], step) for atom, step in form.terms.items() if isinstance(atom, Var) and atom in digits]
    rest: list[tuple[int, int]] = []  # step, and the largest multiple of it
    for atom, step in form.terms.items():
        if isinstance(atom, Var) and atom in digits:
            continue
        low, high = constant_range(atom, touched.loops)
        if free_vars(atom) & digits.keys() or low != 0 or step < 0:
            raise _unsplit(buffer, f"the index {expr_text(index)} is no sum of digits")
        rest.append((step, high))
    if form.constant < 0:
        raise _unsplit(buffer, f"the index {expr_text(index)} may be negative")
    for digit, step in mine:
        others = [(other, each.radix - 1) for each, other in mine if each != digit] + rest
        below = form.constant + sum(other * last for other, last in others if other < step)
        turns = [other for other, last in others if other >= step and last > 0]
        if step <= 0 or below >= step or any(other % (step * digit.radix) for other in turns):
            raise _unsplit(buffer, f"in the index {expr_text(index)} loop {digit.var.name!r} does not tell the owner")
    return mine


def _unsplit(buffer: Buffer, why: str) -> CompileError:
    return CompileError(f"it cannot be split among threads: {why}", at=f"buffer {buffer.name!r}",
                        hint=f"set_scope to {SHARED!r}, or bind the same tiles everywhere")  # fmt: skip
