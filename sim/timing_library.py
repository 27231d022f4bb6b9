"""Compiles the timing model (``timing.cpp``) once for each version of its sources, into the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

from .build import cache_folder, compiler_flags
from .errors import BuildError
from .timing_interface import INTERFACE, interface_header

SOURCE = "timing.cpp"
HEADERS = ("timing.h", "timing_memory.h", "timing_control.h", "timing_compute.h", "timing_transfer.h")

@cache
def timing_library() -> ctypes.CDLL:
    """The compiled model; takes some seconds the first time. :class:`BuildError` if there is no C++ compiler."""
    texts = {name: resources.files(__package__).joinpath(name).read_text() for name in (SOURCE, *HEADERS)}
    texts[INTERFACE] = interface_header()
    flags = [*compiler_flags(), "-O2"]
    key = hashlib.sha256("\0".join([*flags, *texts.values()]).encode()).hexdigest()[:32]
    library = cache_folder() / "timing" / f"{key}.so"
    if not library.exists():
        _compile(texts, flags, library)
    loaded = ctypes.CDLL(str(library))
    loaded.weft_timing_predict.restype = ctypes.c_void_p
    loaded.weft_timing_predict.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_void_p,
    ]
    loaded.weft_timing_delete.restype = None
    loaded.weft_timing_delete.argtypes = [ctypes.c_void_p]
    for name in ("events", "activity"):
        function = getattr(loaded, f"weft_timing_{name}")
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return loaded


def _compile(texts: dict[str, str], flags: list[str], library: Path) -> None:
    """Several processes may do this at once; whoever is last replaces the others' file by an equal one."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(f"the C++ compiler {compiler!r} is not installed", hint="install it: apt install g++")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        made = Path(folder) / library.name
        command = [compiler, *flags, "-shared", "-o", str(made), str(Path(folder) / SOURCE)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise BuildError(f"{compiler} failed on the timing model:\n{result.stderr.strip()[-2000:]}")
        made.replace(library)
