"""Schedules are chosen for the memory: slower DRAM gets tilings that read less, and says so in the artifact."""

from __future__ import annotations

from pathlib import Path

import pytest
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Function, Module
from weft.compiler.model import CompiledModel
from weft.compiler.passes import PassRecord
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.hw.dram_rate import DramRate, parse_dram_rate
from weft.hw.errors import ConfigError
from weft.runtime.device import memory_of
from weft.runtime.profile_report import memory_note
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.zoo.quantised_forms import Form, quantised
from benchmarks.zoo.quantised_networks import network

from .kernels import Build, compile_function

LAYERS = {
    # channels in and out, size, kernel, stride: layers of ResNets, as large as a test may be
    "28x28 1x1": (128, 256, 28, 1, 1),
    "28x28 1x1, stride 2": (128, 256, 28, 1, 2),
    "14x14 3x3": (128, 128, 14, 3, 1),
    "7x7 3x3": (256, 256, 7, 3, 1),
}


def convolution(config: CoreConfig, name: str) -> Function:
    channels, filters, size, kernel, stride = LAYERS[name]
    build = Build(config)
    window = {"strides": (stride, stride), "pads": (kernel // 2,) * 4, "pad_value": 0}
    acc = build.conv(build.input(1, channels, size, size), channels, filters, (kernel, kernel), **window)
    return build.function(build.requantise(acc, filters, 74 * 74 * (channels * kernel**2) ** 0.5), name)


def cycles(model: CompiledModel, rate: DramRate) -> int:
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    return sum(run.result.cycles or 0 for run in predict_runs(model, dram))


@pytest.mark.parametrize("config", [PYNQ, WIDE], ids=lambda config: config.name)
def test_a_schedule_for_the_memory_is_faster_on_it(config: CoreConfig) -> None:
    """Half and a quarter of the bus; single layers may differ by a per cent either way, the sum may not be slower."""
    full = DramRate(bytes_per_cycle=config.bus_bytes)
    for part in (2, 4):
        slow = DramRate(bytes_per_cycle=config.bus_bytes // part)
        for_bus, for_slow = 0, 0
        for name in LAYERS:
            function = convolution(config, name)
            for_bus += cycles(compile_function(function, config, dram=full), slow)
            for_slow += cycles(compile_function(function, config, dram=slow), slow)
        assert for_slow < 0.97 * for_bus, f"1/{part} of the bus"


@pytest.fixture(scope="module")
def keywords() -> Module:
    model, batches = network("keyword-ds-cnn")
    form = Form("QDQ", "QInt8", "QInt8", per_channel=True, extra=("ActivationSymmetric",))
    return from_onnx(quantised(model, batches, form))


@pytest.fixture(scope="module")
def unnamed(keywords: Module) -> CompiledModel:
    """For the usual memory."""
    model = weft.compile(keywords, PYNQ, cache=False)
    assert isinstance(model, CompiledModel)
    return model


@pytest.mark.parametrize("memory", ["4", "8,400", "8,1000"])
def test_naming_a_memory_never_costs(keywords: Module, unnamed: CompiledModel, memory: str, tmp_path: Path) -> None:
    """Of this network, schedules that are chosen for these memories are slower there than those for the usual one. What
    is dumped is of the program that was chosen."""
    named = weft.compile(keywords, PYNQ, dram=memory, cache=False, dump=tmp_path)
    rate = parse_dram_rate(memory)
    assert isinstance(named, CompiledModel)
    assert cycles(named, rate) <= cycles(unnamed, rate)
    assert memory_of(named) == DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    dumped = {path.name.removesuffix(".loops.txt") for path in tmp_path.glob("*.loops.txt")}
    assert dumped == {layer.name.replace("+", "_") for layer in named.layers if layer.device == "core"}


def test_schedules_for_a_named_memory_are_taken_where_they_are_faster() -> None:
    function = convolution(PYNQ, "28x28 1x1, stride 2")
    fast, slow = (compile_function(function, PYNQ, dram=dram) for dram in ("", "2"))
    assert cycles(slow, DramRate(bytes_per_cycle=2)) < cycles(fast, DramRate(bytes_per_cycle=2))


def test_passes_are_shown_and_checked_once(keywords: Module) -> None:
    """Of a model that is compiled for two memories."""
    records: list[PassRecord] = []
    weft.compile(keywords, PYNQ, dram="4", cache=False, passes=weft.PassOptions(report=records.append))
    assert [record.name for record in records].count("chains") == 1


def test_memory_faster_than_the_bus_changes_nothing() -> None:
    function = convolution(PYNQ, "14x14 3x3")
    programs = [
        compile_function(function, PYNQ, dram=rate).steps[0].program.tobytes()
        for rate in ("", "8", "64", DramRate(bytes_per_cycle=1000))
    ]
    assert len(set(programs)) == 1


def test_an_artifact_says_what_it_was_scheduled_for(tmp_path: Path) -> None:
    model = compile_function(convolution(PYNQ, "7x7 3x3"), PYNQ, dram="4,250")
    weft.save(model, tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft").model
    assert (loaded.statistics["dram_bytes_per_cycle"], loaded.statistics["dram_latency"]) == (4, 250)
    assert memory_note(loaded, DramRate(bytes_per_cycle=4, latency=250)) == ""
    assert "compiled with --dram 8,100" in memory_note(loaded, DramRate())
    fast = compile_function(convolution(PYNQ, "7x7 3x3"), PYNQ)
    assert memory_note(fast, DramRate(bytes_per_cycle=64)) == ""  # the bus takes eight of them


def test_a_text_that_is_no_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match="DRAM: 'fast' is no rate"):
        compile_function(convolution(PYNQ, "7x7 3x3"), PYNQ, dram="fast")
