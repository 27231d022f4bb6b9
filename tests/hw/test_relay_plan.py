"""Plans of cores that start each other: what stops for ever, and what meets, is refused before anything runs."""

from __future__ import annotations

import itertools

import pytest
from weft.hw.bus import PAGE_BYTES
from weft.hw.errors import PlanError
from weft.hw.relay_plan import (
    MOST_AHEAD,
    MOST_TURNS,
    TURN_BITS,
    RelayPlan,
    RelayRegister,
    settings_of_plan,
    settings_of_turns,
)
from weft.hw.system_config import MOST_CORES

NOBODY: frozenset[int] = frozenset()


def waits(*cores: int) -> frozenset[int]:
    return frozenset(cores)


def ends(plan: RelayPlan, runs: int) -> bool:
    """Whether all cores end their runs, found by letting each begin as soon as it can."""
    ended = [0] * len(plan.after)
    while any(count < runs for count in ended):
        ready = [core for core, count in enumerate(ended) if count < runs and plan.ready(core, ended)]
        if not ready:
            return False
        for core in ready:
            ended[core] += 1
    return True


def test_a_circle_of_cores_is_refused_and_names_them() -> None:
    plan = RelayPlan((waits(2), waits(0), waits(1), NOBODY), (NOBODY,) * 4)
    with pytest.raises(PlanError, match="after: cores 0, 1, 2 wait for each other, so none of them ever begins"):
        plan.check()
    with pytest.raises(PlanError, match="cores 1 wait for each other"):
        RelayPlan((NOBODY, waits(1)), (NOBODY, NOBODY)).check()
    RelayPlan((NOBODY, waits(0), waits(1)), (waits(0, 1, 2),) * 3).check()  # rooms are of runs before


def test_the_proof_is_what_happens_for_all_plans_of_three_cores() -> None:
    subsets = [frozenset(core for core in range(3) if mask >> core & 1) for mask in range(8)]
    verdicts = set()
    for after in itertools.product(subsets, repeat=3):
        for room in itertools.product((NOBODY, waits(0, 2)), repeat=3):
            plan = RelayPlan(after, room, slots=2)
            try:
                plan.check()
                proved = True
            except PlanError:
                proved = False
            assert proved == ends(plan, 4), plan
            verdicts.add(proved)
    assert verdicts == {False, True}


def test_a_barrier_ends_and_no_core_is_a_run_ahead_of_another() -> None:
    for cores in range(1, MOST_CORES + 1):
        plan = RelayPlan.barrier(cores)
        plan.check()
        assert ends(plan, 3)
        assert [number for _, number in plan.order(3)] == [run for run in range(3) for _ in range(cores)]
        assert all(distance == 1 for row in plan.distances() for distance in row)


def test_programs_of_turns_are_as_many_for_each_core() -> None:
    own = [(0x1000, 7), (0x2000, 8)]
    turns = dict(settings_of_turns([own, own]))
    assert turns[RelayRegister.TURNS] == 2
    assert turns[RelayRegister.TURN] == 1 << TURN_BITS | 1  # the last that was set
    assert settings_of_turns([own[:1], own[:1]]) == [(RelayRegister.TURNS, 0)]
    settings_of_turns([own[:1] * MOST_TURNS])
    for wrong in ([own, own[:1]], [[], []], [own[:1] * (MOST_TURNS + 1)]):
        with pytest.raises(PlanError, match=r"programs: the cores have \d+.* programs"):
            settings_of_turns(wrong)


def test_two_cores_never_have_one_window() -> None:
    good = RelayPlan.pipeline(3, 2, PAGE_BYTES)
    good.check()
    with pytest.raises(PlanError, match="room: core 0 may take a window again while core 1 works on it: of 2 windows"):
        RelayPlan(good.after, (waits(0), NOBODY, NOBODY), 2, PAGE_BYTES).check()
    with pytest.raises(PlanError, match="room: core 0 may take a window again while core 2 works on it"):
        RelayPlan(good.after, (waits(1), NOBODY, NOBODY), 2, PAGE_BYTES).check()
    with pytest.raises(PlanError, match="after: cores 0 and 2 may work on one window at once"):
        RelayPlan((NOBODY, waits(0), NOBODY), (waits(2),) * 3, 2, PAGE_BYTES).check()
    RelayPlan((NOBODY, waits(0), NOBODY), (NOBODY,) * 3).check()  # each core in a window of its own


def test_the_windows_that_are_proved_are_so_in_every_order() -> None:
    """For all plans of three cores with one or two windows: where proved, no run begins where another may be."""
    subsets = [frozenset(core for core in range(3) if mask >> core & 1) for mask in range(8)]
    for after in itertools.product(subsets, repeat=3):
        for *room, slots in itertools.product(*[(NOBODY, waits(2), waits(0, 1))] * 3, (1, 2)):
            plan = RelayPlan(after, tuple(room), slots, PAGE_BYTES)
            try:
                plan.check()
            except PlanError:
                continue
            assert not meets(plan, 4), plan


def meets(plan: RelayPlan, runs: int) -> bool:
    """Whether some order of begins and ends has two cores in one window, by looking at all orders."""
    start = ((0,) * 3, (False,) * 3)
    seen, todo = {start}, [start]
    while todo:
        ended, busy = todo.pop()
        inside = [ended[core] % plan.slots for core in range(3) if busy[core]]
        if len(inside) != len(set(inside)):
            return True
        for core in range(3):
            flipped = tuple(not is_busy if other == core else is_busy for other, is_busy in enumerate(busy))
            if busy[core]:
                state = (tuple(count + (other == core) for other, count in enumerate(ended)), flipped)
            elif ended[core] < runs and plan.ready(core, ended):
                state = (ended, flipped)
            else:
                continue
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return False


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="after says of 1 cores what they wait for, room of 2"):
        RelayPlan((NOBODY,), (NOBODY, NOBODY))
    with pytest.raises(PlanError, match="after: core 0 waits for core 3, which is not there"):
        RelayPlan((waits(3),), (NOBODY,))
    for slots in (0, 256):
        with pytest.raises(PlanError, match="slots: "):
            RelayPlan((NOBODY,), (NOBODY,), slots)
    with pytest.raises(PlanError, match="pitch: windows 100 bytes apart, which is no multiple of 4096"):
        RelayPlan((NOBODY,), (NOBODY,), 1, 100)
    for runs in (0, MOST_AHEAD + 1):
        with pytest.raises(PlanError, match="runs: "):
            settings_of_plan(RelayPlan((NOBODY,), (NOBODY,)), runs)
