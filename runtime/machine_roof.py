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

CHAINS = 20
"""Independent sums: more than a processor has multiply-adds under way."""

ROUNDS = 20_000
REPEATS = 7
SIZES = tuple(1 << bits for bits in (14, 16, 18, 20, 22, 24, 26))
"""Bytes of a buffer that is copied: from the first-level cache to memory."""

COPIED = 1 << 25
"""Bytes that one measurement of a cache reads and writes."""


@dataclass(frozen=True)
class MachineRoof:
    """``float_gops``: 10^9 operations a second on float32 in registers, a multiply-add being two; ``byte_gops``: on
    bytes, by dot products, or as floats where the processor has none. ``gbytes``: for buffers of so many bytes, 10^9
    bytes a second read and written. All with ``threads`` threads at once."""

    processor: str
    threads: int
    float_gops: float
    byte_gops: float
    gbytes: tuple[tuple[int, float], ...]

    def bandwidth(self, nbytes: int) -> float:
        """10^9 bytes a second, for what moves ``nbytes``: they are in the smallest cache that holds them."""
        return max((rate for size, rate in self.gbytes if nbytes <= size), default=self.gbytes[-1][1])


def measured_roof(threads: int) -> MachineRoof:
    """The roof with so many threads, each in memory of its own."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx") else 4
    floats = _function(_float_text(lanes), "work", ctypes.c_int64)
    float_rate = _rate(threads, lambda thread: floats(ROUNDS), 2 * lanes * CHAINS * ROUNDS)
    byte_rate = float_rate
    if features.get("avx512vnni") and features.get("avx512f"):
        products = _function(_dot_text(), "work", ctypes.c_int64)
        byte_rate = max(byte_rate, _rate(threads, lambda thread: products(ROUNDS), 2 * 64 * CHAINS * ROUNDS))
    return MachineRoof(llvm.get_host_cpu_name(), threads, float_rate, byte_rate, _copy_rates(threads))


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


# Code that only computes


def _float_text(lanes: int) -> str:
    """A function of the number of rounds: in each, a multiply-add in every one of `CHAINS` vectors."""
    kind = f"<{lanes} x float>"
    step = f"call {kind} @llvm.fmuladd.v{lanes}f32({kind} %s{{n}}, {kind} %factor, {kind} %factor)"
    factor = f"""
  %one = insertelement {kind} undef, float 0.5, i32 0
  %factor = shufflevector {kind} %one, {kind} undef, <{lanes} x i32> zeroinitializer"""
    return _loop_text(kind, step, factor, "fadd", f"declare {kind} @llvm.fmuladd.v{lanes}f32({kind}, {kind}, {kind})")


def _dot_text() -> str:
    """The same with dot products of four bytes each in sixteen lanes."""
    kind, name = "<16 x i32>", "@llvm.x86.avx512.vpdpbusd.512"
    step = f"call {kind} {name}({kind} %s{{n}}, {kind} %factor, {kind} %factor)"
    factor = f"""
  %one = insertelement {kind} undef, i32 16843009, i32 0
  %factor = shufflevector {kind} %one, {kind} undef, <16 x i32> zeroinitializer"""
    return _loop_text(kind, step, factor, "add", f"declare {kind} {name}({kind}, {kind}, {kind})")


def _loop_text(kind: str, step: str, factor: str, joins: str, declaration: str) -> str:
    phis = "\n".join(f"  %s{n} = phi {kind} [ zeroinitializer, %entry ], [ %t{n}, %round ]" for n in range(CHAINS))
    steps = "\n".join(f"  %t{n} = {step.format(n=n)}" for n in range(CHAINS))
    sums = "\n".join(f"  %u{n} = {joins} {kind} {'%t0' if n == 1 else f'%u{n - 1}'}, %t{n}" for n in range(1, CHAINS))
    return f"""
{declaration}
@sink = global {kind} zeroinitializer
define void @work(i64 %rounds) {{
entry:{factor}
  br label %round
round:
  %done = phi i64 [ 0, %entry ], [ %more, %round ]
{phis}
{steps}
  %more = add i64 %done, 1
  %again = icmp slt i64 %more, %rounds
  br i1 %again, label %round, label %end
end:
{sums}
  store {kind} %u{CHAINS - 1}, ptr @sink
  ret void
}}
"""


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
