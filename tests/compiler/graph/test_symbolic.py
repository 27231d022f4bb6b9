"""Types for any size: what the samples give, what is said about the rest, and shapes that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import GraphError, TensorType
from weft.compiler.graph.symbolic import SymbolicInput, bind_sizes, infer_symbolic

X = SymbolicInput("x", ("N", 3, "W"), "float32")
Y = SymbolicInput("y", ("N", "M"), "int64")


def infer(expression: str, *symbols: str) -> Any:
    """What is found of one tensor with one dimension, which Python computes."""

    def types_at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
        return {"t": TensorType((int(eval(expression, {}, dict(sizes))),), "int8")}

    return infer_symbolic([SymbolicInput("x", symbols, "int8")], types_at)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("N", "int8[N]"),
        ("7", "int8[7]"),
        ("0", "int8[0]"),
        ("2 * N - 3", "int8[2*N - 3]"),
        ("100 - N", "int8[-N + 100]"),
        ("N * M + 5 * N", "int8[N*M + 5*N]"),
        ("N // 2", "int8[?]"),
        ("N * N", "int8[?]"),
        ("min(N, 10)", "int8[?]"),
    ],
)
def test_dimensions_are_polynomials_that_the_last_sample_verifies(expression: str, text: str) -> None:
    found = infer(expression, "N", "M")
    assert str(found.types["t"]) == text
    assert found.otherwise == (("t",) if "?" in text else ())


@given(st.lists(st.integers(0, 9), min_size=8, max_size=8), st.tuples(*[st.integers(0, 1000)] * 3))
def test_what_is_linear_in_each_symbol_is_found_and_true_at_any_size(factors: list[int], at: tuple[int, ...]) -> None:
    products = ["1", "A", "B", "C", "A * B", "A * C", "B * C"]
    expression = " + ".join(f"{factor} * {product}" for factor, product in zip(factors, products, strict=False))
    sizes = dict(zip("ABC", at, strict=True))
    found = infer(expression, "A", "B", "C").types["t"]
    assert found.shape is not None
    assert found.shape[0] is not None
    assert found.shape[0].at(sizes) == eval(expression, {}, sizes)


def test_a_rank_that_depends_on_a_size_is_not_known() -> None:
    def types_at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
        return {"a": TensorType((1,) * sizes["N"], "bool"), "b": TensorType((sizes["N"],), "bool")}

    found = infer_symbolic([SymbolicInput("x", ("N",), "bool")], types_at)
    assert [str(kind) for kind in found.types.values()] == ["bool[...]", "bool[N]"]
    assert found.otherwise == ("a",)


def test_sizes_that_must_be_multiples_and_symbols_that_must_be_equal() -> None:
    def types_at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
        if sizes["W"] % 32 or sizes["V"] != sizes["W"]:
            raise GraphError("does not fit")
        return {"t": TensorType((sizes["W"] // 32 + sizes["V"], 3 * sizes["W"] // 2), "int8")}

    found = infer_symbolic([SymbolicInput(name, (symbol,), "int8") for name, symbol in ("xW", "yV")], types_at)
    assert str(found.types["t"]) == "int8[33*W/32, 3*W/2]"
    assert (found.multiple, found.equal, found.symbols) == (32, {"V": "W"}, ("W", "V"))


def test_the_first_reason_is_given_when_nothing_can_be_inferred() -> None:
    def types_at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
        raise GraphError(f"not with {sizes['N']}")

    with pytest.raises(GraphError, match=r"^not with 2$"):
        infer_symbolic([SymbolicInput("x", ("N",), "int8")], types_at)


def test_sizes_of_inputs() -> None:
    assert bind_sizes([X, Y], {"x": (2, 3, 0), "y": (2, 5)}) == {"N": 2, "W": 0, "M": 5}
    assert bind_sizes([X, Y], {"y": (2, 5)}) == {"N": 2, "M": 5}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (2, 3)}, r"^input 'x' has 2 dimensions, \(2, 3\), but must be float32\[N, 3, W\]; "
                        r"hint: only N and W can be chosen$"),
        ({"x": (2, 4, 5)}, r"^input 'x': dimension 1 is 4, but must be 3: it is float32\[N, 3, W\]; "
                           r"hint: only N and W can be chosen$"),
        ({"x": (2, 3, 5), "y": (4, 4)}, r"^input 'y': dimension 0 \('N'\) is 4, but 2 in input 'x'; "
                                        r"hint: give both the same N$"),
        ({"x": (-2, 3, 5)}, r"^input 'x': dimension 0 \('N'\) is -2, but must be 0 or more$"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        bind_sizes([X, Y], shapes)
