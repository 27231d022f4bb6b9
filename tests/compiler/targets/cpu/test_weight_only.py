"""Products with weights of 8 bits and fewer against the graph's own meaning, in every form that keeps them so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, Module, TensorType, Var, call, evaluate_function
from weft.compiler.model import CompiledModel

from ..weights import DTYPES, SCALES, weights
from .programs import compiled, program_of
from .test_link import module_of

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def small_weights_stay_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.loops.quantised_weights.WORTH_BYTES", 0)
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)


def agrees(module: Module, values: dict[str, Array], bound: Array, threads: int = 1) -> CompiledModel:
    """Compile, run and compare. ``bound``: what each element may differ by, in units of the last place."""
    model = compiled(module, threads=threads)
    result = weft.load(model).run(values)["out0"]
    expected = evaluate_function(module.main, list(values.values()))
    assert np.all(np.abs(result - expected) <= bound * 2.0**-23)
    return model


@given(
    op=st.sampled_from(["nn.dense", "nn.matmul"]), dtype=DTYPES, scales=SCALES, rows=st.integers(1, 20),
    blocks=st.integers(1, 4), block=st.sampled_from([4, 8, 16, 32, 64]),
    columns=st.sampled_from([1, 3, 16, 24, 33, 48, 64, 80, 128, 200]), threads=st.integers(1, 2),
    seed=st.integers(0, 1 << 30),
)  # fmt: skip
@settings(max_examples=40)
def test_any_product_has_the_graphs_meaning(
    op: str, dtype: str, scales: str, rows: int, blocks: int, block: int, columns: int, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    depth = blocks * block
    matrix = weights(op, dtype, scales, depth, columns, block, random)
    x = Var("x", TensorType((rows, depth), "float32"))
    bias = Constant(random.standard_normal(columns).astype(np.float32))
    result = call("nn.clip", call("nn.add", call(op, x, matrix), bias), low=-1e3)
    value = random.standard_normal((rows, depth)).astype(np.float32)
    wide = np.abs(evaluated(matrix))
    sums = np.abs(value) @ (wide.T if op == "nn.dense" else wide)
    model = agrees(module_of(result, params=(x,)), {"x": value}, (sums + 4) * (depth + 8), threads)
    assert len(program_of(model).kernels) == 1


def evaluated(value: Expr) -> Array:
    result = evaluate_function(module_of(value, params=()).main, [])
    assert isinstance(result, np.ndarray)
    return result


def test_every_level_multiplies_them(level: str) -> None:
    random = np.random.default_rng(5)
    matrix = weights("nn.dense", "uint4", "in blocks", 96, 80, 32, random)
    x = Var("x", TensorType((3, 96), "float32"))
    value = random.standard_normal((3, 96)).astype(np.float32)
    bound = (np.abs(value) @ np.abs(evaluated(matrix)).T + 1) * 100
    agrees(module_of(call("nn.dense", x, matrix), params=(x,)), {"x": value}, bound)


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 64), (2, 1, 3, 64)])
def test_axes_before_the_rows_and_moves_of_the_rows(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(6)
    matrix = weights("nn.matmul", "int4", "in blocks", 64, 48, 16, random)
    x = Var("x", TensorType(shape[::-1], "float32"))
    moved = call("transpose", x, perm=tuple(range(len(shape)))[::-1])
    value = random.standard_normal(shape[::-1]).astype(np.float32)
    bound = (np.abs(value.T) @ np.abs(evaluated(matrix)) + 1) * 100
    agrees(module_of(call("nn.matmul", moved, matrix), params=(x,)), {"x": value}, bound)


@pytest.mark.parametrize(("dtype", "rows", "share"), [
    ("uint4", 1, 0.5), ("int4", 20, 0.5), ("int8", 1, 1.0), ("uint2", 2, 0.25),
])  # fmt: skip
def test_the_program_holds_them_packed(dtype: str, rows: int, share: float) -> None:
    matrix = weights("nn.dense", dtype, "in blocks", 512, 192, 64, np.random.default_rng(7))
    x = Var("x", TensorType((rows, 512), "float32"))
    held = program_of(compiled(module_of(call("nn.dense", x, matrix), params=(x,)))).constants.nbytes
    codes, factors = int(512 * 192 * share), 2 * 8 * 192 * 4
    assert codes <= held <= codes + factors + 1024


def test_what_something_else_needs_becomes_floats() -> None:
    random = np.random.default_rng(8)
    matrix = weights("nn.matmul", "int8", "by column", 64, 48, 16, random)
    x = Var("x", TensorType((2, 64), "float32"))
    result = call("nn.add", call("nn.matmul", x, matrix), call("nn.reduce_sum", matrix, axes=(0,), keepdims=False))
    value = random.standard_normal((2, 64)).astype(np.float32)
    model = agrees(module_of(result, params=(x,)), {"x": value}, np.full((2, 48), 1e5))
    assert program_of(model).constants.nbytes >= 64 * 48 * 4


@pytest.mark.parametrize("attrs", [{"axis": 0}, {"axis": 1, "block": 5}, {"axis": 0, "block": 6}])
def test_scales_that_do_not_go_along_the_depth_in_whole_bytes_become_floats(attrs: dict[str, int]) -> None:
    """``nn.matmul`` with scales by row, with blocks of columns, and with blocks that end within a byte."""
    random = np.random.default_rng(9)
    codes = random.integers(0, 16, (60, 40)).astype(np.uint8)
    size = {0: (60,)} if "block" not in attrs else {}
    shape = size.get(attrs["axis"]) or tuple(
        n // attrs["block"] if at == attrs["axis"] else n for at, n in enumerate(codes.shape)
    )
    scale = random.random(shape).astype(np.float32) + 1
    matrix = call("dequantise", Constant(codes), Constant(scale), Constant(np.zeros(shape, np.uint8)), **attrs)
    x = Var("x", TensorType((2, 60), "float32"))
    value = random.standard_normal((2, 60)).astype(np.float32)
    model = agrees(module_of(call("nn.matmul", x, matrix), params=(x,)), {"x": value}, np.full((2, 40), 1e5))
    assert program_of(model).constants.nbytes >= 60 * 40 * 4


@pytest.mark.parametrize(("activations", "rows"), [("exact", 1), ("exact", 20), ("int8", 1), ("int8", 20)])
def test_a_program_from_a_file_is_proved_safe(tmp_path: Path, activations: str, rows: int) -> None:
    random = np.random.default_rng(10)
    matrix = weights("nn.dense", "uint4", "in blocks", 64, 48, 16, random)
    x = Var("x", TensorType((rows, 64), "float32"))
    model = weft.compile(module_of(call("nn.dense", x, matrix), params=(x,)), target="cpu", activations=activations)
    assert isinstance(model, CompiledModel)
    path = tmp_path / "product.weft"
    weft.save(model, path)
    value = random.standard_normal((rows, 64)).astype(np.float32)
    first, second = (weft.load(each).run({"x": value})["out0"] for each in (model, path))
    np.testing.assert_array_equal(first, second)


def test_a_product_of_known_rows_is_known() -> None:
    random = np.random.default_rng(11)
    rows = Constant(random.standard_normal((2, 64)).astype(np.float32))
    x = Var("x", TensorType((2, 48), "float32"))
    known = call("nn.dense", rows, weights("nn.dense", "uint4", "in blocks", 64, 48, 16, random))
    value = random.standard_normal((2, 48)).astype(np.float32)
    agrees(module_of(call("nn.add", x, known), params=(x,)), {"x": value}, np.full((2, 48), 1e5))
