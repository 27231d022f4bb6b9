"""The boards that a user has: what ``pynq://NAME`` means, from a file in the user's configuration folder.

::

    [z2]                               # pynq://z2
    ssh = "xilinx@192.168.2.99"        # what ssh is called with; by default the name
    overlay = "~/weft/z2/weft.bit"     # the design for it, with its .hwh beside
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..cache import user_folder
from ..runtime.errors import DeviceError
from .link.messages import WAITS

HOSTS_VARIABLE = "WEFT_HOSTS"
"""Names another file."""

KERNELS = ("host", "board")

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,200}")
"""What a board may be called, and what ssh may be called with: nothing that it would take for an option."""

IMAGE_PYTHON = "/usr/local/share/pynq-venv/bin/python3"
"""Where PYNQ images have the Python that knows ``pynq``."""


@dataclass(frozen=True)
class Host:
    """How to reach a board, and what runs there.

    overlay
        The ``.bit`` on this machine; its ``.hwh`` lies beside it.
    ssh, ssh_options
        Destination and further options of OpenSSH.
    command
        Runs in place of ssh, with the remote command as its last argument: for boards behind something else, and
        for tests: ``["sh", "-c"]`` runs it on this machine.
    sudo, python
        How the board's Python is called. ``sudo = []`` for who logs in as root.
    installed
        Path of the program on the board where it was put there by hand; by default it is sent at each connect.
    ip
        Name of the core's cell in the design, if there are several.
    clock_mhz
        Clock to set; by default what the design says.
    connect_seconds, run_seconds
        Deadlines of the link and of one program.
    watchdog
        Cycles without progress after which the core gives up.
    wait
        How the board learns that a program has ended: by looking at the core (``"poll"``), by its interrupt
        (``"interrupt"``, an error where that is of no use), or by the interrupt where there is one (``"auto"``).
    kernels
        Where the steps between programs of the core run: on this machine (``"host"``) or on the board's processor.
    """

    name: str
    overlay: Path | None = None
    ssh: str = ""
    ssh_options: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    sudo: tuple[str, ...] = ("sudo", "-n")
    python: tuple[str, ...] = (IMAGE_PYTHON,)
    installed: str = ""
    ip: str | None = None
    clock_mhz: float | None = None
    connect_seconds: float = 30.0
    run_seconds: float = 30.0
    watchdog: int = 100_000_000
    wait: str = "auto"
    kernels: str = "host"


def hosts_file() -> Path:
    """``$WEFT_HOSTS``, or ``weft/hosts.toml`` in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if own := os.environ.get(HOSTS_VARIABLE):
        return Path(own)
    return user_folder("XDG_CONFIG_HOME", ".config") / "weft" / "hosts.toml"


def find_host(name: str) -> Host:
    """The board of this name; one that the file does not have is called ``name`` by ssh, too.

    :class:`DeviceError` for a name or a file that cannot be.
    """
    if not NAME.fullmatch(name):
        raise DeviceError(
            f"{name!r} is no name of a board", hint="pynq://NAME, such as pynq://z2 or pynq://xilinx@pynq"
        )
    hosts = read_hosts()
    return hosts.get(name) or Host(name, ssh=name)


def no_overlay(host: Host) -> DeviceError:
    """Why there is no overlay of a board: no file of boards, a name that is not in it, or no overlay there."""
    path = hosts_file()
    if not path.exists():
        return DeviceError(
            f"board {host.name!r} is not known: there is no file of boards",
            at=path,
            hint="docs/boards-running.md says what it holds; weft board virtual makes a board and its file",
        )
    if host.name not in (known := read_hosts(path)):
        listed = ", ".join(known) or "none"
        return DeviceError(
            f"board {host.name!r} is not in the file of boards, so nothing says what its overlay is",
            at=path,
            hint=f"known: {listed}",
        )
    return DeviceError(
        f"board {host.name!r} has no overlay",
        at=path,
        hint="weft board build makes one; name its .bit as `overlay` in the file of boards",
    )


def hosts_text(hosts: Sequence[Host]) -> str:
    """A file of boards that :func:`read_hosts` reads as these."""
    usual = Host("")
    lines = []
    for host in hosts:
        lines.append(f"[{json.dumps(host.name)}]")
        for each in fields(Host):
            value = getattr(host, each.name)
            if each.name == "name" or value == getattr(usual, each.name):
                continue
            value = str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            lines.append(f"{each.name} = {json.dumps(value)}")
        lines.append("")
    return "\n".join(lines)


def read_hosts(path: Path | None = None) -> dict[str, Host]:
    """All boards of the file (by default the user's) by name; none if there is no file."""
    path = path or hosts_file()
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"not a file of boards: {error}", at=path) from None
    return {name: _host(name, values, path) for name, values in content.items()}


def _host(name: str, values: Any, path: Path) -> Host:
    place = f"{path}: [{name}]"
    if not NAME.fullmatch(name) or not isinstance(values, dict):
        raise DeviceError("not a board: a table with a simple name", at=place)
    known = {field.name for field in fields(Host)} - {"name"}
    if unknown := sorted(values.keys() - known):
        raise DeviceError(f"unknown setting {unknown[0]!r}", at=place, hint=f"known: {', '.join(sorted(known))}")
    host = Host(name, **{key: _value(key, value, place) for key, value in values.items()})
    if not NAME.fullmatch(host.ssh or name):
        raise DeviceError(f"ssh is {host.ssh!r}, which is no destination", at=place)
    return host if host.ssh else Host(**{**host.__dict__, "ssh": name})


def _value(key: str, value: Any, place: str) -> Any:
    """A setting in its own type."""
    if key == "overlay" and isinstance(value, str):
        try:
            return Path(value).expanduser()
        except RuntimeError:
            raise DeviceError(f"overlay {value!r} is in the home of a user who is not known here", at=place,
                              hint="give the whole path") from None  # fmt: skip
    if key in ("ssh_options", "command", "sudo", "python"):
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list) and all(isinstance(word, str) and "\0" not in word for word in words):
            return tuple(words)
        raise DeviceError(f"{key} must be a list of words", at=place)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in ("clock_mhz", "connect_seconds", "run_seconds") and number and 0 < value < 1e5:
        return float(value)
    if key == "watchdog" and isinstance(value, int) and number and 0 <= value < 1 << 32:
        return value
    if value in {"kernels": KERNELS, "wait": WAITS}.get(key, ()):
        return value
    if key in ("ssh", "installed", "ip") and isinstance(value, str) and "\0" not in value:
        return value
    raise DeviceError(f"{key} cannot be {value!r}", at=place)
