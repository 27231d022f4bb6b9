"""One step of training as one module: forward, backward, and the update that an optimiser's rule makes of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import numpy as np

from ..compiler.graph import Attrs, Constant, Expr, Function, GraphError, Module, TensorType, Tuple, Var
from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.gradient import CustomGradient
from ..compiler.operators import contract, nn
from ..compiler.passes.fold_batch_norm import split_computed_norms
from ..compiler.passes.gradient import grad, tidied
from ..compiler.passes.rematerialise import rematerialised
from ..errors import WeftError
from ..whole import require_names, require_number
from .precision import LossScaling, Scale, all_finite, as_row, scale_of, with_scaled_loss, zero_if_finite

RATE = "rate"
"""The input of a step that holds the learning rate, a scalar of the parameters' type."""


@dataclass(frozen=True)
class Step:
    """Forward, backward and update as one module.

    ``module``: its inputs are those of the model, the state, and `RATE`. ``state``: the input of each tensor that lives
    from step to step, and the output that holds its next value; those of ``parameters`` come first, all others start
    with zeros. ``checks``: for each parameter that is checked the output, a number, that is 0 where its next value is
    finite and NaN where it is not.
    """

    module: Module
    parameters: tuple[str, ...]
    state: Mapping[str, str]
    checks: Mapping[str, str] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The model's own outputs, which come first in the module."""
        others = {*self.state.values(), *self.checks.values()}
        return tuple(name for name in self.module.main.output_names if name not in others)


def require_step(value: object, error: type[WeftError] = GraphError) -> None:
    """An ``error`` for what is no step."""
    if not isinstance(value, Step):
        raise error(f"{value!r:.80} is no step of training", hint="weft.train.sgd(module, parameters) makes one, and "
                    "adam, adamw, lamb and step_of do")  # fmt: skip


@dataclass
class Learning:
    """One parameter, as an optimiser's rule sees it: its value, its gradient, the rate, and what is kept for it."""

    value: Var
    gradient: Expr
    rate: Var
    kept: dict[Var, Expr] = field(default_factory=dict)

    def keep(self, name: str, following: Callable[[Expr], Expr], *, shared: bool = False) -> Expr:
        """The next value of a tensor that is kept from step to step, made of the one before, which starts with zeros.

        It is like the parameter, or a number that all parameters share.
        """
        kind = TensorType((), self.value.dtype) if shared else self.value.type
        before = Var(name if shared else f"{name}_{self.value.name}", kind)
        self.kept[before] = following(before)
        return self.kept[before]


Rule = Callable[[Learning], Expr]
"""From a parameter and its gradient to the parameter's next value."""


class StepOptions(TypedDict, total=False):
    """What all optimisers take.

    loss
        The output that is made smaller, a scalar; ``"loss"`` by default.
    clip_norm
        If the gradients of all parameters together are a longer vector than this, they are shortened to it.
    custom
        Gradients of subgraphs, as for ``weft.grad``.
    loss_scaling
        The loss is differentiated times a scale, which follows what the gradients bear: for float16 (`mixed`).
    check_finite
        Whether each step looks for infinity and NaN in the parameters' next values, which is where those of gradients
        end, too; it reads them once more. True by default. ``loss_scaling`` looks for them in the gradients instead,
        and such a step changes nothing.
    keep_all
        Whether all values of the forward part that the backward part uses are kept. False by default: what is cheap is
        computed again (`compiler.passes.rematerialise`), which takes much less memory and at times a little longer.
    """

    loss: str
    clip_norm: float | None
    custom: Sequence[CustomGradient]
    loss_scaling: LossScaling | None
    check_finite: bool
    keep_all: bool


def step_of(module: Module, parameters: Sequence[str], rule: Rule, **options: Unpack[StepOptions]) -> Step:
    """The step that makes an output smaller by a rule.

    An input ``x`` of the module beside an output ``next_x`` is kept from step to step, too, and starts with zeros.

    parameters
        Names of inputs of the module that are trained: those that ``weft.lift_constants`` made.
    options
        As in `StepOptions`.

    Raises `GraphError` for names that clash, unknown options, parameters of several types, and what ``weft.grad``
    raises.
    """
    for name in options:
        if name not in StepOptions.__annotations__:
            raise GraphError(f"there is no option {name!r}", hint=f"known: {', '.join(StepOptions.__annotations__)}")
    loss, clip_norm, scaling = options.get("loss", "loss"), options.get("clip_norm"), options.get("loss_scaling")
    require_names(parameters, "parameters", GraphError)
    if not callable(rule):
        raise GraphError(f"rule is {rule!r:.80}, but must be a function of a parameter's Learning")
    if not parameters:
        raise GraphError("there is no parameter to train", hint="weft.lift_constants makes inputs of a model's weights")
    if clip_norm is not None:
        require_number(clip_norm, "clip_norm", GraphError)
    if scaling is not None and not isinstance(scaling, LossScaling):
        raise GraphError(f"loss_scaling is {scaling!r:.80}, but must be a LossScaling",
                         hint="weft.train.LossScaling()")  # fmt: skip
    if clip_norm is not None and not 0 < clip_norm < float("inf"):
        raise GraphError(f"clip_norm is {clip_norm}, but must be above 0 and finite")
    scale = None if scaling is None else _scale(module, parameters, scaling)
    source, of = (module, loss) if scale is None or loss not in module.main.output_names else (
        with_scaled_loss(module, loss, scale)
    )  # fmt: skip
    main = grad(source, wrt=list(parameters), of=of, custom=options.get("custom", ())).main
    own = dict(zip(module.main.output_names, main.results, strict=False))
    inputs = {param.name: param for param in main.params}
    values = [inputs[name] for name in parameters]
    types = {value.dtype for value in values}
    if len(types) > 1:
        raise GraphError(f"the parameters are of several types: {', '.join(sorted(types))}")
    gradients: Sequence[Expr] = main.results[len(source.main.output_names) :]
    if scale is not None:
        finite = all_finite(gradients)  # as they are made, which may be in 16 bits
        gradients = [nn.divide(each, scale.value) for each in gradients]
    if clip_norm is not None:
        gradients = shortened(gradients, clip_norm)
    rate = Var(RATE, TensorType((), types.pop()))
    following: dict[Var, Expr] = {}
    kept: dict[Var, Expr] = {}
    together: dict[Var, None] = {}
    for value, gradient in zip(values, gradients, strict=True):
        learning = Learning(value, gradient, rate)
        following[value] = rule(learning)
        kept |= learning.kept
        together |= dict.fromkeys((value, *learning.kept))
    following |= kept
    checked: dict[Var, Expr] = {}
    if scale is None and options.get("check_finite", True):
        checked = {value: zero_if_finite(following[value]) for value in values}
    if scale is not None:
        following = {var: nn.where(finite, value, var) for var, value in following.items()} | scale.following(finite)
    following |= {param: own.pop(f"next_{name}") for name, param in inputs.items()
                  if param not in following and f"next_{name}" in own}  # fmt: skip
    clash = [var.name for var in (rate, *kept) if var.name in inputs]
    if clash:
        raise GraphError(f"an input has the name {clash[0]!r} already", hint="rename it")
    state = {var.name: f"next_{var.name}" for var in following}
    checks = {var.name: f"check_{var.name}" for var in checked}
    # Results are computed in their order: the last layer's gradients are there first, and need not wait for all others.
    # Where a scale has them all wait, the state of each parameter is made together, of its gradient in 16 bits.
    results = dict(own)
    for var in reversed(following if scale is None else dict.fromkeys((*together, *following))):
        if var in checked:
            results[checks[var.name]] = checked[var]
        results[state[var.name]] = _own(following[var], inputs)
    if len(results) < len(own) + len(checked) + len(following):
        raise GraphError("an output of the model has the name of a next value or of a check",
                         hint="rename outputs named next_... and check_...")  # fmt: skip
    body = Tuple(tuple(results.values()))
    attrs = Attrs(main.attrs).replace(outputs=tuple(results))
    whole = Module(Function((*main.params, *kept, rate), body, attrs, main.span), module.stage)
    whole = tidied(split_computed_norms(tidied(whole)))
    module = whole if options.get("keep_all", False) else rematerialised(whole, len(own))
    return Step(module, tuple(parameters), state, checks)


def _scale(module: Module, parameters: Sequence[str], scaling: LossScaling) -> Scale | None:
    """The scale, of the parameters' type; None where there are none, which ``weft.grad`` says."""
    types = [param.dtype for param in module.main.params if param.name in parameters]
    if not types:
        return None
    scale = scale_of(scaling, types[0])
    clash = {scale.kept.name, scale.steps.name} & {param.name for param in module.main.params}
    if clash:
        raise GraphError(f"an input has the name {min(clash)!r} already", hint="rename it")
    return scale


def shortened(gradients: Sequence[Expr], longest: float) -> list[Expr]:
    """Gradients times min(1, longest / norm), of the Euclidean norm of all their elements."""
    norm = nn.sqrt(_total([square_sum(each) for each in gradients]))
    factor = nn.divide(number(norm, longest), nn.maximum(norm, number(norm, longest)))
    return [nn.multiply(each, factor) for each in gradients]


def square_sum(x: Expr) -> Expr:
    """The sum of the squares of all elements, a scalar."""
    row = as_row(x)
    return nn.reduce_sum(nn.multiply(row, row), axes=(0,))


def number(x: Expr, value: float) -> Constant:
    """A number of the element type of ``x``."""
    return Constant(np.array(value, numpy_dtype(x.dtype)))


def _total(parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = nn.add(total, part)
    return total


def _own(value: Expr, inputs: Mapping[str, Var]) -> Expr:
    """The value, or a copy of an input that would be handed back as it is."""
    return contract.reshape(value, shape=value.shape) if value in inputs.values() else value
