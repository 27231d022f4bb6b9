"""Runs a step of training again and again, with the state between."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Var,
    evaluate,
    topological_order,
)
from ..compiler.graph.dtypes import FLOATS, numpy_dtype
from ..errors import WeftError
from ..whole import require_mapping, require_names, require_number
from . import checkpoint
from .step import RATE, Step, require_step


class TrainingError(WeftError):
    """Training cannot go on, or cannot start."""


class Runs(Protocol):
    """A loaded module, or whatever else runs a step."""

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Mapping[str, Array]:
        """The outputs by name, those of ``outputs`` in its memory."""


class Training:
    """The state of a training, and its steps. One step is one call of compiled code, which writes the next state into
    memory that this object keeps: two sets of arrays take turns, and nothing is copied.

    ``steps``: how many there have been.
    """

    def __init__(
        self, step: Step, start: Mapping[str, Array], module: Runs, *, in_place: Collection[str] = ()
    ) -> None:  # fmt: skip
        """``start``: the value of each parameter. ``module``: the step, compiled and loaded. ``in_place``: state that
        the compiled step may replace where it lies (`replaced_in_place`): it has one array instead of two, but a step
        that ends with infinity or NaN has lost it, and only `restore` goes on.

        Raises `TrainingError` for a parameter that is missing or of another type.
        """
        require_step(step, TrainingError)
        require_mapping(start, "start", TrainingError)
        require_names(in_place, "in_place", TrainingError)
        if not callable(getattr(module, "run", None)):
            raise TrainingError(f"module is {module!r:.80}, but must be the step, compiled and loaded",
                                hint='weft.load(weft.compile(step.module, target="cpu"))')  # fmt: skip
        types = {param.name: param.type for param in step.module.main.params}
        unknown = sorted(set(start) - set(step.parameters))
        if unknown:
            raise TrainingError(f"{unknown[0]!r} is no parameter", hint=f"those are: {', '.join(step.parameters)}")
        no_state = sorted(set(in_place) - set(step.state))
        if no_state:
            raise TrainingError(f"{no_state[0]!r} is not kept from step to step, so it has no place")
        self._step, self._module, self.steps = step, module, 0
        self._in_place, self._lost = frozenset(in_place), False
        self._state: dict[str, Array] = {}
        for name in step.state:
            kind = types[name]
            dtype = numpy_dtype(kind.dtype)
            if name not in step.parameters:
                self._state[name] = np.zeros(kind.shape, dtype)
                continue
            if name not in start:
                raise TrainingError(f"parameter {name!r} ({kind}) has no value")
            value = np.asarray(start[name])
            if value.shape != kind.shape or value.dtype != dtype:
                raise TrainingError(f"parameter {name!r} must be {kind}, not {value.dtype.name}{list(value.shape)}")
            self._state[name] = np.array(value, order="C")
        self._next = self._room()
        self._rate = numpy_dtype(types[RATE].dtype)

    @property
    def parameters(self) -> dict[str, Array]:
        """A copy of each parameter. Raises `TrainingError` where a step in place has lost them."""
        self._require_state()
        return {name: self._state[name].copy() for name in self._step.parameters}

    def _stopped(self, what: str, output: str, given: Mapping[str, Array]) -> TrainingError:
        if self._in_place:
            self._lost = True
            return TrainingError(f"{what} at step {self.steps}, and the state was replaced in place", hint="restore a "
                                 "checkpoint; a training without in_place then says where it comes from")  # fmt: skip
        cause = _first_not_finite(self._step.module, output, given)
        hint = "the parameters are those before it; try a smaller rate"
        if self._step.checks and _has_float16(self._step.module):
            hint += ", or loss_scaling, as gradients in float16 want it"
        return TrainingError(f"{what} at step {self.steps}: {cause}", hint=hint)

    def save(self, path: str | Path) -> None:
        """Write a checkpoint: what `restore` goes on from, to the bit. A file that is there stays until the new one is
        whole. Raises OSError, and `TrainingError` for a state that is not finite: the file stays then, too."""
        self._require_state()
        for name, value in self._state.items():
            if value.dtype.name in FLOATS and not np.isfinite(value.astype(np.float64)).all():
                raise TrainingError(f"the state {name!r} is not finite after step {self.steps}",
                                    hint="restore the last checkpoint; try a smaller rate")  # fmt: skip
        checkpoint.save(Path(path), self._step, checkpoint.Checkpoint(self.steps, self._state))

    def restore(self, path: str | Path) -> None:
        """Take the state of a checkpoint. Raises `CheckpointError` for a damaged one and for one of another training,
        and OSError; the state is then as before."""
        found = checkpoint.load(Path(path), self._step)
        self._state, self.steps = {name: np.array(value, order="C") for name, value in found.state.items()}, found.steps
        self._next, self._lost = self._room(), False

    def _room(self) -> dict[str, Array]:
        """Memory for the next state."""
        return {name: value if name in self._in_place else np.empty_like(value) for name, value in self._state.items()}

    def _require_state(self) -> None:
        if self._lost:
            raise TrainingError(f"the state was lost in step {self.steps}", hint="restore a checkpoint")

    def step(self, inputs: Mapping[str, Array], rate: float) -> dict[str, Array]:
        """One step on a batch; the model's own outputs, its loss among them, as they were before it.

        Raises `TrainingError` for a rate that is not finite, and when an output that is one number is not, or the
        next value of a parameter, with the node that it comes from; the state is then that before the step. State that
        is replaced in place is lost then, and with it where that came from.
        What the module raises for inputs that do not fit leaves the state as it is, too.
        """
        self._require_state()
        require_mapping(inputs, "inputs", TrainingError)
        if not np.ndim(rate):
            require_number(np.asarray(rate)[()], "the rate", TrainingError)
        if np.ndim(rate) or not np.isfinite(rate):
            raise TrainingError(f"the rate is {rate} at step {self.steps}, but must be one finite number")
        state = {**self._state, RATE: np.array(rate, self._rate)}
        clash = sorted(set(inputs) & set(state))
        if clash:
            raise TrainingError(f"{clash[0]!r} is kept from step to step and cannot be given")
        outputs: dict[str, Any] = {after: self._next[name] for name, after in self._step.state.items()}
        found = self._module.run({**inputs, **state}, outputs)
        given = {**inputs, **state}
        for name in self._step.outputs:
            value = found[name]
            if value.size == 1 and value.dtype.name in FLOATS and not np.isfinite(value.astype(np.float64)).all():
                raise self._stopped(f"{name} is {float(value.reshape(())):g}", name, given)
        for name, check in self._step.checks.items():
            if found[check] != 0:
                raise self._stopped(f"the next value of {name!r} is not finite", check, given)
        self._state, self._next = self._next, self._state
        self.steps += 1
        return {name: found[name] for name in self._step.outputs}


def _first_not_finite(module: Module, output: str, inputs: Mapping[str, Array]) -> str:
    """Where a value that an output is computed from is not finite though all that it is made of is: the first that is
    not a number, or else the first that is infinite. Infinities may be meant, as those of a mask."""
    main = module.main
    result = main.results[main.output_names.index(output)]
    part = Module(Function(main.params, result, Attrs(main.attrs).replace(outputs=(output,)), main.span), module.stage)
    finite: dict[Expr, bool] = {}
    first: dict[tuple[bool, str], Expr] = {}

    def observe(node: Expr, value: object) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.name not in FLOATS:
            return
        wide = value.astype(np.float64)
        finite[node] = bool(np.isfinite(wide).all())
        if not finite[node] and not isinstance(node, Constant):
            made_here = all(finite.get(each, True) for each in node.children)
            first.setdefault((made_here, "not a number" if np.isnan(wide).any() else "infinite"), node)

    with np.errstate(all="ignore"):
        evaluate(part, inputs, observe)
    for made_here, what in product((True, False), ("not a number", "infinite")):
        if (made_here, what) in first:
            return f"{_described(first[made_here, what])} is the first that is {what}"
    return "but not when NumPy computes it"


def _has_float16(module: Module) -> bool:
    kinds = (node.type for node in topological_order(module.main.body))
    return any(isinstance(kind, TensorType) and kind.dtype == "float16" for kind in kinds)


def _described(node: Expr) -> str:
    if isinstance(node, Var):
        return f"input {node.name!r}"
    op = node.op if isinstance(node, Call) and isinstance(node.op, str) else "a function"
    return f"the result of {op} ({node.span})" if node.span else f"the result of {op}"
