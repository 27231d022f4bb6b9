"""Where values are: by value and layout, and what is known of one value alone."""

from __future__ import annotations

from weft.compiler.graph import TensorType, Var
from weft.compiler.targets.loops.arena import InputAt, OutputAt
from weft.compiler.targets.loops.layouts import PLAIN, Layout
from weft.compiler.targets.loops.slots import Slots

X, Y = (Var(name, TensorType((1, 16, 4, 4), "float32")) for name in "xy")


def test_a_value_is_found_in_the_layouts_in_which_it_is_there() -> None:
    slots, blocked = Slots(), Layout(block=16)
    slots[X, PLAIN] = InputAt(0)
    slots[X, blocked] = InputAt(1)
    slots[Y, PLAIN] = OutputAt(0)
    assert dict(slots.of(X)) == {PLAIN: InputAt(0), blocked: InputAt(1)}
    assert list(slots.of(X)) == [PLAIN, blocked]
    assert slots[Y, PLAIN] == slots.get((Y, PLAIN)) == OutputAt(0)
    assert (X, blocked) in slots
    assert (Y, blocked) not in slots
    assert slots.get((Y, blocked)) is None
    assert slots.of(Var("z", TensorType((1,), "float32"))) == {}


def test_an_equal_value_is_the_same() -> None:
    slots = Slots()
    slots[X, PLAIN] = InputAt(0)
    assert (Var("x", X.tensor_type), PLAIN) in slots
