"""Requantising in 32 bits gives the integers of the contract, up to the ends of every parameter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Call, Constant, TensorType, Var, call
from weft.compiler.graph.registry import apply
from weft.compiler.targets.loops.layouts import UINT8_OFFSET, Layout, to_memory
from weft.compiler.targets.loops.narrow_requantise import HIGHEST_SHIFT, LOWEST_SHIFT, held_higher, narrow_requantise
from weft.compiler.tensor.view import View

LARGEST = (1 << 31) - 1


def requantise(
    shift: list[int], multiplier: list[int], bias: list[int], size: int, dtype: str = "int32", **attrs: object
) -> Call:
    x = Var("x", TensorType((1, len(shift), size), dtype))
    return call("requantise", x, *(Constant(np.array(each, np.int32)) for each in (bias, multiplier, shift)), **attrs)


def contract(node: Call, x: np.ndarray) -> np.ndarray:
    return apply(node, [x, *(arg.value for arg in node.args[1:] if isinstance(arg, Constant))])


def narrow(node: Call, x: np.ndarray, held: list[bool] | None = None) -> np.ndarray | None:
    """What the form gives, by the interpreter; None where it does not apply. ``held``: as uint8, 128 higher; whether
    that took no step of its own is added to it."""
    data = te.placeholder(x.shape, x.dtype.name, "x")
    constants: dict[str, np.ndarray] = {}
    tensors: list[te.Tensor] = [data]

    def parameter(place: int, value: Constant) -> View:
        if value.value.size == 1:  # it becomes part of the code, as in a kernel
            return View(value.shape, "int32", lambda index: te.Const(int(value.value[0]), "int32"))
        name = f"c{len(constants)}"
        constants[name] = value.value
        tensors.append(te.placeholder(value.shape, "int32", name))
        return View.of(tensors[-1])

    view = narrow_requantise(node, View.of(data), parameter)
    if view is None:
        return None

    def value(*index: te.Expr) -> te.Expr:
        if held is None:
            return view[index]
        held.append(held_higher(view[index], UINT8_OFFSET) is not None)
        return to_memory(view[index], Layout(4))

    out = te.compute(x.shape, value, "out")
    return te.interpret(te.lower([out], tensors, "kernel"), {"x": x, **constants})["out"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_gives_the_integers_of_the_contract(data: st.DataObject) -> None:
    channels = data.draw(st.integers(1, 3))
    each = lambda low, high: data.draw(st.lists(st.integers(low, high), min_size=channels, max_size=channels))  # noqa: E731
    shift = each(LOWEST_SHIFT, data.draw(st.sampled_from([LOWEST_SHIFT, 40, 44, HIGHEST_SHIFT])))
    multiplier = each(-(1 << 24) + 1, (1 << 24) - 1)
    low = data.draw(st.integers(-128, 0))
    node = requantise(
        shift, multiplier, each(-LARGEST - 1, LARGEST), 40, zero_point=data.draw(st.integers(-256, 255)), low=low,
        high=data.draw(st.integers(low, 127)), out=data.draw(st.sampled_from(["int8", "int32"])),
    )  # fmt: skip
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = random.integers(-LARGEST - 1, LARGEST, (1, channels, 40), np.int32, endpoint=True)
    x[..., :4] = -LARGEST - 1, LARGEST, 0, -1
    found = narrow(node, x)
    if found is not None:
        np.testing.assert_array_equal(found, contract(node, x))
    if found is not None and found.dtype == np.int8:
        held = narrow(node, x, [])
        assert held is not None
        np.testing.assert_array_equal(held, (contract(node, x).astype(np.int16) + UINT8_OFFSET).astype(np.uint8))


@pytest.mark.parametrize(
    ("shift", "zero_point", "together"),
    [([33, 33], 127, True), ([33, 40], 0, True), ([33, 41], 0, False), ([47, 47], 0, True), ([48, 48], 0, False)],
)
def test_held_as_uint8_it_takes_no_further_step(shift: list[int], zero_point: int, together: bool) -> None:
    """Where all channels have one shift, and its constant has room for 128 more."""
    x = np.full((1, 2, 7), 3, np.int32)
    x[..., :6] = -LARGEST - 1, LARGEST, 0, -1, 77777, -99999
    node = requantise(shift, [(1 << 24) - 1] * 2, [5, -5], 7, zero_point=zero_point, low=-60, high=63)
    taken: list[bool] = []
    found = narrow(node, x, taken)
    assert found is not None
    assert taken == [together]
    np.testing.assert_array_equal(found, contract(node, x).astype(np.int16) + UINT8_OFFSET)


@pytest.mark.parametrize("shift", [LOWEST_SHIFT, 33, 40, 50])
@pytest.mark.parametrize("multiplier", [(1 << 24) - 1, -(1 << 24) + 1, 1 << 23])
def test_ties_and_ends_are_exact(shift: int, multiplier: int) -> None:
    node = requantise([shift], [multiplier], [0], 4096, low=-256, high=255, out="int32", left_shift=3)
    step = max(1, (1 << shift) // abs(multiplier) // 2)
    centre = np.arange(-2048, 2048, dtype=np.int64) * step
    x = np.clip(centre + np.arange(4096) % 3 - 1, -LARGEST - 1, LARGEST).astype(np.int32).reshape(1, 1, -1)
    found = narrow(node, x)
    assert found is not None
    np.testing.assert_array_equal(found, contract(node, x))


@pytest.mark.parametrize("shift", [1, LOWEST_SHIFT - 1, HIGHEST_SHIFT + 1])
def test_other_shifts_keep_the_wide_form(shift: int) -> None:
    assert narrow(requantise([shift], [1 << 23], [0], 4), np.zeros((1, 1, 4), np.int32)) is None


def test_parameters_of_a_run_keep_the_wide_form() -> None:
    x = Var("x", TensorType((1, 2, 3), "int32"))
    params = [Var(name, TensorType((2,), "int32")) for name in ("bias", "multiplier", "shift")]
    view = View((1, 2, 3), "int32", lambda index: index[0])
    assert narrow_requantise(call("requantise", x, *params), view, lambda place, value: view) is None


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_bytes_have_it_for_small_shifts_too(data: st.DataObject) -> None:
    """Every byte, whatever the shifts; they are exact, and small ones have the form as long as the bias leaves room."""
    channels = data.draw(st.integers(1, 3))
    each = lambda low, high: data.draw(st.lists(st.integers(low, high), min_size=channels, max_size=channels))  # noqa: E731
    shift = each(1, data.draw(st.sampled_from([8, 26, HIGHEST_SHIFT])))
    largest = data.draw(st.sampled_from([0, 300, 1 << 16, LARGEST]))
    node = requantise(
        shift, each(-(1 << 24) + 1, (1 << 24) - 1), each(-largest, largest), 256, "int8", low=-128, high=127,
        zero_point=data.draw(st.integers(-128, 127)),
    )  # fmt: skip
    x = np.broadcast_to(np.arange(-128, 128, dtype=np.int8), (1, channels, 256)).copy()
    found = narrow(node, x)
    if found is not None:
        np.testing.assert_array_equal(found, contract(node, x))
    assert found is not None or largest > 300 or min(shift) < 8 or max(shift) > 26


def test_bytes_whose_sums_leave_no_room_keep_the_wide_form() -> None:
    for bias, has_form in ((8063, True), (8064, False)):  # 8191 is the largest number that 18 bits more have room for
        node = requantise([8], [1 << 23], [bias], 4, "int8")
        assert (narrow(node, np.zeros((1, 1, 4), np.int8)) is not None) == has_form
