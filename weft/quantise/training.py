"""Quantisation-aware training: the 8-bit model with its weights, offsets and scales as inputs, and back.

Scales are learned as logarithms, so that they stay above 0 whatever a step does: trained quantisation thresholds (Jain
et al., 2019). Gradients pass the rounding as if it were not there, and for a scale they are those of learned step sizes
(Esser et al., 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..compiler.graph import Array, Call, Constant, Expr, Function, Module, Var, substitute
from ..compiler.graph.dtypes import limits
from ..compiler.graph.gradient import CustomGradient, summed_to
from ..compiler.graph.pattern import Match, any_value, constant, op
from ..compiler.operators import contract, nn
from ..whole import require_mapping
from .errors import QuantiseError
from .insert import LARGEST, fake_quantised, inserted, range_of, weight_scale
from .offsets import with_whole_offsets
from .plan import Plan, Weight, require_plan
from .ranges import Range

LN2 = Constant(np.array(math.log(2), np.float32))


@dataclass(frozen=True, eq=False)
class Trainable:
    """A model in 8 bits whose ``module`` has what is trained as inputs; ``start``: their values before any training."""

    module: Module
    start: dict[str, Array]


def trainable(plan: Plan, ranges: Mapping[str, Range], *, power_of_two: bool = False) -> Trainable:
    """The model of a plan in 8 bits as a function of what is trained.

    Inputs that come behind those of the model: each weight, each offset, and for each weight and each place
    ``<name>.log2_scale``. All are float32 and are trained together, with `GRADIENTS`::

        eight = weft.quantise.trainable(plan, ranges)
        module = weft.train.cross_entropy(eight.module)
        step = weft.train.adam(module, list(eight.start), custom=weft.quantise.GRADIENTS)

    Zero points stay those of ``ranges``. What a training is evaluated on is `deployed`: its integers are those of the
    accelerator.

    ``power_of_two``: scales are rounded to powers of two. Raises `QuantiseError` for a place without a range.
    """
    require_plan(plan)
    parts = _Parts(power_of_two)

    def steps(name: str) -> tuple[Expr, Expr]:
        span = range_of(ranges, name)
        zero_point = Constant(np.array(span.zero_point, np.int8))
        return parts.scale(name, np.array(span.scale, np.float32)), zero_point

    def weight(of: Weight) -> Expr:
        scale = weight_scale(of.value.value, of.axis)
        zero_point = Constant(np.zeros(scale.shape, np.int8))
        value = parts.variable(of.name, of.value.value)
        return fake_quantised(value, parts.scale(of.name, scale), zero_point, axis=of.axis or 0)

    offsets = {name: parts.variable(name, value.value) for name, value in plan.offsets.items()}
    module = inserted(plan, steps, weight, offsets)
    main = module.main
    if clash := {param.name for param in main.params} & set(parts.start):
        raise QuantiseError(f"the model has an input {min(clash)!r}, as one of its constants is called")
    params = (*main.params, *parts.variables.values())
    return Trainable(Module(Function(params, main.body, main.attrs, main.span), module.stage), parts.start)


def deployed(eight: Trainable, values: Mapping[str, Array]) -> Module:
    """The model with what was trained as constants: what ``weft.compile`` takes, for any target.

    ``values``: such as ``Training.parameters``. They may come from a plan of the same model at another batch size.
    Raises `QuantiseError` for a value that is missing, or is not trained, and for one of another type.
    """
    if not isinstance(eight, Trainable):
        raise QuantiseError(
            f"{eight!r:.80} is no trainable model", hint="weft.quantise.trainable(plan, ranges) makes one"
        )
    require_mapping(values, "values", QuantiseError)
    main = eight.module.main
    params = {param.name: param for param in main.params}
    if unknown := sorted(set(values) - set(eight.start)):
        raise QuantiseError(f"{unknown[0]!r} is not among what is trained")
    if missing := sorted(set(eight.start) - set(values)):
        raise QuantiseError(f"{missing[0]!r} has no value", hint="give all that was trained")
    constants: dict[Expr, Expr] = {}
    for name, value in values.items():
        made = Constant(np.asarray(value), name)
        if made.type != params[name].type:
            raise QuantiseError(f"{name!r} must be {params[name].type}, not {made.type}")
        constants[params[name]] = made
    left = tuple(param for param in main.params if param.name not in values)
    trained = Function(left, substitute(main.body, constants), main.attrs, main.span)
    return with_whole_offsets(Module(trained, eight.module.stage))


SUFFIX = ".log2_scale"


class _Parts:
    """The inputs that are made, and where they start."""

    def __init__(self, power_of_two: bool) -> None:
        self.power_of_two = power_of_two
        self.variables: dict[str, Var] = {}
        self.start: dict[str, Array] = {}

    def variable(self, name: str, value: Array) -> Var:
        if name not in self.variables:
            constant = Constant(value)
            self.variables[name] = Var(name, constant.type)
            self.start[name] = np.array(constant.value)
        return self.variables[name]

    def scale(self, name: str, value: Array) -> Expr:
        """2 ** an input, which starts at the logarithm of ``value``."""
        exponent: Expr = self.variable(name + SUFFIX, np.log2(value).astype(np.float32))
        if self.power_of_two:
            exponent = nn.round(exponent)
        return nn.exp(nn.multiply(exponent, LN2))


def _pass_straight(upstream: Expr, match: Match) -> dict[str, Expr]:
    """Inside of what 8 bits hold: 1 for the value, and for the scale what rounding added, in steps. Outside: 0, and
    the step at which it was cut off. For a scale the sum is divided by sqrt(elements * 127)."""
    x, scale, zero_point = match["x"], match["scale"], match["zero_point"]
    node = match["eight"]
    assert isinstance(node, Call)
    assert isinstance(zero_point, Constant)
    axis = node.attr("axis")
    shape = [1] * len(x.shape)
    if scale.shape:
        shape[axis] = scale.shape[0]
    low, high = limits(node.dtype)
    zero = zero_point.value.astype(np.float32).reshape(shape if scale.shape else ())
    spread = contract.reshape(scale, shape=tuple(shape)) if scale.shape else scale
    steps = nn.divide(x, spread)
    cut = nn.maximum(nn.minimum(steps, Constant(np.float32(high) - zero)), Constant(np.float32(low) - zero))
    inside = nn.equal(cut, steps)
    nothing = Constant(np.zeros((), np.float32))
    for_x = nn.where(inside, upstream, nothing)
    error = nn.subtract(nn.round(cut), nn.where(inside, steps, nothing))
    weight = Constant(np.array(1 / math.sqrt(max(1, math.prod(x.shape) // max(1, math.prod(scale.shape))) * LARGEST),
                               np.float32))  # fmt: skip
    summed = summed_to(nn.multiply(nn.multiply(upstream, error), weight), tuple(shape) if scale.shape else ())
    return {"x": for_x, "scale": contract.reshape(summed, shape=scale.shape)}


def _power_of_two(upstream: Expr, match: Match) -> dict[str, Expr]:
    """Of 2 ** round(x), as if there were no rounding."""
    return {"x": nn.multiply(nn.multiply(upstream, match["power"]), match["ln2"])}


_SCALE, _ZERO = any_value("scale"), constant("zero_point")

GRADIENTS = (
    CustomGradient(
        op("dequantise", op("quantise", any_value("x"), _SCALE, _ZERO, name="eight"), _SCALE, _ZERO), _pass_straight
    ),
    CustomGradient(
        op("nn.exp", op("nn.multiply", op("nn.round", any_value("x")), constant("ln2")), name="power"), _power_of_two
    ),
)
"""Gradients of rounding, for ``weft.grad`` and the optimisers of ``weft.train``."""
