"""Whole models: every layer against onnxruntime, and the packed module against the legalised one, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Function, Module, calls, constant_table, evaluate, parse, to_text
from weft.compiler.passes import PassManager, integer_passes

from ..onnx_models import FloatModel, agreement, for_core, quantise

BLOCKS: tuple[dict[str, int], ...] = ({}, {"batch": 2, "block_in": 4}, {"block_out": 8})
"""Of the array, where it is not that of `for_core`."""


def residual(m: FloatModel) -> str:
    stem = m.op("MaxPool", m.op("Relu", m.conv("x", 3, 16)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    main = m.conv(m.op("Relu", m.conv(stem, 16, 16)), 16, 16)
    joined = m.op("Relu", m.op("Add", main, stem))
    down = m.op("Add", m.conv(joined, 16, 32, strides=[2, 2]), m.conv(joined, 16, 32, 1, strides=[2, 2], pads=[0] * 4))
    pooled = m.op("GlobalAveragePool", m.op("Relu", down))
    return m.dense(m.op("Flatten", pooled), 32, 10)


def depthwise(m: FloatModel) -> str:
    zero, six = m.weight("zero", np.array(0, np.float32)), m.weight("six", np.array(1.5, np.float32))
    x = m.op("Clip", m.conv("x", 3, 12, strides=[2, 2]), zero, six)
    x = m.op("Clip", m.conv(x, 12, 12, group=12), zero, six)
    x = m.op("Relu", m.conv(x, 12, 20, 1))
    x = m.op("Relu", m.conv(x, 20, 20, 3, group=20, strides=[2, 2]))
    x = m.op("AveragePool", m.conv(x, 20, 24, 1), kernel_shape=[3, 3])
    return m.dense(m.op("Flatten", x), 24, 5)


def flatten(m: FloatModel) -> str:
    x = m.op("Relu", m.conv("x", 3, 6, 5, pads=[0] * 4))
    x = m.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = m.op("Relu", m.dense(m.op("Flatten", x), 96, 20))
    return m.op("Softmax", m.dense(x, 20, 7), axis=1)


def shapes(m: FloatModel) -> str:
    x = m.op("Relu", m.conv("x", 3, 8, 3, auto_pad="SAME_UPPER", strides=[2, 2]))
    x = m.conv(x, 8, 16, 3, dilations=[2, 2], pads=[2, 2, 2, 2])
    x = m.op("Relu", m.conv(x, 16, 16, 3, group=4))
    a, b = m.conv(x, 16, 16, 1), m.op("Relu", m.conv(x, 16, 32, 3, pads=[1, 1, 1, 1]))
    x = m.op("Concat", a, b, axis=1)
    return m.conv(x, 48, 8, 3, pads=[0, 1, 2, 0])


def products(m: FloatModel) -> str:
    x = m.op("Relu", m.conv("x", 3, 8))
    y = m.conv(x, 8, 8)
    return m.conv(m.op("Mul", x, m.op("Add", y, m.op("Relu", y))), 8, 4)


MODELS: dict[str, Callable[[FloatModel], str]] = {
    f.__name__: f for f in (residual, depthwise, flatten, shapes, products)
}
FORMS = [
    ("QDQ", "QInt8", "QInt8", True), ("QDQ", "QUInt8", "QInt8", True), ("QDQ", "QUInt8", "QUInt8", False),
    ("QOperator", "QInt8", "QInt8", True), ("QOperator", "QUInt8", "QUInt8", False),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("name", MODELS)
def test_layers_agree_with_onnxruntime(name: str, form: tuple[str, str, str, bool], tmp_path: Path) -> None:
    m = FloatModel((2, 3, 12, 12))
    float_model = m.build(MODELS[name](m))
    symmetric = form[2] == "QUInt8"
    extra = {"WeightSymmetric": True} if symmetric else {}
    model = quantise(float_model, tmp_path, *form, **extra)
    module = from_onnx(model)
    integer = PassManager(integer_passes(), check=True).run(module)
    inputs = {"x": np.random.default_rng(3).normal(size=(2, 3, 12, 12)).astype(np.float32)}
    found = agreement(model, integer, inputs)
    assert found.layers >= 3
    assert found.worst <= 1
    assert found.equal >= 0.999
    wanted = evaluate(integer, inputs)
    for blocks in BLOCKS:
        packed = for_core(module, **blocks)
        results = evaluate(packed, inputs)
        assert all(np.array_equal(results[key], wanted[key]) for key in wanted)
        _only_functions(packed)
        assert parse(to_text(packed), constant_table(packed)) == packed


def resnet(m: FloatModel, channels: int = 32) -> str:
    x = m.op("MaxPool", m.op("Relu", m.conv("x", 3, channels, 7, strides=[2, 2])), kernel_shape=[3, 3], strides=[2, 2])
    for stage in range(3):
        for block in range(2):
            before, stride = channels, 2 if stage and not block else 1
            channels *= stride
            main = m.conv(m.op("Relu", m.conv(x, before, channels, strides=[stride] * 2)), channels, channels)
            if stride == 2:
                x = m.conv(x, before, channels, 1, strides=[2, 2])
            x = m.op("Relu", m.op("Add", main, x))
    return m.dense(m.op("Flatten", m.op("GlobalAveragePool", x)), channels, 100)


def test_every_layer_of_a_residual_network_agrees_in_isolation(tmp_path: Path) -> None:
    m = FloatModel((1, 3, 96, 96))
    model = quantise(m.build(resnet(m)), tmp_path)
    module = from_onnx(model)
    integer = PassManager(integer_passes()).run(module)
    inputs = {"x": np.random.default_rng(3).normal(size=(1, 3, 96, 96)).astype(np.float32)}
    found = agreement(model, integer, inputs, in_isolation=True)
    assert found.layers >= 22
    assert found.worst <= 1
    assert found.equal >= 0.999
    results = evaluate(for_core(module), inputs)
    assert np.array_equal(*results.values(), *evaluate(integer, inputs).values())


def _only_functions(module: Module) -> None:
    for node in calls(module.main.body):
        assert isinstance(node.op, Function)
        assert node.op.is_primitive or node.op.host_reason
