"""Products of rounded rows with weights of 4 bits: the operator's meaning, and what rounding the rows may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Constant, Function, Module, TensorType, Var, call, evaluate_function
from weft.compiler.graph.visit import calls
from weft.compiler.passes.manager import PassManager
from weft.compiler.targets.cpu.target import Cpu
from weft.compiler.targets.loops.block_product import as_block_product

from .programs import compiled
from .test_link import kinds, module_of
from .test_weight_only import evaluated, weights

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def small_weights_stay_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.loops.quantised_weights.WORTH_BYTES", 0)
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)


def product(
    rows: int, blocks: int, block: int, columns: int, low: int, zeros: str, random: np.random.Generator
) -> Call:
    """Of two inputs, ``x`` and ``step``; weights of 16 values from ``low`` on."""
    depth = blocks * block
    codes = random.integers(low, low + 16, (columns, depth)).astype(np.int8)
    scale = (random.random((columns, blocks)) + 0.5).astype(np.float32)
    zero = np.full((columns, blocks), low + 8, np.int8)
    if zeros == "any":
        zero = random.integers(-128, 128, zero.shape).astype(np.int8)
    x, step = Var("x", TensorType((rows, depth), "int8")), Var("step", TensorType((rows, blocks), "float32"))
    return call("nn.block_product", x, step, Constant(codes), Constant(scale), Constant(zero), block=block)


def inputs(node: Call, random: np.random.Generator) -> dict[str, Array]:
    x, step = node.args[:2]
    return {
        "x": random.integers(-128, 128, x.shape).astype(np.int8),
        "step": random.random(step.shape).astype(np.float32),
    }


def agrees(node: Call, values: dict[str, Array], threads: int = 1) -> weft.CompiledModel:
    """Sums of a block are exact; what is added up of blocks is rounded at each step."""
    params = tuple(each for each in node.args[:2] if isinstance(each, Var))
    module = module_of(node, params=params)
    model = compiled(module, threads=threads)
    result = weft.load(model).run(values)["out0"]
    codes, scale, zero = (each.value for each in node.args[2:] if isinstance(each, Constant))
    block = int(node.attr("block"))
    largest = np.abs(codes.astype(np.int32).reshape(*scale.shape, block) - zero.astype(np.int32)[..., None]).max(-1)
    bound = np.abs(values["step"]) @ (largest * scale).T * 128 * block
    expected = evaluate_function(module.main, list(values.values()))
    assert np.all(np.abs(result - expected) <= bound * (scale.shape[1] + 4) * 2.0**-23)
    return model


@given(
    rows=st.integers(1, 20), blocks=st.integers(1, 4), block=st.sampled_from([8, 16, 32, 64, 128]),
    columns=st.sampled_from([16, 32, 48, 64, 80, 128, 192]), low=st.sampled_from([-128, -8, 0, 100]),
    zeros=st.sampled_from(["middle", "any"]), threads=st.integers(1, 2), seed=st.integers(0, 1 << 30),
)  # fmt: skip
@settings(max_examples=40)
def test_any_product_has_the_operators_meaning(
    rows: int, blocks: int, block: int, columns: int, low: int, zeros: str, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    node = product(rows, blocks, block, columns, low, zeros, random)
    assert kinds(agrees(node, inputs(node, random), threads)) == ["product"]


@pytest.mark.parametrize("zeros", ["middle", "any"])
def test_every_level_multiplies_them(level: str, zeros: str) -> None:
    random = np.random.default_rng(3)
    node = product(3, 2, 32, 64, -8, zeros, random)
    agrees(node, inputs(node, random))


@pytest.mark.parametrize(("columns", "block", "low"), [(17, 32, -8), (64, 12, -8)])
def test_what_has_no_tile_is_computed_element_by_element(columns: int, block: int, low: int) -> None:
    random = np.random.default_rng(4)
    node = product(2, 2, block, columns, low, "any", random)
    assert kinds(agrees(node, inputs(node, random))) == ["plain"]


def rounded(x: Array, block: int) -> Array:
    apart = x.reshape(*x.shape[:-1], -1, block)
    step = np.maximum(np.abs(apart).max(-1, keepdims=True) * np.float32(1 / 127), np.float32(1e-30))
    return np.asarray(np.rint(apart / step) * step).reshape(x.shape)


@pytest.mark.parametrize("shape", [(1, 64), (5, 64), (2, 3, 64)])
def test_rows_are_rounded_to_8_bits_by_block(shape: tuple[int, ...]) -> None:
    """And products of the same rows round them once."""
    random = np.random.default_rng(5)
    op = "nn.dense" if len(shape) == 2 else "nn.matmul"
    first, second = (weights(op, "uint4", "in blocks", 64, 48, 16, random) for _ in range(2))
    x = Var("x", TensorType(shape, "float32"))
    module = Module(Function((x,), call("nn.add", call(op, x, first), call(op, x, second)),
                             Attrs({"name": "main", "outputs": ("out0",)})))  # fmt: skip
    passes = Cpu().passes(Cpu.options(activations="int8"), quantised=False)
    after = PassManager(list(passes)).run(module)
    names = [str(node.op) for node in calls(after.main.body)]
    assert names.count("nn.block_product") == 2
    assert names.count("quantise") == 1
    value = random.standard_normal(shape).astype(np.float32)
    value.reshape(-1, 64)[0, 16:32] = 0
    matrix = evaluated(first) + evaluated(second)
    wanted = rounded(value, 16) @ (matrix.T if op == "nn.dense" else matrix)
    result = weft.load(weft.compile(module, target="cpu", activations="int8")).run({"x": value})["out0"]
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    exact = weft.load(weft.compile(module, target="cpu")).run({"x": value})["out0"]
    assert np.abs(exact - wanted).max() > 1e-3


@pytest.mark.parametrize(("dtype", "scales", "columns"), [
    ("int8", "in blocks", 48), ("uint4", "by column", 40), ("uint4", "in blocks", 40),
])  # fmt: skip
def test_products_of_other_weights_stay_exact(dtype: str, scales: str, columns: int) -> None:
    """Of 8 bits, or with columns that are no whole registers."""
    matrix = weights("nn.dense", dtype, scales, 64, columns, 16, np.random.default_rng(6))
    node = call("nn.dense", Var("x", TensorType((2, 64), "float32")), matrix)
    assert as_block_product(node, 16) is None


def test_products_of_integers_beyond_int8_stay_exact() -> None:
    """They may be 16 neighbours, as those of 4 bits are."""
    codes = np.random.default_rng(8).integers(200, 216, (48, 64)).astype(np.uint8)
    factors = Constant(np.ones((48, 4), np.float32)), Constant(np.full((48, 4), 208, np.uint8))
    matrix = call("dequantise", Constant(codes), *factors, axis=1, block=16)
    assert as_block_product(call("nn.dense", Var("x", TensorType((2, 64), "float32")), matrix), 16) is None


def test_what_is_no_number_stays_none() -> None:
    matrix = weights("nn.dense", "uint4", "in blocks", 64, 48, 16, np.random.default_rng(7))
    module = module_of(call("nn.dense", Var("x", TensorType((2, 64), "float32")), matrix),
                       params=(Var("x", TensorType((2, 64), "float32")),))  # fmt: skip
    value = np.ones((2, 64), np.float32)
    value[1, 20] = np.nan
    result = weft.load(weft.compile(module, target="cpu", activations="int8")).run({"x": value})["out0"]
    assert np.isfinite(result[0]).all()
    assert np.isnan(result[1]).all()


def test_another_word_for_the_rows_is_refused() -> None:
    with pytest.raises(weft.WeftError, match=r"option 'activations': unknown: 'int4'.*known: exact, int8"):
        weft.compile(module_of(Var("x", TensorType((1,), "float32")), params=(Var("x", TensorType((1,), "float32")),)),
                     target="cpu", activations="int4")  # fmt: skip
