"""Variables: what LiteRT's interpreter keeps from run to run.

A run of weft keeps nothing. So a variable is a further input, and its value after the run a further output
(``next_NAME``), which a caller hands to the next run. A variable that no run changes is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Array, Constant, TensorType
from ...graph.dtypes import numpy_dtype
from .file import GraphInfo, OperatorInfo, TensorInfo
from .site import Held, Memory, Result, Site, rule

KEPT = {"SVDF": 4}
"""Operators that change one of their operands, a variable, and its number."""

Key = int | str
"""Of a variable: its tensor in the first graph, or the name that operators know it by."""


@dataclass(frozen=True)
class Variable:
    """``name`` is the input's. A first run takes ``start``."""

    key: Key
    name: str
    start: Array

    @property
    def type(self) -> TensorType:
        return TensorType(self.start.shape, str(self.start.dtype))

    @property
    def output(self) -> str:
        return f"next_{self.name}"


def at_start(tensor: TensorInfo) -> Array:
    """What a variable tensor holds before the first run: the number that stands for 0."""
    zero = 0 if tensor.quantisation is None else int(tensor.quantisation.zeros[0])
    kind = numpy_dtype(tensor.element)
    return np.full(tensor.shape, zero if kind.kind in "iu" else 0, kind)


def key_of(info: OperatorInfo) -> str:
    """The name that an operator knows a variable by."""
    container, name = info.options["container"], info.options["shared_name"]
    return f"{container}/{name}" if container else str(name)


def changed_by_runs(graphs: Sequence[GraphInfo], begun: Memory) -> list[Variable]:
    """The variables that a run of these graphs changes, of which the first runs the others. ``begun`` has the values
    that the file gives to named ones."""
    found: dict[Key, Variable] = {}
    for key, tensor in _changed(graphs):
        if key in found:
            continue
        if isinstance(key, str) and key in begun.values:
            value = begun.values[key].expr
            start, name = np.asarray(value.value) if isinstance(value, Constant) else at_start(tensor), key
        else:
            start, name = at_start(tensor), tensor.name if isinstance(key, int) else key
        found[key] = Variable(key, name or f"variable{len(found)}", start)
    return list(found.values())


def _changed(graphs: Sequence[GraphInfo]) -> Iterator[tuple[Key, TensorInfo]]:
    """Each variable that an operator of a run changes, with a tensor of its type."""
    first = graphs[0]
    for graph in graphs:
        names = {info.outputs[0]: key_of(info) for info in graph.operators
                 if info.name == "VAR_HANDLE" and info.outputs}  # fmt: skip
        for info in graph.operators:
            if graph is first and info.name in KEPT and len(info.inputs) > KEPT[info.name]:
                index = info.inputs[KEPT[info.name]]
                if index >= 0 and first.tensors[index].is_variable:
                    yield index, first.tensors[index]
            elif info.name == "ASSIGN_VARIABLE" and len(info.inputs) == 2:
                handle, value = info.inputs
                if handle in names and value >= 0:
                    yield names[handle], graph.tensors[value]


# Operators on named variables


@rule("VAR_HANDLE")
def _handle(site: Site) -> Result:
    """Its number among all names."""
    name = key_of(site.info)
    if name not in site.memory.names:
        site.memory.names.append(name)
    return Held.plain(Constant(np.array(site.memory.names.index(name), np.int64)))


def _name(site: Site) -> str:
    number = site.constant(0, "which variable it is").reshape(-1)
    if site.tensor(0).dtype != "resource" or number.size != 1 or not 0 <= number[0] < len(site.memory.names):
        raise site.error("operand 0 is no variable", hint="is the file damaged?")
    return site.memory.names[int(number[0])]


@rule("READ_VARIABLE")
def _read(site: Site) -> Result:
    name = _name(site)
    if name not in site.memory.values:
        raise site.error(f"the variable {name!r} is read, but the file gives it no value",
                         hint="convert the model with its variables as constants, or with their values")  # fmt: skip
    return site.memory.values[name]


@rule("ASSIGN_VARIABLE")
def _assign(site: Site) -> tuple[Result, ...]:
    name, value = _name(site), site.held(1)
    before = site.memory.values.get(name)
    if before is not None and (before.shape, before.expr.dtype) != (value.shape, value.expr.dtype):
        raise site.error(f"the variable {name!r} is {before.expr.type}, and would become {value.expr.type}")
    site.memory.values[name] = value
    return ()


@rule("CALL_ONCE")
def _begin(site: Site) -> tuple[Result, ...]:
    """What it does was done when the file was opened."""
    return ()
