"""Casts between all types that have machine code give what they mean, to the bit: also of what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Function, Module, TensorType, Tuple, Var, call, dtypes, evaluate
from weft.compiler.targets.loops.fusion import why_not_compiled

FLOATS = (0, -0.0, 0.9, -0.9, 1, -1, 126.9, 127.5, 128, -128.9, -129, 255.5, 256, 32767.9, 65536, 2147483520,
          2147483648, -2147483648, -2147483904, 4294967040, 4294967296, 9.2e18, 9223372036854775808,
          -9223372036854775808, 1.8e19, 1.9e19, 1e38, -1e38, np.inf, -np.inf, np.nan, 65504, 1e-40)  # fmt: skip


NUMBERS = (*dtypes.ARITHMETIC, *dtypes.STORAGE)

OF_SMALL = ("bool", "int8", "uint32", "bfloat16", "float32", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "int2")
"""What small types are cast to here: from the same number all other types are made as from a float32 or an int32."""

Values = np.ndarray[Any, Any]


def awkward(dtype: str) -> Values:
    """All there are of a small type; limits and halfway values of any other."""
    if dtype in dtypes.SMALL_FLOATS:
        codes = 16 if dtype.startswith("float4") else 256
        return np.arange(codes, dtype=np.uint8).view(dtypes.numpy_dtype(dtype))
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            return np.concatenate([np.array(FLOATS, np.float64), halfway()]).astype(dtypes.numpy_dtype(dtype))
    low, high = dtypes.limits(dtype)
    if dtype in dtypes.SMALL_INTEGERS:
        return np.arange(low, high + 1).astype(dtypes.numpy_dtype(dtype))
    return np.array([low, high, 0, 1, high // 2, low // 3, *range(min(high, 70))], object).astype(dtype)


def halfway() -> Values:
    """Between the numbers of each small float: the middle of two neighbours, and what is next to it."""
    found = []
    for dtype in dtypes.SMALL_FLOATS:
        numbers = np.unique(awkward(dtype).astype(np.float64))
        numbers = numbers[np.isfinite(numbers)]
        middles = (numbers[1:] + numbers[:-1]) / 2
        beyond = numbers[-1] + (numbers[-1] - numbers[-2]) * np.array([0.5, 1])
        found += [middles, middles * (1 + 2.0**-20), middles * (1 - 2.0**-20), beyond, -beyond]
    return np.concatenate(found)


def casts(x: Var) -> dict[str, Call]:
    """All casts of a value that have loops, by a name."""
    found: dict[str, Call] = {}
    for to in NUMBERS:
        if to == x.dtype or (x.dtype in dtypes.STORAGE and to not in OF_SMALL):
            continue
        forms: list[dict[str, object]] = [{}]
        if to.startswith("float8"):
            forms.append({"saturate": False})
        if to == "float8_e8m0fnu":
            forms += [{"rounding": way, "saturate": held} for way in ("up", "down") for held in (True, False)]
        for form in forms:
            node = call("nn.cast", x, to=to, **form)
            if not why_not_compiled(node):
                found[f"{to} {form}"] = node
    return found


def compiled(x: Var, results: dict[str, Call]) -> tuple[Module, weft.LoadedModule]:
    module = Module(Function((x,), Tuple(tuple(results.values())), Attrs({"name": "main", "outputs": tuple(results)})))
    loaded = weft.load(weft.compile(replace(module, stage="operators"), target="cpu"))
    assert not any(layer.reason for layer in loaded.model.layers)
    return module, loaded


def assert_same(found: Values, expected: Values, message: str) -> None:
    """Equal numbers, a -0 where a -0 is expected (float4_e2m1fn makes one of nan, or not)."""
    assert found.dtype == expected.dtype
    if dtypes.is_float(expected.dtype.name):
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        number = ~np.isnan(expected) & ((expected != 0) | ("float4" not in message))
        np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]), err_msg=message)
    elif expected.dtype.name in dtypes.SMALL_INTEGERS:
        found, expected = found.astype(np.int64), expected.astype(np.int64)
    np.testing.assert_array_equal(found, expected, err_msg=message)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_cast(dtype: str) -> None:
    values = awkward(dtype)
    if dtypes.is_float(dtype):  # what fits no int32 has no last bits that all machines agree about
        with np.errstate(invalid="ignore"):
            fits = np.abs(values.astype(np.float64)) < 2**31
    else:
        fits = np.ones(values.shape, bool)
    x = Var("x", TensorType(values.shape, dtype))
    results = casts(x)
    module, loaded = compiled(x, results)
    found, expected = loaded.run({"x": values}), evaluate(module, {"x": values})
    for name, array in expected.items():
        compared = fits if array.dtype.name in dtypes.SMALL_INTEGERS else np.ones(values.shape, bool)
        assert_same(found[name][compared], array[compared], f"{dtype} to {name}")


def test_what_has_no_loops_among_casts() -> None:
    """Numbers with more digits than float32 as powers of two: rounding twice could be seen."""
    missing = {
        (dtype, to) for dtype in NUMBERS for to in NUMBERS
        if why_not_compiled(call("nn.cast", Var("x", TensorType((2,), dtype)), to=to))
    }  # fmt: skip
    assert missing == {(each, "float8_e8m0fnu") for each in ("float64", "int32", "uint32", "int64", "uint64")}


@pytest.mark.parametrize("pair", [
    ("float16", "int16"), ("int16", "float16"), ("bfloat16", "uint16"), ("uint16", "bfloat16"), ("float32", "int32"),
    ("uint32", "float32"), ("float64", "uint64"), ("int64", "float64"), ("int8", "uint8"), ("float16", "bfloat16"),
    ("float8_e5m2", "int8"), ("uint8", "float8_e4m3fn"), ("int4", "uint4"), ("bool", "uint8"),
])  # fmt: skip
def test_every_bitcast(pair: tuple[str, str]) -> None:
    source, to = pair
    if dtypes.is_float(to) and source in dtypes.INTEGERS:  # of numbers, not of bits that are none
        values = awkward(to).view(dtypes.numpy_dtype(source))
    else:
        values = awkward(source)
    x = Var("x", TensorType(values.shape, source))
    module, loaded = compiled(x, {"out": call("nn.bitcast", x, to=to)})
    found, expected = loaded.run({"x": values})["out"], evaluate(module, {"x": values})["out"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
