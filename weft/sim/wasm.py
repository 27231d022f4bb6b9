"""The simulators as WebAssembly: the timing model from the very sources that run natively, and the functional simulator
in C++. The module imports nothing.

It is made by the C++ compiler of the package ``ziglang`` (``pip install weft[browser]``), once for each version of the
sources, and kept in the user's cache folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from tempfile import TemporaryDirectory

from ..cache import cache_key, kept
from .errors import BuildError
from .functional_interface import FUNCTIONAL_INTERFACE, functional_header
from .timing_interface import INTERFACE, interface_header
from .timing_library import HEADERS, SOURCE

SOURCES = (SOURCE, "functional.cpp", "wasm_runtime.cpp")

EXPORTS = (
    "weft_allocate",
    "weft_timing_predict",
    "weft_timing_events",
    "weft_timing_activity",
    "weft_functional_create",
    "weft_functional_scratchpad",
    "weft_functional_run",
)
"""Functions that a host may call; the module's memory is exported as ``memory``."""

COMPILER_FLAGS = (
    "-target",
    "wasm32-wasi",  # for the headers; nothing of WASI is linked
    "-std=c++17",
    "-O3",
    "-fno-exceptions",
    "-fno-rtti",
    "-mbulk-memory",
    "-c",
)
MEMORY_FLAGS = ("--no-entry", "--strip-all", "-z", "stack-size=1048576")
LINKER_FLAGS = (*MEMORY_FLAGS, *(f"--export={name}" for name in EXPORTS))

MAGIC = b"\0asm"

RUNTIME = "wasm_runtime.cpp"


def wasm_module() -> bytes:
    """The module; takes some seconds the first time. :class:`BuildError` if its compiler is missing."""
    version = zig_version()
    texts = {name: resources.files(__package__).joinpath(name).read_text() for name in (*SOURCES, *HEADERS)}
    texts |= {INTERFACE: interface_header(), FUNCTIONAL_INTERFACE: functional_header()}

    def build() -> bytes:
        with TemporaryDirectory(prefix="weft-wasm-") as name:
            return _built(Path(name), texts)

    key = f"{cache_key(COMPILER_FLAGS, LINKER_FLAGS, texts, version)}.wasm"
    return kept("wasm", key, build, accept=lambda content: content.startswith(MAGIC))


def linked_module(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """A module of object files of WebAssembly, with ``weft_allocate`` for the memory that its functions work on. It
    imports nothing; :class:`BuildError` where the objects need more than is there."""
    version = zig_version()
    text = resources.files(__package__).joinpath(RUNTIME).read_text()

    def build() -> bytes:
        with TemporaryDirectory(prefix="weft-wasm-") as name:
            folder = Path(name)
            (folder / RUNTIME).write_text(text)
            _zig(folder, "c++", *COMPILER_FLAGS, "-o", f"{RUNTIME}.o", RUNTIME)
            files = [f"{number}.o" for number in range(len(objects))]
            for file, content in zip(files, objects, strict=True):
                (folder / file).write_bytes(content)
            flags = (*MEMORY_FLAGS, *(f"--export={export}" for export in ("weft_allocate", *exports)))
            _zig(folder, "wasm-ld", *flags, "-o", "module.wasm", f"{RUNTIME}.o", *files)
            return (folder / "module.wasm").read_bytes()

    key = f"{cache_key(COMPILER_FLAGS, MEMORY_FLAGS, text, version, list(objects), list(exports))}.wasm"
    return kept("wasm", key, build, accept=lambda content: content.startswith(MAGIC))


def zig_version() -> str:
    """The version of the compiler; BuildError where there is none, which is best told before any work."""
    try:
        return metadata.version("ziglang")
    except metadata.PackageNotFoundError as error:
        raise BuildError(
            "the simulators cannot be compiled to WebAssembly: the package ziglang is missing",
            hint="pip install 'weft[browser]'",
        ) from error


def _built(folder: Path, texts: dict[str, str]) -> bytes:
    """The module of these sources, compiled in a folder of its own."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    for source in SOURCES:
        _zig(folder, "c++", *COMPILER_FLAGS, "-o", f"{source}.o", source)
    _zig(folder, "wasm-ld", *LINKER_FLAGS, "-o", "module.wasm", *(f"{source}.o" for source in SOURCES))
    return (folder / "module.wasm").read_bytes()


def _zig(folder: Path, *arguments: str) -> None:
    # Its own caches would stay in the user's home, without a limit.
    caches = {f"ZIG_{each}_CACHE_DIR": str(folder / each.lower()) for each in ("GLOBAL", "LOCAL")}
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments],
        cwd=folder, env=os.environ | caches, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BuildError(f"zig {arguments[0]} failed:\n{done.stderr.strip()[-2000:]}")
