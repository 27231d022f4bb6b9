"""Layers that cores share: each element of a result made once, nothing read that another core may still write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.compile import compile_model
from weft.compiler.targets.accel.check_turn import check_turn, meeting
from weft.compiler.targets.errors import CompileError, ProgramError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.hw.isa import Finish, Load, Scratchpad, Store
from weft.hw.programs import assemble, disassemble
from weft.sim.system_timing import cycles_together
from weft.sim.timing import predict, program_cycles

from tests.effort import few

from ....onnx_models import FloatModel, quantise

SLOW = DramRate(bytes_per_cycle=2, latency=100)

ARBITER = 1.03
"""What one core takes behind an arbiter, against what it takes alone, at most: a cycle for each burst."""

DIGITS = Path(__file__).parents[5] / "examples" / "digits" / "digits.onnx"


def compiled(source: Path, config: CoreConfig, cores: int, **options: Any) -> weft.CompiledModel:
    made = weft.compile(source, config, split=cores, **options)
    assert isinstance(made, weft.CompiledModel)
    return made


def check_split(source: Path, config: CoreConfig, cores: int, **options: bool) -> weft.CompiledModel:
    """Results are those of one core, each byte of which is stored by one core alone, and the programs are proved."""
    whole, model = compiled(source, config, 1, **options), compiled(source, config, cores, **options)
    assert (whole.shared_by, model.shared_by) == (1, cores)
    for turn in range(model.programs[-1].turn + 1):
        programs = [step for step in model.programs if step.turn == turn]
        assert [step.core for step in programs] == list(range(cores))
        assert meeting(config, [step.program for step in programs]) is None
    x = np.random.default_rng(0).normal(size=model.inputs[0].shape).astype(np.float32)
    expected, found = (weft.load(each).run(x) for each in (whole, model))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    on_core = [layer for layer in model.layers if layer.device == "core"]
    assert all(layer.bytes_stored in (0, model.on_core.slots[layer.output].nbytes) for layer in on_core)
    assert weft.certify(model).proved
    return model


def latency(model: weft.CompiledModel) -> int:
    """The longest program of each turn."""
    longest: dict[int, int] = {}
    for step in model.programs:
        cycles = predict(model.on_core.config, step.program, offset=step.program_offset).cycles or 0
        longest[step.turn] = max(longest.get(step.turn, 0), cycles)
    return sum(longest.values())


@pytest.mark.parametrize("cores", [2, 3])
def test_cores_share_each_layer_of_a_network(cores: int) -> None:
    model = check_split(DIGITS, TINY, cores)
    assert latency(compiled(DIGITS, TINY, 1)) > (0.75 * cores) * latency(model)


@pytest.mark.parametrize("chains", few([True, False], 1))
def test_layers_of_all_kinds_are_shared(chains: bool, tmp_path: Path) -> None:
    """Depthwise, strided, residual, pooled; a chain of layers, a concatenation, the rows of a matrix."""
    network = FloatModel((1, 3, 20, 20))
    first = network.op("Relu", network.conv("x", 3, 32, strides=[2, 2]))
    wide = network.op("Relu", network.conv(first, 32, 64, kernel=1))
    deep = network.op("Relu", network.conv(wide, 64, 64, group=64))
    summed = network.op("Add", network.conv(deep, 64, 32, kernel=1), first)
    pooled = network.op("MaxPool", summed, kernel_shape=[2, 2], strides=[2, 2])
    both = network.op("Concat", network.conv(pooled, 32, 64), network.conv(pooled, 32, 32), axis=1)
    quantise(network.build(network.conv(both, 96, 128)), tmp_path)
    check_split(tmp_path / "quantised.onnx", PYNQ, 4, chains=chains)


def cycles_on(model: weft.CompiledModel, ports: tuple[int, ...]) -> int:
    """Turn after turn, each until its last core has ended, where a port has two bytes a cycle."""
    turns: dict[int, list[tuple[np.ndarray[Any, Any], int]]] = {}
    for step in model.programs:
        turns.setdefault(step.turn, []).append((step.program, step.program_offset))
    return sum(max(cycles_together([model.on_core.config] * len(turn), ports, SLOW, turn)) for turn in turns.values())


def test_cuts_are_those_that_are_fastest_on_the_cores_ports(tmp_path: Path) -> None:
    """Cores that wait for each other at a port are not slower than one, and not slower than cut as if they did not."""
    network = FloatModel((1, 32, 6, 6))
    wide = network.op("Relu", network.conv("x", 32, 64, kernel=1))
    quantise(network.build(network.conv(wide, 64, 32, kernel=1)), tmp_path)
    source, ports = tmp_path / "quantised.onnx", (0, 0)
    wish = {"dram": SLOW, "chains": False}
    own, told = compiled(source, PYNQ, 2, **wish), compiled(source, PYNQ, 2, **wish, ports=ports)
    (alone,) = compiled(source, PYNQ, 1, **wish).programs
    whole = program_cycles(PYNQ, SLOW, alone.program, alone.program_offset)
    assert cycles_on(own, (0, 1)) < whole < cycles_on(own, ports)
    assert cycles_on(told, ports) < ARBITER * whole
    assert told.programs[-1].turn == 0  # layers that one core has do not wait for the others
    x = np.random.default_rng(0).normal(size=told.inputs[0].shape).astype(np.float32)
    first, second = (weft.load(each).run(x) for each in (own, told))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert weft.certify(told).proved
    apart = compiled(source, PYNQ, 2, **wish, ports="0, 1")
    assert [step.program.tobytes() for step in apart.programs] == [step.program.tobytes() for step in own.programs]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ports": "0,0"}, "ports are of several cores, but the model is for one; hint: give stages, cores or split"),
        ({"split": 2, "ports": "0,0,1"}, "ports: 3 ports for 2 cores; hint: the port of each core, such as 0,0,1,1"),
        ({"split": 2, "ports": (0, 2)}, "ports: no core has port 1, but one has port 2"),
        ({"split": 2, "ports": "0,x"}, "ports is '0,x', which are not all numbers; hint: the port of each core"),
        ({"split": 2, "ports": 7}, "ports is 7, but must be the port of each core"),
        ({"stages": 3, "ports": (0, 0)}, "ports: 2 ports for 3 cores"),
        ({"cores": "tiny,pynq", "ports": (0, 0, 1)}, "ports: 3 ports for 2 cores; hint: the port of each core"),
    ],
)
def test_what_are_no_ports_is_refused(options: dict[str, Any], message: str) -> None:
    core = {} if "cores" in options else {"config": TINY}
    with pytest.raises(CompileError, match=message):
        weft.compile(DIGITS, **core, **options)


def test_wrong_numbers_of_cores_are_refused() -> None:
    with pytest.raises(CompileError, match="split is 0, but must be 1 to 8: the cores of a system"):
        weft.compile(DIGITS, TINY, split=0)
    with pytest.raises(CompileError, match="split is 9, but must be 1 to 8"):
        weft.compile(DIGITS, TINY, split=9)
    with pytest.raises(CompileError, match="2 stages, each split over 2 cores; hint: give stages, for throughput"):
        weft.compile(DIGITS, TINY, split=2, stages=2)
    with pytest.raises(CompileError, match="what cores share is cut by measured cycles, but nothing measures them"):
        compile_model(DIGITS, options={"config": TINY, "split": 2})


def test_a_byte_that_another_core_writes_is_named() -> None:
    load = Load(scratchpad=Scratchpad.INP, index=0, offset=8, rows=2, columns=3, stride=16)
    store = Store(index=0, offset=0, rows=1, columns=4)
    size = Scratchpad.INP.dram_bytes(TINY) // TINY.granule_bytes
    place = 8 + 16 * size  # of the second row that is loaded
    programs = [[load, Finish()], [replace(store, offset=place), Finish()]]
    codes = [assemble(TINY, each) for each in programs]
    byte = place * TINY.granule_bytes
    with pytest.raises(ProgramError, match=f"core 0 may read byte {byte:#x} of the window before, or while, core 1"):
        check_turn(TINY, codes)
    assert meeting(TINY, codes[::-1]) == (1, "read", 0, byte)
    assert meeting(TINY, [codes[1], codes[1]]) == (0, "write", 1, byte)
    assert meeting(TINY, [codes[0], codes[0]]) is None

    def met_at(offset: int) -> tuple[int, str, int, int] | None:
        return meeting(TINY, [codes[0], assemble(TINY, [replace(store, offset=offset), Finish()])])

    last, stored = 8 + 18 * size, TINY.out_bytes // TINY.granule_bytes
    assert met_at(last) == (0, "read", 1, last * TINY.granule_bytes)
    assert met_at(last + size) is None
    assert met_at(place - 3 * stored) == (0, "read", 1, byte)  # the last of what is stored
    assert met_at(place - 4 * stored) is None


def test_a_core_that_stores_elsewhere_is_found() -> None:
    model = compiled(DIGITS, TINY, 2)
    first, second = (step.program for step in model.programs[2:4])
    program = disassemble(TINY, second)
    place = next(number for number, each in enumerate(program) if isinstance(each, Store))
    there = next(each for each in disassemble(TINY, first) if isinstance(each, Store))
    program[place] = replace(program[place], offset=there.offset)
    assert meeting(TINY, [first, assemble(TINY, program)]) is not None
