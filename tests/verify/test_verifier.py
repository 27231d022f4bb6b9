"""Compiled models are proved; models with a fault are not, and the alarm says where."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.api import integer_graph
from weft.compiler.compile import compile_model
from weft.compiler.graph import Attrs, Constant, Function, Module, Span, TensorType, Var, call
from weft.compiler.graph.visit import substitute, topological_order
from weft.compiler.model import CompiledModel, Witness
from weft.compiler.targets.accel.check import Range, check_program
from weft.compiler.targets.accel.link import folded_moves
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes
from weft.errors import WeftError
from weft.hw.config import PYNQ, PYNQ_TABLES, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.hw.isa import Load, Scratchpad, Vector
from weft.hw.programs import assemble, disassemble
from weft.verify import VerifyError, verify
from weft.verify.counterexample import random_inputs, simulated
from weft.verify.graph import evaluated
from weft.verify.integer_operators import Context, of_byte
from weft.verify.keyed import Keys
from weft.verify.values import OneByte

from benchmarks.zoo.litert_cases import FAMILIES
from tests.compiler.onnx_models import FloatModel, quantise
from tests.compiler.targets.accel import chains, kernels
from tests.compiler.targets.accel.quantised_layers import layer as layer_of
from tests.compiler.targets.accel.quantised_layers import quantised, variable
from tests.compiler.targets.accel.test_random_shapes import KINDS, Layer
from tests.verify.planted import plant, with_program


@cache
def layer(kind: str, config: CoreConfig = TINY, seed: int = 0, **fields: object) -> tuple[CompiledModel, Module]:
    plain = packed = Layer(kind=kind, config=config, seed=seed, **fields).module()  # type: ignore[arg-type]
    for step in accel_passes(kernels.blocks_of(config), DramRate().for_bus(config)):
        packed = step(packed)
    made = compile_model(replace(packed, stage="packed"), "accel", {"config": config})
    assert isinstance(made, CompiledModel)
    return made, plain


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_layers_of_every_kind_are_proved_for_any_random_numbers(kind: str, config: CoreConfig) -> None:
    made, plain = layer(kind, config, channels=5, filters=9)
    first, other = (verify(made, plain, seed=seed) for seed in (1, 2))
    assert first.proved, first.alarms
    assert other.proved, other.alarms
    assert first.outputs == 1
    assert first.elements >= np.prod(plain.main.results[0].shape)
    assert first.error < 1e-6


def _rolled() -> tuple[CompiledModel, Module]:
    """Two layers with a roll and a transpose between."""
    x = variable(1, 3, 4, 6)
    first = layer_of(quantised(x), 2 * TINY.block_in)
    pieces = [
        call("slice", first, starts=(0, 0, start, 0), sizes=(1, 2 * TINY.block_in, size, 6), steps=(1,) * 4)
        for start, size in ((1, 3), (0, 1))
    ]
    moved = call("transpose", call("concat", *pieces, axis=2), perm=(3, 1, 2, 0))
    body = layer_of(moved, 5)
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))
    made = weft.compile(module, TINY)
    assert isinstance(made, CompiledModel)
    return made, integer_graph(module, made)


def test_moved_entries_are_proved_and_one_that_comes_from_elsewhere_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_moves, "LONG_ROW", 1)
    monkeypatch.setattr(folded_moves, "ENTRIES_A_LOAD", 0)
    made, plain = _rolled()
    assert [layer.kind for layer in made.layers if layer.device == "core"] == ["conv2d", "conv2d"]
    assert verify(made, plain).proved
    (step,) = made.programs
    code = disassemble(TINY, step.program)
    last = max(step.layer_of)
    number = next(
        place for place, each in enumerate(code)
        if isinstance(each, Load) and each.scratchpad is Scratchpad.INP and step.layer_of[place] == last
    )  # fmt: skip
    load = code[number]
    assert isinstance(load, Load)
    code[number] = replace(load, offset=load.offset + 1)
    assert not verify(with_program(made, 0, assemble(TINY, code)), plain).proved


@pytest.mark.parametrize("kind", ["convolution", "add", "depthwise_swish"])
def test_layers_whose_channels_share_parameters_are_proved(kind: str) -> None:
    made, plain = layer(kind, TINY, channels=12, filters=12, uniform=True)
    assert verify(made, plain).proved


@pytest.mark.parametrize("seed", [1, 5, 8, 35])
def test_chains_are_proved(seed: int) -> None:
    case = (chains.pooled_case if seed % 2 else chains.random_case)(seed)
    function = chains.chain_function(case, chains.SQUARE[seed % len(chains.SQUARE)])
    body = call(function, *function.params, span=Span((function.name,), "result"))
    main = Function(function.params, body, Attrs({"name": function.name, "outputs": ("output",)}))
    config = chains.SQUARE[seed % len(chains.SQUARE)]
    try:
        made = compile_model(Module(main, "packed"), "accel", {"config": config})
    except WeftError:
        pytest.skip("the chain does not fit the core")
    assert isinstance(made, CompiledModel)
    found = verify(made, seed=seed)
    assert found.proved, found.alarms


def test_whole_models_of_several_programs_and_host_steps_are_proved(tmp_path: Path) -> None:
    """Also from a file, by the model as it was read."""
    model = FloatModel((1, 3, 6, 6))
    first = model.op("Transpose", model.op("Relu", model.conv("x", 3, 8)), perm=[0, 3, 2, 1])
    quantise(model.build(model.conv(first, 6, 8)), tmp_path)
    made = weft.compile(tmp_path / "quantised.onnx", "tiny")
    assert isinstance(made, CompiledModel)
    assert len(made.programs) == 2
    weft.save(made, tmp_path / "model.weft")
    for each in (made, tmp_path / "model.weft"):
        found = weft.certify(each, tmp_path / "quantised.onnx", seed=1)
        assert found.proved, found.alarms
        assert found.outputs == 1
        assert any("host" in text for text in found.trusted)


@pytest.mark.parametrize("config", [TINY, PYNQ, PYNQ_TABLES], ids=lambda config: config.name)
@pytest.mark.parametrize("size", [3, 24])
def test_functions_of_a_byte_are_proved_as_tables_as_ramps_and_on_the_host(config: CoreConfig, size: int) -> None:
    """Behind a small tensor a table becomes ramps, behind a large one the host looks it up; or it is in the lanes."""
    x = variable(1, 8, size, size)
    body = layer_of(quantised(call("nn.sigmoid", layer_of(quantised(x), 12)), 1 / 256), 5)
    module = Module(Function((x,), body, Attrs({"name": "tables"})))
    made = compile_model(module, "accel", {"config": config})
    assert isinstance(made, CompiledModel)
    found = weft.certify(made, module, seed=3)
    assert found.proved, found.alarms


@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_bytes_that_are_shifted_for_a_sum_stay_functions_of_a_byte(config: CoreConfig) -> None:
    """As where a constant is added to one channel."""
    x = Var("x", TensorType((2, 5, 3, 3), "int8"))
    weights = Constant(np.random.default_rng(0).integers(-127, 128, (1, 5, 1, 1)).astype(np.int8))
    first, second = (
        [Constant(np.array([number], np.int32)) for number in numbers]
        for numbers in ((7, 15083863, 31), (-342539, 12388608, 37))
    )
    shifted = call("multiply_immediate", call("requantise", call("conv2d", x, weights), *first), weight=1 << 14)
    body = call("requantise", shifted, *second, zero_point=3)
    plain = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})), "integer")
    made = compile_model(plain, "accel", {"config": config})
    assert isinstance(made, CompiledModel)
    assert made.witness is not None
    assert "left_shift" in made.witness.text
    found = verify(made, plain, seed=3)
    assert found.proved, found.alarms


@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_functions_of_a_byte_are_proved_behind_channels_that_are_filled_up(config: CoreConfig) -> None:
    """The host's table goes on in the core, behind lanes that no channel has."""
    x = variable(1, 5, 24, 24)
    narrow = layer_of(quantised(x), 3)
    sine = quantised(call("nn.sin", narrow), 1 / 127)
    body = layer_of(quantised(call("concat", narrow, sine, axis=1)), 5)
    module = Module(Function((x,), body, Attrs({"name": "main"})))
    made = weft.compile(module, config)
    assert isinstance(made, CompiledModel)
    found = weft.certify(made, module, seed=3)
    assert found.proved, found.alarms


@pytest.mark.parametrize("shape", [(2, 3), (3, 4), (2, 3, 2, 1), (2, 5, 1, 1)])
@pytest.mark.parametrize("channels", [1, None])
def test_what_is_filled_up_is_the_same_by_its_table_and_by_its_elements(
    shape: tuple[int, ...], channels: int | None
) -> None:
    random, keys = np.random.default_rng(0), Keys(1)
    table = random.integers(-128, 128, (256, channels or shape[1]))
    value = of_byte(OneByte(keys.atoms(shape, "base"), table), keys)
    for blocks in (Blocks(1, 4, 4), Blocks(2, 4, 8)):
        param = Var("x", TensorType(shape, "int8"))
        body = call("pack", param, blocks=(blocks.batch, blocks.block_in, blocks.block_out))
        (found,) = evaluated(Function((param,), body, Attrs({})), [value], Context(keys, one_byte=True))
        assert (found.of_byte is None) == bool(shape[0] % blocks.batch)
        if found.of_byte is not None:
            assert (found.of_byte.elements(keys) == found.elements(keys)).all()


def test_functions_of_one_name_and_equal_layers_are_told_apart(tmp_path: Path) -> None:
    """Concatenations are all called so, and two equal layers are one value."""
    model = FloatModel((1, 4, 5, 3))
    parts = [model.op("Relu", model.conv("x", 4, 6)) for _ in range(2)]
    wide = model.op("Concat", *parts, axis=1)
    more = model.op("Concat", wide, parts[0], axis=1)
    quantise(model.build(model.op("Relu", model.conv(more, 18, 4))), tmp_path)
    made = weft.compile(tmp_path / "quantised.onnx", "tiny", cache=False)
    assert isinstance(made, CompiledModel)
    found = weft.certify(made, tmp_path / "quantised.onnx", seed=1)
    assert found.proved, found.alarms


def test_requantised_channels_that_the_host_makes_unsigned_are_proved() -> None:
    """The function of a byte differs from channel to channel, and goes on behind the core."""
    (case,) = (each for each in FAMILIES["types"]() if each.name == "QUANTIZE int8 to uint8")
    made = weft.compile(case.model, "pynq", cache=False)
    assert isinstance(made, CompiledModel)
    assert made.core is not None
    found = weft.certify(made, case.model, seed=1)
    assert found.proved, found.alarms


# Faults


def _alarm(made: CompiledModel, plain: Module | None = None) -> str:
    found = verify(made, plain, seed=1)
    assert not found.proved
    return "\n".join(map(str, found.alarms))


def test_a_limit_off_by_one_is_found_and_named() -> None:
    """Random inputs hardly reach a limit; the proof does not depend on that."""
    made, _ = layer("convolution")
    instructions = disassemble(made.config, made.programs[0].program)
    place = max(n for n, each in enumerate(instructions) if isinstance(each, Vector) and each.high == 127)
    wrong = [*instructions[:place], replace(instructions[place], high=126), *instructions[place + 1 :]]
    text = _alarm(with_program(made, 0, assemble(made.config, wrong)))
    (name,) = (each for each in made.layers if each.device == "core")
    assert f"layer {name.name!r}, tensor {name.output!r}" in text
    assert "instruction" in text
    assert "store store" in text


def test_faults_in_instructions_that_the_simulator_shows_are_found() -> None:
    choice = random.Random(4)
    found_by_fsim = 0
    for kind in ("convolution", "residual", "max_pool"):
        made, _ = layer(kind, channels=3, filters=5, size=(5, 4))
        (step,), core = made.programs, made.on_core
        instructions = disassemble(core.config, step.program)
        inputs = random_inputs(core, step, 0)
        right = simulated(core, step, inputs)
        assert isinstance(right, dict)
        constants = tuple(Range(each.offset, each.offset + each.data.nbytes) for each in core.constants)
        for _ in range(16):
            fault = plant(choice, core.config, instructions)
            try:
                check_program(core.config, fault.program, step.program_offset, constants)
            except (WeftError, ValueError):
                continue
            wrong = with_program(made, 0, fault.program)
            shown = simulated(core, wrong.programs[0], inputs)
            if isinstance(shown, str) or any((shown[name] != right[name]).any() for name in right):
                found_by_fsim += 1
                assert not verify(wrong, seed=1).proved, f"{fault.name}: {fault.old} became {fault.new}"
    assert found_by_fsim >= 10


def test_a_counterexample_is_a_run_of_the_simulator() -> None:
    made, _ = layer("convolution")
    instructions = disassemble(made.config, made.programs[0].program)
    place = max(n for n, each in enumerate(instructions) if isinstance(each, Vector) and each.zero_point)
    wrong = list(instructions)
    wrong[place] = replace(wrong[place], zero_point=wrong[place].zero_point - 1)
    text = _alarm(with_program(made, 0, assemble(made.config, wrong)))
    assert "fsim, random inputs with seed 0: " in text
    assert "but must be" in text


def test_a_changed_constant_is_found() -> None:
    made, _ = layer("convolution")
    core = made.on_core
    data = core.constants[0].data.copy()
    data[np.flatnonzero(data)[0]] += 1
    changed = replace(core, constants=(replace(core.constants[0], data=data), *core.constants[1:]))
    assert "elements are not proved equal" in _alarm(replace(made, core=changed))


def test_a_model_with_another_weight_is_another_model() -> None:
    made, plain = layer("convolution")
    _, other = layer("convolution", seed=1)
    assert verify(made, plain, seed=1).proved
    assert "packing: tensor 'output0'" in _alarm(made, other)


def test_a_model_with_one_other_weight_is_another_model() -> None:
    """Of which most elements are the same."""
    made, plain = layer("convolution")
    (weights,) = (
        node for node in topological_order(plain.main.body) if isinstance(node, Constant) and node.value.ndim == 4
    )
    changed = weights.value.copy()
    changed[1, 0, 0, 0] ^= 1
    other = plain.with_main(substitute(plain.main.body, {weights: Constant(changed)}))
    assert "packing: tensor 'output0': 3" in _alarm(made, other)


def test_a_race_is_no_program() -> None:
    made, _ = layer("convolution")
    instructions = disassemble(made.config, made.programs[0].program)
    bare = [replace(each, wait=0, send=0) for each in instructions]
    assert "race" in _alarm(with_program(made, 0, assemble(made.config, bare)))


def test_a_witness_that_claims_something_else_proves_nothing() -> None:
    """Who changes the graph in an artifact, so that a wrong program fits it, is found by the model."""
    _, plain = layer("convolution")
    other, _ = layer("convolution", seed=1)
    assert verify(other, seed=1).proved
    assert not verify(other, plain, seed=1).proved


def test_what_cannot_be_verified_says_why() -> None:
    made, _ = layer("convolution")
    with pytest.raises(VerifyError, match="compile it again"):
        verify(replace(made, witness=None))
    with pytest.raises(VerifyError, match="cannot be read"):
        verify(replace(made, witness=Witness("fn @main(", {}, ())))
    witness = made.witness
    assert witness is not None
    with pytest.raises(VerifyError, match="does not fit its names"):
        verify(replace(made, witness=replace(witness, names=())))
    with pytest.raises(VerifyError, match="repeat is 0"):
        verify(made, repeat=0)
    with pytest.raises(VerifyError, match="repeat is '2', but must be a whole number of at least 1"):
        verify(made, repeat="2")  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="seed is 'abc', but must be a whole number; hint: that of a printed"):
        verify(made, seed="abc")  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="runs on a core"):
        verify(replace(made, core=None))


def test_repeating_multiplies_chances_of_error() -> None:
    made, plain = layer("convolution")
    once, twice = (verify(made, plain, seed=1, repeat=count) for count in (1, 2))
    assert twice.proved
    assert 0 < twice.error < once.error**1.9
