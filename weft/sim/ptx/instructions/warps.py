"""What the lanes of a warp do together. All lanes of a warp must be there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import KernelFaultError
from ..parser import WARP, Instruction
from ..state import Lanes, State
from ..types import COMPUTED, Array
from .registry import Compute, Step, one_of, operation, unknown

_EVERYONE = np.uint32(0xFFFFFFFF)


def _members(state: State, text: str, instruction: Instruction) -> Callable[[Lanes], int]:
    """What gives the number of whole warps there are; all lanes must take part."""
    mask = state.operand(text, "u32", instruction)

    def whole(lanes: Lanes) -> int:
        if (mask(lanes) != _EVERYONE).any():
            raise unknown(instruction, "some lanes left out")
        return state.whole_warps(lanes, instruction)

    return whole


@operation("shfl", modifiers="sync bfly down up idx")
def _shuffle(state: State, instruction: Instruction, counted: bool) -> Step:
    mode = one_of(instruction, ("bfly", "down", "up", "idx"))
    target, _, found = instruction.operands[0].partition("|")
    whole = _members(state, instruction.operands[4], instruction)
    value = state.operand(instruction.operands[1], "b32", instruction)
    by, clamp = (state.operand(each, "u32", instruction) for each in instruction.operands[2:4])
    lane = np.arange(WARP)

    def run(lanes: Lanes) -> None:
        rows = (whole(lanes), WARP)
        values, step, limits = (state.full(each(lanes), lanes).reshape(rows) for each in (value, by, clamp))
        step, limits = step.astype(np.int64) & 31, limits.astype(np.int64)
        segment, limit = limits >> 8 & 31, limits & 31
        last, first = (lane & segment) | (limit & ~segment), lane & segment
        if mode == "bfly":
            source = lane ^ step
        elif mode == "down":
            source = lane + step
        elif mode == "up":
            source, last = lane - step, (lane & segment) | (limit & ~segment)
        else:
            source = first | (step & ~segment)
        inside = source >= last if mode == "up" else source <= last
        taken = np.take_along_axis(values, np.where(inside, source, lane), 1).reshape(-1)
        state.put(target, lanes, taken)
        if found:
            state.put(found, lanes, inside.reshape(-1))

    return run


@operation("vote", modifiers="sync all any uni ballot")
def _vote(state: State, instruction: Instruction, counted: bool) -> Step:
    mode = one_of(instruction, ("all", "any", "uni", "ballot"))
    whole = _members(state, instruction.operands[2], instruction)
    text = instruction.operands[1]
    value, inverse = state.operand(text.lstrip("!"), "pred", instruction), text.startswith("!")

    def run(lanes: Lanes) -> None:
        rows = (whole(lanes), WARP)
        values = state.full(value(lanes) ^ inverse, lanes).reshape(rows)
        if mode == "ballot":
            bits = (values.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(1, dtype=np.uint32)
            state.put(instruction.operands[0], lanes, np.repeat(bits, WARP))
            return
        result = {"all": values.all(1), "any": values.any(1), "uni": values.all(1) | ~values.any(1)}[mode]
        state.put(instruction.operands[0], lanes, np.repeat(result, WARP))

    return run


_REDUCTIONS: dict[str, Compute] = {
    "add": lambda rows: rows.sum(1, dtype=rows.dtype), "min": lambda rows: rows.min(1),
    "max": lambda rows: rows.max(1), "and": lambda rows: np.bitwise_and.reduce(rows, 1),
    "or": lambda rows: np.bitwise_or.reduce(rows, 1), "xor": lambda rows: np.bitwise_xor.reduce(rows, 1),
}  # fmt: skip


@operation("redux", modifiers=f"sync {' '.join(_REDUCTIONS)}")
def _reduce(state: State, instruction: Instruction, counted: bool) -> Step:
    reduce = _REDUCTIONS[one_of(instruction, _REDUCTIONS)]
    whole = _members(state, instruction.operands[2], instruction)
    value = state.operand(instruction.operands[1], instruction.type, instruction)

    def run(lanes: Lanes) -> None:
        rows = (whole(lanes), WARP)
        found: Array = reduce(state.full(value(lanes), lanes).reshape(rows)).astype(COMPUTED[instruction.type])
        state.put(instruction.operands[0], lanes, np.repeat(found, WARP))

    return run


@operation("activemask")
def _active(state: State, instruction: Instruction, counted: bool) -> Step:
    def run(lanes: Lanes) -> None:
        warp, lane = state.chosen(state.warp_of, lanes), state.chosen(state.thread, lanes) % WARP
        masks = np.zeros(state.blocks * state.warps_each, np.uint32)
        np.bitwise_or.at(masks, warp, np.uint32(1) << lane.astype(np.uint32))
        state.put(instruction.operands[0], lanes, masks[warp])

    return run


@operation("trap")
def _trap(state: State, instruction: Instruction, counted: bool) -> Step:
    def run(lanes: Lanes) -> None:
        who = state.name_of(int(state.numbers(lanes)[0]))
        raise KernelFaultError(f"the kernel stops itself in {who}", at=instruction.place)

    return run


@operation("bar", "barrier", modifiers="warp sync")
def _warp_barrier(state: State, instruction: Instruction, counted: bool) -> Step:
    """All lanes of the warp must come by. What it orders is not known to the watch, which stays stricter."""

    def run(lanes: Lanes) -> None:
        if state.threads % WARP == 0:
            state.whole_warps(lanes, instruction)
        elif state.warps(lanes) * WARP > state.size(lanes) + WARP * state.blocks:
            raise KernelFaultError("not all lanes of a warp are here", at=instruction.place)

    return run
