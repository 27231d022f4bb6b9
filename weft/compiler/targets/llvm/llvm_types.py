"""LLVM's types for those of the loop IR, and small helpers on values. A value is a scalar or a vector of lanes."""

from __future__ import annotations

from typing import Any, TypeAlias

import llvmlite.ir as ll

from ...tensor.ir import DType

Value: TypeAlias = Any
"""A value of llvmlite, which has no types."""

Int: TypeAlias = Any
"""An ``int64``: a Python integer where it is known, else a value."""

POINTER = ll.PointerType()
I1, I8, I16, I32, I64 = (ll.IntType(bits) for bits in (1, 8, 16, 32, 64))


class _BFloat(ll.Type):  # type: ignore[misc]
    """The type of bfloat16, which llvmlite lacks; only instructions that LLVM declares with it meet it."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


BFLOAT = _BFloat()
HALF, FLOAT, DOUBLE = ll.HalfType(), ll.FloatType(), ll.DoubleType()

REGISTER_TYPES: dict[DType, Any] = {
    "int8": I8,
    "uint8": I8,
    "int16": I16,
    "uint16": I16,
    "int32": I32,
    "uint32": I32,
    "int64": I64,
    "uint64": I64,
    "float16": FLOAT,
    "bfloat16": FLOAT,
    "float32": FLOAT,
    "float64": DOUBLE,
    "bool": I1,
}
MEMORY_TYPES: dict[DType, Any] = {**REGISTER_TYPES, "bool": I8, "float16": HALF, "bfloat16": I16}

UNSIGNED = ("uint8", "uint16", "uint32", "uint64", "bool")


def lanes_of(value: Value) -> int:
    """Lanes of a vector; 0 for a scalar."""
    return value.type.count if isinstance(value.type, ll.VectorType) else 0


def with_lanes(kind: Any, lanes: int) -> Any:
    """The type of a scalar (0 lanes) or of a vector."""
    return ll.VectorType(kind, lanes) if lanes else kind


def constant(kind: Any, value: Any, lanes: int = 0) -> Value:
    """A constant, the same in all lanes."""
    single = ll.Constant(kind, value)
    return ll.Constant(ll.VectorType(kind, lanes), [single] * lanes) if lanes else single


def splat(builder: ll.IRBuilder, value: Value, lanes: int) -> Value:
    """A scalar in all lanes; a vector as it is."""
    if not lanes or lanes_of(value):
        return value
    if isinstance(value, ll.Constant):
        return ll.Constant(ll.VectorType(value.type, lanes), [value] * lanes)
    kind = ll.VectorType(value.type, lanes)
    first = builder.insert_element(ll.Constant(kind, ll.Undefined), value, ll.Constant(I32, 0))
    mask = ll.Constant(ll.VectorType(I32, lanes), [ll.Constant(I32, 0)] * lanes)
    return builder.shuffle_vector(first, ll.Constant(kind, ll.Undefined), mask)


def i64(value: Int) -> Value:
    """An ``Int`` as a value."""
    return ll.Constant(I64, value) if isinstance(value, int) else value


def add(builder: ll.IRBuilder, a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    if isinstance(b, int) and b == 0:
        return a
    return builder.add(i64(a), i64(b), flags=["nsw"])


def multiply(builder: ll.IRBuilder, a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    for one, other in ((a, b), (b, a)):
        if isinstance(one, int) and one in (0, 1):
            return other if one else 0
    return builder.mul(i64(a), i64(b), flags=["nsw"])


def intrinsic(builder: ll.IRBuilder, name: str, result: Any, arguments: list[Value], suffix: str = "") -> Value:
    """A call of LLVM's intrinsic ``name``, whose overload is ``suffix`` or that of the result's type."""
    full = f"{name}.{suffix or type_suffix(result)}"
    kind = ll.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(declared(builder.module, full, kind), arguments)


def type_suffix(kind: Any) -> str:
    """How LLVM writes a type in the name of an intrinsic: ``v16f32``, ``i64``."""
    if isinstance(kind, ll.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ll.FloatType):
        return "f32"
    if isinstance(kind, ll.DoubleType):
        return "f64"
    return str(kind)


def declared(module: ll.Module, name: str, kind: ll.FunctionType) -> Value:
    """The function ``name`` of the module, declared if it is not yet."""
    known = module.globals.get(name)
    return known if known is not None else ll.Function(module, kind, name)
