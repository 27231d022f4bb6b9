"""A GPU as a target of loop kernels: its kinds of kernels and their schedules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..loops.fusion_limits import FusionLimits
from ..loops.plain import PlainKernels
from ..loops.target import LoopTarget
from .attention import GpuAttention
from .channels_last import ChannelsLastKernels
from .devices import GpuDescription
from .schedules import schedule_plain
from .tensor_cores import TensorKernels
from .thread_products import THREAD_SHAPES
from .tiled import TiledKernels


def loop_target(device: GpuDescription, *, tf32: bool = False) -> LoopTarget:
    """What the linker of loop kernels needs to know of a device. Images of convolutions on tensor cores have their
    channels last, all other tensors are plain. ``tf32``: whether products of single precision may be done with operands
    that are rounded first."""
    if not tf32:
        device = replace(device, mma=tuple(shape for shape in device.mma if not shape.is_rounded))
    plain = partial(schedule_plain, device=device)
    cores = (TensorKernels(device, device.mma),) if device.mma else ()
    whole = (TensorKernels(device, THREAD_SHAPES, "whole tiles"),) if device.warp > 1 else ()
    attention = (GpuAttention(device, (*device.mma, *THREAD_SHAPES)),) if device.warp > 1 else ()
    kinds = (*attention, *cores, *whole, TiledKernels(device), ChannelsLastKernels(plain), PlainKernels(plain))
    fusion = FusionLimits(before_reductions=True, row_statistics=True, moves=True, weight_only=True,
                          attention=attention[0] if attention else None)  # fmt: skip
    return LoopTarget(device.name, kinds, fusion=fusion, arrange_plain=plain,
                      arrange_blocked=lambda schedule, _: plain(schedule), device="gpu")  # fmt: skip
