"""Proofs about reset: after one cycle of it, nothing that a module did before can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from amaranth.asserts import Initial
from amaranth.hdl import Mux, Signal, Value
from amaranth.lib.wiring import Component, In
from weft.hw.bursts import BurstCutter
from weft.hw.cycle_class import FIRST_TOKEN_CLASS
from weft.hw.engine import EngineControl
from weft.hw.fetch import Fetch
from weft.hw.gemm import GemmEngine
from weft.hw.isa import Engine
from weft.hw.load import LoadEngine
from weft.hw.loops import LoopNest
from weft.hw.store import StoreEngine
from weft.hw.tokens import TokenMatrix
from weft.hw.vector import VectorEngine

from .depthwise import DEPTHWISE, GemmWithoutProducts
from .harness import Harness
from .prover import Mutant, Proof
from .queues import NARROW


def same_after_reset(make: Callable[[Harness], Component]) -> Harness:
    """Two copies begin in any two states, are reset for one cycle, and then answer the same inputs alike."""
    harness = Harness()
    m = harness.m
    copies = [make(harness), make(harness)]
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
        matters = _said_to_matter(flat[0], path)
        harness.prove(Initial() | Mux(matters, one == other, 1), name)
    return harness


def _said_to_matter(flat: dict[Any, Any], path: tuple[Any, ...]) -> Value | int:
    """A payload counts only while ``valid`` or ``enable`` beside it is 1, what waits to be sent while it waits, and
    what waits for a token while the engine says so."""
    if path[-1] in ("ready", "valid", "enable"):
        return 1
    for end in range(len(path) - 1, -1, -1):
        for name in ("valid", "enable"):
            if (gate := (*path[:end], name)) in flat:
                return Value.cast(flat[gate][1])
    if path == ("sending",):
        return Value.cast(flat["send", "valid"][1])
    if path == ("holding",):
        return Value.cast(flat["activity",][1]) >= FIRST_TOKEN_CLASS
    return 1


def _proof(name: str, make: Callable[[Harness], Component], mutant: Mutant, depth: int = 8) -> Proof:
    return Proof(
        f"reset-{name}",
        "whatever happened before a reset, the same inputs after it give the same outputs",
        partial(same_after_reset, make),
        mutant,
        depth=depth,
        inductive=False,
        any_state=True,
    )


def _control(harness: Harness) -> EngineControl:
    """Bodies wait for memory or for each other, never for a token."""
    control = EngineControl(NARROW)
    harness.assume(Value.cast(control.waiting) < FIRST_TOKEN_CLASS)
    return control


def _store(harness: Harness) -> StoreEngine:
    """The memory answers only bursts that it was asked for: RunControl resets no engine while the bus is busy."""
    engine = StoreEngine(NARROW)
    client = engine.client
    unanswered = Signal(4)
    begins = client.bursts.valid & client.bursts.ready
    harness.m.d.sync += unanswered.eq(Mux(Initial(), 0, unanswered + begins - client.acknowledged))
    harness.assume(Initial() | ~client.acknowledged | (unanswered != 0))
    return engine


PROOFS = [
    _proof(
        "tokens",
        lambda _: TokenMatrix(NARROW),
        Mutant("tokens", "count = Signal(range(depth + 1), ", "count = Signal(range(depth + 1), reset_less=True, "),
    ),
    _proof(
        "engine",
        _control,
        Mutant("engine", "held = Signal()", "held = Signal(reset_less=True)"),
    ),
    _proof(
        "bursts",
        lambda _: BurstCutter(NARROW),
        Mutant("bursts", "rows = Signal(config.count_bits)", "rows = Signal(config.count_bits, reset_less=True)"),
    ),
    _proof(
        "loops",
        lambda _: LoopNest(NARROW),
        Mutant("loops", "self.single = Signal(init=1, ", "self.single = Signal(init=1, reset_less=True, "),
        depth=5,
    ),
    _proof(
        "gemm",
        lambda _: GemmEngine(NARROW),
        Mutant("loops", "valid, begin = Signal(), ", "valid, begin = Signal(reset_less=True), "),
        depth=6,
    ),
    _proof(
        "depthwise",
        lambda _: GemmWithoutProducts(DEPTHWISE),
        Mutant("gemm", 'name=f"wave{stage}_valid")', 'name=f"wave{stage}_valid", reset_less=True)'),
        depth=6,
    ),
    _proof(
        "vector",
        lambda _: VectorEngine(NARROW),
        Mutant("vector_fetch", "occupied, outside = Signal(), ", "occupied, outside = Signal(reset_less=True), "),
        depth=5,
    ),
    _proof(
        "load",
        lambda _: LoadEngine(NARROW, Engine.LOAD),
        Mutant("load_writer", "held, last = Signal(), ", "held, last = Signal(reset_less=True), "),
        depth=6,
    ),
    _proof(
        "store",
        _store,
        Mutant("store", "reading = Signal()", "reading = Signal(reset_less=True)"),
        depth=6,
    ),
    _proof(
        "fetch",
        lambda _: Fetch(NARROW),
        Mutant("fetch", "part = Signal(range(parts))", "part = Signal(range(parts), reset_less=True)"),
        depth=6,
    ),
]
