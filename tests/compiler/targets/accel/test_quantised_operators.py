"""Quantised operators from the model to the functional simulator: where each part runs, and every integer."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.compile import prepared
from weft.compiler.graph import evaluate, parse
from weft.compiler.passes.manager import random_inputs
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options

A = "%a = dequantise(%x, float32(0.05), int8(3))"
NUMBERS = ", ".join(str((7 * number) % 256) for number in range(64))
SPREAD = "pad(dilate(%a, factors=(2, 2)), pads=(1, 1, 1, 1), value=0.0)"
W = f"dequantise(int8[4, 4, 2, 2]({', '.join(str(number - 32) for number in range(64))}), float32(0.01), int8(0))"
HARD = "nn.clip(nn.add(nn.multiply(%a, float32(0.2)), float32(0.5)), low=0.0, high=1.0)"
HARD = f"dequantise(quantise({HARD}, float32(0.0039), int8(-128)), float32(0.0039), int8(-128))"
CASES = {
    # name: (shape, expression, at least so many layers on the core)
    "a tensor of constants is added": (
        "1, 4, 4, 4", f"nn.add(%a, dequantise(uint8[4, 4, 4]({NUMBERS}), float32(0.02), uint8(99)))", 1,
    ),
    "a tensor of constants multiplies": (
        "1, 4, 4, 4", f"nn.multiply(%a, dequantise(uint8[4, 4, 4]({NUMBERS}), float32(0.02), uint8(99)))", 1,
    ),
    "a constant that is much coarser": (
        "1, 4, 4, 4", f"nn.add(%a, dequantise(uint8[4, 4, 4]({NUMBERS}), float32(20.0), uint8(99)))", 1,
    ),
    "average at the edges": ("1, 3, 5, 6", "nn.average_pool(%a, kernel=(3, 3), pads=(1, 1, 1, 1))", 1),
    "a transposed convolution": ("1, 4, 3, 5", f"nn.conv2d({SPREAD}, {W})", 1),
    "a sum with a transposed branch": (
        "1, 4, 3, 3", f"nn.add(%a, dequantise(quantise(transpose(nn.conv2d(%a, {W}, pads=(0, 0, 1, 1)), "
        "perm=(0, 1, 3, 2)), float32(0.1), int8(9)), float32(0.1), int8(9)))", 1,
    ),
    "rows": ("1, 6, 9", "nn.add(%a, nn.multiply(%a, float32[6, 1](1.0, 2.0, -1.0, 0.5, 0.25, 3.0)))", 0),
    "a sum of volumes": ("1, 4, 2, 3, 3", "nn.add(%a, %a)", 1),
    "a broadcast product": ("1, 3, 4, 4", "nn.multiply(%a, nn.max_pool(%a, kernel=(4, 4)))", 2),
    "hard swish": ("1, 6, 4, 4", f"nn.multiply(%a, {HARD})", 1),
    "hard swish with a bound of its own": ("1, 6, 4, 4", f"nn.multiply(nn.clip({HARD}, low=0.1, high=0.7), %a)", 1),
    "matrices": ("2, 3, 5", "nn.matmul(%a, transpose(%a, perm=(0, 2, 1)))", 0),
    "nothing at all": ("0, 3, 4, 4", "nn.add(%a, %a)", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_integer_is_that_of_the_graph(name: str) -> None:
    shape, expression, on_core = CASES[name]
    source = f"fn @main(%x: int8[{shape}]) {{ {A} return quantise({expression}, float32(0.11), int8(-4)) }}"
    module, accel = parse(source), find_target("accel")
    packed = prepared(module, accel, target_options(accel, {}))
    model = weft.compile(packed, "pynq")
    assert sum(layer.device == "core" for layer in model.layers) >= on_core
    assert all(layer.reason for layer in model.layers if layer.device != "core")
    inputs = random_inputs(module, 1)
    (found,), (wanted,) = weft.load(model).run(inputs).values(), evaluate(packed, inputs).values()
    np.testing.assert_array_equal(found, wanted)
    (real,) = evaluate(module, inputs).values()
    assert np.abs(found.astype(int) - real.astype(int)).max(initial=0) <= 1


def test_a_zero_point_of_what_stays_in_the_kernel_costs_nothing() -> None:
    source = (
        f"fn @main(%x: int8[1, 6, 4, 4]) {{ {A} return quantise(nn.multiply(%a, {HARD}), float32(0.11), int8(-4)) }}"
    )
    (layer,) = [layer for layer in weft.compile(parse(source), "pynq").layers if layer.device == "core"]
    assert layer.operators.count("packed_requantise") == 2
    assert layer.operators.count("packed_subtract_immediate") == 1  # of %x, which is read
