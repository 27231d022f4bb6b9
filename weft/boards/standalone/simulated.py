"""A board in this machine: the Verilog of its top, pins and all, behind a pseudo-terminal."""

from __future__ import annotations

import ctypes
import json
import os
import select
import threading
import tty
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any

from ...cache import cache_key, kept_file, loaded_library
from ...hw.config import CoreConfig
from ...hw.standalone.design import standalone_verilog
from ...hw.standalone.sdram_chip import SdramChip
from ...hw.standalone.settings import LEAST_DIVISOR, Standalone
from ...sim.build import VERILATOR_FLAGS, compile_library, require_tools, signs_header, verilate, verilator_version
from ...sim.cpp_compiler import compiler_flags, compiler_version
from ...sim.errors import SimulationError
from .board import StandaloneBoard
from .family import NETLIST, CoreClock
from .flow import CONFIG_FILE, MANIFEST
from .netlist import cell_models, netlist_verilog
from .top import BOARD_TOP, top_verilog

HARNESS, SDRAM_MODEL = "simulated.cpp", "sdram_model.h"
INOUT_FLAG = "--pins-inout-enables"

IDLE_CYCLES = 200_000
"""Cycles without a byte on the line after which a simulated board sleeps until one comes: the driver of a core that
runs asks all the time."""

STEP_CYCLES = 20_000
"""Cycles between two looks at the line."""

START_CYCLES = 1000
"""Until the reset is over."""

ROOM = 4096


def line_header(board: StandaloneBoard, design: Standalone, clock: CoreClock) -> str:
    """C++ that says how the line is wired."""
    pins = board.pins
    leds = "(top).leds" if pins.leds else "0"
    figures = "" if design.sdram is None else f"#define SDRAM {{{sdram_figures(design.sdram, design.clock_hz)}}}\n"
    return f"""\
constexpr uint64_t kDivisor = {design.divisor * clock.ticks};
constexpr bool kRxInverted = {int(pins.rx.inverted)}, kTxInverted = {int(pins.tx.inverted)};
constexpr bool kResetPressed = {int(not pins.reset.inverted)};
#define RX_PIN rx{"_n" * pins.rx.inverted}
#define TX_PIN tx{"_n" * pins.tx.inverted}
#define LEDS_PIN(top) {leds}
{figures}"""


def sdram_figures(chip: SdramChip, clock_hz: int) -> str:
    """A chip's ``SdramFigures``, as C++ lists them."""
    times = ("rcd", "rp", "ras", "rc", "rrd", "rfc", "wr", "refresh", "startup")
    values = [*(getattr(chip, f"{name}_ns") for name in times), 1e9 / clock_hz]
    return ", ".join(map(str, [chip.row_bits, chip.column_bits, chip.latency, *map(float, values)]))


def board_library(
    board: StandaloneBoard, design: Standalone, clock: CoreClock, *, quick: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:  # fmt: skip
    """The shared library of a board's top; from the cache, if it was built before. ``quick``: without optimisation.
    :class:`~weft.sim.errors.BuildError` says what is missing."""
    require_tools()
    progress(f"{board.name}: writing Verilog")
    verilog = {"logic.v": standalone_verilog(design), "top.v": top_verilog(board, clock)}
    return _library(board, design, clock, verilog, quick, progress)


def netlist_library(
    board: StandaloneBoard, design: Standalone, clock: CoreClock, netlist: Mapping[str, Any], *, quick: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:  # fmt: skip
    """As :func:`board_library`, of the netlist that was made of that board's top with that design."""
    require_tools()
    verilog = {"netlist.v": netlist_verilog(netlist, BOARD_TOP, board.family), "cells.v": cell_models(board.family)}
    return _library(board, design, clock, verilog, quick, progress)


def _library(
    board: StandaloneBoard, design: Standalone, clock: CoreClock, verilog: Mapping[str, str], quick: bool,
    progress: Callable[[str], None],
) -> Path:  # fmt: skip
    verilog = {**verilog, "blocks.v": board.kind.blocks}
    sources = {
        HARNESS: resources.files(__package__).joinpath(HARNESS).read_text(),
        SDRAM_MODEL: resources.files(__package__).joinpath(SDRAM_MODEL).read_text(),
        "line.h": line_header(board, design, clock),
    }

    def build(target: Path) -> None:
        folder = target.parent
        for name, text in (verilog | sources).items():
            (folder / name).write_text(text)
        progress(f"{board.name}: Verilator")
        names = ("--top-module", BOARD_TOP, "--prefix", f"V{BOARD_TOP}")
        verilate((*VERILATOR_FLAGS, INOUT_FLAG, *names), [folder / name for name in verilog], folder)
        progress(f"{board.name}: compiling the RTL model")
        compile_library(sorted(folder.glob("*.cpp")), target, quick=quick)

    key = cache_key(
        verilog,
        sources,
        (*VERILATOR_FLAGS, INOUT_FLAG),
        verilator_version(),
        compiler_flags(),
        compiler_version(),
        signs_header(),
        quick,
    )
    return kept_file("rtl", f"{key}.so", build)


class SimulatedBoard:
    """A board's top with a serial line, in the library that ``library`` finds or builds; nothing happens but in
    :meth:`run`."""

    def __init__(self, library: Callable[[], Path]) -> None:
        self._library = loaded_library(library)
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        self._library.board_new.restype = pointer
        self._library.board_leds.restype = ctypes.c_uint32
        self._library.board_error.restype = ctypes.c_char_p
        for name, arguments in {
            "board_delete": [pointer],
            "board_reset": [pointer, ctypes.c_uint32],
            "board_leds": [pointer],
            "board_error": [pointer],
            "board_run": [pointer, number, ctypes.c_char_p, number, pointer, pointer, number, pointer],
        }.items():
            getattr(self._library, name).argtypes = arguments
        self._board = self._library.board_new()
        self._answers = (ctypes.c_uint8 * ROOM)()
        self._waiting = b""

    def __del__(self) -> None:
        if board := getattr(self, "_board", None):
            self._library.board_delete(board)

    def press_reset(self, pressed: bool) -> None:
        """Press the reset button, or let it go."""
        self._library.board_reset(self._board, pressed)

    @property
    def leds(self) -> int:
        """One bit for each."""
        return int(self._library.board_leds(self._board))

    def run(self, cycles: int, sent: bytes = b"") -> bytes:
        """Let cycles pass, fewer if the board answers; bytes that it sent. ``sent`` goes to it now or later.

        :class:`~weft.sim.errors.SimulationError` for what the board's SDRAM does not allow."""
        self._waiting += sent
        taken, given = ctypes.c_uint64(), ctypes.c_uint64()
        self._library.board_run(
            self._board, cycles, self._waiting, len(self._waiting), ctypes.byref(taken), self._answers, ROOM,
            ctypes.byref(given),
        )  # fmt: skip
        self._waiting = self._waiting[taken.value :]
        if error := self._library.board_error(self._board).decode():
            raise SimulationError(error)
        return bytes(self._answers[: given.value])


class Terminal:
    """A simulated board behind a pseudo-terminal, at work in a thread of its own until :meth:`close`.

    ``path`` is what a program opens in place of a serial port.
    """

    def __init__(self, board: SimulatedBoard) -> None:
        self._board = board
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        self.path = os.ttyname(self._theirs)
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name=f"board at {self.path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; the terminal is gone."""
        os.write(self._wake[1], b".")
        self._thread.join()
        for descriptor in (self._ours, self._theirs, *self._wake):
            os.close(descriptor)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._ours, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        quiet = 0
        while True:
            events = dict(poll.poll(None if quiet >= IDLE_CYCLES else 0))
            if self._wake[0] in events:
                return
            sent = os.read(self._ours, ROOM) if self._ours in events else b""
            answers = self._board.run(STEP_CYCLES, sent)
            quiet = 0 if sent or answers else quiet + STEP_CYCLES
            while answers:
                answers = answers[os.write(self._ours, answers) :]


def simulated_board(
    board: StandaloneBoard, core: CoreConfig | None = None, *, quick: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> SimulatedBoard:  # fmt: skip
    """The RTL of a board's top with a core (default: the board's). Its serial line is as fast as the logic takes it: so
    many cycles are for the core."""
    clock_hz = round(board.core_clock().mhz * 1e6)
    fast = replace(board, baud=clock_hz // LEAST_DIVISOR)
    design, clock = fast.design(core), fast.core_clock()
    made = SimulatedBoard(partial(board_library, fast, design, clock, quick=quick, progress=progress))
    made.run(START_CYCLES)
    return made


def netlist_board(
    board: StandaloneBoard, folder: Path, *, quick: bool = False, progress: Callable[[str], None] = lambda _: None
) -> SimulatedBoard:
    """The netlist that ``weft board build`` placed, in the folder it wrote: cells in place of RTL, and the serial line
    at the rate that was asked for. OSError for a folder without one."""
    manifest = json.loads((folder / MANIFEST).read_text())
    netlist = json.loads((folder / NETLIST).read_text())
    core = CoreConfig.from_json((folder / CONFIG_FILE).read_text())
    clock_hz = round(manifest["clock_mhz"] * 1e6)
    design = Standalone(core, manifest["memory_bytes"], clock_hz, manifest["baud"], board.sdram)
    clock = board.core_clock(manifest["clock_mhz"])
    made = SimulatedBoard(partial(netlist_library, board, design, clock, netlist, quick=quick, progress=progress))
    made.run(START_CYCLES)
    return made
