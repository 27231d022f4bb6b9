"""What the compiler knows of a CPU: names for LLVM, and the widths that schedules go by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from ..errors import CompileError
from ..loops.fusion_limits import FusionLimits

if TYPE_CHECKING:
    from ...graph.ir import Call


@dataclass(frozen=True)
class AttentionLimits:
    """Which attentions are one kernel. ``keys``: at most so many, so that scores of one query are in the cache."""

    keys: int = 8192
    dtype: str = "float32"

    def makes(self, product: Call, anchor: Call) -> bool:
        return product.dtype == anchor.dtype == self.dtype and product.shape[-1] <= self.keys


FUSION = FusionLimits(
    before_reductions=True, attention=AttentionLimits(), row_statistics=True, phases=True, columns=True
)


@dataclass(frozen=True)
class Processor:
    """A processor. ``features`` are LLVM's (``+avx2,-sse4a``); the rest is derived from them.

    ``vector_bytes``: width of a vector register. ``registers``: how many there are. ``dot_product``: whether bytes are
    multiplied and added up four at a time into int32 (AVX-512 VNNI). ``fusion``: limits of what becomes one kernel.
    ``float_features``: features for kernels with floats, where they differ from those for integers.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    dot_product: bool
    fusion: FusionLimits = FUSION
    float_features: str = ""

    @property
    def for_floats(self) -> Processor:
        """What kernels with floats are compiled for."""
        return replace(self, features=self.float_features, float_features="") if self.float_features else self

    @property
    def permutes_bytes(self) -> bool:
        """Whether one instruction picks bytes out of two registers of 64 (AVX-512 VBMI)."""
        return self.vector_bytes == 64 and "+avx512vbmi," in f"{self.features},"

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


def host_target() -> Processor:
    """The processor that this program runs on."""
    features = llvm.get_host_cpu_features()
    return _described(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten())


CROSS_TARGETS = {
    # Four parts: with three, LLVM silently takes the soft-float calling convention.
    "armv7a": ("armv7a-unknown-linux-gnueabihf", "cortex-a9", "+neon"),
    # Floats in the scalar unit: the vectors of NEON take numbers below 1.2e-38 as 0.
    "armv7a-ieee": ("armv7a-unknown-linux-gnueabihf", "cortex-a9", "+neon", "+vfp3,-neon"),
    "aarch64": ("aarch64-unknown-linux-gnu", "cortex-a53", "+neon"),
}


def named_target(name: str) -> Processor:
    """``"host"``, or one of ``CROSS_TARGETS``; CompileError names what there is."""
    if name == "host":
        return host_target()
    if name not in CROSS_TARGETS:
        raise CompileError(f"there is no processor {name!r}", hint=f"choose host, {', '.join(CROSS_TARGETS)}")
    return _described(*CROSS_TARGETS[name])


def _described(triple: str, cpu: str, features: str, float_features: str = "") -> Processor:
    present = {item[1:] for item in features.split(",") if item.startswith("+")}
    if not triple.startswith("x86_64"):
        armv7 = triple.startswith("armv7")
        fusion = replace(FUSION, input_bytes=32 << 20) if armv7 else FUSION  # boards with 512 MiB
        return Processor(triple, cpu, features, 16, 16 if armv7 else 32, False, fusion, float_features)
    if "avx512f" in present and "avx512vl" in present and "avx512bw" in present:
        # LLVM otherwise prefers 256-bit registers on some of these processors.
        wide = f"{features},-prefer-256-bit"
        return Processor(triple, cpu, wide, 64, 32, "avx512vnni" in present)
    return Processor(triple, cpu, features, 32 if "avx2" in present else 16, 16, False)
