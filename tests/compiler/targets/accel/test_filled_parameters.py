"""Of a requantise's parameters an entry that is one number everywhere is filled in by loads, and never read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.compiler.graph import Constant, Function, evaluate_function
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.cost.space import lower_bound
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.filled_parameters import Filled, fills_pay
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import USUAL_RATE, DramRate
from weft.hw.isa import Load, Scratchpad
from weft.hw.programs import Code, disassemble
from weft.sim.dram import DramModel
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import predict

from .kernels import CONFIGS, Build, check, compile_function, program_of, write_model

CHANNELS = 48
CASES = {
    "no bias": (0, None), "one bias": (-128, None), "one shift": (None, 29), "both": (0, 29),
    "large bias": (1000, None), "neither": (None, None),
}  # fmt: skip
"""Of all channels, the bias and the shift; None: each has its own."""


def parameters(case: str, channels: int = CHANNELS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bias, shift = CASES[case]
    random = np.random.default_rng(1)
    return (
        random.integers(-900, 900, channels) if bias is None else np.full(channels, bias),
        random.integers(1 << 22, 1 << 23, channels),
        random.integers(28, 31, channels) if shift is None else np.full(channels, shift),
    )


def layer(config: CoreConfig, case: str, *, size: tuple[int, int] = (3, 2), channels: int = CHANNELS) -> Function:
    build = Build(config)
    product = build.conv(build.input(1, 24, *size), 24, channels, (1, 1))
    params = packed_layout.pack_parameters(*parameters(case, channels), build.blocks)
    return build.function(build.op("requantise", product, Constant(params), zero_point=3))


def loads_of(model: CompiledModel) -> list[Load]:
    return loads_in(model.config, program_of(model).program)


def loads_in(config: CoreConfig, program: Code) -> list[Load]:
    """Into the accumulators."""
    return [
        each for each in disassemble(config, program) if isinstance(each, Load) and each.scratchpad is Scratchpad.ACC
    ]


@pytest.mark.parametrize("case", CASES)
def test_results_equal_the_contract_on_cores_of_all_kinds(case: str) -> None:
    for config in (PYNQ, *CONFIGS):
        check(layer(config, case), config)


@pytest.mark.parametrize(
    ("case", "first", "value"),
    [("no bias", True, 0), ("one bias", True, -128), ("one shift", False, 29), ("both", True, 0)],
)
def test_a_third_is_not_read(case: str, first: bool, value: int) -> None:
    groups = CHANNELS // PYNQ.block_out
    loads = loads_of(check(layer(PYNQ, case), PYNQ))
    assert sum(each.rows * each.columns for each in loads) == 2 * groups
    assert {(each.pad_left, each.pad_right, each.pad_value) for each in loads} == {(int(first), int(not first), value)}


@pytest.mark.parametrize("case", ["large bias", "neither"])
def test_what_no_load_can_fill_in_is_read(case: str) -> None:
    loads = loads_of(check(layer(PYNQ, case), PYNQ))
    assert sum(each.rows * each.columns for each in loads) == 3 * CHANNELS // PYNQ.block_out
    assert not any(each.pad_left or each.pad_right for each in loads)


def test_it_is_an_entry_at_an_end_that_an_int8_holds() -> None:
    blocks = packed_layout.Blocks(1, 16, 16)
    found = {case: Filled.of(packed_layout.pack_parameters(*parameters(case), blocks)) for case in CASES}
    assert found == {
        "no bias": Filled(True, 0), "one bias": Filled(True, -128), "one shift": Filled(False, 29),
        "both": Filled(True, 0), "large bias": None, "neither": None,
    }  # fmt: skip
    packed = packed_layout.pack_parameters(*parameters("no bias"), blocks)
    np.testing.assert_array_equal(Filled(True, 0).stored(packed), packed[:, 1:])
    np.testing.assert_array_equal(Filled(False, 29).stored(packed), packed[:, :2])


def test_bursts_too_short_for_the_memory_are_not_made() -> None:
    assert fills_pay(PYNQ, USUAL_RATE)
    assert fills_pay(PYNQ, DramRate(bytes_per_cycle=4, latency=100))
    slow = DramRate(bytes_per_cycle=8, latency=600)
    assert not fills_pay(PYNQ, slow)
    assert not fills_pay(replace(PYNQ, read_outstanding=1), USUAL_RATE)
    kernel = lower_function(layer(PYNQ, "no bias"))
    for rate, entries in ((USUAL_RATE, 2), (slow, 3)):
        program, _ = kernel_program(kernel, PYNQ, rate, tilings(Problem(PYNQ, kernel, 2, rate=rate))[0])
        loads = loads_in(PYNQ, program)
        assert sum(each.rows * each.columns for each in loads) == entries * CHANNELS // PYNQ.block_out


def test_a_layer_of_many_parameters_takes_fewer_cycles_and_no_fewer_than_its_bound() -> None:
    cycles = {}
    for case in ("no bias", "neither"):
        function = layer(PYNQ, case, size=(1, 1), channels=1024)
        model = compile_function(function, PYNQ)
        step = program_of(model)
        result = predict(PYNQ, step.program, DramModel(), offset=step.program_offset)
        cycles[case] = result.cycles
        assert lower_bound(Problem(PYNQ, lower_function(function), 2)) <= cycles[case]
    saved = 1024 * 4 / PYNQ.bus_bytes
    assert cycles["neither"] - cycles["no bias"] > 0.6 * saved


def test_the_rtl_computes_the_same_in_the_predicted_cycles() -> None:
    function = layer(TINY, "one shift")
    model = compile_function(function, TINY, dram=DramRate(bytes_per_cycle=4, latency=20))
    assert any(each.pad_right for each in loads_of(model))
    step, (name,) = program_of(model), (param.name for param in function.params)
    slot = model.core.slots[name]
    inputs = {name: np.random.default_rng(0).integers(-128, 128, slot.shape).astype(np.int8)}
    dram = DramModel(latency=20, bytes_per_cycle=4)
    rtl = RtlSimulator(TINY, model.core.window_bytes, dram=dram)
    write_model(rtl, model, inputs)
    result = rtl.run(step.program_offset, len(step.program) // TINY.instruction_bytes)
    (output,) = (model.core.slots[each] for each in step.outputs)
    found = rtl.dram[output.offset : output.offset + output.nbytes].view(output.dtype).reshape(output.shape)
    np.testing.assert_array_equal(found, evaluate_function(function, list(inputs.values())))
    assert result.cycles == predict(TINY, step.program, dram, offset=step.program_offset).cycles
