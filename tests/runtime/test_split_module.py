"""A model whose layers the cores of a system share: results as on one core, sooner, and cycles as the RTL's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.model import CoreStep
from weft.hw.config import TINY
from weft.hw.isa import Fault
from weft.hw.pipelines import HANDOVER_CYCLES
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.errors import ArtifactError, CoreFaultError, DeviceError, InputError
from weft.runtime.profile import profile
from weft.runtime.profile_system import profile_system
from weft.runtime.profile_whatif import predict_runs
from weft.runtime.split_module import SplitModule, needs_host_before
from weft.sim.dram import DramModel
from weft.sim.errors import SharedBytesError
from weft.sim.result import FaultRecord, RunResult
from weft.sim.system_fsim import FunctionalSystem

from tests.compiler.branching import random_branches
from tests.effort import few

from .items import DIGITS, PAIR, Item, equal, images

RELAYED = replace(PAIR, name="relayed", relay=True)


def compiled(cores: int) -> weft.CompiledModel:
    made = weft.compile(DIGITS, TINY, split=cores)
    assert isinstance(made, weft.CompiledModel)
    return made


def loaded(model: weft.CompiledModel, system: weft.SystemConfig = PAIR, **options: Any) -> SplitModule:
    module = weft.load(model, system=system, **options)
    assert isinstance(module, SplitModule)
    return module


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    return compiled(2)


@pytest.fixture(scope="module")
def items(model: weft.CompiledModel) -> list[Item]:
    return images(model, 2)


def test_items_come_out_as_on_one_core_and_sooner(model: weft.CompiledModel, items: list[Item]) -> None:
    alone = weft.load(compiled(1))
    assert isinstance(alone, weft.LoadedModule)
    expected = [alone.run(item) for item in items]
    cycles = alone.cycles
    assert cycles is not None
    module = loaded(model)
    assert equal(module.run(items), expected)
    assert (module.latency, module.turns) == (module.cycles // 2, len(model.programs) // 2)
    assert module.latency < 0.6 * cycles
    assert [use.items for use in module.use()] == [2, 2]
    assert [use.waited for use in module.use()] == [0, 0]
    one_port = loaded(model, replace(PAIR, ports=(0, 0)))
    assert equal(one_port.run(items[:1]), expected[:1])
    assert one_port.latency > module.latency
    assert all(use.waited > 0 for use in one_port.use())
    shares = loaded(model, replace(PAIR, ports=(0, 0), shared_reads=True))
    assert equal(shares.run(items[:1]), expected[:1])


@pytest.mark.parametrize("ports", few([((0, 0),), ((0, 1),)], 1), ids=["together", "apart"])
def test_the_rtl_takes_the_same_cycles(model: weft.CompiledModel, items: list[Item], ports: tuple[int, int]) -> None:
    system = replace(PAIR, ports=ports)
    modules = [loaded(model, system, device=device) for device in ("fsim", "rtl")]
    assert equal(*(module.run(items) for module in modules))
    cycles = [[[core and core.cycles for core in result.cores] for result in module.results] for module in modules]
    assert cycles[0] == cycles[1]
    assert modules[0].cycles == modules[1].cycles


@pytest.mark.parametrize("system", few([replace(RELAYED, ports=(0, 0), shared_reads=True), RELAYED,
                                        replace(RELAYED, ports=(0, 0))], 1),
                         ids=["shared reads", "apart", "together"])  # fmt: skip
def test_turns_begin_without_the_host(model: weft.CompiledModel, items: list[Item], system: weft.SystemConfig) -> None:
    expected = loaded(model)
    wanted = expected.run(items)
    module = loaded(model, system)
    assert (module.starts, module.turns) == (1, expected.turns)
    assert equal(module.run(items), wanted)
    rtl = loaded(model, system, device="rtl")
    assert equal(rtl.run(items), wanted)
    assert [done.spans for done in rtl.relayed] == [done.spans for done in module.relayed]
    assert rtl.cycles == module.cycles
    assert rtl.use() == module.use()
    for waits, use in zip(module.waits(), module.use(), strict=True):
        assert use.cycles + sum(waits.values()) == module.cycles
    if system is RELAYED:
        assert module.latency == expected.latency + HANDOVER_CYCLES * (module.turns - 1)
        assert [use.waited for use in module.use()] == [0, 0]
        assert [use.bytes_read for use in module.use()] == [use.bytes_read for use in expected.use()]


@pytest.mark.parametrize("seed", few([4, 2, 0, 6], 1))
def test_the_rtl_runs_branches_side_by_side(seed: int, tmp_path: Path) -> None:
    """Random networks; cores that start each other, share a port and its reads."""
    system = replace(RELAYED, ports=(0, 0), shared_reads=True)
    model = weft.compile(random_branches(seed, tmp_path), TINY, split=2, ports=system.ports)
    assert isinstance(model, weft.CompiledModel)
    alone = weft.load(model)
    assert isinstance(alone, weft.LoadedModule)
    own = images(model, 1)
    modules = [loaded(model, system, device=device) for device in ("fsim", "rtl")]
    results = [module.run(own) for module in modules]
    assert equal(results[0], [alone.run(own[0])])
    assert equal(*results)
    spans = [[done.spans for done in module.relayed] for module in modules]
    assert spans[0] == spans[1]
    assert modules[0].use() == modules[1].use()


def test_where_the_host_has_to_do_with_a_turn_it_starts_it(model: weft.CompiledModel, items: list[Item]) -> None:
    """A model whose second turn's results the host wants, too."""
    assert [needs_host_before(model, turn) for turn in range(1, loaded(model).turns)] == [False] * (
        loaded(model).turns - 1
    )
    given = replace(model.programs[4], inputs=(*model.programs[4].inputs, *model.programs[0].inputs))
    steps = tuple(given if step is model.programs[4] else step for step in model.steps)
    assert [needs_host_before(replace(model, steps=steps), turn) for turn in (1, 2, 3)] == [False, True, False]
    made = model.programs[3].outputs[0]
    slot = model.on_core.slots[made]
    tensor = replace(model.outputs[0], name=made, shape=slot.shape, dtype=str(slot.dtype))
    more = replace(model, outputs=(*model.outputs, tensor))
    assert [needs_host_before(more, turn) for turn in (1, 2)] == [False, True]
    module, host = loaded(more, RELAYED), loaded(more)
    assert module.starts == 2
    assert equal(module.run(items), host.run(items))
    assert module.latency == host.latency + HANDOVER_CYCLES * (module.turns - 2)


def test_a_system_of_other_cores_is_refused(model: weft.CompiledModel, items: list[Item]) -> None:
    with pytest.raises(DeviceError, match="'digits' is split over 2 cores, but the system has 3; hint: compile it for"):
        weft.load(model, system=replace(PAIR, cores=(TINY,) * 3, ports=()))
    with pytest.raises(DeviceError, match="digits is split, so that all cores of a system have parts of one item"):
        profile_system(model, PAIR, DramModel())
    with pytest.raises(DeviceError, match=r"is split.*; hint: profile it on its system"):
        profile(model, predict_runs(model, DramModel()), "model")
    module = loaded(model)
    with pytest.raises(InputError, match="items must be a list of inputs"):
        module.run(items[0])  # type: ignore[arg-type]
    with module:
        pass
    with pytest.raises(DeviceError, match="'digits' was closed"):
        module.run(items)


def test_a_fault_names_its_core(model: weft.CompiledModel, items: list[Item], monkeypatch: pytest.MonkeyPatch) -> None:
    module, run = loaded(model), FunctionalSystem.run
    fault = FaultRecord(Fault.WATCHDOG, 0, 3)

    def faulty(self: FunctionalSystem, programs: Any, **options: Any) -> Any:
        done = run(self, programs, **options)
        window = module.device.window(0)
        window.write(0, np.full(window.size, 7, np.uint8))  # a core that runs wild leaves nothing as it was
        return replace(done, cores=(done.cores[0], RunResult(cycles=None, fault=fault, bytes_read=0, bytes_written=0)))

    with monkeypatch.context() as patched:
        patched.setattr(FunctionalSystem, "run", faulty)
        with pytest.raises(CoreFaultError, match="core 1: "):
            module.run(items)
    assert equal(module.run(items), loaded(model).run(items))


def test_a_core_that_writes_what_another_reads_is_found(model: weft.CompiledModel, items: list[Item]) -> None:
    """Core 0 of the second turn in the place of core 1 in the first: its inputs are what core 0 makes."""
    programs = list(model.programs)
    programs[1] = replace(programs[2], turn=0, core=1)
    steps = iter(programs)
    wrong = replace(model, steps=tuple(next(steps) if isinstance(step, CoreStep) else step for step in model.steps))
    with pytest.raises(SharedBytesError):
        loaded(wrong).run(items)
    assert not weft.certify(wrong).proved


def test_an_artifact_keeps_turns_and_wrong_ones_are_refused(model: weft.CompiledModel, items: list[Item]) -> None:
    again = from_bytes(to_bytes(model))
    assert [(step.turn, step.core) for step in again.programs] == [(step.turn, step.core) for step in model.programs]
    assert equal(loaded(again).run(items), loaded(model).run(items))
    places = [place for place, step in enumerate(model.steps) if isinstance(step, CoreStep)]

    def with_step(place: int, **change: int) -> bytes:
        steps = list(model.steps)
        step = steps[places[place]]
        assert isinstance(step, CoreStep)
        steps[places[place]] = replace(step, **change)
        return to_bytes(replace(model, steps=tuple(steps)))

    with pytest.raises(ArtifactError, match="program 2 is of turn 0 for core 0, but should be of turn 1 for core 0"):
        from_bytes(with_step(2, turn=0))
    with pytest.raises(ArtifactError, match="program 1 is of turn 0 for core 2, but should be of turn 0 for core 1"):
        from_bytes(with_step(1, core=2))
    fewer = tuple(step for place, step in enumerate(model.steps) if place != places[-1])
    with pytest.raises(ArtifactError, match=f"{len(places) - 1} programs are no whole turns of 2"):
        from_bytes(to_bytes(replace(model, steps=fewer)))
