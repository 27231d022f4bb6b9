"""What a tiling costs on the core: the kernel alone, compiled with it, in the timing model."""

from __future__ import annotations

import math

from ..compiler.targets.accel.emit import ITEM_BYTES, DramBuffer, Emitter
from ..compiler.targets.accel.function_program import unchecked_program
from ..compiler.targets.accel.lower import Kernel
from ..compiler.targets.accel.schedule import schedule_kernel
from ..compiler.targets.accel.tiling import Tiling
from ..compiler.targets.errors import CompileError
from ..compiler.targets.memory_plan import aligned
from ..compiler.tensor.errors import TensorError
from ..compiler.tune.errors import TuningError
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..sim.dram import DramModel
from ..sim.timing import predict


class RefusedError(TuningError):
    """The compiler does not take a tiling; the text says why."""


def judge(kernel: Kernel, config: CoreConfig, rate: DramRate, tiling: Tiling) -> int:
    """Cycles of the kernel as a program of its own, exact as the timing model is. Raises :class:`RefusedError`."""
    places: dict[str, DramBuffer] = {}
    end = 0
    constant = {tensor.name for tensor, _ in kernel.constants}
    for tensor in (*kernel.inputs, kernel.output):
        places[tensor.name] = DramBuffer(end, constant=tensor.name in constant)
        end += aligned(math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype])
    emitter = Emitter(config)
    try:
        emitter.emit(schedule_kernel(kernel, config, tiling).func, places)
        _, program = unchecked_program(config, emitter.issues)
    except (CompileError, TensorError) as error:
        raise RefusedError(error.message) from error
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    cycles = predict(config, program, dram, offset=end).cycles
    assert cycles is not None  # the timing model always counts
    return cycles
