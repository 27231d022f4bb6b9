"""Values of 16 bits stay such in memory, whoever computes with them in 32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.graph.dtypes import HALVES
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.loops.widening import widened_where_used

from ..cpu.programs import compiled, program_of

X = Var("x", TensorType((48, 64), "float32"))


def module_of(*results: Expr) -> Module:
    names = tuple(f"y{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function((X,), body, Attrs({"outputs": names})))


def stored(x: Expr, dtype: str) -> Expr:
    """A value in 16 bits, widened."""
    return call("nn.cast", call("nn.cast", x, to=dtype), to="float32")


@pytest.mark.parametrize("dtype", HALVES)
def test_what_two_kernels_read_is_stored_in_16_bits(dtype: str) -> None:
    wide = stored(call("nn.softmax", X, axis=1), dtype)
    mean = call("nn.reduce_mean", wide, axes=(0,), keepdims=True)
    module = module_of(call("nn.multiply", wide, mean))
    program = program_of(compiled(prepare(module)))
    kept = [each.nbytes for each in program.memory if "workspace" not in each.name]
    assert max(kept) == X.type.size * 2
    assert widened_where_used(widened_where_used(module)).main.body == widened_where_used(module).main.body


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_meaning_stays(data: st.DataObject) -> None:
    values: list[Expr] = [X]
    dtype = data.draw(st.sampled_from(HALVES))
    for _ in range(data.draw(st.integers(2, 8))):
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        kind = data.draw(st.sampled_from(["store", "add", "multiply", "mean"]))
        values.append({
            "store": lambda a=a: stored(a, dtype), "add": lambda a=a, b=b: call("nn.add", a, b),
            "multiply": lambda a=a, b=b: call("nn.multiply", a, b),
            "mean": lambda a=a: call("nn.add", a, call("nn.reduce_mean", a, axes=(1,), keepdims=True)),
        }[kind]())  # fmt: skip
    module = module_of(*values[-2:])
    given_x = {"x": np.random.default_rng(0).normal(size=X.type.shape).astype(np.float32)}
    before, after = evaluate(module, given_x), evaluate(widened_where_used(module), given_x)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_one_reader_and_other_types_are_left_alone() -> None:
    alone = module_of(call("nn.exp", stored(X, "bfloat16")))
    assert widened_where_used(alone) is alone
    exact = call("nn.cast", call("nn.cast", X, to="int32"), to="float32")
    other = module_of(call("nn.multiply", exact, call("nn.exp", exact)))
    assert widened_where_used(other) is other


def test_a_constant_is_as_good_as_any() -> None:
    values = Constant(np.ones((48, 64), np.float16))
    wide = call("nn.cast", values, to="float32")
    module = module_of(call("nn.multiply", wide, call("nn.exp", wide)), call("nn.add", X, wide))
    result = evaluate(prepare(module), {"x": np.zeros((48, 64), np.float32)})
    np.testing.assert_allclose(result["y0"], np.e, rtol=1e-6)
