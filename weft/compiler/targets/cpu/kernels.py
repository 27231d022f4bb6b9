"""The CPU as a target of loop kernels: its kinds of kernels and their schedules."""

from __future__ import annotations

from functools import partial

from ..loops.attention import AttentionKernels
from ..loops.block_product import BlockProductKernels
from ..loops.blocked import BlockedKernels
from ..loops.byte_product import ByteProductKernels
from ..loops.convolution import ConvolutionKernels
from ..loops.depthwise import DepthwiseKernels
from ..loops.few_channels import FewChannelsKernels
from ..loops.pair_product import PairProductKernels
from ..loops.plain import PlainKernels
from ..loops.product import ProductKernels
from ..loops.target import LoopTarget
from ..loops.weight_only import WeightOnlyKernels
from .attention import CpuAttention
from .convolution import CpuConvolutions
from .depthwise import CpuDepthwise
from .few_channels import CpuFewChannels
from .processor import Processor
from .products import CpuProducts
from .schedules import schedule_blocked, schedule_plain
from .tiles import channels_together
from .weight_only import CpuBlockProducts, CpuWeightOnly

WORK_WORTH_THREADS = 4_000_000
"""Multiply-accumulates and elements below which a model runs on one thread: its kernels take microseconds."""


def loop_target(processor: Processor) -> LoopTarget:
    """What the linker of loop kernels needs to know of a processor."""
    kinds = (
        AttentionKernels(CpuAttention(processor)),
        WeightOnlyKernels(CpuWeightOnly(processor), CpuProducts(processor)),
        BlockProductKernels(CpuBlockProducts(processor)),
        PairProductKernels(CpuProducts(processor)), ProductKernels(CpuProducts(processor)),
        ByteProductKernels(CpuProducts(processor)),
        FewChannelsKernels(CpuFewChannels(processor)),
        ConvolutionKernels(CpuConvolutions(processor)), DepthwiseKernels(CpuDepthwise(processor)),
        BlockedKernels(schedule_blocked, partial(channels_together, target=processor)),
        PlainKernels(schedule_plain),
    )  # fmt: skip
    return LoopTarget(
        processor.name, kinds, fusion=processor.fusion, arrange_plain=schedule_plain, arrange_blocked=schedule_blocked,
        shared_work=WORK_WORTH_THREADS, dot_products=processor.dot_product,
    )  # fmt: skip
