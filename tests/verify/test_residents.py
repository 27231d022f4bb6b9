"""States that stay in the core's memory lie where a model says, or the model is not proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from weft.compiler.model import CompiledModel, HostStep, Resident
from weft.verify import verify

from tests.runtime.test_residents import compiled, residents


def with_resident(model: CompiledModel, **fields: Any) -> CompiledModel:
    """With another claim about the first state."""
    (first, *_) = residents(model)
    steps = tuple(
        replace(step, resident=replace(first, **fields))
        if isinstance(step, HostStep) and step.resident is first else step for step in model.steps
    )  # fmt: skip
    return replace(model, steps=steps)


def alarms(model: CompiledModel) -> str:
    return "\n".join(map(str, verify(model, seed=1).alarms))


def test_states_are_proved_where_they_are() -> None:
    assert len(residents(compiled())) == 2
    assert alarms(compiled()) == ""


def first() -> Resident:
    return residents(compiled())[0]


def changed(axis: int) -> tuple[tuple[int, ...], ...]:
    """The first and the last place of an axis exchanged."""
    tables = [*first().places]
    begin, *rest, end = tables[axis]
    tables[axis] = (end, *rest, begin)
    return tuple(tables)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_places_that_change_along_an_axis_are_found(axis: int) -> None:
    assert "its state lies elsewhere" in alarms(with_resident(compiled(), places=changed(axis)))


def test_claims_of_another_form_are_refused() -> None:
    model, places = compiled(), first().places
    assert "no place for each element" in alarms(with_resident(model, places=places[:-1]))
    assert "no place for each element" in alarms(with_resident(model, places=((1 << 20,), *places[1:])))
    assert "no place for each element" in alarms(with_resident(model, places=((-1,), *places[1:])))
    assert "do not stand behind" in alarms(with_resident(model, axis=3))
    assert "is not put together" in alarms(with_resident(model, state="none"))
    assert "is not put together" in alarms(with_resident(model, rows="none"))
    other = residents(model)[1]
    assert "made of more than" in alarms(with_resident(model, state=other.state))


def test_a_state_whose_bytes_a_program_uses_is_found() -> None:
    model = compiled()
    core = model.on_core
    state = next(step.outputs[0] for step in model.steps if isinstance(step, HostStep) and step.resident is not None)
    made = next(name for step in reversed(model.programs) for name in step.outputs)
    slot = core.slots[made]
    moved = {**core.slots, state: replace(core.slots[state], offset=slot.offset)}
    assert "changes a state" in alarms(replace(model, core=replace(core, slots=moved)))
