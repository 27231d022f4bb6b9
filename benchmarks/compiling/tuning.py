"""What tuning brings, and how soon: the accelerator's layers against random points, a processor's kernels in turns.

``accel``: layers of ResNet-18 (``conv_layers.py``) alone, in the timing model. Points drawn from the space are all
measured; then four searches look for the best of them, many times each: by the learned ranking (trained on the other
layers' points), by the estimate alone, at random, and by evolution. ``network``: a whole network is tuned on a core,
compiled with and without the database, timed, and run on the functional simulator both ways. ``cpu``: models of one
kernel and ResNet-18 in float32 are tuned, compiled with and without the database, and run in turns; shares are medians
of rounds. A share is beyond the processor where it would take more multiply-adds a second than it does (measured, too).

    python benchmarks/compiling/tuning.py accel --picture build/tuning.svg
    python benchmarks/compiling/tuning.py accel --core wide --bytes-per-cycle 8 --layers C2 C4 --points 100 --seeds 3
    python benchmarks/compiling/tuning.py network mobilenet_v2 --core pynq --trials 8
    python benchmarks/compiling/tuning.py cpu --trials 64
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import weft
from onnx import helper, numpy_helper
from weft.compiler.compile import prepared
from weft.compiler.frontends import read
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.cpu.target import Cpu, CpuOptions
from weft.compiler.tune.database import Database
from weft.hw.config import load_config
from weft.hw.dram_rate import DramRate
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.tune.cpu_kernels import cpu_tasks, in_turns
from weft.tune.cpu_search import search_cpu
from weft.tune.ranking import ByEstimate, ByTrees, Measured, Ranking, rank_correlation
from weft.tune.search import search
from weft.tune.task import RefusedError, Task
from weft.tune.tasks import tasks_of

from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.core.conv_layers import SHAPES, layer, lowered
from benchmarks.cpu.arithmetic import multiply_adds_a_second
from examples.models.build import build

BATCH = 8
NEAR = 0.01
"""How near to the best of all points a search has to come."""

LAYERS_WANTED = 11 / 12
"""Share of the layers on which the learned search has to."""

KNOBS = ("groups", "rows", "columns", "reduction", "order", "epilogue_groups", "epilogue_rows", "threads")

Array = npt.NDArray[Any]


@dataclass
class Points:
    """A layer and the points of its space that were drawn, with what each costs."""

    name: str
    task: Task
    texts: list[str] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    default: int = 0

    @property
    def features(self) -> list[dict[str, float]]:
        return [dict(self.task.features(text)) for text in self.texts]

    @property
    def measured(self) -> list[Measured]:
        return [Measured(known, cost) for known, cost in zip(self.features, self.costs, strict=True)]


def drawn(name: str, task: Task, count: int, seed: int) -> Points:
    """The default, and up to ``count`` legal points of the space, all judged."""
    found = Points(name, task)
    texts = [text for text, candidate in task.points.items() if candidate.estimate < float("inf")]
    random.Random(seed).shuffle(texts)
    for text in [*task.defaults, *texts]:
        if len(found.texts) > count:
            break
        try:
            cost = task.cycles(task.points[text].setting)
        except RefusedError:
            continue
        if text in task.defaults:
            if found.default:
                continue
            found.default = cost
        if task.points[text].estimate < float("inf"):
            found.texts.append(text)
            found.costs.append(cost)
    return found


Search = Callable[[Points, random.Random, int], list[int]]
"""The numbers of the points that a search measures, in its order."""


def by_ranking(ranking: Ranking) -> Search:
    def run(points: Points, draw: random.Random, trials: int) -> list[int]:
        """The best by the ranking, in each batch two at random."""
        order = np.argsort(ranking.values(points.features), kind="stable").tolist()
        taken: list[int] = []
        while len(taken) < min(trials, len(order)):
            left = [place for place in order if place not in taken]
            rest = left[BATCH - 2 :]
            taken += [*left[: BATCH - 2], *draw.sample(rest, min(2, len(rest)))]
        return taken[:trials]

    return run


def at_random(points: Points, draw: random.Random, trials: int) -> list[int]:
    return draw.sample(range(len(points.texts)), min(trials, len(points.texts)))


def evolution(points: Points, draw: random.Random, trials: int) -> list[int]:
    """Each new point is that which differs in the fewest knobs from one of the best four, ties at random."""
    settings = [points.task.points[text].setting.point for text in points.texts]
    knobs = np.array([[str(setting[name]) for name in KNOBS] for setting in settings])
    taken = at_random(points, draw, min(BATCH, trials))
    while len(taken) < min(trials, len(settings)):
        parent = draw.choice(sorted(taken, key=lambda place: points.costs[place])[:4])
        apart = (knobs != knobs[parent]).sum(axis=1).astype(float)
        apart[taken] = np.inf
        nearest = np.flatnonzero(apart == apart.min()).tolist()
        taken.append(draw.choice(nearest))
    return taken


def curve(points: Points, order: Sequence[int], trials: int) -> Array:
    """The best so far, as a share of the best of all points."""
    best = np.minimum.accumulate([points.costs[place] for place in order]) / min(points.costs)
    return np.pad(best, (0, trials - len(best)), mode="edge")


def accel(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.core)
    rate = DramRate(bytes_per_cycle=arguments.bytes_per_cycle or config.bus_bytes)
    layers: list[Points] = []
    for name in arguments.layers:
        module = lowered(layer(name, SHAPES[name], 0), config)
        (task,) = tasks_of(module, config, rate, 2)
        layers.append(drawn(name, task, arguments.points, seed=1))
        print(f"{name}: {len(layers[-1].texts)} of {len(task.points)} points", file=sys.stderr, flush=True)
    curves: dict[str, list[Array]] = {"learned": [], "estimate": [], "random": [], "evolution": []}
    rows, near, reached, correlations = [], 0, 0.0, []
    for points in layers:
        others = [each.measured for each in layers if each is not points]
        learned: Ranking = ByTrees(others, 0) if others else ByEstimate()
        correlations.append([rank_correlation(list(ranking.values(points.features)), points.costs)
                             for ranking in (learned, ByEstimate())])  # fmt: skip
        searches: dict[str, Search] = {
            "learned": by_ranking(learned), "estimate": by_ranking(ByEstimate()), "random": at_random,
            "evolution": evolution,
        }  # fmt: skip
        ends = {}
        for name, way in searches.items():
            found = [curve(points, way(points, random.Random(seed), arguments.trials), arguments.trials)
                     for seed in range(arguments.seeds)]  # fmt: skip
            curves[name].append(np.mean(found, axis=0))
            ends[name] = float(np.mean([each[-1] for each in found]))
        near += ends["learned"] <= 1 + NEAR
        best = min(points.costs)
        reached += best * ends["learned"]
        shares = [points.default / best, *ends.values()]
        rows.append([points.name, str(len(points.texts)), f"{points.default:,}", f"{best:,}",
                     *(f"{value - 1:+.2%}" for value in shares),
                     *(f"{value:.2f}" for value in correlations[-1])])  # fmt: skip
    print_table(f"layers on {config.name}, {rate.bytes_per_cycle} bytes a cycle, after {arguments.trials} trials, "
                f"mean of {arguments.seeds} seeds",
                ["layer", "points", "default", "best", "default", *curves, "rho learned", "rho estimate"],
                rows)  # fmt: skip
    default = sum(points.default for points in layers)
    print(f"all layers by default: {default:,}; by the learned search: {reached:,.0f} ({reached / default - 1:+.2%})")
    means = np.mean(correlations, axis=0)
    print(f"mean rank correlation on layers not trained on: {means[0]:.2f} learned, {means[1]:.2f} by the estimate")
    print(f"the learned search comes within {NEAR:.0%} of the best on {near} of {len(layers)} layers")
    if arguments.picture:
        picture({name: np.exp(np.mean(np.log(each), axis=0)) for name, each in curves.items()}, arguments.picture)
    if arguments.json:
        write_json(arguments.json, [Record(config.name, row[0], "cycles, default", row[2], row[3]) for row in rows])
    return 0 if near >= LAYERS_WANTED * len(layers) else 1


def picture(curves: dict[str, Array], path: Path) -> None:
    """The best so far over the trials, geometric means over the layers."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), 100 * (values - 1), label=name)
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="trials", ylabel="above the best of all points, %", ylim=(0, None), yticks=(0, 1, 10, 100),
             yticklabels=("0", "1", "10", "100"))  # fmt: skip
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


# Whole networks


def network(arguments: argparse.Namespace) -> int:
    """Before and after tuning: cycles of the linked program, and equal integers."""
    config = load_config(arguments.core)
    rate = DramRate(bytes_per_cycle=arguments.bytes_per_cycle or config.bus_bytes)
    model = build(arguments.name, size=arguments.size)
    module = prepared(read(model).module({}, require_quantised=True), Accel(), AccelOptions(config, rate))
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.database or Path(folder) / "tuning.sqlite"
        started = time.process_time()
        with Database(path) as database:
            tasks = sorted(tasks_of(module, config, rate, 2), key=lambda each: -each.count * each.bound)
            tasks = tasks[: arguments.tasks]
            found = search(tasks, database, trials=arguments.trials, seed=arguments.seed, minutes=arguments.minutes)
        seconds = time.process_time() - started
        models = [weft.compile(model, config, dram=rate, tuned=tuned) for tuned in ("", str(path))]
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    cycles = [sum(run.result.cycles or 0 for run in predict_runs(each, dram)) for each in models]
    draw = np.random.default_rng(0)
    inputs = {each.name: draw.uniform(-1, 1, each.shape).astype(each.dtype) for each in models[0].inputs}
    outputs = [weft.load(each, weft.FsimDevice(config, check_races=True, timing=False)).run(inputs) for each in models]
    for name, value in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][name], value)
    kinds = [Counter(layer.kind for layer in each.layers if layer.device == "core") for each in models]
    better = sum(state.best is not None and state.default is not None and state.best < state.default
                 for state in found.states)  # fmt: skip
    print_table(f"{arguments.name} at {arguments.size} on {config.name}, {rate.bytes_per_cycle} bytes a cycle",
                ["", "cycles", "chains", "layers on the core"],
                [[name, f"{value:,}", str(kind["chain"]), str(sum(kind.values()))]
                 for name, value, kind in zip(("default", "tuned"), cycles, kinds, strict=True)])  # fmt: skip
    measured = sum(state.measured for state in found.states)
    print(f"{1 - cycles[1] / cycles[0]:.2%} fewer cycles; integers are equal on the functional simulator")
    print(f"{measured} settings of {len(tasks)} kernels, layers and chains measured in {seconds:.0f} CPU s")
    print(f"{better} have a better one; {models[1].statistics['tuned_kernels']} kernels of the program are by a record")
    if arguments.json:
        name = f"{arguments.name} at {arguments.size}"
        write_json(arguments.json, [Record(config.name, name, "cycles, tuned", cycles[1], cycles[0])])
    return 0 if cycles[1] <= cycles[0] else 1


# Processors


def product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "product",
        [helper.make_tensor_value_info("a", kind, (rows, depth)),
         helper.make_tensor_value_info("b", kind, (depth, columns))],
        [helper.make_tensor_value_info("c", kind, (rows, columns))],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolution(size: int, channels: int, filters: int, kernel: int) -> onnx.ModelProto:
    kind = onnx.TensorProto.FLOAT
    weights = np.random.default_rng(0).standard_normal((filters, channels, kernel, kernel)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["a", "w"], ["c"], pads=[kernel // 2] * 4)], "convolution",
        [helper.make_tensor_value_info("a", kind, (1, channels, size, size))],
        [helper.make_tensor_value_info("c", kind, (1, filters, size, size))], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MODELS: dict[str, tuple[Callable[[], Any], int, float]] = {
    "8x1024x1024": (lambda: product(8, 1024, 1024), 8 * 1024 * 1024, 0.65),
    "7x7x512 3x3": (lambda: convolution(7, 512, 512, 3), 7 * 7 * 512 * 512 * 9, 0.80),
    "28x28x128 3x3": (lambda: convolution(28, 128, 128, 3), 28 * 28 * 128 * 128 * 9, 1.02),
    "56x56x64 1x1": (lambda: convolution(56, 64, 64, 1), 56 * 56 * 64 * 64, 1.02),
    "256x256x256": (lambda: product(256, 256, 256), 256 * 256 * 256, 1.02),
    "resnet18": (lambda: build("resnet18", form="float"), 1_814_073_344, 0.93),
}
"""Models, their multiply-adds, and the share of the default's time that is wanted."""


def cpu(arguments: argparse.Namespace) -> int:
    rows, records, good = [], [], True
    peak = arguments.threads * multiply_adds_a_second()
    for name in arguments.models:
        build_model, macs, wanted = MODELS[name]
        model = build_model()
        module = prepared(read(model).module({}, require_quantised=False), Cpu(), CpuOptions(threads=arguments.threads))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tuning.sqlite"
            started = time.process_time()
            with Database(path) as database:
                tasks = cpu_tasks(module, host_target(), arguments.threads)
                search_cpu(tasks, database, trials=arguments.trials, seed=arguments.seed)
            seconds = time.process_time() - started
            models = [weft.compile(model, target="cpu", threads=arguments.threads),
                      weft.compile(model, target="cpu", threads=arguments.threads, tuned=str(path))]  # fmt: skip
        loaded = [weft.load(each) for each in models]
        draw = np.random.default_rng(0)
        inputs = {each.name: draw.standard_normal(each.shape).astype(np.float32) for each in models[0].inputs}
        outputs = [each.run(inputs) for each in loaded]
        for output in outputs[0]:
            np.testing.assert_allclose(outputs[0][output], outputs[1][output], rtol=1e-3, atol=1e-3)
        clock = time.thread_time if arguments.threads == 1 else time.perf_counter
        times = in_turns([partial(each.run, inputs) for each in loaded], arguments.rounds, 0.02, clock)
        share, default = float(np.median(times[:, 1] / times[:, 0])), float(np.median(times[:, 0]))
        used = macs / default / peak
        possible = used <= wanted
        good &= share <= wanted or not possible
        verdict = "" if share <= wanted else "MISSED" if possible else "beyond the processor"
        tuned = models[1].statistics["tuned_kernels"]
        rows.append([name, str(len(tasks)), str(tuned), f"{1e6 * default:,.0f}", f"{used:.0%}", f"{share:.2f}",
                     f"{wanted:.2f}", verdict, f"{seconds:.0f}"])  # fmt: skip
        records.append(Record(processor(), name, "share of the default's time", round(share, 3), wanted))
        records.append(Record(processor(), name, "default's share of the processor's multiply-adds", round(used, 3)))
        print(f"{name}: {share:.2f}", file=sys.stderr, flush=True)
    print_table(f"{processor()}, {arguments.threads} threads, at most {arguments.trials} trials a kernel, "
                f"{peak / 1e9:.0f} x 10^9 multiply-adds a second",
                ["model", "kernels", "tuned", "default, us", "of the multiply-adds", "share", "wanted", "",
                 "search, CPU s"], rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    parts = parser.add_subparsers(required=True)
    core = parts.add_parser("accel")
    core.add_argument("--core", default="pynq")
    core.add_argument("--bytes-per-cycle", type=int, default=4, help="of the DRAM; 0: those of the bus")
    core.add_argument("--layers", nargs="+", default=list(SHAPES), choices=SHAPES)
    core.add_argument("--points", type=int, default=500)
    core.add_argument("--trials", type=int, default=48, help="of each search")
    core.add_argument("--seeds", type=int, default=10)
    core.add_argument("--picture", type=Path, help="write the curves of the best so far to this file")
    core.set_defaults(run=accel)
    whole = parts.add_parser("network")
    whole.add_argument("name")
    whole.add_argument("--core", default="pynq")
    whole.add_argument("--size", type=int, default=224, help="height and width of the images")
    whole.add_argument("--bytes-per-cycle", type=int, default=0, help="of the DRAM; 0: those of the bus")
    whole.add_argument("--trials", type=int, default=8)
    whole.add_argument("--tasks", type=int, help="tune so many kernels, layers and chains alone, the largest")
    whole.add_argument("--minutes", type=float)
    whole.add_argument("--seed", type=int, default=0)
    whole.add_argument("--database", type=Path, help="keep results in this file, and go on with it")
    whole.set_defaults(run=network)
    host = parts.add_parser("cpu")
    host.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    host.add_argument("--threads", type=int, default=1)
    host.add_argument("--trials", type=int, default=64)
    host.add_argument("--rounds", type=int, default=15)
    host.add_argument("--seed", type=int, default=0)
    host.set_defaults(run=cpu)
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
