"""Operators on strings against plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Array, Constant, GraphError, call, dtypes, evaluate_function, strings
from weft.compiler.graph.dtypes import STRING, numpy_dtype
from weft.compiler.graph.ir import Function

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
lists = st.lists(texts, min_size=1, max_size=5)


def array(values: list[str]) -> Array:
    return np.array(values, numpy_dtype(STRING))


def value_of(op: str, *operands: Array, **attrs: Any) -> Array:
    result = evaluate_function(Function((), call(op, *map(Constant, operands), **attrs)), ())
    assert isinstance(result, np.ndarray)
    return result


@given(lists, texts)
def test_strings_follow_each_other_and_broadcast(left: list[str], right: str) -> None:
    assert value_of("nn.string_concat", array(left), array([right])).tolist() == [text + right for text in left]
    assert value_of("nn.string_concat", array(left)[0:1].reshape(()), array([right])[0]).shape == ()


@given(lists)
def test_cases_and_equality(values: list[str]) -> None:
    for to, change in (("lower", str.lower), ("upper", str.upper)):
        changed = [change(text) for text in values]
        assert value_of("nn.string_case", array(values), to=to).tolist() == changed
        same = [text == other for text, other in zip(values, changed, strict=True)]
        assert value_of("nn.equal", array(values), array(changed)).tolist() == same


@given(lists, lists)
def test_strings_are_found_among_keys(values: list[str], keys: list[str]) -> None:
    wanted = [max((i for i, key in enumerate(keys) if key == text), default=len(keys)) for text in values]
    assert value_of("nn.find", array(values), array(keys)).tolist() == wanted


@given(st.sampled_from(dtypes.ARITHMETIC), st.data())
def test_numbers_are_found_among_keys(dtype: str, data: st.DataObject) -> None:
    numbers = st.lists(st.sampled_from([0, 1, 2, 3, *([math.nan, -0.0, math.inf] if dtype in dtypes.FLOATS else [])]))
    values, keys = (np.array(data.draw(numbers), np.float64).astype(numpy_dtype(dtype)) for _ in range(2))

    def same(a: Any, b: Any) -> bool:
        return bool(a == b) or bool(a != a and b != b)

    wanted = [max((i for i, key in enumerate(keys) if same(key, each)), default=len(keys)) for each in values]
    assert value_of("nn.find", values, keys).tolist() == wanted


@given(st.sampled_from([*dtypes.ARITHMETIC, *dtypes.SMALL_INTEGERS]), st.data())
def test_numbers_read_back_from_their_text(dtype: str, data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=16, max_size=16))
    bits = np.frombuffer(raw, np.uint8)
    small = dtype in ("bool", *dtypes.SMALL_INTEGERS)
    x = (bits % 2).astype(numpy_dtype(dtype)) if small else bits.view(numpy_dtype(dtype))
    text = value_of("nn.cast", x, to=STRING)
    assert not any("e" in each.lower() for each in text.tolist())
    again = value_of("nn.cast", text, to=dtype)
    assert again.dtype == x.dtype
    exact = np.float64 if dtypes.is_float(dtype) else object
    np.testing.assert_array_equal(again.astype(exact), x.astype(exact))


@pytest.mark.parametrize(
    ("text", "to", "value"),
    [
        ("100.5", "int32", 100), ("-1e2", "int8", -100), (" +7 ", "uint8", 7), ("1E8", "float32", 1e8),
        (".5", "float64", 0.5), ("+INF", "float32", math.inf), ("-inf", "float64", -math.inf),
        ("Infinity", "float16", math.inf),
        ("9007199254740993", "int64", 9007199254740993), ("18446744073709551615", "uint64", 2**64 - 1),
        ("2", "bool", True),
    ],
)  # fmt: skip
def test_text_as_numbers(text: str, to: str, value: float) -> None:
    result = value_of("nn.cast", array([text]), to=to)
    assert result.dtype == numpy_dtype(to)
    assert result.tolist() == [value]


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3.0"), (1e-5, "0.00001"), (314.25, "314.25"), (math.inf, "INF"), (-0.0, "-0.0")]
)
def test_floats_as_text(value: float, text: str) -> None:
    assert value_of("nn.cast", np.float32([value]), to=STRING).tolist() == [text]


@pytest.mark.parametrize(
    ("text", "to", "message"),
    [
        ("word", "float32", "'word' is no number"), ("", "int32", "'' is no number"), ("1_000", "int32", "no number"),
        ("0x10", "int64", "no number"), ("128", "int8", "does not fit int8"), ("-1", "uint8", "does not fit uint8"),
        ("nan", "int32", "does not fit int32"), ("1e9", "int16", "does not fit"), ("٣", "int32", "no number"),
        ("9" * 5000, "int64", "no number"),
    ],
)  # fmt: skip
def test_text_that_is_no_number_is_refused(text: str, to: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        value_of("nn.cast", array([text]), to=to)


def test_strings_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "MOST_CHARACTERS", 1000)
    text = array(["a" * 500])
    assert len(value_of("nn.string_concat", text, text).tolist()[0]) == 1000
    for op, operands, attrs in (
        ("nn.string_concat", [array(["a" * 501]), text], {}), ("expand", [text], {"shape": (3,)}),
        ("gather", [text, np.zeros(3, np.int64)], {"axis": 0}), ("concat", [text, text, text], {"axis": 0}),
    ):  # fmt: skip
        with pytest.raises(GraphError, match="may be more than 1,000"):
            value_of(op, *operands, **attrs)


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "message"),
    [
        ("nn.string_case", ["a"], {"to": "title"}, "must be one of lower, upper"),
        ("nn.regex_full_match", ["a"], {"pattern": "("}, "regular expression"),
        ("nn.regex_full_match", ["a"], {"pattern": 3}, "must be a text"),
        ("pad", ["a"], {"pads": (1, 1)}, "no element"),
        ("dilate", ["a"], {"factors": (2,)}, "no zero among strings"),
        ("nn.bitcast", ["a"], {"to": "int64"}, "no bits"),
        ("nn.less", ["a", "b"], {}, "an operand must be"),
        ("nn.find", ["a", 1], {}, "the keys must be string of one axis"),
        ("nn.string_concat", ["a", 1], {}, "must be string"),
    ],
)
def test_calls_that_do_not_fit(op: str, operands: list[Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        call(op, *(Constant(np.array([value])) for value in operands), **attrs)


def test_strings_are_moved_and_padded_with_strings() -> None:
    x = array(["a", "b", "c"])
    assert value_of("pad", x, pads=(1, 2), value="z").tolist() == ["z", "a", "b", "c", "z", "z"]
    placed = value_of("scatter_elements", x, np.array([0]), array(["longer than it was"]))
    assert placed.tolist() == ["longer than it was", "b", "c"]
