"""No program is below the bound of its network, and where one engine has all the work it is close."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import weft
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.compiler.compile import prepared
from weft.compiler.graph import Expr, Module, Var, call
from weft.compiler.targets.accel.link.phases import split_phases
from weft.compiler.targets.accel.passes.chain import chainable
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import PYNQ, PYNQ_W4, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.tune.least_cycles import FARTHEST, LeastCycles, _Program, least_cycles
from weft.tune.least_report import layer_records, least_line, least_records
from weft.tune.tasks import tasks_of

from tests.compiler.targets.accel.operators.test_weight_groups import layer as of_weights
from tests.compiler.targets.accel.operators.test_weight_groups import weights
from tests.compiler.targets.accel.quantised_layers import layer, module_of, quantised, variable

SMALL = replace(TINY, name="small", wgt_depth=64, inp_depth=128, acc_depth=128)
PLAIN = replace(PYNQ, name="plain", depthwise=0)
CORES = TINY, SMALL, replace(TINY, name="eights", block_in=8, block_out=8), PYNQ, PLAIN
RATES = DramRate(bytes_per_cycle=1), DramRate(latency=20), DramRate(latency=300, bytes_per_cycle=16)


def bound(module: Module, core: CoreConfig, rate: DramRate) -> LeastCycles:
    options = AccelOptions(core, rate)
    return least_cycles(prepared(module, Accel(), options), core, rate, options.vthreads)


def memory(rate: DramRate) -> DramModel:
    return DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)


def compiled(module: Module, core: CoreConfig, rate: DramRate, *, chains: bool = True) -> weft.CompiledModel:
    model = weft.compile(module, core, dram=rate, chains=chains)
    assert isinstance(model, weft.CompiledModel)
    return model


def cycles(model: weft.CompiledModel, rate: DramRate) -> int:
    return sum(run.result.cycles or 0 for run in predict_runs(model, memory(rate)))


def network(seed: int) -> Module:
    """Layers in a row, some with a residual, some beside each other."""
    chance = random.Random(seed)
    channels = chance.choice((4, 8, 24, 64))
    x: Var = variable(1, channels, *chance.choice(((1, 1), (5, 5), (14, 9))))
    body: Expr = quantised(x)
    for _ in range(chance.randint(1, 6)):
        filters = chance.choice((4, 16, 40, body.shape[1]))
        match chance.choice(("dense", "dense", "window", "depthwise", "residual", "branches", "pool")):
            case "dense":
                body = layer(body, filters)
            case "window":
                body = layer(body, filters, kernel=3, pads=1)
            case "depthwise":
                body = layer(body, body.shape[1], kernel=3, groups=body.shape[1], pads=1)
            case "residual":
                inner = layer(layer(body, filters), body.shape[1], kernel=3, pads=1)
                body = quantised(call("nn.add", inner, body), 0.1)
            case "branches":
                left, right = layer(body, filters), layer(body, filters, kernel=3, pads=1)
                body = quantised(call("nn.add", left, right), 0.1)
            case _ if min(body.shape[2:]) >= 2:
                body = quantised(call("nn.max_pool", body, kernel=(2, 2), strides=(2, 2)))
            case _:
                body = layer(body, filters)
    return module_of(x, body)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
@example(seed=385)  # a chain computes only what its pooling reads: 4 x 4 of 5 x 5
def test_no_program_is_below_the_bound(seed: int) -> None:
    require_sound(seed)


@pytest.mark.long
@settings(max_examples=400)
@given(seed=st.integers(0, 10**9))
def test_no_program_of_many_is_below_the_bound(seed: int) -> None:
    require_sound(seed)


def require_sound(seed: int) -> None:
    module, core, rate = network(seed), CORES[seed % len(CORES)], RATES[seed // 7 % len(RATES)]
    least = bound(module, core, rate)
    assert sum(len(each.layers) for program in least.programs for each in program) > 0
    for chains in (True, False):
        assert cycles(compiled(module, core, rate, chains=chains), rate) >= least.cycles, (seed, chains)


ROWS: dict[str, tuple[str, ...]] = {
    "pool before array": ("pool", "window", "pool", "window"),
    "array before pool": ("window", "pool"),
    "expand and depthwise": ("wide", "depthwise", "narrow", "wide", "depthwise", "narrow"),
    "weights behind products": ("window", "window", "mean", "head", "head"),
    "weights before products": ("dense", "window", "window"),
    "a wide result": ("wide", "narrow", "wide", "narrow"),
}


def row(kinds: tuple[str, ...], size: int) -> Module:
    """Layers in a row that keep unlike engines busy."""
    x: Var = variable(1, 64, size, size)
    body: Expr = quantised(x)
    for kind in kinds:
        match kind:
            case "pool":
                body = quantised(call("nn.max_pool", body, kernel=(3, 3), pads=(1, 1, 1, 1)))
            case "mean":
                body = quantised(call("nn.average_pool", body, kernel=(size, size)))
            case "window":
                body = layer(body, 64, kernel=3, pads=1)
            case "depthwise":
                body = layer(body, body.shape[1], kernel=3, groups=body.shape[1], pads=1)
            case _:
                body = layer(body, {"wide": 256, "head": 1024}.get(kind, 64))
    return module_of(x, body)


@pytest.mark.parametrize(
    ("core", "rate"), [(PYNQ, RATES[0]), (PYNQ, RATES[1]), (PLAIN, RATES[1])], ids=["slow", "mode", "plain"]
)
@pytest.mark.parametrize("kinds", ROWS.values(), ids=ROWS)
def test_engines_that_work_beside_each_other_count_once(
    kinds: tuple[str, ...], core: CoreConfig, rate: DramRate
) -> None:
    module = row(kinds, 28)
    least = bound(module, core, rate)
    assert least.cycles <= cycles(compiled(module, core, rate), rate) < 3 * least.cycles


def dense(width: int, depth: int) -> Module:
    """Layers of one pixel: their weights are nearly all that there is to do."""
    x = variable(1, width, 1, 1)
    body: Expr = quantised(x)
    for _ in range(depth):
        body = layer(body, width)
    return module_of(x, body)


def test_the_array_has_all_products_of_a_convolution() -> None:
    """64 -> 64 channels, 3 x 3, of 28 x 28 pixels: 28 * 28 * 9 * 4 * 4 micro-ops on an array of 16 x 16."""
    x = variable(1, 64, 28, 28)
    module = module_of(x, layer(layer(quantised(x), 64, kernel=3, pads=1), 64, kernel=3, pads=1))
    least = bound(module, PYNQ, DramRate())
    assert least.cycles == 2 * 28 * 28 * 9 * 4 * 4
    assert [each.limit for each in least.programs[0]] == ["array"] * len(least.programs[0])
    assert cycles(compiled(module, PYNQ, DramRate()), DramRate()) < 1.03 * least.cycles


def test_the_bus_has_all_weights_of_dense_layers() -> None:
    """Eight layers of 512 x 512 weights at 2 bytes a cycle; the core cannot hold those of two."""
    rate = DramRate(bytes_per_cycle=2)
    module = dense(512, 8)
    least = bound(module, PYNQ, rate)
    parameters = 2 * 4 * 512 * 8
    assert 8 * 512 * 512 / 2 <= least.cycles <= (8 * 512 * 512 + parameters + 4 * 512) / 2
    assert cycles(compiled(module, PYNQ, rate), rate) < 1.03 * least.cycles


def test_weights_of_4_bits_count_as_they_lie_in_memory() -> None:
    """A product of one row by 2048 x 2048 weights, and by as many in records of 4 bits: little more than the half."""
    x = variable(1, 2048, 1, 1)
    values = weights(2048, 2048, PYNQ_W4.weight_group)
    module, rate = module_of(x, of_weights(quantised(x), values)), DramRate()
    wide, packed = bound(module, PYNQ, rate).cycles, bound(module, PYNQ_W4, rate).cycles
    assert 0.5 * wide < packed < 0.55 * wide
    assert packed <= cycles(compiled(module, PYNQ_W4, rate), rate) < 1.03 * packed
    for task in tasks_of(prepared(module, Accel(), AccelOptions(PYNQ_W4, rate)), PYNQ_W4, rate, 2):
        assert task.bound <= packed


def test_weights_behind_much_work_of_the_array_are_loaded_beside_it_as_far_as_there_is_room() -> None:
    """Alone, either half is bound by its own engine. Behind the convolutions, the core holds 256 KiB of weights."""
    x = variable(1, 64, 28, 28)
    body: Expr = quantised(x)
    for _ in range(2):
        body = layer(body, 64, kernel=3, pads=1)
    first = bound(module_of(x, body), PYNQ, DramRate()).cycles
    pooled = quantised(call("nn.average_pool", body, kernel=(28, 28), strides=(28, 28)))
    for width in (1024, 1024, 1024):
        pooled = layer(pooled, width)
    module = module_of(x, pooled)
    least, taken = bound(module, PYNQ, DramRate()).cycles, cycles(compiled(module, PYNQ, DramRate()), DramRate())
    weights = 1024 * (64 + 1024 + 1024)
    assert first + (weights - 2**18 - 2**17) / 8 < least <= taken
    assert least > max(first, weights / 8) + 0.5 * min(first, weights / 8)


def test_a_depthwise_layer_takes_its_best_mixture_of_forms() -> None:
    """On the array by diagonal matrices or on the vector engine: no more than the half of either, and no less."""
    x = variable(1, 64, 28, 28)
    module = module_of(x, layer(quantised(x), 64, kernel=3, groups=64, pads=1))
    least, rate = bound(module, PLAIN, DramRate()), DramRate()
    taps = 28 * 28 * 4 * 9
    assert taps / 2 <= least.cycles < taps
    assert cycles(compiled(module, PLAIN, rate), rate) >= least.cycles


def test_what_may_be_left_or_shared_at_a_cut_is_taken_off() -> None:
    """64 -> 64 channels, 28 x 28: a pooling of 3 x 3 takes 28 * 28 * 4 * 9 cycles of the vector engine, and may end
    beside what reads it. Behind a convolution no more is left than 2,048 accumulators hold. Up to three layers are a
    chain; a maximum is in none whose last it is not."""
    x = variable(1, 64, 28, 28)
    made = quantised(call("nn.max_pool", quantised(x), kernel=(3, 3), pads=(1, 1, 1, 1)))
    body = layer(layer(layer(layer(made, 64, kernel=3, pads=1), 256), 64), 64, kernel=3, pads=1)
    program = program_of(module_of(x, body))
    assert [len(program.calls), *(program._reach(at) for at in range(5))] == [5, 0, 0, 1, 2, 2]
    assert program._behind(0, 1)[1] >= 28 * 28 * 4 * 9
    assert 0 < program._behind(4, 5)[1] <= 2 * 2048
    assert program._behind(2, 4)[1] == sum(max(way.vector for way in ways) for ways in program.ways[2:4])


def program_of(module: Module) -> _Program:
    """The one program of a network on ``pynq``."""
    packed = prepared(module, Accel(), AccelOptions(PYNQ, DramRate()))
    (calls,) = (phase.calls for phase in split_phases(packed) if phase.on_core)
    return _Program(calls, chainable(packed, PYNQ), PYNQ, DramRate(), 2)


def test_a_row_of_many_layers_looks_back_a_few_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of many layers does not try all pairs of cuts, and loses nothing where one engine has the work."""
    module, looks = row(("dense",) * 90, 8), []
    plain = _Program._cycles
    monkeypatch.setattr(_Program, "_cycles", lambda *arguments: looks.append(arguments) or plain(*arguments))
    least = bound(module, PYNQ, DramRate())
    assert least.cycles >= 90 * 8 * 8 * 4 * 4
    assert len(looks) <= (FARTHEST + 1) * 91


@pytest.mark.parametrize("parts", [1, 3])
def test_programs_with_the_host_between_them_add_up(parts: int) -> None:
    """What the host computes in floats cuts the network into programs, none of which loads for the next."""
    x = variable(1, 256, 1, 1)
    body: Expr = quantised(x)
    for _ in range(parts):
        body = quantised(call("nn.softmax", layer(body, 256), axis=1))
    least = bound(module_of(x, body), PYNQ, DramRate())
    assert len(least.programs) == parts
    assert least.cycles >= parts * 256 * 256 / 8


def test_each_stretch_stands_beside_what_it_took() -> None:
    x = variable(1, 64, 14, 14)
    body: Expr = quantised(x)
    for filters in (192, 64, 192, 64, 320):
        body = layer(body, filters)
        if filters == 192:
            body = layer(body, filters, kernel=3, groups=filters, pads=1)
    module, rate = module_of(x, body), DramRate()
    model = compiled(module, PYNQ, rate)
    measured = profile(model, predict_runs(model, memory(rate)), "model", memory(rate))
    least = bound(module, PYNQ, rate)
    records = least_records(least, measured)
    assert sum(each["cycles"] for each in records) == measured.cycles
    assert math.isclose(sum(each["least"] for each in records), least.cycles, abs_tol=len(records))
    assert sum(each["layers"] for each in records) == sum(len(each.layers) for each in least.programs[0])
    chains = [item.layer.name for item in measured.layers if "+" in item.layer.name]
    assert chains
    assert all(each["times_the_least"] > 0.9 for each in records)
    assert f"{least.cycles:,} cycles" in least_line(least, measured.cycles)


def test_each_layer_has_the_least_of_its_stretch() -> None:
    """Layers that only one bound holds for have it in common, chains included; all layers are in one stretch."""
    x = variable(1, 64, 14, 14)
    body: Expr = quantised(x)
    for filters in (192, 64, 192, 64, 320):
        body = layer(body, filters, kernel=1 if filters == 64 else 3, pads=int(filters != 64))
    module, rate = module_of(x, body), DramRate()
    model = compiled(module, PYNQ, rate)
    measured = profile(model, predict_runs(model, memory(rate)), "model", memory(rate))
    least = bound(module, PYNQ, rate)
    records = layer_records(least, measured)
    cycles = {item.layer.name: item.cycles for item in measured.layers}
    assert len(records) == len(cycles)
    for name, record in zip(cycles, records, strict=True):
        assert name in record["least_of"]
        taken = sum(cycles[each] for each in record["least_of"])
        assert taken / record["times_the_least"] == pytest.approx(record["least"], abs=0.5)
    groups = {tuple(each["least_of"]): each["least"] for each in records}
    assert [name for names in groups for name in names] == list(cycles)
    assert sum(groups.values()) == pytest.approx(least.cycles, abs=len(groups))
    assert [each["least"] for each in least_records(least, measured) if each["cycles"]] == list(groups.values())
