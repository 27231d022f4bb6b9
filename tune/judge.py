"""What a tiling costs on the core: the kernel alone, compiled with it, in the timing model."""

from __future__ import annotations

from ..compiler.targets.accel.alone import kernel_program
from ..compiler.targets.accel.lower import Kernel
from ..compiler.targets.accel.tiling import Tiling
from ..compiler.targets.errors import CompileError
from ..compiler.tune.errors import TuningError
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..sim.timing import program_cycles


class RefusedError(TuningError):
    """The compiler does not take a tiling; the text says why."""


def judge(kernel: Kernel, config: CoreConfig, rate: DramRate, tiling: Tiling) -> int:
    """Cycles of the kernel as a program of its own, exact as the timing model is. Raises :class:`RefusedError`."""
    try:
        program, end = kernel_program(kernel, config, tiling)
    except CompileError as error:
        raise RefusedError(error.message) from error
    return program_cycles(config, rate, program, end)
