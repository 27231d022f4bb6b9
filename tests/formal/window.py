"""Proofs of what ends a fixed number of cycles after it began, in modules that never stall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.asserts import Initial
from amaranth.hdl import Mux, Signal, Value

from .harness import Harness
from .prover import Mutant, Proof


class Window:
    """The cycle of a trace, counted from 0; what happens in one of them can be kept."""

    def __init__(self, harness: Harness) -> None:
        self.m = harness.m
        self._count = Signal(6, name="cycle")
        self.m.d.sync += self._count.eq(Mux(Initial(), 1, self._count + 1))

    def at(self, cycle: int) -> Value:
        return Initial() if cycle == 0 else ~Initial() & (self._count == cycle)

    def kept(self, name: str, value: Any, cycle: int) -> Signal:
        """From the next cycle on, what ``value`` is in ``cycle``."""
        signal = Signal(Value.cast(value).shape(), name=f"kept_{name}")
        with self.m.If(self.at(cycle)):
            self.m.d.sync += signal.eq(value)
        return signal


def window_proof(
    name: str, claim: str, build: Callable[[], Harness], mutant: Mutant, latency: int, *, instruction: str, flags: str,
    cut_multipliers: int = 0,
) -> Proof:  # fmt: skip
    """Of what begins in any state and ends ``latency`` cycles later, so that the window covers every run."""
    return Proof(
        name,
        claim,
        build,
        mutant,
        depth=latency + 1,
        inductive=False,
        any_state=True,
        whole_window=True,
        cut_multipliers=cut_multipliers,
        instruction=instruction,
        flags=flags,
        solver="bitwuzla",
    )
