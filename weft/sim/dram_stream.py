"""A stream of bursts on a DRAM with banks, without a core."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .dram import DramModel
from .dram_interface import BURST, COMMAND, DramUse, Use, describe_banks
from .errors import SimulationError
from .timing_library import timing_library
from .timing_ports import records


def serve(dram: DramModel, bursts: npt.NDArray[np.void], bus_bytes: int) -> tuple[npt.NDArray[np.int64], DramUse]:
    """In which cycle each of ``bursts`` (records of :data:`~weft.sim.dram_interface.BURST`, in order of time, of words
    of ``bus_bytes``) is answered: of a read the first word, of a write the response. And what the DRAM did for it, with
    its commands.

    :class:`SimulationError` if the memory has no banks, or the bursts are in another order.
    """
    banks = describe_banks(dram)
    if banks is None:
        raise SimulationError("this memory has no banks", hint="give DramModel(banks=...)")
    asked = np.ascontiguousarray(bursts, BURST)
    if np.any(asked["cycle"][1:] < asked["cycle"][:-1]):
        raise SimulationError("the bursts are not in order of time", hint="sort them by cycle")
    library, use, due = timing_library(), Use(), np.zeros(len(asked), np.int64)
    served = library.weft_dram_serve(
        ctypes.byref(banks), asked.ctypes.data, len(asked), bus_bytes, due.ctypes.data, ctypes.byref(use)
    )
    try:
        commands = records(library, served, "dram_commands", COMMAND)
    finally:
        library.weft_dram_delete(served)
    return due, replace(DramUse.of(use), commands=commands)
