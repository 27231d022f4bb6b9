"""Checks the commands of a DRAM against the rules of its standard.

Nothing here is shared with the model of :mod:`~weft.sim.dram_kinds` and ``dram_banks.h``: the rules are in nanoseconds,
as the standards have them, and are looked at command by command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from .dram_interface import DramCommand
from .errors import SimulationError

ANY, GROUP, BANK = "any", "group", "bank"

MOST_POSTPONED = 8
"""Refreshes that may be late, or early, at once."""

ACT, RD, WR, PRE, PREA, REF = DramCommand
OPENS, COLUMNS, CLOSES = (ACT,), (RD, WR), (PRE, PREA)


@dataclass(frozen=True)
class Rule:
    """At least ``clocks`` from a command of ``first`` to one of ``then``: at any bank, in a group, or at a bank. A
    command for all banks is one at each of them."""

    name: str
    first: tuple[DramCommand, ...]
    then: tuple[DramCommand, ...]
    where: str
    clocks: int


@dataclass(frozen=True, kw_only=True)
class DramStandard:
    """A speed of a standard for chips of one kind: ``t_``: times in nanoseconds, ``n_``: in clocks (the longer of both
    counts)."""

    clock_ns: Fraction
    banks: int
    groups: int
    burst_clocks: int
    read_latency: int
    write_latency: int
    t_rcd: float
    t_rp: float
    t_rpab: float
    t_ras: float
    t_rfc: float
    t_refi: float
    t_rrd_s: float
    t_rrd_l: float
    t_faw: float
    t_wr: float
    t_wtr_s: float
    t_wtr_l: float
    t_rtp: float
    n_ccd_s: int
    n_ccd_l: int
    n_rtp: int
    n_wtr_s: int
    n_wtr_l: int
    n_rrd: int
    n_faw: int
    read_to_write: int
    n_ppd: int = 1
    slots: tuple[int, int, int] = (1, 1, 1)  # clocks on the command bus: of an activation, a column command, others

    def clocks(self, nanoseconds: float, least: int = 0) -> int:
        """Whole clocks of at least both."""
        return max(least, -int(-Fraction(str(nanoseconds)) // self.clock_ns))

    def rules(self) -> tuple[Rule, ...]:
        """All that hold between two commands."""
        written = self.write_latency + self.burst_clocks
        after = self.clocks
        return (
            Rule("tRCD", OPENS, COLUMNS, BANK, after(self.t_rcd)),
            Rule("tRAS", OPENS, CLOSES, BANK, after(self.t_ras)),
            Rule("tRC", OPENS, OPENS, BANK, after(self.t_ras + self.t_rp)),
            Rule("tRP", (PRE,), (ACT, REF), BANK, after(self.t_rp)),
            Rule("tRPab", (PREA,), (ACT, REF), BANK, after(self.t_rpab)),
            Rule("tRRD", OPENS, OPENS, ANY, after(self.t_rrd_s, self.n_rrd)),
            Rule("tRRD_L", OPENS, OPENS, GROUP, after(self.t_rrd_l, self.n_rrd)),
            Rule("tCCD", COLUMNS, COLUMNS, ANY, self.n_ccd_s),
            Rule("tCCD_L", (RD,), (RD,), GROUP, self.n_ccd_l),
            Rule("tCCD_L", (WR,), (WR,), GROUP, self.n_ccd_l),
            Rule("read to write", (RD,), (WR,), ANY, self.read_to_write),
            Rule("tWTR", (WR,), (RD,), ANY, written + after(self.t_wtr_s, self.n_wtr_s)),
            Rule("tWTR_L", (WR,), (RD,), GROUP, written + after(self.t_wtr_l, self.n_wtr_l)),
            Rule("tRTP", (RD,), CLOSES, BANK, after(self.t_rtp, self.n_rtp)),
            Rule("tWR", (WR,), CLOSES, BANK, written + after(self.t_wr)),
            Rule("tPPD", CLOSES, CLOSES, ANY, self.n_ppd),
            Rule("tRFC", (REF,), (ACT, REF), ANY, after(self.t_rfc)),
        )

    def slots_of(self, kind: DramCommand) -> int:
        """Clocks for which a command takes the command bus."""
        return self.slots[0] if kind is ACT else self.slots[1] if kind in COLUMNS else self.slots[2]


DDR3_1066 = DramStandard(
    clock_ns=Fraction(15, 8), banks=8, groups=1, burst_clocks=4, read_latency=7, write_latency=6,
    t_rcd=13.125, t_rp=13.125, t_rpab=13.125, t_ras=37.5, t_rfc=260, t_refi=7800, t_rrd_s=10, t_rrd_l=10, t_faw=50,
    t_wr=15, t_wtr_s=7.5, t_wtr_l=7.5, t_rtp=7.5, n_ccd_s=4, n_ccd_l=4, n_rtp=4, n_wtr_s=4, n_wtr_l=4, n_rrd=4, n_faw=0,
    read_to_write=7 + 4 + 2 - 6,
)  # fmt: skip
"""JESD79-3F: bin 1066F, chips of 4 Gb with pages of 2 KiB."""

DDR4_2400 = DramStandard(
    clock_ns=Fraction(5, 6), banks=8, groups=2, burst_clocks=4, read_latency=17, write_latency=12,
    t_rcd=14.16, t_rp=14.16, t_rpab=14.16, t_ras=32, t_rfc=350, t_refi=7800, t_rrd_s=5.3, t_rrd_l=6.4, t_faw=30,
    t_wr=15, t_wtr_s=2.5, t_wtr_l=7.5, t_rtp=7.5, n_ccd_s=4, n_ccd_l=6, n_rtp=4, n_wtr_s=2, n_wtr_l=4, n_rrd=4,
    n_faw=28, read_to_write=17 + 4 + 2 - 12,
)  # fmt: skip
"""JESD79-4: bin 2400T, chips of 8 Gb with pages of 2 KiB."""

LPDDR4_3200 = DramStandard(
    clock_ns=Fraction(5, 8), banks=8, groups=1, burst_clocks=8, read_latency=28, write_latency=14 + 1,
    t_rcd=18, t_rp=18, t_rpab=21, t_ras=42, t_rfc=280, t_refi=3904, t_rrd_s=10, t_rrd_l=10, t_faw=40,
    t_wr=18, t_wtr_s=10, t_wtr_l=10, t_rtp=7.5, n_ccd_s=8, n_ccd_l=8, n_rtp=8, n_wtr_s=8, n_wtr_l=8, n_rrd=4, n_faw=0,
    read_to_write=28 + 6 + 8 - 14 + 2, n_ppd=4, slots=(4, 4, 2),
)  # fmt: skip
"""JESD209-4: channels of 8 Gb; the write latency with its clock of tDQSS."""

STANDARDS: dict[str, DramStandard] = {
    "ddr3-1066x16": DDR3_1066,
    "ddr3-1066x32": DDR3_1066,
    "ddr4-2400x64": DDR4_2400,
    "lpddr4-3200x32": LPDDR4_3200,
}
"""Of each kind of :data:`~weft.sim.dram_kinds.DRAM_KINDS`."""


def broken_rules(kind: str, commands: npt.NDArray[np.void]) -> Iterator[str]:
    """What is wrong with ``commands`` (records of :data:`~weft.sim.dram_interface.COMMAND`, in any order), for the kind
    of this name; :class:`SimulationError` for a kind without rules."""
    if kind not in STANDARDS:
        raise SimulationError(f"there are no rules for memory {kind!r}", hint=f"known: {', '.join(STANDARDS)}")
    return _Checker(STANDARDS[kind]).check(commands)


class _Checker:
    """What the commands so far leave to be kept."""

    def __init__(self, standard: DramStandard) -> None:
        self.standard = standard
        self.rows: list[int | None] = [None] * standard.banks
        self.activations: deque[int] = deque(maxlen=4)
        self.bus_free = self.data_free = self.refreshes = 0
        self.last: dict[tuple[DramCommand, str, int], int] = {}
        self.rules = {kind: [rule for rule in standard.rules() if kind in rule.then] for kind in DramCommand}

    def check(self, commands: npt.NDArray[np.void]) -> Iterator[str]:
        names = ("tick", "kind", "bank", "row")
        order = np.argsort(commands["tick"], kind="stable")
        for tick, number, bank, row in zip(*(commands[name][order].tolist() for name in names), strict=True):
            kind = DramCommand(number)
            for problem in self._problems(tick, kind, bank, row):
                yield f"clock {tick}: {kind.name} of bank {bank}: {problem}"
            self._take(tick, kind, bank, row)

    def _problems(self, tick: int, kind: DramCommand, bank: int, row: int) -> Iterator[str]:
        standard = self.standard
        banks = range(standard.banks) if kind in (PREA, REF) else (bank,)
        for rule in self.rules[kind]:
            for first in rule.first:
                since = max(self.last.get((first, rule.where, key), -(10**9)) for key in self._keys(rule.where, banks))
                if tick - since < rule.clocks:
                    yield f"{tick - since} clocks after {first.name}, {rule.name} is {rule.clocks}"
        if tick < self.bus_free:
            yield "the command bus is in use"
        if kind is ACT:
            if self.rows[bank] is not None:
                yield "the bank is open"
            window = standard.clocks(standard.t_faw, standard.n_faw)
            if len(self.activations) == 4 and tick - self.activations[0] < window:
                yield f"the fifth activation in {tick - self.activations[0]} clocks, tFAW is {window}"
        if kind in COLUMNS:
            if self.rows[bank] != row:
                yield f"row {row} is wanted, {self.rows[bank]} is open"
            if tick + self._latency(kind) < self.data_free:
                yield "the data bus is in use"
        if kind is REF and any(each is not None for each in self.rows):
            yield "a bank is open"
        due = tick // standard.clocks(standard.t_refi)
        if self.refreshes < due - MOST_POSTPONED:
            yield f"{self.refreshes} refreshes, {due} were due"
        if kind is REF and self.refreshes + 1 > due + MOST_POSTPONED:
            yield f"{self.refreshes + 1} refreshes, {due} were due"

    def _take(self, tick: int, kind: DramCommand, bank: int, row: int) -> None:
        banks = range(self.standard.banks) if kind in (PREA, REF) else (bank,)
        for where in (ANY, GROUP, BANK):
            for key in self._keys(where, banks):
                self.last[kind, where, key] = tick
        self.bus_free = tick + self.standard.slots_of(kind)
        if kind is ACT:
            self.rows[bank] = row
            self.activations.append(tick)
        elif kind in COLUMNS:
            self.data_free = tick + self._latency(kind) + self.standard.burst_clocks
        elif kind is REF:
            self.refreshes += 1
        else:
            for each in banks:
                self.rows[each] = None

    def _latency(self, kind: DramCommand) -> int:
        return self.standard.read_latency if kind is RD else self.standard.write_latency

    def _keys(self, where: str, banks: range | tuple[int, ...]) -> set[int]:
        if where == ANY:
            return {0}
        return {bank % self.standard.groups for bank in banks} if where == GROUP else set(banks)
