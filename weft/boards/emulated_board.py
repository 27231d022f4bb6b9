"""A virtual board whose server runs on the board's own instruction set, under QEMU; pynq and the RTL stay native."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..runtime.errors import DeviceError
from . import proxied_pynq
from .debian_python import EMULATED, debian_python
from .hosts import Host
from .proxied_pynq import SOCKET_VARIABLE
from .virtual_files import VirtualBoard

START_SECONDS = 120.0


@contextmanager
def emulated_board(
    board: VirtualBoard, machine: str, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Host]:
    """Reaches ``board`` through a server on a processor ``machine`` (a key of :data:`.debian_python.EMULATED`), for one
    connection. :class:`DeviceError` if something is missing for that."""
    root = debian_python(machine, progress)
    modules = board.folder / "modules"
    modules.mkdir(exist_ok=True)
    shutil.copyfile(proxied_pynq.__file__, modules / "pynq.py")
    socket = board.folder / "pynq.socket"
    proxy = Path(__file__).with_name("pynq_proxy.py")
    command = [*board.command, str(proxy), str(socket)]
    log = (board.folder / "proxy.log").open("wb")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_SECONDS
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise DeviceError("the process with the real pynq does not start", at=log.name)
            time.sleep(0.05)
        python = EMULATED[machine].command(root, (modules,))
        variables = (f"{SOCKET_VARIABLE}={socket}", f"WEFT_BOARD_LOCK={board.folder / 'lock'}")
        yield replace(board.host(), python=("env", *variables, *python))
    finally:
        process.terminate()
        process.wait(10)
        log.close()
