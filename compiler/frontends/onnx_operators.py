"""Converters of ONNX operators. Quantised forms (QDQ, QLinear*, *Integer) all become the QDQ form:
dequantise, float operator, quantise; legalise then finds the integer arithmetic again."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..graph import Call, Constant, Expr
from .onnx_node import Node, dequantised, quantised, raw_integers

Converter = Callable[[Node], Expr]
CONVERTERS: dict[str, Converter] = {}
"""Converter by operator; operators of ONNX Runtime's own domain are here under their plain name."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    def add(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return add


# Quantise and dequantise


@converter("QuantizeLinear")
def _quantize_linear(node: Node) -> Expr:
    if node.integer("block_size", 0):
        raise node.error("blocked quantisation is not supported")
    return quantised(node, node.input(0), 1, 2, node.integer("axis", 1))


@converter("DequantizeLinear")
def _dequantize_linear(node: Node) -> Expr:
    if node.integer("block_size", 0):
        raise node.error("blocked quantisation is not supported")
    return dequantised(node, 0, 1, 2, node.integer("axis", 1))


@converter("DynamicQuantizeLinear")
def _dynamic_quantize_linear(node: Node) -> Expr:
    raise node.error(
        "the scale is computed while the model runs, but the accelerator needs it before",
        hint="quantise the model with onnxruntime's quantize_static instead of quantize_dynamic",
    )


@converter("Cast")
def _cast(node: Node) -> Expr:
    x, target = node.input(0), node.integer("to", 0)
    onnx_float = 1
    if target != onnx_float or x.dtype != "float32":
        raise node.error(f"a cast of {x.tensor_type} to ONNX type {target} is not supported; only casts to float are")
    return x  # the result of an *Integer operator is represented as float already


# Convolution and matrix products


def _window_pads(node: Node, size: tuple[int, int], kernel: tuple[int, int]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from ``pads`` or ``auto_pad``, with ceil_mode's extra rows at the end."""
    strides, dilations = node.pair("strides"), node.pair("dilations")
    extent = [dilations[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    auto_pad = node.string("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-size[i] // strides[i]) - 1) * strides[i] + extent[i] - size[i], 0) for i in (0, 1)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        return before[0], before[1], after[0], after[1]
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise node.error(f"auto_pad {auto_pad!r} is not known")
    pads = (0, 0, 0, 0) if auto_pad == "VALID" else node.integers("pads", (0, 0, 0, 0))
    if pads is None or len(pads) != 4 or min(pads) < 0:
        raise node.error(f"pads must be 4 integers that are not negative, not {pads}")
    if not node.integer("ceil_mode", 0):
        return pads[0], pads[1], pads[2], pads[3]
    after = []
    for i in (0, 1):
        span = size[i] + pads[i] + pads[i + 2] - extent[i]
        steps = -(-span // strides[i])
        if steps * strides[i] >= size[i] + pads[i]:  # a window must not start in the padding at the end
            steps -= 1
        after.append(max(pads[i + 2], steps * strides[i] + extent[i] - size[i] - pads[i]))
    if node.integer("count_include_pad", 0) and after != [pads[2], pads[3]]:
        raise node.error("ceil_mode together with count_include_pad is not supported where a window reaches too far")
    return pads[0], pads[1], after[0], after[1]


def _convolution(node: Node, x: Expr, w: Expr) -> Call:
    image = node.require_image(x)
    if len(w.shape) != 4:
        raise node.error(f"the weights must be (O, C/groups, KH, KW), not {w.tensor_type}")
    kernel = (w.shape[2], w.shape[3])
    return node.call(
        "nn.conv2d", x, w,
        strides=node.pair("strides"), dilations=node.pair("dilations"), groups=node.integer("group", 1),
        pads=_window_pads(node, (image.shape[2], image.shape[3]), kernel),
    )  # fmt: skip


def _add_bias(node: Node, x: Expr, bias: Expr) -> Expr:
    """x + bias, one value a channel."""
    shape = (1, -1, 1, 1) if len(x.shape) == 4 else (1, -1)
    size = math.prod(bias.shape)
    return node.call("nn.add", x, reshaped(node, bias, tuple(size if dim < 0 else dim for dim in shape)))


@converter("Conv")
def _conv(node: Node) -> Expr:
    result = _convolution(node, node.input(0), node.input(1))
    return _add_bias(node, result, node.input(2)) if node.has(2) else result


def _channels_first(node: Node) -> None:
    if node.integer("channels_last", 0):
        raise node.error("the channels-last form is not supported", hint="export the model with (N, C, H, W) tensors")


@converter("QLinearConv")
def _qlinear_conv(node: Node) -> Expr:
    _channels_first(node)
    x, w = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=0)
    result: Expr = _convolution(node, x, w)
    if node.has(8):
        scale = np.float32(node.constant(1, "the scale").reshape(())) * node.constant(4, "the scale").reshape(-1)
        result = _add_bias(node, result, _integer_bias(node, node.input(8), scale))
    return quantised(node, result, 6, 7)


def _integer_bias(node: Node, bias: Expr, scale: np.ndarray) -> Expr:
    """An int32 bias in units of ``scale`` (one, or one a channel), as real numbers."""
    flat = reshaped(node, bias, (math.prod(bias.shape),))
    scales = scale.reshape(()) if scale.size == 1 else scale
    zeros = np.zeros(scales.shape, bias.dtype)
    axis = 0 if scales.ndim else 1
    return node.call("dequantise", flat, Constant(scales.astype(np.float32)), Constant(zeros), axis=axis)


@converter("ConvInteger")
def _conv_integer(node: Node) -> Expr:
    return _convolution(node, raw_integers(node, 0, 2), raw_integers(node, 1, 3, axis=0))


def transposed(node: Node, w: Expr) -> Expr:
    """A matrix with its axes swapped; for weights the constant itself is transposed."""
    match w:
        case Constant():
            return Constant(w.value.T, w.name, w.span)
        case Call(op="dequantise", args=(Constant() as q, Constant() as scale, zero_point)):
            axis = 1 - int(w.attr("axis")) if scale.value.ndim else 1
            return node.call("dequantise", Constant(q.value.T, q.name, q.span), scale, zero_point, axis=axis)
    return node.call("transpose", w, perm=(1, 0))


def _is_weight(value: Expr) -> bool:
    match value:
        case Constant() | Call(op="dequantise", args=(Constant(), _, _)):
            return len(value.shape) == 2
    return False


def _matrix_product(node: Node, a: Expr, b: Expr) -> Expr:
    """a (..., C) times b (C, O)."""
    if not _is_weight(b):
        return node.call("nn.matmul", a, b)
    rows = a if len(a.shape) == 2 else reshaped(node, a, (math.prod(a.shape[:-1]), a.shape[-1]))
    product: Expr = node.call("nn.dense", rows, transposed(node, b))
    return product if len(a.shape) == 2 else reshaped(node, product, (*a.shape[:-1], b.shape[-1]))


@converter("MatMul")
def _matmul(node: Node) -> Expr:
    return _matrix_product(node, node.input(0), node.input(1))


@converter("MatMulInteger")
def _matmul_integer(node: Node) -> Expr:
    return _matrix_product(node, raw_integers(node, 0, 2), raw_integers(node, 1, 3, axis=1))


@converter("QLinearMatMul")
def _qlinear_matmul(node: Node) -> Expr:
    a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=1)
    return quantised(node, _matrix_product(node, a, b), 6, 7)


def _gemm_product(node: Node, a: Expr, b: Expr) -> Expr:
    """alpha * a b, b (C, O) or, with transB, (O, C)."""
    if node.integer("transA", 0):
        a = node.call("transpose", a, perm=(1, 0))
    weights = b if node.integer("transB", 0) else transposed(node, b)
    product: Expr = node.call("nn.dense", a, weights)
    alpha = node.number("alpha", 1.0)
    return product if alpha == 1 else node.call("nn.multiply", product, Constant(np.array(alpha, np.float32)))


@converter("Gemm")
def _gemm(node: Node) -> Expr:
    result = _gemm_product(node, node.input(0), node.input(1))
    if not node.has(2):
        return result
    bias, beta = node.input(2), node.number("beta", 1.0)
    if beta != 1:
        bias = node.call("nn.multiply", bias, Constant(np.array(beta, np.float32)))
    return node.call("nn.add", result, bias)


@converter("QGemm")
def _qgemm(node: Node) -> Expr:
    transposed_weights = bool(node.integer("transB", 0))
    a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=0 if transposed_weights else 1)
    result = _gemm_product(node, a, b)
    if node.has(6):
        scale = node.number("alpha", 1.0) * node.constant(1, "the scale").reshape(()) * node.constant(4, "the scale")
        result = _add_bias(node, result, _integer_bias(node, node.input(6), scale.reshape(-1)))
    return quantised(node, result, 7, 8) if node.has(7) else result


# Elementwise


def _binary(op: str) -> Converter:
    def convert(node: Node) -> Expr:
        return node.call(op, node.input(0), node.input(1))

    return convert


for _onnx, _ours in {"Add": "nn.add", "Mul": "nn.multiply", "Sub": "nn.subtract", "Div": "nn.divide"}.items():
    CONVERTERS[_onnx] = _binary(_ours)


@converter("Sum")
def _sum(node: Node) -> Expr:
    total = node.input(0)
    for index in range(1, len(node.inputs)):
        total = node.call("nn.add", total, node.input(index))
    return total


def _qlinear_binary(op: str) -> Converter:
    def convert(node: Node) -> Expr:
        a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5)
        return quantised(node, node.call(op, a, b), 6, 7)

    return convert


CONVERTERS["QLinearAdd"] = _qlinear_binary("nn.add")
CONVERTERS["QLinearMul"] = _qlinear_binary("nn.multiply")


@converter("Relu")
def _relu(node: Node) -> Expr:
    return node.call("nn.clip", node.input(0), low=0.0)


@converter("Clip")
def _clip(node: Node) -> Expr:
    low, high = node.number("min", -math.inf), node.number("max", math.inf)
    if node.has(1):
        low = float(_real_constant(node, 1, "the lower limit"))
    if node.has(2):
        high = float(_real_constant(node, 2, "the upper limit"))
    return node.call("nn.clip", node.input(0), low=low, high=high)


def _real_constant(node: Node, index: int, what: str) -> float:
    """A scalar operand that may be quantised itself."""
    match node.input(index):
        case Call(op="dequantise", args=(Constant() as q, Constant() as scale, Constant() as zero)):
            return float((q.value.astype(np.int64) - zero.value).reshape(-1)[0] * scale.value.reshape(-1)[0])
    return float(node.constant(index, what).reshape(()))


def _unary(op: str) -> Converter:
    def convert(node: Node) -> Expr:
        return node.call(op, node.input(0))

    return convert


CONVERTERS["Sigmoid"] = _unary("nn.sigmoid")


@converter("QLinearSigmoid")
def _qlinear_sigmoid(node: Node) -> Expr:
    return quantised(node, node.call("nn.sigmoid", dequantised(node, 0, 1, 2)), 3, 4)


def _softmax_of(node: Node, x: Expr, opset: int) -> Expr:
    before_13 = opset < 13
    axis = node.integer("axis", 1 if before_13 else -1) % max(len(x.shape), 1)
    if not before_13 or axis == len(x.shape) - 1:
        return node.call("nn.softmax", x, axis=axis)
    # older opsets: softmax over all axes from `axis` on
    flat = reshaped(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return reshaped(node, node.call("nn.softmax", flat, axis=1), x.shape)


@converter("Softmax")
def _softmax(node: Node) -> Expr:
    return _softmax_of(node, node.input(0), node.opset)


@converter("QLinearSoftmax")
def _qlinear_softmax(node: Node) -> Expr:
    return quantised(node, _softmax_of(node, dequantised(node, 0, 1, 2), node.integer("opset", 13)), 3, 4)


@converter("BatchNormalization")
def _batch_normalization(node: Node) -> Expr:
    if node.integer("training_mode", 0):
        raise node.error("training mode is not supported", hint="export the model in inference mode")
    return node.call("nn.batch_norm", *(node.input(i) for i in range(5)), epsilon=node.number("epsilon", 1e-5))


# Pooling


def _pool_attrs(node: Node, x: Expr) -> dict[str, tuple[int, ...]]:
    image = node.require_image(x)
    kernel = node.integers("kernel_shape")
    if kernel is None or len(kernel) != 2:
        raise node.error(f"only 2-D windows are supported, but 'kernel_shape' is {kernel}")
    pads = _window_pads(node, (image.shape[2], image.shape[3]), (kernel[0], kernel[1]))
    return {"kernel": kernel, "strides": node.pair("strides"), "pads": pads}


def _without_scale(node: Node, x: Expr) -> Call:
    return node.call("dequantise", x, Constant(np.ones((), np.float32)), Constant(np.zeros((), x.dtype)))


@converter("MaxPool")
def _max_pool(node: Node) -> Expr:
    x = node.input(0)
    attrs = {**_pool_attrs(node, x), "dilations": node.pair("dilations")}
    if node.integer("storage_order", 0):
        raise node.error("storage_order 1 is not supported")
    if x.dtype == "float32":
        return node.call("nn.max_pool", x, **attrs)
    wide = _without_scale(node, x)
    return node.call("quantise", node.call("nn.max_pool", wide, **attrs), wide.args[1], wide.args[2])


def _average(node: Node, x: Expr) -> Call:
    if node.pair("dilations") != (1, 1):
        raise node.error("a dilated average is not supported")
    include = bool(node.integer("count_include_pad", 0))
    return node.call("nn.average_pool", x, **_pool_attrs(node, x), count_include_pad=include)


def _global_average(node: Node, x: Expr) -> Call:
    return node.call("nn.average_pool", x, kernel=node.require_image(x).shape[2:])


@converter("AveragePool")
def _average_pool(node: Node) -> Expr:
    return _average(node, node.input(0))


@converter("GlobalAveragePool")
def _global_average_pool(node: Node) -> Expr:
    return _global_average(node, node.input(0))


@converter("QLinearAveragePool")
def _qlinear_average_pool(node: Node) -> Expr:
    _channels_first(node)
    return quantised(node, _average(node, dequantised(node, 0, 1, 2)), 3, 4)


@converter("QLinearGlobalAveragePool")
def _qlinear_global_average_pool(node: Node) -> Expr:
    _channels_first(node)
    return quantised(node, _global_average(node, dequantised(node, 0, 1, 2)), 3, 4)


@converter("ReduceMean")
def _reduce_mean(node: Node) -> Expr:
    x = node.input(0)
    shape = node.require_image(x).shape
    axes = node.axes(1)
    if axes is None or sorted(axis % 4 for axis in axes) != [2, 3]:
        raise node.error(f"only the mean over rows and columns (axes 2, 3) is supported, not over {axes}")
    mean = node.call("nn.average_pool", x, kernel=shape[2:])
    return mean if node.integer("keepdims", 1) else reshaped(node, mean, shape[:2])


# Data movement


def reshaped(node: Node, x: Expr, shape: tuple[int, ...]) -> Expr:
    return x if x.shape == shape else node.call("reshape", x, shape=shape)


@converter("Identity", "Dropout")
def _identity(node: Node) -> Expr:
    return node.input(0)


@converter("Reshape")
def _reshape(node: Node) -> Expr:
    x = node.input(0)
    wanted = [int(size) for size in node.constant(1, "the new shape").reshape(-1)]
    if not node.integer("allowzero", 0):
        wanted = [x.shape[i] if size == 0 and i < len(x.shape) else size for i, size in enumerate(wanted)]
    if wanted.count(-1) == 1:
        known = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = math.prod(x.shape) // known if known else 0
    return reshaped(node, x, tuple(wanted))


@converter("Flatten")
def _flatten(node: Node) -> Expr:
    x = node.input(0)
    axis = node.integer("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return reshaped(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@converter("Squeeze")
def _squeeze(node: Node) -> Expr:
    x = node.input(0)
    axes = node.axes(1)
    rank = len(x.shape)
    dropped = {axis % rank for axis in axes} if axes is not None else {i for i in range(rank) if x.shape[i] == 1}
    return reshaped(node, x, tuple(size for i, size in enumerate(x.shape) if i not in dropped))


@converter("Unsqueeze")
def _unsqueeze(node: Node) -> Expr:
    x = node.input(0)
    axes = node.axes(1) or ()
    rank = len(x.shape) + len(axes)
    added = {axis % rank for axis in axes}
    sizes = iter(x.shape)
    return reshaped(node, x, tuple(1 if i in added else next(sizes) for i in range(rank)))


@converter("Transpose")
def _transpose(node: Node) -> Expr:
    x = node.input(0)
    perm = node.integers("perm", tuple(reversed(range(len(x.shape)))))
    return x if perm == tuple(range(len(x.shape))) else node.call("transpose", x, perm=perm)


@converter("Concat")
def _concat(node: Node) -> Expr:
    inputs = [node.input(i) for i in range(len(node.inputs))]
    return node.call("concat", *inputs, axis=node.integer("axis", 1) % max(len(inputs[0].shape), 1))


@converter("QLinearConcat")
def _qlinear_concat(node: Node) -> Expr:
    inputs = [dequantised(node, i, i + 1, i + 2) for i in range(2, len(node.inputs), 3)]
    axis = node.integer("axis", 1) % max(len(inputs[0].shape), 1)
    return quantised(node, node.call("concat", *inputs, axis=axis), 0, 1)


@converter("Pad")
def _pad(node: Node) -> Expr:
    x = node.input(0)
    node.require_image(x)
    if node.string("mode", "constant") != "constant":
        raise node.error(f"only constant padding is supported, not {node.string('mode', '')!r}")
    pads = node.integers("pads") or tuple(int(size) for size in node.constant(1, "the pads").reshape(-1))
    if node.has(3) or len(pads) != 8 or any(pads[i] for i in (0, 1, 4, 5)) or min(pads) < 0:
        raise node.error(f"only rows and columns can be padded, but the pads are {pads}")
    value = _real_constant(node, 2, "the padding value") if node.has(2) else node.number("value", 0.0)
    return node.call("pad", x, pads=(pads[2], pads[3], pads[6], pads[7]), value=value)
