"""Moves between layers that only pick channels are layers of the core; others stay on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import weft
from weft.compiler.graph import Constant, Expr, call, evaluate
from weft.compiler.passes import PassManager, integer_passes

from tests.compiler.targets.accel.quantised_layers import layer, module_of, quantised, variable

SIZE = (5, 3)


def shuffled(x: Expr, groups: int) -> Expr:
    n, c, *size = x.shape
    turned = call("transpose", call("reshape", x, shape=(n, groups, c // groups, *size)), perm=(0, 2, 1, 3, 4))
    return quantised(call("reshape", turned, shape=x.shape))


def part(x: Expr, first: int, count: int, step: int = 1) -> Expr:
    sizes, steps = (x.shape[0], count, *x.shape[2:]), (1, step, 1, 1)
    return call("slice", x, starts=(0, first, 0, 0), sizes=sizes, steps=steps)


PICKED: dict[str, Callable[[Expr], Expr]] = {
    "a shuffle": lambda x: shuffled(x, 4),
    "halves in turn": lambda x: call("concat", part(x, 10, 10), part(x, 0, 10), axis=1),
    "every third": lambda x: part(x, 1, 6, 3),
    "some of a shuffle": lambda x: part(shuffled(x, 2), 3, 11),
    "a gather": lambda x: call("gather", x, Constant(np.array([19, 3, 3, 0], np.int64)), axis=1),
    "a shuffle of a concat": lambda x: shuffled(quantised(call("concat", x, layer(x, 12), axis=1)), 2),
}
LEFT: dict[str, Callable[[Expr], Expr]] = {
    "padded channels": lambda x: call("pad", x, pads=(0, 1, 0, 0, 0, 0, 0, 0), value=0.0),
    "pixels as channels": lambda x: call("reshape", call("transpose", x, perm=(0, 2, 3, 1)), shape=(1, 15, 20, 1)),
}


def launches(move: Callable[[Expr], Expr]) -> int:
    """How often the core runs for two layers with a move between; all results must be those of the contract."""
    x = variable(1, 8, *SIZE)
    body = layer(move(layer(quantised(x), 20)), 9)
    module = module_of(x, body)
    model = weft.compile(module, "tiny")
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    return len(model.programs)


@pytest.mark.parametrize("name", PICKED)
def test_picked_channels_never_leave_the_core(name: str) -> None:
    assert launches(PICKED[name]) == 1


@pytest.mark.parametrize("name", LEFT)
def test_other_moves_are_the_hosts(name: str) -> None:
    assert launches(LEFT[name]) == 2
