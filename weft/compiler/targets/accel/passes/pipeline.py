"""The accelerator's passes in their order."""

from __future__ import annotations

from functools import partial

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....passes.manager import Pass
from ..operators.packed_layout import Blocks
from .behind_moves import behind_moves
from .channel_moves import channel_moves
from .dilation_phases import dilation_phases
from .elementwise_shapes import elementwise_shapes
from .fit_scratchpads import fit_scratchpads, why_not_kernel
from .flatten_into_kernel import flatten_into_kernel
from .fuse import fuse
from .pack_layout import pack_layout
from .ramps import tables_as_ramps, tables_on_host
from .rows_as_pixels import rows_as_pixels
from .unfold_input import unfold_input


def accel_passes(
    blocks: Blocks, bytes_per_cycle: int = 8, core: CoreConfig | None = None, *, chains: bool = False
) -> list[Pass]:
    """From the integer contract to packed kernels, for an array of this shape and DRAM of so many bytes a cycle.

    ``core``: what its scratchpads are too small for goes to the host; without, they are taken to be large enough.
    ``chains``: whether results may stay on the core for the layer that reads them.
    """
    fit = [dilation_phases(core, DramRate.of(core)), fit_scratchpads(core)] if core is not None else []
    return [
        *([tables_on_host] if core is not None and not core.tables else []),
        tables_as_ramps(blocks, bytes_per_cycle),
        behind_moves,
        elementwise_shapes(blocks, bytes_per_cycle),
        rows_as_pixels,
        flatten_into_kernel(blocks, bytes_per_cycle),
        unfold_input(blocks, bytes_per_cycle, chains=chains),
        fuse,
        channel_moves,
        *fit,
        pack_layout(blocks, partial(why_not_kernel, core=core), core.weight_group, core)
        if core is not None
        else pack_layout(blocks),
    ]
