"""Memories of a core as NumPy arrays, in the lane order of ``docs/isa.md``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

SCRATCHPADS = ("inp", "wgt", "acc", "out")


class Memories:
    """Scratchpads of a core: ``inp``, ``wgt``, ``out`` as int8 and ``acc`` as int32, each ``(depth, elements)``."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.inp = np.zeros((config.inp_depth, config.inp_bytes), np.int8)
        self.wgt = np.zeros((config.wgt_depth, config.wgt_bytes), np.int8)
        self.acc = np.zeros((config.acc_depth, config.lanes), np.int32)
        self.out = np.zeros((config.out_depth, config.out_bytes), np.int8)

    def array(self, name: str) -> Int8 | Int32:
        """The scratchpad called ``inp``, ``wgt``, ``acc`` or ``out``."""
        memory: Int8 | Int32 = getattr(self, name)
        return memory
