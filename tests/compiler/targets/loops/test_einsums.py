"""nn.einsum on a CPU: as a product of matrices where it is one, in loops where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Function, GraphError, Module, TensorType, Var, call, evaluate
from weft.compiler.targets.loops.einsums import as_matrix_product

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "k": 6}


def einsum(equation: str, dtype: str = "float32") -> Call:
    terms = equation.split("->")[0].split(",")
    operands = [Var(f"x{number}", TensorType(tuple(SIZES[letter] for letter in term), dtype))
                for number, term in enumerate(terms)]  # fmt: skip
    return call("nn.einsum", *operands, equation=equation)


def check(node: Call) -> weft.CompiledModel:
    params: Any = node.args
    module = Module(Function(params, node, Attrs({"name": "main", "outputs": ("out",)})))
    generator = np.random.default_rng(0)
    values = {each.name: generator.integers(-9, 9, each.type.shape).astype(each.type.dtype) for each in params}
    model = weft.compile(module, target="cpu")
    assert isinstance(model, weft.CompiledModel)
    np.testing.assert_array_equal(weft.load(model).run(values)["out"], evaluate(module, values)["out"])
    return model


@pytest.mark.parametrize(
    ("equation", "operators"),
    [
        ("ik,kj->ij", ["nn.matmul"]),
        ("bhik,bhkj->bhij", ["nn.matmul"]),
        ("bihk,bjhk->bhij", ["transpose", "transpose", "nn.matmul"]),
        ("ijk,jkh->ih", ["nn.matmul"]),
        ("ki,kj->ji", ["transpose", "nn.matmul", "transpose"]),
        ("k,k->", ["nn.matmul"]),
        ("ii->i", ["nn.einsum"]),
        ("ij->", ["nn.einsum"]),
        ("i,j->ij", ["nn.einsum"]),
        ("ij,ij->ij", ["nn.einsum"]),
        ("ijk,kb->ib", ["nn.einsum"]),
        ("iij,jk->ik", ["nn.einsum"]),
    ],
)
def test_products_of_matrices_are_found(equation: str, operators: list[str]) -> None:
    model = check(einsum(equation))
    found = [name for layer in model.layers for name in layer.operators if name != "reshape"]
    assert found == operators
    assert not any(layer.reason for layer in model.layers)


def test_three_operands_are_left_to_numpy() -> None:
    (layer,) = check(einsum("ij,jk,kh->ih")).layers
    assert layer.reason == "nn.einsum of 3 operands, which NumPy multiplies in the best order"


@settings(max_examples=25, deadline=None)
@given(
    st.text("bhijk", max_size=3), st.text("bhijk", max_size=3), st.text("bhijk", max_size=3),
    st.sampled_from(["float32", "float64", "int8", "int64", "bfloat16"]),
)  # fmt: skip
def test_any_equation(left: str, right: str, result: str, dtype: str) -> None:
    try:
        node = einsum(f"{left},{right}->{result}", dtype)
    except GraphError:
        assume(False)
    product = as_matrix_product(node)
    assert product is None or product.type == node.type
    check(node)
