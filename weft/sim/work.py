"""A bound on what a program does, found before it runs: a few bytes of instructions can ask for years of work."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from ..hw.config import LOOP_LEVELS, CoreConfig
from ..hw.decode import field_places
from ..hw.isa import Opcode
from .errors import SimulationError

MICRO_OPS_LIMIT = 1 << 26
"""Most micro-ops of one instruction; the core would be busy for a second with it."""

WORK_LIMIT = 1 << 33
"""Most micro-ops and transferred entries of a program; the core would be busy for two minutes with it."""


def check_work(config: CoreConfig, code: npt.NDArray[np.uint8]) -> None:
    """:class:`SimulationError` that names the instruction at which a program of whole instructions asks for too much.

    Instructions are taken as they stand: whether they are legal is not looked at.
    """
    words = code.reshape(-1, config.instruction_bytes)
    bits = np.unpackbits(words, axis=1, bitorder="little")
    opcodes, engines = words[:, 0] & 7, words[:, 0] >> 3 & 7

    def field(opcode: Opcode, name: str) -> npt.NDArray[np.int64]:
        first, width = next(place[1:3] for place in field_places(config, opcode) if place[0] == name)
        part = bits[:, first : first + width].astype(np.int64)
        value: npt.NDArray[np.int64] = part @ (1 << np.arange(width, dtype=np.int64))
        return value

    # Python's own numbers: NumPy's are slow one by one.
    levels, extents = field(Opcode.LOOP, "level").tolist(), field(Opcode.LOOP, "extent").tolist()
    depth = {int(opcode): field(opcode, "levels").tolist() for opcode in (Opcode.GEMM, Opcode.VECTOR)}
    moved = {
        int(opcode): (field(opcode, "rows") * field(opcode, "columns")).tolist()
        for opcode in (Opcode.LOAD, Opcode.STORE)
    }
    nests = [[1] * LOOP_LEVELS for _ in range(8)]  # of every engine that has a number
    total = 0
    for number, (opcode, engine) in enumerate(zip(opcodes.tolist(), engines.tolist(), strict=True)):
        if opcode == Opcode.LOOP:
            if levels[number] < LOOP_LEVELS:
                nests[engine][levels[number]] = extents[number]
        elif opcode in depth:
            count = prod(nests[engine][: depth[opcode][number]])
            check_micro_ops(number, count)
            total += count
        elif opcode in moved:
            total += moved[opcode][number]
        if total > WORK_LIMIT:
            raise SimulationError(
                f"up to instruction {number} the program has {total:,} micro-ops and transferred entries, but at most "
                f"{WORK_LIMIT:,} are simulated", hint="run it in parts",
            )  # fmt: skip


def check_micro_ops(number: int, count: int) -> None:
    """:class:`SimulationError` for an instruction with too many micro-ops."""
    if count > MICRO_OPS_LIMIT:
        raise SimulationError(
            f"instruction {number} has {count} micro-ops, but at most {MICRO_OPS_LIMIT} are simulated",
            hint="check the extents of its LOOP instructions",
        )
