"""What the compiler knows of GPUs: limits that schedules keep to, as data."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CompileError
from .mma_shapes import AMPERE_SHAPES, TURING_SHAPES, MmaShape


@dataclass(frozen=True)
class GpuDescription:
    """A kind of device. ``group_threads``: of a group, at most; ``shared_bytes``: memory that a group may have;
    ``groups``: along x, y and z, at most. ``warp``: threads that run in step (1: none is relied on). ``threads``: of a
    group that schedules make, where there is enough to do. ``architecture``: LLVM's name of it, for devices that take
    PTX; ``features``: what LLVM has to be told beside it. ``mma``: products that its tensor cores do.
    ``asynchronous``: whether it copies to shared memory while threads go on. ``shared_most``: memory that a group may
    have if its launch asks for it; 0 where that is no more. ``neighbours``: elements that lie together which a thread
    makes at a time, at most. ``multiprocessors`` of the largest device of the kind, and ``lanes``: products in single
    precision that each does in a cycle. ``has_extremes``: instructions for the larger and smaller of two floats, nan
    where one is."""

    name: str
    summary: str
    group_threads: int
    shared_bytes: int
    groups: tuple[int, int, int]
    warp: int
    threads: int
    architecture: str = ""
    features: str = ""
    mma: tuple[MmaShape, ...] = ()
    asynchronous: bool = False
    shared_most: int = 0
    neighbours: int = 1
    multiprocessors: int = 32
    lanes: int = 64
    has_extremes: bool = False


_X, _YZ = (1 << 31) - 1, (1 << 16) - 1

DEVICES = {
    each.name: each
    for each in (
        # OpenCL 1.2 promises a full device 32 KiB of local memory; 256 threads are what all of today's have.
        GpuDescription("generic", "any device with OpenCL 1.2", 256, 32 << 10, (_X, _YZ, _YZ), 1, 128),
        # 48 KiB is what a kernel of NVIDIA's has without asking for more.
        # LLVM knows Turing's products of bytes from PTX 7.0 on only.
        GpuDescription("sm_75", "NVIDIA Turing: T4, RTX 20", 1024, 48 << 10, (_X, _YZ, _YZ), 32, 128, "sm_75", "+ptx70",
                       TURING_SHAPES, shared_most=64 << 10, neighbours=4, multiprocessors=40, lanes=64),
        *(GpuDescription(name, f"NVIDIA {names}", 1024, 48 << 10, (_X, _YZ, _YZ), 32, 128, name, "", AMPERE_SHAPES,
                         True, most << 10, 4, count, lanes, has_extremes=True) for name, names, most, count, lanes in (
            ("sm_80", "Ampere: A100", 163, 108, 64), ("sm_89", "Ada: RTX 40, L4", 99, 128, 128),
            ("sm_90", "Hopper: H100, H200", 227, 132, 128), ("sm_120", "Blackwell: RTX 50", 99, 170, 128),
        )),
    )
}  # fmt: skip
"""By name."""


NVIDIA = tuple(each.name for each in DEVICES.values() if each.architecture)
"""Names of the devices that take PTX."""


def nvidia_device(name: str) -> GpuDescription:
    """The description of a device that takes PTX; CompileError says which there are."""
    if name not in NVIDIA:
        raise CompileError(f"there is no description of an NVIDIA GPU {name!r}", hint=f"choose {', '.join(NVIDIA)}")
    return DEVICES[name]


def named_device(name: str) -> GpuDescription:
    """The description of this name; CompileError says what there is."""
    if name not in DEVICES:
        raise CompileError(f"there is no description of a GPU {name!r}", hint=f"choose {', '.join(DEVICES)}")
    return DEVICES[name]
