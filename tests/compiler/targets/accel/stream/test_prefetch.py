"""Weights and parameters are loaded before they are wanted, in time of the bus that is free, where there is room."""

from __future__ import annotations

import pytest
import weft
from weft.compiler.graph import call
from weft.compiler.targets.accel.stream import issue_early, prefetch
from weft.compiler.targets.accel.stream.conflicts import conflicts_of
from weft.compiler.targets.accel.stream.prefetch import MARGIN, PIPELINE_CYCLES, QUEUED, prefetches
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.hw.config import PYNQ
from weft.hw.dram_rate import USUAL_RATE, DramRate
from weft.hw.isa import Engine, Gemm, Load, Loop, Scratchpad, Store, Vector, VectorOp
from weft.hw.memories import Memory
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from ..quantised_layers import layer, module_of, quantised, variable

LONG, SMALL = 1000, 8
ENTRIES = 4
COST = ENTRIES * PYNQ.wgt_bytes // USUAL_RATE.bytes_per_cycle + PIPELINE_CYCLES
"""Cycles of the bus that the weights of one product take."""


def product(weights: int, extent: int = LONG) -> list[Issue]:
    """``extent`` micro-ops that read some entries of weights, and write no sum that others do."""
    read = Access(Memory.WGT, weights, (ENTRIES,), (1,))
    return [
        Issue(Loop(engine=Engine.GEMM, level=0, extent=extent)),
        Issue(Gemm(levels=1, dst=0, src=0, wgt=weights), (read,), (Access(Memory.ACC, weights, (1,), (1,)),)),
    ]


def load(index: int, scratchpad: Scratchpad = Scratchpad.WGT, engine: Engine = Engine.LOADW) -> Issue:
    load = Load(engine=engine, scratchpad=scratchpad, index=index, offset=0, rows=1, columns=ENTRIES)
    return Issue(load, (), (Access(scratchpad.memory, index, (ENTRIES,), (1,)),))


def moments(stream: list[Issue], rate: DramRate = USUAL_RATE) -> list[tuple[int, int]]:
    """Of each load of weights, in the stream's order: how many long products stand before its place, and its number."""
    found = []
    for position, place in sorted(prefetches(PYNQ, rate, stream, conflicts_of(stream)).items()):
        before = sum(isinstance(each.instruction, Gemm) for each in stream[: place + 1])
        found.append((before, position))
    return found


def classifier(products: int, loads: int, first: int = 100) -> list[Issue]:
    """Long products, then small ones that each need weights of their own."""
    stream = [each for _ in range(products) for each in product(0)]
    for number in range(loads):
        stream += [load(first + ENTRIES * number), *product(first + ENTRIES * number, SMALL)]
    return stream


def test_weights_that_are_wanted_at_once_are_loaded_one_after_the_other_before() -> None:
    products, loads = 40, 60
    period, last = LONG + PIPELINE_CYCLES + 1, SMALL + PIPELINE_CYCLES + 1
    wanted = products * period + (loads - 1) * last  # the last load's
    before = [number for number, _ in moments(classifier(products, loads))]
    for behind, number in zip(range(loads, 0, -1), before, strict=True):
        starts = wanted - MARGIN * COST * behind  # at the latest, so that those behind it find time, too
        assert min(number, products) == min(starts // period + 1, products)
    slower = [number for number, _ in moments(classifier(products, loads), DramRate(bytes_per_cycle=4))]
    assert slower[0] < before[0] - 5


def test_nothing_is_loaded_before_there_is_room() -> None:
    """The first small product's weights lie where a long product reads its own."""
    stream = [*(each for _ in range(30) for each in product(0)), *(each for _ in range(6) for each in product(50))]
    stream += [load(0), *product(0, SMALL), *classifier(0, 100)]
    (held, _), (behind, _), *_ = moments(stream)
    assert held == 30 + -(-QUEUED // LONG)
    assert behind < 30


def test_time_that_others_use_is_not_given_away() -> None:
    """Loads of inputs take the bus while the later half of the long products runs."""
    lone, busy = classifier(20, 8), classifier(20, 8)
    # Behind the tenth product: as much as ten products last.
    transfers = [load(ENTRIES * place, Scratchpad.INP, Engine.LOAD) for place in range(500)]
    gate = Access(Memory.OUT, 0, (1,), (1,))
    tenth = busy[19]
    busy[19] = Issue(tenth.instruction, tenth.reads, (*tenth.writes, gate))
    for each in transfers:
        each.reads = (gate,)
    assert 500 * (ENTRIES * PYNQ.inp_bytes // 8 + PIPELINE_CYCLES) > 11 * LONG
    assert moments(lone)[0][0] > 15
    assert moments([*busy[:20], *transfers, *busy[20:]])[0][0] < 10


def test_parameters_are_wanted_by_the_vector_engine() -> None:
    stream = [each for _ in range(10) for each in product(0)]
    vector = Vector(op=VectorOp.ADD, dst=0, a=0)
    last = stream[-1].writes
    stream += [load(500, Scratchpad.ACC), *(each for _ in range(10) for each in product(0))]
    stream += [Issue(vector, (*last, Access(Memory.ACC, 500, (1,), (1,))), ())]
    stream.append(Issue(Store(index=0, offset=0, rows=1, columns=1)))
    ((before, _),) = moments(stream)
    assert before == 20  # the vector engine starts behind the twentieth product, so within it


def test_a_load_goes_right_before_what_starts_at_its_moment() -> None:
    stream = classifier(10, 1)
    ((position, place),) = prefetches(PYNQ, USUAL_RATE, stream, conflicts_of(stream)).items()
    table = prefetch._timetable(PYNQ, USUAL_RATE, stream, conflicts_of(stream))
    moment = table.wanted[position] - MARGIN * COST
    assert table.reached[place] < moment <= table.reached[place + 1]


def test_what_is_wanted_at_once_stays_where_it_is() -> None:
    stream = classifier(0, 30)
    found = prefetches(PYNQ, USUAL_RATE, stream, conflicts_of(stream))
    assert 0 < len(found) < 30
    assert 0 not in found


def test_a_word_arrives_after_the_latency() -> None:
    taker = Issue(Gemm(dst=0, src=0, wgt=0), (Access(Memory.INP, 0, (1,), (1,)),), ())
    stream = [load(0, Scratchpad.INP, Engine.LOAD), taker]
    conflicts = conflicts_of(stream)
    quick, slow = (prefetch._timetable(PYNQ, DramRate(latency=each), stream, conflicts).ends[1] for each in (1, 101))
    assert slow - quick == 100


def test_a_classifier_finds_weights_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """About half of the scratchpad: loads are large, so room for one comes late."""
    x = variable(1, 64, 14, 14)
    body = quantised(layer(layer(x, 128, kernel=3, pads=1), 512, kernel=3, pads=1))
    body = layer(quantised(call("nn.average_pool", body, kernel=(14, 14))), 1024)
    cycles = []
    for _ in range(2):
        model = weft.compile(module_of(x, body), PYNQ)
        assert isinstance(model, weft.CompiledModel)
        runs = predict_runs(model, DramModel(latency=100, bytes_per_cycle=8))
        cycles.append(sum(run.result.cycles or 0 for run in runs))
        monkeypatch.setattr(issue_early, "prefetches", lambda *_: {})
    ahead, late = cycles
    scratchpad = PYNQ.wgt_depth * PYNQ.wgt_bytes // 8
    assert late - ahead > 0.45 * scratchpad
