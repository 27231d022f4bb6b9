"""MatMulNBits and blocked DequantizeLinear: read as onnxruntime computes them, and made 4-bit weights of the core."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate
from weft.hw.config import PYNQ_W4

from ...onnx_models import run_onnxruntime
from .one_node import check
from .one_node import model as one_node

Array = npt.NDArray[Any]


def packed(numbers: Array, bits: int) -> Array:
    """Rows of small numbers as bytes, the first lowest."""
    each = 8 // bits
    rows = np.pad(numbers, [(0, 0), (0, -numbers.shape[1] % each)]).reshape(len(numbers), -1, each)
    return np.bitwise_or.reduce(rows.astype(np.uint8) << (bits * np.arange(each, dtype=np.uint8)), axis=2)


def model(operands: dict[str, Array], shape: tuple[int, ...], order: list[str] | None = None, **attrs: int) -> Any:
    names = ["x", *(order or operands)]
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in operands.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def weights(depth: int, outputs: int, block: int, bits: int = 4, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    blocks = -(-depth // block)
    codes, zeros = (random.integers(0, 1 << bits, (outputs, size)) for size in (blocks * block, blocks))
    return {
        "weights": packed(codes, bits).reshape(outputs, blocks, -1),
        "scales": random.normal(0, 0.05, (outputs, blocks)).astype(np.float32),
        "zeros": packed(zeros, bits).reshape(-1),
    }


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(
    ("depth", "outputs", "block", "shape"),
    [(96, 5, 16, (3,)), (96, 5, 32, (2, 3)), (100, 7, 32, (1,)), (64, 4, 64, ())],
)
def test_it_is_read_as_onnxruntime_computes_it(
    depth: int, outputs: int, block: int, shape: tuple[int, ...], zeros: bool
) -> None:
    operands = weights(depth, outputs, block)
    if not zeros:
        del operands["zeros"]
    made = model(operands, (*shape, depth), K=depth, N=outputs, bits=4, block_size=block)
    x = {"x": np.random.default_rng(1).normal(size=(*shape, depth)).astype(np.float32)}
    (found,) = evaluate(from_onnx(made), x).values()
    if shape:  # onnxruntime has no result for a single row without a first axis
        np.testing.assert_allclose(found, run_onnxruntime(made, x)[0], rtol=1e-4, atol=1e-4)
    assert found.shape == (*shape, outputs)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_in_another_order_bias_and_other_widths(bits: int) -> None:
    operands = weights(64, 6, 32, bits)
    random = np.random.default_rng(2)
    order = random.permutation(np.repeat([0, 1], 32)).astype(np.int32)
    operands |= {"order": order, "bias": random.normal(size=6).astype(np.float32)}
    made = model(operands, (2, 64), K=64, N=6, bits=bits, block_size=32)
    x = random.normal(size=(2, 64)).astype(np.float32)
    codes = np.unpackbits(operands["weights"].reshape(6, -1), axis=1, bitorder="little").reshape(6, 64, bits)
    codes = codes @ (1 << np.arange(bits))
    count = -(-2 * bits // 8)
    zeros = np.unpackbits(operands["zeros"].reshape(6, count), axis=1, bitorder="little")[:, : 2 * bits]
    zeros = zeros.reshape(6, 2, bits) @ (1 << np.arange(bits))
    real = (codes.astype(float) - zeros[:, order]) * operands["scales"][:, order]
    (found,) = evaluate(from_onnx(made, require_quantised=False), {"x": x}).values()
    np.testing.assert_allclose(found, x @ real.T + operands["bias"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "weights of 3 bits are not read; hint: those of 2, 4, 8 bits are"),
        ({"K": 60}, r"the input has shape \(2, 64\), but K is 60"),
        ({"N": 5}, r"the weights are uint8\[6, 2, 16\], but must be 160 bytes of uint8"),
        ({"block_size": 0}, "attribute 'block_size' must be 1 or more, not 0"),
        ({"scales": np.ones((6, 3), np.float32)}, "18 scales, but 6 outputs have 2 blocks each"),
        ({"zeros": np.full((6, 2), 3.5, np.float32)}, "zero points that are no whole numbers"),
        ({"zeros": np.zeros(3, np.uint8)}, r"the zero points are uint8\[3\], but must be 6 bytes"),
        ({"order": np.full(64, 2, np.int32)}, "g_idx must have a block below 2 for each of 64 input channels"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    attrs = {"K": 64, "N": 6, "bits": 4, "block_size": 32} | {k: v for k, v in change.items() if isinstance(v, int)}
    operands = weights(64, 6, 32) | {k: v for k, v in change.items() if not isinstance(v, int)}
    with pytest.raises(ModelError, match=message):
        from_onnx(model(operands, (2, 64), **attrs))


def blocked_dequantise(depth: int, outputs: int, block: int) -> Any:
    random = np.random.default_rng(4)
    codes, zeros = (random.integers(-8, 8, (size, outputs)) for size in (depth, depth // block))
    int4 = [
        onnx.TensorProto(name=name, data_type=TensorProto.INT4, dims=value.shape,
                         raw_data=packed(value.reshape(1, -1) & 15, 4).tobytes())
        for name, value in (("codes", codes), ("zeros", zeros))
    ]  # fmt: skip
    scales = random.uniform(0.02, 0.08, zeros.shape).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales", "zeros"], ["w"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, outputs))],
        [*int4, numpy_helper.from_array(scales, "scales")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


MODELS = {
    "MatMulNBits": lambda: model(weights(128, 48, 32), (2, 128), K=128, N=48, bits=4, block_size=32),
    "blocked DequantizeLinear": lambda: blocked_dequantise(128, 48, 64),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_4_bit_weights_becomes_one_for_the_core(name: str) -> None:
    made = MODELS[name]()
    random = np.random.default_rng(5)
    examples = [{"x": random.normal(0, 1, (2, 128)).astype(np.float32)} for _ in range(4)]
    module = from_onnx(made)
    plan = weft.quantise.plan(module)
    ranges = weft.quantise.calibrate(plan, examples)
    four = weft.quantise.four_bits(plan, 64)
    (found,) = four.values()
    assert found.decibels > 17  # beside the weights that the model has, which are themselves rounded
    quantised = weft.quantise.quantised(plan, ranges, four)
    on_core = weft.load(weft.compile(quantised, PYNQ_W4), "fsim").run(examples[0])["y"]
    on_cpu = weft.load(weft.compile(quantised, target="cpu")).run(examples[0])["y"]
    np.testing.assert_array_equal(on_core, on_cpu)
    (wanted,) = run_onnxruntime(made, examples[0])
    assert np.square(on_core - wanted).sum() < 0.03 * np.square(wanted).sum()


# Tables of embeddings


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 16), (2, 64), (4, 128)])
def test_rows_of_a_packed_table(bits: int, block: int, zeros: bool) -> None:
    random = np.random.default_rng(bits)
    blocks = -(-96 // block)
    table = packed(random.integers(0, 1 << bits, (10, 96)), bits)
    scales = random.normal(0, 0.1, (10, blocks)).astype(np.float32)
    operands: list[Array | None] = [table, random.integers(0, 10, (2, 3)), scales]
    if zeros:
        operands.append(packed(random.integers(0, 1 << bits, (10, blocks)), bits))
    check("GatherBlockQuantized", operands, known=(0, 2, 3), bits=bits, block_size=block)


@pytest.mark.parametrize(("taken", "along", "axes"), [(0, 1, (12, 32)), (1, 0, (32, 12)), (0, 0, (32, 12))])
def test_rows_of_a_table_of_int4(taken: int, along: int, axes: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    table = random.integers(-8, 8, axes).astype(ml_dtypes.int4)
    scales = random.normal(0, 0.1, tuple(2 if axis == along else size for axis, size in enumerate(axes)))
    operands: list[Array | None] = [table, random.integers(0, 12, (2, 3)), scales.astype(np.float32)]
    check("GatherBlockQuantized", operands, known=(0, 2), block_size=16, gather_axis=taken, quantize_axis=along)


def test_a_table_whose_scales_do_not_fit_is_named() -> None:
    made, _ = one_node("GatherBlockQuantized", [np.zeros((4, 8), np.uint8), np.zeros(2, np.int64),
                                                np.ones((4, 3), np.float32)], known=(0, 2), block_size=16)  # fmt: skip
    with pytest.raises(ModelError, match=r"scales are \[4, 3\], but blocks of 16 along axis 1 have \(4, 1\)"):
        from_onnx(made, require_quantised=False)
