"""The models that `soak.py` runs, and what each must give: computed once, before anything is disturbed."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import read
from weft.compiler.graph import evaluate
from weft.compiler.model import CompiledModel, OpenModel
from weft.runtime.module import LoadedModule
from weft.runtime.open_module import OpenModule

from examples.models.images import images

Array = npt.NDArray[Any]
Module = LoadedModule | OpenModule

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SIZE, CHANNELS, FEATURES = 12, 8, 32
INPUTS = 12
"""Inputs of each model; more results than that are told apart by chance only."""

LARGEST_BATCH = 6
"""More sizes than an open module keeps."""


@dataclass(frozen=True)
class Form:
    """A model, compiled for a target, on a device. ``weight``: how often it is chosen."""

    model: str
    device: str
    threads: int = 1
    weight: int = 4

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.model}-{self.device}{self.threads}"

    @property
    def on_core(self) -> bool:
        """Whether programs for the core are part of it."""
        return self.device != "cpu"

    def compiled(self, folder: Path) -> CompiledModel | OpenModel:
        """The model of a folder, compiled."""
        path = folder / f"{self.model}.onnx"
        if self.on_core:
            return weft.compile(path, "tiny", threads=self.threads)
        return weft.compile(path, target="cpu", threads=self.threads)

    def loaded(self, model: CompiledModel | OpenModel | Path) -> Module:
        """A module on the form's device; of a model or an artifact."""
        return weft.load(cast(Any, model), self.device if self.on_core else None)


FORMS = {
    form.name: form
    for form in (
        Form("digits", "fsim"), Form("digits", "cpu"), Form("digits", "cpu", 2), Form("digits", "rtl", weight=2),
        Form("conv", "fsim"), Form("conv", "cpu", 2), Form("conv", "rtl", weight=1),
        Form("mixed", "fsim", 2), Form("mixed", "rtl", weight=1), Form("mixed", "cpu"),
        Form("open", "cpu"), Form("open", "cpu", 2),
    )
}  # fmt: skip
"""Integers only, floats only, and both; ``open`` leaves the batch open."""

FLOAT_TOLERANCE = 2e-6
"""How far a result in floats may be from onnxruntime's."""


def write_models(folder: Path) -> None:
    """All models as ONNX files."""
    from examples.models.quantise import quantise  # workers do without onnxruntime, which has files of its own

    shutil.copy(DIGITS, folder)
    samples = images(8, SIZE)
    quantise(_network("conv", mixed=False), samples, folder / "conv.onnx", form="qdq", activations="int8")
    quantise(_network("mixed", mixed=True), samples, folder / "mixed.onnx", form="qdq", activations="int8")
    onnx.save(_open_network(), folder / "open.onnx")


def _network(name: str, *, mixed: bool) -> onnx.ModelProto:
    """Two convolutions; ``mixed``: with operators between them that the core lacks."""
    generator = np.random.default_rng(0)
    constants = []
    for number, channels in enumerate((3, CHANNELS)):
        weights = generator.standard_normal((CHANNELS, channels, 3, 3)) * math.sqrt(2 / (9 * channels))
        constants += [
            numpy_helper.from_array(weights.astype(np.float32), f"w{number}"),
            numpy_helper.from_array(generator.normal(0, 0.1, CHANNELS).astype(np.float32), f"b{number}"),
        ]
    between = (
        [helper.make_node("Softmax", ["r"], ["s"], "s", axis=1), helper.make_node("Mul", ["r", "s"], ["m"], "m")]
        if mixed else []
    )  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], "c", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "r"),
        *between,
        helper.make_node("Conv", ["m" if mixed else "r", "w1", "b1"], ["y"], "y", pads=[1] * 4, strides=[2, 2]),
    ]
    half = SIZE // 2
    return _model(name, nodes, constants, ["x", 1, 3, SIZE, SIZE], ["y", 1, CHANNELS, half, half])


def _open_network() -> onnx.ModelProto:
    """Two dense layers in float32 on a batch of any size."""
    generator = np.random.default_rng(1)
    constants = [
        numpy_helper.from_array((generator.standard_normal((FEATURES, FEATURES)) / 6).astype(np.float32), f"w{number}")
        for number in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "a"),
        helper.make_node("Tanh", ["a"], ["t"], "t"),
        helper.make_node("MatMul", ["t", "w1"], ["b"], "b"),
        helper.make_node("Softmax", ["b"], ["y"], "y", axis=-1),
    ]
    return _model("open", nodes, constants, ["x", "n", FEATURES], ["y", "n", FEATURES])


def _model(
    name: str, nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], source: list[Any], result: list[Any]
) -> onnx.ModelProto:
    kinds = [helper.make_tensor_value_info(each[0], TensorProto.FLOAT, each[1:]) for each in (source, result)]
    graph = helper.make_graph(nodes, name, kinds[:1], kinds[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def inputs_of(model: str, seed: int) -> list[Array]:
    """The inputs of a model."""
    generator = np.random.default_rng((seed, len(model)))
    if model == "digits":
        return list(generator.random((INPUTS, 1, 1, 8, 8), np.float32))
    if model == "open":
        sizes = (1 + number % LARGEST_BATCH for number in range(INPUTS))
        return [generator.standard_normal((size, FEATURES)).astype(np.float32) for size in sizes]
    return [image[np.newaxis] for image in images(INPUTS, SIZE, 100 + seed)]


def only(results: dict[str, Array]) -> Array:
    """The one result of a model."""
    (value,) = results.values()
    return value


def independent(folder: Path, model: str, x: Array) -> Array:
    """The result by a path without kernels, devices and passes."""
    path = folder / f"{model}.onnx"
    if model == "open":
        from examples.precise import precise_session

        session = precise_session(path)
        return cast(Array, session.run(None, {session.get_inputs()[0].name: x})[0])
    module = read(path).module({}, require_quantised=False)
    return only(evaluate(module, {module.main.params[0].name: x}))


def tolerance(folder: Path, model: str) -> float:
    """How far a result may be from the independent one: one step where it is quantised, since there scales are
    integers and a shift."""
    graph = onnx.load(folder / f"{model}.onnx").graph
    (last,) = (node for node in graph.node if graph.output[0].name in node.output)
    if last.op_type != "DequantizeLinear":
        return FLOAT_TOLERANCE
    (scale,) = (numpy_helper.to_array(each) for each in graph.initializer if each.name == last.input[1])
    return 1.001 * float(scale)


def write_references(folder: Path, forms: list[Form], seed: int) -> None:
    """For each form a file with inputs and results, which later runs must repeat bit by bit.

    The results are the form's own from this quiet moment. They are held against the independent ones first, which are
    those of `evaluate` on the graph as it was read, or onnxruntime's. All devices give the same integers.
    """
    for model in dict.fromkeys(form.model for form in forms):
        inputs = inputs_of(model, seed)
        expected = [independent(folder, model, x) for x in inputs]
        most = tolerance(folder, model)
        first: list[Array] = []
        for form in (form for form in forms if form.model == model):
            module = form.loaded(form.compiled(folder))
            results = [only(module.run(x)) for x in inputs]
            worst = max(float(np.abs(y - want).max()) for y, want in zip(results, expected, strict=True))
            if not worst <= most:
                raise SystemExit(f"{form.name}: {worst:g} off the reference before anything was disturbed")
            first = first or results
            if model != "open" and any(not np.array_equal(y, want) for y, want in zip(results, first, strict=True)):
                raise SystemExit(f"{form.name}: other integers than the other devices")
            arrays = {f"x{number}": x for number, x in enumerate(inputs)}
            np.savez(folder / f"{form.name}.npz", **arrays, **{f"y{number}": y for number, y in enumerate(results)})


def read_references(folder: Path, form: Form) -> list[tuple[Array, Array]]:
    """Inputs with their results."""
    with np.load(folder / f"{form.name}.npz") as arrays:
        return [(arrays[f"x{number}"], arrays[f"y{number}"]) for number in range(INPUTS)]
