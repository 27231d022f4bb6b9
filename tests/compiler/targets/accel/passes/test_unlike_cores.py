"""Stages on unlike cores: results as on one core, proved, each stage by what its own core can do; what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.compile import compile_model
from weft.compiler.model import CoreStep, HostStep
from weft.compiler.targets.accel.link.split import cycles_of_stages
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.target import Job
from weft.errors import WeftError
from weft.hw.config import PYNQ, PYNQ_TABLES, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.errors import ArtifactError, DeviceError
from weft.runtime.pipeline_module import PipelineModule
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.sim.system_timing import cycles_together
from weft.sim.timing import predict

from ....onnx_models import FloatModel, quantise
from ..link.test_stages import bytes_first

DIGITS = Path(__file__).parents[5] / "examples" / "digits" / "digits.onnx"

EIGHT = CoreConfig(name="eight", block_in=8, block_out=8, inp_depth=1024, wgt_depth=512, acc_depth=1024, out_depth=512)
SMALL = replace(PYNQ, name="small", inp_depth=512, wgt_depth=256, acc_depth=512, out_depth=256, queue_depth=8)
"""Activations lie as those of ``pynq`` do."""

SLOW = DramRate(bytes_per_cycle=4)


def compiled(source: Path, *cores: CoreConfig, **options: Any) -> weft.CompiledModel:
    made = weft.compile(source, cores=cores, **options)
    assert isinstance(made, weft.CompiledModel)
    return made


def on_system(model: weft.CompiledModel, *, relay: bool = False) -> PipelineModule:
    cores = model.on_core.cores
    system = weft.SystemConfig(cores=cores, ports=tuple(range(len(cores))), relay=relay)
    module = weft.load(model, system=system)
    assert isinstance(module, PipelineModule)
    return module


def network(folder: Path, seed: int) -> Path:
    """A network of random layers: plain and depthwise convolutions, sums, poolings, now and then one for the host."""
    random = np.random.default_rng(seed)
    channels = int(random.choice([3, 8, 24]))
    model = FloatModel((1, channels, 12, 12), seed)
    x = "x"
    for _ in range(int(random.integers(4, 8))):
        match random.integers(6):
            case 0:
                x = model.op("Relu", model.conv(x, channels, channels, group=channels))
            case 1:
                x = model.op("Add", x, model.op("Relu", model.conv(x, channels, channels)))
            case 2:
                x = model.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
            case 3:
                x = model.op("Sin", model.conv(x, channels, channels))
            case _:
                wide = int(random.choice([5, 16, 32, 40]))
                x, channels = model.op("Relu", model.conv(x, channels, wide, int(random.choice([1, 3])))), wide
    model.conv(x, channels, 10)
    quantise(model.build(model.nodes[-1].output[0]), folder)
    return folder / "quantised.onnx"


@pytest.mark.parametrize("seed", range(4))
def test_results_are_those_of_one_core_and_proved(seed: int, tmp_path: Path) -> None:
    source, random = network(tmp_path, seed), np.random.default_rng(seed)
    cores = [(PYNQ, EIGHT, SMALL)[kind] for kind in random.permutation(3)[: int(random.integers(2, 4))]]
    model = compiled(source, *cores)
    items = [random.normal(size=model.inputs[0].shape).astype(np.float32) for _ in range(4)]
    alone = weft.load(weft.compile(source, PYNQ))
    module = on_system(model, relay=True)
    for found, expected in zip(module.run(items), map(alone.run, items), strict=True):
        assert all(np.array_equal(found[name], value) for name, value in expected.items())
    assert {step.stage for step in model.programs} == set(range(len(cores)))
    assert weft.certify(model, source).proved
    assert weft.certify(from_bytes(to_bytes(model)), source).proved


def test_cores_that_store_alike_hand_on_without_the_host() -> None:
    model = compiled(DIGITS, SMALL, PYNQ)
    first, second = model.programs
    assert (first.stage, second.stage) == (0, 1)
    assert set(second.inputs) == set(first.outputs)
    places = [place for place, step in enumerate(model.steps) if isinstance(step, CoreStep)]
    assert places[1] == places[0] + 1
    module = on_system(model, relay=True)
    assert module.relays
    items = [np.random.default_rng(seed).random(model.inputs[0].shape).astype(np.float32) for seed in range(5)]
    whole = weft.load(weft.compile(DIGITS, PYNQ))
    for found, expected in zip(module.run(items), map(whole.run, items), strict=True):
        assert all(np.array_equal(found[name], value) for name, value in expected.items())
    own = [predict(core, each.program, offset=each.program_offset).cycles for core, each in
           zip((SMALL, PYNQ), model.programs, strict=True)]  # fmt: skip
    assert module.stage_cycles() == tuple(own)


def test_the_host_gives_the_other_layout_between_cores_that_store_otherwise() -> None:
    model = compiled(DIGITS, EIGHT, PYNQ)
    first, second = (place for place, step in enumerate(model.steps) if isinstance(step, CoreStep))
    between = [step for step in model.steps[first + 1 : second] if isinstance(step, HostStep)]
    assert between
    before, after = model.programs
    assert set(before.outputs).isdisjoint(after.inputs)
    assert [model.on_core.slots[name].shape[-1] for name in (*before.outputs, *after.inputs)] == [8, 16]
    assert not on_system(model, relay=True).relays


def test_a_layer_goes_to_the_core_that_can_run_it(tmp_path: Path) -> None:
    """A window that only one of the cores holds; the other one would leave it to the host. Without that, the stages
    were as long as each other with the window in the other's."""
    network = FloatModel((1, 16, 15, 15))
    x = network.op("Relu", network.conv("x", 16, 16))
    x = network.op("AveragePool", x, kernel_shape=[15, 15])
    x = network.op("Relu", network.conv(x, 16, 512, kernel=1))
    network.conv(network.op("Relu", network.conv(x, 512, 512, kernel=1)), 512, 512, kernel=1)
    quantise(network.build(network.nodes[-1].output[0]), tmp_path)
    source = tmp_path / "quantised.onnx"
    little = replace(PYNQ, name="little", acc_depth=256)
    whole = weft.compile(source, little)
    assert isinstance(whole, weft.CompiledModel)
    assert [layer for layer in whole.layers if "scratchpad" in layer.reason]
    model = compiled(source, little, PYNQ)
    assert not [layer for layer in model.layers if "scratchpad" in layer.reason]


def test_the_longest_stage_is_as_short_as_a_cut_makes_it() -> None:
    """The slow core has little to do, whichever of the two it is."""
    for cores in ((TINY, PYNQ), (PYNQ, TINY)):
        model = compiled(DIGITS, *cores)
        cycles = on_system(model).stage_cycles()
        alone = [weft.compile(DIGITS, core) for core in cores]
        taken = [sum(predict(each.config, step.program, offset=step.program_offset).cycles or 0
                     for step in each.programs) for each in alone if isinstance(each, weft.CompiledModel)]  # fmt: skip
        assert max(cycles) < min(taken)


def test_what_is_for_one_core_is_refused(tmp_path: Path) -> None:
    model = compiled(DIGITS, SMALL, PYNQ)
    with pytest.raises(DeviceError, match="are for unlike cores: small, pynq; hint: load it with the system"):
        weft.load(model)
    with pytest.raises(DeviceError, match="stages of digits are for unlike cores: small, pynq; hint: profile it on"):
        profile(model, predict_runs(model, DramModel()), "model")
    with pytest.raises(WeftError, match="stages of 'digits' are for unlike cores: small, pynq"):
        _ = model.config
    swapped = weft.SystemConfig(cores=(PYNQ, SMALL))
    with pytest.raises(DeviceError, match=r"cores\[0\]: stage 0 of the model is compiled for 'small', but core 0 is a"):
        weft.load(model, swapped)
    with pytest.raises(DeviceError, match="has 2 stages, but the system has 3 cores"):
        weft.load(model, weft.SystemConfig(cores=(SMALL, PYNQ, PYNQ)))
    with pytest.raises(DeviceError, match="dram is 5, but must be a DramModel"):
        weft.load(model, system=weft.SystemConfig(cores=(SMALL, PYNQ)), dram=5)  # type: ignore[call-overload]
    raw = replace(model, core=replace(model.on_core, cores=model.on_core.cores[:1]))
    with pytest.raises(ArtifactError, match="is of stage 1, but there are cores for 1"):
        from_bytes(to_bytes(raw))


@pytest.mark.parametrize(
    ("cores", "options", "message"),
    [
        ((PYNQ, TINY), {"stages": 3}, "3 stages, but cores names 2; hint: name the core of each stage"),
        ((PYNQ, TINY), {"split": 2}, "layers that 2 cores share want cores that are alike"),
        ((PYNQ, replace(PYNQ, batch=2, depthwise=0)), {}, r"cores\[1\]: batch of 'pynq' is 2, but that of 'pynq' is 1"),
        ((PYNQ,) * 9, {}, "cores names 9, but a system has at most 8"),
        ((PYNQ, 5), {}, r"cores\[1\]: 5 is no core"),
        (5, {}, "cores is 5, but must name the core of each stage"),
        ((), {}, r"cores is \(\), which names none; hint: name the core of each stage, or leave cores out"),
        ([], {}, r"cores is \[\], which names none"),
        ((PYNQ, TINY), {"config": TINY}, "config and cores are both given, and config would say nothing; hint: leave"),
        ("pynq,tiny", {"config": "pynq"}, "config and cores are both given"),
        ((PYNQ, TINY), {"integers": ["all"]}, r"integers is \['all'\], but must be a text"),
        ("pynq, minute", {}, "minute"),
        ((PYNQ, TINY) * 4, {}, "parts, which are no 8 stages; hint: name fewer cores"),
    ],
)  # fmt: skip
def test_cores_that_cannot_be_stages_are_refused(cores: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        weft.compile(DIGITS, cores=cores, **options)


def test_cuts_are_measured() -> None:
    with pytest.raises(CompileError, match="what cores share is cut by measured cycles, but nothing measures them"):
        compile_model(DIGITS, options={"cores": (PYNQ, TINY)})


def longest_stage(model: weft.CompiledModel, ports: tuple[int, ...]) -> int:
    """Cycles of a round on cores with these ports."""
    stages = [[(step.program, step.program_offset) for step in model.programs if step.stage == stage]
              for stage in range(model.stages)]  # fmt: skip
    return max(cycles_of_stages(stages, model.on_core.cores, ports, SLOW, Job(together=cycles_together)))


def test_cuts_are_for_the_ports_that_unlike_cores_share(tmp_path: Path) -> None:
    """Two of three cores have the first port, so that they wait for each other; the third has one of its own."""
    source, cores, ports = bytes_first(tmp_path), (PYNQ, SMALL, PYNQ), (0, 0, 1)
    own, told = (compiled(source, *cores, dram=SLOW, chains=False, **named) for named in ({}, {"ports": ports}))
    assert longest_stage(told, ports) < 0.95 * longest_stage(own, ports)
    assert weft.certify(told, source).proved
    system = weft.SystemConfig(cores=cores, ports=ports)
    module, alone = weft.load(told, system), weft.load(weft.compile(source, PYNQ))
    assert isinstance(module, PipelineModule)
    items = [np.random.default_rng(seed).normal(size=told.inputs[0].shape).astype(np.float32) for seed in range(3)]
    for found, expected in zip(module.run(items), map(alone.run, items), strict=True):
        assert all(np.array_equal(found[name], value) for name, value in expected.items())
    assert max(result.cycles or 0 for each in module.rounds for result in each) == longest_stage(told, ports)


def test_ports_never_cost_stages_of_unlike_cores(tmp_path: Path) -> None:
    """The cuts for a port each are a candidate, too."""
    source, cores, ports = network(tmp_path, 0), (SMALL, PYNQ, PYNQ_TABLES), (0, 0, 1)
    own, told = (compiled(source, *cores, dram=SLOW, **named) for named in ({}, {"ports": ports}))
    assert longest_stage(told, ports) <= longest_stage(own, ports)
