"""Products of one row, as a decoder makes them for each token: cycles with 8-bit weights and with 4-bit ones.

Such products use each weight once, so they wait for the bus: the bound is the bytes of the weights with their scales
and zero points, and of bias, multiplier and shift of each output, over the bytes of a cycle. Weights are random floats,
in 8 bits and in 4 (`weft.quantise.four_bits`). The decoder's layer is its seven products, each behind a value that it
reads; attention and normalisation are left out. Cycles are the timing model's; `--rtl` runs the smallest case on the
RTL too, whose result and cycles must be the same. Exit status 1 where a large case takes more than 0.54 of the cycles
with 8 bits, or where its bound is under 96 % of its cycles.

`--step` measures a whole step of the shape of SmolLM2-135M, or of Llama-3.2-1B with `--shape`, at 256 positions or
those of `--positions`, with attention, norms and an int8 cache: one layer of 30 or 16, and the output head or a part
of it. Their cycles, times how often they come, are the step's: programs run one after another. `--core`: `pynq`,
`wide`, or `port32`, which is `pynq` with a port of 32 bytes, as boards with a Zynq UltraScale+ may have. Its bound also
counts the cache, read once. The host's part (rotary positions, normalisation, softmax) is in no cycle; how many kernels
it has is printed, in how many calls they run, and how many bytes of the cache, which stays in the core's memory, it
writes. The same targets hold, and for `port32` tokens a second.

    python benchmarks/core/language.py --json language.json
    python benchmarks/core/language.py --rtl
    python benchmarks/core/language.py --step
    python benchmarks/core/language.py --step --core port32 --positions 1024
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.model import CoreStep, HostStep, LaunchStep
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.quantise.plan import Plan
from weft.runtime.profile_whatif import predict_runs
from weft.runtime.residents import Kept, Residents
from weft.sim.dram import DramModel

from benchmarks.common import Record, each_of, print_table, write_json
from examples.story.network import Size, layer_module

LONGEST, LEAST_SHARE = 0.54, 0.96
"""Cycles over those with 8 bits at most; cycles of the bus for the weights over all at least."""

STUDY = {128: 271_027, 64: 275_123}
"""Cycles of 2048 x 2048 by groups, of a program by hand, on a trial core without the unpacker's registers."""


@dataclass(frozen=True)
class Case:
    """A model of floats, its weights by number of values, and the group that its depths are multiples of."""

    name: str
    module: Module
    weights: int
    outputs: int
    group: int
    on_rtl: bool = False


class _Layers:
    """Products with random weights, each with a name of its own."""

    def __init__(self, depth: int) -> None:
        self.x = Var("x", TensorType((1, depth), "float32"))
        self.random = np.random.default_rng(0)
        self.weights = self.outputs = 0

    def dense(self, value: Expr, outputs: int) -> Expr:
        """(1, K) -> (1, outputs)."""
        depth = value.shape[1]
        self.weights += depth * outputs
        self.outputs += outputs
        floats = self.random.normal(0, depth**-0.5, (outputs, depth)).astype(np.float32)
        return call("nn.dense", value, Constant(floats, f"weight{self.weights}"))

    def case(self, name: str, results: Mapping[str, Expr], group: int, *, on_rtl: bool = False) -> Case:
        body = Tuple(tuple(results.values())) if len(results) > 1 else next(iter(results.values()))
        attrs = Attrs({"name": "main", "outputs": tuple(results)})
        return Case(name, Module(Function((self.x,), body, attrs)), self.weights, self.outputs, group, on_rtl)


def matrix(depth: int, outputs: int, group: int, *, on_rtl: bool = False) -> Case:
    layers = _Layers(depth)
    return layers.case(f"{depth} x {outputs}, groups of {group}", {"y": layers.dense(layers.x, outputs)}, group,
                       on_rtl=on_rtl)  # fmt: skip


def decoder_layer(name: str, width: int, heads: int, inner: int, group: int) -> Case:
    """``heads``: outputs of keys and of values."""
    layers = _Layers(width)
    query, keys, values = (layers.dense(layers.x, outputs) for outputs in (width, heads, heads))
    attended = layers.dense(query, width)
    gate, up = layers.dense(attended, inner), layers.dense(attended, inner)
    down = layers.dense(gate, width)
    return layers.case(name, {"keys": keys, "values": values, "up": up, "down": down}, group)


CASES: tuple[Callable[[], Case], ...] = (
    lambda: matrix(576, 576, 64, on_rtl=True),
    lambda: matrix(2048, 2048, 64),
    lambda: matrix(2048, 2048, 128),
    lambda: decoder_layer("products of a layer of SmolLM2-135M", 576, 192, 1536, 64),
)
TOO_SHORT = 1 << 20
"""Weights of a case whose start and end, some thousand cycles, count: it has no target."""


SMOLLM2 = Size(width=576, heads=9, key_heads=3, layers=30, hidden=1536, positions=256, tokens=49152)
LLAMA = Size(width=2048, heads=32, key_heads=8, layers=16, hidden=8192, positions=256, tokens=128256)
SHAPES = {"smollm2-135m": (SMOLLM2, 1), "llama-3.2-1b": (LLAMA, 48)}
"""And into how many parts the output head is cut: a large one takes long to compile, and each part has a
start and an end."""

CORES = {"pynq": PYNQ, "wide": WIDE, "port32": replace(PYNQ, name="port32", bus_bits=256)}
CLOCK = 100e6
ON_PAPER = {
    ("smollm2-135m", 256): (10.7, 5.7), ("smollm2-135m", 1024): (9.6, 5.4),
    ("llama-3.2-1b", 256): (1.25, 0.64), ("llama-3.2-1b", 1024): (1.23, 0.64),
}  # fmt: skip
"""Tokens/s on `pynq` at 100 MHz of the bytes alone, with 4 and with 8 bits."""

PUBLISHED = {"smollm2-135m": 27.0, "llama-3.2-1b": 4.64}
"""Tokens/s at 100 MHz on a KV260, as Torch2RISCV-accelerator says of itself. Its port is wider than 8 bytes."""

WANTED = {("smollm2-135m", "port32"): 40.0, ("llama-3.2-1b", "port32"): 4.8}


@dataclass(frozen=True)
class Part:
    """A part of a step and how often it comes. ``weights``: values; ``outputs``: with parameters of their own;
    ``cache``: bytes."""

    name: str
    module: Module
    times: int
    weights: int
    outputs: int
    cache: int = 0


def parts_of_a_step(size: Size, head_parts: int) -> tuple[Part, ...]:
    start = weft.train.initialised(layer_module(size, {})[1], seed=0)
    layer, _ = layer_module(size, start)
    matrices = [value.shape for value in start.values() if value.ndim == 2]
    weights, outputs = sum(rows * depth for rows, depth in matrices), sum(rows for rows, _ in matrices)
    cache = 2 * size.shared * size.depth * size.positions
    head = matrix(size.width, size.tokens // head_parts, 64)
    return (
        Part("a layer", layer, size.layers, weights, outputs, cache),
        Part(
            "the head" if head_parts == 1 else f"1/{head_parts} of the head",
            head.module,
            head_parts,
            head.weights,
            head.outputs,
        ),
    )


def bytes_of_cache(model: weft.CompiledModel, position: int) -> tuple[int, int]:
    """What the host writes into the window of a cache that stays there: all of it at first, then for a token more."""
    device, residents = weft.NullDevice(model.config), Residents(model)
    device.allocate(model.on_core.window_bytes)
    steps = [step for step in model.steps if isinstance(step, HostStep) and step.resident is not None]
    written, owner = [0], object()
    for place in (position - 1, position):
        for step in steps:
            assert step.resident is not None
            types = zip(step.inputs, step.program.inputs, strict=True)
            values = {name: np.zeros(tensor.shape, np.int8) for name, tensor in types}
            axes = {step.resident.state: step.resident.axis}
            residents.update(device, step.outputs[0], values, Kept(owner, place, axes))
        written.append(residents.written - written[-1])
    return written[1], written[2]


def calls_of(step: HostStep) -> int:
    """Of machine code: one for kernels without anything between them, and none where a state stays on the core."""
    if step.resident is not None:
        return 0
    return sum(is_kernel for is_kernel, _ in groupby(isinstance(each, LaunchStep) for each in step.program.steps))


def inputs_of(plan: Plan, position: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    params = plan.module.main.params

    def value(param: Var) -> np.ndarray:
        if param.dtype == "int64":
            return np.full(param.shape, position)
        return random.normal(0, 1, param.shape).astype(np.float32)

    return [{param.name: value(param) for param in params} for _ in range(3)]


def step_measured(shape: str, positions: int, core8: CoreConfig) -> tuple[list[Record], bool]:
    """Records of a whole step, and whether its targets are met."""
    whole, head_parts = SHAPES[shape]
    size = replace(whole, positions=positions)
    core4 = replace(core8, weight_group=64)
    dram = DramModel(bytes_per_cycle=core8.bus_bytes)
    records: list[Record] = []
    cycles: dict[int, int] = {8: 0, 4: 0}
    bytes_moved = 0
    for part in parts_of_a_step(size, head_parts):
        plan = weft.quantise.plan(part.module)
        ranges = weft.quantise.calibrate(plan, inputs_of(plan, size.positions - 1), symmetric_products=True)
        four = weft.quantise.four_bits(plan, core4.weight_group)
        for bits, core, weights in ((8, core8, {}), (4, core4, four)):
            module = weft.quantise.quantised(plan, ranges, weights)
            if part.cache:
                module = weft.quantise.eight_bit_states(module)
            model = weft.compile(module, core)
            found = cycles_of(model, dram)
            cycles[bits] += part.times * found
            records.append(Record(core.name, part.name, f"cycles, {bits} bits", found))
            programs = sum(isinstance(step, CoreStep) for step in model.steps)
            kernels = sum(layer.device != "core" for layer in model.layers)
            records.append(Record(core.name, part.name, f"programs and kernels of the host, {bits} bits",
                                  f"{programs} and {kernels}"))  # fmt: skip
            calls = sum(calls_of(step) for step in model.steps if isinstance(step, HostStep))
            records.append(Record(core.name, part.name, f"calls of the host's machine code, {bits} bits", calls))
            if part.cache:
                every, new = bytes_of_cache(model, size.positions - 1)
                records.append(Record(core.name, part.name, f"bytes of the cache that a token writes, {bits} bits",
                                      new, every))  # fmt: skip
        record_bytes = part.weights * core4.weight_record_bytes // (core4.block_out * core4.weight_group)
        bytes_moved += part.times * (record_bytes + 12 * part.outputs + part.cache)
    name = f"a step of {shape} at {positions} positions"
    paper = ON_PAPER.get((shape, positions)) if core8 == PYNQ else None
    for bits, count in cycles.items():
        beside = None if paper is None else paper[bits == 8]
        records.append(Record(core8.name, name, f"cycles a token, {bits} bits", count))
        records.append(Record(core8.name, name, f"tokens/s at 100 MHz, {bits} bits", round(CLOCK / count, 2), beside))
    ratio, share = cycles[4] / cycles[8], bytes_moved / core4.bus_bytes / cycles[4]
    speed, wanted = CLOCK / cycles[4], WANTED.get((shape, core8.name), 0.0)
    if wanted:
        records.append(
            Record(core8.name, name, "tokens/s, Torch2RISCV's own figure", round(speed, 2), PUBLISHED[shape])
        )
        records.append(Record(core8.name, name, "tokens/s, wanted", round(speed, 2), wanted))
    records.append(Record(core8.name, name, "ratio", round(ratio, 4), LONGEST))
    records.append(Record(core8.name, name, "share of the bound", round(share, 4), LEAST_SHARE))
    return records, ratio <= LONGEST and share >= LEAST_SHARE and speed >= wanted


def examples(plan: Plan) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    shapes = {param.name: param.tensor_type.shape for param in plan.module.main.params}
    return [{name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(4)]


def measured(case: Case, *, rtl: bool) -> tuple[list[Record], bool]:
    plan = weft.quantise.plan(case.module)
    ranges = weft.quantise.calibrate(plan, examples(plan))
    four = weft.quantise.four_bits(plan, case.group)
    assert len(four) == len(plan.weights)
    core = replace(PYNQ, weight_group=case.group)
    dram = DramModel(bytes_per_cycle=core.bus_bytes)
    before = weft.compile(weft.quantise.quantised(plan, ranges), PYNQ)
    after = weft.compile(weft.quantise.quantised(plan, ranges, four), core)
    cycles8, cycles4 = (cycles_of(model, dram) for model in (before, after))
    record_bytes = case.weights * core.weight_record_bytes // (core.block_out * core.weight_group)
    bound = (record_bytes + 3 * 4 * case.outputs) / core.bus_bytes
    ratio, share = cycles4 / cycles8, bound / cycles4
    fine = case.weights < TOO_SHORT or (ratio <= LONGEST and share >= LEAST_SHARE)
    reference = STUDY.get(case.group) if "2048" in case.name else None
    records = [
        Record(core.name, case.name, "cycles, 8 bits", cycles8),
        Record(core.name, case.name, "cycles, 4 bits", cycles4, reference),
        Record(core.name, case.name, "ratio", round(ratio, 4), LONGEST),
        Record(core.name, case.name, "share of the bound", round(share, 4), LEAST_SHARE),
        Record(core.name, case.name, "bytes of weights alone", round(record_bytes / core.bus_bytes / cycles4, 4)),
        Record(core.name, case.name, "least dB of a weight", round(min(each.decibels for each in four.values()), 2)),
    ]
    if rtl and case.on_rtl:
        same = equal_on_rtl(after, core, dram, cycles4, examples(plan)[0])
        records.append(Record(core.name, case.name, "RTL", "same result and cycles" if same else "DIFFERS"))
        fine &= same
    return records, fine


def cycles_of(model: weft.CompiledModel, dram: DramModel) -> int:
    return sum(run.result.cycles or 0 for run in predict_runs(model, dram))


def equal_on_rtl(
    model: weft.CompiledModel, core: CoreConfig, dram: DramModel, cycles: int, inputs: dict[str, np.ndarray]
) -> bool:
    rtl = weft.load(model, weft.RtlDevice(core, dram=dram))
    wanted = weft.load(model, "fsim").run(inputs)
    found = rtl.run(inputs)
    return rtl.cycles == cycles and all(np.array_equal(found[name], wanted[name]) for name in wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rtl", action="store_true", help="the smallest case on the RTL as well")
    parser.add_argument("--step", action="store_true", help="a whole step of a model's shape instead")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--positions", type=int, default=256, help="of the cache")
    parser.add_argument("--core", choices=CORES, default="pynq")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    records: list[Record] = []
    fine = True
    if arguments.step:
        records, fine = step_measured(arguments.shape, arguments.positions, CORES[arguments.core])
    for make in each_of(CASES if not arguments.step else (), lambda make: make.__name__):
        found, good = measured(make(), rtl=arguments.rtl)
        records += found
        fine &= good
    rows = [(each.workload, each.figure, str(each.value), str(each.reference or "")) for each in records]
    core = CORES[arguments.core if arguments.step else "pynq"]
    title = f"one row a product, {core.name} and its memory of {core.bus_bytes} bytes a cycle"
    print_table(title, ["case", "figure", "value", "beside"], rows)
    if arguments.json:
        write_json(arguments.json, records)
    print("targets met" if fine else f"a target is missed: {LONGEST} of the cycles, {LEAST_SHARE:.0%} of the bound")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
