"""States of sessions that stay in the core's memory: whoever runs a model writes the new rows only, to bytes that the
model names. So these must be where the rows lie, and no program may touch the rest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from ..compiler.graph.ir import Call, Expr, Function, Module, Var
from ..compiler.graph.visit import substitute, topological_order
from ..compiler.model import CompiledModel, HostStep, Resident
from .certificate import Alarm
from .errors import NotProvedError
from .field import Elements
from .graph import evaluated
from .integer_operators import Context
from .keyed import Keys
from .layout import in_memory_order
from .values import bytes_value
from .window import Window

_PACKED_RANK = 7


def resident_alarms(model: CompiledModel, module: Module, names: Mapping[Call, str], keys: Keys) -> list[Alarm]:
    """The states of which a model says wrong where they lie."""
    nodes: dict[str, Expr] = {name: node for node, name in names.items()}
    nodes |= {param.name: param for param in module.main.params}
    alarms = []
    for step in model.steps:
        if isinstance(step, HostStep) and step.resident is not None:
            name = step.outputs[0] if len(step.outputs) == 1 else ""
            try:
                _check(step.resident, name, nodes, keys)
            except NotProvedError as reason:
                alarms.append(Alarm("host", "", name, str(reason)))
    return alarms


def spoiled_alarms(model: CompiledModel, window: Window, wanted: Mapping[str, Elements]) -> list[Alarm]:
    """The states that are others when all programs have run."""
    alarms = []
    for step in model.steps:
        if isinstance(step, HostStep) and step.resident is not None:
            for name in step.outputs:
                slot = model.on_core.slots.get(name)
                if slot is None or name not in wanted or (window.tensor(slot) != wanted[name]).any():
                    alarms.append(Alarm("host", "", name, "a run changes a state that stays in the core's memory"))
    return alarms


def _check(resident: Resident, name: str, nodes: Mapping[str, Expr], keys: Keys) -> None:
    """Raise NotProvedError unless the bytes of a value are a state and new rows at the places that are said, and zeros
    else."""
    value, state, rows = (nodes.get(each) for each in (name, resident.state, resident.rows))
    if value is None or rows is None or not isinstance(state, Var):
        raise NotProvedError(f"it is not put together from {resident.state!r} and {resident.rows!r}")
    given = {state: Var("state", state.type), rows: Var("rows", rows.tensor_type)}
    body = substitute(value, {**given})
    if {each for each in topological_order(body) if isinstance(each, Var)} - {*given.values()}:
        raise NotProvedError(f"it is made of more than {resident.state!r} and {resident.rows!r}")
    atoms = [keys.atoms(each.type.shape, "resident", name, each.name) for each in given.values()]
    (made,) = evaluated(Function(tuple(given.values()), body), [bytes_value(each) for each in atoms], _context(keys))
    elements = made.elements(keys)
    memory = in_memory_order(elements, value.shape) if len(value.shape) == _PACKED_RANK else elements
    joined = _joined(atoms[0], atoms[1], resident)
    places = reduce(np.add.outer, [np.array(table, np.int64) for table in resident.places])
    if places.shape != joined.shape or places.min() < 0 or places.max() >= memory.size:
        raise NotProvedError(f"it has no place for each element along the {len(resident.places)} axes of its state")
    wanted = np.zeros(memory.size, np.uint64)
    wanted[places.ravel()] = joined.ravel()
    unequal = np.flatnonzero(wanted != memory.ravel())
    if len(unequal):
        raise NotProvedError(f"its state lies elsewhere: {len(unequal)} bytes differ, the first is byte {unequal[0]}")


def _context(keys: Keys) -> Context:
    return Context(keys, one_byte=False)


def _joined(state: Elements, rows: Elements, resident: Resident) -> Elements:
    try:
        return np.concatenate([state, rows], resident.axis)
    except ValueError as error:
        raise NotProvedError(f"its rows do not stand behind its state along axis {resident.axis}") from error
