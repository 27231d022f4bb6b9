"""How large values become: the model runs on examples, and each place gets the range that its 8 bits cover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..api import compile as compile_model
from ..api import load
from ..compiler.graph import (
    Anchor,
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Tuple,
    Var,
    operator_of,
    topological_order,
)
from ..compiler.model import CompiledModel
from ..runtime.module import LoadedModule
from ..whole import require_number
from .errors import QuantiseError
from .plan import Plan, require_examples, require_plan

Method = Literal["minmax", "percentile", "mse"]

BINS = 4096
"""Of the histogram that a range is cut by."""

CUTS = np.linspace(1.0, 0.2, 81)
"""Shares of the whole range that ``mse`` tries."""

LEVELS = 255
"""Steps between the smallest and the largest of 8 bits."""


@dataclass(frozen=True)
class Range:
    """What 8 bits cover: ``low`` <= 0 <= ``high``. Raises `QuantiseError` for other ends, and for infinite ones."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            require_number(getattr(self, name), f"the {name} end of a range", QuantiseError)
        if not -np.inf < self.low <= 0 <= self.high < np.inf:
            raise QuantiseError(f"a range from {self.low} to {self.high}, but 0 must lie in it, and its ends be finite")

    @property
    def scale(self) -> float:
        """Of one step, a float32; 1 for a place that has always been 0."""
        return float(np.float32((self.high - self.low) / LEVELS)) or 1.0

    @property
    def zero_point(self) -> int:
        """The int8 that stands for 0: 0 where as much lies below as above, whatever the scale was rounded to."""
        if self.low == -self.high:
            return 0
        return int(np.clip(round(-128 - self.low / self.scale), -128, 127))


def calibrate(
    plan: Plan, examples: Iterable[Mapping[str, Array]], *, method: Method = "minmax", percentile: float = 99.99,
    symmetric_products: bool = False, progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Range]:  # fmt: skip
    """The range of every place of a plan, by name.

    examples
        Inputs of the model, by name, one batch each. They are read twice unless the method is ``minmax``.
    method
        ``minmax``: all that was seen. ``percentile``: so many per cent of what was seen lie inside. ``mse``: the part
        of it with the least mean square error of rounding and cutting off.
    symmetric_products
        Operands of products of two computed matrices (attention) get as much room below 0 as above, so that they have
        no zero point: nobody has to sum one operand for the other's. Shares of a softmax then have 7 bits.
    progress
        Called with a line of text for each batch.

    Raises `QuantiseError` without examples and for values that are not finite, which it names; what the model raises
    for inputs that do not fit.
    """
    require_plan(plan)
    require_examples(examples)
    if method not in ("minmax", "percentile", "mse"):
        raise QuantiseError(f"there is no method {method!r}", hint="minmax, percentile or mse")
    require_number(percentile, "percentile", QuantiseError)
    if not 50 < percentile <= 100:
        raise QuantiseError(f"percentile is {percentile}, but must be above 50 and at most 100")
    batches = list(examples) if method != "minmax" else examples
    observed = _Observed(plan)
    seen: dict[str, tuple[float, float]] = {}
    count = 0
    for count, batch in enumerate(batches, 1):
        progress(f"ranges: batch {count}")
        for name, value in observed.values(batch).items():
            if value.size and not np.isfinite(value).all():
                raise QuantiseError(f"{name!r} has values that are not finite", hint="look at the examples")
            low, high = (float(value.min()), float(value.max())) if value.size else (0.0, 0.0)
            before = seen.get(name, (0.0, 0.0))
            seen[name] = min(before[0], low), max(before[1], high)
    if not count:
        raise QuantiseError("there are no examples to calibrate with")
    ranges = {name: Range(*limits) for name, limits in seen.items()}
    symmetric = _operands_of_products(plan) if symmetric_products else frozenset()
    if method == "minmax":
        return _centred(ranges, symmetric)
    histograms = {name: np.zeros(BINS) for name in ranges}
    for number, batch in enumerate(batches, 1):
        progress(f"histograms: batch {number} of {count}")
        for name, value in observed.values(batch).items():
            span = ranges[name]
            if span.high > span.low:
                histograms[name] += np.histogram(value, BINS, (span.low, span.high))[0]
    cut = _least_error if method == "mse" else lambda counts, span: _inside(counts, span, percentile / 100)
    return _centred({name: cut(histograms[name], span) for name, span in ranges.items()}, symmetric)


def _operands_of_products(plan: Plan) -> frozenset[str]:
    """The places that a product of two computed matrices reads, also through moves."""
    names = {value: name for name, value in plan.values.items()}
    found: set[str] = set()
    for node in topological_order(plan.module.main.body):
        entry = operator_of(node)
        if not isinstance(node, Call) or entry is None or entry.anchor is not Anchor.PRODUCT:
            continue
        if any(isinstance(arg, Constant) for arg in node.args):
            continue
        waiting = list(node.args)
        while waiting:
            value = waiting.pop()
            if value in names:
                found.add(names[value])
            elif isinstance(value, Call):
                waiting += value.args
    return frozenset(found)


def _centred(ranges: Mapping[str, Range], symmetric: frozenset[str]) -> dict[str, Range]:
    """The ranges, those of ``symmetric`` as wide to both sides of 0."""

    def centred(span: Range) -> Range:
        far = max(-span.low, span.high)
        return Range(-far, far)

    return {name: centred(span) if name in symmetric else span for name, span in ranges.items()}


class _Observed:
    """The model on the CPU with all places as outputs."""

    def __init__(self, plan: Plan) -> None:
        main = plan.module.main
        self.inputs = {name: value for name, value in plan.values.items() if isinstance(value, Var)}
        computed: dict[str, Expr] = {name: value for name, value in plan.values.items() if name not in self.inputs}
        outputs = {f"value{number}": name for number, name in enumerate(computed)}
        self.names: dict[str, str] = outputs
        attrs = Attrs(main.attrs).replace(outputs=tuple(outputs))
        module = Module(Function(main.params, Tuple(tuple(computed.values())), attrs, main.span), plan.module.stage)
        model = compile_model(module, target="cpu")
        assert isinstance(model, CompiledModel)  # all sizes are known
        loaded = load(model)
        assert isinstance(loaded, LoadedModule)
        self.module = loaded

    def values(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        found = self.module.run(batch)
        given = {name: np.asarray(batch[var.name]) for name, var in self.inputs.items() if isinstance(var, Var)}
        return given | {self.names[name]: value for name, value in found.items()}


def _inside(counts: Array, span: Range, share: float) -> Range:
    """The range without the outermost elements at each end."""
    if not counts.any():
        return span
    below = np.cumsum(counts) / counts.sum()
    edges = np.linspace(span.low, span.high, len(counts) + 1)
    low = edges[int(np.searchsorted(below, 1 - share, side="right"))]
    high = edges[int(np.searchsorted(below, share)) + 1]
    return Range(min(0.0, float(low)), max(0.0, float(high)))


def _least_error(counts: Array, span: Range) -> Range:
    """Of ranges that are parts of the whole one, that whose 8 bits lose least of what a histogram shows."""
    if not counts.any():
        return span
    edges = np.linspace(span.low, span.high, len(counts) + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    candidates = [Range(span.low * share, span.high * share) for share in CUTS]
    return candidates[int(np.argmin([_error(centres, counts, each) for each in candidates]))]


def _error(values: Array, counts: Array, span: Range) -> float:
    rounded = np.clip(np.rint(values / span.scale) + span.zero_point, -128, 127) - span.zero_point
    return float((counts * (rounded * span.scale - values) ** 2).sum())
