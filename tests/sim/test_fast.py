"""Designs in Amaranth as verilated models, beside Amaranth's own simulator."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Assert, ClockSignal, Elaboratable, Instance, Module, Print, Signal
from amaranth.hdl._ir import DriverConflict
from amaranth.sim import Simulator as AmaranthSimulator
from weft.sim import build
from weft.sim.errors import BuildError, SimulationError
from weft.sim.fast import Simulator, bytes_of

from .amaranth_designs import DESIGNS, Design

CYCLES = 150
Trace = dict[str, list[Any]]


class All(Elaboratable):
    """All designs beside one another, so that they are translated once."""

    def __init__(self) -> None:
        self.designs: dict[str, Design] = {name: make() for name, make in DESIGNS.items()}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, each in self.designs.items():
            m.submodules[name] = each
        return m


def fast(toplevel: Any, **settings: Any) -> Simulator:
    return Simulator(toplevel, quick=True, **settings)


def random_value(generator: random.Random, signal: Any) -> int:
    shape = signal.shape()
    value = generator.choice([0, 1, (1 << shape.width) - 1, generator.getrandbits(shape.width or 1)])
    value &= (1 << shape.width) - 1
    return value - (1 << shape.width) if shape.signed and value >> (shape.width - 1) else value


def traced(simulator_of: Any) -> Trace:
    """What testbenches and processes see: all results after each input and each cycle, samples at the edge, changes,
    registers and memories that are set from outside."""
    top = All()
    simulator = simulator_of(top)
    simulator.add_clock(1e-6)
    trace: Trace = {name: [] for name in (*top.designs, "sampled", "changes", "process")}
    signals = [result for each in top.designs.values() for result in each.results]

    async def drive(ctx: Any) -> None:
        generator = random.Random(3)
        for cycle in range(CYCLES):
            for name, each in top.designs.items():
                for signal in each.inputs:
                    ctx.set(signal, random_value(generator, signal))
                trace[name].append([ctx.get(result) for result in each.results])
                if each.memory is not None and cycle % 7 == 3:
                    row = each.memory[generator.randrange(each.memory.depth)]
                    ctx.set(row, generator.getrandbits(5))
                    trace[name].append([ctx.get(row), *(ctx.get(result) for result in each.results)])
            if cycle % 10 == 5:
                count, topmost = top.designs["counter"].results
                ctx.set(count, 126 + cycle % 4)
                ctx.set(count[:2], 3)
                trace["counter"].append([ctx.get(count), ctx.get(topmost), ctx.get(count + topmost)])
            _, _, *values = await ctx.tick().sample(*signals)
            trace["sampled"].append(values)

    async def watch(ctx: Any) -> None:
        async for values in ctx.changed(top.designs["states"].results[0], top.designs["queue"].results[1]):
            trace["changes"].append(values)

    async def process(ctx: Any) -> None:
        async for _, _, value in ctx.tick().sample(top.designs["wide"].results[0]):
            trace["process"].append(value)

    simulator.add_testbench(drive)
    simulator.add_testbench(watch, background=True)
    simulator.add_process(process)
    simulator.run()
    return trace


@pytest.fixture(scope="module")
def traces() -> tuple[Trace, Trace]:
    return traced(AmaranthSimulator), traced(fast)


@pytest.mark.parametrize("part", [*DESIGNS, "sampled", "changes", "process"])
def test_all_that_testbenches_see_is_as_in_amaranths_own_simulator(traces: tuple[Trace, Trace], part: str) -> None:
    expected, found = traces
    assert len(expected[part]) > 20
    assert found[part] == expected[part]


class Adder(Elaboratable):
    def __init__(self) -> None:
        self.value = Signal(8)
        self.total = Signal(8)
        self.following = Signal(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.following.eq(self.total + self.value)
        m.d.sync += self.total.eq(self.following)
        return m


def test_a_reset_simulation_begins_again() -> None:
    adder, seen = Adder(), []
    simulator = fast(adder)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        ctx.set(adder.value, 3)
        for _ in range(5):
            await ctx.tick()
        seen.append(ctx.get(adder.total))

    simulator.add_testbench(bench)
    for _ in range(3):
        simulator.run()
        simulator.reset()
    assert seen == [15, 15, 15]


def test_models_may_end_in_any_order() -> None:
    simulators = [fast(Adder()) for _ in range(3)]
    for simulator in simulators:
        simulator.add_clock(1e-6)
        simulator.advance()
    for _ in range(3):
        simulators.pop(0)
        gc.collect()
        for simulator in simulators:
            simulator.advance()


def test_python_can_stand_for_a_part_of_the_design() -> None:
    """A process computes an input from what the design drives, within the same moment."""
    for simulator_of in (AmaranthSimulator, fast):
        adder, seen = Adder(), []
        simulator = simulator_of(adder)
        simulator.add_clock(1e-6)

        async def feedback(ctx: Any, adder: Adder = adder) -> None:
            async for (total,) in ctx.changed(adder.total):
                ctx.set(adder.value, total ^ 5)

        async def bench(ctx: Any, adder: Adder = adder, seen: list[int] = seen) -> None:
            for _ in range(6):
                seen.append((ctx.get(adder.value), ctx.get(adder.following)))
                await ctx.tick()

        simulator.add_process(feedback)
        simulator.add_testbench(bench)
        simulator.run()
        assert seen[:3] == [(5, 5), (0, 5), (0, 5)]


def test_a_design_is_translated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(width: int) -> None:
        adder = Adder()
        adder.total = Signal(width)
        simulator = fast(adder)
        simulator.add_clock(1e-6)

        async def bench(ctx: Any) -> None:
            await ctx.tick()

        simulator.add_testbench(bench)
        simulator.run()

    run(9)
    monkeypatch.setattr(build, "run_compiler", lambda *_: pytest.fail("compiled again"))
    run(9)
    with pytest.raises(pytest.fail.Exception):
        run(10)


def test_waveforms(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    adder = Adder()
    simulator = fast(adder)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        ctx.set(adder.value, 0x2B)
        await ctx.tick().repeat(3)

    simulator.add_testbench(bench)
    path = tmp_path / "waves.vcd"
    with simulator.write_vcd(path):
        simulator.run()
    text = path.read_text()
    simulator.run_until(6e-6)  # goes on, and writes no more
    assert path.read_text() == text
    assert capfd.readouterr() == ("", "")
    assert "$timescale 1fs" in text
    assert "total" in text
    assert "b00101011" in text
    assert "#2500000000" in text  # the third rising edge
    simulator.reset()
    with pytest.raises(SimulationError, match="before anything is read"), simulator.write_vcd(tmp_path / "late.vcd"):
        pass


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (lambda value: Assert(value < 9), r"top has an Assert statement \(.*test_fast.py:\d+\)"),
        (lambda value: Print("value", value), "Print statement"),
    ],
)
def test_checks_are_refused_or_left_out(statement: Any, message: str) -> None:
    m, value, out = Module(), Signal(4), Signal(4)
    with m.If(value == 3):
        m.d.sync += statement(value)
    m.d.comb += out.eq(value + 1)
    with pytest.raises(BuildError, match=message):
        fast(m)
    simulator = fast(m, checks=False)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        ctx.set(value, 3)
        await ctx.tick()
        assert ctx.get(out) == 4

    simulator.add_testbench(bench)
    simulator.run()


def test_what_only_amaranths_simulator_can_do_is_refused_by_name() -> None:
    m = Module()
    m.submodules.pll = Instance("PLL", o_locked=Signal())
    with pytest.raises(BuildError, match=r"top\.pll is an instance of a foreign module"):
        fast(m)
    adder = Adder()
    simulator = fast(adder)

    async def sampling_at_a_driven_edge(ctx: Any) -> None:
        await ctx.posedge(adder.following[0]).sample(adder.total)

    simulator.add_testbench(sampling_at_a_driven_edge)
    with pytest.raises(BuildError, match="the design itself drives"):
        simulator.run()

    async def overriding(ctx: Any) -> None:
        ctx.set(adder.following, 3)

    simulator = fast(adder)
    simulator.add_testbench(overriding)
    with pytest.raises(DriverConflict):
        simulator.run()


def test_a_clock_that_the_design_drives_takes_no_other() -> None:
    m, out = Module(), Signal()
    m.d.comb += ClockSignal("sync").eq(out)
    m.d.sync += out.eq(1)
    with pytest.raises(DriverConflict):
        fast(m).add_clock(1e-6)


@pytest.mark.parametrize(("width", "size"), [(1, 1), (8, 1), (9, 2), (17, 4), (33, 8), (64, 8), (65, 12), (131, 20)])
def test_bytes_of_numbers(width: int, size: int) -> None:
    assert bytes_of(width) == size
