"""Declaring tensor intrinsics: the operand tiles, the immediates and the meaning of one hardware instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .errors import IRError
from .ir import (
    Buffer,
    Const,
    DType,
    Expr,
    IntrinsicCall,
    Load,
    Operand,
    OperandMode,
    ScalarParam,
    Stmt,
    Store,
    TensorIntrinsic,
    Var,
    loop_nest,
    row_major_strides,
)
from .visitor import free_vars, loads, map_exprs, substitute, walk_exprs


def tile(
    name: str,
    shape: tuple[int, ...],
    dtype: DType,
    scope: str,
    mode: OperandMode,
    *,
    strides: tuple[int | None, ...] | None = None,
    align: int | None = None,
) -> Operand:
    """An operand. ``strides`` default to row-major, ``align`` to the tile's size (all counted in elements).

    A stride of None is a field of the instruction: the tile's steps along that dimension, which is indexed with one
    loop variable, are those of the buffer.
    """
    strides = row_major_strides(shape) if strides is None else strides
    if len(strides) != len(shape):
        raise IRError(f"operand {name!r} has {len(shape)} dimensions, but {len(strides)} strides")
    size = Buffer(name, shape, dtype, scope).size
    return Operand(name, shape, dtype, scope, mode, strides, size if align is None else align)


def scalar(name: str, dtype: DType = "int64", low: int | None = None, high: int | None = None) -> ScalarParam:
    """An immediate; ``low`` and ``high`` bound the constants it accepts."""
    return ScalarParam(name, dtype, low, high)


def tensor_intrinsic(
    name: str,
    *,
    operands: Sequence[Operand],
    loops: Mapping[str, int],
    meaning: Callable[..., Store],
    scalars: Sequence[ScalarParam] = (),
    emits: object = None,
) -> TensorIntrinsic:
    """Declare an intrinsic.

    ``meaning`` is called once, with every operand (a Buffer of the tile's shape), every scalar and every loop variable
    (Vars) as keyword arguments, and returns the one store inside the loops:

        gemm = tensor_intrinsic(
            "gemm",
            operands=[tile("acc", (1, 16), "int32", "acc", "inout"), tile("inp", (1, 16), "int8", "inp", "in"),
                      tile("wgt", (16, 16), "int8", "wgt", "in")],
            loops={"o": 16, "k": 16},
            meaning=lambda acc, inp, wgt, o, k: acc.store(
                (0, o), acc[0, o] + inp[0, k].astype("int32") * wgt[o, k].astype("int32")),
            emits=isa.Gemm,
        )

    IRError if the meaning does not agree with the declared modes.
    """
    names = [operand.name for operand in operands] + [param.name for param in scalars] + list(loops)
    reserved = sorted(set(names) & {"over", "init", "init_value"})
    if reserved:
        raise IRError(f"intrinsic {name!r} uses the name {reserved[0]!r}, which the text form of calls needs")
    twice = sorted({word for word in names if names.count(word) > 1})
    if twice:
        raise IRError(f"intrinsic {name!r} declares {', '.join(map(repr, twice))} twice")
    tiles = {operand.name: operand.tile for operand in operands}
    params = {param.name: Var(param.name, param.dtype) for param in scalars}
    variables = {loop: Var(loop) for loop in loops}
    store = meaning(**tiles, **params, **variables)
    body: Stmt = loop_nest([(variables[loop], Const(extent)) for loop, extent in loops.items()], store)
    intrinsic = TensorIntrinsic(name, tuple(operands), tuple(scalars), body, emits)
    _check_modes(intrinsic)
    return intrinsic


def _check_modes(intrinsic: TensorIntrinsic) -> None:
    store = intrinsic.store
    read = {node.buffer.name for node in loads(store.value)}
    for operand in intrinsic.operands:
        is_read, is_written = operand.name in read, operand.name == store.buffer.name
        mode = {(True, True): "inout", (True, False): "in", (False, True): "out"}.get((is_read, is_written))
        if mode != operand.mode:
            raise IRError(
                f"operand {operand.name!r} of intrinsic {intrinsic.name!r} is declared {operand.mode!r}, "
                f"but its meaning {'does not use it' if mode is None else f'uses it as {mode!r}'}"
            )
    loops = {var for var, _ in intrinsic.loops}
    reads = [(node.buffer, node.indices) for node in loads(store.value)]
    for buffer, indices in [(store.buffer, store.indices), *reads]:
        operand = next(each for each in intrinsic.operands if each.name == buffer.name)
        for stride, index in zip(operand.strides, indices, strict=True):
            if stride is None and index not in loops:
                raise IRError(
                    f"operand {operand.name!r} of intrinsic {intrinsic.name!r} has a dimension without a stride, "
                    "which is not indexed with a loop variable"
                )
    addressed = {var for index in store.indices for var in free_vars(index)}
    repeated = [var.name for var, extent in intrinsic.loops if extent > 1 and var not in addressed]
    if repeated and store.buffer.name not in read:
        raise IRError(
            f"loop {repeated[0]!r} of intrinsic {intrinsic.name!r} stores to the same elements again and again",
            hint="accumulate into the output, or leave the loop out",
        )
    for node in walk_exprs(store.value):
        if isinstance(node, Load) and node.buffer == store.buffer and node.indices != store.indices:
            raise IRError(f"intrinsic {intrinsic.name!r} reads its output {store.buffer.name!r} at another element")


def flat_buffer(buffer: Buffer) -> Buffer:
    """The same memory seen as one dimension."""
    return Buffer(buffer.name, (buffer.size,), buffer.dtype, buffer.scope)


def call_loops(call: IntrinsicCall) -> tuple[tuple[tuple[Var, int], ...], Store]:
    """What a call computes, as loops (variables prefixed with a dot, so that they are fresh) around one store.

    Buffers are accessed through ``flat_buffer``; the initial value of ``call.init`` is not part of it.
    """
    fresh = {var: Var("." + var.name) for var, _ in call.intrinsic.loops}
    bindings: dict[Var, Expr] = {**fresh}
    for param in call.intrinsic.scalars:
        bindings[Var(param.name, param.dtype)] = call.scalar(param.name)

    def address(name: str, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        region = call.operand(name)
        position = region.offset
        for index, stride in zip(indices, region.strides, strict=True):
            position = position + index * stride
        return flat_buffer(region.buffer), (position,)

    def rule(node: Expr) -> Expr | None:
        return Load(*address(node.buffer.name, node.indices)) if isinstance(node, Load) else None

    store = call.intrinsic.store
    # Substitute first: the regions' own indices may use loop variables of the same name as the intrinsic's.
    indices = tuple(substitute(index, bindings) for index in store.indices)
    value = map_exprs(substitute(store.value, bindings), rule)
    loops = tuple((fresh[var], extent) for var, extent in call.intrinsic.loops)
    return loops, Store(*address(store.buffer.name, indices), value)
