"""Mixed precision: values are stored in 16 bits and computed in 32; and the scale of the loss that 16 bits need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..compiler.graph import (
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    TensorType,
    Tuple,
    Var,
    require_module,
    topological_order,
)
from ..compiler.graph.dtypes import HALVES, numpy_dtype
from ..compiler.graph.registry import Anchor, EightBits, Fusion, Role, call, operator_of, role_of
from ..compiler.graph.visit import with_children
from ..compiler.operators import contract, nn
from ..whole import require_number

WIDE = "float32"


def mixed(module: Module, dtype: str = "bfloat16") -> Module:
    """The module with what it computes stored as ``dtype``, bfloat16 or float16.

    Inputs, and so parameters, stay float32, and so do outputs: apply it before the loss. Products and convolutions take
    16 bits and add up in float32. What is made element by element is computed in float32 and stored in 16 bits, and so
    are gradients of it. Sums, means and extremes, such as the statistics of a normalisation, stay float32.
    Raises `GraphError` for another type, and for a module without float32.
    """
    if dtype not in HALVES:
        raise GraphError(f"there is no mixed precision with {dtype!r}", hint=f"choose from {', '.join(HALVES)}")
    main = require_module(module).main
    order = topological_order(main.body)
    if not any(isinstance(node, Call) and _is_wide(node) for node in order):
        raise GraphError("nothing in the module is computed in float32", hint="mixed precision is for such models")
    memo: dict[Expr, Expr] = {}
    for node in order:
        args = tuple(memo[child] for child in node.children)
        memo[node] = _narrow(node, args, dtype) if isinstance(node, Call) and _is_wide(node) else (
            with_children(node, tuple(map(_as, args, (child.type for child in node.children))))
        )  # fmt: skip
    results = [_as(memo[result], result.type) for result in main.results]
    body = results[0] if len(results) == 1 else Tuple(tuple(results))
    return Module(Function(main.params, body, main.attrs, main.span), module.stage)


def _is_wide(node: Expr) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype == WIDE


def _as(value: Expr, kind: object) -> Expr:
    """The value in the element type that it had before."""
    if isinstance(kind, TensorType) and value.dtype != kind.dtype:
        return nn.cast(value, to=kind.dtype)
    return value


def _narrow(node: Call, args: tuple[Expr, ...], dtype: str) -> Expr:
    """A call of float32 with operands of which some have become ``dtype``."""
    entry = operator_of(node)
    wide = [_as(arg, old.type) for arg, old in zip(args, node.args, strict=True)]

    def made(operands: list[Expr]) -> Call:
        return call(str(node.op), *operands, span=node.span, **node.attrs)

    if entry is None:
        return with_children(node, tuple(wide))
    if entry.anchor in (Anchor.CONVOLUTION, Anchor.PRODUCT):
        return made([nn.cast(arg, to=dtype) if arg.dtype == WIDE else arg for arg in args])
    narrow = [arg.dtype == dtype for arg in args]
    moves = entry.fusion is Fusion.LAYOUT or entry.eight_bits is EightBits.PICKS  # its values stay what they are
    if moves and narrow and all(narrow):
        return made(list(args))
    like = any(each and arg.shape == node.shape for each, arg in zip(narrow, args, strict=True))
    stored = like or (any(narrow) and entry.anchor is Anchor.POOL)
    return nn.cast(made(wide), to=dtype) if stored else made(wide)


@dataclass(frozen=True)
class LossScaling:
    """A scale of the loss, so that gradients in float16 are neither 0 nor infinite.

    It starts with ``initial``. Where a gradient is not finite, the step changes nothing and the scale is halved; after
    ``interval`` steps without that it is doubled, up to ``largest``.
    """

    initial: float = 2.0**15
    interval: int = 2000
    largest: float = 2.0**24

    def __post_init__(self) -> None:
        for name in ("initial", "interval", "largest"):
            require_number(getattr(self, name), name, GraphError)
        if not 0 < self.initial <= self.largest < float("inf"):
            raise GraphError(f"a loss cannot be scaled by {self.initial} to {self.largest}",
                             hint="give 0 < initial <= largest, both finite")  # fmt: skip
        if self.interval < 1:
            raise GraphError(f"interval is {self.interval}, but must be at least 1")


SCALE, GOOD_STEPS = "loss_scale", "good_steps"
"""Inputs that live from step to step: the scale, of which 0 is the first, and steps since it changed."""


@dataclass(frozen=True)
class Scale:
    """The scale in a step's graph: ``value``, and the inputs that hold it and its count."""

    scaling: LossScaling
    value: Expr
    kept: Var
    steps: Var

    def following(self, finite: Expr) -> dict[Var, Expr]:
        """Next values: whether the gradients of this step are all ``finite``."""
        counted = nn.add(self.steps, _like(self.steps, 1.0))
        due = nn.less_equal(_like(counted, self.scaling.interval), counted)
        doubled = nn.minimum(nn.multiply(self.value, _like(self.value, 2.0)), _like(self.value, self.scaling.largest))
        halved = nn.multiply(self.value, _like(self.value, 0.5))
        zero = _like(self.steps, 0.0)
        return {
            self.kept: nn.where(finite, nn.where(due, doubled, self.value), halved),
            self.steps: nn.where(finite, nn.where(due, zero, counted), zero),
        }


def scale_of(scaling: LossScaling, dtype: str) -> Scale:
    """The scale as an expression of a type."""
    kept, steps = (Var(name, TensorType((), dtype)) for name in (SCALE, GOOD_STEPS))
    value = nn.where(nn.equal(kept, _like(kept, 0.0)), _like(kept, scaling.initial), kept)
    return Scale(scaling, value, kept, steps)


def zero_if_finite(x: Expr) -> Expr:
    """A number: 0 if all elements are finite, else NaN, which is what infinity and NaN times 0 are."""
    row = as_row(x)
    return nn.reduce_sum(nn.multiply(row, _like(x, 0.0)), axes=(0,))


def as_row(x: Expr) -> Expr:
    """All elements in a row: sums along it run over lanes. A cast comes after that: whoever reads the row makes it."""
    if isinstance(x, Call) and role_of(x) is Role.CAST:
        return nn.cast(as_row(x.args[0]), to=x.dtype)
    return x if len(x.shape) == 1 else contract.reshape(x, shape=(prod(x.shape),))


def all_finite(gradients: Sequence[Expr]) -> Expr:
    """Whether all elements are finite, a truth value."""
    total: Expr | None = None
    for each in reversed(gradients):  # those of the last layers are there first, and need not wait for all others
        part = zero_if_finite(each)
        total = part if total is None else nn.add(total, part)
    assert total is not None
    return nn.equal(total, _like(total, 0.0))


def with_scaled_loss(module: Module, loss: str, scale: Scale) -> tuple[Module, str]:
    """The module with one more output, behind its own: the loss times the scale; and that output's name."""
    main = module.main
    name = f"scaled_{loss}"
    while name in main.output_names:
        name = f"scaled_{name}"
    value = dict(zip(main.output_names, main.results, strict=True))[loss]
    scaled = nn.multiply(
        value, nn.cast(scale.value, to=value.dtype) if scale.value.dtype != value.dtype else scale.value
    )
    attrs = Attrs(main.attrs).replace(outputs=(*main.output_names, name))
    params = (*main.params, scale.kept, scale.steps)
    return Module(Function(params, Tuple((*main.results, scaled)), attrs, main.span), module.stage), name


def _like(x: Expr, value: float) -> Constant:
    return Constant(np.array(value, numpy_dtype(x.dtype)))
