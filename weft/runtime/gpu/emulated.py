"""A GPU of NVIDIA's that is not there: PTX runs in the interpreter, which refuses what a GPU would get wrong."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...compiler.model import GpuCode, GridCall
from ...sim.ptx import Counts, DeviceMemory, PtxError
from ...sim.ptx import Program as PtxProgram
from ..errors import DeviceError
from .gpu import Array, Launch, Memory, Program, own


class _Bytes:
    """Memory of the interpreted device, which is given back with this object."""

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self.address = memory.allocate(max(1, nbytes))
        weakref.finalize(self, memory.free, self.address)


@dataclass(frozen=True)
class _Launch:
    program: PtxProgram
    call: GridCall
    addresses: tuple[int, ...]
    kept: tuple[Any, ...]  # the memories, so that they live as long as this


class EmulatedGpu:
    """A device of its own for each user; see `Gpu`. What it takes is the interpreter's time, and says nothing of a
    GPU's. ``counted``: whether it also counts what kernels do; ``counts`` has that of all launches, by function."""

    def __init__(self, *, counted: bool = False) -> None:
        self.name = "emulated (NumPy)"
        self.counts: dict[str, Counts] = {}
        self._counted = counted
        self._memory = DeviceMemory()

    def allocate(self, nbytes: int) -> Memory:
        try:
            return Memory(_Bytes(self._memory, nbytes))
        except PtxError as error:
            raise DeviceError(error.message) from error

    def write(self, memory: Memory, offset: int, data: Array) -> None:
        self._memory.write(_address(memory) + offset, data)

    def read(self, memory: Memory, offset: int, data: Array) -> None:
        self._memory.read(_address(memory) + offset, data)

    def copy(self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int) -> None:
        data = np.empty(nbytes, np.uint8)
        self.read(source, source_offset, data)
        self.write(target, target_offset, data)

    def load(self, code: GpuCode) -> Program:
        if code.language != "ptx":
            raise DeviceError(f"the model is compiled to {code.language}, but the emulated device takes PTX")
        return Program(PtxProgram(code.text, self._memory))

    def prepare(self, program: Program, call: GridCall, arguments: Sequence[tuple[Memory, int]]) -> Launch:
        addresses = tuple(_address(memory) + offset for memory, offset in arguments)
        return Launch(_Launch(_of(program, PtxProgram), call, addresses, tuple(memory for memory, _ in arguments)))

    def joined(self, launches: Sequence[Launch]) -> None:
        """Each is launched by itself."""

    def launch(self, launch: Launch) -> None:
        made = _of(launch, _Launch)
        call = made.call
        try:
            counts = made.program.launch(call.function, call.groups, (call.threads,), made.addresses,
                                         dynamic_shared=call.shared, counted=self._counted)  # fmt: skip
        except PtxError as error:
            raise DeviceError(f"{call.function}: {error}") from error
        if self._counted:
            self.counts.setdefault(call.function, Counts()).add(counts)

    def timed(self, launch: Launch) -> float:
        started = time.perf_counter()
        self.launch(launch)
        return time.perf_counter() - started

    def synchronise(self) -> None:
        """All is done when it was asked."""


def _address(memory: Memory) -> int:
    return _of(memory, _Bytes).address


_of = partial(own, whose="the emulated device")
