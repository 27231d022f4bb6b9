"""Which instruction's token another one waited for, and DRAM traffic over time: what a trace says between the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.isa import Engine, Instruction, Load, Store, mask_engines
from ..sim.dma import transfer_of

Events = npt.NDArray[np.void]


@dataclass(frozen=True)
class Token:
    """A token on its way: the numbers of the instruction that sends it and of the one that waits for it."""

    sender: int
    receiver: int


def tokens(instructions: Sequence[Instruction], events: Events) -> list[Token]:
    """Every token of a run that was received, in the order of the instructions that receive them.

    Tokens between two engines are counted: the n-th that one engine takes of another is the n-th that was sent.
    """
    sent: dict[tuple[Engine, Engine], list[int]] = {}
    for number in events[np.lexsort((events["number"], events["retire"]))]["number"].tolist():
        instruction = instructions[number]
        for receiver in mask_engines(instruction.send):
            sent.setdefault((instruction.engine, receiver), []).append(number)
    queues = {ends: iter(numbers) for ends, numbers in sent.items()}
    return [
        Token(next(queues[sender, instructions[number].engine]), number)
        for number in sorted(events["number"].tolist())
        for sender in mask_engines(instructions[number].wait)
    ]


def traffic(
    config: CoreConfig, instructions: Sequence[Instruction], events: Events, edges: npt.NDArray[np.int64]
) -> dict[Engine, npt.NDArray[np.float64]]:
    """Bytes that each engine moved between consecutive ``edges`` (cycles), shape ``(edges - 1,)``.

    The bytes of an instruction are spread evenly from its start, or from the end of the transfer before it, to its own
    end. Engines that moved nothing are left out. Fetch leaves no events: the program's own bytes are not in it.
    """
    result: dict[Engine, npt.NDArray[np.float64]] = {}
    for engine in (Engine.LOAD, Engine.LOADW, Engine.STORE):
        cycles, moved = [0], [0]
        mine = events[events["engine"] == engine]
        for _, number, start, retire in mine[np.argsort(mine["number"])].tolist():
            instruction = instructions[number]
            if not isinstance(instruction, (Load, Store)):
                continue
            nbytes = transfer_of(config, instruction).bytes
            if nbytes:
                begin = max(start, cycles[-1])
                cycles += [begin, max(retire, begin + 1)]
                moved += [moved[-1], moved[-1] + nbytes]
        if moved[-1]:
            result[engine] = np.diff(np.interp(edges, cycles, moved))
    return result
