"""Memories of a core as NumPy arrays, in the lane order of ``docs/isa.md``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.memories import Memory

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class Memories:
    """Scratchpads of a core, each ``(depth, elements)``: ``inp``, ``wgt``, ``out`` and, with tables, ``tab`` as int8,
    ``acc`` as int32."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._arrays = {memory: np.zeros(shape(config, memory), element_type(memory)) for memory in config.scratchpads}
        self.inp: Int8 = self._arrays[Memory.INP]
        self.wgt: Int8 = self._arrays[Memory.WGT]
        self.acc: Int32 = self._arrays[Memory.ACC]
        self.out: Int8 = self._arrays[Memory.OUT]

    def array(self, memory: Memory) -> Int8 | Int32:
        """A scratchpad's array."""
        return self._arrays[memory]


def shape(config: CoreConfig, memory: Memory) -> tuple[int, int]:
    """Entries of a scratchpad, and elements of each."""
    return config.depth(memory), config.entry_elements(memory)


def element_type(memory: Memory) -> np.dtype[Any]:
    """int32 for ``acc``, otherwise int8."""
    return np.dtype(f"i{memory.element_bytes}")
