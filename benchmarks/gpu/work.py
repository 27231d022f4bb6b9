"""What GPUs are compared by: a graph of weft's, its data, and the same work in PyTorch."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.targets.loops.prepare import prepare

Array = np.ndarray[Any, Any]
Torch = Any
"""The module of PyTorch."""

PRODUCTS = ((256, 256, 1024), (1024, 1024, 1024), (4096, 4096, 4096), (512, 3072, 768), (784, 512, 4608))
"""Rows, columns, depth."""

PRODUCT_KINDS = (("float32", False, 0.9), ("float16", False, 0.85), ("bfloat16", False, 0.85), ("int8", False, 0.85),
                 ("float32", True, 0.85))  # fmt: skip
"""Type of operands, whether they are rounded to TF32, and the share of cuBLAS's speed that is wanted."""

CONVOLUTIONS = ((64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1),
                (256, 64, 56, 1, 1), (1024, 256, 14, 1, 1), (3, 64, 224, 7, 2))  # fmt: skip
"""Channels of data and result, size of the picture, of the window, stride."""

ATTENTIONS = ((12, 128, 128, 64), (96, 197, 197, 64), (64, 512, 512, 64), (32, 1024, 1024, 64), (16, 2048, 2048, 128))
"""Heads of all images or texts, queries, keys, elements of each."""

IMAGES = 8

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "int8": 0.0}
"""By how much of the largest result floats may differ; sums are rounded in another order."""

TF32_TOLERANCE = 2e-3
NETWORK_TOLERANCE = 1e-4

SHARE = 0.85
"""Of a copy's bandwidth, which is wanted of what memory bounds."""


@dataclass(frozen=True)
class Work:
    """``peer``: makes what does the same in PyTorch on a device. ``amount``: multiply-adds counted twice, or bytes that
    must be read and written, by what ``bound`` says. ``wanted``: of the peer's speed."""

    title: str
    module: Module
    inputs: tuple[Array, ...]
    peer_name: str
    peer: Callable[[Torch, str], Callable[[], Any]]
    amount: int
    bound: str
    tolerance: float
    wanted: float | None = None
    tf32: bool = False


def module_of(params: Sequence[Var], body: Expr) -> Module:
    return prepare(Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": ("y",)}))))


def random(dtype: str, *shape: int) -> Array:
    generator = np.random.default_rng(sum(shape))
    if dtype == "int8":
        return generator.integers(-128, 128, shape).astype(np.int8)
    return generator.normal(size=shape).astype(numpy_dtype(dtype))


def as_torch(torch: Torch, array: Array, device: str) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def as_numpy(torch: Torch, tensor: Any) -> Array:
    tensor = tensor.detach().cpu()
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()  # type: ignore[no-any-return]


def set_tf32(torch: Torch, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def product_module(left: Array, right: Array) -> Module:
    """The product of ``left`` and ``right``, which is constant: bytes as the integer contract has them, in int32."""
    if left.dtype == np.int8:
        a = Var("a", TensorType((*left.shape, 1, 1), "int8"))
        return module_of([a], call("conv2d", a, Constant(np.ascontiguousarray(right.T)[:, :, None, None])))
    a = Var("a", TensorType(left.shape, left.dtype.name))
    return module_of([a], call("nn.matmul", a, Constant(right)))


def attention_module(queries: Array, keys: Array, values: Array) -> Module:
    """Attention of several heads, without a scale; keys are rows."""
    names, shapes = "qkv", (queries.shape, keys.shape, values.shape)
    q, k, v = (Var(name, TensorType(shape, queries.dtype.name)) for name, shape in zip(names, shapes, strict=True))
    scores = call("nn.matmul", q, call("transpose", k, perm=(0, 2, 1)))
    return module_of([q, k, v], call("nn.matmul", call("nn.softmax", scores, axis=2), v))


def attention_operands(dtype: str, heads: int, queries: int, keys: int, depth: int) -> tuple[Array, Array, Array]:
    """Queries and keys are so small that scores need no scale."""
    small = np.asarray(depth**-0.25, numpy_dtype(dtype))
    return (random(dtype, heads, queries, depth) * small, random(dtype, heads, keys, depth)[:, ::-1] * small,
            random(dtype, heads, keys, depth)[::-1].copy())  # fmt: skip


def attentions() -> Iterator[Work]:
    """Beside PyTorch's fused attention."""
    for dtype in ("float32", "float16"):
        for sizes in ATTENTIONS:
            operands = attention_operands(dtype, *sizes)

            def peer(torch: Torch, device: str, operands: tuple[Array, ...] = operands) -> Callable[[], Any]:
                q, k, v = (as_torch(torch, each, device)[None] for each in operands)
                attention = torch.nn.functional.scaled_dot_product_attention
                return lambda: attention(q, k, v, scale=1.0)

            heads, queries, keys, depth = sizes
            yield Work(f"attention {dtype} {heads}x{queries}x{keys}x{depth}", attention_module(*operands), operands,
                       "PyTorch", peer, 4 * heads * queries * keys * depth, "arithmetic",
                       10 * TOLERANCES[dtype])  # fmt: skip


def products() -> Iterator[Work]:
    for dtype, tf32, wanted in PRODUCT_KINDS:
        for rows, columns, depth in PRODUCTS:
            left, right = random(dtype, rows, depth), random(dtype, depth, columns)

            def peer(torch: Torch, device: str, left: Array = left, right: Array = right) -> Callable[[], Any]:
                a, b = as_torch(torch, left, device), as_torch(torch, right, device)
                if left.dtype == np.int8:
                    b = b.t().contiguous().t()  # the order that cuBLAS prefers
                    return lambda: torch._int_mm(a, b)
                return lambda: torch.matmul(a, b)

            yield Work(f"{'TF32' if tf32 else dtype} {rows}x{columns}x{depth}", product_module(left, right), (left,),
                       "cuBLAS", peer, 2 * rows * columns * depth, "arithmetic",
                       TF32_TOLERANCE if tf32 else TOLERANCES[dtype], wanted, tf32)  # fmt: skip


def convolutions() -> Iterator[Work]:
    for dtype, tf32 in (("float32", False), ("float16", False), ("float32", True)):
        for channels, filters, size, window, stride in CONVOLUTIONS:
            data = random(dtype, IMAGES, channels, size, size)
            weights = random(dtype, filters, channels, window, window)
            pad = window // 2
            x = Var("x", TensorType(data.shape, dtype))
            body = call("nn.conv2d", x, Constant(weights), strides=(stride, stride), pads=(pad,) * 4)

            def peer(torch: Torch, device: str, data: Array = data, weights: Array = weights, stride: int = stride,
                     pad: int = pad) -> Callable[[], Any]:  # fmt: skip
                a, w = as_torch(torch, data, device), as_torch(torch, weights, device)
                if a.dtype != torch.float32 or torch.backends.cudnn.allow_tf32:  # what tensor cores prefer
                    a, w = (each.to(memory_format=torch.channels_last) for each in (a, w))
                return lambda: torch.nn.functional.conv2d(a, w, stride=stride, padding=pad)

            out = size // stride
            yield Work(
                f"{'TF32' if tf32 else dtype} {window}x{window} {channels}->{filters} at {size}", module_of([x], body),
                (data,), "cuDNN", peer, 2 * IMAGES * filters * out * out * channels * window * window, "arithmetic",
                TF32_TOLERANCE if tf32 else 10 * TOLERANCES[dtype], None, tf32,
            )  # fmt: skip


def _relu_of_sum(a: Expr, b: Expr) -> Expr:
    return call("nn.clip", call("nn.add", a, b), low=0.0)


def memory_bound() -> Iterator[Work]:
    """What memory bounds, of 64 to 256 MiB: more than caches hold."""

    def make(title: str, shapes: Sequence[tuple[int, ...]], graph: Callable[..., Expr], peer: Callable[..., Any],
             dtype: str = "float32", tolerance: float = 1e-5) -> Work:  # fmt: skip
        arrays = tuple(random(dtype, *shape) for shape in shapes)
        params = [Var(f"x{number}", TensorType(shape, dtype)) for number, shape in enumerate(shapes)]
        body = graph(*params)
        moved = sum(each.nbytes for each in arrays) + prod(body.shape) * arrays[0].itemsize

        def theirs(torch: Torch, device: str) -> Callable[[], Any]:
            tensors = [as_torch(torch, each, device) for each in arrays]
            compiled = torch.compile(lambda *values: peer(torch, *values))
            return lambda: compiled(*tensors)

        return Work(title, module_of(params, body), arrays, "torch.compile", theirs, moved, "memory", tolerance)

    wide, tall = (4096, 4096), (16384, 1000)
    yield make("relu(a + b), 4096x4096", [wide, wide], _relu_of_sum,
               lambda torch, a, b: torch.relu(a + b))  # fmt: skip
    yield make("relu(a + b), float16", [(8192, 4096)] * 2, _relu_of_sum,
               lambda torch, a, b: torch.relu(a + b), "float16", 2e-3)  # fmt: skip
    yield make("softmax, 16384x1024", [(16384, 1024)], lambda a: call("nn.softmax", a, axis=1),
               lambda torch, a: torch.softmax(a, -1))  # fmt: skip
    yield make("softmax, 16384x1000", [tall], lambda a: call("nn.softmax", a, axis=1),
               lambda torch, a: torch.softmax(a, -1))  # fmt: skip
    yield make("sum of rows, 4096x4096", [wide], lambda a: call("nn.reduce_sum", a, axes=(1,), keepdims=False),
               lambda torch, a: a.sum(1), tolerance=1e-4)  # fmt: skip
    yield make("sum of columns, 4096x4096", [wide], lambda a: call("nn.reduce_sum", a, axes=(0,), keepdims=False),
               lambda torch, a: a.sum(0), tolerance=1e-4)  # fmt: skip
    yield make("transposition, 4096x4096", [wide], lambda a: call("transpose", a, perm=(1, 0)),
               lambda torch, a: a.t().contiguous())  # fmt: skip


def small_sum() -> Work:
    x = Var("x", TensorType((256,), "float32"))
    module = module_of([x], call("nn.clip", x, low=0.0))
    return Work("small", module, (random("float32", 256),), "", lambda torch, device: list, 0, "memory", 0.0)


def exported(torch: Torch, name: str) -> tuple[Any, bytes]:
    """A network of torchvision with random weights, and as ONNX for one picture."""
    import torchvision

    torch.manual_seed(0)
    network = getattr(torchvision.models, name)(weights=None).eval()
    file = io.BytesIO()
    example = torch.zeros(1, 3, 224, 224)
    torch.onnx.export(network, (example,), file, dynamo=False, opset_version=17, input_names=["x"])
    return network, file.getvalue()


def onnxruntime_session(model: bytes, device: str) -> Any:
    """A session on the GPU; None where onnxruntime has none."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    from examples.precise import fastest_session

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return None
    return fastest_session(model, providers=[("CUDAExecutionProvider", {"device_id": int(device)})])
