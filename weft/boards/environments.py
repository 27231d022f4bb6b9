"""Python environments with the real ``pynq``, for virtual boards: made on first use, kept in the user's cache folder.

weft itself cannot share them: pynq wants a NumPy older than weft's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..cache import cache_folder, cache_key, locked
from ..runtime.errors import DeviceError

NEWEST_PYTHON = (3, 12)
"""The newest Python for which pynq's dependencies have wheels."""


@dataclass(frozen=True)
class PynqVersion:
    """A version of pynq, and what else has to be said to pip."""

    version: str
    others: tuple[str, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"pynq=={self.version}", *self.others)


PYNQ_3 = PynqVersion("3.1.2", ("pycparser<3",))
"""The last one for Zynq-7000 (PYNQ-Z1, PYNQ-Z2). What it imports is gone from newer pycparsers."""

PYNQ_4 = PynqVersion("4.0.0")
"""For UltraScale+."""


def pynq_python(pynq: PynqVersion, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The Python of an environment with this pynq. The first call takes half a minute and needs PyPI.

    :class:`DeviceError` says what pip said if that fails.
    """
    base = _base_python()
    origin = f"{sys.base_prefix} {sys.version}" if base == Path(sys.executable) else str(base)
    key = cache_key(*pynq.requirements, origin)[:12]
    folder = cache_folder("environments") / f"pynq-{pynq.version}-{key}"
    python = folder / "bin" / "python"

    def make() -> None:
        progress(f"making an environment with pynq {pynq.version}: half a minute, once")
        _run([str(base), "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
              *pynq.requirements])  # fmt: skip
        _run([str(python), "-W", "ignore", "-c", "import pynq"])

    made_once(folder, make)
    return python


def made_once(folder: Path, make: Callable[[], None]) -> None:
    """Let ``make`` fill a folder unless that was done before, to its end; one process at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready"
    if ready.exists():
        return
    with locked(folder):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what an interrupted call has left
            make()
            ready.touch()


def _base_python() -> Path:
    """A Python that pynq can be installed for: this one, or a slightly older one."""
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return Path(sys.executable)
    for minor in range(NEWEST_PYTHON[1], 9, -1):
        if found := shutil.which(f"python3.{minor}"):
            return Path(found)
    raise DeviceError("pynq needs Python 3.10 to 3.12, and there is none here", hint="apt install python3.11-venv")


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise DeviceError(f"{' '.join(command[1:4])} failed: {' | '.join(lines[-3:])}", hint="is PyPI in reach?")
