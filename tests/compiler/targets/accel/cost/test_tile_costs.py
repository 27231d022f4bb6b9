"""Costs of all tilings at once: each is what it is alone, and the ranking is that of a search one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from weft.compiler.compile import prepared
from weft.compiler.frontends import read
from weft.compiler.targets.accel.cost.tile_costs import (
    BUS_CYCLE_WORTH,
    WITHOUT_THREADS,
    buffers_of,
    estimate,
    estimates,
    fill,
    fills,
    tilings,
    work_of,
    works_of,
)  # fmt: skip
from weft.compiler.targets.accel.cost.tiles import Tiles
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.link.compile_kernel import append
from weft.compiler.targets.accel.link.phases import split_phases
from weft.compiler.targets.accel.link.slices import slices_of
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import (
    LOOP_ORDERS,
    Problem,
    Tiling,
    divides_epilogue,
    epilogues,
    home_axis,
    sizes_worth_trying,
    tile_loops,
)
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.hw.config import PYNQ, TINY, WIDE
from weft.hw.cycle_class import CycleClass
from weft.hw.dram_rate import DramRate
from weft.hw.isa import Engine, Load
from weft.hw.memories import Memory
from weft.sim.dram import DramModel
from weft.sim.timing import predict, program_cycles

from ..kernels import compile_function, program_of
from ..test_kernels import Case

DIGITS = Path(__file__).parents[5] / "examples" / "digits" / "digits.onnx"
SLOW = DramRate(bytes_per_cycle=2)
DEEPER = replace(TINY, inp_depth=2 * TINY.inp_depth, acc_banks=4)


@pytest.fixture(scope="module", params=[PYNQ, DEEPER], ids=["pynq", "tiny"])
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    config = request.param
    module = prepared(read(DIGITS).module({}, require_quantised=True), Accel(), AccelOptions(config, SLOW))
    kernels = [
        part.kernel for phase in split_phases(module) if phase.on_core
        for node in phase.calls for part in slices_of(node, config, SLOW, 2)
    ]  # fmt: skip
    return [Problem(config, kernel, threads, beside, SLOW)
            for kernel in kernels for threads, beside in ((2, False), (1, True))]  # fmt: skip


def _one_by_one(problem: Problem) -> list[Tiling]:
    """The ranking as its documentation says: for each tile the largest epilogue that fits, the two widest that do, and
    with one thread six narrower ones, each at most 3/4 of the last; what leaves the bus to others first."""
    found = _widest(problem, problem.threads, 2, problem.output[3], 1)
    if not problem.is_matrix and not problem.beside and problem.threads > 1:
        found += _widest(problem, 1, 6, found[0][1].columns, 0.75)
    ranked = [tiling for _, tiling in sorted(found, key=lambda each: each[0])]
    return [
        replace(tiling, epilogue_groups=1)
        if tiling.epilogue_rows == tiling.rows and divides_epilogue(problem, tiling) else tiling
        for tiling in ranked
    ]  # fmt: skip


def _widest(problem: Problem, threads: int, most: int, widest: float, step: float) -> list[tuple[float, Tiling]]:
    """Tilings of ``most`` widths with what they are ranked by."""
    factor = WITHOUT_THREADS if threads < problem.threads else 1
    problem = replace(problem, threads=threads)
    _, groups, height, width = problem.output
    found: list[tuple[float, Tiling]] = []
    widths = 0
    for columns in sizes_worth_trying(width):
        if columns > widest:
            continue
        before = len(found)
        sizes = (sizes_worth_trying(groups), sizes_worth_trying(height), sizes_worth_trying(problem.reduction) or [0])
        for group, row, reduction, outer in product(*sizes, ("cyx", "yxc")):
            for part, part_row in epilogues(problem, group, row, columns):
                tiling = Tiling(group, row, columns, reduction, outer, part, part_row, problem.threads)
                cost, work = estimate(problem, tiling), work_of(problem, tiling)
                if cost is not None and work is not None:
                    found.append((cost * factor + BUS_CYCLE_WORTH * work.traffic, tiling))
                    break
        if len(found) > before:
            widths, widest = widths + 1, columns * step
        if widths == most:
            break
    return found


def test_the_ranking_is_that_of_a_search_one_by_one(problems: list[Problem]) -> None:
    for problem in problems[::3]:
        assert list(tilings(problem)) == _one_by_one(problem)


def test_a_tiling_costs_alone_what_it_costs_among_others(problems: list[Problem]) -> None:
    for problem in problems:
        ranked = tilings(problem)
        reordered = [replace(ranked[-1], order=order) for order in LOOP_ORDERS]
        chosen = [*ranked[:5], *ranked[-5:], replace(ranked[0], threads=4), *reordered]
        together, full, works = estimates(problem, chosen), fills(problem, chosen), works_of(problem, Tiles.of(chosen))
        for place, tiling in enumerate(chosen):
            assert together[place] == (estimate(problem, tiling) or np.inf)
            assert full[place] == fill(problem, tiling)
            work = work_of(problem, tiling)
            assert bool(works.fits[place]) == (work is not None)
            assert work is None or work.traffic == works.traffic[place]


def test_buffers_are_filled_at_the_home_loop_that_the_schedule_takes(problems: list[Problem]) -> None:
    """Loads of the weights: the loops over tiles up to the innermost on which they depend."""

    for problem in problems:
        ranked = Tiles.of(tilings(problem))
        weights = [each for each in buffers_of(problem, ranked) if each.scratchpad is Memory.WGT]
        for buffer in weights:
            for place, tiling in enumerate(ranked):
                if tiling.reduction < problem.reduction:
                    continue
                home, expected = home_axis(problem, tiling, problem.matrix_axes), 1
                for loop in tile_loops(problem, tiling):
                    if not home:
                        break
                    expected *= loop.extent
                    if loop.axis == home:
                        break
                assert np.broadcast_to(buffer.loads, len(ranked))[place] == expected


def test_a_load_costs_what_it_moves_and_what_its_writer_loses_before_the_next(problems: list[Problem]) -> None:
    """Two cycles between two LOADs (`hw.load_writer`), whatever they move; results are stored once in any tiling, and
    all instructions are fetched: those of loads, of products and of epilogues. Where the answers to short bursts take
    longer, these count."""
    for problem in problems:
        ranked = Tiles.of(tilings(problem))
        loads, instructions, bursts = (np.zeros(len(ranked)) for _ in range(3))
        for buffer in buffers_of(problem, ranked):
            moved = buffer.entries * buffer.entry_bytes / problem.bytes_per_cycle
            if not isinstance(buffer.loads, int):
                loads += (np.asarray(moved) + 2) * buffer.loads
                instructions += buffer.loads
                bursts += buffer.entries * buffer.bursts * buffer.loads
        stages = problem.kernel.stages
        each = len(stages.vector) + len(stages.widened) + 1
        epilogues = -(-ranked.groups // ranked.epilogue_groups) * -(-ranked.rows // ranked.epilogue_rows)
        _, groups, height, width = problem.output
        tiles = -(-groups // ranked.groups) * -(-height // ranked.rows) * -(-width // ranked.columns)
        products = -(-problem.reduction // np.maximum(ranked.reduction, 1)) if problem.reduction else 1
        own = epilogues * each + (products if problem.is_matrix else 0)
        fetched = (problem.output[0] * tiles * own + instructions) * problem.config.instruction_bytes
        traffic = works_of(problem, ranked).traffic
        answers = bursts * problem.rate.latency / problem.config.read_outstanding
        stored = (traffic - loads - fetched / problem.bytes_per_cycle)[traffic > answers]
        np.testing.assert_allclose(stored, stored[0])
        assert stored[0] > 0


def test_no_tilings_have_no_costs(problems: list[Problem]) -> None:
    assert list(estimates(problems[0], [])) == []
    assert list(fills(problems[0], [])) == []


def test_results_of_the_vector_engine_keep_out_of_the_way_of_the_array() -> None:
    """A residual layer: with the largest epilogue that fits, the array and the vector engine would take turns."""
    layer = Case("residual", WIDE, channels=128, filters=512, size=(28, 28), kernel=(1, 1), pads=(0, 0, 0, 0))
    model = compile_function(layer.function(), WIDE)
    found = predict(WIDE, program_of(model).program, DramModel(bytes_per_cycle=WIDE.bus_bytes))
    array, vector = (found.counters[engine][CycleClass.BUSY] for engine in (Engine.GEMM, Engine.VECTOR))
    assert found.cycles is not None
    assert found.cycles < 0.9 * (array + vector)


def test_results_of_a_few_tiles_are_stored_a_group_at_a_time() -> None:
    """A residual layer of one tile, and of many."""
    small = Case("residual", PYNQ, channels=64, filters=64, size=(7, 7), kernel=(1, 1), pads=(0, 0, 0, 0))
    large = replace(small, size=(112, 112))
    few, many = (Problem(PYNQ, lower_function(case.function()), 1) for case in (small, large))
    whole = Tiling(4, 7, 7, 4, "cyx", 4, 7, 1)
    assert divides_epilogue(few, whole)
    assert not divides_epilogue(many, whole)
    rows = replace(small, kind="conv", batch=49, size=(1, 1))  # of a matrix: each group would be a burst of its own
    assert not divides_epilogue(Problem(PYNQ, lower_function(rows.function()), 1), replace(whole, columns=1))
    assert _cycles(few, 1) < _cycles(few, 4)
    assert tilings(few)[0].epilogue_groups == 1


def _cycles(problem: Problem, epilogue_groups: int) -> int:
    """Of a layer in one tile."""
    tiling = Tiling(4, 7, 7, 4, "cyx", epilogue_groups, 7, 1)
    program, offset = kernel_program(problem.kernel, problem.config, problem.rate, tiling)
    return program_cycles(problem.config, problem.rate, program, offset)


def _loaded(problem: Problem, tiling: Tiling) -> dict[Memory, int]:
    """Entries of the operands of the products that a program loads."""
    emitter = Emitter(problem.config)
    dram = {tensor.name: DramBuffer(0) for tensor in (*problem.kernel.inputs, problem.kernel.output)}
    append(emitter, [(problem.kernel, dram, tiling)], 0, None)
    found = {Memory.INP: 0, Memory.WGT: 0}
    for instruction in (issue.instruction for issue in emitter.issues):
        if isinstance(instruction, Load) and instruction.scratchpad.memory in found:
            found[instruction.scratchpad.memory] += instruction.rows * instruction.columns
    return found


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("order", LOOP_ORDERS)
def test_programs_load_as_often_as_tilings_cost(order: str, threads: int) -> None:
    """Reductions in chunks too: what all virtual threads read is loaded once for all of them."""
    picture = Case("conv", DEEPER, channels=24, filters=16, size=(4, 4), kernel=(1, 1), pads=(0, 0, 0, 0))
    rows_of_a_matrix = replace(picture, batch=16, size=(1, 1))
    for layer, sizes in (
        (picture, [(4, 1, 4, 2), (1, 4, 4, 3), (2, 2, 2, 2), (1, 4, 2, 6), (2, 1, 4, 6)]),
        (rows_of_a_matrix, [(4, 1, 1, 2), (1, 8, 1, 3), (2, 2, 1, 2), (1, 4, 1, 6), (4, 16, 1, 1)]),
    ):
        problem = Problem(DEEPER, lower_function(layer.function()), threads)
        for groups, rows, columns, reduction in sizes:
            tiling = Tiling(groups, rows, columns, reduction, order, 1, 1, threads)
            expected = {
                buffer.scratchpad: int(np.asarray(buffer.entries * buffer.loads)[0])
                for buffer in buffers_of(problem, Tiles.of([tiling]))
                if buffer.scratchpad in (Memory.INP, Memory.WGT)
            }
            assert _loaded(problem, tiling) == expected


def test_weights_are_loaded_for_many_rows_of_a_matrix() -> None:
    """Images of one pixel: one at a time, the array would wait for weights most of the time."""
    layer = Case("conv", PYNQ, batch=196, channels=384, filters=768, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0))
    model = compile_function(layer.function(), PYNQ)
    found = predict(PYNQ, program_of(model).program, DramModel(bytes_per_cycle=PYNQ.bus_bytes))
    assert found.cycles is not None
    assert found.cycles < 1.1 * 196 * 384 * 768 / PYNQ.macs_per_cycle


def test_rows_of_a_matrix_are_read_whole() -> None:
    """Parts of rows lie apart, and each is a burst."""
    layer = Case("conv", PYNQ, batch=64, channels=100, filters=10, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0))
    problem = Problem(PYNQ, lower_function(layer.function()), 2)
    assert tilings(problem)[0].reduction == problem.reduction == 7


def rows_of_a_matrix(count: int) -> Problem:
    layer = Case("conv", PYNQ, batch=count, channels=256, filters=512, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0))
    return Problem(PYNQ, lower_function(layer.function()), 2)


def test_short_bursts_among_those_of_weights_cost_more_than_their_bytes() -> None:
    """Of 32 rows, a quarter of the channels would be bursts of 64 bytes."""
    problem = rows_of_a_matrix(32)
    whole = tilings(problem)[0]
    assert whole.reduction == problem.reduction
    loaded = {
        reduction: sum(
            float(np.asarray(each.entries * each.entry_bytes)[0])
            for each in buffers_of(problem, Tiles.of([replace(whole, reduction=reduction)]))
            if each.scratchpad is Memory.INP
        ) for reduction in (4, problem.reduction)
    }  # fmt: skip
    assert loaded[problem.reduction] == 32 * 256
    assert loaded[4] == 32 * (64 + 7 * PYNQ.bus_bytes)


def test_one_row_takes_few_instructions() -> None:
    """Each is 16 bytes, for which the weights wait: groups of channels one by one would take 160."""
    problem = rows_of_a_matrix(1)
    tiling = tilings(problem)[0]
    assert -(-problem.reduction // tiling.reduction) * -(-problem.output[1] // tiling.groups) <= 32


def test_the_first_weights_are_loaded_in_large_parts_where_the_bus_is_all_that_a_layer_waits_for() -> None:
    """They are then a part of what the bus moves anyhow, however many weights there are. Where the array works as long
    as the bus, it waits for them."""
    for config in (PYNQ, replace(PYNQ, wgt_depth=512)):
        problem = replace(rows_of_a_matrix(1), config=config)
        works = works_of(problem, Tiles.of(tilings(problem)[:50]))
        assert (works.ahead > 0).all()
        assert (works.ahead < works.exposed).all()
        first = tilings(problem)[0]
        assert first.groups * first.reduction >= 64
    busy = rows_of_a_matrix(32)
    assert not works_of(busy, Tiles.of(tilings(busy)[:50])).ahead.any()
