"""Virtual boards from the host's side: the files that :mod:`.virtual` reads, and a :class:`Host` that reaches one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..hw.config import ISA_VERSION, CoreConfig
from ..hw.register_windows import GROUP_WINDOW, WINDOW_BYTES
from ..hw.registers import MAGIC, Control, Register, Status
from ..sim.build import build_library
from ..sim.dram import BusFault, DramModel
from ..sim.harness import Dram
from ..sim.rtl import BASE_ADDRESS
from . import virtual
from .block_design import INTERRUPTS, block_design
from .design import Design
from .environments import PynqVersion, pynq_python
from .hosts import Host
from .hwh import hwh_text, register_bytes

READS_A_POLL = 500
"""Reads of a register, each of some cycles, that pass when the driver looks at the core's status."""

CYCLES_A_STEP = 2000
"""Cycles that pass at a time while an interrupt is awaited."""

INTERRUPT_DRIVERS = ("uio", "other", "none")
"""Who may have the core's interrupt in the board's kernel; pynq can wait for the first alone."""

MEMORY_BYTES = 64 << 20

BUSY_SECONDS = 300.0
"""The deadline of a virtual board's answers: it shares a processor with whoever waits for it."""

DEFECTS = (
    "no_flush",  # what the host writes never reaches the core's memory
    "only_first_flush",
    "no_invalidate",  # what the core writes never reaches the host
    "no_cma",  # there is no memory to be had
    "hung_memory",  # the memory answers nothing
    "dead_clock",  # from the first start on the core's status never changes
    "wrong_address",  # something else is where the core should be
    "wrong_clock",  # half of the frequency that the design asks for
    "little_cma",  # the kernel has hardly any contiguous memory
    "no_permission",  # the program is not root
    "stuck_register",  # a bit of a setting cannot be set
    "refused_reads",  # the bus answers every read with an error
    "refused_writes",
    "swapped_read_lanes",  # bytes 0 and 1, 2 and 3, ... of what the core reads are exchanged
    "swapped_write_lanes",
    "stuck_read_bit",  # one data line is always 1 when the core reads
    "stuck_write_bit",
    "dead_interrupt",  # the wire from the core to the interrupt controller is always low
    "stuck_interrupt",  # it is always high
    "vanish",  # the board disappears when a program starts
    "silence",  # the board stops answering when a program starts
)
"""What a virtual board can be made to do wrong."""


@dataclass(frozen=True)
class VirtualBoard:
    """A virtual board's files in ``folder``, and the Python that has its pynq."""

    folder: Path
    python: Path

    @property
    def overlay(self) -> Path:
        return self.folder / "weft.bit"

    def repair(self) -> None:
        """Take back all defects; seen by the next link."""
        path = self.folder / "board.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "defects": []}))

    @property
    def command(self) -> tuple[str, ...]:
        """What stands for the board's Python; modules of whoever calls it are none of its business."""
        return (str(self.python), "-I", "-W", "ignore", virtual.__file__ or "", str(self.folder / "board.json"))

    def host(self, name: str = "virtual") -> Host:
        """Reaches the board through a pipe, without ssh."""
        return Host(
            name, overlay=self.overlay, command=("sh", "-c"), sudo=(), python=self.command,
            connect_seconds=BUSY_SECONDS, run_seconds=BUSY_SECONDS,
        )  # fmt: skip


def write_virtual_board(
    folder: Path,
    design: Design,
    pynq: PynqVersion,
    *,
    dram: DramModel | None = None,
    defects: Sequence[str] = (),
    memory_base: int = BASE_ADDRESS,
    memory_bytes: int = MEMORY_BYTES,
    cores: Sequence[CoreConfig] = (),
    idle: bool = False,
    interrupt_driver: str = "uio",
    progress: Callable[[str], None] = lambda _: None,
) -> VirtualBoard:
    """Write all that a virtual board with a design needs: the RTL is built, the environment made, on first use.

    ``cores``: other cores whose overlays the board takes, too. ``idle``: in place of the RTL a core that ends every
    program at once, without results. ``interrupt_driver``: one of :data:`INTERRUPT_DRIVERS`.
    """
    if interrupt_driver not in INTERRUPT_DRIVERS:
        raise ValueError(f"no such driver: {interrupt_driver}")
    if idle and design.cores:
        raise ValueError("an idle board has one core")
    if unknown := set(defects) - set(DEFECTS):
        raise ValueError(f"no such defects: {unknown}")
    folder.mkdir(parents=True, exist_ok=True)
    held = {design.digits: design.held} | {f"{core.hash64:016x}": core for core in cores}
    libraries = {
        digits: "" if idle else str(build_library(each, progress=progress)[0]) for digits, each in held.items()
    }
    model = dram or DramModel.of(design.core)
    spec = {
        "libraries": libraries,
        "idle": idle_registers(design.core) if idle else {},
        "dram_fields": [
            (name, "pointer" if name == "bytes" else "uint64_t") for name, *_ in Dram._fields_
        ],
        "dram": {
            "latency": model.latency, "bytes_per_cycle": model.bytes_per_cycle, "jitter": model.jitter,
            "seed": model.seed, "outstanding": model.outstanding, "reorder": int(model.reorder),
        },
        "memory_base": memory_base,
        "memory_bytes": memory_bytes,
        "arch": design.system.architecture,
        "core_type": design.vlnv.rpartition(":")[0],
        "register_space": register_bytes(design),
        "core_space": WINDOW_BYTES,
        "cores": len(design.cores.cores) if design.cores else 1,
        "group": GROUP_WINDOW,
        "controller_type": block_design(design).cell(INTERRUPTS).vlnv.rpartition(":")[0],
        "raw_interrupt": design.system.raw_interrupt,
        "interrupt_driver": interrupt_driver,
        "cycles_a_step": CYCLES_A_STEP,
        "status": int(Register.STATUS),
        "control": int(Register.CONTROL),
        "start": int(Control.START),
        "running": int(Status.RUNNING),
        "hung": int(BusFault.HUNG),
        "reads_a_poll": 0 if idle else READS_A_POLL,
        "stuck_register": int(Register.PROGRAM_OFFSET),
        "bus_bytes": design.core.bus_bytes,
        "memory_file": str(folder / "meminfo"),
        "lock": str(folder / "lock"),
        "defects": sorted(defects),
    }  # fmt: skip
    (folder / "board.json").write_text(json.dumps(spec, indent=1))
    write_overlay(folder / "weft.bit", design)
    return VirtualBoard(folder, pynq_python(pynq, progress))


def idle_registers(core: CoreConfig) -> dict[int, int]:
    """What the registers of a core say that has always just ended a program."""
    low = (1 << 32) - 1
    return {
        int(Register.MAGIC): MAGIC, int(Register.VERSION): ISA_VERSION, int(Register.HASH_LO): core.hash64 & low,
        int(Register.HASH_HI): core.hash64 >> 32, int(Register.STATUS): int(Status.IDLE | Status.DONE),
    }  # fmt: skip


def write_overlay(bit: Path, design: Design) -> None:
    """A ``.bit`` for virtual boards, with the ``.hwh`` and the manifest of the same design beside it."""
    bit.write_text(f"{virtual.BIT_TEXT}{design.digits}\n")
    bit.with_suffix(".hwh").write_text(hwh_text(design))
    bit.with_suffix(".json").write_text(json.dumps(design.as_dict(), indent=1))
