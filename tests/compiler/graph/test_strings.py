"""Arrays of strings: the forms in which they come, and their bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Constant, GraphError, evaluate, parse
from weft.compiler.graph.dtypes import STRING, numpy_dtype
from weft.compiler.graph.strings import StringsError, canonical, content, fixed_width, from_content

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(texts))
def test_all_forms_mean_the_same(values: list[str]) -> None:
    wanted = np.array(values, numpy_dtype(STRING))
    encoded = np.array([text.encode() for text in values], object)
    for given_form in (
        wanted,
        np.array(values, object),
        encoded,
        np.array(values, np.dtypes.StringDType(coerce=False)),
    ):
        found = canonical(given_form)
        assert found.dtype == numpy_dtype(STRING) or not values
        assert found.tolist() == values
    for width in (np.array(values or [""], str), np.char.encode(np.array(values or [""], str), "utf-8")):
        assert canonical(width).tolist() == [text.rstrip("\0") for text in values or [""]]


@given(st.lists(texts))
def test_bytes_read_back(values: list[str]) -> None:
    array = np.array(values, numpy_dtype(STRING))
    assert from_content(content(array), STRING, (len(values),)).tolist() == values
    assert fixed_width(array).tolist() == [text.rstrip("\0") for text in values]


def test_other_arrays_stay_as_they_are() -> None:
    numbers, objects = np.arange(3), np.array([1, "a"], object)
    assert canonical(numbers) is numbers
    assert canonical(objects) is objects
    assert canonical("a\0").item() == "a\0"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([b"\xff"]), "not UTF-8"),
        (np.array(["\ud800"]), "no UTF-8 form"),
        (np.array(["a", None], np.dtypes.StringDType(na_object=None)), "None is no string"),
    ],
)
def test_what_is_no_string_is_refused(value: np.ndarray, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(StringsError, match=message):
        canonical(value)
    with pytest.raises(GraphError, match=f"input 'x': .*{message}"):
        evaluate(parse(f"fn @main(%x: string[{len(value)}]) {{ return %x }}"), {"x": value})


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (b"\1\0\0", (1,)),
        (b"\2\0\0\0a", (1,)),
        (b"\1\0\0\0ab", (1,)),
        (b"\1\0\0\0\xff", (1,)),
        (b"a", (0,)),
        (b"", (-1,)),
    ],
)
def test_bytes_that_are_no_strings(data: bytes, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_content(data, STRING, shape)


def test_constants_are_told_apart_by_their_strings() -> None:
    first, again, other = (Constant(np.array(values)) for values in (["ab", "c"], ["ab", "c"], ["a", "bc"]))
    assert first == again
    assert first != other
    assert str(first.type) == "string[2]"


@pytest.mark.parametrize("text", ["string(1)", 'float32("1")', "string(true)"])
def test_elements_of_the_wrong_kind_cannot_be_written(text: str) -> None:
    with pytest.raises(GraphError, match="no element of a tensor of"):
        parse(f"fn @main() {{ return {text} }}")
