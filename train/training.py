"""Runs a step of training again and again, with the state between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..compiler.graph import Array, Attrs, Call, Constant, Expr, Function, Module, Var, evaluate
from ..compiler.graph.dtypes import FLOATS, numpy_dtype
from ..errors import WeftError
from . import checkpoint
from .step import RATE, Step


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

    def __init__(self, step: Step, start: Mapping[str, Array], module: Runs) -> None:
        """``start``: the value of each parameter. ``module``: the step, compiled and loaded.

        Raises `TrainingError` for a parameter that is missing or of another type.
        """
        types = {param.name: param.type for param in step.module.main.params}
        unknown = sorted(set(start) - set(step.parameters))
        if unknown:
            raise TrainingError(f"{unknown[0]!r} is no parameter", hint=f"those are: {', '.join(step.parameters)}")
        self._step, self._module, self.steps = step, module, 0
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
        self._next = {name: np.empty_like(value) for name, value in self._state.items()}
        self._losses = [name for name in step.module.main.output_names if name not in step.state.values()]
        self._rate = numpy_dtype(types[RATE].dtype)

    @property
    def parameters(self) -> dict[str, Array]:
        """A copy of each parameter."""
        return {name: self._state[name].copy() for name in self._step.parameters}

    def save(self, path: str | Path) -> None:
        """Write a checkpoint: what `restore` goes on from, to the bit. A file that is there stays until the new one is
        whole. Raises OSError."""
        checkpoint.save(Path(path), self._step, checkpoint.Checkpoint(self.steps, self._state))

    def restore(self, path: str | Path) -> None:
        """Take the state of a checkpoint. Raises `CheckpointError` for a damaged one and for one of another training,
        and OSError; the state is then as before."""
        found = checkpoint.load(Path(path), self._step)
        self._state, self.steps = {name: np.array(value, order="C") for name, value in found.state.items()}, found.steps

    def step(self, inputs: Mapping[str, Array], rate: float) -> dict[str, Array]:
        """One step on a batch; the model's own outputs, its loss among them, as they were before it.

        Raises `TrainingError` for a rate that is not finite, and when an output that is one number is not, with the
        node that it comes from; the state is then that before the step.
        What the module raises for inputs that do not fit leaves the state as it is, too.
        """
        if np.ndim(rate) or not np.isfinite(rate):
            raise TrainingError(f"the rate is {rate} at step {self.steps}, but must be one finite number")
        state = {**self._state, RATE: np.array(rate, self._rate)}
        clash = sorted(set(inputs) & set(state))
        if clash:
            raise TrainingError(f"{clash[0]!r} is kept from step to step and cannot be given")
        outputs: dict[str, Any] = {after: self._next[name] for name, after in self._step.state.items()}
        found = self._module.run({**inputs, **state}, outputs)
        for name in self._losses:
            value = found[name]
            if value.size == 1 and value.dtype.name in FLOATS and not np.isfinite(value.astype(np.float64)).all():
                cause = _first_not_finite(self._step.module, name, {**inputs, **state})
                raise TrainingError(f"{name} is {float(value.reshape(())):g} at step {self.steps}: {cause}",
                                    hint="the parameters are those before it; try a smaller rate")  # fmt: skip
        self._state, self._next = self._next, self._state
        self.steps += 1
        return {name: found[name] for name in self._losses}


def _first_not_finite(module: Module, output: str, inputs: Mapping[str, Array]) -> str:
    """Where the first value of those that an output is computed from was not a number, or else infinite."""
    main = module.main
    result = main.results[main.output_names.index(output)]
    part = Module(Function(main.params, result, Attrs(main.attrs).replace(outputs=(output,)), main.span), module.stage)
    bad: dict[str, Expr] = {}

    def observe(node: Expr, value: object) -> None:
        if isinstance(value, np.ndarray) and value.dtype.name in FLOATS and not isinstance(node, Constant):
            wide = value.astype(np.float64)
            if np.isnan(wide).any():
                bad.setdefault("not a number", node)
            elif np.isinf(wide).any():
                bad.setdefault("infinite", node)

    with np.errstate(all="ignore"):
        evaluate(part, inputs, observe)
    for what in ("not a number", "infinite"):
        if what in bad:
            return f"{_described(bad[what])} is the first that is {what}"
    return "but not when NumPy computes it"


def _described(node: Expr) -> str:
    if isinstance(node, Var):
        return f"input {node.name!r}"
    op = node.op if isinstance(node, Call) and isinstance(node.op, str) else "a function"
    return f"the result of {op} ({node.span})" if node.span else f"the result of {op}"
