"""Each instruction against NumPy and Python's integers, on random and awkward values."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from weft.sim.ptx import PtxSyntaxError

from .lines import run

N = 256
DTYPES = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32, "u32": np.uint32,
          "s64": np.int64, "u64": np.uint64, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
          "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}  # fmt: skip
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38)


def values(kind: str, seed: int = 0) -> np.ndarray:
    """Random values of a type, and its awkward ones."""
    dtype, generator = np.dtype(DTYPES[kind]), np.random.default_rng([seed, *kind.encode()])
    if (kind[0] in "fb" and kind[1] not in "1364") or kind in ("f16", "f32", "f64", "bf16"):
        found = generator.normal(0, 10, N)
        found[: len(SPECIAL)] = SPECIAL
        generator.shuffle(found)
        with np.errstate(over="ignore"):
            return found.astype(dtype)
    ends = np.iinfo(dtype)
    found = generator.integers(ends.min, ends.max, N, dtype, endpoint=True)
    found[:8] = [ends.min, ends.max, 0, 1, ends.max - 1, 2, 3, ends.min + 1]
    generator.shuffle(found)
    return found


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal to the bit, but for what a nan holds; -0 is not 0."""
    assert found.dtype == wanted.dtype
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, wanted)
        return
    wide = [each.astype(np.float64) for each in (found, wanted)]
    np.testing.assert_array_equal(*wide)
    number = ~np.isnan(wide[0])
    np.testing.assert_array_equal(*(np.signbit(each)[number] for each in wide))


def wrapped(numbers: list[int], dtype: type) -> np.ndarray:
    bits = np.dtype(dtype).itemsize * 8
    unsigned = np.array([number % (1 << bits) for number in numbers], f"u{bits // 8}")
    return unsigned.view(dtype)


def ints(array: np.ndarray) -> list[int]:
    return [int(each) for each in array]


def quotient(a: int, b: int) -> int:
    return -1 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


INTEGER: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, bits: a + b, "sub": lambda a, b, bits: a - b, "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: (a * b) >> bits, "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b), "div": lambda a, b, bits: quotient(a, b),
    "rem": lambda a, b, bits: a - quotient(a, b) * b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", INTEGER)
def test_integer_arithmetic(name: str, kind: str) -> None:
    a, b = values(kind, 1), values(kind, 2)
    (found,) = run(f"{name}.{kind} D0, A0, A1;", [a, b], [DTYPES[kind]])
    bits = a.dtype.itemsize * 8
    wanted = [INTEGER[name](x, y, bits) for x, y in zip(ints(a), ints(b), strict=True)]
    same(found, wrapped(wanted, DTYPES[kind]))


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(kind: str) -> None:
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    a, b, c = values(kind, 1), values(kind, 2), values(wide, 3)
    found, added = run(f"mul.wide.{kind} D0, A0, A1; mad.wide.{kind} D1, A0, A1, A2;", [a, b, c], [DTYPES[wide]] * 2)
    products = [x * y for x, y in zip(ints(a), ints(b), strict=True)]
    same(found, wrapped(products, DTYPES[wide]))
    same(added, wrapped([x + y for x, y in zip(products, ints(c), strict=True)], DTYPES[wide]))


def test_integer_mad_abs_neg_and_saturation() -> None:
    a, b, c = (values("s32", seed) for seed in range(3))
    low, high, size, minus, clipped = run(
        "mad.lo.s32 D0, A0, A1, A2; mad.hi.s32 D1, A0, A1, A2; abs.s32 D2, A0; neg.s32 D3, A0; add.sat.s32 D4, A0, A1;",
        [a, b, c], [np.int32] * 5,
    )  # fmt: skip
    triples = list(zip(ints(a), ints(b), ints(c), strict=True))
    same(low, wrapped([x * y + z for x, y, z in triples], np.int32))
    same(high, wrapped([(x * y >> 32) + z for x, y, z in triples], np.int32))
    same(size, wrapped([abs(x) for x in ints(a)], np.int32))
    same(minus, wrapped([-x for x in ints(a)], np.int32))
    same(clipped, wrapped([min(max(x + y, -(1 << 31)), (1 << 31) - 1) for x, y, _ in triples], np.int32))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_float_arithmetic_is_rounded_once(name: str, kind: str) -> None:
    a, b = values(kind, 1), values(kind, 2)
    (found,) = run(f"{name}.rn.{kind} D0, A0, A1;", [a, b], [DTYPES[kind]])
    with np.errstate(all="ignore"):
        same(found, {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name](a, b))


def nearest(value: Fraction, dtype: type) -> float:
    """A fraction as the nearest float, ties to even."""
    near = float(value)  # Python rounds once, to double
    if dtype == np.float64:
        return near
    candidates = sorted({np.float32(near), *np.nextafter(np.float32(near), np.float32([-np.inf, np.inf]))})
    return float(min(candidates, key=lambda each: (abs(Fraction(float(each)) - value), int(each.view(np.int32)) & 1)))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_products_are_rounded_once(kind: str) -> None:
    dtype, generator = DTYPES[kind], np.random.default_rng(0)
    a, b = (generator.normal(size=N).astype(dtype) for _ in "ab")
    near = 1 + generator.normal(size=N) * 2.0 ** generator.integers(-60, 3, N)
    c = (-(a.astype(np.float64) * b) * near).astype(dtype)
    (found,) = run(f"fma.rn.{kind} D0, A0, A1, A2;", [a, b, c], [dtype])
    wanted = [nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype)
              for x, y, z in zip(a, b, c, strict=True)]  # fmt: skip
    np.testing.assert_array_equal(found, np.array(wanted, dtype))


@pytest.mark.parametrize(("way", "end"), [("rm", -math.inf), ("rp", math.inf), ("rz", 0.0)])
def test_rounding_in_a_direction(way: str, end: float) -> None:
    generator = np.random.default_rng(0)
    a, b, c = ((generator.normal(size=N) * 2.0 ** generator.integers(-40, 3, N)).astype(np.float32) for _ in "abc")
    fused, added, product, less = run(
        f"fma.{way}.f32 D0, A0, A1, A2; add.{way}.f32 D1, A0, A2; mul.{way}.f32 D2, A0, A1; sub.{way}.f32 D3, A0, A2;",
        [a, b, c], [np.float32] * 4,
    )  # fmt: skip
    x, y, z = ([Fraction(float(each)) for each in array] for array in (a, b, c))
    for found, wanted in (
        (fused, [p * q + r for p, q, r in zip(x, y, z, strict=True)]),
        (added, [p + r for p, r in zip(x, z, strict=True)]),
        (product, [p * q for p, q in zip(x, y, strict=True)]), (less, [p - r for p, r in zip(x, z, strict=True)]),
    ):  # fmt: skip
        for value, exact in zip(found, wanted, strict=True):
            near = np.float32(nearest(exact, np.float32))
            goal = -math.inf if end < 0 or (end == 0 and exact > 0) else math.inf
            beyond = Fraction(float(near)) > exact if goal < 0 else Fraction(float(near)) < exact
            assert value == (np.nextafter(near, np.float32(goal)) if beyond else near)


def test_a_fused_product_beside_a_tie() -> None:
    """1 + 2**-24 is half way between two floats; what a product of 2**-80 adds decides."""
    a = np.array([1 + 2**-12] * 2 + [2.0**-40] * 2, np.float32)
    b = np.array([1 - 2**-12] * 2 + [2.0**-40, -(2.0**-40)], np.float32)
    c = np.array([0.0, 2.0**-24, 1.0, 1.0], np.float32)
    (found,) = run("fma.rn.f32 D0, A0, A1, A2;", [a, b, c], [np.float32])
    wanted = [nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), np.float32)
              for x, y, z in zip(a, b, c, strict=True)]  # fmt: skip
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_leave_nans_out_or_keep_them(name: str, kind: str) -> None:
    a, b = values(kind, 1), values(kind, 2)
    a[:4], b[:4] = [0.0, -0.0, np.nan, np.nan], [-0.0, 0.0, 1.0, np.nan]
    pairs = list(zip(a.astype(float), b.astype(float), strict=True))
    choose = min if name == "min" else max

    def order(x: float) -> tuple[float, float]:
        return x, math.copysign(1, x)  # -0 is below 0

    without = [y if math.isnan(x) else x if math.isnan(y) else choose(x, y, key=order) for x, y in pairs]
    (found,) = run(f"{name}.{kind} D0, A0, A1;", [a, b], [DTYPES[kind]])
    same(found, np.array(without).astype(DTYPES[kind]))
    if kind != "f64":
        kept = [math.nan if math.isnan(x + y) and (math.isnan(x) or math.isnan(y)) else w
                for (x, y), w in zip(pairs, without, strict=True)]  # fmt: skip
        (found,) = run(f"{name}.NaN.{kind} D0, A0, A1;", [a, b], [DTYPES[kind]])
        same(found, np.array(kept).astype(DTYPES[kind]))


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("sqrt.rn.f32", np.sqrt), ("rcp.rn.f32", lambda a: np.float32(1) / a), ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2), ("abs.f32", np.abs), ("neg.f32", np.negative), ("tanh.approx.f32", np.tanh),
        ("sin.approx.f32", np.sin), ("cos.approx.f32", np.cos),
        ("rsqrt.approx.f32", lambda a: np.float32(1) / np.sqrt(a)),
        ("cvt.rni.f32.f32", np.rint), ("cvt.rzi.f32.f32", np.trunc), ("cvt.rmi.f32.f32", np.floor),
        ("cvt.rpi.f32.f32", np.ceil),
    ],
)  # fmt: skip
def test_functions(text: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    a = values("f32", 1)
    (found,) = run(f"{text} D0, A0;", [a], [np.float32])
    with np.errstate(all="ignore"):
        same(found, function(a))


def test_small_numbers_are_flushed_where_that_is_asked_for() -> None:
    a = np.array([1e-40, -1e-40, 1.0, 2e-38], np.float32)
    kept, flushed = run("add.rn.f32 D0, A0, 0f00000000; add.rn.ftz.f32 D1, A0, 0f00000000;", [a], [np.float32] * 2)
    np.testing.assert_array_equal(kept, a)
    np.testing.assert_array_equal(flushed, np.array([0, 0, 1.0, 2e-38], np.float32))


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16", "u16"])
@pytest.mark.parametrize("test", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_of_integers(test: str, kind: str) -> None:
    a, b = values(kind, 1), values(kind, 2)
    b[: N // 4] = a[: N // 4]
    (found,) = run(f"setp.{test}.{kind} %p1, A0, A1; selp.b32 D0, 1, 0, %p1;", [a, b], [np.uint32])
    python = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}[test]
    wanted = [getattr(x, python)(y) for x, y in zip(ints(a), ints(b), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, np.uint32))


@pytest.mark.parametrize(
    "test", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
)
def test_comparisons_of_floats_and_of_what_is_no_number(test: str) -> None:
    a, b = values("f32", 1), values("f32", 2)
    a[:6], b[:6] = [np.nan, 1, np.nan, 0.0, 1, 2], [1, np.nan, np.nan, -0.0, 1, 1]
    (found,) = run(f"setp.{test}.f32 %p1, A0, A1; selp.b32 D0, 1, 0, %p1;", [a, b], [np.uint32])
    nan = np.isnan(a) | np.isnan(b)
    tests = {"eq": a == b, "ne": (a != b) & ~nan, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    wanted = nan if test == "nan" else ~nan if test == "num" else tests[test[:2]] | (nan if len(test) == 3 else False)
    np.testing.assert_array_equal(found, wanted.astype(np.uint32))


def test_a_comparison_with_a_second_condition() -> None:
    a, b = values("s32", 1), values("s32", 2)
    for name, combine in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        lines = (
            f"setp.lt.s32 %p1, A1, 5; setp.lt.{name}.s32 %p2|%p3, A0, A1, !%p1;"
            "selp.b32 D0, 1, 0, %p2; selp.b32 D1, 1, 0, %p3;"
        )
        first, second = run(lines, [a, b], [np.uint32] * 2)
        np.testing.assert_array_equal(first, combine(a < b, ~(b < 5)).astype(np.uint32))
        np.testing.assert_array_equal(second, combine(~(a < b), ~(b < 5)).astype(np.uint32))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    kind = f"b{bits}"
    a, b = values(kind, 1), values(kind, 2)
    found = run(f"and.{kind} D0, A0, A1; or.{kind} D1, A0, A1; xor.{kind} D2, A0, A1; not.{kind} D3, A0;",
                [a, b], [DTYPES[kind]] * 4)  # fmt: skip
    for result, wanted in zip(found, (a & b, a | b, a ^ b, ~a), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_logic_of_three_by_its_table() -> None:
    a, b, c = (values("b32", seed) for seed in range(3))
    found = run("lop3.b32 D0, A0, A1, A2, 0xE8; lop3.b32 D1, A0, A1, A2, 0x96;", [a, b, c], [np.uint32] * 2)
    np.testing.assert_array_equal(found[0], (a & b) | (a & c) | (b & c))
    np.testing.assert_array_equal(found[1], a ^ b ^ c)


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "s16", "s32", "s64", "u32", "u64"])
def test_shifts_beyond_the_end_too(kind: str) -> None:
    a, by = values(kind, 1), np.random.default_rng(0).integers(0, 80, N).astype(np.uint32)
    bits, dtype = a.dtype.itemsize * 8, DTYPES[kind]
    if kind[0] == "b":
        (left,) = run(f"shl.{kind} D0, A0, A1;", [a, by], [dtype])
        same(left, wrapped([x << min(n, 100) for x, n in zip(ints(a), ints(by), strict=True)], dtype))
    (right,) = run(f"shr.{kind} D0, A0, A1;", [a, by], [dtype])
    same(right, wrapped([x >> min(n, bits) for x, n in zip(ints(a), ints(by), strict=True)], dtype))


def test_funnel_shifts() -> None:
    a, b = values("b32", 1), values("b32", 2)
    by = np.random.default_rng(0).integers(0, 70, N).astype(np.uint32)
    found = run(
        "shf.l.wrap.b32 D0, A0, A1, A2; shf.r.wrap.b32 D1, A0, A1, A2; shf.l.clamp.b32 D2, A0, A1, A2;"
        "shf.r.clamp.b32 D3, A0, A1, A2;", [a, b, by], [np.uint32] * 4,
    )  # fmt: skip
    for result, left, most in zip(found, (True, False, True, False), (31, 31, 32, 32), strict=True):
        both = [(y << 32) | x for x, y in zip(ints(a), ints(b), strict=True)]
        steps = [n & 31 if most == 31 else min(n, 32) for n in ints(by)]
        wanted = [(x << n) >> 32 if left else x >> n for x, n in zip(both, steps, strict=True)]
        np.testing.assert_array_equal(result, wrapped(wanted, np.uint32))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields(kind: str) -> None:
    bits, generator = int(kind[1:]), np.random.default_rng(0)
    a, b = values(kind, 1), values(f"b{bits}", 2)
    start, count = (generator.integers(0, bits + 9, N).astype(np.uint32) for _ in "ab")
    found, into = run(f"bfe.{kind} D0, A0, A2, A3; bfi.b{bits} D1, A0, A1, A2, A3;", [a, b, start, count],
                      [DTYPES[kind], np.dtype(f"u{bits // 8}")])  # fmt: skip

    def field(x: int, p: int, n: int) -> int:
        unsigned = x % (1 << bits)
        value = (unsigned >> p) & ((1 << n) - 1)
        if kind[0] == "s" and n:
            sign = unsigned >> min(p + n - 1, bits - 1) & 1
            inside = max(0, min(n, bits - p))
            value |= sign * ((1 << bits) - (1 << inside))
        return value

    def inserted(x: int, y: int, p: int, n: int) -> int:
        mask = ((1 << n) - 1) << p
        return (y & ~mask) | ((x % (1 << bits)) << p & mask)

    places = list(zip(ints(start), ints(count), strict=True))
    same(found, wrapped([field(x, p, n) for x, (p, n) in zip(ints(a), places, strict=True)], DTYPES[kind]))
    wanted = [inserted(x, y, p, n) for x, y, (p, n) in zip(ints(a), ints(b), places, strict=True)]
    np.testing.assert_array_equal(into, wrapped(wanted, np.dtype(f"u{bits // 8}")))


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_turning_bits(bits: int) -> None:
    a = values(f"b{bits}", 1) >> np.random.default_rng(0).integers(0, bits, N).astype(f"u{bits // 8}")
    found = run(f"clz.b{bits} D0, A0; popc.b{bits} D1, A0; brev.b{bits} D2, A0; bfind.u{bits} D3, A0;"
                f"bfind.s{bits} D4, A0;", [a], [np.uint32, np.uint32, a.dtype, np.uint32, np.uint32])  # fmt: skip
    np.testing.assert_array_equal(found[0], [bits - x.bit_length() for x in ints(a)])
    np.testing.assert_array_equal(found[1], [x.bit_count() for x in ints(a)])
    np.testing.assert_array_equal(found[2], wrapped([int(f"{x:0{bits}b}"[::-1], 2) for x in ints(a)], a.dtype))
    np.testing.assert_array_equal(found[3], wrapped([x.bit_length() - 1 for x in ints(a)], np.uint32))
    signed = [(~x if x < 0 else x).bit_length() - 1 for x in ints(a.view(f"i{bits // 8}"))]
    np.testing.assert_array_equal(found[4], wrapped(signed, np.uint32))


def test_permuted_bytes() -> None:
    a, b, c = (values("b32", seed) for seed in range(3))
    (found,) = run("prmt.b32 D0, A0, A1, A2;", [a, b, c], [np.uint32])

    def permuted(x: int, y: int, choice: int) -> int:
        data = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        picked = [choice >> 4 * place & 15 for place in range(4)]
        return int.from_bytes(
            bytes((255 * (data[each & 7] >> 7)) if each & 8 else data[each & 7] for each in picked), "little"
        )

    wanted = [permuted(*each) for each in zip(ints(a), ints(b), ints(c), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, np.uint32))


def test_moves_take_registers_apart_and_together() -> None:
    a = values("b32", 1)
    low, high, back = run("mov.b32 {D0, D1}, A0; mov.b32 D2, {D1, D0};", [a], [np.uint16, np.uint16, np.uint32])
    np.testing.assert_array_equal(low, (a & 0xFFFF).astype(np.uint16))
    np.testing.assert_array_equal(high, (a >> 16).astype(np.uint16))
    np.testing.assert_array_equal(back, (a << 16) | (a >> 16))


def test_dot_products_of_bytes() -> None:
    a, b, c = values("b32", 1), values("b32", 2), values("s32", 3)
    for kinds, dtypes in (("s32.s32", (np.int8, np.int8)), ("u32.s32", (np.uint8, np.int8))):
        (found,) = run(f"dp4a.{kinds} D0, A0, A1, A2;", [a, b, c], [np.int32])
        parts = [each.view(dtype).reshape(-1, 4).astype(np.int64) for each, dtype in zip((a, b), dtypes, strict=True)]
        same(found, wrapped(ints((parts[0] * parts[1]).sum(1) + c), np.int32))


INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_conversions_between_integers(source: str, target: str) -> None:
    a = values(source, 1)
    wide = a.astype(np.int16 if a.dtype.kind == "i" else np.uint16) if a.dtype.itemsize == 1 else a
    result = DTYPES[target] if target[1:] != "8" else {"s": np.int16, "u": np.uint16}[target[0]]
    plain, kept = run(f"cvt.{target}.{source} D0, A0; cvt.sat.{target}.{source} D1, A0;", [wide], [result] * 2)
    same(plain, wrapped(ints(a), DTYPES[target]).astype(result))
    ends = np.iinfo(DTYPES[target])
    same(kept, np.array([min(max(x, int(ends.min)), int(ends.max)) for x in ints(a)], DTYPES[target]).astype(result))


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("target", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("way", ["rni", "rzi", "rmi", "rpi"])
def test_floats_become_the_nearest_integers_that_fit(way: str, target: str, source: str) -> None:
    a = values(source, 1)
    edges = [s * 2.0**e + d for e in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for d in (-1, -0.5, 0, 0.5)]
    with np.errstate(over="ignore"):
        a[: len(edges)] = np.array(edges).astype(a.dtype)
    (found,) = run(f"cvt.{way}.{target}.{source} D0, A0;", [a], [DTYPES[target]])
    ends = np.iinfo(DTYPES[target])
    function = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[way]

    def one(x: float) -> int:
        if math.isnan(x):
            return 1 << (ends.bits - 1) if source == "f64" or ends.bits == 64 else 0
        if math.isinf(x):
            return int(ends.max if x > 0 else ends.min)
        return min(max(function(x), int(ends.min)), int(ends.max))

    same(found, wrapped([one(float(x)) for x in a], DTYPES[target]))


@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
def test_integers_as_floats(source: str, target: str) -> None:
    a = values(source, 1)
    a[N // 2 :] >>= a.dtype.type(a.dtype.itemsize * 8 - 13)
    (found,) = run(f"cvt.rn.{target}.{source} D0, A0;", [a], [DTYPES[target]])
    if target == "f16":
        with np.errstate(over="ignore"):
            wanted = np.array([float(x) if abs(x) < 1 << 50 else math.copysign(math.inf, x) for x in ints(a)])
            same(found, wanted.astype(np.float16))
    else:
        same(found, np.array([nearest(Fraction(x), DTYPES[target]) for x in ints(a)], DTYPES[target]))


@pytest.mark.parametrize(("target", "source"), [("f16", "f32"), ("f32", "f16"), ("f64", "f32"), ("f32", "f64"),
                                                ("f16", "f64"), ("bf16", "f32"), ("f32", "bf16")])  # fmt: skip
def test_conversions_between_floats(target: str, source: str) -> None:
    a = values(source, 1)
    narrows = np.dtype(DTYPES[target]).itemsize < a.dtype.itemsize
    (found,) = run(f"cvt{'.rn' if narrows else ''}.{target}.{source} D0, A0;", [a], [DTYPES[target]])
    with np.errstate(over="ignore"):
        same(found, a.astype(DTYPES[target]))


def test_pairs_of_halves() -> None:
    a, b = values("f32", 1), values("f32", 2)
    packed, total = run("cvt.rn.f16x2.f32 D0, A0, A1; add.f16x2 D1, D0, D0;", [a, b], [np.uint32] * 2)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = np.stack([b.astype(np.float16), a.astype(np.float16)], 1)
        same(packed.view(np.float16), halves.reshape(-1))
        same(total.view(np.float16), (halves + halves).reshape(-1))


def test_tf32_rounds_to_ten_bits() -> None:
    a = np.array([1 + 2**-11, 1 + 2**-10, 1 + 2**-11 - 2**-20, -1 - 2**-11, np.inf], np.float32)
    (found,) = run("cvt.rna.tf32.f32 D0, A0;", [a], [np.float32])
    np.testing.assert_array_equal(found, np.array([1 + 2**-10, 1 + 2**-10, 1, -1 - 2**-10, np.inf], np.float32))


@pytest.mark.parametrize(
    "line",
    [
        "cvt.rn.tf32.f32 D0, A0;",
        "frobnicate.b32 D0, A0;", "add.rz.f64 %rd9, %rd8, %rd8;", "cvt.rz.f16.f32 %h1, A0;",
        "fma.rn.relu.f16 %h1, %h1, %h1, %h1;",
        "shfl.sync.bfly.b32 D0, A0, 1, 31, 0xff;",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {D0}, {A0}, {A0}, {A0};",
        "wgmma.fence.sync.aligned;", "bar.sync 1, 16;", "add.u32 D0, A0, %nothing;", "bra nowhere;",
        "st.const.b32 [%rd0], A0;",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"^line \d+: \w+"):
        run(line, [values("b32")[:32]], [np.uint32])
