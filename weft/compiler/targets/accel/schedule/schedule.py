"""The default schedule of every kernel: tiles, places of the buffers, virtual threads, intrinsics.

It goes by what stages are (``lower.Stages``) and knows no operator. Which intrinsic computes a stage is found
by trying those that write to the stage's scratchpad: ``tensorize`` proves the one that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .....hw.config import CoreConfig
from .....hw.isa import Engine
from ....tensor.errors import ScheduleError
from ....tensor.ir import Allocate, BinOp, Block, Cast, Const, For, IntrinsicCall, Select, Seq, TensorIntrinsic, Var
from ....tensor.legality import COMPUTED, SCHEDULED, Legality, check_legal
from ....tensor.schedule import Schedule, create_schedule
from ....tensor.tree import find_block
from ...errors import CompileError
from ..operators.intrinsics import EmitGemm, EmitLoad, EmitVector, intrinsics
from ..operators.lower import Kernel
from .chain_schedule import MATRIX_DIMENSIONS, Caches, attach_chain, attach_vector, order_reduction
from .tiling import AXES, CHANNEL_AXES, ChainTiling, Problem, Tiling, home_axis, thread_axis, tile_loops

TABLE_PART = 32
"""Entries of a table that are in the accumulator at the same time, where it has room for more than these."""


def table_part(config: CoreConfig) -> int:
    """Entries of a table that are in a core's accumulator at the same time: half of it is for the parameters that are
    there before."""
    return min(TABLE_PART, config.acc_depth // 2)


def tensorized(config: CoreConfig) -> Legality:
    """What the emitter takes: loops around calls of the core's intrinsics, and buffers in its scratchpads."""
    return replace(
        SCHEDULED,
        stage=f"tensorized for {config.name}",
        statements=(For, Allocate, Seq, IntrinsicCall),
        block_kinds=(),
        loop_kinds=("serial", "unroll", "vthread"),
        expressions=(Var, Const, BinOp, Select, Cast),
        functions=(),
        types=("int8", "int32"),
        scopes=config.scratchpads,
        intrinsics=tuple(intrinsics(config)),
    )


def schedule_kernel(kernel: Kernel, config: CoreConfig, tiling: Tiling) -> Schedule:
    """The kernel's loop IR with every stage tensorized.

    CompileError names a stage for which there is no intrinsic; IRError, what is not legal behind ``compute``, before
    tensorize or behind it.
    """
    if bool(kernel.producers) != isinstance(tiling, ChainTiling):
        raise TypeError("a chain, and nothing else, takes a ChainTiling")
    problem = Problem(config, kernel, tiling.threads)
    schedule = create_schedule(kernel.output, kernel.inputs, kernel.name)
    check_legal(schedule.func, COMPUTED)
    caches = _place_buffers(schedule, config, kernel)
    parts = _cut_output(schedule, problem)
    homes, tile, epilogue = _tile_output(schedule, problem, tiling, parts)
    _attach(schedule, problem, tiling, caches, homes, parts, tile, epilogue)
    _take_entries(schedule, problem)
    check_legal(schedule.func, SCHEDULED)
    constants = {*caches.values(), *(section.stages.weights for section in kernel.sections)}
    constants |= {wide for section in kernel.sections for wide, _ in section.stages.tables}
    for block in schedule.blocks():
        _tensorize(schedule, config, block, constant=block in constants)
    check_legal(schedule.func, tensorized(config))
    return schedule


def _place_buffers(schedule: Schedule, config: CoreConfig, kernel: Kernel) -> Caches:
    """Scopes of all stages, and copies of parameters and weights: (reading stage, parameter) -> copying stage."""
    caches: Caches = {}
    for section in kernel.sections:
        stages = section.stages
        for name in (*stages.widened, stages.weights, stages.reduce, *stages.vector[:-1]):
            if name:
                schedule.set_scope(name, "acc")
        if stages.data:
            schedule.set_scope(stages.data, "inp" if section.matrix_weights else "acc")
        if section.tapped:  # three rows are read at once, from different banks: they are an odd number of entries apart
            entry = kernel.blocks.batch * kernel.blocks.block_in
            schedule.storage_align(stages.data, axis=2, factor=2 * entry, offset=entry)
        for wide, table in stages.tables:
            _place_table(schedule, config, wide, table)
    schedule.set_scope(kernel.stages.vector[-1], "out")
    for section in kernel.sections:
        stages = section.stages
        for stage, parameter in stages.parameters:
            scope = "wgt" if stage == stages.reduce else "acc"
            caches[stage, parameter] = schedule.cache_read(stage, parameter, scope)
    return caches


def _place_table(schedule: Schedule, config: CoreConfig, wide: str, table: str) -> None:
    """A table is filled before everything else, with little room of the accumulator at a time."""
    schedule.set_scope(wide, "acc")
    schedule.set_scope(table, "tab")
    part, _ = schedule.split(schedule.get_loops(table)[0], table_part(config))
    schedule.compute_at(wide, part)


Parts = dict[str, tuple[Var, Var]]
"""By axis the loop over the parts of a share, outermost first, and the loop inside of a part."""


def _cut_output(schedule: Schedule, problem: Problem) -> Parts:
    """Split the output's loops for the cores that share it."""
    own = schedule.get_loops(problem.kernel.stages.output)
    loops, sizes = dict(zip(problem.axes, own, strict=False)), dict(zip(AXES, problem.output, strict=True))
    parts: Parts = {}
    for axis, _, _ in problem.cuts:
        part, inside = schedule.split(loops[axis], sizes[axis])
        parts[axis] = part, inside
    return parts


def _tile_output(schedule: Schedule, problem: Problem, tiling: Tiling, parts: Parts) -> tuple[dict[str, Var], Var, Var]:
    """Split the output's loops. Gives the innermost loop over tiles of each axis, the loop of one tile and the loop of
    one epilogue."""
    own = schedule.get_loops(problem.kernel.stages.output)
    around = [part for part, _ in parts.values()]
    own = [loop for loop in own if loop not in around]
    loops = dict(zip((*problem.axes, "r", "n", "s"), own, strict=True))
    sizes = {"no": 1, "cd": tiling.groups, "y": tiling.rows, "x": tiling.columns}
    axis_of_threads = thread_axis(problem, tiling)
    over: dict[str, list[Var]] = {}
    inside: dict[str, Var] = {}
    for axis in AXES:
        threads = [tiling.threads] if axis == axis_of_threads else []
        *outer, inner = schedule.split(loops[axis], factors=[None, *threads, sizes[axis]])
        over[axis], inside[axis] = outer, inner
    group_chunk, group = schedule.split(inside["cd"], tiling.epilogue_groups)
    row_chunk, row = schedule.split(inside["y"], tiling.epilogue_rows)
    part, lane_row = schedule.split(loops["r"], problem.kernel.blocks.output_rows)
    order = [*around, *(var for loop in tile_loops(problem, tiling) for var in over[loop.axis])]
    if axis_of_threads:
        thread = over[axis_of_threads][-1]
        order = [*(var for var in order if var != thread), thread]
    # As they lie in memory: channel groups of a picture are apart, those of an image of one pixel are not.
    pieces = (row, group) if problem.images_are_rows else (group, row)
    schedule.reorder(*order, group_chunk, row_chunk, inside["no"], *pieces, inside["x"], part, lane_row, loops["n"],
                     loops["s"])  # fmt: skip
    return {axis: variables[-1] for axis, variables in over.items()}, order[-1], row_chunk


def _attach(
    schedule: Schedule, problem: Problem, tiling: Tiling, caches: Caches, homes: dict[str, Var], parts: Parts,
    tile: Var, epilogue: Var,
) -> None:  # fmt: skip
    stages = problem.kernel.stages

    def home_of(depends: frozenset[str]) -> Var | None:
        """The loop in which a buffer is filled; None if it is the same for all tiles, and for all parts."""
        axis = home_axis(problem, tiling, depends)
        return homes[axis] if axis else next((parts[axis][0] for axis in reversed(parts) if axis in depends), None)

    attach_vector(schedule, stages, stages.vector, epilogue)
    chunk = None
    if stages.reduce:
        schedule.compute_at(stages.reduce, tile)
        chunk = order_reduction(schedule, problem.kernel.section, problem, tiling)
        data_home = home_of(problem.data_axes) if problem.is_matrix else None
        if isinstance(tiling, ChainTiling):
            loops = [
                *(homes[loop.axis] for loop in tile_loops(problem, tiling)),
                *([chunk] if chunk is not None else []),
            ]
            attach_chain(schedule, problem, tiling, caches, loops, parts["cd"][0] if "cd" in parts else None)
            return
        if chunk is not None:
            schedule.compute_at(stages.data, chunk)
        elif not problem.is_matrix:
            schedule.compute_at(stages.data, tile)
        elif data_home is not None:
            schedule.compute_at(stages.data, data_home)
    channel_home, matrix_home = home_of(CHANNEL_AXES), home_of(problem.matrix_axes)
    for (stage, parameter), copy in caches.items():
        if parameter in problem.kernel.section.shared:
            continue  # it stays for all tiles
        whole, home = (MATRIX_DIMENSIONS, matrix_home) if stage == stages.reduce else (0, channel_home)
        if chunk is not None and stage == stages.reduce:
            schedule.compute_at(copy, chunk, whole)
        elif home is not None:
            schedule.compute_at(copy, home, whole)
    if stages.weights and channel_home is not None:
        schedule.compute_at(stages.weights, channel_home)
    if tiling.portion:
        weights = caches[stages.reduce, problem.kernel.matrix_weights]
        of_weights = schedule.get_loops(weights)
        channels = of_weights[-5:-3] if problem.kernel.section.own_matrices else of_weights[-6:-4]
        of_data = schedule.get_loops(stages.data)[-7:-5], tiling.portion // problem.kernel.blocks.input_parts
        _load_in_portions(schedule, [of_data, (channels, tiling.portion)])
    axis = thread_axis(problem, tiling)
    if axis:
        schedule.vthread(homes[axis])


def _take_entries(schedule: Schedule, problem: Problem) -> None:
    """Let copies and vector stages go entry by entry where a pixel has several: a copy takes them as they lie, the
    vector engine takes one of all pixels after another, since these have the same parameters."""
    blocks = problem.kernel.blocks
    for section in problem.kernel.sections:
        stages = section.stages
        copies = dict.fromkeys(stages.widened, blocks.output_rows)
        if stages.data:
            copies[stages.data] = blocks.input_entry_rows if section.matrix_weights else blocks.output_rows
        for name, rows in copies.items():
            pieces = schedule.get_loops(name)[-3]
            if blocks.input_rows > rows:
                schedule.split(pieces, rows)
        for name in stages.vector if blocks.output_parts > 1 or problem.images_are_rows else ():
            no, cd, y, x, pieces, n, s = schedule.get_loops(name)[-7:]
            *parts, row = schedule.split(pieces, blocks.output_rows) if blocks.output_parts > 1 else [pieces]
            outer = (cd, *parts, no) if problem.images_are_rows else (no, cd, *parts)
            schedule.reorder(*outer, y, x, row, n, s)


def _load_in_portions(schedule: Schedule, loads: Sequence[tuple[Sequence[Var], int]]) -> None:
    """Let some of the input channel groups at a time have loads of their own, in the order of the products. ``loads``:
    of each, the loop over the groups and the one around it, and how many."""
    for (outer, channels), portion in loads:
        portions, inside = schedule.split(channels, portion)
        schedule.reorder(portions, outer, inside)
        schedule.unroll(portions)


def _tensorize(schedule: Schedule, config: CoreConfig, name: str, *, constant: bool) -> None:
    """Tensorize a stage; what loads a ``constant`` is for engine ``loadw``."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block):
        raise CompileError(f"stage {name!r} is no block any more")
    loops = schedule.get_loops(name)
    refusals = []
    for explain in (False, True):  # what differs is asked for only where nothing fits
        for intrinsic in _candidates(config, block, constant):
            try:
                schedule.tensorize(loops[-len(intrinsic.loops)], intrinsic, explain=explain)
                return
            except ScheduleError as error:
                if explain:
                    refusals.append(f"{intrinsic.name}: {error.message}")
    raise CompileError(
        f"stage {name!r} is none of the core's instructions",
        at=f"function {schedule.func.name!r}",
        hint="tried " + "; ".join(refusals) if refusals else f"none writes {block.body.buffer.scope!r}",
    )


def _candidates(config: CoreConfig, block: Block, constant: bool) -> Iterator[TensorIntrinsic]:
    """Intrinsics that could compute a block: they write its scope, and accumulate where it is a reduction."""
    target = block.body.buffer
    for intrinsic in intrinsics(config).values():
        written = next(operand for operand in intrinsic.operands if operand.mode != "in")
        if (written.scope, written.dtype) != (target.scope, target.dtype):
            continue
        emits = intrinsic.emits
        if isinstance(emits, EmitLoad) and (emits.engine is Engine.LOADW) != constant:
            continue
        accumulates = isinstance(emits, EmitGemm) or (isinstance(emits, EmitVector) and emits.op.accumulates)
        if accumulates or block.kind != "reduce":
            yield intrinsic
