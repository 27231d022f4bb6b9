"""A model in stages on a system: results as on one core, a round as long as its longest stage, cycles as the RTL's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.model import CoreStep
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import Fault
from weft.hw.pipelines import HANDOVER_CYCLES
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.errors import ArtifactError, CoreFaultError, DeviceError, InputError
from weft.runtime.pipeline_module import PipelineModule
from weft.runtime.profile_system import profile_system
from weft.runtime.system_device import SimulatedSystem
from weft.sim.dram import DramModel
from weft.sim.result import FaultRecord, RunResult
from weft.sim.system_fsim import FunctionalSystem

from ..compiler.onnx_models import FloatModel, quantise
from ..effort import few
from .items import DIGITS, PAIR, Item, equal, images


def compiled(source: Path, stages: int, **options: Any) -> weft.CompiledModel:
    made = weft.compile(source, TINY, stages=stages, **options)
    assert isinstance(made, weft.CompiledModel)
    return made


def loaded(model: weft.CompiledModel, system: weft.SystemConfig = PAIR, **options: Any) -> PipelineModule:
    module = weft.load(model, system=system, **options)
    assert isinstance(module, PipelineModule)
    return module


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    return compiled(DIGITS, 2)


@pytest.fixture(scope="module")
def items(model: weft.CompiledModel) -> list[Item]:
    return images(model, 5)  # more than windows


@pytest.mark.parametrize("stages", [2, 3])
def test_items_come_out_as_on_one_core(stages: int, items: list[Item]) -> None:
    model = compiled(DIGITS, stages)
    alone = weft.load(compiled(DIGITS, 1))
    assert isinstance(alone, weft.LoadedModule)
    module = loaded(model, weft.SystemConfig(cores=(TINY,) * stages, ports=tuple(range(stages))))
    expected = [alone.run(item) for item in items]
    assert equal(module.run(items), expected)
    assert equal(module.run(items[:1]), expected[:1])  # fewer items than stages
    assert equal(module.run(items[1:]), expected[1:])


def test_a_round_takes_as_long_as_its_longest_stage(model: weft.CompiledModel, items: list[Item]) -> None:
    module = loaded(model)
    module.run(items)
    first, second = module.stage_cycles()
    assert first != second
    assert [[result.cycles for result in results] for results in module.rounds] == [
        [first], *([max(first, second)],) * 4, [second],
    ]  # fmt: skip
    assert module.cycles == first + 4 * max(first, second) + second
    assert module.interval == max(first, second)
    assert module.alone() == first + second
    uses = module.use()
    assert [use.items for use in uses] == [5, 5]
    assert [use.cycles for use in uses] == [5 * first, 5 * second]
    assert [use.waited for use in uses] == [0, 0]
    whole = weft.load(model)
    assert isinstance(whole, weft.LoadedModule)
    whole.run(items[0])
    assert [use.bytes_read for use in uses] == [5 * run.result.bytes_read for run in whole.runs]
    assert [use.bytes_written for use in uses] == [5 * run.result.bytes_written for run in whole.runs]


def test_stages_on_one_port_wait_for_each_other(model: weft.CompiledModel, items: list[Item]) -> None:
    module = loaded(model, replace(PAIR, ports=(0, 0)), dram=DramModel(latency=40, bytes_per_cycle=2))
    apart = loaded(model, dram=DramModel(latency=40, bytes_per_cycle=2))
    assert equal(module.run(items), apart.run(items))
    assert module.interval > apart.interval
    assert all(use.waited > 0 for use in module.use())


@pytest.mark.parametrize("ports", few([((0, 0),), ((0, 1),)], 1))
def test_the_rtl_gives_the_same_bytes_and_cycles(
    ports: tuple[int, int], model: weft.CompiledModel, items: list[Item]
) -> None:
    modules = [loaded(model, replace(PAIR, ports=ports), device=device) for device in ("fsim", "rtl")]
    assert equal(*(module.run(items[:3]) for module in modules))
    cycles = [
        [[[core and core.cycles for core in result.cores] for result in results] for results in module.rounds]
        for module in modules
    ]
    assert cycles[0] == cycles[1]


def test_unlike_cores_take_the_cycles_of_their_rtl() -> None:
    cores = replace(TINY, name="deep", wgt_depth=512, queue_depth=32), TINY
    model = weft.compile(DIGITS, cores=cores)
    assert isinstance(model, weft.CompiledModel)
    found, truth = (
        loaded(model, replace(PAIR, cores=cores, ports=(0, 0), relay=True), device=device) for device in ("fsim", "rtl")
    )
    alone = weft.load(compiled(DIGITS, 1))
    assert isinstance(alone, weft.LoadedModule)
    given = images(model, 3)
    expected = [alone.run(item) for item in given]
    assert equal(found.run(given), expected)
    assert equal(truth.run(given), expected)
    assert found.relayed is not None
    assert truth.relayed is not None
    assert found.relayed.spans == truth.relayed.spans


@pytest.mark.parametrize("device", ["fsim", "rtl"])
def test_cores_that_start_each_other_give_the_same(device: str, model: weft.CompiledModel, items: list[Item]) -> None:
    module = loaded(model, replace(PAIR, relay=True), device=device)
    given = [*items, *items]  # more than windows
    expected = loaded(model).run(given)
    assert module.relays
    assert equal(module.run(given), expected)
    assert module.relayed is not None
    assert module.rounds == ()
    first, second = module.stage_cycles()
    assert module.interval == max(first, second) + HANDOVER_CYCLES
    assert module.cycles == first + second + HANDOVER_CYCLES + (len(given) - 1) * module.interval
    assert [use.items for use in module.use()] == [len(given)] * 2
    assert [use.waited for use in module.use()] == [0, 0]
    assert loaded(model).waits() == ()
    waits, spans = module.waits(), module.relayed.spans
    for core, own in enumerate(spans):
        assert sum(waits[core].values()) + sum(map(len, own)) == own[-1].stop
    quick = int(second < first)
    assert waits[quick][1 - quick] > 0
    assert waits[1][0] >= first  # until the first item came
    whole = weft.load(model)
    assert isinstance(whole, weft.LoadedModule)
    whole.run(items[0])
    assert [use.bytes_read for use in module.use()] == [len(given) * run.result.bytes_read for run in whole.runs]
    assert [use.bytes_written for use in module.use()] == [len(given) * run.result.bytes_written for run in whole.runs]
    assert equal(module.run(items[:1]), expected[:1])
    assert module.interval == module.cycles


def test_a_device_that_does_not_serve_gets_as_many_items_as_there_are_windows(
    model: weft.CompiledModel, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a board, whose host cannot use one window while cores work on others."""
    served = loaded(model, replace(PAIR, relay=True))
    expected, four = served.run(items), served.run(items[:1] * 4) and served.cycles
    one = served.run(items[:1]) and served.cycles
    monkeypatch.setattr(SimulatedSystem, "serves", False)
    module = loaded(model, replace(PAIR, relay=True))
    many = [items[number % len(items)] for number in range(9)]
    assert equal(module.run(many), [expected[number % len(items)] for number in range(9)])
    assert module.cycles == 2 * four + one  # of four windows
    assert module.interval == module.cycles // 9  # it is not known when each ended
    assert module.waits() == ()
    assert [use.items for use in module.use()] == [9, 9]
    assert [use.cycles for use in module.use()] == [9 * cycles for cycles in module.stage_cycles()]
    assert equal(module.run(items[:2]), expected[:2])
    assert module.waits()


def test_a_fault_ends_a_relay_and_the_next_run_is_right(model: weft.CompiledModel, items: list[Item]) -> None:
    module = loaded(model, replace(PAIR, relay=True))
    expected = module.run(items)
    step = model.programs[1]
    module.device.window(1).write(step.program_offset, np.full(step.program.size, 255, np.uint8))
    with pytest.raises(CoreFaultError, match="core 1: "):
        module.run(items)
    assert equal(module.run(items), expected)


def test_a_stage_of_several_programs_with_the_host_between(tmp_path: Path) -> None:
    network = FloatModel((1, 3, 12, 12))
    first = network.op("Sin", network.op("Relu", network.conv("x", 3, 8)))
    second = network.op("Sin", network.conv(first, 8, 8))
    network.conv(network.op("Relu", network.conv(second, 8, 8)), 8, 8)
    quantise(network.build(network.nodes[-1].output[0]), tmp_path)
    model = compiled(tmp_path / "quantised.onnx", 2, chains=False)
    assert len(model.programs) > len({step.stage for step in model.programs})
    items = images(model, 4)
    whole = weft.load(compiled(tmp_path / "quantised.onnx", 1))
    assert isinstance(whole, weft.LoadedModule)
    module = loaded(model)
    assert not loaded(model, replace(PAIR, relay=True)).relays
    assert equal(module.run(items), [whole.run(item) for item in items])
    assert [use.items for use in module.use()] == [4, 4]
    assert [use.cycles for use in module.use()] == [4 * cycles for cycles in module.stage_cycles()]
    assert module.interval == max(sum(result.cycles or 0 for result in results) for results in module.rounds)


def test_an_artifact_keeps_stages_and_wrong_ones_are_refused(model: weft.CompiledModel, items: list[Item]) -> None:
    again = from_bytes(to_bytes(model))
    assert [step.stage for step in again.programs] == [0, 1]
    assert equal(loaded(again).run(items[:2]), loaded(model).run(items[:2]))
    for stages in ((1, 1), (0, 2), (1, 0)):
        numbers = iter(stages)
        steps = tuple(
            replace(step, stage=next(numbers)) if isinstance(step, CoreStep) else step for step in model.steps
        )
        with pytest.raises(ArtifactError, match=r"program \d is of stage \d, behind one of stage \d"):
            from_bytes(to_bytes(replace(model, steps=steps)))


def test_a_fault_names_its_core_and_the_next_run_is_right(
    model: weft.CompiledModel, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded(model)
    expected = module.run(items)
    simulator = FunctionalSystem.run

    def second_core_faults(self: FunctionalSystem, programs: Any, **named: Any) -> Any:
        done = simulator(self, programs, **named)
        if programs[1] is None:
            return done
        self.dram[:] = np.uint8(255)
        fault = RunResult(None, FaultRecord(Fault.BUS_READ, 0, 3), 0, 0)
        return type(done)((done.cores[0], fault), done.starts)

    monkeypatch.setattr(FunctionalSystem, "run", second_core_faults)
    with pytest.raises(CoreFaultError, match=r"core 1: .*BUS_READ"):
        module.run(items)
    monkeypatch.undo()
    assert equal(module.run(items), expected)


def test_what_does_not_fit_is_refused(model: weft.CompiledModel, items: list[Item]) -> None:
    with pytest.raises(DeviceError, match="'digits' has 2 stages, but the system has 3 cores; hint: compile it with"):
        loaded(model, weft.SystemConfig(cores=(TINY,) * 3))
    with pytest.raises(DeviceError, match=r"cores\[1\]: the model is compiled for 'tiny', but core 1 is a 'pynq'"):
        loaded(model, weft.SystemConfig(cores=(TINY, PYNQ)))
    with pytest.raises(DeviceError, match="shared_reads: cores that run stages have no weights in common"):
        loaded(model, weft.SystemConfig(cores=(TINY, TINY), shared_reads=True))
    with pytest.raises(DeviceError, match="digits is in stages, of which a system runs one on each core"):
        profile_system(model, PAIR, DramModel())
    with loaded(model) as module:
        for bad in ([], items[0], [items[0], items[0][..., :1]], [items[0].astype(np.float64)]):
            with pytest.raises(InputError):
                module.run(bad)  # type: ignore[arg-type]
        assert module.rounds == ()
    with pytest.raises(DeviceError, match="'digits' was closed"):
        module.run(items)
