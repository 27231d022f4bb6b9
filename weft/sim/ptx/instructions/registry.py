"""Instructions by operation, and what several of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from ..errors import PtxSyntaxError
from ..parser import Instruction
from ..state import Lanes, State
from ..types import BITS, COMPUTED, Array, is_float

Step: TypeAlias = Callable[[Lanes], None]
Compiler: TypeAlias = Callable[[State, Instruction, bool], Step]
Compute: TypeAlias = Callable[..., Array]

COMPILERS: dict[str, Compiler] = {}
"""By operation."""

_WITHOUT_RESULT = {"bar", "barrier", "cp", "fence", "membar", "prefetch", "prefetchu", "red", "st", "trap"}
"""Operations whose first operand is not what they set."""

_SMALLEST_NORMAL = np.float32(2.0**-126)


def operation(*names: str, modifiers: str = "") -> Callable[[Compiler], Compiler]:
    """The function makes the steps of these operations; they may have these modifiers, beside types."""
    known = frozenset(modifiers.split())

    def registered(make: Compiler) -> Compiler:
        def checked(state: State, instruction: Instruction, counted: bool) -> Step:
            strange = [each for each in instruction.modifiers if each not in known and each not in BITS]
            if strange:
                raise unknown(instruction, strange[0])
            try:
                if instruction.operation not in _WITHOUT_RESULT:
                    _check_result(state, instruction)
                return make(state, instruction, counted)
            except (IndexError, ValueError, KeyError, TypeError) as error:
                raise unknown(instruction, "in this form") from error

        for name in names:
            COMPILERS[name] = checked
        return make

    return registered


def _check_result(state: State, instruction: Instruction) -> None:
    for text in registers_of(instruction.operands[0]):
        for register in text.split("|"):
            if register != "_" and register not in state.kernel.registers:
                raise PtxSyntaxError(f"there is no register {register!r}", at=instruction.place)


def unknown(instruction: Instruction, what: str) -> PtxSyntaxError:
    """That the interpreter does not know an instruction of this kind."""
    return PtxSyntaxError(f"{instruction.operation!r} is not known {what if ' ' in what else f'with {what!r}'}",
                          at=instruction.place)  # fmt: skip


def one_of(instruction: Instruction, names: Iterable[str]) -> str:
    """The modifier that is one of ``names``; the instruction means nothing without it, nor with two."""
    known = [*names]
    found = [each for each in instruction.modifiers if each in known]
    if len(found) != 1:
        raise unknown(instruction, f"without exactly one of .{', .'.join(known)}")
    return found[0]


def registers_of(text: str) -> list[str]:
    """The registers of ``{a, b}``, or the only one."""
    return [each.strip() for each in text.strip("{}").split(",")] if text[0] == "{" else [text]


def flushed(values: Array) -> Array:
    """Floats with those below the smallest normal number as 0 of their sign."""
    if values.dtype != np.float32:
        return values
    return np.where(np.abs(values) < _SMALLEST_NORMAL, np.copysign(np.float32(0), values), values)


def computed(state: State, instruction: Instruction, compute: Compute, result: str = "") -> Step:
    """The step of an instruction whose operands and result are of its type (the result of another, where that is
    named)."""
    kind = instruction.type
    sources = [state.operand(each, kind, instruction) for each in instruction.operands[1:]]
    target, dtype = instruction.operands[0], COMPUTED[result or kind]
    flush, saturate = "ftz" in instruction.modifiers, "sat" in instruction.modifiers and is_float(kind)
    with np.errstate(all="ignore"):
        compute(*(np.zeros(1, COMPUTED[kind]) for _ in sources))  # TypeError for another number of operands

    def run(lanes: Lanes) -> None:
        values = [source(lanes) for source in sources]
        if flush:
            values = [flushed(value) for value in values]
        found = compute(*values)
        if flush:
            found = flushed(found)
        if saturate:
            found = np.where(np.isnan(found), 0, np.clip(found, 0, 1))
        state.put(target, lanes, found if found.dtype == dtype else found.astype(dtype))

    return run


def pairs(state: State, instruction: Instruction, compute: Compute) -> Step:
    """The step of an instruction on pairs of halves."""
    half = COMPUTED[instruction.type.removesuffix("x2")]
    sources = [state.operand(each, "b32", instruction) for each in instruction.operands[1:]]

    compute(*(np.zeros(2, half) for _ in sources))

    def run(lanes: Lanes) -> None:
        values = np.broadcast_arrays(*(source(lanes) for source in sources))
        taken = [np.ascontiguousarray(each).view(half) for each in values]
        state.put(instruction.operands[0], lanes, compute(*taken).astype(half).view(np.uint32))

    return run
