"""What is computed again for the backward part: the same results, less memory, and at the right moment."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Var,
    call,
    evaluate,
    parse,
    topological_order,
)  # fmt: skip
from weft.compiler.operators import nn
from weft.compiler.passes.cleanup import cse
from weft.compiler.passes.gradient import tidied
from weft.compiler.passes.manager import random_inputs
from weft.compiler.passes.recompute import Passes, recomputed

WIDTH, BATCH = 64, 256


def deep(layers: int, *, residual: bool) -> Module:
    """A network of products and activations with its gradients by all weights; the loss first."""
    lines, x = [], "%x"
    for number in range(layers):
        lines.append(f"  %h{number} = nn.tanh(nn.matmul({x}, %w{number}))")
        if residual:
            lines.append(f"  %r{number} = nn.add({x}, nn.multiply(%h{number}, nn.sigmoid(%h{number})))")
        x = f"%{'r' if residual else 'h'}{number}"
    weights = "".join(f", %w{number}: float32[{WIDTH}, {WIDTH}]" for number in range(layers))
    text = (f"fn @main(%x: float32[{BATCH}, {WIDTH}]{weights}) {{\n" + "\n".join(lines)
            + f"\n  return nn.reduce_sum(nn.multiply({x}, {x}), axes=(0, 1))\n}}\n")  # fmt: skip
    # The last layer's gradient first, as a step of training has them.
    return weft.grad(parse(text), wrt=[f"w{number}" for number in reversed(range(layers))])


def arena(module: Module) -> int:
    return int(weft.compile(module, target="cpu").statistics["arena_bytes"])


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("segments", [2, 5])
def test_the_same_bits(residual: bool, segments: int) -> None:
    module = deep(7, residual=residual)
    again = recomputed(Passes(module, 1), segments)
    inputs = {name: value * 0.2 for name, value in random_inputs(module, 0).items()}
    expected, found = evaluate(module, inputs), evaluate(again, inputs)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name
    compiled = weft.load(weft.compile(again, target="cpu")).run(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(compiled[name], value, rtol=2e-4, atol=1e-3 * np.abs(value).max())


@pytest.mark.parametrize("residual", [False, True])
def test_memory_falls_with_the_square_root_of_the_depth(residual: bool) -> None:
    module = deep(24, residual=residual)
    kept = arena(module)
    again = {segments: arena(recomputed(Passes(module, 1), segments)) for segments in (2, 5, 24)}
    assert again[5] < again[2] < kept
    assert again[5] < 0.57 * kept
    layer = 4 * WIDTH * BATCH * (2 if residual else 1)
    assert kept > 20 * layer
    assert again[5] < 16 * layer


def test_no_pass_puts_together_what_is_kept_apart() -> None:
    module = deep(8, residual=True)
    again = recomputed(Passes(module, 1), 3)
    assert cse(again) == again
    assert tidied(again) == again

    def products(each: Module) -> int:
        return sum(isinstance(node, Call) and node.op == "nn.matmul" for node in topological_order(each.main.body))

    assert (
        products(module) == 3 * 8 - 1
    )  # forward, and for each layer by its weights and, but for the first, by its input
    assert 0 < products(again) - products(module) < 8  # the last segment is not computed again


def test_a_segment_waits_for_the_gradients_that_enter_it() -> None:
    """Nothing is computed again before the backward part of all later segments: that is where memory is saved."""
    module = deep(9, residual=False)
    again = recomputed(Passes(module, 1), 3)
    order = [node for node in topological_order(again.main.body) if isinstance(node, Call)]
    barriers = [place for place, node in enumerate(order) if node.op == "barrier"]
    assert barriers
    assert all(len(order[place].args) > 1 for place in barriers)
    first = order[barriers[0]]
    # By then the backward part has used all of the last segment.
    last = [node for node in order[: barriers[0]] if node.op == "nn.tanh"]
    assert len(last) == 9
    assert set(first.args[1:]) <= set(order[: barriers[0]])


def _operands() -> dict[str, Expr]:
    x, y = Var("x", TensorType((4,), "float32")), Var("y", TensorType((2,), "float32"))
    values = {"an input": x, "a result": nn.exp(x), "a constant": Constant(np.arange(4, dtype=np.float32)),
              "a barrier": call("barrier", x, y)}  # fmt: skip
    return {name: call("barrier", value, y) for name, value in values.items()}


@pytest.mark.parametrize("value", _operands())
@pytest.mark.parametrize("use", ["as it is", "elementwise", "reduced"])
def test_a_barrier_hands_on_whatever_it_is_given(value: str, use: str) -> None:
    found = _operands()[value]
    x = Var("x", TensorType((4,), "float32"))
    result = {"as it is": found, "elementwise": nn.add(found, x), "reduced": nn.reduce_sum(found, axes=(0,))}[use]
    params = (x, Var("y", TensorType((2,), "float32")))
    module = Module(Function(params, result, Attrs({"name": "main", "outputs": ("out",)})))
    inputs = random_inputs(module, 0)
    expected = evaluate(module, inputs)["out"]
    compiled = weft.load(weft.compile(module, target="cpu")).run(inputs)["out"]
    np.testing.assert_allclose(compiled, expected, rtol=1e-6)


def test_a_module_that_is_too_small_to_cut_stays() -> None:
    module = weft.grad(parse("fn @main(%x: float32[3]) { return nn.reduce_sum(nn.exp(%x), axes=(0,)) }"))
    assert recomputed(Passes(module, 1), 1) == module
