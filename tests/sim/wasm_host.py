"""The module of :mod:`weft.sim.wasm` in wasmtime: what runs in a browser, called from Python."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import wasmtime
from weft.hw.config import CoreConfig
from weft.hw.isa import Fault
from weft.hw.memories import Memory
from weft.sim.dram import DramModel
from weft.sim.functional_interface import MEMORIES, FunctionalResult, describe_functional_core
from weft.sim.result import ACTIVITY, EVENT, FaultRecord, RunResult
from weft.sim.timing_interface import Result, describe_core
from weft.sim.timing_ports import CYCLE_LIMIT, in_order, result_of
from weft.sim.wasm import wasm_module

ENGINE = wasmtime.Engine()


@cache
def compiled() -> wasmtime.Module:
    """The module as machine code of this processor."""
    return wasmtime.Module(ENGINE, wasm_module())


class Instance:
    """One instance, with a memory of its own."""

    def __init__(self, module: wasmtime.Module | None = None) -> None:
        """``module``: instead of the simulators'."""
        self.store = wasmtime.Store(ENGINE)
        self.exports = wasmtime.Instance(self.store, module or compiled(), []).exports(self.store)

    def call(self, name: str, *arguments: float) -> Any:
        """An exported function."""
        return self.exports[name](self.store, *arguments)

    def place(self, content: bytes) -> int:
        """Address of a copy of these bytes."""
        address = self.call("weft_allocate", len(content)) & 0xFFFF_FFFF
        self.exports["memory"].write(self.store, content, address)
        return int(address)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of its memory."""
        return bytes(self.exports["memory"].read(self.store, address, address + size))


def wasm_predict(
    config: CoreConfig, code: npt.NDArray[np.uint8], dram: DramModel, *, offset: int = 0, trace: bool = False
) -> RunResult | None:
    """As `weft.sim.timing.predict`; None where the program does not end."""
    instance = Instance()
    size = ctypes.sizeof(Result)
    result = instance.place(bytes(size))
    core, program = instance.place(bytes(describe_core(config, dram))), instance.place(code.tobytes())
    count = len(code) // config.instruction_bytes
    machine = instance.call("weft_timing_predict", core, program, count, offset, CYCLE_LIMIT, int(trace), 0, result)
    found = Result.from_buffer_copy(instance.read(result, size))
    if found.cycles < 0:
        return None
    records = []
    for name, dtype in (("events", EVENT), ("activity", ACTIVITY)):
        first = instance.place(bytes(4))
        number = instance.call(f"weft_timing_{name}", machine, first)
        start = int.from_bytes(instance.read(first, 4), "little")
        records.append(np.frombuffer(instance.read(start, number * dtype.itemsize), dtype))
    return replace(result_of(config, found), trace=in_order(*records) if trace else None)


class WasmSimulator:
    """The functional simulator as WebAssembly, as `fuzz_compare` takes simulators."""

    def __init__(self, config: CoreConfig, memory_bytes: int) -> None:
        self.config = config
        self.dram = np.zeros(memory_bytes, np.uint8)
        self.bus_errors: object = None
        self._scratchpads: dict[Memory, npt.NDArray[Any]] = {}

    def write_scratchpad(self, memory: Memory, values: npt.NDArray[Any]) -> None:
        self._scratchpads[memory] = values.copy()

    def read_scratchpad(self, memory: Memory) -> npt.NDArray[Any]:
        return self._scratchpads[memory].copy()

    def run(self, offset: int, count: int, *, window_start: int = 0, window_bytes: int | None = None) -> RunResult:
        """One run in an instance of its own."""
        config, instance = self.config, Instance()
        size = len(self.dram) - window_start if window_bytes is None else window_bytes
        window = slice(window_start, window_start + size)
        core = instance.place(bytes(describe_functional_core(config)))
        bytes_at = instance.place(self.dram[window].tobytes())
        result_at = instance.place(bytes(ctypes.sizeof(FunctionalResult)))
        machine = instance.call("weft_functional_create", core, bytes_at, size)
        pads = {each: instance.call("weft_functional_scratchpad", machine, MEMORIES.index(each)) for each in MEMORIES}
        for memory, values in self._scratchpads.items():
            instance.exports["memory"].write(instance.store, values.tobytes(), pads[memory])
        instance.call("weft_functional_run", machine, offset, count, result_at)
        for memory, old in self._scratchpads.items():
            new = np.frombuffer(instance.read(pads[memory], old.nbytes), old.dtype)
            self._scratchpads[memory] = new.reshape(old.shape).copy()
        self.dram[window] = np.frombuffer(instance.read(bytes_at, size), np.uint8)
        found = FunctionalResult.from_buffer_copy(instance.read(result_at, ctypes.sizeof(FunctionalResult)))
        fault = FaultRecord(Fault(found.fault), found.engine, found.number) if found.fault else None
        return RunResult(cycles=None, fault=fault, bytes_read=found.bytes_read, bytes_written=found.bytes_written)
