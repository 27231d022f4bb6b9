"""Models of a single operator, over types, shapes, strides, paddings and zero points: what `litert_suite.py` runs."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.zoo.litert_models import Array, ModelWriter, options, schema

FLOAT, QUANTISED = "float32", ("int8", "uint8", "int16")
EVERY = (FLOAT, "int8", "uint8")
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
ACTIVATIONS = {"": 0, "relu": 1, "relu1": 2, "relu6": 3}


@dataclass(frozen=True)
class Case:
    """``arrays`` are inputs for a run, in the order of the model's."""

    name: str
    model: bytes
    arrays: tuple[Array, ...]


class Maker:
    """One case in the making: tensors with random scales and zero points, inputs with random elements."""

    def __init__(self, name: str) -> None:
        self.name, self.rng = name, np.random.default_rng(zlib.crc32(name.encode()))
        self.net = ModelWriter()
        self.inputs: list[int] = []
        self.arrays: list[Array] = []

    def scale(self, near: float) -> np.float32:
        """One that no short decimal is, so that ties are as rare as in calibrated models."""
        return np.float32(near * self.rng.uniform(0.8, 1.25))

    def quantisation(self, dtype: str, near: float) -> dict[str, Any]:
        zero = {"int8": self.rng.integers(-20, 20), "uint8": self.rng.integers(108, 148)}.get(dtype, 0)
        step = near / 128 if dtype == "int16" else near
        return {"scale": self.scale(step), "zero": zero} if dtype in QUANTISED else {}

    def values(self, shape: Sequence[int], dtype: str, low: float = -2.5, high: float = 2.5) -> Array:
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.startswith("float"):
            return self.rng.uniform(low, high, shape).astype(dtype)
        if dtype in QUANTISED:
            ends = np.iinfo(dtype)
            return self.rng.integers(ends.min, ends.max + 1, shape).astype(dtype)
        return self.rng.integers(int(low * 8), int(high * 8), shape).astype(dtype)

    def input(
        self, shape: Sequence[int], dtype: str = FLOAT, near: float = 0.02, like: dict[str, Any] | None = None,
        low: float = -2.5, high: float = 2.5,
    ) -> int:  # fmt: skip
        parameters = self.quantisation(dtype, near) if like is None else like
        tensor = self.net.tensor(shape, dtype, name=f"x{len(self.inputs)}", **parameters)
        self.inputs.append(tensor)
        self.arrays.append(self.values(shape, dtype, low, high))
        return tensor

    def output(self, shape: Sequence[int], dtype: str = FLOAT, near: float = 0.02, like: dict[str, Any] | None = None,
               **more: Any) -> int:  # fmt: skip
        parameters = self.quantisation(dtype, near) if like is None else like
        return self.net.tensor(shape, dtype, **parameters, **more)

    def numbers(self, values: Any, dtype: str = "int32") -> int:
        return self.net.constant(values, dtype)

    def weights(
        self, shape: Sequence[int], dtype: str, channels: int | None, axis: int, near: float = 0.003
    ) -> tuple[int, Any]:
        """Constant weights, with one scale a channel or one for all, and their scales."""
        if dtype == FLOAT:
            return self.net.constant(self.rng.normal(size=shape) * 0.3, FLOAT), None
        kind = "uint8" if dtype == "uint8" else "int8"
        if kind == "uint8":
            zero, scale = int(self.rng.integers(108, 148)), self.scale(near)
            return self.net.tensor(shape, kind, scale, zero, data=self.values(shape, kind)), scale
        scale = self.rng.uniform(near / 2, near * 1.5, channels).astype(np.float32) if channels else self.scale(near)
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.net.tensor(shape, kind, scale, 0, axis, data=data), scale

    def bias(self, count: int, dtype: str, x: int, scale: Any) -> int:
        if dtype == FLOAT:
            return self.net.constant(self.rng.normal(size=count), FLOAT)
        unit = np.float32(self.net._tensors[x].quantization.scale[0]) * scale
        kind = "int64" if dtype == "int16" else "int32"
        return self.net.tensor((count,), kind, unit, 0, data=self.rng.integers(-4000, 4000, count).astype(kind))

    def op(self, name: str, inputs: Sequence[int], outputs: Sequence[int], made: Any = None, version: int = 1) -> Case:
        self.net.op(name, inputs, outputs, made, version)
        return Case(self.name, self.net.finish(self.inputs, outputs), tuple(self.arrays))


def _same(size: int, stride: int) -> int:
    return -(-size // stride)


def _valid(size: int, window: int, stride: int, dilation: int = 1) -> int:
    return (size - (window - 1) * dilation - 1) // stride + 1


def _near(dtype: str, depth: int) -> float:
    """A scale of results that uses most of 8 bits: of sums over so many products."""
    return 0.02 * 74 * 0.003 * 74 * depth**0.5 / 45


def convolutions() -> Iterator[Case]:
    shapes = [
        ((1, 1), 1, 1),
        ((3, 3), 1, 1),
        ((3, 3), 2, 1),
        ((5, 5), 2, 1),
        ((2, 3), 1, 1),
        ((3, 3), 1, 2),
        ((4, 4), 3, 1),
    ]
    kinds = [(FLOAT, False), ("int8", True), ("int8", False), ("uint8", False), ("int16", True)]
    activations = itertools.cycle(ACTIVATIONS)
    for ((kh, kw), stride, dilation), padding, (dtype, per_channel) in itertools.product(shapes, (SAME, VALID), kinds):
        for depthwise in (False, True):
            activation = next(activations)
            op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
            pad = "same" if padding == SAME else "valid"
            make = Maker(f"{op} {dtype}{' by channel' if per_channel else ''} {kh}x{kw} stride {stride} dilation "
                         f"{dilation} {pad} {activation}".strip())  # fmt: skip
            c = int(make.rng.choice([3, 8, 19]))
            multiplier = int(make.rng.choice([1, 1, 2]))
            o = c * multiplier if depthwise else int(make.rng.choice([5, 16, 24]))
            h, w = 13, 11
            x = make.input((1, h, w, c), dtype)
            shape = (1, kh, kw, o) if depthwise else (o, kh, kw, c)
            weights, scale = make.weights(shape, dtype, o if per_channel else None, 3 if depthwise else 0)
            bias = make.bias(o, dtype, x, scale)
            ho, wo = ((_same(h, stride), _same(w, stride)) if padding == SAME else
                      (_valid(h, kh, stride, dilation), _valid(w, kw, stride, dilation)))  # fmt: skip
            y = make.output((1, ho, wo, o), dtype, _near(dtype, kh * kw * (1 if depthwise else c)))
            common = {"padding": padding, "strideH": stride, "strideW": stride, "dilationHFactor": dilation,
                          "dilationWFactor": dilation, "fusedActivationFunction": ACTIVATIONS[activation]}  # fmt: skip
            kind = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
            more = {"depthMultiplier": multiplier} if depthwise else {}
            yield make.op(op, [x, weights, bias], [y], options(kind, **common, **more), 5 if dtype == "int16" else 3)


def transposed_convolutions() -> Iterator[Case]:
    for dtype, k, stride, padding in itertools.product((*EVERY, "int16"), (2, 3, 4), (1, 2), (SAME, VALID)):
        make = Maker(f"TRANSPOSE_CONV {dtype} {k}x{k} stride {stride} {'same' if padding == SAME else 'valid'}")
        c, o, h, w = 6, 9, 7, 5
        x = make.input((1, h, w, c), dtype)
        weights, scale = make.weights((o, k, k, c), dtype, None if dtype == "uint8" else o, 0)
        bias = make.bias(o, dtype, x, scale)
        ho, wo = (h * stride, w * stride) if padding == SAME else ((h - 1) * stride + k, (w - 1) * stride + k)
        y = make.output((1, ho, wo, o), dtype, _near(dtype, k * k * c // stride**2))
        yield make.op("TRANSPOSE_CONV", [make.numbers((1, ho, wo, o)), weights, x, bias], [y],
                      options("TransposeConvOptions", padding=padding, strideH=stride, strideW=stride), 3)  # fmt: skip
    for k, stride, padding in itertools.product((2, 3), (1, 2), (SAME, VALID)):
        make = Maker(f"CONV_3D_TRANSPOSE {k} stride {stride} {'same' if padding == SAME else 'valid'}")
        sizes = [n * stride if padding == SAME else (n - 1) * stride + k for n in (3, 5, 4)]
        weights, _ = make.weights((k, k, k, 4, 3), FLOAT, None, 0)
        operands = [make.numbers((2, *sizes, 4)), weights, make.input((2, 3, 5, 4, 3)), make.bias(4, FLOAT, 0, None)]
        made = options("Conv3DOptions", padding=padding, strideD=stride, strideH=stride, strideW=stride)
        yield make.op("CONV_3D_TRANSPOSE", operands, [make.output((2, *sizes, 4))], made)


def dense() -> Iterator[Case]:
    for dtype, per_channel, bias, keep, activation in itertools.product(
        (*EVERY, "int16"), (False, True), (False, True), (False, True), ("", "relu6")
    ):
        if per_channel and dtype not in ("int8",):
            continue
        make = Maker(f"FULLY_CONNECTED {dtype}{' by channel' if per_channel else ''}{' bias' if bias else ''}"
                     f"{' kept' if keep else ''} {activation}".strip())  # fmt: skip
        c, o = 37, 21
        x = make.input((2, 5, c), dtype)
        weights, scale = make.weights((o, c), dtype, o if per_channel else None, 0)
        operands = [x, weights, make.bias(o, dtype, x, scale) if bias else -1]
        y = make.output((2, 5, o) if keep else (10, o), dtype, _near(dtype, c))
        made = options("FullyConnectedOptions", keepNumDims=keep, fusedActivationFunction=ACTIVATIONS[activation])
        yield make.op("FULLY_CONNECTED", operands, [y], made, 12 if per_channel else 7 if dtype == "int16" else 5)


def matrix_products() -> Iterator[Case]:
    for dtype, adj_x, adj_y in itertools.product((FLOAT, "int8"), (False, True), (False, True)):
        make = Maker(f"BATCH_MATMUL {dtype} {'x turned ' if adj_x else ''}{'y turned' if adj_y else ''}".strip())
        a = make.input((2, 12, 7) if adj_x else (2, 7, 12), dtype)
        b = make.input((2, 9, 12) if adj_y else (2, 12, 9), dtype)
        y = make.output((2, 7, 9), dtype, 0.15)
        yield make.op("BATCH_MATMUL", [a, b], [y], options("BatchMatMulOptions", adjX=adj_x, adjY=adj_y), 2)


_BINARY = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


def arithmetic() -> Iterator[Case]:
    shapes = [
        ((1, 6, 7, 8), (1, 6, 7, 8)),
        ((1, 6, 7, 8), (1, 1, 1, 8)),
        ((2, 5, 9), (9,)),
        ((4, 6), (4, 6)),
        ((3, 8), (1, 1)),
    ]
    for op, dtype, (number, (a, b)) in itertools.product(_BINARY, (*EVERY, "int16", "int32"), enumerate(shapes)):
        activation = list(ACTIVATIONS)[number % 4] if dtype != "int32" else ""
        make = Maker(f"{op} {dtype} {list(a)} {list(b)} {activation}".strip())
        positive = {"low": 0.5, "high": 3.0} if op == "DIV" else {}
        x, z = make.input(a, dtype, 0.03), make.input(b, dtype, 0.012, **positive)
        if op == "DIV" and dtype == "uint8":
            make.arrays[1] = np.maximum(make.arrays[1], 200).astype(np.uint8)
        y = make.output(a, dtype, {"ADD": 0.03, "SUB": 0.03, "MUL": 0.02, "DIV": 0.04}[op])
        made = options(_BINARY[op], fusedActivationFunction=ACTIVATIONS[activation])
        yield make.op(op, [x, z], [y], made, 2)
    for op, dtype in itertools.product(("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "POW"),
                                       (*EVERY, "int32")):  # fmt: skip
        make = Maker(f"{op} {dtype}")
        same = make.quantisation(dtype, 0.02)
        low = {"low": 0.5, "high": 2.0} if op in ("POW", "FLOOR_DIV", "FLOOR_MOD") else {}
        x = make.input((2, 5, 6, 7), dtype, like=same, **({"low": 0.3, "high": 2.5} if op == "POW" else {}))
        z = make.input((2, 5, 6, 7), dtype, like=same, **low)
        y = make.output((2, 5, 6, 7), dtype, like=same)
        yield make.op(op, [x, z], [y], None, 2)
    for op, dtype in itertools.product(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), (*EVERY, "int32")
    ):
        make = Maker(f"{op} {dtype}")
        same = make.quantisation(dtype, 0.02)
        x, z = make.input((2, 40), dtype, like=same), make.input((2, 40), dtype, like=same)
        make.arrays[1][:, ::3] = make.arrays[0][:, ::3]
        yield make.op(op, [x, z], [make.output((2, 40), "bool")], None, 2)
    for op in ("LOGICAL_AND", "LOGICAL_OR"):
        make = Maker(op)
        yield make.op(op, [make.input((4, 9), "bool"), make.input((4, 9), "bool")], [make.output((4, 9), "bool")])
    make = Maker("LOGICAL_NOT")
    yield make.op("LOGICAL_NOT", [make.input((4, 9), "bool")], [make.output((4, 9), "bool")])
    for dtype in EVERY:
        make = Maker(f"SELECT_V2 {dtype}")
        same = make.quantisation(dtype, 0.02)
        operands = [
            make.input((4, 1), "bool"),
            make.input((4, 9), dtype, like=same),
            make.input((4, 9), dtype, like=same),
        ]
        yield make.op("SELECT_V2", operands, [make.output((4, 9), dtype, like=same)])
    make = Maker("ADD_N float32")
    yield make.op("ADD_N", [make.input((3, 5)) for _ in range(3)], [make.output((3, 5))])


_UNARY: dict[str, tuple[Any, dict[str, float]]] = {
    "ABS": (None, {}), "NEG": (None, {}), "EXP": (None, {}), "LOG": (None, {"low": 0.1, "high": 4}),
    "SQRT": (None, {"low": 0.0, "high": 9}), "RSQRT": (None, {"low": 0.1, "high": 9}), "SIN": (None, {}),
    "COS": (None, {}), "FLOOR": (None, {}), "CEIL": (None, {}), "ROUND": (None, {}), "SQUARE": (None, {}),
    "SIGN": (None, {}), "RELU": (None, {}), "RELU6": (None, {"low": -2, "high": 9}), "RELU_N1_TO_1": (None, {}),
    "RELU_0_TO_1": (None, {}), "LEAKY_RELU": (("LeakyReluOptions", {"alpha": 0.17}), {}), "ELU": (None, {}),
    "GELU": (("GeluOptions", {"approximate": False}), {}), "HARD_SWISH": (None, {"low": -5, "high": 5}),
    "LOGISTIC": (None, {"low": -6, "high": 6}), "TANH": (None, {}),
}  # fmt: skip


def functions() -> Iterator[Case]:
    for (op, (made, limits)), dtype in itertools.product(_UNARY.items(), (*EVERY, "int16")):
        make = Maker(f"{op} {dtype}")
        near = 0.046 if op in ("LOGISTIC", "HARD_SWISH", "RELU6") else 0.02
        parameters = make.quantisation(dtype, near)
        if op in ("LOG", "SQRT", "RSQRT") and dtype == "int8":
            parameters["zero"] = -128
        x = make.input((4, 8, 16), dtype, like=parameters, **limits)
        if dtype == "int8":
            make.arrays[0] = np.arange(-128, 128).repeat(2).astype(np.int8).reshape(4, 8, 16)
            if op in ("LOG", "RSQRT"):
                make.arrays[0] = np.maximum(make.arrays[0], -120)
        if (
            op in ("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "RELU", "ABS", "NEG")
            and dtype != FLOAT
            and make.rng.random() < 0.5
        ):
            result = parameters
        elif op == "LOGISTIC" and dtype != FLOAT:
            result = {"int8": {"scale": 1 / 256, "zero": -128}, "uint8": {"scale": 1 / 256, "zero": 0},
                      "int16": {"scale": 1 / 32768, "zero": 0}}[dtype]  # fmt: skip
        elif op == "TANH" and dtype != FLOAT:
            result = {"int8": {"scale": 1 / 128, "zero": 0}, "uint8": {"scale": 1 / 128, "zero": 128},
                      "int16": {"scale": 1 / 32768, "zero": 0}}[dtype]  # fmt: skip
        else:
            result = make.quantisation(dtype, {"EXP": 0.05, "RSQRT": 0.01}.get(op, near))
        y = make.output((4, 8, 16), dtype, like=result)
        yield make.op(op, [x], [y], options(made[0], **made[1]) if made else None, 2 if op in ("LEAKY_RELU",) else 1)
    for approximate in (True,):
        make = Maker("GELU float32 approximate")
        yield make.op(
            "GELU", [make.input((4, 50))], [make.output((4, 50))], options("GeluOptions", approximate=approximate)
        )
    for dtype in EVERY:
        make = Maker(f"PRELU {dtype}")
        x = make.input((1, 5, 6, 8), dtype)
        slope = make.net.tensor((1, 1, 8), dtype, **make.quantisation(dtype, 0.004), data=make.values((1, 1, 8), dtype))
        yield make.op("PRELU", [x, slope], [make.output((1, 5, 6, 8), dtype)])


def rows() -> Iterator[Case]:
    """Along the last axis."""
    for dtype, shape, scale in itertools.product((*EVERY, "int16"), ((6, 10), (1, 5, 5, 7), (3, 100)), (0.05, 0.2)):
        make = Maker(f"SOFTMAX {dtype} {list(shape)} {scale}")
        parameters = {"int8": {"scale": 1 / 256, "zero": -128}, "uint8": {"scale": 1 / 256, "zero": 0},
                      "int16": {"scale": 1 / 32768, "zero": 0}}.get(dtype, {})  # fmt: skip
        y = make.output(shape, dtype, like=parameters)
        yield make.op("SOFTMAX", [make.input(shape, dtype, scale)], [y], options("SoftmaxOptions", beta=1.0), 2)
    for dtype in EVERY:
        make = Maker(f"LOG_SOFTMAX {dtype}")
        parameters = {"int8": {"scale": 16 / 256, "zero": 127}, "uint8": {"scale": 16 / 256, "zero": 255}}.get(
            dtype, {}
        )
        yield make.op(
            "LOG_SOFTMAX", [make.input((6, 10), dtype)], [make.output((6, 10), dtype, like=parameters)], None, 2
        )
        make = Maker(f"L2_NORMALIZATION {dtype}")
        parameters = {"int8": {"scale": 1 / 128, "zero": 0}, "uint8": {"scale": 1 / 128, "zero": 128}}.get(dtype, {})
        y = make.output((6, 10), dtype, like=parameters)
        yield make.op("L2_NORMALIZATION", [make.input((6, 10), dtype)], [y], options("L2NormOptions"), 2)
    make = Maker("LOCAL_RESPONSE_NORMALIZATION float32")
    made = options("LocalResponseNormalizationOptions", radius=2, bias=1.0, alpha=0.1, beta=0.75)
    yield make.op("LOCAL_RESPONSE_NORMALIZATION", [make.input((1, 4, 5, 12))], [make.output((1, 4, 5, 12))], made)


def pools() -> Iterator[Case]:
    windows = [((2, 2), 2), ((3, 3), 1), ((3, 3), 2), ((4, 4), 4), ((3, 2), 1), ((1, 1), 2)]
    for op, dtype, ((kh, kw), stride), padding in itertools.product(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D"), (*EVERY, "int16"), windows, (SAME, VALID)
    ):
        make = Maker(f"{op} {dtype} {kh}x{kw} stride {stride} {'same' if padding == SAME else 'valid'}")
        h, w, c = 12, 9, 7
        same = make.quantisation(dtype, 0.02)
        ho, wo = ((_same(h, stride), _same(w, stride)) if padding == SAME else
                  (_valid(h, kh, stride), _valid(w, kw, stride)))  # fmt: skip
        x, y = make.input((1, h, w, c), dtype, like=same), make.output((1, ho, wo, c), dtype, like=same)
        activation = int(make.rng.choice([0, 0, 1]))
        made = options("Pool2DOptions", padding=padding, strideH=stride, strideW=stride, filterHeight=kh,
                       filterWidth=kw, fusedActivationFunction=activation)  # fmt: skip
        yield make.op(op, [x], [y], made, 3 if dtype == "int16" else 2)
    make = Maker("L2_POOL_2D float32")
    made = options("Pool2DOptions", padding=VALID, strideH=2, strideW=2, filterHeight=2, filterWidth=2)
    yield make.op("L2_POOL_2D", [make.input((1, 6, 6, 5))], [make.output((1, 3, 3, 5))], made)


def reductions() -> Iterator[Case]:
    sets = [((1, 2), True), ((1, 2), False), ((3,), True), ((1,), False), ((2, 3), True)]
    for op, dtype, (axes, keep) in itertools.product(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), (*EVERY, "int16"), sets
    ):
        make = Maker(f"{op} {dtype} {list(axes)}{' kept' if keep else ''}")
        shape = (2, 5, 6, 7)
        same = make.quantisation(dtype, 0.02)
        result = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
        x = make.input(shape, dtype, like=same, low=0.5 if op == "REDUCE_PROD" else -2.5, high=1.5)
        extreme = op in ("REDUCE_MAX", "REDUCE_MIN")
        y = make.output(result, dtype, {"MEAN": 0.008, "SUM": 0.1}.get(op, 0.02), like=same if extreme else None)
        made = options("ReducerOptions", keepDims=keep)
        yield make.op(op, [x, make.numbers(axes)], [y], made, 3 if dtype == "int16" else 2)
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        make = Maker(op)
        yield make.op(
            op, [make.input((3, 4), "bool"), make.numbers([1])], [make.output((3,), "bool")], options("ReducerOptions")
        )
    for op, dtype in itertools.product(("ARG_MAX", "ARG_MIN"), EVERY):
        make = Maker(f"{op} {dtype}")
        kind = "ArgMaxOptions" if op == "ARG_MAX" else "ArgMinOptions"
        y = make.output((2, 3, 5), "int32")
        yield make.op(op, [make.input((2, 3, 4, 5), dtype), make.numbers(2)], [y], options(kind, outputType=2), 2)
    for exclusive, reverse in itertools.product((False, True), (False, True)):
        make = Maker(f"CUMSUM float32{' exclusive' if exclusive else ''}{' reverse' if reverse else ''}")
        made = options("CumsumOptions", exclusive=exclusive, reverse=reverse)
        yield make.op("CUMSUM", [make.input((3, 6, 2)), make.numbers(1)], [make.output((3, 6, 2))], made)
    make = Maker("TOPK_V2 float32")
    outputs = [make.output((3, 4)), make.output((3, 4), "int32")]
    yield make.op("TOPK_V2", [make.input((3, 9)), make.numbers(4)], outputs, options("TopKV2Options"))


def types() -> Iterator[Case]:
    for source, target in itertools.product((FLOAT, "int8", "uint8", "int32"), repeat=2):
        if source != target and not (source == "int32" and target != FLOAT):
            make = Maker(f"QUANTIZE {source} to {target}" if target != FLOAT else f"DEQUANTIZE {source}")
            if "int32" in (source, target):
                continue
            x, y = make.input((4, 64), source, 0.021), make.output((4, 64), target, 0.0337)
            yield make.op("QUANTIZE" if target != FLOAT else "DEQUANTIZE", [x], [y], None, 2)
    for dtype in ("int8", "uint8", "int16"):
        make = Maker(f"QUANTIZE {dtype} to {dtype}")
        yield make.op("QUANTIZE", [make.input((4, 64), dtype, 0.021)], [make.output((4, 64), dtype, 0.0337)], None, 2)
    make = Maker("DEQUANTIZE float16")
    y = make.output((4, 64))
    yield make.op("DEQUANTIZE", [make.input((4, 64), "float16")], [y], None, 3)
    kinds = (FLOAT, "int32", "int64", "bool", "int8", "uint8", "int16")
    for source, target in itertools.product(kinds, repeat=2):
        if source != target:
            make = Maker(f"CAST {source} to {target}")
            codes = [getattr(schema.TensorType, kind.upper()) for kind in (source, target)]
            x = make.input((4, 30), source, like={}, low=0.0 if target == "uint8" else -2.5)
            y = make.output((4, 30), target, like={})
            yield make.op("CAST", [x], [y], options("CastOptions", inDataType=codes[0], outDataType=codes[1]), 3)


def resizes() -> Iterator[Case]:
    modes = [(False, False), (False, True), (True, False)]
    for op, dtype, (align, half), size in itertools.product(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), (*EVERY, "int16"), modes, ((14, 18), (5, 6), (23, 10))
    ):
        make = Maker(f"{op} {dtype} {list(size)}{' aligned' if align else ''}{' half' if half else ''}")
        same = make.quantisation(dtype, 0.02)
        kind = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
        x, y = make.input((1, 7, 9, 5), dtype, like=same), make.output((1, *size, 5), dtype, like=same)
        made = options(kind, alignCorners=align, halfPixelCenters=half)
        yield make.op(op, [x, make.numbers(size)], [y], made, 3)


def moves() -> Iterator[Case]:
    for dtype in (*EVERY, "int32"):
        yield from _moves(dtype)


def _moves(dtype: str) -> Iterator[Case]:
    """With one set of scales for operands and results, as converters write them."""

    def case(
        op: str, shape: Sequence[int], results: Sequence[Sequence[int]], operands: Sequence[Any] = (), made: Any = None,
        note: str = "", version: int = 1, before: int = 0, count: int = 1,
    ) -> Case:  # fmt: skip
        make = Maker(f"{op} {dtype} {note}".strip())
        same = make.quantisation(dtype, 0.02)
        constants = [make.numbers(values) for values in operands]
        data = [make.input(shape, dtype, like=same) for _ in range(count)]
        outputs = [make.output(result, dtype, like=same) for result in results]
        return make.op(op, [*constants[:before], *data, *constants[before:]], outputs, made, version)

    yield case("RESHAPE", (2, 3, 4), [(4, 6)], [(4, -1)], options("ReshapeOptions"))
    yield case("RESHAPE", (1, 4, 5, 6), [(1, 20, 6)], [(1, 20, 6)], options("ReshapeOptions"), "channels stay")
    yield case("TRANSPOSE", (2, 3, 4), [(4, 2, 3)], [(2, 0, 1)])
    yield case("TRANSPOSE", (1, 3, 4, 5), [(1, 5, 3, 4)], [(0, 3, 1, 2)], note="channels first")
    yield case("SQUEEZE", (1, 3, 1, 4), [(3, 4)], [], options("SqueezeOptions", squeezeDims=[0, 2]))
    yield case("EXPAND_DIMS", (3, 4), [(3, 1, 4)], [1])
    yield case("CONCATENATION", (1, 3, 4, 5), [(1, 3, 4, 10)], [], options("ConcatenationOptions", axis=3), count=2)
    yield case("CONCATENATION", (2, 3), [(6, 3)], [], options("ConcatenationOptions", axis=0), "rows", count=3)
    yield case("PACK", (3, 4), [(3, 2, 4)], [], options("PackOptions", axis=1, valuesCount=2), count=2)
    yield case("UNPACK", (3, 2, 4), [(3, 4)] * 2, [], options("UnpackOptions", axis=1, num=2))
    yield case("SPLIT", (2, 6), [(2, 2)] * 3, [1], options("SplitOptions", numSplits=3), before=1)
    yield case("SPLIT_V", (2, 6), [(2, 1), (2, 5)], [(1, 5), 1], options("SplitVOptions", numSplits=2))
    yield case("SLICE", (3, 5, 6), [(2, 5, 3)], [(1, 0, 2), (2, -1, 3)])
    strided = {"beginMask": 0, "endMask": 0, "ellipsisMask": 0, "newAxisMask": 0, "shrinkAxisMask": 0}
    yield case("STRIDED_SLICE", (7, 6), [(3, 3)], [(1, 0), (7, 6), (2, 2)], options("StridedSliceOptions", **strided))
    yield case("STRIDED_SLICE", (7, 6), [(7,)], [(0, -1), (0, 0), (1, 1)],
               options("StridedSliceOptions", **{**strided, "beginMask": 1, "endMask": 1, "shrinkAxisMask": 2}),
               "shrink")  # fmt: skip
    yield case(
        "STRIDED_SLICE",
        (7, 6),
        [(7, 6)],
        [(-1, 0), (-8, 6), (-1, 1)],
        options("StridedSliceOptions", **strided),
        "back",
    )
    yield case("PAD", (1, 3, 4, 2), [(1, 6, 5, 2)], [((0, 0), (1, 2), (0, 1), (0, 0))], version=2)
    yield case("MIRROR_PAD", (1, 3, 4, 2), [(1, 6, 5, 2)], [((0, 0), (1, 2), (0, 1), (0, 0))],
               options("MirrorPadOptions", mode=0), "reflect")  # fmt: skip
    yield case("MIRROR_PAD", (1, 3, 4, 2), [(1, 6, 5, 2)], [((0, 0), (1, 2), (0, 1), (0, 0))],
               options("MirrorPadOptions", mode=1), "symmetric")  # fmt: skip
    yield case("TILE", (2, 3), [(4, 9)], [(2, 3)])
    yield case("BROADCAST_TO", (1, 3), [(4, 3)], [(4, 3)], version=2)
    yield case("REVERSE_V2", (3, 4), [(3, 4)], [(1,)])
    yield case("SPACE_TO_DEPTH", (1, 4, 6, 3), [(1, 2, 3, 12)], [], options("SpaceToDepthOptions", blockSize=2))
    yield case("DEPTH_TO_SPACE", (1, 2, 3, 12), [(1, 4, 6, 3)], [], options("DepthToSpaceOptions", blockSize=2))
    yield case("SPACE_TO_BATCH_ND", (1, 4, 5, 3), [(4, 2, 3, 3)], [(2, 2), ((0, 0), (1, 0))], version=2)
    yield case("BATCH_TO_SPACE_ND", (4, 2, 3, 3), [(1, 4, 5, 3)], [(2, 2), ((0, 0), (1, 0))])
    yield case("GATHER", (5, 4), [(3, 4)], [(4, 0, 4)], options("GatherOptions", axis=0))
    yield case(
        "GATHER",
        (2, 5, 4),
        [(2, 3, 4)],
        [((4, 0, 4), (1, 1, 2))],
        options("GatherOptions", axis=1, batchDims=1),
        "batch",
        5,
    )
    yield case("GATHER_ND", (3, 4, 2), [(2, 2)], [((0, 1), (2, 3))])
    yield case(
        "REVERSE_SEQUENCE", (3, 4), [(3, 4)], [(1, 4, 3)], options("ReverseSequenceOptions", seqDim=1, batchDim=0)
    )
    yield (
        case("ZEROS_LIKE", (3, 4), [(3, 4)])
        if dtype in (FLOAT, "int32")
        else case("SLICE", (3, 4), [(1, 1)], [(0, 0), (1, 1)], note="one")
    )
    make = Maker(f"DYNAMIC_UPDATE_SLICE {dtype}")
    same = make.quantisation(dtype, 0.02)
    operands = [make.input((5, 6), dtype, like=same), make.input((2, 3), dtype, like=same), make.numbers([1, 2])]
    yield make.op("DYNAMIC_UPDATE_SLICE", operands, [make.output((5, 6), dtype, like=same)], None, 2)
    make = Maker(f"SCATTER_ND {dtype}")
    operands = [make.numbers([[1], [3]]), make.input((2, 4), dtype, like={}), make.numbers([5, 4])]
    yield make.op("SCATTER_ND", operands, [make.output((5, 4), dtype, like={})])
    make = Maker(f"ONE_HOT {dtype}")
    ends = [make.net.constant(value, dtype) for value in (3, 1)]
    yield make.op("ONE_HOT", [make.input((4,), "int32"), make.numbers(6), *ends], [make.output((4, 6), dtype, like={})],
                  options("OneHotOptions", axis=-1))  # fmt: skip


def hybrid() -> Iterator[Case]:
    """Weights in 8 bits or 16-bit floats, activations in floats."""
    for o, asymmetric in itertools.product((8, 21), (False, True)):
        make = Maker(f"FULLY_CONNECTED weights int8 {o}{' asymmetric' if asymmetric else ''}")
        weights, _ = make.weights((o, 24), "int8", None, 0)
        made = options("FullyConnectedOptions", asymmetricQuantizeInputs=asymmetric)
        yield make.op("FULLY_CONNECTED", [make.input((3, 24)), weights, -1], [make.output((3, o))], made, 3)
        make = Maker(f"CONV_2D weights int8 {o}{' (second)' if asymmetric else ''}")
        weights, _ = make.weights((o, 3, 3, 5), "int8", o, 0)
        bias = make.bias(o, FLOAT, 0, None)
        made = options("Conv2DOptions", padding=SAME, strideH=1, strideW=1)
        yield make.op("CONV_2D", [make.input((1, 6, 6, 5)), weights, bias], [make.output((1, 6, 6, o))], made, 5)
    make = Maker("CONV_2D weights float16")
    data = make.rng.normal(size=(8, 3, 3, 5)).astype(np.float16)
    stored = make.net.tensor(data.shape, "float16", data=data)
    weights = make.net.tensor(data.shape, FLOAT)
    make.net.op("DEQUANTIZE", [stored], [weights], None, 3)
    x, y = make.input((1, 6, 6, 5)), make.output((1, 6, 6, 8))
    yield make.op(
        "CONV_2D",
        [x, weights, make.bias(8, FLOAT, x, None)],
        [y],
        options("Conv2DOptions", padding=SAME, strideH=1, strideW=1),
    )


def segments() -> Iterator[Case]:
    """Sums by segment, diagonals, and boxes that stay."""
    for dtype, name in itertools.product((FLOAT, "int32"), ("SUM", "PROD", "MAX", "MIN")):
        make = Maker(f"UNSORTED_SEGMENT_{name} {dtype}")
        operands = [make.input((6, 3), dtype), make.numbers([0, 3, 3, 1, -1, 0]), make.numbers(5)]
        yield make.op(f"UNSORTED_SEGMENT_{name}", operands, [make.output((5, 3), dtype)])
    make = Maker("SEGMENT_SUM float32")
    yield make.op("SEGMENT_SUM", [make.input((5, 2, 3)), make.numbers([0, 0, 1, 2, 2])], [make.output((3, 2, 3))])
    for dtype, (rows, columns) in itertools.product((FLOAT, "int32", "int8"), ((4, 4), (3, 5), (5, 3))):
        make = Maker(f"MATRIX_SET_DIAG {dtype} {rows}")
        operands = [make.input((2, rows, columns), dtype, like={}), make.input((2, min(rows, columns)), dtype, like={})]
        yield make.op("MATRIX_SET_DIAG", operands, [make.output((2, rows, columns), dtype, like={})])
    make = Maker("MATRIX_DIAG float32")
    yield make.op("MATRIX_DIAG", [make.input((2, 4))], [make.output((2, 4, 4))])
    for number, (most, limit, least) in enumerate([(4, 0.3, 0.1), (9, 0.5, -9.0), (12, 0.01, 0.6)]):
        for op in ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"):
            make = Maker(f"{op} {number}")
            operands = [make.input((9, 4), low=0, high=1), make.input((9,), low=0, high=1), make.numbers(most)]
            limits = [make.numbers(each, FLOAT) for each in ((limit, least, 0.0) if op[-1] == "5" else (limit, least))]
            scores = [make.output((most,))] if op[-1] == "5" else []
            results = [make.output((most,), "int32"), *scores, make.output((), "int32")]
            yield make.op(op, [*operands, *limits], results)


def spectra() -> Iterator[Case]:
    """Fourier transforms, and moves of complex numbers between them and their parts."""
    for name, (height, width), size in itertools.product(
        ("REAL", "IMAG", "COMPLEX_ABS"), ((1, 16), (4, 8), (8, 2)), ((3, 0, 0), (2, -1, 0), (2, 1, -1))
    ):
        make = Maker(f"{name} {height} {width} {size}")
        shape = (size[0], max(height + size[1], 1), max(width + size[2], 1))
        found = make.net.tensor((size[0], height, width // 2 + 1), "complex64")
        moved = make.net.tensor((size[0] * height, width // 2 + 1), "complex64")
        make.net.op("RFFT2D", [make.input(shape), make.numbers([height, width])], [found])
        make.net.op("RESHAPE", [found, make.numbers([size[0] * height, width // 2 + 1])], [moved])
        yield make.op(name, [moved], [make.output((size[0] * height, width // 2 + 1))])


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "convolutions": convolutions, "transposed": transposed_convolutions, "dense": dense, "products": matrix_products,
    "arithmetic": arithmetic, "functions": functions, "rows": rows, "pools": pools, "reductions": reductions,
    "types": types, "resizes": resizes, "moves": moves, "hybrid": hybrid,
    "segments": segments, "spectra": spectra,
}  # fmt: skip


def all_cases() -> Iterator[tuple[str, Case]]:
    for family, cases in FAMILIES.items():
        for case in cases():
            yield family, case
