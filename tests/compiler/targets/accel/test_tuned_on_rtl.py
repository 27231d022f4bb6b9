"""Programs by records of a tuning database on the real core: random legal points of random layers give NumPy's
integers, in the cycles that the timing model predicts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.api import load
from weft.compiler.compile import prepared
from weft.compiler.frontends import read
from weft.compiler.graph import Module, evaluate, evaluate_function
from weft.compiler.model import CompiledModel
from weft.compiler.operators.numerics import output_size
from weft.compiler.passes.manager import PassManager, random_inputs
from weft.compiler.passes.pipeline import integer_passes
from weft.compiler.targets.accel.link.tuned import Setting
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.tune.database import Database
from weft.hw.config import TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.runtime.device import RtlDevice
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.sim.timing import predict
from weft.tune.task import RefusedError, Task
from weft.tune.tasks import ChainTask, KernelTask, LayerTask, tasks_of

from examples.models.build import build

from .chains import SQUARE, apart, random_case
from .kernels import CONFIGS, program_of
from .link.test_depthwise_split import Case
from .link.test_tuned import module_of
from .operators.test_depthwise_mode import MODES, run_on_rtl
from .test_kernels import KINDS
from .test_kernels import Case as KernelCase

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "digits.onnx"
ATTEMPTS = 4
"""Random points that are tried of a task: a chain is compiled only if it beats its layers."""


@dataclass(frozen=True)
class Subject:
    """What is tuned, on a core with a memory; all follows from the seed. ``kind``: kernel, layer or chain."""

    kind: str
    config: CoreConfig
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.config.name}-{self.seed}"

    @property
    def rate(self) -> DramRate:
        """Chains save traffic, so their memory is slow."""
        chance = random.Random(self.seed)
        fast = () if self.kind == "chain" else (4, self.config.bus_bytes)
        return DramRate(latency=chance.choice((30, 100, 170)), bytes_per_cycle=chance.choice((2, *fast)))

    def module(self) -> Module:
        chance = random.Random(self.seed)
        if self.kind == "chain":
            return apart(random_case(self.seed), self.config)
        while True:
            window = {
                "size": (chance.randint(1, 15), chance.randint(1, 15)),
                "kernel": (chance.randint(1, 3), chance.randint(1, 3)),
                "strides": (chance.randint(1, 2), chance.randint(1, 2)),
                "pads": tuple(chance.randint(0, 1) for _ in range(4)),
            }
            sizes = [output_size(window["size"][axis], window["kernel"][axis], window["strides"][axis],
                                 window["pads"][axis], window["pads"][axis + 2], 1) for axis in (0, 1)]  # fmt: skip
            if min(sizes) >= 1:
                break
        many = 6 * max(self.config.block_in, self.config.block_out)
        channels, seed = chance.randint(1, many), self.seed
        if self.kind == "layer":
            residual = chance.random() < 0.3
            return module_of(Case(self.config, channels=channels, residual=residual, seed=seed, **window))  # type: ignore[arg-type]
        kind, filters = chance.choice([each for each in KINDS if each != "depthwise"]), chance.randint(1, many)
        return module_of(KernelCase(kind, self.config, channels=channels, filters=filters, seed=seed, **window))  # type: ignore[arg-type]


TASKS = {"kernel": KernelTask, "layer": LayerTask, "chain": ChainTask}


def subjects(kind: str, number: int, configs: Sequence[CoreConfig]) -> Iterator[tuple[Subject, Task]]:
    """Those of a kind from a seed on that have a task of the kind, on one of the cores."""
    for seed in range(1000 * number, 1000 * (number + 1)):
        found = Subject(kind, configs[number % len(configs)], seed)
        tasks = tasks_of(found.module(), found.config, found.rate, 2, chains=kind == "chain")
        task = next((each for each in tasks if isinstance(each, TASKS[kind])), None)
        if task is not None:
            yield found, task


def legal(task: Task, chance: random.Random) -> Setting:
    """A random point that is compiled, and not what the compiler takes by itself, if there is another."""
    texts = [text for text in task.points if text not in task.defaults] or list(task.defaults)
    for text in chance.sample(texts, len(texts)):
        try:
            task.cycles(task.points[text].setting)
        except RefusedError:
            continue
        return task.points[text].setting
    return task.points[task.defaults[0]].setting


def recorded(path: Path, found: Subject, task: Task) -> tuple[Setting, CompiledModel] | None:
    """Its module, compiled by a record of a random point; None if the compiler takes none."""
    chance, module = random.Random(found.seed), found.module()
    for _ in range(ATTEMPTS):
        setting = legal(task, chance)
        path.unlink(missing_ok=True)
        with Database(path) as database:
            database.add(task.key, setting.point, 1.0)
        model = weft.compile(module, found.config, dram=found.rate, tuned=str(path))
        assert isinstance(model, CompiledModel)
        if model.statistics["tuned_kernels"]:
            return setting, model
    return None


NEAR = {"kernel": SQUARE, "layer": (*SQUARE[:2], MODES[0]), "chain": (*SQUARE[:3], MODES[0])}
"""Cores that other tests build, too; on the smallest of them chains hardly ever beat their layers."""

FAR = {"kernel": (*CONFIGS, MODES[0]), "layer": (*SQUARE, *MODES), "chain": (*SQUARE[:3], *MODES)}


def check(kind: str, number: int, configs: Sequence[CoreConfig], folder: Path) -> None:
    compiled = ((found, recorded(folder / "t.sqlite", found, task)) for found, task in subjects(kind, number, configs))
    found, (setting, model) = next((found, taken) for found, taken in compiled if taken is not None)
    assert any(layer.schedule.startswith("# record 1 of the tuning database") for layer in model.layers)
    assert not setting.form or any(repr(setting.form) in layer.schedule for layer in model.layers)
    main, draw = found.module().main, np.random.default_rng(found.seed)
    arrays = [draw.integers(-128, 128, param.type.shape).astype(np.int8) for param in main.params]
    inputs = {param.name: array for param, array in zip(main.params, arrays, strict=True)}
    expected = evaluate_function(main, arrays)
    dram = DramModel(latency=found.rate.latency, bytes_per_cycle=found.rate.bytes_per_cycle)
    step = program_of(model)
    result, cycles = run_on_rtl(model, inputs, dram)
    np.testing.assert_array_equal(result, expected, err_msg=str(found))
    assert predict(found.config, step.program, dram, offset=step.program_offset).cycles == cycles, str(found)
    result, _ = run_on_rtl(model, inputs, replace(dram, jitter=20, seed=5, reorder=True))
    np.testing.assert_array_equal(result, expected, err_msg=str(found))


@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind in TASKS for number in range(4)])
def test_a_random_point_gives_the_same_integers_in_the_predicted_cycles(kind: str, number: int, tmp_path: Path) -> None:
    check(kind, number, NEAR[kind], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", TASKS)
def test_many_random_points_give_the_same_integers_in_the_predicted_cycles(kind: str, tmp_path: Path) -> None:
    for number in range(100, 160):
        check(kind, number, FAR[kind], tmp_path)


def network_at_random(path: Path, module: Module, config: CoreConfig, rate: DramRate, seed: int) -> None:
    """A database with a random legal point of every task of a network."""
    chance = random.Random(seed)
    with Database(path) as database:
        for task in tasks_of(module, config, rate, 2):
            database.add(task.key, legal(task, chance).point, 1.0)


def check_network(source: str | Path, config: CoreConfig, rate: DramRate, seed: int, path: Path) -> int:
    """A whole network by random points: the graph's integers, in the predicted cycles. How many are by records."""
    network = read(source)
    options = AccelOptions(config, rate)
    network_at_random(path, prepared(network.module({}, require_quantised=True), Accel(), options), config, rate, seed)
    model = weft.compile(source, config, dram=rate, tuned=str(path))
    assert isinstance(model, CompiledModel)
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    block = Blocks.of(config).product_block
    module = PassManager(integer_passes(block)).run(network.module({}, require_quantised=True))
    inputs = random_inputs(module, seed)
    loaded = load(model, RtlDevice(config, dram=dram))
    results = loaded.run(inputs)
    for name, expected in evaluate(module, inputs).items():
        np.testing.assert_array_equal(results[name], expected)
    assert loaded.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    return int(model.statistics["tuned_kernels"])


@pytest.mark.parametrize("seed", range(2))
def test_a_network_by_random_points_gives_the_same_integers_in_the_predicted_cycles(seed: int, tmp_path: Path) -> None:
    rate = DramRate(bytes_per_cycle=(2, 8)[seed])
    assert check_network(DIGITS, TINY, rate, seed, tmp_path / "t.sqlite") > 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2"])
def test_mobilenets_by_random_points_give_the_same_integers_in_the_predicted_cycles(name: str, tmp_path: Path) -> None:
    """With every form of depthwise layers that the core has, at 32x32."""
    rate = DramRate(bytes_per_cycle=4)
    assert check_network(build(name, size=32), MODES[2], rate, 1, tmp_path / "t.sqlite") > 20
