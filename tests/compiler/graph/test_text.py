"""The text form: a module reads back as an equal module, and wrong text is refused with its line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    TupleGet,
    Var,
    call,
    constant_table,
    dtypes,
    evaluate,
    parse,
    to_text,
)
from weft.compiler.graph.visit import uniquely_named

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8)
FLOATS = st.floats(allow_nan=False, width=32)


@st.composite
def constants(draw: st.DrawFn, shape: tuple[int, ...]) -> Constant:
    size = int(np.prod(shape))
    values = draw(st.lists(FLOATS, min_size=size, max_size=size))
    return Constant(np.array(values, np.float32).reshape(shape), draw(NAMES))


@st.composite
def modules(draw: st.DrawFn) -> Module:
    shape = draw(st.sampled_from([(1, 2, 3, 4), (2, 3), (1, 2, 1, 1)]))
    params = [Var(name, TensorType(shape, "float32")) for name in draw(st.lists(NAMES, min_size=1, unique=True))]
    values: list[Expr] = [*params]
    for number in range(draw(st.integers(1, 8))):
        span = Span(tuple(draw(st.lists(NAMES, max_size=2))), draw(st.sampled_from(["", "t", 'a "b" -> c'])))
        match draw(st.sampled_from(["add", "clip", "constant", "move", "function", "tuple"])):
            case "add":
                a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
                new: Expr = call("nn.add", a, b, span=span)
            case "clip":
                low = draw(FLOATS)
                new = call("nn.clip", draw(st.sampled_from(values)), low=low, high=float("inf"), span=span)
            case "constant":
                new = call("nn.multiply", draw(st.sampled_from(values)), draw(constants(shape)), span=span)
            case "move":
                flat = call("reshape", draw(st.sampled_from(values)), shape=(int(np.prod(shape)),), span=span)
                new = call("reshape", flat, shape=shape)
            case "function":
                x = Var("x", TensorType(shape, "float32"))
                attrs = Attrs({"name": f"f{number}", "host": draw(NAMES), "list": (1, 2.5, ("a",), True)})
                new = call(Function((x,), call("nn.clip", x, low=0.0), attrs), draw(st.sampled_from(values)), span=span)
            case _:
                new = TupleGet(Tuple((values[-1], draw(st.sampled_from(values))), span), draw(st.integers(0, 1)))
        values.append(new)
    outputs = draw(st.sampled_from([values[-1], Tuple((values[-1], values[0]))]))
    return Module(Function(tuple(params), outputs, Attrs({"name": "main"})))


def test_values_take_no_number_that_is_an_inputs_name() -> None:
    x = Var("0", TensorType((2,), "float32"))
    module = Module(Function((x,), Tuple((call("nn.add", x, x), x)), Attrs({"name": "main"})))
    assert parse(to_text(module)) == module


@given(modules())
def test_text_reads_back_as_an_equal_module(module: Module) -> None:
    text = to_text(module)
    again = parse(text, constant_table(module))
    assert again == module
    assert to_text(again) == text


@pytest.mark.parametrize("nodes", [(), ("->",), ("a", "->", '"->" -> "')])
@pytest.mark.parametrize("tensor", ["", "->", 'b -> "c'])
def test_names_may_look_like_the_mark_between_them(nodes: tuple[str, ...], tensor: str) -> None:
    x = Var("x", TensorType((2,), "float32"))
    node = call("nn.add", x, x, span=Span(nodes, tensor))
    module = Module(Function((x,), node, Attrs({"name": "main"})))
    again = parse(to_text(module)).main.body
    assert isinstance(again, Call)
    assert again.span == Span(nodes, tensor)


@pytest.mark.parametrize("comment", ['"a" ->', '"a" -> b', '-> "b" "c"', '-> "b" -> "c"'])
def test_a_comment_without_the_tensor_that_it_announces_is_refused(comment: str) -> None:
    x = Var("x", TensorType((2,), "float32"))
    node = call("nn.add", x, x, span=Span(("a",), "b"))
    text = to_text(Module(Function((x,), node, Attrs({"name": "main"}))))
    with pytest.raises(GraphError, match="expected the name of a tensor behind '->'"):
        parse(text.replace('"a" -> "b"', comment))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@st.composite
def arrays_of_any_type(draw: st.DrawFn) -> Array:
    """Any bytes as elements of any type; integers of less than 8 bits from whole numbers."""
    dtype = dtypes.numpy_dtype(draw(st.sampled_from(dtypes.DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = int(np.prod(shape))
    if dtypes.dtype_name(dtype) == dtypes.STRING:
        return np.array(draw(st.lists(texts, min_size=size, max_size=size)), dtype).reshape(shape)
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    if dtype.name in ("bool", *dtypes.SMALL_INTEGERS, "float4_e2m1fn"):
        return (np.frombuffer(raw, np.uint8) % 2).astype(dtype).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


@given(arrays_of_any_type(), st.sampled_from(dtypes.DTYPES))
def test_values_of_every_type_read_back(value: Array, to: str) -> None:
    x = Var("x", TensorType((2,), to))
    body = Tuple((call("reshape", Constant(value, "c"), shape=(value.size,)), call("reshape", x, shape=(2, 1))))
    module = Module(Function((x,), body, Attrs({"name": "main"})))
    assert parse(to_text(module), constant_table(module)) == module


def test_the_text_is_readable() -> None:
    x = Var("x", TensorType((1, 2, 4, 4), "int8"))
    w = Constant(np.arange(18, dtype=np.int8).reshape(1, 2, 3, 3), "conv.w")
    body = call("conv2d", x, w, strides=(2, 2), pad_value=-3, span=Span(("conv",), "y"))
    text = to_text(Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)}))))
    assert text.splitlines()[1:] == [
        'fn @main(%x: int8[1, 2, 4, 4]) {outputs=("y",)} {',
        '  %0 = conv2d(%x, @conv.w, pad_value=-3, strides=(2, 2)) : int32[1, 1, 1, 1]  # "conv" -> "y"',
        "  return %0",
        "}",
    ]


def test_nested_calls_can_be_written() -> None:
    module = parse("fn @main(%x: float32[2, 3]) { return transpose(nn.clip(%x, low=0.0), perm=(1, 0)) }")
    body = module.main.body
    assert isinstance(body, Call)
    assert body.op == "transpose"
    assert body.shape == (3, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fn @main(%x: float32[2]) {\n  return %y\n}", r"line 2: %y is not defined"),
        ("fn @main(%x: float32[2]) {\n  return blur(%x)\n}", r"line 2: there is no operator 'blur'"),
        ("fn @main(%x: float32[2]) {\n %0 = nn.clip(%x) : int8[2] return %0 }", r"line 2: %0 is written as int8\[2\]"),
        ("fn @main(%x: float32[2]) {\n  return nn.clip(%x, width=3)\n}", r"line 2: nn.clip has no attribute 'width'"),
        ("fn @main(%x: float32[2]) { return ; }", r"line 1: cannot read ';"),
        ("fn @main(%x: float32[2]) {\n\n", r"line 3: expected 'return', but found 'the end of the text'"),
        ('constant @w: int8[9] checksum "00"\n', r"line 1: constant 'w' is not in the table"),
        ("", r"line 1: there is no function"),
    ],
)
def test_wrong_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse(text)


def test_a_changed_constant_is_refused() -> None:
    x = Var("x", TensorType((1, 9), "float32"))
    module = Module(Function((x,), call("nn.add", x, Constant(np.ones((1, 9), np.float32), "b")), Attrs({"name": "m"})))
    table = {name: value + 1 for name, value in constant_table(module).items()}
    with pytest.raises(GraphError, match=r"constant 'b' in the table is not the one that the text means"):
        parse(to_text(module), table)


EXAMPLE = """fn @half(%x: float32[2]) {host="a \\"reason\\"", list=(1, (2.5,), true)} {  # "f"
  %0 = nn.multiply(%x, float32(0.5)) : float32[2]  # "half" -> "t"
  return %0
}
fn @main(%x: float32[2]) {
  %0 = @half(%x) : float32[2]
  %1 = (%0, %x) : (float32[2], float32[2])
  %2 = nn.add(%1[0], float32[2](1.0, -inf)) : float32[2]
  return %2
}
"""


@given(st.integers(0, len(EXAMPLE)), st.integers(0, 6), st.text('%@(){}[]=:,."#1nx \n', max_size=3))
def test_damaged_text_is_read_or_refused(start: int, length: int, inserted: str) -> None:
    damaged = EXAMPLE[:start] + inserted + EXAMPLE[start + length :]
    try:
        module = parse(damaged)
    except GraphError as error:
        assert str(error)  # noqa: PT017
    else:
        assert parse(to_text(module), constant_table(module)) == module


def _same(size: int, inner: Function | None = None) -> Function:
    x = Var("x", TensorType((size,), "float32"))
    return Function((x,), call(inner or "nn.abs", x), Attrs({"name": "same"}))


def test_functions_of_one_name_have_a_text_when_they_are_numbered() -> None:
    """Also those that functions call; equal functions stay one."""
    x, y = (Var(name, TensorType((size,), "float32")) for name, size in (("x", 2), ("y", 3)))
    body = Tuple((call(_same(2), x), call(_same(3, _same(3)), y), call(_same(2), x)))
    module = Module(Function((x, y), body, Attrs({"name": "main"})))
    numbered = uniquely_named(module)
    names = [function.name for function in numbered.functions]
    assert len(names) == len(set(names)) == 3
    assert parse(to_text(numbered)) == numbered
    values = {"x": np.array([-1, 1], np.float32), "y": np.array([2, -2, 0], np.float32)}
    for first, second in zip(evaluate(module, values).values(), evaluate(numbered, values).values(), strict=True):
        np.testing.assert_array_equal(first, second)
