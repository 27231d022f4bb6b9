"""A model on all cores of a system: results as on one core, cycles as the RTL's, faults with the core's number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.hw.config import PYNQ, TINY
from weft.hw.errors import ConfigError
from weft.hw.isa import Fault, Store
from weft.hw.programs import disassemble
from weft.runtime.errors import CoreFaultError, DeviceError, InputError
from weft.runtime.system_device import SimulatedSystem
from weft.runtime.system_module import constant_pages, core_uses, in_part
from weft.sim.dram import DramModel
from weft.sim.result import FaultRecord, RunResult
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_run import SystemResult

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PAIR = weft.SystemConfig(name="pair", cores=(TINY, TINY))
SHARING = replace(PAIR, name="sharing", shared_reads=True)


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    compiled = weft.compile(DIGITS, TINY)
    assert isinstance(compiled, weft.CompiledModel)
    return compiled


@pytest.fixture(scope="module")
def items(model: weft.CompiledModel) -> list[np.ndarray[Any, Any]]:
    spec = model.inputs[0]
    return [np.random.default_rng(seed).random(spec.shape).astype(spec.dtype) for seed in range(3)]


def test_each_item_comes_out_as_on_one_core(model: weft.CompiledModel, items: list[np.ndarray[Any, Any]]) -> None:
    alone = weft.load(model)
    together = weft.load(model, PAIR)
    outputs = together.run(items)
    for item, output in zip(items, outputs, strict=True):
        expected = alone.run(item)
        assert output.keys() == expected.keys()
        assert all(np.array_equal(output[name], expected[name]) for name in expected)
    uses = together.use()
    assert [use.items for use in uses] == [2, 1]  # a round of two, and one of one
    assert together.alone() == alone.cycles
    first, last = together.results[: len(model.programs)], together.results[len(model.programs) :]
    assert sum(result.cycles or 0 for result in first) > together.alone()  # they wait for each other
    assert sum(result.cycles or 0 for result in last) - together.alone() < 100 * len(model.programs)
    assert all(use.waited > 0 and use.bytes_read > 0 for use in uses)
    assert together.cycles == sum(result.cycles or 0 for result in together.results)


def test_cores_read_constants_once(model: weft.CompiledModel, items: list[np.ndarray[Any, Any]]) -> None:
    memory = DramModel(latency=40, bytes_per_cycle=2)
    apart, together = (weft.load(model, system, dram=memory) for system in (PAIR, SHARING))
    for expected, output in zip(apart.run(items), together.run(items), strict=True):
        assert all(np.array_equal(output[name], expected[name]) for name in expected)
    assert together.cycles < 0.98 * apart.cycles  # most of its bytes are programs, of which each core has its own
    assert [use.bytes_read for use in together.use()] == [use.bytes_read for use in apart.use()]
    shared = sum(use.bursts_shared for result in together.results[:1] for use in result.port_use if use is not None)
    assert shared > 0
    # Constants are those of core 0's part alone.
    start, stop = together.device.shared.start, together.device.shared.stop
    together.device.window(1).write(start, np.zeros(stop - start, np.uint8))
    again = together.run(items)
    assert all(np.array_equal(first[name], second[name])
               for first, second in zip(apart.run(items), again, strict=True) for name in first)  # fmt: skip


def test_cores_with_ports_of_their_own_cost_each_other_nothing(
    model: weft.CompiledModel, items: list[np.ndarray[Any, Any]]
) -> None:
    apart = weft.load(model, replace(PAIR, ports=(0, 1)))
    apart.run([*items, *items])
    assert [use.items for use in apart.use()] == [3, 3]
    assert [use.waited for use in apart.use()] == [0, 0]
    assert [use.alone for use in apart.use()] == [3 * apart.alone()] * 2


def test_all_constants_are_in_pages_that_cores_share(model: weft.CompiledModel) -> None:
    core = model.on_core
    pages = constant_pages(core)
    assert (pages.start % 4096, pages.stop % 4096) == (0, 0)
    assert pages.start <= min(each.offset for each in core.constants)
    last = max(each.offset + each.data.nbytes for each in core.constants)
    assert last <= pages.stop < last + 4096
    # What ends in the middle of a page shares the whole page.
    assert constant_pages(replace(core, constants=(replace(core.constants[0], offset=5000),))).start == 4096
    assert len(constant_pages(replace(core, constants=()))) == 0


def test_what_begins_where_a_constant_ends_is_a_cores_own(model: weft.CompiledModel) -> None:
    core, granule, size = model.on_core, model.on_core.config.granule_bytes, 64
    stores = [each for each in disassemble(core.config, model.programs[0].program) if isinstance(each, Store)]
    before = replace(core.constants[0], offset=stores[0].offset * granule - size, data=np.zeros(size, np.uint8))
    moved = in_part(replace(model, core=replace(core, constants=(before,))), 1 << 20)
    after = [each for each in disassemble(core.config, moved.programs[0].program) if isinstance(each, Store)]
    assert [each.offset for each in after] == [each.offset + (1 << 20) // granule for each in stores]


def test_a_memory_that_one_window_cannot_hold_is_refused(model: weft.CompiledModel) -> None:
    with pytest.raises(DeviceError, match=r"2 cores that share reads need one window of 2,\d+,\d+,\d+ bytes"):
        SimulatedSystem(SHARING, "fsim", (1 << 30) + 1, shared=range(4096))


@pytest.mark.parametrize("system", [PAIR, SHARING], ids=["apart", "sharing"])
def test_the_rtl_gives_the_same_bytes_and_cycles(
    system: weft.SystemConfig,
    model: weft.CompiledModel,
    items: list[np.ndarray[Any, Any]],
) -> None:
    memory = DramModel(latency=40, bytes_per_cycle=8)
    modules = [weft.load(model, device, system=system, dram=memory) for device in ("fsim", "rtl")]
    predicted, real = ([module.run(items), module] for module in modules)
    for first, second in zip(predicted[0], real[0], strict=True):
        assert all(np.array_equal(first[name], second[name]) for name in first)
    cores = [[result.cores for result in module.results] for module in modules]
    cycles = [[[core and core.cycles for core in run] for run in runs] for runs in cores]
    assert cycles[0] == cycles[1]


def test_a_fault_names_its_core_and_the_next_run_is_right(
    model: weft.CompiledModel, items: list[np.ndarray[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = weft.load(model, PAIR)
    expected = module.run(items[:2])
    simulator = FunctionalSystem.run

    def one_faults(self: FunctionalSystem, programs: Any, **named: Any) -> Any:
        done = simulator(self, programs, **named)
        fault = RunResult(None, FaultRecord(Fault.BUS_READ, 0, 3), 0, 0)
        return type(done)((done.cores[0], fault), done.starts)

    monkeypatch.setattr(FunctionalSystem, "run", one_faults)
    with pytest.raises(CoreFaultError, match=r"core 1: .*BUS_READ"):
        module.run(items[:2])
    monkeypatch.undo()
    again = module.run(items[:2])
    for first, second in zip(expected, again, strict=True):
        assert all(np.array_equal(first[name], second[name]) for name in first)


def test_bad_items_are_refused_and_the_next_run_is_right(
    model: weft.CompiledModel, items: list[np.ndarray[Any, Any]]
) -> None:
    module = weft.load(model, PAIR)
    for bad in ([], items[0], [items[0], items[0][..., :1]], {"x": items[0]}):
        with pytest.raises(InputError):
            module.run(bad)  # type: ignore[arg-type]
    assert len(module.run(items[:2])) == 2


def test_what_does_not_fit_is_refused_with_its_place(model: weft.CompiledModel, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"cores\[1\]: the model is compiled for 'tiny', but core 1 is a 'pynq'"):
        weft.load(model, weft.SystemConfig(cores=(TINY, PYNQ)))
    with pytest.raises(DeviceError, match="device 'null' runs no systems; hint: those that do: fsim, rtl"):
        weft.load(model, "null", system=PAIR)
    with pytest.raises(DeviceError, match="system is 3"):
        weft.load(model, system=3)  # type: ignore[call-overload]
    with pytest.raises(DeviceError, match="takes the name of a device"):
        weft.load(model, weft.FsimDevice(TINY), system=PAIR)  # type: ignore[call-overload]
    with pytest.raises(DeviceError, match="dram is the memory of a system"):
        weft.load(model, dram=DramModel())  # type: ignore[call-overload]
    with pytest.raises(DeviceError, match="nothing of 'digits' runs on a core"):
        weft.load(weft.compile(DIGITS, target="cpu"), PAIR)
    path = tmp_path / "system.json"
    path.write_text('{"cores": ["tiny", "huge"]}')
    with pytest.raises(ConfigError, match=r"system\.json: cores\[1\]: unknown configuration 'huge'"):
        weft.load(model, system=path)
    path.write_text(PAIR.to_json())
    assert weft.load(model, system=path).config == PAIR


def test_a_core_whose_stage_is_all_the_hosts_has_no_item() -> None:
    ran = RunResult(cycles=30, fault=None, bytes_read=8, bytes_written=4)
    idle, busy = core_uses([SystemResult(cores=(None, ran), starts=(0, 0))] * 2, [0, 1], [0, 20])
    assert (idle.items, idle.cycles, idle.waited, idle.bytes_read) == (0, 0, 0, 0)
    assert (busy.items, busy.cycles, busy.waited, busy.bytes_read) == (2, 60, 20, 16)
