"""Depthwise layers in the array's depthwise mode: NumPy's integers for any window, tile and core, and the cycles that
tiling takes them to need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Array, Function, calls, evaluate_function
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.cost.tile_costs import INSTRUCTION_OVERHEAD, work_of
from weft.compiler.targets.accel.link.compile_kernel import append
from weft.compiler.targets.accel.link.depthwise_split import fastest_in_mode
from weft.compiler.targets.accel.link.function_program import unchecked_program
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.depthwise_mode import PLAIN, TAPPED, in_depthwise_mode, row_cycles, row_pitch
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.errors import CompileError
from weft.compiler.tensor import Schedule
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.hw.cycle_class import CycleClass
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.isa import Engine, Gemm, Load, Scratchpad
from weft.hw.programs import disassemble
from weft.sim.dram import DramModel
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import predict

from tests.effort import few

from ..kernels import Build, check, compile_function, program_of, write_model
from ..link.test_depthwise_split import Case, cases

SIXTEENS = replace(
    TINY, name="sixteens", block_in=16, block_out=16, inp_depth=256, wgt_depth=64, acc_depth=128, out_depth=64,
    depthwise=1,
)  # fmt: skip
MODES = (
    SIXTEENS,
    replace(SIXTEENS, name="thirty-twos", block_in=32, block_out=32, bus_bits=128, acc_banks=1),
    replace(SIXTEENS, name="roomy", inp_depth=1024, acc_depth=512, out_depth=128, queue_depth=32),
)
"""Cores that have the mode."""


def in_mode(case: Case) -> Function:
    """The function of a case in the mode, whether that is faster or not."""
    function = in_depthwise_mode(case.config, case.function())
    assert function is not None
    return function


def mode_cases() -> st.SearchStrategy[Case]:
    def changed(case: Case, config: CoreConfig, dilation: int, channels: int) -> Case:
        more = max(0, (dilation - case.dilations[0]) * (case.kernel[0] - 1))  # the window still fits
        return replace(case, config=config, group=0, dilations=(dilation, case.dilations[1]),
                       size=(case.size[0] + more, case.size[1]), channels=channels)  # fmt: skip

    return st.builds(changed, cases(), st.sampled_from(MODES), st.sampled_from((1, 1, 3)), st.integers(1, 70))


@given(mode_cases(), st.integers(1, 2))
@settings(max_examples=25)
def test_a_layer_of_any_shape_equals_numpy(case: Case, threads: int) -> None:
    check(in_mode(case), case.config, threads, case.seed)


@pytest.mark.long
@given(mode_cases(), st.integers(1, 3))
@settings(max_examples=600)
def test_many_layers_of_any_shape_equal_numpy(case: Case, threads: int) -> None:
    check(in_mode(case), case.config, threads, case.seed)


LARGE = {
    "5x5": Case(config=SIXTEENS, channels=40, size=(9, 12), kernel=(5, 5), pads=(2, 2, 2, 2)),
    "7x7 stride 2": Case(config=SIXTEENS, channels=20, size=(15, 14), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    "1x9": Case(config=SIXTEENS, channels=17, size=(6, 20), kernel=(1, 9), pads=(0, 4, 0, 4)),
    "9x1": Case(config=SIXTEENS, channels=17, size=(20, 6), kernel=(9, 1), pads=(4, 0, 4, 0)),
    "4x4, columns dilated": Case(config=SIXTEENS, size=(12, 18), kernel=(4, 4), dilations=(1, 3), pads=(1, 4, 2, 5)),
    "stride 4": Case(config=SIXTEENS, size=(19, 19), strides=(4, 4)),
}


@pytest.mark.parametrize("name", LARGE)
def test_larger_kernels_are_several_passes(name: str) -> None:
    case = LARGE[name]
    model = check(in_mode(case), case.config)
    assert all(gemm.depthwise for gemm in gemms(model))


def gemms(model: CompiledModel) -> list[Gemm]:
    return [each for each in disassemble(model.config, program_of(model).program) if isinstance(each, Gemm)]


@pytest.mark.parametrize("name", LARGE)
def test_the_packed_operator_means_the_plain_one(name: str) -> None:
    case = LARGE[name]
    plain, tapped = case.function(), in_mode(case)
    x = np.random.default_rng(1).integers(-128, 128, plain.params[0].type.shape).astype(np.int8)
    np.testing.assert_array_equal(evaluate_function(tapped, [x]), evaluate_function(plain, [x]))


RTL = {
    "stride 1": Case(config=SIXTEENS, channels=40, size=(11, 14)),
    "stride 2": Case(config=SIXTEENS, channels=20, size=(14, 13), strides=(2, 2)),
    "5x5": LARGE["5x5"],
    "two pictures, thirty-two lanes": Case(config=MODES[1], channels=40, batch=2, size=(7, 8)),
}


@pytest.mark.parametrize("name", few(RTL))
def test_the_rtl_gives_the_same_in_the_predicted_cycles(name: str) -> None:
    case = RTL[name]
    function = in_mode(case)
    model = compile_function(function, case.config)
    x = np.random.default_rng(2).integers(-128, 128, function.params[0].type.shape).astype(np.int8)
    found, cycles = run_on_rtl(model, {function.params[0].name: x})
    np.testing.assert_array_equal(found, evaluate_function(function, [x]))
    step = program_of(model)
    assert predict(case.config, step.program, DramModel(latency=30), offset=step.program_offset).cycles == cycles


MEMORY = DramModel(latency=30)


def run_on_rtl(model: CompiledModel, inputs: dict[str, Array], dram: DramModel = MEMORY) -> tuple[Array, int]:
    """The output of a model of one step, and the cycles."""
    step = program_of(model)
    simulator = RtlSimulator(model.config, model.core.window_bytes, dram=dram)
    write_model(simulator, model, inputs)
    count = len(step.program) // model.config.instruction_bytes
    result = simulator.run(step.program_offset, count, window_bytes=model.core.window_bytes)
    assert result.fault is None, str(result.fault)
    (name,) = step.outputs
    slot = model.core.slots[name]
    data = simulator.dram[slot.offset : slot.offset + slot.nbytes]
    assert result.cycles is not None
    return data.copy().view(slot.dtype).reshape(slot.shape), result.cycles


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2), (4, 2)])
@pytest.mark.parametrize("columns", [2, 5, 8])
def test_tiling_counts_the_cycles_of_the_array(size: int, stride: int, dilation: int, columns: int) -> None:
    config = MODES[2]
    case = Case(config=config, channels=32, size=(4 * stride, 12 * stride), kernel=(3, size),
                strides=(stride, stride), dilations=(1, dilation), pads=(1, size // 2 * dilation) * 2)  # fmt: skip
    kernel = lower_function(in_mode(case))
    _, _, rows, width = kernel.output.shape[:4]
    tiling = Tiling(1, 2, columns, 0, "cyx", 1, 2, 1)
    work = work_of(Problem(config, kernel, 1), tiling)
    assert work is not None
    places = {tensor.name: DramBuffer(4096 * place) for place, tensor in enumerate((*kernel.inputs, kernel.output))}
    emitter = Emitter(config)
    append(emitter, [(kernel, places, tiling)], 0, None)
    _, code = unchecked_program(config, USUAL_RATE, emitter.issues)
    counted = predict(config, code, DramModel(), offset=65536).counters[Engine.GEMM][CycleClass.BUSY]
    tiles = 2 * -(-rows // 2) * -(-width // columns)
    # An instruction takes a cycle itself. A tile has two rows or more, so this tells one cycle more or less a row.
    assert 0 <= counted - (work.matrix - INSTRUCTION_OVERHEAD * tiles) <= tiles + 3


def test_rows_take_the_documented_cycles() -> None:
    window = lower_function(in_mode(Case(config=SIXTEENS))).window
    assert window is not None
    found = [row_cycles(replace(window, strides=(1, stride), dilations=(1, dilation)), 10)
             for stride, dilation in ((1, 1), (2, 1), (3, 1), (2, 2), (1, 2), (4, 2))]  # fmt: skip
    assert found == [12, 21, 30, 12, 30, 21]
    assert [row_pitch(columns) for columns in (1, 2, 3, 16)] == [1, 3, 3, 17]


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (5, 4), (2, 7)])
def test_taps_are_packed_nine_by_nine(kernel: tuple[int, int]) -> None:
    blocks = Blocks.of(SIXTEENS)
    w = np.random.default_rng(3).integers(-128, 128, (21, 1, *kernel)).astype(np.int8)
    packed = packed_layout.pack_depthwise_taps(w, blocks)
    assert packed.shape == (2, -(-kernel[0] // 3), -(-kernel[1] // 3), 16, 16)
    for channel, (kh, kw) in ((0, (0, 0)), (20, (kernel[0] - 1, kernel[1] - 1)), (17, (kernel[0] // 2, 0))):
        row = 4 * (kh % 3) + kw % 3
        assert packed[channel // 16, kh // 3, kw // 3, row, channel % 16] == w[channel, 0, kh, kw]
    plain = packed_layout.unpack_depthwise_taps(packed)
    np.testing.assert_array_equal(plain[:21, :, : kernel[0], : kernel[1]], w)
    assert np.abs(packed.astype(int)).sum() == np.abs(w.astype(int)).sum()  # and nothing else


def test_what_the_mode_cannot_do_stays_as_it_is() -> None:
    assert in_depthwise_mode(replace(SIXTEENS, depthwise=0), Case(config=SIXTEENS).function()) is None
    assert in_depthwise_mode(SIXTEENS, Case(config=SIXTEENS, dilations=(2, 1), size=(12, 9)).function()) is None
    one_row = Case(config=SIXTEENS, dilations=(2, 1), kernel=(1, 3), pads=(0, 1, 0, 1))
    check(in_mode(one_row), SIXTEENS)  # nothing is dilated
    build = Build(SIXTEENS)
    dense = build.function(build.requantise(build.conv(build.input(1, 16, 4, 4), 16, 16, (1, 1)), 16, 1e5))
    assert in_depthwise_mode(SIXTEENS, dense) is None


@pytest.mark.parametrize("config", [TINY, WIDE, replace(PYNQ, depthwise=0)], ids=lambda config: config.name)
def test_cores_without_the_mode_do_not_know_it(config: CoreConfig) -> None:
    assert "depthwise_gemm" not in intrinsics(config)
    assert not any(gemm.depthwise for gemm in gemms(check(Case(config=config, channels=32).function(), config)))


def test_layers_take_the_mode_where_it_is_faster() -> None:
    case = Case(config=PYNQ, channels=96, size=(14, 14))
    assert all(gemm.depthwise for gemm in gemms(check(case.function(), PYNQ)))
    plain = lower_function(case.function())
    assert fastest_in_mode(PYNQ, USUAL_RATE, case.function(), plain, 2) is not None
    scale = Case(config=PYNQ, channels=96, size=(14, 14), kernel=(1, 1), pads=(0, 0, 0, 0))
    assert fastest_in_mode(PYNQ, USUAL_RATE, scale.function(), lower_function(scale.function()), 2) is None


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [14, 28, 56])
def test_the_mode_is_never_slower_than_what_it_replaces(size: int, stride: int) -> None:
    case = Case(config=PYNQ, channels=64, size=(size, size), strides=(stride, stride))
    with_mode, without = (compile_function(case.function(), config) for config in (PYNQ, replace(PYNQ, depthwise=0)))
    cycles = [predict(model.config, program_of(model).program, DramModel(), offset=program_of(model).program_offset)
              .cycles for model in (with_mode, without)]  # fmt: skip
    assert cycles[0] <= cycles[1]


def stream(case: Case, tiling: Tiling) -> Emitter:
    kernel = lower_function(in_mode(case))
    emitter = Emitter(case.config)
    places = {tensor.name: DramBuffer(4096 * place) for place, tensor in enumerate((*kernel.inputs, kernel.output))}
    emitter.emit(schedule_kernel(kernel, case.config, tiling).func, places)
    return emitter


@pytest.mark.parametrize(("width", "right"), [(7, 1), (8, 2)])
def test_rows_with_a_gap_behind_them_are_one_load(width: int, right: int) -> None:
    case = Case(config=MODES[2], channels=16, size=(6, width))
    issues = stream(case, Tiling(1, 6, width, 0, "cyx", 1, 6, 1)).issues
    loads = [each.instruction for each in issues if isinstance(each.instruction, Load)]
    found = [(each.rows, each.columns, each.pad_left, each.pad_right) for each in loads
             if each.scratchpad is Scratchpad.INP]  # fmt: skip
    assert found == [(6, width, 1, right)]


def test_an_even_distance_of_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case, tiling = Case(config=MODES[2], channels=16, size=(6, 8)), Tiling(1, 6, 8, 0, "cyx", 1, 6, 1)
    stream(case, tiling)
    monkeypatch.setattr(Schedule, "storage_align", lambda *args, **kwargs: None)
    with pytest.raises(CompileError, match=r"rows of taps lie 10 entries apart in 'data'.*hint: storage_align"):
        stream(case, tiling)


@pytest.mark.parametrize("dilations", [(1, 1), (3, 2), (5, 1)])
def test_padding_reaches_over_the_taps_that_fill_a_dilated_window_up(dilations: tuple[int, int]) -> None:
    """A window of 4x5 taps is filled up to 6x6: two rows and a column more, each its dilation further."""
    case = Case(config=SIXTEENS, size=(24, 20), kernel=(4, 5), dilations=dilations, pads=(1, 2, 3, 4))
    (tapped,) = (node for node in calls(in_mode(case).body) if node.op == TAPPED)
    (plain,) = (node for node in calls(case.function().body) if node.op == PLAIN)
    assert tapped.attr("pads") == (1, 2, 3 + 2 * dilations[0], 4 + dilations[1])
    assert tapped.type == plain.type
