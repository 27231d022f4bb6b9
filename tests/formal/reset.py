"""Proofs about reset: after one cycle of it, nothing that a module did before can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from amaranth.asserts import Initial
from amaranth.hdl import Mux, Value
from amaranth.lib.wiring import Component, In
from weft.hw.bursts import BurstCutter
from weft.hw.engine import EngineControl
from weft.hw.loops import LoopNest
from weft.hw.tokens import TokenMatrix

from .harness import Harness
from .prover import Mutant, Proof
from .queues import NARROW


def same_after_reset(make: Callable[[], Component]) -> Harness:
    """Two copies begin in any two states, are reset for one cycle, and then answer the same inputs alike."""
    harness = Harness()
    m = harness.m
    copies = [make(), make()]
    for number, copy in enumerate(copies):
        harness.add(f"copy_{number}", copy, driven=tuple(copy.signature.members), clear=Initial())
    flat = [
        {path: (member, Value.cast(value)) for path, member, value in copy.signature.flatten(copy)} for copy in copies
    ]
    for path, (member, one) in flat[0].items():
        name = "_".join(str(part) for part in path)
        other = flat[1][path][1]
        if member.flow is In:
            m.d.comb += [one.eq(harness.free(name, len(one))), other.eq(one)]
            continue
        matters = _valid_beside(flat[0], path)
        harness.prove(Initial() | Mux(matters, one == other, 1), name)
    return harness


def _valid_beside(flat: dict[Any, Any], path: tuple[Any, ...]) -> Value | int:
    """A payload counts only while ``valid`` beside it is 1."""
    for end in range(len(path) - 1, -1, -1):
        valid = (*path[:end], "valid")
        if valid in flat and valid != path and path[-1] != "ready":
            return Value.cast(flat[valid][1])
    return 1


def _proof(name: str, make: Callable[[], Component], mutant: Mutant, depth: int = 8) -> Proof:
    return Proof(
        f"reset-{name}",
        "whatever happened before a reset, the same inputs after it give the same outputs",
        partial(same_after_reset, make),
        mutant,
        depth=depth,
        inductive=False,
        any_state=True,
    )


PROOFS = [
    _proof(
        "tokens",
        lambda: TokenMatrix(NARROW),
        Mutant("tokens", "count = Signal(range(depth + 1), ", "count = Signal(range(depth + 1), reset_less=True, "),
    ),
    _proof(
        "engine",
        lambda: EngineControl(NARROW),
        Mutant("engine", "held = Signal()", "held = Signal(reset_less=True)"),
    ),
    _proof(
        "bursts",
        lambda: BurstCutter(NARROW),
        Mutant("bursts", "rows = Signal(config.count_bits)", "rows = Signal(config.count_bits, reset_less=True)"),
    ),
    _proof(
        "loops",
        lambda: LoopNest(NARROW),
        Mutant("loops", "valid, begin = Signal(), ", "valid, begin = Signal(reset_less=True), "),
        depth=5,
    ),
]
