"""A board that is not there: ``pynq`` sees a device whose registers and memory are the RTL of a core, or of a
system of cores, in Verilator.

    python virtual.py SPEC.json -c CODE
    python virtual.py SPEC.json FILE

runs Python code as a board's Python would, with that device. It needs the real ``pynq``, unmodified, and nothing of
weft; :mod:`.virtual_files` writes SPEC. What differs from a board is said in ``docs/boards-running.md``.

* The processor's view of a buffer and the core's memory are two copies: what is not flushed or invalidated is not seen.
* As on an image with pynq 3.1 or newer, a sync covers the whole buffer, whichever part it is asked for.
* Time passes when the status register is read, some thousand cycles each time, and while an interrupt is awaited.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BIT_TEXT = "weft virtual bitstream "
"""What a ``.bit`` for a virtual board holds, before the hash of the core's configuration."""

PAGE = 4096
GARBAGE = 0xA5
"""What memory holds that nobody has written."""

CLOCKS = {
    0xF800_0108: 20 << 12,  # Zynq-7000: I/O PLL, 1000 MHz as pynq counts
    0xF800_0100: 20 << 12,
    0xF800_0104: 20 << 12,
    **{0xF800_0170 + 16 * number: 2 << 20 | 5 << 8 for number in range(4)},
    0xFF5E_0020: 45 << 8,  # UltraScale+: I/O PLL, 1500 MHz
    0xFF5E_0030: 45 << 8,
    0xFD1A_002C: 45 << 8,
    **{0xFF5E_00C0 + 4 * number: 1 << 24 | 1 << 16 | 15 << 8 for number in range(4)},
}
"""Clock registers of the processing systems, as after boot: PL clocks of 100 MHz."""

WRONG_CLOCKS = {0xF800_0170: 4 << 20 | 5 << 8, 0xFF5E_00C0: 1 << 24 | 1 << 16 | 30 << 8}
"""Registers of a clock of half the frequency that does not take another."""

LITTLE_MEMORY = 1 << 20
"""Bytes of contiguous memory where there is hardly any."""

STUCK_LANE, STUCK_BIT = 2, 0x10

_SIZES = {"pointer": ctypes.c_void_p, "uint64_t": ctypes.c_uint64}


def beside(name: str) -> Any:
    """Another module of this folder; nobody has told this Python of the folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Machine:
    """The RTL with its memory, as the C interface of the simulator's library has it."""

    def __init__(self, library: str, spec: dict[str, Any]) -> None:
        self._library = ctypes.CDLL(library)
        self._library.weft_new.restype = ctypes.c_void_p
        self._library.weft_new.argtypes = [ctypes.c_void_p]
        self._library.weft_read.restype = ctypes.c_uint32
        self._library.weft_read.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._library.weft_write.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
        self._library.weft_wait.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._library.weft_inject.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32]
        self.memory = np.full(spec["memory_bytes"], GARBAGE, np.uint8)
        layout = [(name, _SIZES[kind]) for name, kind in spec["dram_fields"]]
        settings_type = type("Dram", (ctypes.Structure,), {"_fields_": layout})
        base, size = spec["memory_base"], self.memory.size
        self._settings = settings_type(
            **spec["dram"], bytes=self.memory.ctypes.data, size=size, base=base,
            error_start=base, error_stop=base + size,
            error_reads="refused_reads" in spec["defects"], error_writes="refused_writes" in spec["defects"],
        )  # fmt: skip
        self._machine = self._library.weft_new(ctypes.byref(self._settings))

    def read(self, address: int) -> int:
        return int(self._library.weft_read(self._machine, address))

    def write(self, address: int, value: int) -> None:
        self._library.weft_write(self._machine, address, value)

    def wait(self, cycles: int) -> bool:
        """Let cycles pass, fewer if the interrupt pin is high; whether it is."""
        return bool(self._library.weft_wait(self._machine, cycles))

    def inject(self, fault: int) -> None:
        self._library.weft_inject(self._machine, fault, 0, 0)


class IdleMachine:
    """In place of the RTL: a core that ends every program at once and writes nothing, to see what all else costs."""

    def __init__(self, registers: dict[str, int], memory_bytes: int) -> None:
        self._registers = {int(address): value for address, value in registers.items()}
        self.memory = np.full(memory_bytes, GARBAGE, np.uint8)

    def read(self, address: int) -> int:
        return self._registers.get(address, 0)

    def write(self, address: int, value: int) -> None: ...

    def wait(self, cycles: int) -> bool:
        return False  # nobody waits for a program that has ended

    def inject(self, fault: int) -> None: ...


class Memory:
    """Pages of the core's memory: which are in use."""

    def __init__(self, base: int, size: int) -> None:
        self._free = [(base, size)]
        self._used: dict[int, int] = {}

    def take(self, size: int) -> int:
        """Address of so many bytes; RuntimeError in pynq's words if there are none."""
        size = -(-max(size, 1) // PAGE) * PAGE
        for place, (start, length) in enumerate(self._free):
            if length >= size:
                self._free[place] = (start + size, length - size)
                self._used[start] = size
                return start
        raise RuntimeError("Failed to allocate Memory!")

    def give_back(self, address: int) -> None:
        self._free.append((address, self._used.pop(address)))
        merged: list[tuple[int, int]] = []
        for start, length in sorted(each for each in self._free if each[1]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged


WIRES = {"swapped_read_lanes", "swapped_write_lanes", "stuck_read_bit", "stuck_write_bit"}
"""Defects of the data lines between core and memory."""


def swapped(values: Any) -> Any:
    """Bytes, or what belongs to each, with two lanes of the bus exchanged."""
    result = values.copy()
    words = -(-result.size // 2) * 2
    result[0:words:2], result[1:words:2] = values[1:words:2].copy(), values[0:words:2].copy()
    return result


@dataclass(frozen=True)
class Pynq:
    """What the virtual board takes of the installed pynq."""

    buffer: Any
    parser: Any
    metadata: Any


class VirtualBoard:
    """The device as pynq asks for it: registers, buffers, syncs, download. Its base, pynq's own, is there only where it
    runs: see `install`."""

    def __init__(self, spec: dict[str, Any], pynq: Pynq) -> None:
        super().__init__("weft_virtual")  # type: ignore[call-arg]
        self._spec, self._pynq = spec, pynq
        self._defects = defects = set(spec["defects"])
        interrupts = self._interrupts = beside("virtual_interrupt")
        self.name = "virtual"
        self.arch = spec["arch"]
        self.capabilities = {"REGISTER_RW": True}
        self.machine: Machine | IdleMachine | None = None
        self.pages = Memory(spec["memory_base"], spec["memory_bytes"])
        self.clocks = dict(CLOCKS)
        if "wrong_clock" in defects:
            self.clocks |= WRONG_CLOCKS
        self.hosts: dict[int, Any] = {}
        self.synced: dict[int, Any] = {}
        self.frozen: dict[int, int] = {}
        self.core_base = 0
        self.controller_base = 0
        self.flushes = 0
        self.started = False
        wire = True if "stuck_interrupt" in defects else False if "dead_interrupt" in defects else None
        self.interrupt = interrupts.InterruptPath(self._advance, wire)
        interrupts.KernelFiles(spec["raw_interrupt"], spec["interrupt_driver"], self.interrupt.uio).install()

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Any:
        return self._pynq.parser(self._pynq.metadata(input=Path(bitfile_name).with_suffix(".hwh")))

    def download(self, bitstream: Any, parser: Any = None) -> None:
        if "no_permission" in self._defects:
            raise OSError("Root permissions required.")  # as pynq says it
        content = Path(bitstream.bitfile_name).read_bytes()
        name = content.decode("ascii", "replace").removeprefix(BIT_TEXT).strip()
        if name not in self._spec["libraries"]:
            raise RuntimeError(f"the configuration logic refuses {bitstream.bitfile_name}")
        with self.interrupt.lock:
            if self._spec["idle"]:
                self.machine = IdleMachine(self._spec["idle"], self._spec["memory_bytes"])
            else:
                self.machine = Machine(self._spec["libraries"][name], self._spec)
            if "hung_memory" in self._defects:
                self.machine.inject(self._spec["hung"])
            self.interrupt.controller = self._interrupts.Controller()
            self.core_base = self._base_of(parser, self._spec["core_type"])
            self.controller_base = self._base_of(parser, self._spec["controller_type"])
        self.post_download(bitstream, parser)  # type: ignore[attr-defined]

    @staticmethod
    def _base_of(parser: Any, kind: str) -> int:
        """Address of the first cell of a type; 0 if there is none."""
        found = [cell["phys_addr"] for cell in parser.ip_dict.values() if kind in str(cell.get("type"))]
        return int(found[0]) if found else 0

    def read_registers(self, address: int, length: int) -> bytes:
        with self.interrupt.lock:
            words = [self._read(address + 4 * word).to_bytes(4, "little") for word in range(-(-length // 4))]
            self.interrupt.settle(self._pin())
        return b"".join(words)[:length]

    def write_registers(self, address: int, data: Any) -> None:
        raw = bytes(data)
        with self.interrupt.lock:
            for place in range(0, len(raw), 4):
                self._write(address + place, int.from_bytes(raw[place : place + 4], "little"))
            self.interrupt.settle(self._pin())

    def _clocked(self) -> Machine | IdleMachine | None:
        """The core, if it has a clock."""
        return None if self.started and "dead_clock" in self._defects else self.machine

    def _pin(self) -> bool:
        """Level of the core's interrupt."""
        core = self._clocked()
        return core is not None and core.wait(0)

    def _advance(self) -> tuple[bool, bool]:
        core = self._clocked()
        stati = [number * self._spec["core_space"] + self._spec["status"] for number in range(self._spec["cores"])]
        runs = core is not None and any(core.read(status) & self._spec["running"] for status in stati)
        return core is not None and core.wait(self._spec["cycles_a_step"] if runs else 0), runs

    def _read(self, address: int) -> int:
        if (there := self._controller_offset(address)) is not None:
            return int(self.interrupt.controller.read(there))
        offset = self._core_offset(address)
        if offset is None:
            return self.clocks.get(address, 0)
        assert self.machine is not None
        if "wrong_address" in self._defects:
            return 0
        is_status = offset % self._spec["core_space"] == self._spec["status"] and offset < self._spec["group"]
        if "dead_clock" in self._defects and self.started:
            if is_status:
                return int(self._spec["running"])
            return self.frozen.setdefault(offset, self.machine.read(offset))
        if is_status:
            for _ in range(self._spec["reads_a_poll"]):
                self.machine.read(offset)
        return self.machine.read(offset)

    def _write(self, address: int, value: int) -> None:
        if (there := self._controller_offset(address)) is not None:
            self.interrupt.controller.write(there, value)
            return
        offset = self._core_offset(address)
        if offset is None:
            if not ("wrong_clock" in self._defects and address in WRONG_CLOCKS):
                self.clocks[address] = value
            return
        of_core = offset % self._spec["core_space"]
        if "stuck_register" in self._defects and of_core == self._spec["stuck_register"]:
            value &= ~(1 << 13)
        assert self.machine is not None
        if of_core == self._spec["control"] and value == self._spec["start"]:
            self.started = True
            if "vanish" in self._defects:
                os._exit(1)
            if "silence" in self._defects:
                time.sleep(3600)
        self.machine.write(offset, value)

    def _core_offset(self, address: int) -> int | None:
        """Byte offset in the registers of the core, or of all cores; None outside of them."""
        if self.machine is not None and 0 <= address - self.core_base < self._spec["register_space"]:
            return address - self.core_base
        return None

    def _controller_offset(self, address: int) -> int | None:
        """Byte offset in the interrupt controller's registers; None outside of them."""
        offset = address - self.controller_base
        return offset if self.machine is not None and 0 <= offset < self._interrupts.Controller.SPACE else None

    def allocate(self, shape: Any, dtype: Any = "u4", **_: Any) -> Any:
        if "no_cma" in self._defects:
            raise RuntimeError("Failed to allocate Memory!")
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = self.pages.take(size)
        host = np.full(size, GARBAGE, np.uint8)
        self.hosts[address] = host
        buffer = self._pynq.buffer(
            shape, dtype, buffer=host.data, device=self, device_address=address, bo=address, coherent=False
        )
        buffer.pointer, buffer.return_to, buffer.memory = address, self, self
        return buffer

    def return_pointer(self, address: int) -> None:
        """What a buffer calls when it is freed."""
        self.pages.give_back(address)
        del self.hosts[address]

    def flush(self, bo: int, offset: int, address: int, size: int) -> None:
        self.flushes += 1
        if "no_flush" in self._defects or ("only_first_flush" in self._defects and self.flushes > 1):
            return
        host, core = self._both(bo)
        core[:] = host
        if "swapped_read_lanes" in self._defects:
            core[:] = swapped(host)
        if "stuck_read_bit" in self._defects:
            core[STUCK_LANE :: self._spec["bus_bytes"]] |= STUCK_BIT
        self.synced[bo] = core.copy()

    def invalidate(self, bo: int, offset: int, address: int, size: int) -> None:
        if "no_invalidate" in self._defects:
            return
        host, core = self._both(bo)
        if not WIRES & self._defects:
            host[:] = core
            return
        written = core != self.synced[bo]  # what was only read is as the processor left it
        values = core.copy()
        if "stuck_write_bit" in self._defects:
            values[STUCK_LANE :: self._spec["bus_bytes"]] |= STUCK_BIT
        if "swapped_write_lanes" in self._defects:
            values, written = swapped(values), swapped(written)
        host[written] = values[written]

    def _both(self, bo: int) -> tuple[Any, Any]:
        """A buffer as the processor and as the core sees it."""
        host = self.hosts[bo]
        assert self.machine is not None
        start = bo - self._spec["memory_base"]
        return host, self.machine.memory[start : start + host.size]


def install(spec: dict[str, Any]) -> Any:
    """Make the board that ``spec`` describes the active device of pynq."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pynq
        from pynq.buffer import PynqBuffer
        from pynqmetadata.frontends import Metadata

        try:
            from pynqmetadata.views.runtime import RuntimeMetadataParser  # pynq 4
        except ImportError:
            from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser

    class VirtualDevice(VirtualBoard, pynq.Device):  # type: ignore[misc, name-defined, unused-ignore]
        """What pynq looks for devices by."""

        _probe_priority_ = 7

        @classmethod
        def _probe_(cls) -> list[Any]:
            return []

    device = VirtualDevice(spec, Pynq(PynqBuffer, RuntimeMetadataParser, Metadata))
    pynq.Device.active_device = device
    return device


def main() -> None:
    """Run what a board's Python would be asked to run."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["WEFT_BOARD_LOCK"] = spec["lock"]
    os.environ["WEFT_BOARD_MEMORY"] = spec["memory_file"]
    contiguous = LITTLE_MEMORY if "little_cma" in spec["defects"] else spec["memory_bytes"]
    Path(spec["memory_file"]).write_text(f"CmaTotal: {contiguous >> 10} kB\nCmaFree: {contiguous >> 10} kB\n")
    user = 1000 if "no_permission" in spec["defects"] else 0
    os.geteuid = lambda: user  # a board's program runs as root
    install(spec)
    what = sys.argv[2:]
    if what[:1] == ["-c"]:
        sys.argv = what[:1] + what[2:]
        exec(compile(what[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = what
        runpy.run_path(what[0], run_name="__main__")


if __name__ == "__main__":
    main()
