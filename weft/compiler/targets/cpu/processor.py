"""What the compiler knows of a CPU: names for LLVM, and the widths that schedules go by."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....imports import IMPORTS
from ..errors import CompileError
from ..loops.fusion_limits import FusionLimits

if TYPE_CHECKING:
    from ...graph.ir import Call


@dataclass(frozen=True)
class Cache:
    """A level of caches, as large as one core sees it. ``ways``: lines that rows a multiple of `way_bytes` apart share.
    ``line``: bytes."""

    nbytes: int
    ways: int
    line: int = 64

    @property
    def way_bytes(self) -> int:
        return self.nbytes // self.ways


@dataclass(frozen=True)
class Core:
    """What schedules go by beside the features. ``caches``: the nearest first, two levels. ``loads``: of vector
    registers in a cycle."""

    caches: tuple[Cache, Cache]
    loads: int = 2


KIB = 1024
FLOAT_BYTES = 4
USUAL_CORE = Core((Cache(32 * KIB, 8), Cache(512 * KIB, 8)))
CORES = {
    "cortex-a9": Core((Cache(32 * KIB, 4, 32), Cache(512 * KIB, 8, 32)), loads=1),
    "cortex-a53": Core((Cache(32 * KIB, 4), Cache(1024 * KIB, 16)), loads=1),
    "cortex-a76": Core((Cache(64 * KIB, 4), Cache(256 * KIB, 8))),
    "neoverse-v1": Core((Cache(64 * KIB, 4), Cache(1024 * KIB, 8))),
}
"""Processors that differ from the usual one, by LLVM's name. Of the two on boards these are Zynq-7000's, with its L2
controller, and Zynq UltraScale+'s; of the others ARM's manuals, the smaller where there is a choice."""


@dataclass(frozen=True)
class AttentionLimits:
    """Which attentions are one kernel. ``keys``: at most so many, so that scores of one query are in the cache."""

    keys: int
    dtype: str = "float32"

    def makes(self, product: Call, anchor: Call) -> bool:
        return product.dtype == anchor.dtype == self.dtype and product.shape[-1] <= self.keys


def fusion_limits(core: Core) -> FusionLimits:
    """What becomes one kernel: scores of one query stay in the first-level cache."""
    attention = AttentionLimits(core.caches[0].nbytes // FLOAT_BYTES)
    return FusionLimits(before_reductions=True, attention=attention, row_statistics=True, phases=True, columns=True,
                        weight_only=True)  # fmt: skip


FUSION = fusion_limits(USUAL_CORE)


@dataclass(frozen=True)
class Processor:
    """A processor. ``features`` are LLVM's (``+avx2,-sse4a``); the rest is derived from them.

    ``vector_bytes``: width of a vector register. ``registers``: how many there are. ``dot_product``: whether bytes are
    multiplied and added up four at a time into int32 (AVX-512 VNNI, AVX-VNNI). ``fusion``: limits of what
    becomes one kernel. ``float_features``: features for kernels with floats, where they differ from those for integers.
    ``core``: its caches and how much it does in a cycle.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    dot_product: bool
    fusion: FusionLimits = FUSION
    float_features: str = ""
    core: Core = USUAL_CORE

    @property
    def nearest(self) -> Cache:
        """The first-level cache of data."""
        return self.core.caches[0]

    @property
    def second(self) -> Cache:
        """The second-level cache."""
        return self.core.caches[1]

    @property
    def for_floats(self) -> Processor:
        """What kernels with floats are compiled for."""
        return replace(self, features=self.float_features, float_features="") if self.float_features else self

    @property
    def multiplies_by_memory(self) -> bool:
        """Whether registers are so few that a factor of a multiply-add is best left in memory, where one instruction
        does both (x86's fused ones of three operands)."""
        return self.triple.startswith("x86_64") and self.registers <= 16 and "+fma" in self.features.split(",")

    @property
    def prefetches(self) -> bool:
        """Whether loops are to say which memory they need soon: where there are instructions to spare."""
        return self.triple.startswith("x86_64")

    @property
    def loads_a_product(self) -> float:
        """Loads in the time of one multiply-add: of registers of 32 bytes two units do two of these a cycle."""
        return self.core.loads / (2 if self.multiplies_by_memory else 1)

    @property
    def permutes_bytes(self) -> bool:
        """Whether one instruction picks bytes out of two registers of 64 (AVX-512 VBMI)."""
        return self.vector_bytes == 64 and "+avx512vbmi," in f"{self.features},"

    @property
    def converts_halves(self) -> bool:
        """Whether LLVM's conversions of float16 are instructions, or calls of a library that every system has."""
        return not self.triple.startswith("x86_64") or "+f16c" in self.features.split(",")

    @property
    def pairs(self) -> bool:
        """Whether values of bfloat16 are multiplied and added up two at a time into float32 (AVX512_BF16)."""
        return {"+avx512bf16", "+avx512vl"} <= set(self.features.split(","))

    @property
    def float_lanes(self) -> int:
        """float32 or int32 values in a register."""
        return self.vector_bytes // 4

    @property
    def name(self) -> str:
        """Triple, name and features."""
        return f"{self.triple} {self.cpu} {self.features}"


_WASM = "+bulk-memory,+mutable-globals,+nontrapping-fptoint,+sign-ext,+simd128"
WASM32 = Processor("wasm32-unknown-unknown", "generic", _WASM, 16, 16, dot_product=False)
"""WebAssembly with vectors of 16 bytes, as all browsers have it."""

HOST = "host"
"""The name of this machine's processor, or of what it is taken for."""

WIDE = ",-prefer-256-bit"
"""What is added to the features of processors with 512 bits."""

PRETENDED = "WEFT_PROCESSOR"
"""Environment variable: what this machine's processor is taken for, one of `PROCESSORS` that it can execute."""

_V2 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
_V3 = f"{_V2},+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_X86 = "x86_64-unknown-linux-gnu"
# Four parts: with three, LLVM silently takes the soft-float calling convention.
_ARMV7 = "armv7a-unknown-linux-gnueabihf"
_AARCH64 = "aarch64-unknown-linux-gnu"

PROCESSORS = {
    "x86-64-v2": (_X86, "x86-64-v2", _V2),
    "x86-64-v3": (_X86, "x86-64-v3", _V3),
    "x86-64-v4": (_X86, "x86-64-v4", _V4),
    "alderlake": (_X86, "alderlake", f"{_V3},+avxvnni"),
    "znver4": (_X86, "znver4", f"{_V4},+avx512vnni,+avx512bf16,+avx512vbmi,+avx512vbmi2,+avx512ifma"),
    "armv7a": (_ARMV7, "cortex-a9", "+neon"),
    # Floats in the scalar unit: the vectors of NEON take numbers below 1.2e-38 as 0.
    "armv7a-ieee": (_ARMV7, "cortex-a9", "+neon", "+vfp3,-neon"),
    "cortex-a9": (_ARMV7, "cortex-a9", "+neon"),
    "aarch64": (_AARCH64, "cortex-a53", "+neon"),
    "cortex-a53": (_AARCH64, "cortex-a53", "+neon"),
    "cortex-a76": (_AARCH64, "cortex-a76", "+neon,+dotprod"),
    "neoverse-v1": (_AARCH64, "neoverse-v1", "+neon,+dotprod,+i8mm,+bf16"),
}
"""Triple, LLVM's name and features of each processor that may be named; a fourth item for kernels with floats."""


FEATURES_TOLD = ("flags", "Features")
"""Lines of Linux's account of a processor that list its features, on x86 and on ARM."""

TOLD = {"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "CPU implementer",
        "CPU architecture", "CPU variant", "CPU part", "CPU revision", *FEATURES_TOLD}  # fmt: skip
"""Lines that tell processors apart; others change while it runs, such as its clock."""


def host_target() -> Processor:
    """The processor that this program runs on, or what `PRETENDED` takes it for. CompileError if it cannot execute
    that."""
    pretended = os.environ.get(PRETENDED) or HOST
    if pretended == HOST:
        return _host()
    target = named_target(pretended)
    missing = missing_here(target)
    if missing:
        raise CompileError(f"this machine cannot execute code for {pretended!r}: it has no {', '.join(missing)}",
                           at=PRETENDED, hint=f"choose {', '.join(executable_here())}, or unset it")  # fmt: skip
    return replace(target, triple=_llvm().get_process_triple())


def _llvm() -> Any:
    """LLVM knows the processor. It takes long to import, and who loads what was compiled before need not ask it."""
    with IMPORTS:
        import llvmlite.binding as llvm

    return llvm


def host_described(account: Path = Path("/proc/cpuinfo")) -> object:
    """What stands for `host_target` in keys, without LLVM where the system's ``account`` says all that LLVM goes by."""
    try:
        first = account.read_text().partition("\n\n")[0]
    except OSError:
        return host_target()
    lines = (line.partition(":") for line in first.splitlines())
    told = {name.strip(): value.strip() for name, _, value in lines if name.strip() in TOLD}
    if not any(name in told for name in FEATURES_TOLD):
        return host_target()
    return os.environ.get(PRETENDED), os.uname().machine, told


def _host() -> Processor:
    features = _llvm().get_host_cpu_features()
    return _described(_llvm().get_process_triple(), _llvm().get_host_cpu_name(), features.flatten())


def named_target(name: str) -> Processor:
    """``"host"``, or one of ``PROCESSORS``; CompileError names what there is."""
    if name == HOST:
        return host_target()
    if name not in PROCESSORS:
        raise CompileError(f"there is no processor {name!r}", hint=f"choose host, {', '.join(PROCESSORS)}")
    return _described(*PROCESSORS[name])


def check_named(name: str) -> None:
    """The CompileError of `named_target`, if there is one; LLVM is not asked for the processor of this machine."""
    if name != HOST or os.environ.get(PRETENDED, HOST) != HOST:
        named_target(name)


def recorded_processor(text: str) -> tuple[str, Processor]:
    """The processor of a `HostProgram`, and the name of its kind: `HOST` for this machine's, one of `PROCESSORS`, or
    none for that of another machine. CompileError for a text that is no processor's `Processor.name`."""
    host = host_target()
    if text == host.name:
        return HOST, host
    for name in PROCESSORS:
        if text == (target := named_target(name)).name:
            return name, target
    triple, *rest = text.split() or [""]
    if len(rest) != 2 or triple.split("-")[0] not in {each.split("-")[0] for each, *_ in PROCESSORS.values()}:
        raise CompileError(f"there is no processor {text!r:.80}", hint="compile the model again")
    cpu, features = rest
    return "", _described(triple, cpu, features.removesuffix(WIDE))


def missing_here(target: Processor) -> list[str]:
    """What this machine lacks to execute code for a processor: its architecture, or features."""
    here = _llvm().get_process_triple().split("-")[0]
    if target.triple.split("-")[0] != here:
        return [f"processor of {target.triple.split('-')[0]}"]
    present = _llvm().get_host_cpu_features()
    wanted = (word[1:] for word in target.features.split(",") if word.startswith("+"))
    return [word for word in wanted if not present.get(word, False)]


def executable_here() -> list[str]:
    """Names of the processors whose code this machine can execute, ``host`` first."""
    return ["host", *(name for name in PROCESSORS if not missing_here(named_target(name)))]


def _described(triple: str, cpu: str, features: str, float_features: str = "") -> Processor:
    present = {item[1:] for item in features.split(",") if item.startswith("+")}
    core = CORES.get(cpu, USUAL_CORE)
    fusion = fusion_limits(core)
    if not triple.startswith("x86_64"):
        armv7 = triple.startswith("armv7")
        fusion = replace(fusion, input_bytes=32 << 20) if armv7 else fusion  # boards with 512 MiB
        return Processor(triple, cpu, features, 16, 16 if armv7 else 32, False, fusion, float_features, core)
    if "avx512f" in present and "avx512vl" in present and "avx512bw" in present:
        # LLVM otherwise prefers 256-bit registers on some of these processors.
        wide = f"{features}{WIDE}"
        return Processor(triple, cpu, wide, 64, 32, "avx512vnni" in present, fusion)
    return Processor(triple, cpu, features, 32 if "avx2" in present else 16, 16, "avxvnni" in present, fusion)
