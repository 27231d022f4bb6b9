"""Passes and the manager that runs them: types, legality, timing, and on request the equivalence check."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..graph import (
    Array,
    Call,
    Expr,
    Function,
    GraphError,
    Module,
    calls,
    evaluate,
    to_text,
)
from ..graph.dtypes import STRING, dtype_name, is_float, limits, numpy_dtype
from ..graph.evaluate import Value
from ..graph.registry import call
from ..graph.strings import canonical, same_strings
from ..graph.visit import Mutator, rewrite
from .legality import check_stage

Rule = Callable[[Call], Expr | None]


class PassError(GraphError):
    """A pass broke the module: its types, what is legal after it, or what it computes."""


@dataclass(frozen=True)
class Counted:
    """A module with how often a pass matched in it."""

    module: Module
    matches: int


@dataclass(frozen=True)
class Pass:
    """A function of modules with a name.

    ``run`` may say how often it matched, as passes of rules do. ``needs``: passes that must have run before.
    ``stage``: the module's stage (`legality.STAGES`) from this pass on; empty when it does not change. ``tolerance``:
    by how much results may differ from before, as a fraction of the largest output; 0 for a pass that keeps every bit.
    ``about``: what it does, where the docstring of ``run`` does not say it.
    """

    name: str
    run: Callable[[Module], Module | Counted]
    needs: tuple[str, ...] = ()
    stage: str = ""
    tolerance: float = 0.0
    about: str = ""

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        text = " ".join((self.about or self.run.__doc__ or "").strip().split("\n\n")[0].split())
        return re.split(r"(?<=\.) (?=[A-Z])", text)[0]

    def __call__(self, module: Module) -> Module:
        return self.counted(module)[0]

    def counted(self, module: Module) -> tuple[Module, int | None]:
        """The module after the pass, and how often it matched; None where the pass does not count."""
        result = self.run(module)
        return (result.module, result.matches) if isinstance(result, Counted) else (result, None)


def graph_pass(
    name: str, *, needs: tuple[str, ...] = (), stage: str = "", tolerance: float = 0.0
) -> Callable[[Callable[[Module], Module | Counted]], Pass]:
    """Decorator: a function ``Module -> Module``, or ``Module -> Counted``, becomes a pass."""

    def wrap(run: Callable[[Module], Module | Counted]) -> Pass:
        return Pass(name, run, needs, stage, tolerance)

    return wrap


def rule_pass(
    name: str, rules: Sequence[Rule], *, needs: tuple[str, ...] = (), tolerance: float = 0.0, about: str = ""
) -> Pass:  # fmt: skip
    """A pass that applies the rules to every call of ``main`` until none has more to say. What it does is in ``about``,
    or in the docstring of its only rule."""

    def run(module: Module) -> Counted:
        matches = 0

        def first(node: Call) -> Expr | None:
            nonlocal matches
            for rule in rules:
                new = rule(node)
                if new is not None and new != node:
                    matches += 1
                    return new
            return None

        current = module
        while True:
            rewritten = current.with_main(rewrite(current.main.body, first))
            if rewritten == current:
                return Counted(current, matches)
            current = rewritten

    alone = rules[0].__doc__ or "" if len(rules) == 1 else ""
    return Pass(name, run, needs, "", tolerance, about or alone)


def infer_types(module: Module) -> Module:
    """The module with every type worked out again. Raises `PassError` where a type is not what the node says."""
    typed_functions: dict[Function, Function] = {}

    class Inference(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            op = node.op
            if isinstance(op, Function):
                op = typed_functions.setdefault(op, Inference().run_function(op))
            again = call(op, *node.args, span=node.span, **node.attrs)
            if again.type != node.type:
                raise PassError(f"{node.op} is marked {node.type}, but is {again.type}", at=node.span)
            return node if op is node.op else again

    return Module(Inference().run_function(module.main), module.stage)


@dataclass(frozen=True)
class PassRecord:
    """What one pass did. ``matches``: how often it found what it looks for; None where it does not count."""

    name: str
    seconds: float
    calls_before: int
    calls_after: int
    changed: bool
    error: float | None  # largest difference of an output as a fraction of the largest output; None when not checked
    matches: int | None = None

    @property
    def outcome(self) -> str:
        """What it did, in words."""
        size = f"{self.calls_before} -> {self.calls_after} calls" if self.changed else "changed nothing"
        return size if self.matches is None else f"matched {self.matches:,} times, {size}"

    def __str__(self) -> str:
        checked = "" if self.error is None else f"  error {self.error:.2e}"
        return f"{self.name:24} {self.seconds * 1e3:8.1f} ms  {self.outcome}{checked}"


@dataclass
class PassManager:
    """Runs passes in order and keeps a record of each.

    ``check``: run the module before and after each pass on the same random inputs and refuse a difference; the error
    names the pass and the first tensor. ``show``: called with (record, text before, text after) for every pass that
    changes the module. ``report``: called with the record of every pass. ``ran``: names of passes that the module has
    been through already.
    """

    passes: Sequence[Pass]
    check: bool = False
    show: Callable[[PassRecord, str, str], None] | None = None
    seed: int = 0
    report: Callable[[PassRecord], None] = lambda _: None
    records: list[PassRecord] = field(default_factory=list)
    ran: Sequence[str] = ()

    def __post_init__(self) -> None:
        ran = set(self.ran)
        for item in self.passes:
            missing = [need for need in item.needs if need not in ran]
            if missing:
                raise PassError(f"pass {item.name!r} needs {missing[0]!r} before it")
            ran.add(item.name)

    def run(self, module: Module) -> Module:
        """The module after all passes. Raises `PassError` that names the pass at fault, or what a pass raises."""
        self.records.clear()
        check_stage(module)
        inputs = random_inputs(module, self.seed) if self.check else {}
        reference = evaluate(module, inputs) if self.check else {}
        count = len(calls(module.main.body))
        for item in self.passes:
            start = time.perf_counter()
            after, matches = item.counted(module)
            seconds = time.perf_counter() - start
            try:
                changed = after != module
                typed = infer_types(after) if changed else after  # equal, but perhaps with more nodes in common
                after = replace(typed, stage=item.stage or module.stage)
                if after.main is not module.main or after.stage != module.stage:
                    check_stage(after)
            except GraphError as error:
                raise PassError(f"after pass {item.name!r}: {error}") from error
            changed |= after.stage != module.stage
            difference: float | None = None
            if self.check:
                results = evaluate(after, inputs) if changed else reference
                difference = largest_difference(reference, results)
                if difference > item.tolerance:
                    where = first_difference(module, after, inputs, item.tolerance)
                    raise PassError(
                        f"pass {item.name!r} changed the results by {difference:.3g} of the largest output; "
                        f"at most {item.tolerance:g} is allowed; {where}"
                    )
                reference = results
            before, count = count, len(calls(after.main.body)) if after.main is not module.main else count
            record = PassRecord(item.name, seconds, before, count, changed, difference, matches)
            self.records.append(record)
            self.report(record)
            if self.show is not None and changed:
                self.show(record, to_text(module), to_text(after))
            module = after
        return module


def random_inputs(module: Module, seed: int) -> dict[str, Array]:
    """Inputs of the right types: normal floats, integers over their whole range, strings of digits."""
    generator = np.random.default_rng(seed)
    result: dict[str, Array] = {}
    for param in module.main.params:
        shape, dtype = param.type.shape, numpy_dtype(param.type.dtype)
        if is_float(param.type.dtype):
            result[param.name] = generator.normal(size=shape).astype(dtype)
        elif param.type.dtype == STRING:
            result[param.name] = canonical(generator.integers(0, 100, shape).astype(np.str_))
        else:
            low, high = limits(param.type.dtype)
            values = generator.integers(low, high, shape, np.uint64 if low == 0 else np.int64, endpoint=True)
            result[param.name] = values.astype(dtype)
    return result


def largest_difference(before: Mapping[str, Array], after: Mapping[str, Array]) -> float:
    """Largest absolute difference between outputs of the same name, as a fraction of the largest output.

    Infinity where the shapes differ, or where only one of two elements is nan or they are different infinities.
    """
    return max((_difference(value, after[name]) for name, value in before.items()), default=0.0)


def _difference(before: Array, after: Array) -> float:
    if before.shape != after.shape:
        return float("inf")
    if STRING in (dtype_name(before.dtype), dtype_name(after.dtype)):
        return 0.0 if before.dtype == after.dtype and bool(same_strings(before, after).all()) else float("inf")
    old, new = before.astype(np.float64), after.astype(np.float64)
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    if same.all():
        return 0.0
    worst = np.abs(old[~same] - new[~same]).max()
    scale = np.abs(old, where=np.isfinite(old), out=np.zeros_like(old)).max() or 1.0
    return float(worst / scale) if np.isfinite(worst) else float("inf")


def first_difference(before: Module, after: Module, inputs: Mapping[str, Array], tolerance: float) -> str:
    """Which of the model's tensors, in the order of execution, is the first that both modules hold and that differs.

    Tensors whose element type or shape the pass changed cannot be compared and are passed over.
    """
    old, new = _tensors(before, inputs), _tensors(after, inputs)
    for name, value in old.items():
        if name not in new or new[name].dtype != value.dtype or new[name].shape != value.shape:
            continue
        difference = _difference(value, new[name])
        if difference > tolerance:
            return f"the first tensor that differs is {name!r}, by {difference:.3g} of its largest element"
    return "no inner tensor that both modules hold differs"


def _tensors(module: Module, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every tensor of the model that ``module`` computes, in the order of execution, then the outputs."""
    values: dict[str, Array] = {}

    def observe(node: Expr, value: Value) -> None:
        if node.span.tensor and isinstance(node, Call) and not isinstance(value, tuple):
            values[node.span.tensor] = value

    results = evaluate(module, inputs, observe)
    return {**values, **results}
