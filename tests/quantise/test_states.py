"""States in 8 bits: the same scores to the bit, rows that are rounded once, and why a state stays in floats."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.quantise import QuantiseError, eight_bit_states

from examples.story.network import Size, cached_module, training_module

SIZE = Size(width=16, heads=2, layers=2, hidden=16, positions=6, tokens=24)
TOKENS = (3, 20, 7, 7, 11, 0)


@cache
def quantised() -> Module:
    start = weft.train.initialised(training_module(SIZE, {}, 1, 1)[1], seed=2)
    module = cached_module(SIZE, start)
    plan = weft.quantise.plan(module)
    session = weft.load(weft.compile(module, target="cpu")).session()
    seen: list[dict[str, Array]] = []
    for place, token in enumerate(TOKENS):
        cache = session.cache().states
        seen.append({"input_ids": np.array([[token]]), "position_ids": np.array([[place]]), **cache})
        session.step(token)
    return weft.quantise.quantised(plan, weft.quantise.calibrate(plan, seen))


def scores(module: Module) -> Array:
    session = weft.load(weft.compile(module, target="cpu")).session()
    return np.array([session.step(token) for token in TOKENS])


def test_scores_are_the_same_to_the_bit() -> None:
    eight = eight_bit_states(quantised())
    kinds = {param.name: param.dtype for param in eight.main.params}
    assert [kinds[name] for name in kinds if "past" in name] == ["int8"] * 4
    assert [value.dtype for value in eight.main.results] == ["float32", *["int8"] * 4]
    assert eight.main.output_names == quantised().main.output_names
    np.testing.assert_array_equal(scores(eight), scores(quantised()))


def test_one_state_alone() -> None:
    eight = eight_bit_states(quantised(), {"present.1.value": "past_key_values.1.value"})
    assert [param.name for param in eight.main.params if param.dtype == "int8"] == ["past_key_values.1.value"]
    np.testing.assert_array_equal(scores(eight), scores(quantised()))


# What stays in floats


def rounded(value: Expr, scale: float = 0.5, zero_point: int = 0) -> Expr:
    constants = Constant(np.array(scale, np.float32)), Constant(np.array(zero_point, np.int8))
    return call("dequantise", call("quantise", value, *constants), *constants)


def module_of(kind: str, zero_point: int = 0) -> Module:
    """A state of three rows, to which a run gives one; or with ``kind`` "whole" all three."""
    past, x = Var("past", TensorType((3, 4), "float32")), Var("x", TensorType((1, 4), "float32"))
    after = call("concat", past, x, axis=0)
    sums = {"y": call("nn.reduce_sum", rounded(after, zero_point=zero_point), axes=(0,), keepdims=False)}
    given: Expr = x
    if kind == "read":
        sums["y"] = call("nn.add", sums["y"], call("nn.reduce_sum", past, axes=(0,), keepdims=False))
    if kind == "several":
        sums["z"] = call("nn.negative", rounded(after, 0.25))
    if kind == "output":
        sums["z"] = after
    if kind == "none":
        sums["y"] = call("nn.reduce_sum", past, axes=(0,), keepdims=False)
    if kind == "whole":
        given = call("nn.add", rounded(past, zero_point=zero_point), x)
        sums["y"] = call("nn.reduce_sum", rounded(past, zero_point=zero_point), axes=(0,), keepdims=False)
    results = {**sums, "present": given}
    attrs = Attrs({"name": "main", "outputs": tuple(results)})
    return Module(Function((past, x), Tuple(tuple(results.values())), attrs))


@pytest.mark.parametrize(
    ("kind", "zero_point", "reason"),
    [
        ("read", 0, "nn.reduce_sum reads it"),
        ("several", 0, "it is rounded in several ways"),
        ("output", 0, "it is another output of the model as well"),
        ("none", 0, "nn.reduce_sum reads it"),
        ("whole", 3, "it begins as 0, which is not its zero point"),
    ],
)
def test_a_state_that_stays_in_floats_says_why(kind: str, zero_point: int, reason: str) -> None:
    with pytest.raises(QuantiseError, match=re.escape(f"state 'past' stays in floats: {reason}")):
        eight_bit_states(module_of(kind, zero_point))


@pytest.mark.parametrize(("kind", "zero_point"), [("rows", 5), ("whole", 0)])
def test_states_of_both_kinds(kind: str, zero_point: int) -> None:
    module = module_of(kind, zero_point)
    eight = eight_bit_states(module)
    random = np.random.default_rng(0)
    row = random.normal(0, 3, (1, 4)).astype(np.float32)
    past = random.integers(-30, 30, (3, 4)).astype(np.int8)
    floats = ((past.astype(np.float32) - zero_point) * 0.5).astype(np.float32)
    one = weft.load(weft.compile(module, target="cpu")).run({"past": floats, "x": row})
    other = weft.load(weft.compile(eight, target="cpu")).run({"past": past, "x": row})
    np.testing.assert_array_equal(other["y"], one["y"])
    wanted = np.clip(np.rint(one["present"] / 0.5) + zero_point, -128, 127)
    np.testing.assert_array_equal(other["present"], wanted.astype(np.int8))


def test_models_without_states_are_refused() -> None:
    x = Var("x", TensorType((4,), "float32"))
    module = Module(Function((x,), call("nn.negative", x), Attrs({"name": "main", "outputs": ("y",)})))
    with pytest.raises(QuantiseError, match="the model has no states"):
        eight_bit_states(module)
    with pytest.raises(QuantiseError, match="no output 'a' or no input 'b'"):
        eight_bit_states(module, {"a": "b"})
