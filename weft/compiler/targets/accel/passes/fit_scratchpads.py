"""What the core's scratchpads are too small for takes a smaller form (`smaller_forms`), or is left to the host: a
window that does not fit as one piece.

A window is the least that a kernel reads at a time, such as all of the picture in a global pooling, and all taps of a
convolution.
"""

from __future__ import annotations

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.memories import Memory
from ....graph import Call, Expr, Function, Module, call
from ....graph.host import host_function, renumber
from ....graph.visit import Mutator
from ....passes.manager import Pass
from ...errors import ScratchpadFullError
from ..cost.tile_costs import entries_of
from ..link.compile_kernel import generate
from ..operators.lower import Kernel, lower_function
from ..operators.packed_layout import Blocks, is_packable
from ..schedule.schedule import table_part
from ..schedule.tiling import Problem, smallest_tiling
from ..walk.emit import Emitter
from ..walk.emit_nest import DramBuffer
from .pack_layout import pack_function
from .smaller_forms import smaller_form

SURELY_FITTING_SHARE = 0.5
"""A kernel whose smallest tile takes this share of a scratchpad finds its space in one piece."""


def fit_scratchpads(core: CoreConfig) -> Pass:
    """The pass for a core."""
    return Pass("fit-scratchpads", lambda module: _run(module, core), needs=("fuse",), about=__doc__ or "")


def _run(module: Module, core: CoreConfig) -> Module:
    reasons: dict[Function, str] = {}

    def why(function: Function) -> str:
        if function not in reasons:
            reasons[function] = why_not(function, core)
        return reasons[function]

    class Fitting(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            op = node.op
            packable = all(is_packable(value.tensor_type) for value in (*node.args, node))
            if not isinstance(op, Function) or not op.is_primitive or not packable:
                return node
            if not why(op):
                return node
            smaller = smaller_form(node, why)
            return smaller or call(host_function(op, why(op)), *node.args, span=node.span, **node.attrs)

    body = Fitting().run(module.main.body)
    return module.with_main(renumber(body)) if any(reasons.values()) else module


def why_not(function: Function, core: CoreConfig) -> str:
    """Why a primitive function does not fit the core's scratchpads, with the depth that it needs; empty if it does."""
    return why_not_kernel(lower_function(pack_function(function, Blocks.of(core))), core)


def why_not_kernel(kernel: Kernel, core: CoreConfig) -> str:
    """As :func:`why_not`."""
    problem = Problem(core, kernel, 1)
    needed = entries_of(problem, smallest_tiling(problem))
    for memory, entries in needed.items():
        if entries > problem.rooms[memory]:
            return (
                f"its smallest tile needs {entries} entries of scratchpad {memory!r}, which has "
                f"{problem.rooms[memory]}: a core with {memory}_depth={_power_of_two(entries)} could run it"
            )
    if kernel.stages.tables:  # on its way to the lanes a part of a table lies beside what is there for all tiles
        needed[Memory.ACC] += table_part(core)
    fullest = max(needed, key=lambda memory: needed[memory] / problem.rooms[memory])
    if needed[fullest] > SURELY_FITTING_SHARE * problem.rooms[fullest] and not _finds_room(kernel, core):
        return (
            f"its smallest tile needs {needed[fullest]} of the {problem.rooms[fullest]} entries of scratchpad "
            f"{fullest!r}, but not in one piece: a core with {fullest}_depth={2 * problem.rooms[fullest]} could run it"
        )
    return ""


def _finds_room(kernel: Kernel, core: CoreConfig) -> bool:
    buffers = {
        tensor.name: DramBuffer(0, pitch=kernel.pitch_of(tensor.name)) for tensor in (*kernel.inputs, kernel.output)
    }
    try:
        generate(Emitter(core), kernel, buffers, DramRate(), threads=1)
    except ScratchpadFullError:
        return False
    return True


def _power_of_two(entries: int) -> int:
    return 1 << (entries - 1).bit_length()
