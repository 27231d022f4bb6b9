"""Which cycles are looked at, what becomes of them, and what is refused before the work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.graph import parse
from weft.hw.config import TINY
from weft.power.errors import PowerError
from weft.power.estimate import ModuleEnergies
from weft.power.measure import SAMPLES, WINDOW, LayerPower, Power, measure_power, scaled_power, windows_of
from weft.power.report import (
    checked,
    layer_power_records,
    layer_power_table,
    module_power_records,
    module_power_table,
)
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.sim.states import StateRecording

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize("length", [1, 2, WINDOW, WINDOW + 2, 5 * WINDOW, 5 * WINDOW + 100, 10**6])
def test_windows_are_evenly_over_a_layer(length: int) -> None:
    first, samples = 1000, 5 * WINDOW
    windows = list(windows_of(first, first + length, samples))
    StateRecording(windows)  # ascending
    cycles = sum(stop - start for start, stop in windows)
    if length == 1:
        assert not windows  # nothing can change
    elif length <= samples:
        assert windows[0][0] == first
        assert cycles >= length - 1  # a window of one cycle is none
    else:
        assert cycles == samples
        assert windows[0][0] == first
        assert windows[-1][1] == first + length
        gaps = np.diff([start for start, _ in windows])
        assert gaps.max() - gaps.min() <= 1


def measured() -> Power:
    """Two modules that take 1 and 3 pJ a cycle, in all layers of the digits network but one, which nobody sampled."""
    model = weft.compile(DIGITS, "tiny")
    layers = profile(model, predict_runs(model, dram := DramModel.of(TINY)), "model", dram).layers
    found = []
    for each in layers:
        cycles = each.cycles
        energies = ModuleEnergies(
            np.array([1.0, 0]) * cycles,
            np.array([0, 2.0]) * cycles,
            np.array([0, 1.0]) * cycles,
            np.array([0, 0.5]) * cycles,
        )
        found.append(LayerPower(each, energies, cycles, 0.0))
    counts = np.array([5, 7])
    return Power(
        model, "cells", 1.8, 1.0, tuple(found), ((), ("vector$12", "lanes")), counts, counts, np.zeros(2), 0, 1000
    )


def test_a_layer_is_scaled_from_the_changes_that_were_looked_at() -> None:
    layer = replace(measured().layers[0].layer, start=0, end=1001)
    windows = [(0, 101), (450, 551), (900, 1001)]

    def energies(rate: float, pairs: int) -> ModuleEnergies:
        return ModuleEnergies(*(np.array([rate * pairs, 0]) for _ in range(3)), np.zeros(2))

    rates = (1.0, 2.0, 4.0)
    found = scaled_power(layer, windows, [(100, energies(rate, 100)) for rate in rates], 2)
    assert found.energies.logic.tolist() == pytest.approx([1001 * 7 / 3, 0])
    assert found.picojoules == pytest.approx(1001 * 7)
    assert found.sampled == 303
    mean, error = 7 / 3, (sum((rate - 7 / 3) ** 2 for rate in rates) / 2 / 3) ** 0.5
    assert found.deviation == pytest.approx(error / mean)
    whole = scaled_power(layer, [(0, 500), (500, 1001)], [(499, energies(1, 499)), (500, energies(2, 500))], 2)
    assert whole.deviation == 0  # nothing was left out
    nothing = scaled_power(layer, [], [], 2)
    assert (nothing.picojoules, nothing.sampled) == (0, 0)


def test_leakage_is_in_energy_and_power() -> None:
    power = replace(measured(), leakage_w=np.array([2e-3, 3e-3]))
    for each in layer_power_records(power, 100):
        assert each["mw"] == pytest.approx(0.4 + 5)
        assert each["nj"] == pytest.approx(each["cycles"] * (4e-3 + 5e-3 * 10))
    assert {each["module"]: each["mw_leakage"] for each in module_power_records(power, 100)} == {
        "vector": pytest.approx(3), "core itself": pytest.approx(2)
    }  # fmt: skip


def test_tables_add_up() -> None:
    power = measured()
    records = layer_power_records(power, 100)
    assert sum(record["cycles"] for record in records) == power.cycles == 58_801
    assert sum(record["nj"] for record in records) == pytest.approx(58_801 * 4e-3)
    # 4 pJ a cycle of 10 ns are 0.4 mW.
    assert {round(record["mw"], 9) for record in records} == {0.4}
    assert records[0]["pj_per_mac"] == pytest.approx(4 * records[0]["cycles"] / power.layers[0].layer.layer.macs)
    modules = module_power_records(power, 200)
    assert [(each["module"], each["cells"], round(each["mw"], 9)) for each in modules] == [
        ("vector", 7, 0.6), ("core itself", 5, 0.2)
    ]  # fmt: skip
    assert modules[0]["mw_held"] == pytest.approx(0.1)
    assert sum(each["share"] for each in modules) == pytest.approx(1)
    assert module_power_records(power, 200, 2)[0]["module"] == "vector.lanes"
    assert layer_power_table(power, 100).row_count == len(records) + 1
    assert module_power_table(power, 100).row_count == 3
    assert checked(power).startswith("the cells gave all 1,000 bits")


def test_a_model_without_a_core_is_refused(tmp_path: Path) -> None:
    model = weft.compile(parse("fn @main(%x: float32[2]) { return nn.ceil(%x) }"), target="cpu")
    with pytest.raises(PowerError, match="runs on a core; hint: compile it for target 'accel'"):
        measure_power(model, {}, tmp_path / "no.lib", samples=SAMPLES)


def test_the_command_refuses_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    liberty = tmp_path / "a.lib"
    liberty.write_text("library (a) { }")
    for arguments, message in (
        ([str(DIGITS), "--liberty", str(liberty), "--mhz", "0"], "a clock of 0 MHz does not run"),
        ([str(DIGITS), "--liberty", str(liberty), "-c", "tiny"], "the library a names no voltage"),
        ([str(DIGITS), "--liberty", str(tmp_path / "none")], "No such file"),
    ):
        assert run(app, ["power", *arguments], err) != 0
        assert message in " ".join(capsys.readouterr().err.split())
