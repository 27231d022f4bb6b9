"""The core's instructions as tensor intrinsics: what one entry of work computes, and what it emits.

Tiles are single scratchpad entries. A schedule reaches the hardware only by tensorizing loop nests to these; the
emitter folds the loops around a call into one instruction. Scopes: ``global`` (DRAM), ``inp``, ``wgt``, ``acc`` and
``out``; on cores with tables ``tab``.

The second factor of MUL, MAC and REQUANTISE has 25 bits in hardware. The meanings below multiply in full: they hold for
widened int8 data and for packed parameters, which is what compute rules put there (`docs/compiler.md`). Of functions
that are scheduled by hand `check_factors` refuses any other factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import prod

from .....hw.config import TABLE_ENTRIES, CoreConfig
from .....hw.isa import (
    CLAMP_BITS,
    IMMEDIATE_BITS,
    TAP_COLUMNS,
    TAP_ROW_OUTPUTS,
    TAP_ROWS,
    Engine,
    Scratchpad,
    VectorOp,
    VectorTarget,
    vector_targets,
)
from .....hw.memories import Memory
from .....roundings import HALF_UP
from ....operators.integer import requantised
from ....tensor.intrinsic import scalar, tensor_intrinsic, tile
from ....tensor.ir import (
    Buffer,
    Cast,
    DType,
    Expr,
    Operand,
    OperandMode,
    ScalarParam,
    Store,
    TensorIntrinsic,
    Var,
    maximum,
    minimum,
    row_major_strides,
    select,
)
from .operators import looked_up

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class EmitGemm:
    """One GEMM micro-op on operands ``acc``, ``inp``, ``wgt``. ``depthwise``: nine taps of each channel, whose pitches
    are the strides of ``inp``."""

    depthwise: bool = False


@dataclass(frozen=True)
class EmitVector:
    """One VECTOR micro-op: result ``d``, operands ``a`` and ``b`` (an entry, or scalar ``immediate``)."""

    op: VectorOp
    target: VectorTarget = VectorTarget.ACC
    entry_b: bool = False
    immediate: bool = False  # the scalar of that name is the second operand
    negate: bool = False  # the immediate is negated: a left shift is a SHR by a negative amount
    clamps: tuple[str, ...] = ()  # scalars that go into fields of their own name
    padded: bool = False  # a requantise that gives scalar ``pad`` where scalar ``inside`` does not hold
    table: bool = False  # the result passes through operand ``table``
    rounds: bool = False  # a requantise that rounds in the mode that its core has


@dataclass(frozen=True)
class EmitLoad:
    """One entry of a LOAD from ``src`` to ``dst``; ``padded``: where scalar ``inside`` holds, else ``pad``."""

    scratchpad: Scratchpad
    engine: Engine
    padded: bool


@dataclass(frozen=True)
class EmitFill:
    """One entry of a LOAD that only writes scalar ``pad`` to ``dst``."""

    scratchpad: Scratchpad


@dataclass(frozen=True)
class EmitStore:
    """One entry of a STORE from operand ``src`` to ``dst``."""


IMMEDIATE_RANGE = (-(1 << IMMEDIATE_BITS - 1), (1 << IMMEDIATE_BITS - 1) - 1)
CLAMP_RANGE = (-(1 << CLAMP_BITS - 1), (1 << CLAMP_BITS - 1) - 1)
PAD_RANGE = (-128, 127)


def inp_entry(config: CoreConfig) -> Shape:
    """Lanes of an ``inp`` entry: (block_in / sub_block, batch, sub_block)."""
    return (config.block_in // config.sub_block, config.batch, config.sub_block)


def acc_entry(config: CoreConfig) -> Shape:
    """Lanes of an ``acc`` or ``out`` entry: (block_out / sub_block, batch, sub_block)."""
    return (config.block_out // config.sub_block, config.batch, config.sub_block)


def wgt_entry(config: CoreConfig) -> tuple[int, int]:
    """Elements of a ``wgt`` entry: (block_out, block_in)."""
    return (config.block_out, config.block_in)


@lru_cache(maxsize=64)
def intrinsics(config: CoreConfig) -> dict[str, TensorIntrinsic]:
    """Every intrinsic of the core, by name."""
    all_intrinsics = [
        gemm(config), *([depthwise_gemm(config)] if config.depthwise else []),
        store(config), *loads(config), *fills(config), *vector_operations(config), *requantises(config),
        *look_ups(config),
    ]  # fmt: skip
    return {intrinsic.name: intrinsic for intrinsic in all_intrinsics}


def gemm(config: CoreConfig) -> TensorIntrinsic:
    """``acc[ro, n, so] += sum over rk, sk of inp[rk, n, sk] * wgt[ro * sub_block + so, rk * sub_block + sk]``."""
    sub = config.sub_block

    def meaning(acc: Buffer, inp: Buffer, wgt: Buffer, ro: Var, n: Var, so: Var, rk: Var, sk: Var) -> Store:
        product = Cast("int32", inp[rk, n, sk]) * Cast("int32", wgt[ro * sub + so, rk * sub + sk])
        return acc.store((ro, n, so), acc[ro, n, so] + product)

    out, inner = acc_entry(config), inp_entry(config)
    return tensor_intrinsic(
        "gemm",
        operands=[
            tile("acc", out, "int32", "acc", "inout"),
            tile("inp", inner, "int8", "inp", "in"),
            tile("wgt", wgt_entry(config), "int8", "wgt", "in"),
        ],
        loops={"ro": out[0], "n": out[1], "so": out[2], "rk": inner[0], "sk": inner[2]},
        meaning=meaning,
        emits=EmitGemm(),
    )


def depthwise_gemm(config: CoreConfig) -> TensorIntrinsic:
    """``acc[n, k] += sum over kh, kw of inp[kh, kw, n, k] * wgt[4 * kh + kw, k]``: three rows by three columns of
    entries, as far apart as they are in the buffer."""
    out, entry = acc_entry(config), inp_entry(config)
    size = prod(entry)

    def meaning(acc: Buffer, inp: Buffer, wgt: Buffer, ro: Var, n: Var, so: Var, kh: Var, kw: Var) -> Store:
        weight = wgt[kh * TAP_ROW_OUTPUTS + kw, so]
        product = Cast("int32", inp[kh, kw, ro, n, so]) * Cast("int32", weight)
        return acc.store((ro, n, so), acc[ro, n, so] + product)

    return tensor_intrinsic(
        "depthwise_gemm",
        operands=[
            tile("acc", out, "int32", "acc", "inout"),
            tile("inp", (TAP_ROWS, TAP_COLUMNS, *entry), "int8", "inp", "in",
                 strides=(None, None, *row_major_strides(entry)), align=size),
            tile("wgt", wgt_entry(config), "int8", "wgt", "in"),
        ],
        loops={"ro": out[0], "n": out[1], "so": out[2], "kh": TAP_ROWS, "kw": TAP_COLUMNS},
        meaning=meaning,
        emits=EmitGemm(depthwise=True),
    )  # fmt: skip


def _copy(
    name: str, shape: tuple[int, ...], source: tuple[DType, str], target: tuple[DType, str], emits: object,
    padded: bool = False,
) -> TensorIntrinsic:  # fmt: skip
    """One entry copied, converted to the target's type, and where ``padded``, guarded by ``inside``."""
    axes = [f"i{axis}" for axis in range(len(shape))]

    def meaning(**arguments: Buffer | Var) -> Store:
        src, dst = arguments["src"], arguments["dst"]
        if not isinstance(src, Buffer) or not isinstance(dst, Buffer):
            raise TypeError("src and dst are tiles")
        index = tuple(arguments[axis] for axis in axes if isinstance(arguments[axis], Var))
        value: Expr = src[index]  # type: ignore[index]
        if padded:
            value = select(arguments["inside"], value, arguments["pad"])  # type: ignore[arg-type]
        return dst.store(index, value.astype(target[0]))  # type: ignore[arg-type]

    return tensor_intrinsic(
        name,
        operands=[tile("dst", shape, *target, "out"), tile("src", shape, *source, "in", align=1)],
        scalars=[scalar("inside", "bool"), scalar("pad", "int8")] if padded else [],
        loops=dict(zip(axes, shape, strict=True)),
        meaning=meaning,
        emits=emits,
    )


def loads(config: CoreConfig) -> list[TensorIntrinsic]:
    """Copies from DRAM. Those of engine ``load`` are called ``load_*``, those of ``loadw`` ``loadw_*``."""
    copies = []
    acc = acc_entry(config)
    for padded in (False, True):
        suffix = "_padded" if padded else ""
        inp = EmitLoad(Scratchpad.INP, Engine.LOAD, padded)
        copies.append(_copy(f"load_inp{suffix}", inp_entry(config), ("int8", "global"), ("int8", "inp"), inp, padded))
        wgt = EmitLoad(Scratchpad.WGT, Engine.LOADW, padded)
        copies.append(_copy(f"loadw_wgt{suffix}", wgt_entry(config), ("int8", "global"), ("int8", "wgt"), wgt, padded))
        for engine in (Engine.LOAD, Engine.LOADW):
            name = f"{engine.name.lower()}_acc8{suffix}"
            emits = EmitLoad(Scratchpad.ACC8, engine, padded)
            copies.append(_copy(name, acc, ("int8", "global"), ("int32", "acc"), emits, padded))
    for engine in (Engine.LOAD, Engine.LOADW):
        emits = EmitLoad(Scratchpad.ACC, engine, False)
        copies.append(_copy(f"{engine.name.lower()}_acc", acc, ("int32", "global"), ("int32", "acc"), emits))
    return copies


def fills(config: CoreConfig) -> list[TensorIntrinsic]:
    """One entry of one value, by engine ``load``: what a padded copy is where it meets nothing but padding."""
    shapes: list[tuple[str, tuple[int, ...], DType, Scratchpad]] = [
        ("inp", inp_entry(config), "int8", Scratchpad.INP),
        ("acc", acc_entry(config), "int32", Scratchpad.ACC8),
    ]
    return [
        tensor_intrinsic(
            f"load_fill_{scope}",
            operands=[tile("dst", shape, dtype, scope, "out")],
            scalars=[scalar("pad", dtype, *PAD_RANGE)],
            loops={"i0": shape[0], "i1": shape[1], "i2": shape[2]},
            meaning=lambda dst, pad, i0, i1, i2: dst.store((i0, i1, i2), pad),
            emits=EmitFill(scratchpad),
        )
        for scope, shape, dtype, scratchpad in shapes
    ]


def store(config: CoreConfig) -> TensorIntrinsic:
    """One ``out`` entry to DRAM."""
    return _copy("store_out", acc_entry(config), ("int8", "out"), ("int8", "global"), EmitStore())


Formula = Callable[..., Expr]


def _vector(
    name: str, config: CoreConfig, formula: Formula, emits: EmitVector, scalars: tuple[ScalarParam, ...] = (),
    b_entries: int = 0,
) -> TensorIntrinsic:  # fmt: skip
    """A vector operation. ``formula`` takes d (accumulating operations), a, b (entries), then the scalars."""
    shape = acc_entry(config)
    memory = emits.target.memory
    dtype: DType = "int32" if memory is Memory.ACC else "int8"
    mode: OperandMode = "inout" if emits.op.accumulates else "out"
    operands: list[Operand] = [tile("d", shape, dtype, memory, mode), tile("a", shape, "int32", "acc", "in")]
    if b_entries == 1:
        operands.append(tile("b", shape, "int32", "acc", "in"))
    elif b_entries:
        operands.append(tile("b", (b_entries, *shape), "int32", "acc", "in", align=config.lanes))
    if emits.table:
        operands.append(tile("table", (TABLE_ENTRIES, *shape), "int8", Memory.TAB, "in"))

    def meaning(
        d: Buffer, a: Buffer, ro: Var, n: Var, so: Var, b: Buffer | None = None, table: Buffer | None = None,
        **scalar_values: Var,
    ) -> Store:  # fmt: skip
        index = (ro, n, so)
        values: list[Expr] = [d[index]] if emits.op.accumulates else []
        values.append(a[index])
        if b is not None:
            values += [b[index]] if b_entries == 1 else [b[(entry, *index)] for entry in range(b_entries)]
        values += [scalar_values[param.name] for param in scalars]
        value = formula(*values)
        result = (value if table is None else looked_up(table, value, index)).astype(dtype)
        return d.store(index, select(scalar_values["inside"], result, scalar_values["pad"]) if emits.padded else result)

    return tensor_intrinsic(
        name,
        operands=operands,
        scalars=(*scalars, scalar("inside", "bool"), scalar("pad", dtype, *PAD_RANGE)) if emits.padded else scalars,
        loops={"ro": shape[0], "n": shape[1], "so": shape[2]},
        meaning=meaning,
        emits=emits,
    )


_BINARY: dict[VectorOp, Formula] = {
    VectorOp.ADD: lambda a, b: a + b,
    VectorOp.SUB: lambda a, b: a - b,
    VectorOp.MUL: lambda a, b: a * b,
    VectorOp.MIN: minimum,
    VectorOp.MAX: maximum,
}

_ACCUMULATING: dict[VectorOp, Formula] = {
    VectorOp.SUM: lambda d, a: d + a,
    VectorOp.MIN_ACCUMULATE: minimum,
    VectorOp.MAX_ACCUMULATE: maximum,
}


def _targets(config: CoreConfig) -> tuple[VectorTarget, ...]:
    """Where results go that are no requantise's."""
    return tuple(each for each in vector_targets(config, VectorOp.ADD) if each is not VectorTarget.INP)


def _suffix(target: VectorTarget) -> str:
    return "" if target is VectorTarget.ACC else f"_to_{target.memory}"


def vector_operations(config: CoreConfig) -> list[TensorIntrinsic]:
    """All VECTOR operations but REQUANTISE: with an entry or an immediate, to ``acc`` or narrowed to ``out``, or as a
    table to ``tab``."""
    immediate = scalar("immediate", "int32", *IMMEDIATE_RANGE)
    amount = scalar("immediate", "int32", 0, 31)
    operations = []
    for target in _targets(config):
        suffix = _suffix(target)
        for op, formula in _BINARY.items():
            name = f"{op.name.lower()}{suffix}"
            operations.append(_vector(name, config, formula, EmitVector(op, target, entry_b=True), (), 1))
            emits = EmitVector(op, target, immediate=True)
            operations.append(_vector(f"{name}_immediate", config, formula, emits, (immediate,)))
        right = EmitVector(VectorOp.SHR, target, immediate=True)
        operations.append(_vector(f"shift_right{suffix}", config, lambda a, b: a >> b, right, (amount,)))
        left = EmitVector(VectorOp.SHR, target, immediate=True, negate=True)
        operations.append(_vector(f"shift_left{suffix}", config, lambda a, b: a << b, left, (amount,)))
    mac = EmitVector(VectorOp.MAC, entry_b=True)
    operations.append(_vector("multiply_accumulate", config, lambda d, a, b: d + a * b, mac, (), 1))
    scaled = EmitVector(VectorOp.MAC, immediate=True)
    operations.append(_vector("multiply_accumulate_immediate", config, lambda d, a, b: d + a * b, scaled, (immediate,)))
    for op, formula in _ACCUMULATING.items():
        operations.append(_vector(op.name.lower(), config, formula, EmitVector(op)))
    return operations


def requantises(config: CoreConfig) -> list[TensorIntrinsic]:
    """REQUANTISE with its three parameter entries (bias, multiplier, shift >= 1), to ``acc`` or narrowed to ``out`` or
    ``inp``, where a core has a way there.

    A shift by 0 is not written down in an expression: hence variants with and without ``left_shift``. What the next
    layer of a chain reads has a padded form: the border of its tile that lies outside of the picture is ``pad``.
    """
    left_shift = scalar("left_shift", "int64", 0, 31)
    variants = []
    for target, rounding in product(_targets_of_requantises(config), _roundings(config)):
        for padded, scalars in product((False, True), (_CLAMPS, (*_CLAMPS, left_shift))):
            if padded and target is VectorTarget.OUT:
                continue
            name = f"{_requantise_name(rounding)}{_suffix(target)}{'_left_shift' if left_shift in scalars else ''}"
            fields, rounds = tuple(param.name for param in scalars), rounding != HALF_UP
            emits = EmitVector(VectorOp.REQUANTISE, target, True, clamps=fields, padded=padded, rounds=rounds)
            name, formula = f"{name}_padded" if padded else name, partial(requantised, rounding=rounding)
            variants.append(_vector(name, config, formula, emits, scalars, VectorOp.REQUANTISE.b_entries))
    return variants


def _roundings(config: CoreConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((HALF_UP, config.rounding)))


def _requantise_name(rounding: str) -> str:
    return "requantise" if rounding == HALF_UP else f"requantise_{rounding}"


_CLAMPS = tuple(scalar(name, "int64", *CLAMP_RANGE) for name in ("zero_point", "low", "high"))


def _targets_of_requantises(config: CoreConfig) -> list[VectorTarget]:
    """Where they go. What goes to ``tab`` is never requantised: tables are constants."""
    return [each for each in vector_targets(config, VectorOp.REQUANTISE) if each is not VectorTarget.TAB]


def look_ups(config: CoreConfig) -> list[TensorIntrinsic]:
    """Of a core with tables: what a table holds for an entry as it is, or for its requantise, whose 8-bit result is
    not shifted."""
    variants = []
    for target in _targets_of_requantises(config) if config.tables else ():
        plain = EmitVector(VectorOp.ADD, target, table=True)
        if target is not VectorTarget.INP:
            variants.append(_vector(f"look_up{_suffix(target)}", config, lambda a: a, plain))
        paddings = (False, True) if target is not VectorTarget.OUT else (False,)
        for padded, rounding in product(paddings, _roundings(config)):
            fields, rounds = tuple(param.name for param in _CLAMPS), rounding != HALF_UP
            emits = EmitVector(
                VectorOp.REQUANTISE, target, True, clamps=fields, padded=padded, table=True, rounds=rounds
            )
            name = f"{_requantise_name(rounding)}_look_up{_suffix(target)}{'_padded' if padded else ''}"
            formula = partial(requantised, rounding=rounding)
            variants.append(_vector(name, config, formula, emits, _CLAMPS, VectorOp.REQUANTISE.b_entries))
    return variants
