"""Small tensors that are moved between operators are no kernels of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.targets.cpu import processor
from weft.compiler.targets.loops.fusion import group_calls
from weft.compiler.targets.loops.fusion_limits import FusionLimits
from weft.compiler.targets.loops.small_moves import REPEATED

from ..cpu.programs import compiled

LIMITS = FusionLimits(before_reductions=True, row_statistics=True, moved_bytes=4096)
X = Var("x", TensorType((4, 6, 8), "float32"))
Y = Var("y", TensorType((4, 8), "float32"))


def kernels(result: Expr, limits: FusionLimits = LIMITS) -> list[tuple[str, ...]]:
    return [tuple(str(node.op) for node in group.members) for group in group_calls(result, limits)]


def turned(x: Expr) -> Call:
    """Rotary positions: the second half of the last axis, negative, before the first."""
    half = x.shape[-1] // 2
    sizes, steps = (*x.shape[:-1], half), (1,) * len(x.shape)
    low, high = (call("slice", x, starts=(*(0,) * (len(x.shape) - 1), start), sizes=sizes, steps=steps)
                 for start in (0, half))  # fmt: skip
    return call("concat", call("nn.negative", high), low, axis=len(x.shape) - 1)


def rotated(x: Expr) -> Call:
    wave = Constant(np.linspace(-1, 1, x.shape[-1]).astype(np.float32))
    return call("nn.add", call("nn.multiply", x, wave), call("nn.multiply", turned(x), wave))


def norm(x: Expr) -> Call:
    mean = call("nn.reduce_mean", call("nn.multiply", x, x), axes=(len(x.shape) - 1,), keepdims=True)
    return call("nn.divide", x, call("nn.sqrt", mean))


@pytest.mark.parametrize("made", [turned, rotated], ids=lambda made: made.__name__)
def test_what_is_between_moves_is_one_kernel(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    result = made(X)  # type: ignore[operator]
    assert len(kernels(result)) == 1
    assert len(kernels(result, FusionLimits())) > 1
    limits = processor.fusion_limits
    monkeypatch.setattr(processor, "fusion_limits", lambda core: replace(limits(core), moved_bytes=4096))
    module = Module(Function((X,), result, Attrs({"name": "main", "outputs": ("out",)})))
    given = {"x": np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)}
    model = compiled(module)
    assert len(model.layers) == 1
    found = weft.load(model).run(given)["out"]
    np.testing.assert_allclose(found, evaluate(module, given)["out"], rtol=1e-5, atol=1e-6)


def test_large_tensors_are_moved_by_kernels_of_their_own() -> None:
    nbytes = 4 * X.tensor_type.size
    assert len(kernels(rotated(X), replace(LIMITS, moved_bytes=nbytes))) == 1
    assert len(kernels(rotated(X), replace(LIMITS, moved_bytes=nbytes - 1))) > 1


def test_what_two_kernels_read_is_computed_once() -> None:
    product = call("nn.multiply", X, X)
    both = Tuple((turned(product), call("nn.add", product, product)))
    assert sum("nn.multiply" in members for members in kernels(both)) == 1


def test_what_takes_long_is_not_repeated() -> None:
    """An exponential that two halves read stands alone, and a product that they read does not."""
    assert ("nn.exp",) in kernels(rotated(call("nn.exp", X)))
    assert len(kernels(rotated(call("nn.multiply", X, X)))) == 1


def test_an_element_is_computed_a_few_times_at_most() -> None:
    def spread(times: int) -> Call:
        sum_ = call("nn.add", Y, Y)
        tall = call("reshape", sum_, shape=(1, 4, 8))
        return call("transpose", call("expand", tall, shape=(times, 4, 8)), perm=(2, 1, 0))

    assert len(kernels(spread(REPEATED))) == 1
    assert ("expand", "transpose") in kernels(spread(REPEATED + 1))


def test_reductions_keep_their_order_of_summation() -> None:
    """What moves their operands and results are kernels of their own, and a reshape is none."""
    assert kernels(norm(X)) == kernels(norm(X), replace(LIMITS, moved_bytes=0))
    moved = call("pad", call("transpose", norm(X), perm=(0, 2, 1)), pads=(0, 0, 0, 0, 0, 2), value=0.0)
    assert kernels(moved) == [*kernels(norm(X)), ("transpose", "pad")]
    assert kernels(call("reshape", norm(X), shape=(4, 48))) == [*kernels(norm(X)), ("reshape",)]
    scores = call("nn.multiply", call("transpose", X, perm=(0, 2, 1)), Constant(np.float32(2)))
    assert kernels(call("nn.softmax", scores, axis=2))[-1] == ("nn.softmax",)


def test_products_take_nothing_in() -> None:
    product = call("nn.matmul", call("transpose", X, perm=(0, 2, 1)), X)
    assert [members for members in kernels(product) if "nn.matmul" in members] == [("nn.matmul",)]
