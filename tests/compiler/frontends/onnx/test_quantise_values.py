"""Values at the edges of what is quantised and cast: what the standard says, as read and compiled for the processor."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Array, evaluate

from ...onnx_models import run_onnxruntime


def one_node(
    op: str, inputs: dict[str, Array], results: list[int], opset: int, domain: str = "",
    constants: dict[str, Array] | None = None, order: list[str] | None = None, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node; ``results`` are the element types of its outputs."""
    held = constants or {}
    names = [f"y{i}" for i in range(len(results))]
    node = helper.make_node(op, order or [*inputs, *held], names, domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    graph = helper.make_graph(
        [node], "g", given, [helper.make_tensor_value_info(*pair, None) for pair in zip(names, results, strict=True)],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=domains, ir_version=13 if opset > 21 else 8)


def both(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What the model gives in NumPy, which the compiled one must give, too."""
    found = list(evaluate(from_onnx(model, require_quantised=False), inputs).values())
    compiled = weft.load(weft.compile(model, target="cpu")).run(inputs)
    for array, other in zip(found, compiled.values(), strict=True):
        assert array.dtype == other.dtype
        np.testing.assert_array_equal(array.astype(np.float64), other.astype(np.float64))
    return found


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
def test_no_number_becomes_the_lowest_integer_and_infinity_the_last(kind: str) -> None:
    limits = np.iinfo(kind)
    zero = np.array((limits.min + limits.max) // 2 + 3, kind)
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -3e38], np.float32)
    model = one_node("QuantizeLinear", {"x": x}, [helper.np_dtype_to_tensor_dtype(zero.dtype)], 21,
                     constants={"s": np.array(0.5, np.float32), "z": zero})  # fmt: skip
    (found,) = both(model, {"x": x})
    low, high, middle = limits.min, limits.max, int(zero)
    assert found.tolist() == [low, high, low, middle, middle, middle, high, low]
    assert found.tolist() == run_onnxruntime(model, {"x": x})[0].tolist()


@pytest.mark.parametrize("precision", ["scale", "float32"])
def test_a_scale_of_16_bits_divides_in_16_bits(precision: str) -> None:
    """Unless the precision says otherwise; the quotient is rounded before it is rounded to an integer."""
    x, scale = np.arange(-300, 300, dtype=np.float16) / np.float16(8), np.array(0.3, np.float16)
    attributes = {} if precision == "scale" else {"precision": TensorProto.FLOAT}
    model = one_node("QuantizeLinear", {"x": x}, [TensorProto.INT8], 23,
                     constants={"s": scale, "z": np.array(0, np.int8)}, **attributes)  # fmt: skip
    (found,) = both(model, {"x": x})
    quotients = [Fraction(float(each)) / Fraction(float(scale)) for each in x]
    if precision == "scale":
        quotients = [Fraction(float(np.float16(float(each)))) for each in quotients]
    assert found.tolist() == [min(max(round(each), -128), 127) for each in quotients]


def test_zeros_quantised_dynamically_have_a_scale_of_1() -> None:
    for x in (np.zeros(4, np.float32), np.full(3, -0.0, np.float32), np.array([0, -2.5, 3], np.float32)):
        model = one_node(
            "DynamicQuantizeLinear", {"x": x}, [TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8], 13
        )
        found, wanted = both(model, {"x": x}), run_onnxruntime(model, {"x": x})
        assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


def power_of_two(x: float, saturate: bool, rounding: str) -> float:
    """``x`` above 0 as a power of two, in fractions; NaN beyond 2**-127 .. 2**127 where it must not be saturated."""
    if np.isnan(x):
        return x
    power, number = -200, Fraction(x) if np.isfinite(x) else Fraction(2) ** 200
    while number >= Fraction(2) ** (power + 1):
        power += 1
    below = Fraction(2) ** power
    power += {"down": 0, "up": number > below, "nearest": number >= below * 3 / 2}[rounding]
    if not saturate and abs(power) > 127:
        return float("nan")
    return 2.0 ** min(max(power, -127), 127)


@pytest.mark.parametrize(("saturate", "rounding"), [*itertools.product([0, 1], ["", "up", "down", "nearest"])])
def test_powers_of_two_are_rounded_up_unless_told_otherwise(saturate: int, rounding: str) -> None:
    """Cast's ``round_mode`` is "up" where it is left out."""
    around = [
        2.0**power * factor for power in (-149, -128, -127, -126, 0, 126, 127) for factor in (1, 1.1, 1.25, 1.5, 1.75)
    ]
    with np.errstate(over="ignore"):
        x = np.array([0, *around, 3.4e38, np.inf, np.nan], np.float32)
    attributes = {"round_mode": rounding} if rounding else {}
    model = one_node("Cast", {"x": x}, [TensorProto.FLOAT8E8M0], 24, to=TensorProto.FLOAT8E8M0, saturate=saturate,
                     **attributes)  # fmt: skip
    (found,) = both(model, {"x": x})
    assert found.dtype == ml_dtypes.float8_e8m0fnu
    wanted = [power_of_two(float(each), bool(saturate), rounding or "up") for each in x]
    np.testing.assert_array_equal(found.astype(np.float64), wanted)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_product_of_integers_is_scaled_once(kind: str) -> None:
    """(a - za) * (b - zb) times one factor: what differs from it is next to a tie, here and in onnxruntime."""
    limits = np.iinfo(kind)
    a = np.arange(limits.min, limits.max + 1).astype(kind)
    zeros = {"za": np.array(limits.min + 3, kind), "zb": np.array(limits.min + 100, kind)}
    scales = {"sa": np.array(0.02, np.float32), "sb": np.array(0.05, np.float32), "sy": np.array(0.08, np.float32)}
    constants = {**zeros, **scales, "zy": np.array(limits.min + 7, kind)}
    inputs = {"a": a[:, None].copy(), "b": a[None].copy()}
    order = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype)]
    model = one_node("QLinearMul", inputs, kinds, 13, "com.microsoft", constants, order)
    (read,) = evaluate(from_onnx(model, require_quantised=False), inputs).values()
    (compiled,) = weft.load(weft.compile(model, target="cpu")).run(inputs).values()
    products = (inputs["a"].astype(int) - int(zeros["za"])) * (inputs["b"].astype(int) - int(zeros["zb"]))
    factor = scales["sa"] * scales["sb"] / scales["sy"]
    once = np.rint(products.astype(np.float32) * factor) + int(constants["zy"])
    np.testing.assert_array_equal(read, np.clip(once, limits.min, limits.max))
    exact = products * (float(scales["sa"]) * float(scales["sb"]) / float(scales["sy"]))
    wanted = np.clip(np.rint(exact) + int(constants["zy"]), limits.min, limits.max)
    tie = np.abs(exact - np.floor(exact) - 0.5) < 1e-5  # integers are rounded up there, floats as they fall
    for found in (read, compiled, run_onnxruntime(model, inputs)[0]):
        np.testing.assert_array_equal(np.where(tie, wanted, found), wanted)
        assert np.abs(found - wanted).max() <= 1
    assert 0 < tie.mean() < 0.1
