"""Compiles the timing model (``timing.cpp``) once for each version of its sources, into the user's cache folder."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources
from pathlib import Path

from ..cache import cache_key, kept_file, loaded_library
from .cpp_compiler import compiler_flags, compiler_version, run_compiler
from .timing_interface import INTERFACE, interface_header

SOURCE = "timing.cpp"
HEADERS = (
    "timing.h",
    "timing_memory.h",
    "timing_control.h",
    "timing_compute.h",
    "timing_transfer.h",
    "timing_core.h",
    "timing_port.h",
    "timing_rendezvous.h",
    "timing_shared.h",
    "timing_relay.h",
    "timing_system.h",
    "dram_banks.h",
)


@cache
def timing_library() -> ctypes.CDLL:
    """The compiled model; takes some seconds the first time. :class:`BuildError` if there is no C++ compiler."""
    texts = {name: resources.files(__package__).joinpath(name).read_text() for name in (SOURCE, *HEADERS)}
    texts[INTERFACE] = interface_header()
    flags = [*compiler_flags(), "-O3"]

    def build(library: Path) -> None:
        for name, text in texts.items():
            (library.parent / name).write_text(text)
        run_compiler([*flags, "-shared", "-o", str(library), str(library.parent / SOURCE)])

    key = f"{cache_key(flags, texts, compiler_version())}.so"
    loaded = loaded_library(lambda: kept_file("timing", key, build))
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
    loaded.weft_timing_predict_shared.restype = ctypes.c_int64
    loaded.weft_timing_predict_shared.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_int64,
        ctypes.c_int32,
        *[ctypes.c_void_p] * 6,
    ]
    loaded.weft_dram_serve.restype = ctypes.c_void_p
    loaded.weft_dram_serve.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    loaded.weft_dram_delete.restype = None
    loaded.weft_dram_delete.argtypes = [ctypes.c_void_p]
    loaded.weft_timing_shared_delete.restype = None
    loaded.weft_timing_shared_delete.argtypes = [ctypes.c_void_p]
    for name, numbers in (("shared_events", 2), ("shared_activity", 2), ("shared_bus", 1)):
        function = getattr(loaded, f"weft_timing_{name}")
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_void_p, *[ctypes.c_uint64] * numbers, ctypes.c_void_p]
    loaded.weft_timing_delete.restype = None
    loaded.weft_timing_delete.argtypes = [ctypes.c_void_p]
    for name in ("timing_events", "timing_activity", "timing_shared_commands", "dram_commands"):
        function = getattr(loaded, f"weft_{name}")
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return loaded
