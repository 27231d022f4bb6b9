"""Which core waits for which, where cores start each other: as data, with its registers, and the proof that it ends.

A run is one execution of a core's program; each core counts its own from 0. What a core waits for is a plan, the same
for all runs, so that what holds for any number of runs is decided on a graph of the cores alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from itertools import combinations, product

from .bus import OFFSET_BITS, PAGE_BYTES
from .errors import PlanError
from .pipelines import NUMBER_BITS
from .registers import COUNTER_BITS, Bits, Kind
from .system_config import MOST_CORES

COUNT_BITS = 16
"""Width of the counts of runs. They wrap, and are compared by their difference, which is less than half of this."""

MOST_AHEAD = (1 << COUNT_BITS - 1) - 1
"""Runs that may be released and not yet ended."""

SLOT_BITS = 8
"""Width of the number of windows."""

TURN_BITS = 8
"""Width of the number of a turn."""

MOST_TURNS = 1 << TURN_BITS
"""Programs that a core may run one after the other."""

Cores = frozenset[int]


@dataclass(frozen=True)
class RelayPlan:
    """Run ``r`` of core ``k`` begins once run ``r`` of each core in ``after[k]`` and run ``r - slots`` of each core in
    ``room[k]`` have ended, and ``k``'s own run before. It has window ``r % slots``, which begins ``r % slots * pitch``
    bytes behind the base that the core's registers say. A core with ``t`` programs runs program ``r % t``, its turn."""

    after: tuple[Cores, ...]
    room: tuple[Cores, ...]
    slots: int = 1
    pitch: int = 0

    def __post_init__(self) -> None:
        if len(self.after) != len(self.room):
            raise PlanError(f"after says of {len(self.after)} cores what they wait for, room of {len(self.room)}")
        for name in ("after", "room"):
            for core, others in enumerate(getattr(self, name)):
                if outside := sorted(others - set(range(len(self.after)))):
                    raise PlanError(f"core {core} waits for core {outside[0]}, which is not there", at=name)
        if not 1 <= self.slots < 1 << SLOT_BITS:
            raise PlanError(f"{self.slots} windows, but there can be 1 to {(1 << SLOT_BITS) - 1}", at="slots")
        if self.pitch < 0 or self.pitch % PAGE_BYTES:
            raise PlanError(f"windows {self.pitch} bytes apart, which is no multiple of {PAGE_BYTES}", at="pitch")

    @staticmethod
    def pipeline(cores: int, slots: int, pitch: int) -> RelayPlan:
        """Each core goes on with what the one before has left in a window. The first takes a window again once the
        last has ended with it."""
        after = tuple(frozenset({core - 1} if core else ()) for core in range(cores))
        room = tuple(frozenset(() if core else {cores - 1}) for core in range(cores))
        return RelayPlan(after, room, slots, pitch)

    @staticmethod
    def barrier(cores: int) -> RelayPlan:
        """All cores have one window, and none goes on to its next run before all have ended theirs."""
        return RelayPlan((frozenset(),) * cores, (frozenset(range(cores)),) * cores)

    def with_host(self) -> RelayPlan:
        """The plan where no core begins a run before the host has seen that all have ended the one ``slots`` before."""
        return replace(self, room=(frozenset(range(len(self.after))),) * len(self.after))

    def check(self) -> None:
        """:class:`PlanError` for a plan that stops for ever, or in which two cores may have one window at once."""
        check_ends(self)
        check_windows(self)

    def order(self, runs: int) -> Iterator[tuple[int, int]]:
        """Core and number of each of ``runs`` runs a core, each after those that it waits for."""
        ended = [0] * len(self.after)
        while any(count < runs for count in ended):
            ready = [core for core, count in enumerate(ended) if count < runs and self.ready(core, ended)]
            for core in ready:
                yield core, ended[core]
            for core in ready:
                ended[core] += 1

    def ready(self, core: int, ended: Sequence[int]) -> bool:
        """Whether a core may begin its next run when each has ``ended`` so many."""
        return all(ended[other] > ended[core] for other in self.after[core]) and all(
            ended[other] + self.slots > ended[core] for other in self.room[core]
        )

    def distances(self) -> list[list[int | None]]:
        """``[j][k] == d``: run ``r`` of core ``k`` begins after the end of run ``r - d`` of core ``j``, ``d`` being the
        least such number; None if nothing says so."""
        cores = range(len(self.after))
        found: list[list[int | None]] = [[None] * len(cores) for _ in cores]
        for core in cores:
            found[core][core] = 1
            for kind, runs in ((self.room, self.slots), (self.after, 0)):
                for other in kind[core]:
                    found[other][core] = min(runs, _or(found[other][core], runs))
        for middle, first, last in product(cores, repeat=3):
            one, two = found[first][middle], found[middle][last]
            if one is not None and two is not None:
                found[first][last] = min(one + two, _or(found[first][last], one + two))
        return found


def _or(distance: int | None, other: int) -> int:
    return other if distance is None else distance


def check_ends(plan: RelayPlan) -> None:
    """:class:`PlanError` if no number of runs can end: some cores wait for each other's run of the same number.

    All other waits are for a run of a lower number, so that without such a circle the lowest runs can always begin.
    """
    distances = plan.distances()
    waiting = [core for core in range(len(plan.after)) if distances[core][core] == 0]
    if waiting:
        names = ", ".join(map(str, waiting))
        raise PlanError(f"cores {names} wait for each other, so none of them ever begins", at="after",
                        hint="let one of them begin without the others")  # fmt: skip


def check_windows(plan: RelayPlan) -> None:
    """:class:`PlanError` if two cores may be in one window at once; nothing where all have their own (no ``pitch``)."""
    if not plan.pitch:
        return
    distances = plan.distances()
    for first, second in combinations(range(len(plan.after)), 2):
        if 0 not in (distances[first][second], distances[second][first]):
            raise PlanError(f"cores {first} and {second} may work on one window at once: neither waits for the other",
                            at="after")  # fmt: skip
    for first, second in product(range(len(plan.after)), repeat=2):
        distance = distances[first][second]
        if distance is None or distance > plan.slots:
            raise PlanError(
                f"core {second} may take a window again while core {first} works on it: of {plan.slots} windows",
                at="room", hint=f"let core {second} wait for room, until core {first} has ended",
            )  # fmt: skip


class RelayControl(Bits):
    """Bits of RELAY_CONTROL; each takes effect when written as 1."""

    START = 1 << 0, "no run has ended yet; begin as the plan says. Ignored while a core runs"
    STOP = 1 << 1, "begin no more runs; those under way go on to their ends"


class RelayStatus(Bits):
    """Bits of RELAY_STATUS."""

    ACTIVE = 1 << 0, "started, and not stopped"
    HALTED = 1 << 1, "a core has faulted, or was reset: no more runs begin, until the next START"
    RUNNING = 1 << 2, "runs are under way"


@unique
class RelayRegister(IntEnum):
    """Each register of a relay: its address, kind, signal, bits and meaning, as of
    :class:`~weft.hw.registers.Register`. Of one ``of_cores`` each core has its own, 4 bytes further on."""

    kind: Kind
    signal: str
    bits: int
    meaning: str
    word: int
    of_cores: bool

    def __new__(
        cls, address: int, kind: Kind, signal: str, bits: int, meaning: str, word: int = 0, of_cores: bool = False
    ) -> RelayRegister:
        member = int.__new__(cls, address)
        member._value_ = address
        member.kind, member.signal, member.bits, member.meaning = kind, signal, bits, meaning
        member.word, member.of_cores = word, of_cores
        return member

    RELAY_CONTROL = 0xFF80, Kind.COMMAND, "control", len(RelayControl), "bits of `RelayControl`"
    RELAY_STATUS = 0xFF84, Kind.STATE, "status", len(RelayStatus), "bits of `RelayStatus`"
    RELEASED = 0xFF88, Kind.SETTING, "released", COUNT_BITS, "runs that each core may begin; may be raised at any time"
    NOTIFY = 0xFF8C, Kind.SETTING, "notify", COUNT_BITS, "the interrupt is high once all cores have ended so many runs"
    SLOTS = 0xFF90, Kind.SETTING, "slots", SLOT_BITS, "windows, at least 1"
    PITCH = 0xFF94, Kind.SETTING, "pitch", 32, f"from one window to the next, in units of {PAGE_BYTES} bytes"
    RELAY_CYCLES_LO = 0xFF98, Kind.COUNTER, "cycles", COUNTER_BITS, "from the first begin of a run to the last end"
    RELAY_CYCLES_HI = 0xFF9C, Kind.COUNTER, "cycles", COUNTER_BITS, "", 1
    WAITS = (0xFFA0, Kind.SETTING, "waits", 2 * MOST_CORES,
             f"cores that it waits for: those in bits 0 to {MOST_CORES - 1} have to have ended the run of the same "
             f"number, those in the bits above the one `SLOTS` before", 0, True)  # fmt: skip
    TURNS = (
        0xFFE0,
        Kind.SETTING,
        "turns",
        TURN_BITS + 1,
        "programs of each core, which it runs one after the other and then again; 0: one, that of its own registers",
    )
    TURN = (
        0xFFE4,
        Kind.SETTING,
        "turn",
        2 * TURN_BITS,
        f"the program that `TURN_COUNT` sets: its turn, above {TURN_BITS} bits the number of its core",
    )
    TURN_OFFSET = 0xFFE8, Kind.SETTING, "turn_offset", OFFSET_BITS, "as a core's PROGRAM_OFFSET"
    TURN_COUNT = (
        0xFFEC,
        Kind.COMMAND,
        "turn_count",
        NUMBER_BITS,
        "as a core's PROGRAM_COUNT; once written, the program is set. While no core runs",
    )
    ENDED = 0xFFC0, Kind.STATE, "ended", COUNT_BITS, "runs that it has ended without a fault", 0, True


def settings_of_plan(plan: RelayPlan, runs: int) -> list[tuple[int, int]]:
    """Addresses and values of the registers for a plan, with ``runs`` runs for each core."""
    if not 0 < runs <= MOST_AHEAD:
        raise PlanError(f"{runs} runs, but a relay makes 1 to {MOST_AHEAD} at a time", at="runs")
    waits = [
        (RelayRegister.WAITS + 4 * core, mask_of(after) | mask_of(room) << MOST_CORES)
        for core, (after, room) in enumerate(zip(plan.after, plan.room, strict=True))
    ]
    return [
        (RelayRegister.SLOTS, plan.slots),
        (RelayRegister.PITCH, plan.pitch // PAGE_BYTES),
        (RelayRegister.RELEASED, runs),
        (RelayRegister.NOTIFY, runs),
        *waits,
    ]


def settings_of_turns(programs: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Addresses and values of the registers for the programs of each core, an offset and a count each. One program a
    core is that of its own registers."""
    turns = len(programs[0])
    if any(len(own) != turns for own in programs) or not 0 < turns <= MOST_TURNS:
        counts = ", ".join(str(len(own)) for own in programs)
        raise PlanError(f"the cores have {counts} programs, but each needs as many as the others, 1 to {MOST_TURNS}",
                        at="programs")  # fmt: skip
    if turns == 1:
        return [(RelayRegister.TURNS, 0)]
    writes: list[tuple[int, int]] = [(RelayRegister.TURNS, turns)]
    for core, own in enumerate(programs):
        for turn, (offset, count) in enumerate(own):
            writes += [
                (RelayRegister.TURN, core << TURN_BITS | turn),
                (RelayRegister.TURN_OFFSET, offset),
                (RelayRegister.TURN_COUNT, count),
            ]
    return writes


def mask_of(cores: Cores) -> int:
    """A bit for each core."""
    return sum(1 << core for core in cores)
