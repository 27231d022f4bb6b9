"""Debian's Python and NumPy for a processor of boards, run by QEMU: what stands for a board's own Python in tests.

The packages come from where this machine's apt gets its own, and are unpacked into the user's cache folder on first
use; nothing is installed, and apt's own lists are not touched. QEMU's speed says nothing of a board's. Debian 12 was
tried.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..cache import cache_folder, cache_key
from ..runtime.errors import DeviceError
from .environments import made_once

SOURCES_VARIABLE = "WEFT_APT_SOURCES"
"""Names a file of apt's sources, ``*.list`` or ``*.sources``, for a machine whose own have no packages for ARM."""

PACKAGES = ("python3-numpy",)


@dataclass(frozen=True)
class Emulated:
    """A processor: Debian's names for it, and QEMU's for the one on the boards."""

    machine: str
    architecture: str
    triple: str
    emulator: str
    cpu: str

    def command(self, root: Path, folders: tuple[Path, ...] = ()) -> tuple[str, ...]:
        """What stands for the board's Python, with ``root`` as made by :func:`debian_python`; ``folders`` hold modules
        that it finds."""
        libraries = root / "usr" / "lib" / self.triple
        where = [libraries, root / "lib" / self.triple, libraries / "blas", libraries / "lapack"]
        path = [*folders, root / "usr" / "lib" / "python3" / "dist-packages"]
        return (
            self.emulator, "-cpu", self.cpu, "-L", str(root),
            "-E", f"LD_LIBRARY_PATH={':'.join(map(str, where))}", "-E", f"PYTHONHOME={root / 'usr'}",
            "-E", f"PYTHONPATH={':'.join(map(str, path))}", "-E", "OPENBLAS_NUM_THREADS=1",
            str(root / "usr" / "bin" / "python3"), "-B",
        )  # fmt: skip


EMULATED = {
    each.machine: each
    for each in (
        Emulated("armv7l", "armhf", "arm-linux-gnueabihf", "qemu-arm", "cortex-a9"),
        Emulated("aarch64", "arm64", "aarch64-linux-gnu", "qemu-aarch64", "cortex-a53"),
    )
}


def emulation_missing(machine: str) -> str:
    """What has to be installed to run programs for a processor; empty if all is there."""
    needs = {EMULATED[machine].emulator: "qemu-user", "apt-get": "apt", "dpkg-deb": "dpkg"}
    missing = sorted({package for program, package in needs.items() if shutil.which(program) is None})
    return f"apt-get install {' '.join(missing)}" if missing else ""


def debian_python(machine: str, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder that stands for the root of a board's file system. The first call fetches 35 MB.

    :class:`DeviceError` says what is missing, or what apt said.
    """
    if missing := emulation_missing(machine):
        raise DeviceError(f"programs for {machine} cannot be run here", hint=missing)
    emulated = EMULATED[machine]
    sources = own_sources()
    origin = cache_key(_system(), "" if sources is None else sources.read_text())[:12]
    root = cache_folder("environments") / f"debian-{emulated.architecture}-{origin}"

    def make() -> None:
        progress(f"fetching Debian's Python and NumPy for {emulated.architecture}: a minute, once")
        for package in _fetched(emulated, root / "apt", sources):
            _run(["dpkg-deb", "--extract", str(package), str(root)])
        shutil.rmtree(root / "apt")
        progress(f"trying Debian's Python for {emulated.architecture}")
        _run([*emulated.command(root), "-c", "import numpy, ctypes, platform; platform.machine()"])

    made_once(root, make)
    return root


def own_sources() -> Path | None:
    """The file that :data:`SOURCES_VARIABLE` names; :class:`DeviceError` if it is not there."""
    name = os.environ.get(SOURCES_VARIABLE)
    if not name:
        return None
    path = Path(name).absolute()
    if not path.is_file():
        raise DeviceError(f"{SOURCES_VARIABLE} names no file", at=path)
    return path


def _system() -> str:
    """Name and version of this machine's distribution: packages of another one are others."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{release.get('ID')} {release.get('VERSION_ID')}"


def _fetched(emulated: Emulated, folder: Path, sources: Path | None) -> list[Path]:
    """The packages and all that they need, as files; apt works in ``folder`` alone, and reads its sources."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed yet
    settings = {
        "APT::Architecture": emulated.architecture, "APT::Architectures": emulated.architecture,
        "APT::Install-Recommends": "false", "APT::Sandbox::User": "", "Acquire::Languages": "none",
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "true", "DPkg::Post-Invoke": "", "APT::Update::Post-Invoke": "", "Acquire::Retries": "3",
    }  # fmt: skip
    if sources is not None:
        settings |= {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-"}
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    try:
        _run([*apt, "update"])
        refused = ""
    except DeviceError as error:  # one source of several that has nothing for this processor, or is being changed
        refused = f"; before that, {error.message}"
    try:
        _run([*apt, "--yes", "--download-only", "install", *PACKAGES])
    except DeviceError as error:
        raise DeviceError(f"{error.message}{refused}", hint=error.hint) from None
    packages = sorted((folder / "cache" / "archives").glob("*.deb"))
    if not packages:
        raise DeviceError("apt-get has fetched nothing", at=folder)
    return packages


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        hint = f"do this machine's sources of apt have packages for ARM? {SOURCES_VARIABLE} names a file of others"
        raise DeviceError(f"{command[0]} failed: {' | '.join(lines[-3:])}", hint=hint)
