"""8-bit values in operators without an integer form: the host computes them, from the values that the source has."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Call, Function, Module, calls, evaluate, parse
from weft.compiler.passes import PassManager, integer_passes

MODULES = {
    "slice": """fn @main(%x: uint8[1, 2, 3]) {
        %0 = slice(%x, starts=(0, 0, 0), sizes=(1, 2, 2), steps=(1, 1, 1))
        return dequantise(%0, float32(0.5), uint8(3)) }""",
    "cast": """fn @main(%x: uint8[1, 2, 3]) { return nn.cast(%x, to="float32") }""",
    "arithmetic": """fn @main(%x: uint8[1, 2, 3]) { return nn.maximum(nn.add(%x, %x), uint8(7)) }""",
    "computed scale": """fn @main(%x: float32[1, 2, 3], %zero: uint8[]) {
        %0 = nn.reduce_max(nn.abs(%x), axes=(0, 1, 2))
        %1 = nn.divide(%0, float32(100.0))
        %2 = quantise(%x, %1, %zero)
        return (%2, dequantise(%2, %1, %zero)) }""",
    "signed": """fn @main(%x: int8[1, 2, 3]) { return gather(nn.abs(%x), int64[2](1, 0), axis=2) }""",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_host_gets_the_values_of_the_source(name: str) -> None:
    module = parse(MODULES[name])
    legal = PassManager(integer_passes()).run(module)
    generator = np.random.default_rng(1)
    inputs = {
        param.name: generator.normal(size=param.type.shape).astype(np.float32)
        if param.type.dtype == "float32"
        else generator.integers(0, 120, param.type.shape).astype(param.type.dtype)
        for param in module.main.params
    }
    before, after = evaluate(module, inputs), evaluate(legal, inputs)
    for tensor, value in before.items():
        np.testing.assert_array_equal(after[tensor], value)


def test_each_host_function_says_why() -> None:
    legal = PassManager(integer_passes()).run(parse(MODULES["slice"]))
    assert reason_of(legal, "host_slice_0") == "slice moves data, which the accelerator does not do"


def reason_of(module: Module, name: str) -> str:
    found: list[Call] = [node for node in calls(module.main.body) if isinstance(node.op, Function)]
    return next(node.op.host_reason for node in found if isinstance(node.op, Function) and node.op.name == name)
