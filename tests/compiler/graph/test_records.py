"""Records as attributes: they are in the text of a graph, read back, and refused where they are not what they say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Function, GraphError, Module, TensorType, Var, call, parse, to_text
from weft.compiler.graph.records import Record, record_of


@dataclass(frozen=True)
class TilesInTest(Record):
    rows: int
    columns: int = 1


@dataclass(frozen=True)
class ChoiceInTest(Record):
    tiles: TilesInTest
    name: str
    share: float = 0.5
    sure: bool = False


@dataclass
class OpenInTest(Record):
    rows: int


def module(value: object) -> Module:
    x = Var("x", TensorType((2, 3), "float32"))
    inner = Function((x,), call("nn.tanh", x), Attrs({"name": "inner", "primitive": True, "choice": value}))
    return Module(Function((x,), call(inner, x), Attrs({"name": "main", "outputs": ("y",)})))


CHOICES = st.builds(
    ChoiceInTest, st.builds(TilesInTest, st.integers(), st.integers()), st.text(st.characters(codec="utf-8")),
    st.floats(allow_nan=False), st.booleans(),
)  # fmt: skip


@given(CHOICES)
def test_a_record_is_read_back_from_the_text_of_its_graph(choice: ChoiceInTest) -> None:
    made = module(choice)
    read = parse(to_text(made))
    assert read == made
    assert read.functions[0].attrs["choice"] == choice


def test_fields_at_their_default_are_left_out() -> None:
    text = to_text(module(ChoiceInTest(TilesInTest(2), "a")))
    assert 'choice=ChoiceInTest(tiles=TilesInTest(rows=2), name="a"), ' in text


def test_graphs_whose_records_differ_differ() -> None:
    first, second = (module(ChoiceInTest(TilesInTest(rows), "a")) for rows in (2, 3))
    assert first != second


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (OpenInTest(1), "OpenInTest is no frozen dataclass"),
        (TilesInTest(True), "field 'rows' of TilesInTest is True, but must be of class int"),
        (TilesInTest(1.0), "field 'rows' of TilesInTest is 1.0, but must be of class int"),  # type: ignore[arg-type]
        (object(), "a bool, int, float, str, a tuple of such, a record, or a function, not object"),
    ],
)
def test_what_is_no_attribute_is_refused(value: object, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        module(value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("right", "message"),
    [
        ("Nothing(rows=2)", "'Nothing' is no record that is known here"),
        ("TilesInTest(rows=2, lines=3)", "TilesInTest has no field 'lines'; its fields are rows, columns"),
        ("TilesInTest(columns=2)", "TilesInTest needs its field 'rows'"),
        ('TilesInTest(rows="2")', "field 'rows' of TilesInTest is '2', but must be of class int"),
        ("TilesInTest(rows=1.5)", "field 'rows' of TilesInTest is 1.5, but must be of class int"),
        ("TilesInTest(rows=true)", "field 'rows' of TilesInTest is True, but must be of class int"),
        ("ChoiceInTest(tiles=2, name=\"a\")", "field 'tiles' of ChoiceInTest is 2, but must be of class TilesInTest"),
        ("TilesInTest(2)", "expected a name"),
        ("TilesInTest(rows=2", "expected a name"),
    ],
)  # fmt: skip
def test_wrong_text_is_refused_with_its_line(right: str, message: str) -> None:
    text = to_text(module(TilesInTest(2))).replace("TilesInTest(rows=2)", right)
    with pytest.raises(GraphError, match="line 1: ") as caught:
        parse(text)
    assert message in str(caught.value)


def test_records_of_this_package_are_found_without_an_import() -> None:
    with pytest.raises(ValueError, match="ChainPlan needs its field 'tiling'"):
        record_of("ChainPlan", {})


def test_two_records_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="have records of one name, 'TilesInTest'"):
        type("TilesInTest", (Record,), {"__module__": "elsewhere"})
