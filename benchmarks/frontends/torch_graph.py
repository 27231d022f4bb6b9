"""The graph IR in PyTorch, for its autograd: what the benchmarks compare gradients with.

Values that are no floats have no gradient: NumPy computes them. Floats of 16 bits are computed in float32, as the
operators mean it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from weft.compiler.graph import Array, Call, Constant, Module, TensorType, Tuple, Var, topological_order
from weft.compiler.graph.dtypes import FLOATS, numpy_dtype
from weft.compiler.graph.registry import apply

T = Any  # a tensor
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


class NotComparedError(Exception):
    """PyTorch has another meaning here, or none."""


def _padded(x: T, pads: Sequence[int], value: float) -> T:
    count = len(pads) // 2
    turned = [each for axis in reversed(range(count)) for each in (pads[axis], pads[count + axis])]
    return functional.pad(x, turned, value=value) if any(pads) else x


def _conv(x: T, w: T, strides: Any, pads: Any, dilations: Any, groups: int) -> T:
    if not x.shape[1]:
        raise NotComparedError("a convolution over no channels")
    run = functional.conv2d if len(strides) == 2 else functional.conv3d
    return run(_padded(x, pads, 0.0), w, stride=strides, dilation=dilations, groups=groups)


def _windows(x: T, kernel: Any, strides: Any, dilations: Any) -> list[T]:
    """For every place of a window, in row-major order, what it meets."""
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    found = []
    for place in itertools.product(*map(range, kernel)):
        spans = [slice(p * d, p * d + (n - 1) * s + 1, s)
                 for p, d, n, s in zip(place, dilations, sizes, strides, strict=True)]  # fmt: skip
        found.append(x[(slice(None), slice(None), *spans)])
    return found


def _max_pool(x: T, kernel: Any, strides: Any, pads: Any, dilations: Any) -> T:
    run = functional.max_pool2d if len(kernel) == 2 else functional.max_pool3d
    return run(_padded(x, pads, -math.inf), kernel, strides, 0, dilations)


def _average_pool(x: T, kernel: Any, strides: Any, pads: Any, dilations: Any, count_include_pad: bool) -> T:
    total = sum(_windows(_padded(x, pads, 0.0), kernel, strides, dilations))
    if count_include_pad:
        return total / math.prod(kernel)
    return total / sum(_windows(_padded(torch.ones_like(x[:1, :1]), pads, 0.0), kernel, strides, dilations))


def _reduced(run: Callable[..., T]) -> Callable[..., T]:
    return lambda x, axes, keepdims: run(x, dim=axes, keepdim=keepdims) if axes else x


def _extreme(run: Callable[..., T]) -> Callable[..., T]:
    def meaning(x: T, axes: Any, keepdims: bool) -> T:
        if any(x.shape[axis] == 0 for axis in axes):
            raise NotComparedError("the extreme of nothing")
        return _reduced(run)(x, axes, keepdims)

    return meaning


def _product(x: T, axes: Any, keepdims: bool) -> T:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keepdims)
    return x


def _cumulative(run: Callable[..., T], neutral: float) -> Callable[..., T]:
    def meaning(x: T, axis: int, exclusive: bool, reverse: bool) -> T:
        x = x.flip(axis) if reverse else x
        if exclusive and x.shape[axis]:
            first = torch.full_like(x.narrow(axis, 0, 1), neutral)
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        result = run(x, dim=axis)
        return result.flip(axis) if reverse else result

    return meaning


def _whole(indices: T, size: int) -> T:
    return torch.where(indices < 0, indices + size, indices).long()


def _gather(x: T, indices: T, axis: int) -> T:
    picked = x.index_select(axis, _whole(indices, x.shape[axis]).reshape(-1))
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _gather_nd(x: T, indices: T, batch_dims: int) -> T:
    outer = indices.shape[:batch_dims]
    places = [torch.arange(n).reshape([-1 if i == a else 1 for i in range(indices.dim() - 1)])
              for a, n in enumerate(outer)]  # fmt: skip
    sizes = x.shape[batch_dims : batch_dims + indices.shape[-1]]
    return x[(*places, *(_whole(indices[..., i], n) for i, n in enumerate(sizes)))]


def _placed(x: T, places: tuple[T, ...], updates: T, reduction: str) -> T:
    if reduction not in ("none", "add"):
        raise NotComparedError(f"a scatter with {reduction}")
    spread = torch.broadcast_tensors(*places)
    spots = torch.stack([each.reshape(-1) for each in spread], 1).tolist()
    if reduction == "none" and len({tuple(each) for each in spots}) < len(spots):
        raise NotComparedError("which of two updates of one place counts")
    return x.index_put(places, updates, accumulate=reduction == "add")


def _scatter_nd(x: T, indices: T, updates: T, reduction: str) -> T:
    places = tuple(_whole(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
    return _placed(x, places, updates, reduction)


def _scatter_elements(x: T, indices: T, updates: T, axis: int, reduction: str) -> T:
    places = list(torch.meshgrid(*(torch.arange(n) for n in indices.shape), indexing="ij"))
    places[axis] = _whole(indices, x.shape[axis])
    return _placed(x, tuple(places), updates, reduction)


def _slice(x: T, starts: Any, sizes: Any, steps: Any) -> T:
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        x = x.index_select(axis, start + step * torch.arange(size))
    return x


def _dilate(x: T, factors: Any) -> T:
    kept = x.dim() - len(factors)
    spread = [max((n - 1) * f + 1, 0) for n, f in zip(x.shape[kept:], factors, strict=True)]
    result = x.new_zeros((*x.shape[:kept], *spread))
    result[(..., *(slice(None, None, f) for f in factors))] = x
    return result


def _unpool(x: T, indices: T, shape: Any, **window: Any) -> T:
    inside = indices.reshape(-1) >= 0
    flat = x.new_zeros(math.prod(shape)).index_add(0, indices.reshape(-1)[inside], x.reshape(-1)[inside])
    return flat.reshape(shape)


def _grid_sample(x: T, grid: T, mode: str, padding: str, align_corners: bool) -> T:
    if mode == "cubic" and padding != "zeros":
        raise NotComparedError("cubic sampling of places that padding moves")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return functional.grid_sample(x, grid.to(x.dtype), mode, padding, align_corners)


def _batch_norm(x: T, gamma: T, beta: T, mean: T, variance: T, epsilon: float) -> T:
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    gamma, beta, mean, variance = (each.reshape(shape) for each in (gamma, beta, mean, variance))
    return (x - mean) * (gamma / torch.sqrt(variance + epsilon)) + beta


def _dequantise(x: T, scale: T, zero_point: T, axis: int, block: int) -> T:
    if block:
        raise NotComparedError("scales of blocks")
    shape = [-1 if i == axis else 1 for i in range(x.dim())] if scale.dim() else []
    return (x.to(scale.dtype) - zero_point.to(scale.dtype).reshape(shape)) * scale.reshape(shape)


MEANINGS: dict[str, Callable[..., T]] = {
    "nn.add": torch.add, "nn.subtract": torch.sub, "nn.multiply": torch.mul, "nn.divide": torch.div,
    "nn.minimum": torch.minimum, "nn.maximum": torch.maximum,
    "nn.modulo": lambda a, b, truncated: torch.fmod(a, b) if truncated else torch.remainder(a, b),
    "nn.power": lambda a, b: torch.pow(a, b.to(a.dtype)),
    "nn.exp": torch.exp, "nn.log": torch.log, "nn.sqrt": torch.sqrt, "nn.sin": torch.sin, "nn.cos": torch.cos,
    "nn.tan": torch.tan, "nn.asin": torch.asin, "nn.acos": torch.acos, "nn.atan": torch.atan, "nn.sinh": torch.sinh,
    "nn.cosh": torch.cosh, "nn.tanh": torch.tanh, "nn.asinh": torch.asinh, "nn.acosh": torch.acosh,
    "nn.atanh": torch.atanh, "nn.erf": torch.erf, "nn.sigmoid": torch.sigmoid, "nn.floor": torch.floor,
    "nn.ceil": torch.ceil, "nn.round": torch.round, "nn.abs": torch.abs, "nn.negative": torch.neg,
    "nn.sign": torch.sign, "nn.clip": lambda x, low, high: torch.clamp(x, low, high), "nn.where": torch.where,
    "nn.cast": lambda x, to, saturate, rounding: x.to(TYPES[to]),
    "nn.reduce_sum": _reduced(torch.sum), "nn.reduce_mean": _reduced(torch.mean), "nn.reduce_max": _extreme(torch.amax),
    "nn.reduce_min": _extreme(torch.amin), "nn.reduce_product": _product,
    "nn.cumulative_sum": _cumulative(torch.cumsum, 0), "nn.cumulative_product": _cumulative(torch.cumprod, 1),
    "nn.dense": lambda x, w: x @ w.T, "nn.matmul": torch.matmul,
    "nn.einsum": lambda *xs, equation: torch.einsum(equation, *xs), "nn.determinant": torch.linalg.det,
    "nn.inverse": torch.linalg.inv, "nn.conv2d": _conv, "nn.conv3d": _conv, "nn.max_pool": _max_pool,
    "nn.average_pool": _average_pool, "nn.unpool": _unpool, "nn.grid_sample": _grid_sample,
    "nn.batch_norm": _batch_norm,
    "nn.softmax": lambda x, axis: torch.softmax(x, axis) if x.dim() else torch.ones_like(x),
    "gather": _gather, "gather_elements": lambda x, i, axis: torch.gather(x, axis, _whole(i, x.shape[axis])),
    "gather_nd": _gather_nd, "scatter_nd": _scatter_nd, "scatter_elements": _scatter_elements, "slice": _slice,
    "concat": lambda *xs, axis: torch.cat(xs, axis), "pad": lambda x, pads, value: _padded(x, pads, value),
    "reshape": lambda x, shape: x.reshape(shape), "transpose": lambda x, perm: x.permute(perm),
    "expand": lambda x, shape: x.expand(shape), "barrier": lambda x, *after: x,
    "dilate": _dilate, "dequantise": _dequantise,
}  # fmt: skip
"""What each operator on floats is: with the operands, and the attributes by name."""


def gradients(
    module: Module, values: Mapping[str, Array], seeds: Mapping[str, Array], wrt: Sequence[str]
) -> list[Array]:
    """The gradients of the outputs that ``seeds`` names, each times its seed, by PyTorch's autograd. Raises
    NotComparedError."""
    arrays: dict[int, Array] = {}
    tensors: dict[int, T] = {}
    leaves = {name: _tensor(values[name]).requires_grad_() for name in wrt}
    for node in topological_order(module.main.body):
        if isinstance(node, Tuple):
            continue
        if isinstance(node, Var):
            tensors[id(node)] = leaves.get(node.name, _tensor(values[node.name]))
        elif isinstance(node, Constant):
            tensors[id(node)] = _tensor(node.value)
        elif isinstance(node, Call):
            if not isinstance(node.type, TensorType):  # a loop
                raise NotComparedError(f"{node.op} gives several tensors")
            if node.dtype in FLOATS:
                tensors[id(node)] = _result(node, [tensors[id(arg)] for arg in node.args])
            else:
                operands = [arrays.setdefault(id(arg), _array(tensors[id(arg)], arg.dtype)) for arg in node.args]
                tensors[id(node)] = _tensor(apply(node, operands))
        arrays.pop(id(node), None)
    results = dict(zip(module.main.output_names, module.main.results, strict=True))
    total = sum(((tensors[id(results[name])].double() * _tensor(seed).double()).sum() for name, seed in seeds.items()),
                torch.zeros((), dtype=torch.float64))  # fmt: skip
    if not total.requires_grad:
        return [np.zeros(leaf.shape) for leaf in leaves.values()]
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return [np.zeros(leaf.shape) if each is None else _array(each, "float64")
            for leaf, each in zip(leaves.values(), found, strict=True)]  # fmt: skip


def _result(node: Call, operands: list[T]) -> T:
    meaning = MEANINGS.get(str(node.op))
    if meaning is None:
        raise NotComparedError(f"{node.op} has no counterpart")
    halves = (torch.float16, torch.bfloat16)
    return meaning(*(x.float() if x.dtype in halves else x for x in operands), **node.attrs).to(TYPES[node.dtype])


def _tensor(value: Array) -> T:
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.astype(np.float32)).bfloat16()
    try:
        return torch.from_numpy(np.array(value))
    except TypeError as error:
        raise NotComparedError(f"PyTorch has no {value.dtype}") from error


def _array(value: T, dtype: str) -> Array:
    plain = value.detach().double() if dtype in FLOATS else value.detach()
    array = plain.numpy()
    return array.astype(numpy_dtype(dtype))
