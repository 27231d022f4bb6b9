"""Asynchronous copies from global to shared memory. Until a thread has waited for its own, nobody may touch the bytes;
what it waited for, other threads see after a barrier."""

from __future__ import annotations

import numpy as np

from ..parser import Instruction
from ..state import Copy, Lanes, State
from ..types import Array
from .registry import Step, operation, unknown


@operation("cp", modifiers="async ca cg shared global commit_group wait_group wait_all L2 64B 128B 256B cta")
def _copy(state: State, instruction: Instruction, counted: bool) -> Step:
    if "commit_group" in instruction.modifiers:
        return lambda lanes: _commit(state, lanes)
    if "wait_group" in instruction.modifiers:
        left = int(instruction.operands[0], 0)
        return lambda lanes: _wait(state, lanes, left)
    if "wait_all" in instruction.modifiers:

        def everything(lanes: Lanes) -> None:
            _commit(state, lanes)
            _wait(state, lanes, 0)

        return everything
    to, source = (state.address(each, instruction) for each in instruction.operands[:2])
    size = int(instruction.operands[2], 0)
    if size not in (4, 8, 16) or (size != 16 and "cg" in instruction.modifiers):
        raise unknown(instruction, f"{size} bytes")
    taken = state.operand(instruction.operands[3], "u32", instruction) if len(instruction.operands) > 3 else None

    def run(lanes: Lanes) -> None:
        places = state.shared_places(state.full(to(lanes), lanes), size, lanes, instruction)
        addresses = state.full(source(lanes), lanes)
        count = np.full(addresses.shape, size) if taken is None else state.full(taken(lanes), lanes).astype(np.int64)
        data = np.zeros((len(addresses), size), np.uint8)
        some = np.flatnonzero(count > 0)
        if len(some):  # where nothing is read, the address may be anything
            readers = state.numbers(lanes)[some]
            chosen = None if len(some) == state.count else readers
            at = state.global_places(addresses[some], size, chosen, instruction)
            state.watch("global", "read", at, size, chosen, instruction)
            if counted:
                state.count_traffic("global", at, size, chosen, instruction, writes=False)
            read = state.memory.bytes[at[:, None] + np.arange(size)]
            data[some] = np.where(np.arange(size) < count[some][:, None], read, 0)
        state.watch("shared", "fly", places, size, lanes, instruction)
        if counted:
            state.count_traffic("shared", places, size, lanes, instruction, writes=True)
        group = state.chosen(state.committed, lanes).copy()
        state.copies.append(Copy(places, data, state.numbers(lanes), group))

    return run


def _commit(state: State, lanes: Lanes) -> None:
    if lanes is None:
        state.committed = state.committed + 1
    else:
        state.committed[lanes] += 1


def _wait(state: State, lanes: Lanes, left: int) -> None:
    """Let all copies of the lanes land but those of their last ``left`` groups."""
    here = np.ones(state.count, bool)
    if lanes is not None:
        here[:] = False
        here[lanes] = True
    still: list[Copy] = []
    for copy in state.copies:
        lands = here[copy.lanes] & (copy.group < state.committed[copy.lanes] - left)
        if lands.any():
            _land(state, copy, lands)
        if not lands.all():
            stays = ~lands
            still.append(Copy(copy.places[stays], copy.data[stays], copy.lanes[stays], copy.group[stays]))
    state.copies = still


def _land(state: State, copy: Copy, lands: Array) -> None:
    places, data, lanes = copy.places[lands], copy.data[lands], copy.lanes[lands]
    size = data.shape[1]
    state.shared[places[:, None] + np.arange(size)] = data
    if state.shared_watch is not None:
        state.shared_watch.land(places, size, state.me[lanes], state.now[lanes])
