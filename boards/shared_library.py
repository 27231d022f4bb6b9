"""From object files to a shared library for a board's processor.

The objects call nothing but the C library and two of its neighbours, which are there when the library is loaded; so
linking needs no files of the board, only a linker that knows its processor: GNU's, or LLVM's for all.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from ..cache import cache_key, kept, working_folder
from ..runtime.errors import DeviceError

LLVM_LINKER = "ld.lld"


@dataclass(frozen=True)
class BoardProcessor:
    """A processor that boards have: ``name`` is the compiler's; ``linker`` GNU's, from ``package``; ``emulation`` what
    linkers call it."""

    name: str
    linker: str
    package: str
    emulation: str


PROCESSORS = {
    # Floats of one value at a time on the 32-bit one: its vectors would take the smallest numbers as 0.
    "armv7l": BoardProcessor(
        "armv7a-ieee", "arm-linux-gnueabihf-ld", "binutils-arm-linux-gnueabihf", "armelf_linux_eabi"
    ),
    "aarch64": BoardProcessor("aarch64", "aarch64-linux-gnu-ld", "binutils-aarch64-linux-gnu", "aarch64linux"),
    "x86_64": BoardProcessor("host", "ld", "binutils", "elf_x86_64"),  # a virtual board, on this machine
}
"""By the kernel's name for the machine."""


def processor_of(machine: str) -> BoardProcessor:
    """The processor of a board that calls its machine so; :class:`DeviceError` if we have no code for it."""
    if machine not in PROCESSORS:
        raise DeviceError(
            f"there is no machine code for a board with a processor {machine[:40]!r}", hint='set kernels = "host"'
        )
    return PROCESSORS[machine]


def shared_library(objects: Sequence[bytes], processor: BoardProcessor) -> bytes:
    """A shared library of these object files; :class:`DeviceError` if there is no linker, or it refuses them."""
    linker = shutil.which(processor.linker) or shutil.which(LLVM_LINKER)
    if linker is None:
        raise DeviceError(
            f"no linker for the board's processor: neither {processor.linker} nor {LLVM_LINKER}",
            hint=f'apt-get install {processor.package}, or set kernels = "host"',
        )
    told = subprocess.run([linker, "--version"], capture_output=True, text=True, check=False)
    key = cache_key(linker, told.stdout, processor, tuple(objects))
    return kept("cpu", f"{key}.so", lambda: _linked(linker, objects, processor))


def _linked(linker: str, objects: Sequence[bytes], processor: BoardProcessor) -> bytes:
    with working_folder() as folder:
        for number, content in enumerate(objects):
            (folder / f"{number}.o").write_bytes(content)
        files = [f"{number}.o" for number in range(len(objects))]
        command = [linker, "-m", processor.emulation, "-shared", "-Bsymbolic", "-z", "noexecstack", "-s",
                   "-o", "model.so", *files]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise DeviceError(f"{linker} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        return (folder / "model.so").read_bytes()
