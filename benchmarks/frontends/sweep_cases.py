"""The cases of `operator_sweep`: ONNX operators at ties, bounds and special values, with exact answers where known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.frontends.sweep_exact import FORMATS, arithmetic, nearest, wrapped

Array = npt.NDArray[Any]
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and what is right, where the standard says it to the last bit (else within ``ulps``,
    or as ``near`` as that)."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    exact: Array | None = None
    ulps: float = 0
    near: float = 0


def kind_of(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def case(
    name: str,
    op: str,
    inputs: Sequence[Array | None],
    exact: Array | None = None,
    *,
    ulps: float = 0,
    near: float = 0,
    opset: int = 22,
    constants: Sequence[int] = (),
    output: int = 0,
    outputs: int = 1,
    result: int = 0,
    domain: str = "",
    **attributes: Any,
) -> Case:
    """A model of one node. ``constants``: the operands that are held in the model. ``output``: the result looked at, of
    ``outputs``; ``result``: its element type (default: that of ``exact``, or of the first operand)."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    held = [numpy_helper.from_array(inputs[i], names[i]) for i in constants if inputs[i] is not None]  # type: ignore[arg-type]
    given = {n: x for i, (n, x) in enumerate(zip(names, inputs, strict=True)) if x is not None and i not in constants}
    found = [f"y{i}" for i in range(outputs)]
    kind = result or kind_of(exact.dtype if exact is not None else next(iter(given.values())).dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, found, domain=domain, **attributes)],
        "case",
        [helper.make_tensor_value_info(n, kind_of(x.dtype), x.shape) for n, x in given.items()],
        [helper.make_tensor_value_info(found[output], kind, None)],
        held,
    )
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=domains, ir_version=12 if opset > 22 else 10)
    return Case(name, model, given, exact, ulps, near)


def specials(dtype: Any) -> Array:
    """Numbers of a float type that rounding, signs and ranges can go wrong with."""
    info: Any = ml_dtypes.finfo(dtype)
    tiny, eps = float(info.smallest_subnormal), float(info.eps)
    numbers = [
        math.nan,
        math.inf,
        0.0,
        tiny,
        float(info.smallest_normal),
        float(info.max),
        1,
        1 + eps,
        0.5,
        1.5,
        2.5,
        3,
        0.1,
    ]
    return np.array([sign * each for each in numbers for sign in (1, -1)]).astype(dtype)


def extremes(dtype: Any) -> Array:
    info = np.iinfo(dtype)
    near = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3, 7, 100]
    return np.array(near + ([-1, -2, -7, -100] if info.min else []), dtype)


def mapped(function: Callable[..., Any], result: Any, *arrays: Array) -> Array:
    """``function`` of every element of arrays that broadcast, with Python's numbers."""
    wide = np.broadcast_arrays(*arrays)
    flat = [function(*map(_number, each)) for each in zip(*(array.reshape(-1) for array in wide), strict=True)]
    return np.array(flat, object if np.dtype(result).kind in "iu" else np.float64).astype(result).reshape(wide[0].shape)


def _number(value: Any) -> Any:
    return (
        int(value)
        if np.dtype(type(value)).kind in "iu"
        else bool(value)
        if isinstance(value, np.bool_)
        else float(value)
    )


FLOATS: tuple[Any, ...] = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
INTEGERS: tuple[Any, ...] = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)


def float_arithmetic() -> Iterator[Case]:
    for dtype, op in itertools.product(FLOATS, ("Add", "Sub", "Mul", "Div")):
        a = specials(dtype)
        wanted = arithmetic(op, a[:, None], a[None])
        yield case(f"{op} {np.dtype(dtype).name}", op, [a[:, None], a[None]], wanted)
    for dtype in (np.float32, np.float64):
        a = specials(dtype)
        for fmod in (0, 1):
            yield case(
                f"Mod {np.dtype(dtype).name} fmod={fmod}",
                "Mod",
                [a[:, None], a[None]],
                mapped(lambda x, y, fmod=fmod: modulo(x, y, fmod), dtype, a[:, None], a[None]) if fmod else None,
                fmod=fmod,
                opset=28 if not fmod else 13,
            )
        yield case(
            f"Pow {np.dtype(dtype).name}",
            "Pow",
            [a[:, None], a[None]],
            np.power(a[:, None].astype(np.float64), a[None]).astype(dtype),
            ulps=2,
        )
    for dtype, (op, function) in itertools.product(FLOATS, (("Max", np.maximum), ("Min", np.minimum))):
        a = specials(dtype)
        yield case(f"{op} {np.dtype(dtype).name}", op, [a[:, None], a[None]], function(a[:, None], a[None]), opset=13)
    a = specials(np.float32)
    for op, compare in (("Less", np.less), ("Equal", np.equal), ("GreaterOrEqual", np.greater_equal)):
        yield case(f"{op} float32", op, [a[:, None], a[None]], compare(a[:, None], a[None]))
    limits = [np.array(limit, np.float32) for limit in (-1.0, 2.0)]
    yield case("Clip float32", "Clip", [a, *limits], np.clip(a, *limits), constants=(1, 2))
    yield case(
        "Clip float32, min above max",
        "Clip",
        [a, *limits[::-1]],
        np.minimum(np.maximum(a, 2), np.float32(-1)),
        constants=(1, 2),
    )
    yield case("Clip float32, computed limits", "Clip", [a, *limits], np.clip(a, *limits))


def modulo(x: float, y: float, fmod: int) -> float:
    return math.nan if y == 0 or math.isinf(x) or math.isnan(x + y) else math.fmod(x, y)


def integer_arithmetic() -> Iterator[Case]:
    functions: dict[str, Callable[[int, int], int]] = {
        "Add": lambda x, y: x + y,
        "Sub": lambda x, y: x - y,
        "Mul": lambda x, y: x * y,
        "Div": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
        "Mod": lambda x, y: x % y,
        "Max": max,
        "Min": min,
    }
    for dtype, (op, function) in itertools.product(INTEGERS, functions.items()):
        a = extremes(dtype)
        b = a[a != 0] if op in ("Div", "Mod") else a
        b = b[b != -1] if op == "Div" and np.iinfo(dtype).min else b  # the least divided by -1 is undefined
        wanted = mapped(lambda x, y, f=function, d=dtype: wrapped(f(x, y), d), dtype, a[:, None], b[None])
        yield case(f"{op} {np.dtype(dtype).name}", op, [a[:, None], b[None]], wanted, opset=14)
    for dtype in INTEGERS:
        a, name = extremes(dtype), np.dtype(dtype).name
        b = a[a != 0]
        rest = mapped(lambda x, y: int(math.copysign(1, x)) * (abs(x) % abs(y)), dtype, a[:, None], b[None])
        yield case(f"Mod {name} fmod=1", "Mod", [a[:, None], b[None]], rest, fmod=1, opset=13)
        less = mapped(lambda x, y: x < y, np.bool_, a[:, None], a[None])
        yield case(f"Less {name}", "Less", [a[:, None], a[None]], less)
        small = np.array([0, 1, 2, 3, 5], dtype)
        power = mapped(lambda x, y, d=dtype: wrapped(x**y, d), dtype, a[:, None], small[None])
        if np.dtype(dtype).itemsize >= 4 and np.iinfo(dtype).min:
            yield case(f"Pow {name}", "Pow", [a[:, None], small[None]], power, opset=15)
        bits = np.dtype(dtype).itemsize * 8
        by = np.array([0, 1, 3, bits - 1, bits, min(bits + 9, np.iinfo(dtype).max)], dtype)
        for direction in ("LEFT", "RIGHT"):
            signed = np.iinfo(dtype).min < 0
            shifted = mapped(
                lambda x, y, d=dtype, left=direction == "LEFT": wrapped(x << y if left else x >> y, d),
                dtype,
                a[:, None],
                by[None],
            )
            yield case(
                f"BitShift {name} {direction}",
                "BitShift",
                [a[:, None], by[None]],
                shifted,
                direction=direction,
                opset=28 if signed else 11,
            )
        for op, each in {"BitwiseAnd": int.__and__, "BitwiseXor": int.__xor__}.items():
            yield case(f"{op} {name}", op, [a[:, None], a[None]], mapped(each, dtype, a[:, None], a[None]))
        for op, one in {"Abs": abs, "Sign": lambda x: (x > 0) - (x < 0)}.items():
            yield case(f"{op} {name}", op, [a], mapped(lambda x, f=one, d=dtype: wrapped(f(x), d), dtype, a))


SMOOTH: dict[str, Any] = {
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Erf": np.frompyfunc(math.erf, 1, 1),
    "Reciprocal": lambda x: 1 / x,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: np.where(np.isinf(x), np.nan, x / (1 + np.abs(x))),
}
STEPS: dict[str, Any] = {
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Abs": np.abs,
    "Neg": np.negative,
    "Sign": np.sign,
    "Relu": lambda x: np.maximum(x, 0),
    "IsNaN": np.isnan,
    "IsInf": np.isinf,
}


def functions() -> Iterator[Case]:
    more = np.array(
        [-3.5, -0.75, 0.7, 4.5, 20.25, 5.5, 88.5, -88.0, 1e-4, 0.49999997, 8388609.0, -8388607.5], np.float32
    )
    for op, function in SMOOTH.items():
        x = np.concatenate([specials(np.float32), more])
        if op in ("Sigmoid", "Softplus"):
            x = x[x != -88]  # the result is below the normal numbers
        if op in ("Sin", "Cos", "Tan"):
            x = x[~(np.abs(x) > 1e5)]
        yield case(
            f"{op} float32", op, [x], np.asarray(function(x.astype(np.float64)), np.float64).astype(np.float32), ulps=8
        )
    for dtype, (op, function) in itertools.product(FLOATS, STEPS.items()):
        x = np.concatenate([specials(dtype), more.astype(dtype)])
        yield case(f"{op} {np.dtype(dtype).name}", op, [x], np.asarray(function(x)))


CASTS = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64",
)  # fmt: skip
SMALL = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")


def casts() -> Iterator[Case]:
    types = {name: numpy_type(name) for name in (*CASTS, *SMALL)}
    for source, target in itertools.permutations(CASTS, 2):
        x = (
            np.array([False, True])
            if source == "bool"
            else specials(types[source])
            if source in FORMATS
            else extremes(source)
        )
        if source in FORMATS and types[target].kind in "iu":  # beyond the range it is undefined
            wide, info = x.astype(np.float64), np.iinfo(types[target])
            x = x[(np.trunc(wide) >= info.min) & (np.trunc(wide) <= info.max)]
        wanted = mapped(lambda v, t=target: converted(v, t), types[target], x)
        yield case(f"Cast {source} to {target}", "Cast", [x], wanted, to=kind_of(types[target]), opset=21)
    for target, saturate in itertools.product(SMALL, (1, 0)):
        if target == "float8_e8m0fnu":
            continue
        around = np.unique(np.abs(np.arange(256, dtype=np.uint8).view(types["float8_e5m2"]).astype(np.float32)))
        x = np.concatenate([specials(np.float32), around, around * np.float32(1.0625), around * np.float32(1.125)])
        x = x[~np.isnan(x) & ~np.isinf(x)] if target == "float4_e2m1fn" else x
        yield case(
            f"Cast float32 to {target} saturate={saturate}",
            "Cast",
            [x],
            small_float(x, types[target], saturate),
            to=kind_of(types[target]),
            opset=23,
            **({} if target == "float4_e2m1fn" else {"saturate": saturate}),
        )


def numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def converted(value: Any, target: str) -> Any:
    if target == "bool":
        return value != 0
    if target in FORMATS:
        return nearest(value, target)
    return wrapped(int(value), target)


def small_float(x: Array, target: np.dtype[Any], saturate: int) -> Array:
    """The two tables of Cast; ml_dtypes rounds to even, and knows the types' infinities."""
    largest = float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
    wide = np.clip(x, -largest, largest) if saturate else x
    return wide.astype(target)


def quantised_pairs(op: str, a: Array, b: Array, scales: list[Array], zeros: list[Array]) -> Array:
    """A sum or a product of two quantised tensors, in fractions; halves go to even."""
    (sa, sb, sy), (za, zb, zy) = [Fraction(float(scale)) for scale in scales], [int(zero) for zero in zeros]

    def of_elements(p: int, q: int) -> int:
        x, y = sa * (p - za), sb * (q - zb)
        return min(max(round((x * y if op == "QLinearMul" else x + y) / sy) + zy, -128), 127)

    return mapped(of_elements, np.int8, a, b)


def quantisers() -> Iterator[Case]:
    for dtype, scale in itertools.product((np.int8, np.uint8, np.int16, np.uint16), (0.5, 0.1, 3.0)):
        info, step = np.iinfo(dtype), np.float32(scale)
        zero = np.array((info.min + info.max) // 2 + 3, dtype)
        x = np.concatenate([np.arange(-40, 40, dtype=np.float32) / 4, specials(np.float32)])

        def digits(v: float, step: Any = step, zero: Array = zero, info: Any = info) -> int:
            if math.isnan(v) or math.isinf(v):
                return info.max if v == math.inf else info.min
            return min(
                max(round(nearest(Fraction(v) / Fraction(float(step)), "float32")) + int(zero), info.min), info.max
            )

        x = x[np.abs(np.nan_to_num(x, posinf=0, neginf=0)) < 1e30]  # beyond, x / scale may be no float32
        name = f"{np.dtype(dtype).name}, scale {scale}"
        yield case(
            f"QuantizeLinear {name}",
            "QuantizeLinear",
            [x, step.reshape(()), zero],
            mapped(digits, dtype, x),
            constants=(1, 2),
            opset=21,
        )
        q = extremes(dtype)
        real = mapped(
            lambda v, step=step, zero=zero: nearest(Fraction(float(step)) * (v - int(zero)), "float32"), np.float32, q
        )
        yield case(
            f"DequantizeLinear {name}",
            "DequantizeLinear",
            [q, step.reshape(()), zero],
            real,
            constants=(1, 2),
            opset=21,
        )
    for name, x in (
        ("zeros", np.zeros(4, np.float32)),
        ("ties", np.arange(-30, 226, dtype=np.float32) / 2),
        ("above 0", np.array([1, 2, 255], np.float32)),
    ):
        for output, kind in enumerate((TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)):
            yield case(
                f"DynamicQuantizeLinear of {name}, result {output}",
                "DynamicQuantizeLinear",
                [x],
                None,
                output=output,
                outputs=3,
                result=kind,
                opset=13,
            )
    a, b = np.arange(-128, 128).astype(np.int8), np.arange(-120, 136, 5).astype(np.int8)
    scales = [np.array(each, np.float32) for each in (0.02, 0.05, 0.083)]
    zeros = [np.array(each, np.int8) for each in (-3, 10, 8)]
    for op in ("QLinearMul", "QLinearAdd"):
        yield case(
            op,
            op,
            [a[:, None], scales[0], zeros[0], b[None], scales[1], zeros[1], scales[2], zeros[2]],
            quantised_pairs(op, a[:, None], b[None], scales, zeros),
            constants=(1, 2, 4, 5, 6, 7),
            domain="com.microsoft",
        )
    m, n = a.reshape(16, 16), a[::-1].reshape(16, 16).copy()
    inputs = [m, scales[0], zeros[0], n, scales[1], zeros[1], np.array(0.9, np.float32), zeros[2]]
    total = (m.astype(int) - zeros[0]) @ (n.astype(int) - zeros[1])
    exact = mapped(
        lambda v: min(
            max(
                round(Fraction(float(scales[0])) * Fraction(float(scales[1])) * v / Fraction(float(np.float32(0.9))))
                + 8,
                -128,
            ),
            127,
        ),
        np.int8,
        total,
    )
    yield case("QLinearMatMul", "QLinearMatMul", inputs, exact, constants=(1, 2, 4, 5, 6, 7), opset=21)
    yield case(
        "MatMulInteger", "MatMulInteger", [m, n, zeros[0], zeros[1]], total.astype(np.int32), constants=(2, 3), opset=10
    )
