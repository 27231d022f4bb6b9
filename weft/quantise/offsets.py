"""Offsets behind products as whole numbers of the accumulator's unit, as in files of other quantisers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..compiler.graph import (
    Array,
    Call,
    Constant,
    EightBits,
    Expr,
    Function,
    Fusion,
    Module,
    Role,
    operator_of,
    role_of,
    topological_order,
)
from ..compiler.graph.registry import apply
from ..compiler.graph.visit import with_children
from .plan import PRODUCTS

SUMS = (Role.ADD, Role.SUBTRACT)


def with_whole_offsets(module: Module) -> Module:
    """A module with 8-bit tensors whose constants right behind a product of such are whole in the product's unit, the
    scales of its operands multiplied.

    That moves a sum by half a unit at most. One weight of 100 steps alone moves it by 30 units, since what it meets is
    rounded, too. A core adds such an offset as it is; for any other it has to multiply every sum first
    (docs/integers.md, "What is promised"). Channels without any weight keep theirs.
    """
    memo: dict[int, Expr] = {}
    for node in topological_order(module.main.body):
        made = with_children(node, tuple(memo[id(child)] for child in node.children))
        if isinstance(made, Call) and role_of(made) in SUMS and len(made.args) == 2:
            made = _rounded(made)
        memo[id(node)] = made
    main = module.main
    return Module(Function(main.params, memo[id(main.body)], main.attrs, main.span), module.stage)


def _rounded(node: Call) -> Expr:
    """A sum with its constant rounded, if it is that of a product and a constant."""
    place = next((place for place, arg in enumerate(node.args) if isinstance(arg, Constant)), None)
    if place is None:
        return node
    constant, product = node.args[place], node.args[1 - place]
    assert isinstance(constant, Constant)
    entry = operator_of(product)
    if not isinstance(product, Call) or entry is None or entry.anchor not in PRODUCTS or constant.dtype != "float32":
        return node
    unit = _unit(product.args)
    if unit is None or unit.size not in (1, constant.value.size):
        return node
    unit = unit.reshape(constant.shape if unit.size > 1 else (1,) * len(constant.shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.rint(constant.value / unit) * unit
    value = np.where(unit > 0, whole, constant.value).astype(np.float32)
    args = [*node.args]
    args[place] = Constant(value, constant.name, constant.span)
    return with_children(node, tuple(args))


def _unit(operands: Sequence[Expr]) -> Array | None:
    """Of one step of a product's sums, for all or for each channel; 0 for a channel without weights. None if an operand
    is not 8 bits."""
    unit: Array = np.ones(1)
    for operand in operands:
        while isinstance(operand, Call) and _moves(operand):
            operand = operand.args[0]
        if not isinstance(operand, Call) or role_of(operand) is not Role.DEQUANTISE:
            return None
        scale = value_of(operand.args[1])
        if scale is None:
            return None
        integers = value_of(operand.args[0])
        if integers is not None and scale.size > 1:
            others = tuple(axis for axis in range(integers.ndim) if axis != operand.attrs["axis"])
            scale = np.where(np.any(integers != 0, axis=others), scale, 0)
        unit = unit * scale.astype(np.float64).reshape(-1)
    return unit


def _moves(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and (entry.fusion is Fusion.LAYOUT or entry.eight_bits is EightBits.PICKS)


def value_of(node: Expr) -> Array | None:
    """Of constants and what is computed of them alone."""
    if isinstance(node, Constant):
        return node.value
    if not isinstance(node, Call):
        return None
    values: list[Array] = []
    for arg in node.args:
        value = value_of(arg)
        if value is None:
            return None
        values.append(value)
    return apply(node, values)
