"""Windows over dilated images and volumes become 2-D ones that compute the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import (
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    TensorType,
    Var,
    call,
    calls,
    evaluate,
)
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.passes.manager import random_inputs
from weft.compiler.passes.plain_windows import plain_windows


def whole(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


def module_of(body: Expr, *params: Var) -> Module:
    return Module(Function(params, body))


def dilated(seed: int) -> Module:
    """A convolution of a dilated input, as a transposed convolution is read: any geometry that fits."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(2, 4))
    groups = int(random.choice([1, 1, 2, 4]))
    factors = tuple(int(each) for each in random.integers(1, 4, rank))
    size = tuple(int(each) for each in random.integers(1, 6, rank))
    kernel = tuple(int(each) for each in random.integers(1, 5, rank))
    dilations = tuple(int(each) for each in random.integers(1, 3, rank))
    x = Var("x", TensorType((int(random.integers(1, 3)), 4, *size), "float32"))
    value: Expr = call("dilate", x, factors=factors)
    if random.random() < 0.3 and all(each > 2 for each in value.shape[2:]):
        start = int(random.integers(0, 3))
        sizes = (*value.shape[:2], *(each - 2 for each in value.shape[2:]))
        value = call("slice", value, starts=(0, 0, *(start,) * rank), sizes=sizes, steps=(1,) * (rank + 2))
    value = call("pad", value, pads=tuple(int(each) for each in random.integers(0, 5, 2 * rank)), value=0.0)
    w = Constant(whole((groups * int(random.integers(1, 4)), 4 // groups, *kernel), seed))
    return module_of(call(f"nn.conv{rank}d", value, w, dilations=dilations, groups=groups), x)


def test_convolutions_of_dilated_inputs_become_convolutions_of_the_inputs() -> None:
    matched = 0
    for seed in range(120):
        try:
            module = dilated(seed)
        except GraphError:  # the window is larger than its input
            continue
        after = plain_windows(module)
        ops = [node.op for node in calls(after.main.body)]
        spread = any(node.op == "dilate" and max(node.attr("factors")) > 1 for node in calls(module.main.body))
        matched += spread and "dilate" not in ops
        inputs = {"x": whole(module.main.params[0].type.shape, seed + 1)}
        np.testing.assert_array_equal(*evaluate(module, inputs).values(), *evaluate(after, inputs).values())
    assert matched > 80, matched


def quantised(name: str, shape: tuple[int, ...]) -> tuple[Var, Call]:
    x = Var(name, TensorType(shape, "int8"))
    return x, call("dequantise", x, Constant(np.float32(0.5)), Constant(np.int8(3)))


@pytest.mark.parametrize("volumes", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_volumes_become_images(seed: int, volumes: bool) -> None:
    """Or stay volumes, where the target has convolutions over these."""
    random = np.random.default_rng(seed)
    x, real = quantised("x", (2, 4, 5, 6, 7))
    window = {
        "strides": tuple(int(each) for each in random.integers(1, 3, 3)),
        "dilations": tuple(int(each) for each in random.integers(1, 3, 3)),
        "pads": tuple(int(each) for each in random.integers(0, 2, 6)),
    }
    w = call("dequantise", Constant(random.integers(-99, 99, (6, 2, 2, 3, 2)).astype(np.int8)),
             Constant(np.float32(0.25)), Constant(np.int8(0)))  # fmt: skip
    for body in (
        call("nn.conv3d", real, w, groups=2, **window),
        call("nn.max_pool", real, kernel=(2, 3, 2), **{**window, "pads": (1, 1, 0, 0, 1, 1)}),
        call("nn.average_pool", real, kernel=(2, 2, 2), count_include_pad=True, **{**window, "pads": (1,) * 6}),
    ):
        module = module_of(call("quantise", body, Constant(np.float32(1.5)), Constant(np.int8(-7))), x)
        after = PassManager(integer_passes(volumes=volumes), check=True).run(module)
        names = {str(node.op) for function in after.functions for node in calls(function.body)}
        windows = {str(node.op) for node in calls(after.main.body) if len(node.shape) == 5 and "strides" in node.attrs}
        assert windows == ({"max_pool" if body.op == "nn.max_pool" else "conv3d"} if volumes else set())
        assert not names & {"nn.conv3d", "nn.max_pool", "nn.average_pool", "dequantise"}, "nothing is left in float32"
        inputs = random_inputs(module, seed)
        before, integers = (next(iter(evaluate(each, inputs).values())).astype(int) for each in (module, after))
        assert np.abs(before - integers).max() <= 1
        assert np.mean(before == integers) > 0.9


def test_what_is_no_such_window_is_left_alone() -> None:
    x = Var("x", TensorType((1, 2, 4, 4), "float32"))
    w = Constant(whole((3, 2, 3, 3), 0))
    for value in (x, call("pad", call("dilate", x, factors=(2, 2)), pads=(1, 1, 1, 1), value=1.0)):
        module = module_of(call("nn.conv2d", value, w), x)
        assert plain_windows(module) == module
    volume = Var("v", TensorType((1, 2, 4, 4, 4), "float32"))
    module = module_of(call("nn.conv3d", volume, Constant(whole((3, 2, 3, 3, 3), 0))), volume)
    assert plain_windows(module) == module, "floats gain nothing"
