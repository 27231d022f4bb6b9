"""Elements picked at indices that only a run knows: machine code picks them, after a look at the indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    evaluate,
)
from weft.compiler.model import CheckStep, NumpyStep
from weft.runtime.errors import InputError

DATA = Var("data", TensorType((3, 5, 4), "float32"))


def indices(*shape: int, dtype: str = "int64") -> Var:
    return Var("indices", TensorType(shape, dtype))


CASES: dict[str, tuple[Call, tuple[int, ...]]] = {
    "rows": (call("gather", DATA, indices(2, 3), axis=0), (3,)),
    "inner": (call("gather", DATA, indices(7, dtype="int32"), axis=2), (4,)),
    "one": (call("gather", DATA, indices(), axis=1), (5,)),
    "elements": (call("gather_elements", DATA, indices(2, 6, 4), axis=1), (5,)),
    "last": (call("gather_elements", DATA, indices(3, 5, 9), axis=2), (4,)),
    "pairs": (call("gather_nd", DATA, indices(6, 2), batch_dims=0), (3, 5)),
    "batch": (call("gather_nd", DATA, indices(3, 2, 1), batch_dims=1), (5,)),
    "triples": (call("gather_nd", DATA, indices(2, 2, 3, dtype="int32"), batch_dims=0), (3, 5, 4)),
}


def module_of(*results: Expr) -> Module:
    params = [DATA, *(arg for result in results[:1] for arg in result.children if isinstance(arg, Var) and arg != DATA)]
    body = results[0] if len(results) == 1 else Tuple(results)
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": names})))


def compiled(module: Module) -> weft.CpuModel:
    model = weft.compile(module, target="cpu", strict=True)
    assert isinstance(model, weft.CpuModel)
    assert not any(isinstance(step, NumpyStep) for step in model.steps)
    return model


def values(node: Call, sizes: tuple[int, ...], seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    kind = node.args[1].tensor_type
    low, high = ([sign * size for size in sizes] if len(sizes) > 1 else sign * sizes[0] for sign in (-1, 1))
    return {"data": generator.standard_normal(DATA.type.shape, np.float32),
            "indices": generator.integers(low, high, kind.shape, kind.dtype)}  # fmt: skip


MODULES = {name: weft.load(compiled(module_of(node))) for name, (node, _) in CASES.items()}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 1000))
def test_elements_are_picked(name: str, seed: int) -> None:
    node, sizes = CASES[name]
    given_values = values(node, sizes, seed)
    expected = evaluate(module_of(node), given_values)["out0"]
    np.testing.assert_array_equal(MODULES[name].run(given_values)["out0"], expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("below", [False, True])
def test_an_index_that_is_outside_is_refused(name: str, below: bool) -> None:
    node, sizes = CASES[name]
    wrong = values(node, sizes, 0)
    place = (*(size - 1 for size in wrong["indices"].shape),)
    wrong["indices"][place] = -sizes[-1] - 1 if below else sizes[-1]
    index = wrong["indices"][place]
    message = rf"index {index} is outside of an axis of {sizes[-1]} elements; hint: it must be in -\d\.\.\d$"
    with pytest.raises(InputError, match=message):
        MODULES[name].run(wrong)


def test_the_user_is_told_which_node_it_is_and_indices_are_looked_at_once() -> None:
    place = indices(2)
    doubled = call("nn.add", place, place)
    first = call("gather", DATA, doubled, axis=0, span=Span(("embed",), "rows"))
    second = call("gather", call("nn.negative", DATA), doubled, axis=0)
    params = (DATA, place)
    body = Tuple((first, second, call("gather", DATA, doubled, axis=2)))
    model = compiled(Module(Function(params, body, Attrs({"name": "main", "outputs": ("a", "b", "c")}))))
    assert [step.sizes for step in model.steps if isinstance(step, CheckStep)] == [(3,), (4,)]
    with pytest.raises(InputError, match=r"^node 'embed': index 4 is outside of an axis of 3 elements"):
        weft.load(model).run({"data": np.zeros(DATA.type.shape, np.float32), "indices": np.array([1, 2])})


def test_constant_indices_need_no_look_and_wrong_ones_stay_in_numpy() -> None:
    inside = call("gather", DATA, Constant(np.array([0, -3])), axis=0)
    assert not any(isinstance(step, CheckStep) for step in compiled(module_of(inside)).steps)
    outside = weft.compile(module_of(call("gather", DATA, Constant(np.array([3])), axis=0)), target="cpu")
    assert isinstance(outside, weft.CpuModel)
    assert [layer.reason for layer in outside.layers] == ["an index that is outside"]
