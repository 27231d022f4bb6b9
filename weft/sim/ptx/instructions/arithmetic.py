"""Arithmetic, comparisons and functions. Floats are rounded once; approximate functions are NumPy's."""

from __future__ import annotations

import numpy as np

from ..parser import Instruction
from ..state import Lanes, State
from ..types import BITS, COMPUTED, Array, is_float, is_signed
from .registry import Compute, Step, computed, one_of, operation, pairs, unknown

_HALVES = ("f16", "bf16")


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once; in double precision with an error that seldom reaches the last place."""
    if a.dtype == np.float64:
        return _fma_double(a, b, c)
    if a.dtype != np.float32:
        return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype)
    product = a.astype(np.float64) * b  # exact
    total = np.atleast_1d(product + c)
    ties = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    if ties.any():  # rounding to double may have made a tie where there was none
        whole = np.broadcast_arrays(product, np.asarray(c, np.float64), total)
        product, other = whole[0], whole[1]
        virtual = total - product
        error = (product - (total - virtual)) + (other - virtual)
        toward = np.where(error > 0, np.inf, -np.inf)
        total = np.where(ties & (error != 0), np.nextafter(total, toward), total)
    return total.astype(np.float32)


def directed(way: str) -> Compute:
    """``a * b + c`` in single precision, rounded toward zero (``rz``), down (``rm``) or up (``rp``)."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        product = a.astype(np.float64) * b  # exact
        other = np.asarray(c, np.float64)
        total = product + other
        virtual = total - product
        error = (product - (total - virtual)) + (other - virtual)
        near = total.astype(np.float32)
        above = (near > total) | ((near == total) & (error < 0))
        below = (near < total) | ((near == total) & (error > 0))
        down = above & ((way == "rm") | ((way == "rz") & (total > 0)))
        up = below & ((way == "rp") | ((way == "rz") & (total < 0)))
        lower, upper = (np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))
        result: Array = np.where(down, lower, np.where(up, upper, near))
        return result

    return compute


_DIRECTED = ("rz", "rm", "rp")


def _way(instruction: Instruction) -> str:
    """The rounding that is not to nearest, or nothing."""
    found = next((each for each in instruction.modifiers if each in _DIRECTED), "")
    if found and instruction.type != "f32":
        raise unknown(instruction, found)
    return found


def _halves_of(value: Array) -> tuple[Array, Array]:
    """A double as the sum of two of 26 bits."""
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    total = product + c
    (a_high, a_low), (b_high, b_low) = _halves_of(a), _halves_of(b)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    virtual = total - product
    lost = lost + ((product - (total - virtual)) + (c - virtual))
    exact = total + lost
    return np.where(np.isfinite(lost), exact, total)


def high_product(a: Array, b: Array) -> Array:
    """The upper 64 bits of products of 64-bit integers."""
    low = np.uint64(0xFFFFFFFF)
    bits = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> bits, y & low, y >> bits
    middle = x1 * y0 + (x0 * y0 >> bits)
    other = x0 * y1 + (middle & low)
    result = x1 * y1 + (middle >> bits) + (other >> bits)
    if a.dtype == np.int64:
        result = result - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return np.asarray(result).view(a.dtype)


_SIMPLE: dict[str, Compute] = {"add": np.add, "sub": np.subtract}


@operation("add", "sub", modifiers="rn rz rm rp ftz sat")
def _add(state: State, instruction: Instruction, counted: bool) -> Step:
    compute, kind = _SIMPLE[instruction.operation], instruction.type
    if kind.endswith("x2"):
        return pairs(state, instruction, compute)
    if way := _way(instruction):
        sign, rounded = np.float32(1 if instruction.operation == "add" else -1), directed(way)
        return computed(state, instruction, lambda a, b: rounded(b, sign, a))
    if "sat" in instruction.modifiers and kind == "s32":
        ends = np.iinfo(np.int32)
        return computed(state, instruction, lambda a, b: np.clip(compute(a.astype(np.int64), b), ends.min, ends.max))
    return computed(state, instruction, compute)


@operation("mul", modifiers="rn rz rm rp ftz sat lo hi wide")
def _mul(state: State, instruction: Instruction, counted: bool) -> Step:
    kind = instruction.type
    if kind.endswith("x2"):
        return pairs(state, instruction, np.multiply)
    if way := _way(instruction):
        rounded = directed(way)
        return computed(state, instruction, lambda a, b: rounded(a, b, np.float32(0)))
    if "wide" in instruction.modifiers:
        wide = COMPUTED[f"{kind[0]}{2 * BITS[kind]}"]
        return computed(state, instruction, lambda a, b: a.astype(wide) * b.astype(wide), f"{kind[0]}{2 * BITS[kind]}")
    if "hi" in instruction.modifiers:
        return computed(state, instruction, _high(kind))
    return computed(state, instruction, np.multiply)


def _high(kind: str) -> Compute:
    if BITS[kind] == 64:
        return high_product
    wide = COMPUTED[f"{kind[0]}64"]
    return lambda a, b: (a.astype(wide) * b.astype(wide)) >> wide.type(BITS[kind])


@operation("mad", modifiers="rn ftz lo hi wide")
def _mad(state: State, instruction: Instruction, counted: bool) -> Step:
    kind = instruction.type
    if is_float(kind):
        return computed(state, instruction, fma)
    if "wide" in instruction.modifiers:
        result = f"{kind[0]}{2 * BITS[kind]}"
        a, b = (state.operand(each, kind, instruction) for each in instruction.operands[1:3])
        c = state.operand(instruction.operands[3], result, instruction)
        wide = COMPUTED[result]

        def run(lanes: Lanes) -> None:
            state.put(instruction.operands[0], lanes, a(lanes).astype(wide) * b(lanes).astype(wide) + c(lanes))

        return run
    if "hi" in instruction.modifiers:
        high = _high(kind)
        return computed(state, instruction, lambda a, b, c: high(a, b).astype(a.dtype) + c)
    return computed(state, instruction, lambda a, b, c: a * b + c)


@operation("fma", modifiers="rn rz rm rp ftz sat relu")
def _fma(state: State, instruction: Instruction, counted: bool) -> Step:
    if "relu" in instruction.modifiers:
        raise unknown(instruction, "relu")
    if instruction.type.endswith("x2"):
        return pairs(state, instruction, fma)
    if way := _way(instruction):
        return computed(state, instruction, directed(way))
    return computed(state, instruction, fma)


@operation("min", "max", modifiers="ftz NaN")
def _extreme(state: State, instruction: Instruction, counted: bool) -> Step:
    least, kind = instruction.operation == "min", instruction.type
    if not is_float(kind.removesuffix("x2")):
        return computed(state, instruction, np.minimum if least else np.maximum)
    if "NaN" in instruction.modifiers:
        compute: Compute = np.minimum if least else np.maximum
    else:
        compute = np.fmin if least else np.fmax

    def signed(a: Array, b: Array) -> Array:
        """-0 is below 0."""
        both = (a == 0) & (b == 0)
        negative = (np.signbit(a) | np.signbit(b)) if least else (np.signbit(a) & np.signbit(b))
        zero = np.where(negative, -np.float32(0), np.float32(0)).astype(a.dtype)
        result: Array = np.where(both, zero, compute(a, b))
        return result

    return pairs(state, instruction, signed) if kind.endswith("x2") else computed(state, instruction, signed)


def _toward_zero(a: Array, b: Array) -> Array:
    """A quotient without its fraction; for a divisor of 0 all bits are set, as devices do."""
    zero = b == 0
    if a.dtype.kind == "u":
        return np.where(zero, ~a.dtype.type(0), a // np.where(zero, a.dtype.type(1), b))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    sizes = [np.where(each < 0, -each, each).view(unsigned) for each in np.broadcast_arrays(a, b)]
    quotient = (sizes[0] // np.where(zero, unsigned.type(1), sizes[1])).view(a.dtype)
    return np.where(zero, a.dtype.type(-1), np.where((a < 0) ^ (b < 0), -quotient, quotient))


@operation("div", modifiers="rn ftz full approx")
def _div(state: State, instruction: Instruction, counted: bool) -> Step:
    return computed(state, instruction, np.divide if is_float(instruction.type) else _toward_zero)


@operation("rem")
def _rem(state: State, instruction: Instruction, counted: bool) -> Step:
    return computed(state, instruction, lambda a, b: a - _toward_zero(a, b) * b)


_FUNCTIONS: dict[str, Compute] = {
    "abs": np.abs, "neg": np.negative, "sqrt": np.sqrt, "rcp": lambda a: a.dtype.type(1) / a,
    "rsqrt": lambda a: a.dtype.type(1) / np.sqrt(a), "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh,
}  # fmt: skip


@operation(*_FUNCTIONS, modifiers="rn ftz approx sat")
def _function(state: State, instruction: Instruction, counted: bool) -> Step:
    compute, kind = _FUNCTIONS[instruction.operation], instruction.type
    if not is_float(kind.removesuffix("x2")) and instruction.operation not in ("abs", "neg"):
        raise unknown(instruction, kind)
    if kind in _HALVES and instruction.operation not in ("abs", "neg"):
        return computed(state, instruction, lambda a: compute(a.astype(np.float32)))
    return pairs(state, instruction, compute) if kind.endswith("x2") else computed(state, instruction, compute)


@operation("copysign")
def _copysign(state: State, instruction: Instruction, counted: bool) -> Step:
    return computed(state, instruction, lambda sign, size: np.copysign(size, sign))


_TESTS: dict[str, Compute] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {f"{name}u": name for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@operation("setp", modifiers=" ".join([*_TESTS, *_UNORDERED, "num", "nan", "and", "or", "xor", "ftz"]))
def _setp(state: State, instruction: Instruction, counted: bool) -> Step:
    kind = instruction.type
    test = one_of(instruction, (*_TESTS, *_UNORDERED, "num", "nan"))
    a, b = (state.operand(each, kind, instruction) for each in instruction.operands[1:3])
    first, _, second = instruction.operands[0].partition("|")
    combine = next((each for each in instruction.modifiers if each in ("and", "or", "xor")), "")
    if bool(combine) != (len(instruction.operands) == 4):
        raise unknown(instruction, "in this form")
    other, inverse = None, False
    if combine:
        other = state.operand(instruction.operands[3].lstrip("!"), "pred", instruction)
        inverse = instruction.operands[3].startswith("!")

    def combined(holds: Array, lanes: Lanes) -> Array:
        if other is None:
            return holds
        also = other(lanes) ^ inverse
        return holds & also if combine == "and" else holds | also if combine == "or" else holds ^ also

    def run(lanes: Lanes) -> None:
        x, y = a(lanes), b(lanes)
        if is_float(kind):
            nan = np.isnan(x) | np.isnan(y)
            if test in ("num", "nan"):
                holds = nan if test == "nan" else ~nan
            elif test in _UNORDERED:
                holds = _TESTS[_UNORDERED[test]](x, y) | nan
            else:
                holds = _TESTS[test](x, y) & ~nan
        else:
            holds = _TESTS[test](x, y)
        state.put(first, lanes, combined(holds, lanes))
        if second:
            state.put(second, lanes, combined(~holds, lanes))

    return run


@operation("selp")
def _selp(state: State, instruction: Instruction, counted: bool) -> Step:
    a, b = (state.operand(each, instruction.type, instruction) for each in instruction.operands[1:3])
    chosen = state.operand(instruction.operands[3], "pred", instruction)
    return lambda lanes: state.put(
        instruction.operands[0], lanes, np.where(chosen(lanes), a(lanes), b(lanes)).astype(COMPUTED[instruction.type])
    )


@operation("testp", modifiers="finite infinite number notanumber normal subnormal")
def _testp(state: State, instruction: Instruction, counted: bool) -> Step:
    test, source = instruction.modifiers[0], state.operand(instruction.operands[1], instruction.type, instruction)
    least = np.finfo(COMPUTED[instruction.type]).smallest_normal
    tests: dict[str, Compute] = {
        "finite": np.isfinite, "infinite": np.isinf, "number": lambda a: ~np.isnan(a), "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= least),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < least),
    }  # fmt: skip
    return lambda lanes: state.put(instruction.operands[0], lanes, tests[test](source(lanes)))


@operation("dp4a")
def _dp4a(state: State, instruction: Instruction, counted: bool) -> Step:
    kinds = instruction.types
    a, b = (state.operand(each, "b32", instruction) for each in instruction.operands[1:3])
    c = state.operand(instruction.operands[3], "s32", instruction)

    def bytes_of(values: Array, kind: str) -> Array:
        each = np.ascontiguousarray(values)[:, None].view(np.int8 if is_signed(kind) else np.uint8)
        return each.astype(np.int32)

    def run(lanes: Lanes) -> None:
        total = (bytes_of(a(lanes), kinds[0]) * bytes_of(b(lanes), kinds[1])).sum(1, dtype=np.int32) + c(lanes)
        state.put(instruction.operands[0], lanes, total)

    return run
