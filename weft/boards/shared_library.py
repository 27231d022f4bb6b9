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

ELF_HEADER, ELF_MACHINE = 20, slice(18, 20)
"""Bytes of an object file's header up to the processor's number, and where that stands."""


@dataclass(frozen=True)
class BoardProcessor:
    """A processor that boards have: ``name`` is the compiler's; ``linker`` GNU's, from ``package``; ``emulation`` what
    linkers call it. ``elf``: its number in the header of object files."""

    name: str
    linker: str
    package: str
    emulation: str
    elf: int


PROCESSORS = {
    # Floats of one value at a time on the 32-bit one: its vectors would take the smallest numbers as 0.
    "armv7l": BoardProcessor(
        "armv7a-ieee", "arm-linux-gnueabihf-ld", "binutils-arm-linux-gnueabihf", "armelf_linux_eabi", 40
    ),
    "aarch64": BoardProcessor("aarch64", "aarch64-linux-gnu-ld", "binutils-aarch64-linux-gnu", "aarch64linux", 183),
    "x86_64": BoardProcessor("host", "ld", "binutils", "elf_x86_64", 62),  # a virtual board, on this machine
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
    """A shared library of these object files; :class:`DeviceError` if one is for another processor, and if there is no
    linker, or it refuses them."""
    for content in objects:
        _check_processor(content, processor)
    linker = shutil.which(processor.linker) or shutil.which(LLVM_LINKER)
    if linker is None:
        raise DeviceError(
            f"no linker for the board's processor: neither {processor.linker} nor {LLVM_LINKER}",
            hint=f'apt-get install {processor.package}, or set kernels = "host"',
        )
    told = subprocess.run([linker, "--version"], capture_output=True, text=True, check=False)
    key = cache_key(linker, told.stdout, processor, tuple(objects))
    return kept("cpu", f"{key}.so", lambda: _linked(linker, objects, processor))


def _check_processor(content: bytes, processor: BoardProcessor) -> None:
    """DeviceError for an object file of another processor."""
    header = content[:ELF_HEADER]
    number = int.from_bytes(header[ELF_MACHINE], "little")
    if header[:4] != b"\x7fELF" or number != processor.elf:
        names = {each.elf: machine for machine, each in PROCESSORS.items()}
        found = names.get(number, f"processor {number} of ELF") if header[:4] == b"\x7fELF" else "no processor: no ELF"
        raise DeviceError(
            f"an object file of the model is for {found}, but the board's processor is {names[processor.elf]}",
            hint='compile the model again, or set kernels = "host"',
        )


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
