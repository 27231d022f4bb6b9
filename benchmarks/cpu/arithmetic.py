"""The most multiply-adds of float32 that one thread of this processor does in a second, in registers alone.

python benchmarks/cpu/arithmetic.py
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from functools import cache
from pathlib import Path

from weft.sim.cpp_compiler import run_compiler

SOURCE = """
#ifdef __AVX512F__
typedef float Lanes __attribute__((vector_size(64)));
#else
typedef float Lanes __attribute__((vector_size(32)));
#endif
extern "C" double multiply_adds(long turns) {
    Lanes zero = {}, factor = zero + 0.5f, addend = zero + 1.0f, sums[12];
    for (int i = 0; i < 12; ++i) sums[i] = factor + float(i);
    for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; ++i) sums[i] = sums[i] * factor + addend;
    }
    double result = 0;
    for (int i = 0; i < 12; ++i) result += sums[i][0];
    return turns * 12.0 * (sizeof(Lanes) / sizeof(float)) + 1e-30 * result;
}
"""
"""Twelve sums that do not wait for each other: processors have two units, with a latency of four or five cycles."""


@cache
def _loop() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "arithmetic.cpp", Path(folder) / "arithmetic.so"
        source.write_text(SOURCE)
        run_compiler(["-O3", "-march=native", "-shared", "-fPIC", "-w", "-o", str(library), str(source)])
        loaded = ctypes.CDLL(str(library))
    loaded.multiply_adds.restype = ctypes.c_double
    loaded.multiply_adds.argtypes = [ctypes.c_long]
    return loaded


def multiply_adds_a_second(rounds: int = 20) -> float:
    """The fastest of some rounds, in seconds of the thread."""
    best = 0.0
    for _ in range(rounds):
        started = time.thread_time()
        done = float(_loop().multiply_adds(1_000_000))
        best = max(best, done / (time.thread_time() - started))
    return best


if __name__ == "__main__":
    print(f"{multiply_adds_a_second() / 1e9:.1f} x 10^9 multiply-adds of float32 a second in one thread")
