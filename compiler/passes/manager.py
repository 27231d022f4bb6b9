"""Passes and the manager that runs them: types, legality, timing, and on request the equivalence check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from ..graph.registry import call
from ..graph.visit import Mutator, rewrite
from .stages import check_stage

Rule = Callable[[Call], Expr | None]


class PassError(GraphError):
    """A pass broke the module: its types, what is legal after it, or what it computes."""


@dataclass(frozen=True)
class Pass:
    """A function of modules with a name.

    ``needs``: passes that must have run before. ``stage``: the stage (`stages.STAGES`) that holds from this pass on;
    empty when it does not change. ``tolerance``: by how much results may differ from before, as a fraction of the
    largest output; 0 for a pass that keeps every bit.
    """

    name: str
    run: Callable[[Module], Module]
    needs: tuple[str, ...] = ()
    stage: str = ""
    tolerance: float = 0.0

    def __call__(self, module: Module) -> Module:
        return self.run(module)


def graph_pass(
    name: str, *, needs: tuple[str, ...] = (), stage: str = "", tolerance: float = 0.0
) -> Callable[[Callable[[Module], Module]], Pass]:
    """Decorator: a function ``Module -> Module`` becomes a pass."""

    def wrap(run: Callable[[Module], Module]) -> Pass:
        return Pass(name, run, needs, stage, tolerance)

    return wrap


def rule_pass(name: str, rules: Sequence[Rule], *, needs: tuple[str, ...] = (), tolerance: float = 0.0) -> Pass:
    """A pass that applies the rules to every call, also inside functions, until none has more to say."""

    def first(node: Call) -> Expr | None:
        for rule in rules:
            new = rule(node)
            if new is not None and new != node:
                return new
        return None

    def run(module: Module) -> Module:
        current = module
        while True:
            rewritten = current.with_main(rewrite(current.main.body, first))
            if rewritten == current:
                return current
            current = rewritten

    return Pass(name, run, needs, "", tolerance)


def infer_types(module: Module) -> Module:
    """The module with every type worked out again. Raises `PassError` where a type is not what the node says."""
    known: dict[Function, Function] = {}

    class Inference(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            op = node.op
            if isinstance(op, Function):
                op = known.setdefault(op, Inference().run_function(op))
            again = call(op, *node.args, span=node.span, **node.attrs)
            if again.type != node.type:
                raise PassError(f"{node.op} is marked {node.type}, but is {again.type}", at=node.span)
            return node if op is node.op else again

    return Module(Inference().run_function(module.main))


@dataclass(frozen=True)
class PassRecord:
    """What one pass did."""

    name: str
    seconds: float
    calls_before: int
    calls_after: int
    changed: bool
    error: float | None  # largest difference of an output as a fraction of the largest output; None when not checked

    def __str__(self) -> str:
        checked = "" if self.error is None else f"  error {self.error:.2e}"
        size = f"{self.calls_before} -> {self.calls_after} calls" if self.changed else "unchanged"
        return f"{self.name:24} {self.seconds * 1e3:8.1f} ms  {size}{checked}"


@dataclass
class PassManager:
    """Runs passes in order and keeps a record of each.

    ``check``: run the module before and after each pass on the same random inputs and refuse a difference.
    ``show``: called with (pass name, text before, text after) for every pass that changes the module.
    """

    passes: Sequence[Pass]
    check: bool = False
    show: Callable[[str, str, str], None] | None = None
    seed: int = 0
    stage: str = "source"
    records: list[PassRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        ran: set[str] = set()
        for item in self.passes:
            missing = [need for need in item.needs if need not in ran]
            if missing:
                raise PassError(f"pass {item.name!r} needs {missing[0]!r} before it")
            ran.add(item.name)

    def run(self, module: Module) -> Module:
        """The module after all passes. Raises `PassError` that names the pass at fault, or what a pass raises."""
        self.records.clear()
        stage = self.stage
        check_stage(module, stage)
        inputs = random_inputs(module, self.seed) if self.check else {}
        reference = evaluate(module, inputs) if self.check else {}
        for item in self.passes:
            start = time.perf_counter()
            after = item.run(module)
            seconds = time.perf_counter() - start
            stage = item.stage or stage
            try:
                after = infer_types(after)
                check_stage(after, stage)
            except GraphError as error:
                raise PassError(f"after pass {item.name!r}: {error}") from error
            changed = after != module
            difference: float | None = None
            if self.check:
                results = evaluate(after, inputs) if changed else reference
                difference = largest_difference(reference, results)
                if difference > item.tolerance:
                    raise PassError(
                        f"pass {item.name!r} changed the results by {difference:.3g} of the largest output; "
                        f"at most {item.tolerance:g} is allowed"
                    )
                reference = results
            if self.show is not None and changed:
                self.show(item.name, to_text(module), to_text(after))
            counts = len(calls(module.main.body)), len(calls(after.main.body))
            self.records.append(PassRecord(item.name, seconds, *counts, changed, difference))
            module = after
        return module


def random_inputs(module: Module, seed: int) -> dict[str, Array]:
    """Inputs of the right types: normal floats, integers over their whole range."""
    generator = np.random.default_rng(seed)
    result: dict[str, Array] = {}
    for param in module.main.params:
        shape, dtype = param.type.shape, np.dtype(param.type.dtype)
        if dtype.kind == "f":
            result[param.name] = generator.normal(size=shape).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            result[param.name] = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return result


def largest_difference(before: dict[str, Array], after: dict[str, Array]) -> float:
    """Largest absolute difference between outputs of the same name, as a fraction of the largest output."""
    worst = 0.0
    for name, value in before.items():
        old, new = value.astype(np.float64), after[name].astype(np.float64)
        if old.shape != new.shape:
            return float("inf")
        if old.size:
            scale = float(np.abs(old).max()) or 1.0
            worst = max(worst, float(np.abs(old - new).max()) / scale)
    return worst
