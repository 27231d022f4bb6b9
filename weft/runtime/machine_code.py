"""Object files in this process's memory."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import llvmlite.binding as llvm

MATH_LIBRARY = "libm.so.6"

REACH = 1 << 31
"""Bytes from an instruction of x86-64 to what it names by its distance."""

ROOM = 256 << 20
"""Of the reach, for what is mapped between the look at the memory and the load."""

LIBRARIES = 0x6000_0000_0000
"""Above this address Linux puts libraries, large arrays and new memory, each below the ones before or in gaps."""

MAPS = Path("/proc/self/maps")

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


class MachineCode:
    """Functions of object files, which are in memory for as long as this is held.

    LLVM's quick loader places sections of one object wherever there is room, and ends the process where an instruction
    does not reach from one to another. So on x86-64 it is taken only while all that is mapped lies within reach, which
    ends with more than 2 GB of libraries and arrays, and never on 64-bit ARM. Else the loader is JITLink, which keeps
    an object together and takes some milliseconds for each.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Iterable[str]) -> None:
        """``symbols``: the functions whose addresses will be asked for."""
        llvm.load_library_permanently(MATH_LIBRARY)
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
        load = _by_jit_link if far_apart() else _by_mcjit
        self._held, self._addresses = load(machine, objects, list(symbols))

    def address(self, symbol: str) -> int:
        """Where one of the functions starts."""
        return self._addresses[symbol]


def _by_mcjit(
    machine: llvm.TargetMachine, objects: Sequence[bytes], symbols: list[str]
) -> tuple[object, dict[str, int]]:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for content in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return engine, {symbol: engine.get_function_address(symbol) for symbol in symbols}


def _by_jit_link(
    machine: llvm.TargetMachine, objects: Sequence[bytes], symbols: list[str]
) -> tuple[object, dict[str, int]]:
    builder = llvm.JITLibraryBuilder().add_current_process()
    for content in objects:
        builder.add_object_img(content)
    for symbol in symbols:
        builder.export_symbol(symbol)
    library = builder.link(llvm.create_lljit_compiler(machine, use_jit_link=True), "kernels")
    return library, {symbol: library[symbol] for symbol in symbols}


def far_apart() -> bool:
    """Whether an instruction may not reach all memory that this process is given next, from any of it."""
    if platform.machine() in ("aarch64", "arm64"):
        return True
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        return True
    ranges = [tuple(int(end, 16) for end in line.split(" ", 1)[0].split("-")) for line in lines
              if not line.endswith(("[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"))]  # fmt: skip
    above = [each for each in ranges if each[0] >= LIBRARIES]
    return not above or max(above)[1] - min(above)[0] >= REACH - ROOM
