"""Functions in OpenCL C for what the language leaves open, or does in another way than the loop IR means it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...tensor.ir import FLOATS, INTEGER_RANGES, DType
from ..loops.polynomials import (
    EXP,
    EXP_LARGEST,
    EXP_SMALLEST,
    EXP_STEPS,
    EXP_TINY,
    LOG2,
    LOG2_HIGH,
    LOG2_LOW,
    TANH,
    TANH_SMALL,
    WHOLE,
)

TYPES: dict[DType, str] = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
    "int64": "long", "uint64": "ulong", "bool": "uchar", "float16": "float", "bfloat16": "float", "float32": "float",
    "float64": "double",
}  # fmt: skip
"""Types of values as they are computed with."""

HALVES: tuple[DType, ...] = ("float16", "bfloat16")
MEMORY_TYPES: dict[DType, str] = {**TYPES, **dict.fromkeys(HALVES, "ushort")}
"""Types of values as they lie in memory."""

UNSIGNED: dict[DType, str] = {
    "int8": "uint", "uint8": "uint", "int16": "uint", "uint16": "uint", "int32": "uint", "uint32": "uint",
    "int64": "ulong", "uint64": "ulong",
}  # fmt: skip
"""Types in which integers are added and multiplied, so that they wrap."""


def _hex(value: float, kind: str = "float") -> str:
    return f"{float(value).hex()}{'f' if kind == 'float' else ''}"


def _least(dtype: DType) -> str:
    low, high = INTEGER_RANGES[dtype]
    kind = TYPES[dtype]
    return f"({kind})0" if not low else f"({kind})(-({kind}){high}{'l' * (dtype == 'int64')} - 1)"


def _most(dtype: DType) -> str:
    suffix = {"int64": "l", "uint64": "ul", "uint32": "u"}.get(dtype, "")
    return f"({TYPES[dtype]}){INTEGER_RANGES[dtype][1]}{suffix}"


def _of_integers(dtype: DType) -> Iterator[tuple[str, str]]:
    """Division that rounds down and its rest; the smaller and the larger; floats as the nearest integer that fits."""
    kind, unsigned = TYPES[dtype], UNSIGNED[dtype]
    for op, sign in (("min", "<"), ("max", ">")):
        yield f"{op}_{dtype}", f"{kind} {op}_{dtype}({kind} a, {kind} b) {{ return a {sign} b ? a : b; }}"
    low, high = INTEGER_RANGES[dtype]
    if low:
        # The quotient of the least number by -1 does not fit, which stops some machines.
        yield (
            f"mod_{dtype}",
            f"""{kind} mod_{dtype}({kind} a, {kind} b) {{
  const {kind} rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}""",
        )
        yield (
            f"floordiv_{dtype}",
            f"""{kind} floordiv_{dtype}({kind} a, {kind} b) {{
  if (b == -1) return ({kind})(({unsigned})0 - ({unsigned})a);
  const {kind} rest = a % b;
  return a / b - (rest != 0 && (rest < 0) != (b < 0));
}}""",
        )
    else:
        yield f"mod_{dtype}", f"{kind} mod_{dtype}({kind} a, {kind} b) {{ return a % b; }}"
        yield f"floordiv_{dtype}", f"{kind} floordiv_{dtype}({kind} a, {kind} b) {{ return a / b; }}"
    for wide in ("float", "double"):
        # The ends as floats are powers of two, or are rounded up to one: what is at or above it does not fit.
        name = f"to_{dtype}_of_{wide}"
        bottom, top = _hex(low, wide), _hex(high + 1, wide)
        yield (
            name,
            f"""{kind} {name}({wide} x) {{
  return x != x ? ({kind})0 : x <= {bottom} ? {_least(dtype)} : x >= {top} ? {_most(dtype)} : ({kind})x;
}}""",
        )


def _of_floats(dtype: DType) -> Iterator[tuple[str, str]]:
    """The smaller and the larger, of which one may be nan, and so is the result."""
    kind = TYPES[dtype]
    for op, sign in (("min", "<"), ("max", ">")):
        name = f"{op}_{dtype}"
        yield name, f"{kind} {name}({kind} a, {kind} b) {{ return a != a || a {sign} b ? a : b; }}"


def _polynomial(coefficients: Sequence[float], x: str) -> str:
    text = _hex(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        text = f"fma({text}, {x}, {_hex(coefficient)})"
    return text


_WRITTEN = {
    "from_float16": """float from_float16(ushort bits) {
  const uint sign = (uint)(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x400u) return as_float(sign | as_uint((float)rest * 0x1p-24f));
  return as_float(sign | ((rest + 0x1c000u) << 13));
}""",
    # Below the smallest normal number steps are 2**-24: adding a half rounds to them.
    "bits_float16": """ushort bits_float16(float x) {
  const uint sign = (as_uint(x) >> 16) & 0x8000u, size = as_uint(x) & 0x7fffffffu;
  if (size > 0x7f800000u) return (ushort)(sign | 0x7e00u | ((size >> 13) & 0x3ffu));
  if (size >= 0x477ff000u) return (ushort)(sign | 0x7c00u);
  if (size < 0x38800000u) return (ushort)(sign | (as_uint(as_float(size) + 0.5f) - 0x3f000000u));
  return (ushort)(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
}""",
    "to_float16": "float to_float16(float x) { return from_float16(bits_float16(x)); }",
    "from_bfloat16": "float from_bfloat16(ushort bits) { return as_float((uint)bits << 16); }",
    "bits_bfloat16": """ushort bits_bfloat16(float x) {
  const uint bits = as_uint(x);
  return (ushort)((x != x ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}""",
    "to_bfloat16": "float to_bfloat16(float x) { return from_bfloat16(bits_bfloat16(x)); }",
    "to_bfloat16_of_double": "float to_bfloat16_of_double(double x) { return to_bfloat16((float)x); }",
    # By way of a float of which the last bit tells on which side of a tie it was.
    "to_float16_of_double": """float to_float16_of_double(double x) {
  const float near = (float)x;
  if (x != x || (double)near == x) return to_float16(near);
  return to_float16(as_float((as_uint(near) - (fabs((double)near) > fabs(x))) | 1u));
}""",
    # As in LLVM: nan goes through, and where results may be denormal the power is larger at first.
    "exp_float": f"""float exp_float(float x) {{
  float c = x < {_hex(EXP_SMALLEST)} ? {_hex(EXP_SMALLEST)} : x;
  c = c > {_hex(EXP_LARGEST)} ? {_hex(EXP_LARGEST)} : c;
  const int tiny = c < {_hex(EXP_TINY)};
  const float shifted = fma(c, {_hex(1 / LOG2)}, {_hex(WHOLE)}), count = shifted - {_hex(WHOLE)};
  const float r = fma(count, {_hex(-LOG2_LOW)}, fma(count, {_hex(-LOG2_HIGH)}, c));
  const uint offset = tiny ? {126 + EXP_STEPS << 23}u : {126 << 23}u;
  const float value = {_polynomial([2 * each for each in EXP], "r")} * as_float((as_uint(shifted) << 23) + offset);
  return tiny ? value * {_hex(2.0**-EXP_STEPS)} : value;
}}""",
    "tanh_float": f"""float tanh_float(float x) {{
  const float size = fabs(x), square = x * x;
  const float near = x * {_polynomial(TANH, "square")};
  const float far = 1.0f - 2.0f / (exp_float(size * 2.0f) + 1.0f);
  return size < {_hex(TANH_SMALL)} ? near : copysign(far, x);
}}""",
}


def _all() -> Iterator[tuple[str, str]]:
    yield from _WRITTEN.items()
    for dtype in INTEGER_RANGES:
        if dtype != "bool":
            yield from _of_integers(dtype)
    for dtype in FLOATS:
        yield from _of_floats(dtype)


FUNCTIONS: dict[str, str] = dict(_all())
"""All functions by name. What a function calls stands before it."""


def function_text(names: Iterable[str]) -> str:
    """The functions of these names, and those that they call."""
    wanted, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [called for called in re.findall(r"(\w+)\(", FUNCTIONS[name]) if called in FUNCTIONS]
    return "\n".join(text for name, text in FUNCTIONS.items() if name in wanted)
