"""``weft board virtual``: a board in this machine, for as long as the command runs."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..boards.design import make_design
from ..boards.environments import PYNQ_3, PYNQ_4, PynqVersion
from ..boards.hosts import HOSTS_VARIABLE, Host, hosts_text
from ..boards.loopback import daemon_missing, loopback_daemon
from ..boards.standalone.board import StandaloneBoard, any_board
from ..boards.virtual_files import VirtualBoard, write_virtual_board
from ..hw.config import CoreConfig
from ..progress import progress
from ..runtime.errors import DeviceError
from .app import board_app
from .board import SystemOption, chosen_cores
from .output import err, out


@board_app.command()
def virtual(
    board: Annotated[str, typer.Argument(help="A name that `weft board list` shows, or a .toml file.")],
    name: Annotated[str, typer.Option(help="What it is called: pynq://NAME.")] = "virtual",
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Core: a name, or a JSON file. Default: the board's.")
    ] = None,
    system: SystemOption = None,
    pipe: Annotated[bool, typer.Option("--pipe", help="At a pipe, not behind an ssh daemon of this machine.")] = False,
) -> None:
    """Keep a virtual board until Ctrl-C: real pynq, behind ssh, over the RTL of a core or of a system of cores.

    The first time makes an environment with pynq, from PyPI, and builds the core's simulator: a minute or two. A board
    without a processor is the RTL of its top, pins and all, behind a pseudo-terminal.
    """
    chosen = any_board(board)
    held = chosen_cores(chosen, config, system)
    if isinstance(chosen, StandaloneBoard):
        assert isinstance(held, CoreConfig)  # by chosen_cores
        _keep_terminal(chosen, held, config or held.name)
        return
    design = make_design(chosen, held)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-board-")))
        with progress(f"making a virtual {chosen.name}", err) as status:
            made = write_virtual_board(folder / "board", design, _pynq(chosen.software.pynq), progress=status.update)
            status.update("starting an ssh daemon")
            host = stack.enter_context(_reached(made, name, folder, pipe=pipe))
        hosts = folder / "hosts.toml"
        hosts.write_text(hosts_text([host]))
        what = "core" if system is None else "system"
        out.print(f"{chosen.title} with {what} {held.name}, called pynq://{name}. In another shell:\n", highlight=False)
        out.print(f"    export {HOSTS_VARIABLE}={hosts}", highlight=False, markup=False, soft_wrap=True)
        if system is None:
            out.print(f"    weft board doctor {name}", highlight=False, markup=False)
        named = f"--config {config or held.name}" if system is None else f"--system {system}"
        example = f"    weft run MODEL.onnx {named} --device pynq://{name}"
        out.print(example, highlight=False, markup=False, soft_wrap=True)
        out.print("\nCtrl-C ends it.", highlight=False)
        _wait_for_the_end()
        err.print("the board is gone", highlight=False)


def _keep_terminal(board: StandaloneBoard, core: CoreConfig, config: str) -> None:
    """A board without a processor, until Ctrl-C."""
    from ..boards.standalone.simulated import Terminal, simulated_board  # takes long, and a board may be unknown

    with progress(f"making a virtual {board.name}", err) as status:
        made = simulated_board(board, core, progress=status.update)
    with Terminal(made) as terminal:
        out.print(f"{board.title} with core {core.name}, at {terminal.path}. In another shell:\n", highlight=False)
        run = f"weft run MODEL.onnx --config {config} --device 'serial://{terminal.path}?seconds=60'"
        out.print(f"    {run}", highlight=False, markup=False, soft_wrap=True)
        out.print("\nCtrl-C ends it.", highlight=False)
        _wait_for_the_end()
        err.print("the board is gone", highlight=False)


def _pynq(version: str) -> PynqVersion:
    """The version of pynq that a board's image has, or the newest of its kind that can be installed here."""
    return PYNQ_4 if version.startswith("4") else PYNQ_3


@contextlib.contextmanager
def _reached(made: VirtualBoard, name: str, folder: Path, *, pipe: bool) -> Iterator[Host]:
    """The board behind a daemon of this user, or at a pipe. DeviceError where there is no daemon."""
    if pipe:
        yield made.host(name)
        return
    if missing := daemon_missing():
        raise DeviceError("there is no OpenSSH daemon on this machine", hint=f"{missing}, or --pipe")
    keys = folder / "sshd"
    keys.mkdir()
    with loopback_daemon(keys) as daemon:
        yield daemon.reaches(made.host(name))


def _wait_for_the_end() -> None:
    """Until Ctrl-C, or a polite end from elsewhere."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
