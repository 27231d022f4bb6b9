"""What this machine's processor and memory can do at most, measured in a second: the roof over a profile's kernels."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from .machine_code import MachineCode

FACTORS = 32
"""Registers that code which only computes reads at most."""

REGISTER = 64
"""Bytes of the largest register."""

ROUNDS = 20_000
REPEATS = 7
SIZES = tuple(1 << bits for bits in (14, 16, 18, 20, 22, 24, 26))
"""Bytes of a buffer that is copied: from the first-level cache to memory."""

COPIED = 1 << 25
"""Bytes that one measurement of a cache reads and writes."""


@dataclass(frozen=True)
class PeakCode:
    """An object file with a function of a number of rounds (int64), a register for each of at most `FACTORS` sums, and
    room for a register. ``operations``: of a round, a multiply-add being two."""

    content: bytes
    symbol: str
    operations: int


@dataclass(frozen=True)
class MachineRoof:
    """``float_gops``: 10^9 operations a second on float32 in registers, a multiply-add being two; ``byte_gops``: on
    bytes, by what the processor multiplies them with. ``gbytes``: for buffers of so many bytes, 10^9 bytes a second
    read and written. All with ``threads`` threads at once."""

    processor: str
    threads: int
    float_gops: float
    byte_gops: float
    gbytes: tuple[tuple[int, float], ...]

    def bandwidth(self, nbytes: int) -> float:
        """10^9 bytes a second, for what moves ``nbytes``: they are in the smallest cache that holds them."""
        return max((rate for size, rate in self.gbytes if nbytes <= size), default=self.gbytes[-1][1])


def measured_roof(processor: str, threads: int, floats: PeakCode, products: PeakCode) -> MachineRoof:
    """The roof with so many threads, each in memory of its own. ``floats`` computes with float32, ``products`` with
    bytes, for a processor of this name."""
    float_rate = _peak_rate(threads, floats, np.float32(0.5))
    byte_rate = _peak_rate(threads, products, np.int8(1))
    return MachineRoof(processor, threads, float_rate, byte_rate, _copy_rates(threads))


def _peak_rate(threads: int, code: PeakCode, factor: np.generic) -> float:
    """10^9 operations a second. Sums of factors 0.5 stay finite, and none is so small that it is slow."""
    held = MachineCode([code.content], [code.symbol])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    function = kind(held.address(code.symbol))
    factors = np.full(FACTORS * REGISTER // factor.itemsize, factor)
    totals = [np.zeros(REGISTER, np.uint8) for _ in range(threads)]
    return _rate(
        threads,
        lambda thread: function(ROUNDS, factors.ctypes.data, totals[thread].ctypes.data),
        code.operations * ROUNDS,
    )


def _rate(threads: int, work: Callable[[int], object], amount: float) -> float:
    """10^9 a second of what each thread does ``amount`` of: the best of several turns."""
    best = float("inf")
    for _ in range(REPEATS):
        start = threading.Barrier(threads)
        seconds: list[float] = []

        def turn(thread: int, start: threading.Barrier = start, seconds: list[float] = seconds) -> None:
            start.wait()
            began = time.perf_counter()
            work(thread)
            seconds.append(time.perf_counter() - began)

        workers = [threading.Thread(target=turn, args=(number,)) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        turn(0)
        for worker in workers:
            worker.join()
        best = min(best, max(seconds))
    return threads * amount / best / 1e9


def _copy_rates(threads: int) -> tuple[tuple[int, float], ...]:
    """Reads and writes of buffers of so many bytes with their copies, each thread in its own."""
    copy = _function(_COPIES, "copy", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    pairs = [(np.zeros(SIZES[-1] // 2, np.uint8), np.ones(SIZES[-1] // 2, np.uint8)) for _ in range(threads)]
    rates = []
    for size in SIZES:
        times = max(1, COPIED // size)

        def work(thread: int, size: int = size, times: int = times) -> None:
            target, source = pairs[thread]
            copy(target.ctypes.data, source.ctypes.data, size // 2, times)

        rates.append((size, _rate(threads, work, float(size * times))))
    return tuple(rates)


_COPIES = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define void @copy(ptr %target, ptr %source, i64 %bytes, i64 %times) {
entry:
  br label %round
round:
  %done = phi i64 [ 0, %entry ], [ %more, %round ]
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 true)
  %more = add i64 %done, 1
  %again = icmp slt i64 %more, %times
  br i1 %again, label %round, label %end
end:
  ret void
}
"""


def _function(text: str, name: str, *kinds: Any) -> Callable[..., object]:
    """A function of a text in LLVM IR, for this processor."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(name))

    def run(*arguments: int, engine: llvm.ExecutionEngine = engine) -> None:
        """``engine`` is held, since it owns the code."""
        function(*arguments)

    return run
