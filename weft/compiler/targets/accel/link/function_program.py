"""One scheduled function as a program of its own: its parameters placed in a window, its instructions behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.errors import InstructionError
from .....hw.programs import assemble_columns
from ....tensor.ir import PrimFunc
from ....tensor.visitor import stores_of
from ...errors import CompileError
from ...memory_plan import aligned
from ..check import Range, check_program
from ..schedule.check_factors import Limited, check_factors
from ..stream.conflicts import conflicts_of
from ..stream.constants import forget_constants
from ..stream.issue_early import early_order
from ..stream.latency_hiding import LatencyHiding
from ..stream.rows import Rows, columns_of_rows
from ..stream.split_end import split_end
from ..stream.split_loads import split_loads
from ..stream.split_products import split_products
from ..stream.split_results import split_results
from ..stream.stream import Issue
from ..stream.tokens import tokens_of
from ..walk.emit import Emitter
from ..walk.emit_nest import ITEM_BYTES, DramBuffer


@dataclass(frozen=True)
class FunctionProgram:
    """``places``: offset of each parameter in the window, in bytes; ``written``: those that the program stores to;
    ``limited``: elements of parameters whose data must lie within a limit."""

    program: npt.NDArray[np.uint8] = field(repr=False)
    program_offset: int
    window_bytes: int
    places: Mapping[str, int]
    written: frozenset[str]
    limited: Sequence[Limited] = ()


def function_program(func: PrimFunc, config: CoreConfig) -> FunctionProgram:
    """The program of a function that is tensorized for ``config``; it has passed the checker.

    CompileError names the stage that no instruction computes, or the buffer that has no place; FactorError an
    operand that the core may not take whole.
    """
    places: dict[str, int] = {}
    end = 0
    for param in func.params:
        if param.dtype not in ITEM_BYTES:
            raise CompileError(
                f"buffer {param.name!r} is {param.dtype}, but a core has {', '.join(ITEM_BYTES)} only",
                at=f"function {func.name!r}",
            )
        places[param.name] = end
        end += aligned(param.size * ITEM_BYTES[param.dtype])
    written = frozenset(buffer.name for buffer, _ in stores_of(func.body)) & places.keys()
    dram = {name: DramBuffer(offset, constant=name not in written) for name, offset in places.items()}
    emitter = Emitter(config)
    emitter.emit(func, dram)
    limited = check_factors(func)
    constants = tuple(
        Range(places[param.name], places[param.name] + param.size * ITEM_BYTES[param.dtype])
        for param in func.params if param.name not in written
    )  # fmt: skip
    rate = DramRate(bytes_per_cycle=config.bus_bytes)
    _, program = finish_program(config, rate, emitter.rows, end, constants)
    return FunctionProgram(program, end, end + aligned(program.nbytes), places, written, limited)


def finish_program(
    config: CoreConfig, rate: DramRate, issues: Sequence[Issue], offset: int, constants: tuple[Range, ...],
    hiding: LatencyHiding = LatencyHiding.RINGS,
) -> tuple[Rows, npt.NDArray[np.uint8]]:  # fmt: skip
    """The stream in the order that is best for DRAM of this rate, and the bytes of the program, with tokens.

    It is checked with a window that ends at ``offset``, where the program itself lies: nothing may touch it.
    """
    stream, code = unchecked_program(config, rate, issues, hiding, ends=True)
    check_program(config, code, offset, constants)
    return stream, code


def unchecked_program(
    config: CoreConfig, rate: DramRate, issues: Sequence[Issue], hiding: LatencyHiding = LatencyHiding.RINGS, *,
    ends: bool = False,
) -> tuple[Rows, npt.NDArray[np.uint8]]:  # fmt: skip
    """As :func:`finish_program`, for programs that are only timed. ``ends``: with the last results in parts, which of
    what is timed as a piece of a larger program say nothing."""
    rings = hiding is LatencyHiding.RINGS
    if rings:
        issues = split_end(config, split_products(config, issues))
        issues = split_results(config, issues) if ends else issues
    stream = forget_constants(issues)
    rows, conflicts = stream.rows, None
    if rings:
        stream = split_loads(config, stream)
        conflicts = conflicts_of(stream)
        order = early_order(config, rate, stream, conflicts)
        rows, conflicts = stream.rows.picked(order), conflicts.moved(order)
    elif hiding is not LatencyHiding.NONE:
        conflicts = conflicts_of(stream)
    waits, sends = tokens_of(config, rows.engines, conflicts)
    try:
        code = assemble_columns(config, columns_of_rows(config, rows, waits, sends))
    except InstructionError as error:
        raise CompileError(f"an instruction cannot be encoded: {error.message}", at="the program",
                           hint="a smaller model or batch may fit what instructions reach") from error  # fmt: skip
    return rows, code
