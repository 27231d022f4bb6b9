"""Expressions of the loop IR as LLVM values: scalars, or one value for all lanes of a vectorised loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import llvmlite.ir as ll

from ...tensor.evaluate import ITEM_BYTES, OPERATOR_VALUES, wrap
from ...tensor.ir import (
    FLOATS,
    INTEGER_RANGES,
    BinOp,
    Bits,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    Load,
    Select,
    Var,
)
from ...tensor.linear import Linear, linear_form
from ...tensor.visitor import free_vars, loads, walk_exprs
from ..errors import CompileError
from .floats import convert_float, from_memory, rounded, to_memory
from .llvm_types import (
    FLOAT,
    I8,
    I32,
    MEMORY_TYPES,
    REGISTER_TYPES,
    UNSIGNED,
    Int,
    Value,
    add,
    constant,
    i64,
    intrinsic,
    lanes_of,
    multiply,
    splat,
    type_suffix,
    with_lanes,
)
from .math_functions import Exponential, OtherFunction, emit_function, polynomial_exp

TABLE_BYTES = 256
"""Of a table with one for each value of eight bits."""

_FOLDED = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})
ARITHMETIC = ("add", "sub", "mul", "div")
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}


@dataclass(frozen=True)
class Memory:
    """Where a buffer is: its first element, and the distance in elements between neighbours along each dimension."""

    pointer: Value
    strides: tuple[int, ...]
    align: int = 0  # bytes that the first element's address is a multiple of; 0: those of an element


@dataclass(frozen=True)
class Lanes:
    """A vectorised loop: its variable is ``base``, ``base + 1``, ... in the lanes."""

    var: Var
    base: Int
    count: int


@dataclass
class Expressions:
    """Emits expressions at the builder's position. ``env`` holds the loop variables, ``memory`` the buffers;
    ``otherwise`` makes the functions that targets do not share, ``exponential`` exp in single precision.
    ``has_extremes``: whether there are instructions for the larger and smaller of two floats of single precision, nan
    where one is. ``looked_up``: bytes of a table at places in lanes, if there are instructions for it. ``held``:
    expressions whose values are known already. ``steady``: buffers that are not written as long as this stands, in code
    without branches, so that nothing of them is read twice. ``limited_bytes``: makes bytes of lanes of int32, with the
    least and the largest that they may become."""

    builder: ll.IRBuilder
    memory: dict[str, Memory]
    otherwise: OtherFunction
    exponential: Exponential = polynomial_exp
    has_extremes: bool = False
    env: dict[Var, Int] = field(default_factory=dict)
    lanes: Lanes | None = None
    looked_up: Callable[[ll.IRBuilder, Value, Value], Value | None] | None = None
    held: dict[Expr, Value] = field(default_factory=dict)
    steady: frozenset[str] = frozenset()
    limited_bytes: Callable[[ll.IRBuilder, Value, int, int], Value] | None = None
    _read: dict[object, Value] = field(default_factory=dict)

    # Integers that address memory

    def index(self, expr: Expr) -> Int:
        """A scalar ``int64``, folded where it is constant."""
        match expr:
            case Const(value):
                return int(value)
            case Var(name):
                if expr not in self.env:
                    raise CompileError(f"variable {name!r} has no value")
                return self.env[expr]
            case BinOp(op, a, b) if op in _FOLDED and a.dtype == "int64" and not _reads(expr):
                left, right = self.index(a), self.index(b)
                if isinstance(left, int) and isinstance(right, int) and (right or op not in ("floordiv", "mod")):
                    return int(OPERATOR_VALUES[op](left, right))
                if op == "add":
                    return add(self.builder, left, right)
                if op == "mul":
                    return multiply(self.builder, left, right)
                return self._integer_operator(op, i64(left), i64(right), "int64")
        return self.value(expr)

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Int, int, int]:
        """Flat position of an element as (computed part, constant part, distance between lanes), in elements."""
        total = Linear()
        for index, stride in zip(indices, self.memory[buffer.name].strides, strict=True):
            total = total.add(linear_form(index), stride)
        start: Int = 0
        known, step = total.constant, 0
        for atom, coefficient in total.terms.items():
            if self.lanes is not None and atom == self.lanes.var:
                step = coefficient
                value = self.lanes.base
            else:
                value = self.index(atom)
            if isinstance(value, int):
                known += value * coefficient
            else:
                start = add(self.builder, start, multiply(self.builder, value, coefficient))
        return start, known, step

    def address(self, buffer: Buffer, start: Int, known: int) -> Value:
        """Pointer to the element at ``start + known``. The constant is added last: it becomes part of instructions."""
        pointer = self.memory[buffer.name].pointer
        kind = MEMORY_TYPES[buffer.dtype]
        for part in (start, known):
            if not (isinstance(part, int) and part == 0):
                pointer = self.builder.gep(pointer, [i64(part)], inbounds=True, source_etype=kind)
        return pointer

    def hold_steady(self, buffers: frozenset[str]) -> None:
        """From here on these are the ``steady`` buffers."""
        self.steady = buffers
        self._read.clear()

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        if buffer.name not in self.steady:
            return self._load(buffer, indices)
        used = {var for index in indices for var in free_vars(index)}
        known = tuple((var, self.env[var]) for var in sorted(used & self.env.keys(), key=lambda var: var.name))
        key = buffer.name, indices, self.lanes, known
        if key not in self._read:
            self._read[key] = self._load(buffer, indices)
        return self._read[key]

    def _load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        if is_table_of_bytes(buffer, indices) and self._varies(indices[0]):
            return self._looked_up(buffer, indices[0])
        start, known, step = self.position(buffer, indices)
        kind = MEMORY_TYPES[buffer.dtype]
        size = ITEM_BYTES[buffer.dtype]
        if self.lanes is None or step == 0:
            loaded = self.builder.load(self.address(buffer, start, known), align=size, typ=kind)
        elif step == 1:
            wide = ll.VectorType(kind, self.lanes.count)
            loaded = self.builder.load(self.address(buffer, start, known), align=size, typ=wide)
        else:
            loaded = ll.Constant(ll.VectorType(kind, self.lanes.count), ll.Undefined)
            for lane in range(self.lanes.count):
                pointer = self.address(buffer, start, known + lane * step)
                single = self.builder.load(pointer, align=size, typ=kind)
                loaded = self.builder.insert_element(loaded, single, ll.Constant(I32, lane))
        return self._nonzero(loaded) if buffer.dtype == "bool" else from_memory(self.builder, loaded, buffer.dtype)

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        start, known, step = self.position(buffer, indices)
        size = ITEM_BYTES[buffer.dtype]
        value = self.memory_value(buffer, value)
        if self.lanes is not None and step == 1:
            value = splat(self.builder, value, self.lanes.count)
            self.builder.store(value, self.address(buffer, start, known), align=size)
        elif self.lanes is None:
            self.builder.store(value, self.address(buffer, start, known), align=size)
        else:
            value = splat(self.builder, value, self.lanes.count)
            for lane in range(self.lanes.count):
                single = self.builder.extract_element(value, ll.Constant(I32, lane))
                self.builder.store(single, self.address(buffer, start, known + lane * step), align=size)

    def memory_value(self, buffer: Buffer, value: Value) -> Value:
        """A value as it lies in a buffer's memory."""
        if buffer.dtype == "bool":
            value = self.builder.zext(value, with_lanes(I8, lanes_of(value)))
        return to_memory(self.builder, value, buffer.dtype)

    def _looked_up(self, buffer: Buffer, index: Expr) -> Value:
        """An entry of a table for each lane."""
        place = self.value(index)
        pointer = self.memory[buffer.name].pointer
        if self.looked_up and (found := self.looked_up(self.builder, pointer, place)) is not None:
            return found
        result = ll.Constant(ll.VectorType(I8, lanes_of(place)), ll.Undefined)
        for lane in range(lanes_of(place)):
            number = ll.Constant(I32, lane)
            entry = self.builder.gep(pointer, [self.builder.extract_element(place, number)], True, source_etype=I8)
            result = self.builder.insert_element(result, self.builder.load(entry, align=1, typ=I8), number)
        return result

    # Values

    def value(self, expr: Expr) -> Value:
        """A scalar where the expression is the same in all lanes, else a vector."""
        if self.held and expr in self.held:
            return self.held[expr]
        match expr:
            case Const(value):
                return constant(REGISTER_TYPES[expr.type], wrap(value, expr.type))
            case Var():
                return self._variable(expr)
            case Load(buffer, indices):
                return self.load(buffer, indices)
            case Cast("int8" | "uint8", BinOp("min", BinOp("max", x, Const(low)), Const(high)) as limited):
                return self._limited(expr.dtype, limited, x, low, high)
            case Cast(_, x):
                return self.convert(self.value(x), x.dtype, expr.dtype)
            case Bits(_, x):
                return self._same_bits(self.value(x), x.dtype, expr.dtype)
            case Call(function, args):
                values = self._together([self.value(arg) for arg in args])
                result = emit_function(self.builder, function, values, self.otherwise, self.exponential)
                return rounded(self.builder, result, expr.dtype)
            case Select(cond, a, b):
                return self._select(cond, a, b)
            case BinOp(op, a, b):
                if expr.dtype == "int64" and op in _FOLDED and not self._varies(expr) and not _reads(expr):
                    return i64(self.index(expr))
                left, right = self._together(self._factors(a, b) if op == "mul" else [self.value(a), self.value(b)])
                if op == "mul" and a.dtype == "float32" and _is_whole(a) and not _is_whole(b):
                    return self.builder.fmul(left, right)  # a dequantise: the same where another kernel stores it
                return self.operator(op, left, right, a.dtype, b)
        raise CompileError(f"{type(expr).__name__} has no machine code")

    def _limited(self, dtype: DType, limited: BinOp, x: Expr, low: float, high: float) -> Value:
        """A byte of ``limited``, which is ``x`` within ``low .. high``."""
        least, most = INTEGER_RANGES[dtype]
        if self.limited_bytes is None or x.dtype != "int32" or not least <= low <= high <= most:
            return self.convert(self.value(limited), x.dtype, dtype)
        value = self.value(x)
        if lanes_of(value):
            return self.limited_bytes(self.builder, value, int(low), int(high))
        for op, limit in (("max", low), ("min", high)):
            value = self.operator(op, value, constant(I32, int(limit)), "int32")
        return self.convert(value, "int32", dtype)

    def _variable(self, var: Var) -> Value:
        if self.lanes is None or var != self.lanes.var:
            return i64(self.index(var))
        kind = REGISTER_TYPES["int64"]
        steps = ll.Constant(ll.VectorType(kind, self.lanes.count), list(range(self.lanes.count)))
        return self.builder.add(splat(self.builder, i64(self.lanes.base), self.lanes.count), steps)

    def _varies(self, expr: Expr) -> bool:
        return self.lanes is not None and self.lanes.var in free_vars(expr)

    def _together(self, values: list[Value]) -> list[Value]:
        lanes = max(map(lanes_of, values))
        return [splat(self.builder, value, lanes) for value in values]

    def _factors(self, a: Expr, b: Expr) -> list[Value]:
        """Two factors. What all lanes share becomes a vector before it is widened to 64 bits: LLVM multiplies lanes one
        by one where it does not see that both had 32."""
        if self.held.keys().isdisjoint((a, b)):
            match a, b:
                case Cast("int64", x), Cast("int64", y) if x.dtype == y.dtype == "int32":
                    narrow = self._together([self.value(x), self.value(y)])
                    return [self.convert(each, "int32", "int64") for each in narrow]
        return [self.value(a), self.value(b)]

    def _select(self, cond: Expr, a: Expr, b: Expr) -> Value:
        decided = self._decided(cond)
        if decided is not None:
            return self.value(a if decided else b)
        chosen = self.value(cond)
        if not (_guards(cond, a) or _guards(cond, b)):
            both = self._together([chosen, self.value(a), self.value(b)])
            return self.builder.select(*both)
        if lanes_of(chosen):
            raise CompileError("a select that differs between lanes guards a load", hint="do not vectorise this loop")
        builder = self.builder
        taken, other, after = (builder.append_basic_block(name) for name in ("taken", "other", "after"))
        builder.cbranch(chosen, taken, other)
        ends: list[tuple[Value, Value]] = []
        varies = self.lanes is not None and (self._varies(a) or self._varies(b))
        lanes = self.lanes.count if self.lanes is not None and varies else 0
        for block, side in ((taken, a), (other, b)):
            builder.position_at_end(block)
            value = splat(builder, self.value(side), lanes)
            ends.append((value, builder.block))
            builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(ends[0][0].type)
        for value, block in ends:
            result.add_incoming(value, block)
        return result

    def _decided(self, cond: Expr) -> bool | None:
        """What a comparison of indices gives, where it is known, as of loops that are written out."""
        if not isinstance(cond, BinOp) or cond.op not in _COMPARISONS or cond.a.dtype != "int64" or _reads(cond):
            return None
        if self._varies(cond) or not all(isinstance(self.env.get(var), int) for var in free_vars(cond)):
            return None
        left, right = self.index(cond.a), self.index(cond.b)
        known = isinstance(left, int) and isinstance(right, int)
        return bool(OPERATOR_VALUES[cond.op](left, right)) if known else None

    def _nonzero(self, value: Value) -> Value:
        return self.builder.icmp_signed("!=", value, constant(I8, 0, lanes_of(value)))

    # Operators

    def operator(self, op: str, a: Value, b: Value, dtype: DType, right: Expr | None = None) -> Value:
        """``a op b`` for operands of type ``dtype``; ``right`` is the expression of ``b``, where it is known."""
        if dtype in FLOATS:
            result = self._float_operator(op, a, b, right)
            return rounded(self.builder, result, dtype) if op in ARITHMETIC else result
        return self._integer_operator(op, a, b, dtype)

    def _float_operator(self, op: str, a: Value, b: Value, right: Expr | None) -> Value:
        builder = self.builder
        simple = {"add": builder.fadd, "sub": builder.fsub, "mul": builder.fmul, "div": builder.fdiv}
        if op in simple:
            return simple[op](a, b, flags=["contract"])
        if op in _COMPARISONS:
            compare = builder.fcmp_unordered if op == "ne" else builder.fcmp_ordered
            return compare(_COMPARISONS[op], a, b)
        if self.has_extremes and with_lanes(FLOAT, lanes_of(a)) == a.type:
            return intrinsic(builder, f"llvm.{op}imum", a.type, [a, b])
        sign = "<" if op == "min" else ">"
        if isinstance(right, Const):  # of two numbers, one of which may be nan: a is taken unless it loses to b
            return builder.select(builder.fcmp_ordered("<" if op == "max" else ">", a, b), b, a)
        chosen = builder.select(builder.fcmp_ordered(sign, a, b), a, b)
        return builder.select(builder.fcmp_unordered("uno", a, a), a, chosen)

    def _integer_operator(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        builder = self.builder
        unsigned = dtype in UNSIGNED
        compare = builder.icmp_unsigned if unsigned else builder.icmp_signed
        if op in _COMPARISONS:
            return compare(_COMPARISONS[op], a, b)
        if op in ("min", "max"):
            name = f"llvm.{'u' if unsigned else 's'}{op}"
            return intrinsic(builder, name, a.type, [a, b])
        if op in ("floordiv", "mod"):
            return self._divide(op, a, b, unsigned)
        simple = {
            "add": builder.add, "sub": builder.sub, "mul": builder.mul, "and": builder.and_, "or": builder.or_,
            "shl": builder.shl, "shr": builder.lshr if unsigned else builder.ashr,
        }  # fmt: skip
        return simple[op](a, b)

    def _divide(self, op: str, a: Value, b: Value, unsigned: bool) -> Value:
        """Division that rounds down, and its rest. The machine's rounds toward zero."""
        builder = self.builder
        if unsigned:
            return builder.udiv(a, b) if op == "floordiv" else builder.urem(a, b)
        lanes = lanes_of(a)
        kind = b.type.element if lanes else b.type
        zero, one = constant(kind, 0, lanes), constant(kind, 1, lanes)
        if not isinstance(b, ll.Constant) or _is_minus_one(b):
            # The quotient of the smallest number by -1 does not fit, which stops the machine: negate instead.
            inverse = builder.icmp_signed("==", b, constant(kind, -1, lanes))
            divisor = builder.select(inverse, one, b)
            quotient = builder.select(inverse, builder.sub(zero, a), builder.sdiv(a, divisor))
            rest = builder.select(inverse, zero, builder.srem(a, divisor))
        else:
            quotient, rest = builder.sdiv(a, b), builder.srem(a, b)
        differ = builder.icmp_signed("<", builder.xor(rest, b), zero)
        low = builder.and_(builder.icmp_signed("!=", rest, zero), differ)
        if op == "floordiv":
            return builder.select(low, builder.sub(quotient, one), quotient)
        return builder.select(low, builder.add(rest, b), rest)

    def _same_bits(self, x: Value, source: DType, target: DType) -> Value:
        """``x`` of type ``source`` as ``Bits`` makes it a ``target``: as it lies in memory."""
        held, kind = to_memory(self.builder, x, source), with_lanes(MEMORY_TYPES[target], lanes_of(x))
        return from_memory(self.builder, held if held.type == kind else self.builder.bitcast(held, kind), target)

    def convert(self, x: Value, source: DType, target: DType) -> Value:
        """``x`` of type ``source`` as ``Cast`` makes it a ``target``."""
        builder, lanes = self.builder, lanes_of(x)
        kind = with_lanes(REGISTER_TYPES[target], lanes)
        if source == target:
            return x
        if target == "bool":
            zero = constant(REGISTER_TYPES[source], 0, lanes)
            return builder.fcmp_unordered("!=", x, zero) if source in FLOATS else builder.icmp_signed("!=", x, zero)
        if source in FLOATS and target in FLOATS:
            return convert_float(builder, x, source, target)
        if source in FLOATS and source != "float64" and (ITEM_BYTES[target] <= 2 or target == "int32"):
            return _to_signed(builder, x, INTEGER_RANGES[target], kind)
        if source in FLOATS:
            name = "llvm.fptoui.sat" if target in UNSIGNED else "llvm.fptosi.sat"
            return saturating(builder, name, x, kind)
        if target in FLOATS:
            return rounded(builder, (builder.uitofp if source in UNSIGNED else builder.sitofp)(x, kind), target)
        before, after = ITEM_BYTES[source], ITEM_BYTES[target]
        if source == "bool":
            return builder.zext(x, kind)
        if after < before:
            return builder.trunc(x, kind)
        if after == before:
            return x
        return builder.zext(x, kind) if source in UNSIGNED else builder.sext(x, kind)


_BELOW_INT32 = float((1 << 31) - 128)
"""The largest float32 that an int32 holds."""


def _to_signed(builder: ll.IRBuilder, x: Value, limits: tuple[int, int], kind: ll.Type) -> Value:
    """The nearest integer of 8, 16 or 32 bits. (LLVM's own conversion takes a vector apart, lane by lane.)"""
    lanes = lanes_of(x)
    low, high = limits
    largest = min(float(high), _BELOW_INT32)
    smallest, most = constant(FLOAT, float(low), lanes), constant(FLOAT, largest, lanes)
    number = builder.select(builder.fcmp_unordered("uno", x, x), constant(FLOAT, 0.0, lanes), x)
    number = builder.select(builder.fcmp_ordered(">", number, smallest), number, smallest)
    number = builder.select(builder.fcmp_ordered("<", number, most), number, most)
    wide = with_lanes(I32, lanes)
    value = builder.fptosi(number, wide)
    if largest < high:
        value = builder.select(builder.fcmp_ordered(">", x, most), constant(I32, high, lanes), value)
    return builder.trunc(value, kind) if kind != wide else value


def saturating(builder: ll.IRBuilder, name: str, x: Value, kind: ll.Type) -> Value:
    """Float to integer: the nearest one that fits, nan becomes 0."""
    return intrinsic(builder, name, kind, [x], f"{type_suffix(kind)}.{type_suffix(x.type)}")


def _is_minus_one(value: ll.Constant) -> bool:
    """Whether a constant, or a lane of it, is -1."""
    lanes = value.constant if isinstance(value.constant, list) else [value]
    return any(getattr(lane, "constant", lane) == -1 for lane in lanes)


def _reads(expr: Expr) -> bool:
    """Whether the expression is arithmetic on data, which wraps; that on loop variables never does."""
    return bool(loads(expr))


def _is_whole(expr: Expr) -> bool:
    """Whether a number is an integer that became a float, or the difference of two."""
    match expr:
        case Cast(_, x):
            return x.dtype not in FLOATS
        case BinOp("sub", a, b):
            return _is_whole(a) and (_is_whole(b) or isinstance(b, Const))
    return False


def _guards(cond: Expr, expr: Expr) -> bool:
    """Whether evaluating the expression where the condition does not ask for it could do harm: a load could be outside
    of its buffer, a divisor 0."""
    apart = says_nothing(cond)
    return any(
        (isinstance(node, Load) and not apart) or (isinstance(node, BinOp) and node.op in ("floordiv", "mod") and
                                                   not isinstance(node.b, Const))
        for node in walk_exprs(expr)
    )  # fmt: skip


def says_nothing(cond: Expr) -> bool:
    """Whether a condition is about floats or truth values in memory alone. No proof of bounds rests on such a one
    (`Facts.given`), so what it chooses between can be loaded in any case."""
    if isinstance(cond, BinOp) and cond.op in ("and", "or"):
        return says_nothing(cond.a) and says_nothing(cond.b)
    if isinstance(cond, BinOp):
        return cond.a.dtype in FLOATS
    return isinstance(cond, Load)


def is_table_of_bytes(buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
    """Whether a load is of a table of 256 bytes, at a place that is data."""
    return buffer.dtype == "int8" and buffer.shape == (TABLE_BYTES,) and _reads(indices[0])


def vectorisable(expr: Expr, var: Var) -> bool:
    """Whether all lanes of a loop over ``var`` can be computed at once: they walk memory with constant steps, or pick
    from a table of bytes, and none is guarded from another."""
    for node in walk_exprs(expr):
        if isinstance(node, Load) and not is_table_of_bytes(node.buffer, node.indices):
            for index in node.indices:
                if any(var in free_vars(atom) and atom != var for atom in linear_form(index).terms):
                    return False
        if (
            isinstance(node, Select)
            and var in free_vars(node.cond)
            and (_guards(node.cond, node.a) or _guards(node.cond, node.b))
        ):
            return False
    return True
