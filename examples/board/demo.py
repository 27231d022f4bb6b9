"""Two networks on a virtual PYNQ-Z2, which the host reaches as a real one: over ssh, with the real pynq behind it.

The board's logic is the RTL of the core in Verilator, its pynq is 3.1.2 unmodified, and the ssh daemon is this
machine's own on the loopback address. The exit status says whether all results are those of device ``rtl``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import weft
from rich.console import Console
from rich.table import Table
from weft.boards.board import find_board
from weft.boards.design import make_design
from weft.boards.device import PynqDevice
from weft.boards.environments import PYNQ_3
from weft.boards.hosts import Host
from weft.boards.loopback import daemon_missing, loopback_daemon
from weft.boards.virtual_files import write_virtual_board
from weft.compiler.model import CompiledModel
from weft.errors import WeftError
from weft.hw.config import CoreConfig
from weft.progress import progress
from weft.runtime.module import LoadedModule

from examples.models.build import build
from examples.models.images import images

BOARD = "pynq-z2"
DIGITS = Path(__file__).parents[1] / "digits" / "digits.onnx"
DIGITS_IMAGES, RESNET_SIZE = 5, 64

Array = npt.NDArray[np.float32]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """What a model did on the board, and on ``rtl``."""

    name: str
    images: int
    integers: int
    unequal: int
    board_cycles: tuple[int | None, ...]
    rtl_cycles: tuple[int | None, ...]
    first_seconds: float
    """From the start of the connection to the first result."""

    @property
    def good(self) -> bool:
        return not self.unequal and self.board_cycles == self.rtl_cycles and None not in self.board_cycles


def digits_images() -> Array:
    """Some 8x8 images of handwritten digits, each a batch of one."""
    from sklearn.datasets import load_digits

    return (load_digits().images[:DIGITS_IMAGES, None, None] / 16).astype(np.float32)


def core_integers(model: CompiledModel, module: LoadedModule, image: Array) -> dict[str, npt.NDArray[np.generic]]:
    """All that the core hands over, packed, and the model's results."""
    core = {name for step in model.programs for name in step.outputs}
    wanted = core | {tensor.name for tensor in model.outputs}
    return {name: value for name, value in module.run(image, keep=True).items() if name in wanted}


def compare(name: str, model: CompiledModel, host: Host, inputs: Array, report: Report) -> Comparison:
    """Run all inputs on the board and on the RTL in this process."""
    started = time.monotonic()
    report(f"{name}: connecting to the board")
    board = weft.load(model, PynqDevice(model.config, host=host, progress=report))
    rtl = weft.load(model, "rtl", progress=report)
    first = 0.0
    integers = unequal = 0
    cycles: list[tuple[int | None, int | None]] = []
    for number, image in enumerate(inputs, start=1):
        report(f"{name}: image {number} of {len(inputs)} on the board")
        got = core_integers(model, board, image)
        first = first or time.monotonic() - started
        report(f"{name}: image {number} of {len(inputs)} on rtl")
        expected = core_integers(model, rtl, image)
        integers += sum(value.size for value in expected.values())
        unequal += sum(int(np.count_nonzero(got[each] != value)) for each, value in expected.items())
        cycles.append((board.cycles, rtl.cycles))
    board.close()
    ours, theirs = zip(*cycles, strict=True)
    return Comparison(name, len(inputs), integers, unequal, ours, theirs, first)


@contextmanager
def virtual_host(folder: Path, core: CoreConfig, console: Console, report: Report) -> Iterator[Host]:
    """The board behind a daemon; through a pipe where there is no daemon, which is said."""
    (folder / "sshd").mkdir()
    report(f"making a virtual {BOARD}: pynq {PYNQ_3.version}, the core's RTL")
    board = write_virtual_board(folder / "board", make_design(find_board(BOARD), core), PYNQ_3, progress=report)
    if missing := daemon_missing():
        console.print(f"NOT over ssh: no OpenSSH daemon is installed ({missing}); the board is at a pipe instead")
        yield board.host("z2")
        return
    with loopback_daemon(folder / "sshd") as daemon:
        console.print(f"ssh daemon at 127.0.0.1, port {daemon.port}, ends with this command")
        yield daemon.reaches(board.host("z2"))


def print_comparisons(console: Console, found: list[Comparison]) -> None:
    table = Table(title=f"virtual {BOARD}: pynq {PYNQ_3.version} over the core's RTL, against device rtl")
    for column in ("model", "images", "values compared", "unequal", "cycles on the board", "on rtl", "first result"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for each in found:
        table.add_row(
            each.name, f"{each.images}", f"{each.integers:,}", f"{each.unequal}",
            *(", ".join(f"{count:,}" if count else "-" for count in dict.fromkeys(cycles))
              for cycles in (each.board_cycles, each.rtl_cycles)), f"{each.first_seconds:.1f} s",
        )  # fmt: skip
    console.print(table)
    for each in found:
        verdict = "the integers and the cycles are those of rtl" if each.good else "DIFFERENT from rtl"
        console.print(f"{each.name}: {verdict}")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    core = find_board(BOARD).default_core
    started = time.monotonic()
    found: list[Comparison] = []
    with (
        tempfile.TemporaryDirectory(prefix="weft-board-") as name,
        progress("set-up") as shown,
        virtual_host(Path(name), core, console, shown.update) as host,
    ):
        ready = time.monotonic()
        digits = weft.compile(DIGITS, core, progress=lambda text: shown.update(f"digits: {text}"))
        found.append(compare("digits", digits, host, digits_images(), shown.update))
        path = build("resnet18", size=RESNET_SIZE, report=lambda text: shown.update(f"resnet18: {text}"))
        resnet = weft.compile(path, core, progress=lambda text: shown.update(f"resnet18: {text}"))
        network = f"resnet18 at {RESNET_SIZE}x{RESNET_SIZE}"
        found.append(compare(network, resnet, host, images(1, RESNET_SIZE)[None], shown.update))
    print_comparisons(console, found)
    console.print(f"{time.monotonic() - started:.0f} s, of these {ready - started:.0f} s to set up the board")
    return 0 if all(each.good for each in found) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WeftError as error:
        sys.exit(f"error: {error}")
