"""The accelerator's own passes, from the integer contract to packed kernels: `pipeline` has their order."""

from .fuse import Fused, fuse, fuse_with_report
from .pack_layout import pack_function, pack_layout
from .pipeline import accel_passes
from .unfold_input import unfold_input

__all__ = [
    "Fused", "accel_passes", "fuse", "fuse_with_report", "pack_function", "pack_layout",
    "unfold_input",
]  # fmt: skip
