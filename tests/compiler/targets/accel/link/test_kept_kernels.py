"""Kernels and programs of earlier compilations: found by another process and for other weights, never a stale one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import weft
from onnx import numpy_helper
from weft import kept_models
from weft.cache import made_entries
from weft.compiler.compile import compile_model
from weft.compiler.model import CompiledModel, CoreStep
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.link.kept_kernels import kept_result, kernels_from
from weft.compiler.targets.accel.operators import lower
from weft.compiler.targets.accel.operators.lower import Kernel
from weft.compiler.targets.accel.passes import chain
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.target import Job
from weft.compiler.tensor.ir import PrimFunc
from weft.content import NoContentError, content_digest
from weft.hw.config import TINY, CoreConfig
from weft.hw.dram_rate import DramRate

from tests.test_content import changed

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
KEY = "what compilations follow from"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))


def measure(config: CoreConfig, rate: DramRate, program: Any, window_bytes: int) -> int:
    return len(program)


def digits(change: Callable[[np.ndarray], None] | None = None) -> bytes:
    """The network, perhaps with other weights in its second convolution."""
    model = onnx.load(DIGITS)
    weights = [each for each in model.graph.initializer if len(each.dims) == 4][1]
    values = numpy_helper.to_array(weights).copy()
    if change is not None:
        change(values)
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    return model.SerializeToString()


def compiled(model: Any = DIGITS, kept: str | None = KEY, *, keep: bool = False, **options: Any) -> CompiledModel:
    """As another process would: nothing is remembered from before."""
    compile_kernel._schedule_once.cache_clear()
    compile_kernel._WALKS.clear()
    lower._LOWERED.clear()
    job = Job(keep=keep, measure=measure, kept=kept)
    made = compile_model(model, "accel", {"config": TINY, **options}, job=job)
    assert isinstance(made, CompiledModel)
    return made


def made_by(call: Callable[[], Any]) -> int:
    """Entries that a call makes."""
    before = made_entries().get("kernels", 0)
    call()
    return made_entries().get("kernels", 0) - before


def parts(model: CompiledModel) -> list[Any]:
    """All that a core runs, and what is told of it."""
    programs = [step for step in model.steps if isinstance(step, CoreStep)]
    assert programs
    assert model.core is not None
    return [
        *([step.program.tobytes(), step.layer_of.tolist(), step.tile_of.tolist()] for step in programs),
        [(each.offset, each.data.tobytes()) for each in model.core.constants],
        model.layers,
        {name: value for name, value in model.statistics.items() if name != "compile_seconds"},
    ]


SCRIPT = """
import hashlib, json
from tests.compiler.targets.accel.link.test_kept_kernels import *
print(json.dumps([hashlib.sha256(repr(parts(compiled())).encode()).hexdigest(), made_entries().get("kernels", 0)]))
"""


def test_a_second_process_builds_nothing() -> None:
    runs = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SCRIPT]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    (first, made), (second, again) = runs
    assert made > 0
    assert again == 0
    assert first == second


def test_other_values_of_weights_have_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(values: np.ndarray) -> None:
        values[values > 1] -= 1

    first = compiled()
    with monkeypatch.context() as patch:
        patch.setattr(compile_kernel, "schedule_kernel", lambda *_: pytest.fail("scheduled"))
        patch.setattr(compile_kernel, "append", lambda *_: pytest.fail("walked"))
        patch.setattr(chain, "chain_tilings", lambda *_: pytest.fail("tiled"))
        patch.setattr(chain, "estimate_apart", lambda *_: pytest.fail("estimated"))
        patch.setattr(chain._Chainer, "_decide", lambda *_: pytest.fail("measured"))
        assert made_by(lambda: compiled()) == 0
        assert made_by(lambda: compiled(digits(other))) == 0
        second = compiled(digits(other))
    assert parts(second) == parts(compiled(digits(other), kept=None))
    assert parts(second)[0] == parts(first)[0]
    assert parts(second) != parts(first)


def test_weights_that_are_left_out_make_another_program() -> None:
    def some_zero(values: np.ndarray) -> None:
        values[:8, :4] = 0

    compiled()
    model = digits(some_zero)
    assert made_by(lambda: compiled(model)) > 0
    assert made_by(lambda: compiled(model)) == 0
    assert parts(compiled(model)) == parts(compiled(model, kept=None))


def three_layers(
    source: str = "y0", zero_point: int = 3, scale: float = 0.05, pad: int = 1, seed: int = 0
) -> bytes:  # fmt: skip
    """Two convolutions of the same shape, and one that reads the result of either."""
    chance = np.random.default_rng(seed)
    values: dict[str, np.ndarray | np.generic] = {
        "x_scale": np.float32(0.02), "x_zero": np.int8(-1), "w_scale": np.float32(0.01), "w_zero": np.int8(0),
        "y_scale": np.float32(scale), "y_zero": np.int8(zero_point),
        **{name: chance.integers(1, 100, (8, 4, 3, 3), np.int8) for name in ("w0", "w1")},
        "w2": chance.integers(1, 100, (8, 8, 3, 3), np.int8),
    }  # fmt: skip
    nodes = [
        onnx.helper.make_node(
            "QLinearConv", [name, "x_scale", "x_zero", f"w{number}", "w_scale", "w_zero", "y_scale", "y_zero"],
            [f"y{number}"], pads=[pad] * 4,
        )
        for number, name in enumerate(("x", "x", source))
    ]  # fmt: skip
    int8, sizes = onnx.TensorProto.INT8, (6, 4 + 2 * pad, 4 + 2 * pad, 2 + 4 * pad)
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", int8, [1, 4, 6, 6])],
        [onnx.helper.make_tensor_value_info(f"y{number}", int8, [1, 8, size, size])
         for number, size in enumerate(sizes[1:])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17)]
    return bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize(
    "change",
    [{"source": "y1"}, {"zero_point": 4}, {"scale": 0.06}, {"pad": 0}, {"seed": 1}],
    ids=lambda change: "".join(change),
)
def test_another_network_has_what_it_would_have_alone(change: dict[str, Any]) -> None:
    compiled(three_layers())
    other = three_layers(**change)
    assert parts(compiled(other)) == parts(compiled(other, kept=None))
    assert parts(compiled(other)) == parts(compiled(other, kept=None))  # with what itself has kept


class Layer(NamedTuple):
    """A convolution; of its weights the first so many input channels are zero."""

    channels: int = 8
    kernel: int = 3
    dilation: int = 1
    zeros: int = 0

    def weights(self, inputs: int) -> np.ndarray:
        chance = np.random.default_rng(self.channels)
        values = chance.integers(1, 100, (self.channels, inputs, self.kernel, self.kernel), np.int8)
        values[:, : self.zeros] = 0
        return values


def layers_in_a_row(layers: Sequence[Layer]) -> bytes:
    """Convolutions that keep the size of an image; the first has 8 channels."""
    values: dict[str, np.ndarray | np.generic] = {
        "scale": np.float32(0.02), "zero": np.int8(-1), "w_scale": np.float32(0.01), "w_zero": np.int8(0)
    }  # fmt: skip
    nodes, channels = [], 8
    for number, layer in enumerate(layers):
        values[f"w{number}"] = layer.weights(channels)
        channels = layer.channels
        nodes.append(onnx.helper.make_node(
            "QLinearConv", [f"y{number}", "scale", "zero", f"w{number}", "w_scale", "w_zero", "scale", "zero"],
            [f"y{number + 1}"], f"layer{number}", pads=[layer.dilation * (layer.kernel // 2)] * 4,
            dilations=[layer.dilation] * 2,
        ))  # fmt: skip
    int8 = onnx.TensorProto.INT8
    graph = onnx.helper.make_graph(
        nodes, "net", [onnx.helper.make_tensor_value_info("y0", int8, [1, 8, 9, 9])],
        [onnx.helper.make_tensor_value_info(f"y{len(layers)}", int8, [1, channels, 9, 9])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17)]
    return bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("seed", range(6))
def test_a_network_with_a_changed_layer_has_the_program_of_a_cold_compilation(seed: int) -> None:
    chance = random.Random(seed)

    def layer() -> Layer:
        return Layer(chance.choice([4, 8, 12]), chance.choice([1, 3]), chance.choice([1, 2]), chance.choice([0, 0, 4]))

    layers = [layer() for _ in range(4)]
    options: dict[str, Any] = {"vthreads": chance.choice([1, 2]), "chains": chance.random() < 0.5}
    compiled(layers_in_a_row(layers), **options)
    for _ in range(2):
        layers[chance.randrange(len(layers))] = layer()
        model = layers_in_a_row(layers)
        assert parts(compiled(model, **options)) == parts(compiled(model, kept=None, **options))


@pytest.mark.parametrize("place", range(3))
def test_only_a_changed_layer_is_walked(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others have moved: what lies before them, in the scratchpads and in DRAM, is of another size."""
    layers = [Layer(8), Layer(12), Layer(4)]
    compiled(layers_in_a_row(layers), chains=False)
    layers[place] = layers[place]._replace(kernel=1)
    walked: list[str] = []
    walk = Emitter.walked

    def noted(emitter: Emitter, functions: Sequence[tuple[PrimFunc, Any]]) -> Any:
        walked.extend(function.name for function, _ in functions)
        return walk(emitter, functions)

    monkeypatch.setattr(Emitter, "walked", noted)
    made = compiled(layers_in_a_row(layers), chains=False)
    assert walked == [[each for each in made.layers if each.device == "core"][place].name]


def test_whatever_kernels_follow_from_takes_part() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: compiled(kept="another compiler"),
        lambda: compiled(config=replace(TINY, queue_depth=TINY.queue_depth * 2)),
        lambda: compiled(config=replace(TINY, acc_depth=TINY.acc_depth * 2)),
        lambda: compiled(dram="4,333"),
        lambda: compiled(vthreads=1),
        lambda: compiled(hiding="none"),
        lambda: compiled(keep=True),
    ]
    compiled()
    assert [made_by(call) > 0 for call in calls] == [True] * len(calls)
    assert [made_by(call) for call in calls] == [0] * len(calls)
    options: list[dict[str, Any]] = [{"dram": "4,333"}, {"vthreads": 1}, {"hiding": "none"}, {"keep": True}]
    for each in options:
        assert parts(compiled(**each)) == parts(compiled(kept=None, **each))


def test_every_field_of_a_core_takes_part() -> None:
    made: list[int] = []
    cores = [TINY, *(replace_field(TINY, each.name) for each in fields(TINY))]
    with kernels_from(KEY):
        for core in cores:
            made.append(made_by(lambda core=core: kept_result(lambda: 1, core, "number", 7)))  # type: ignore[misc]
        assert made_by(lambda: kept_result(lambda: 1, TINY, "another number", 7)) == 1
        assert made_by(lambda: kept_result(lambda: 1, TINY, "number", 8)) == 1
        assert made_by(lambda: kept_result(lambda: 1, TINY, "number", 7)) == 0
    different = {content_digest(core) for core in cores}
    assert sum(made) == len(different) > len(cores) // 2


def replace_field(core: CoreConfig, name: str) -> CoreConfig:
    """The core with one field changed; as it is, where no core has any of what is tried."""
    value = getattr(core, name)
    for other in (changed(value), *((2 * value, value // 2, 1 - value) if isinstance(value, int) else ())):
        try:
            return replace(core, **{name: other})
        except weft.WeftError:
            continue
    return core


def test_nothing_is_kept_without_being_asked(tmp_path: Path) -> None:
    assert made_by(lambda: compiled(kept=None)) == 0
    assert made_by(lambda: weft.compile(digits(), "tiny", cache=False, chains=False)) == 0
    assert made_by(lambda: weft.compile(digits(), "tiny", dump=tmp_path / "dump", chains=False)) == 0
    assert made_by(lambda: weft.compile(digits(), "tiny", chains=False)) > 0
    assert made_by(lambda: weft.compile(onnx.load(DIGITS), "tiny", chains=False)) == 0


def test_what_a_process_made_is_of_its_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    key = kept_models._kernels_key()
    surroundings = kept_models._surroundings()
    for number in range(len(surroundings)):
        other = (*surroundings[:number], "changed", *surroundings[number + 1 :])
        monkeypatch.setattr(kept_models, "_surroundings", lambda other=other: other)
        assert kept_models._kernels_key() != key


def test_what_has_no_content_or_cannot_travel_is_made_each_time() -> None:
    numbers = iter(range(10))
    with kernels_from(KEY):
        assert [kept_result(lambda: next(numbers), TINY, "number", len) for _ in range(2)] == [0, 1]
        assert [kept_result(lambda: next(numbers), TINY, "number", 1) for _ in range(2)] == [2, 2]
        functions = [kept_result(lambda: lambda: None, TINY, "function", 1) for _ in range(2)]
        with pytest.raises(NoContentError):
            content_digest(functions[0])
    assert kept_result(lambda: next(numbers), TINY, "number", 1) == 3


def test_errors_are_told_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: Kernel, *_: Any) -> None:
        raise CompileError("refused", at=f"function {kernel.name!r}")

    monkeypatch.setattr(compile_kernel, "schedule_kernel", refuse)
    messages = set()
    for kept in (KEY, KEY, None):
        with pytest.raises(CompileError) as error:
            compiled(kept=kept)
        messages.add(str(error.value))
    assert len(messages) == 1
    assert "function '" in messages.pop()
