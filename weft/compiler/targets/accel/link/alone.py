"""Kernels as programs of their own, which are only timed: nothing checks them, and no data is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ...errors import ScratchpadFullError
from ...memory_plan import aligned
from ..operators.filled_parameters import fills_pay
from ..operators.lower import Kernel
from ..schedule.tiling import Tiling
from ..walk.emit import Emitter
from ..walk.emit_nest import ITEM_BYTES, DramBuffer
from .compile_kernel import append, generate_in_turn, generate_slice
from .function_program import unchecked_program
from .slices import KernelSlice

Program = tuple[npt.NDArray[np.uint8], int]
"""The bytes of a program, and the offset at which it lies: behind the tensors."""


def kernel_program(kernel: Kernel, config: CoreConfig, rate: DramRate, tiling: Tiling) -> Program:
    """A kernel with this tiling. CompileError where its buffers find no room, or it cannot be scheduled so."""
    rooms = _Rooms(fills_pay(config, rate))
    emitter = Emitter(config)
    append(emitter, [(kernel, rooms.of(kernel), tiling)], 0, None)
    return _finished(emitter, rate, rooms)


def form_program(parts: Sequence[KernelSlice], config: CoreConfig, rate: DramRate, tiling: Tiling | None) -> Program:
    """A layer as these parts, each with this tiling; with None, parts that two engines share, in turns. CompileError
    where buffers find no room."""
    rooms = _Rooms(fills_pay(config, rate))
    emitter = Emitter(config)
    for number, part in enumerate(parts):
        if tiling is not None:
            append(emitter, [(part.kernel, rooms.of(part.kernel), tiling)], number, None)
            continue
        turns = [(each.kernel, rooms.of(each.kernel)) for each in part.turns]
        if generate_in_turn(emitter, turns, rate, layer=number) is None:
            place = f"function {part.kernel.name!r}"
            raise ScratchpadFullError("no tilings of both engines fit side by side", at=place)
    return _finished(emitter, rate, rooms)


def slice_program(part: KernelSlice, config: CoreConfig, rate: DramRate, threads: int) -> Program:
    """A part of a function as it is compiled where layers come before it. Raises as ``compile_kernel.generate``."""
    rooms = _Rooms(fills_pay(config, rate))
    emitter = Emitter(config)
    generate_slice(
        emitter, part, lambda each: rooms.of(each.kernel), threads=threads, rate=rate, layer=0, dump=None, first=False
    )
    return _finished(emitter, rate, rooms)


def _finished(emitter: Emitter, rate: DramRate, rooms: _Rooms) -> Program:
    _, program = unchecked_program(emitter.config, rate, emitter.rows)
    return program, rooms.end


@dataclass
class _Rooms:
    """Room for the tensors of kernels, one after the other. ``filled``: loads fill in entries of parameters."""

    filled: bool
    end: int = 0

    def of(self, kernel: Kernel) -> Mapping[str, DramBuffer]:
        constants = {tensor.name for tensor, _ in kernel.constants}
        places = {}
        for tensor in (*kernel.inputs, kernel.output):
            pitch = kernel.pitch_of(tensor.name)
            places[tensor.name] = DramBuffer(
                self.end, tensor.name in constants, kernel.kept_of(tensor.name), pitch, kernel.records_of(tensor.name),
                kernel.filled_of(tensor.name) if self.filled else None,
            )  # fmt: skip
            self.end += aligned(prod(tensor.shape) * ITEM_BYTES[tensor.dtype] * pitch)
        return places
