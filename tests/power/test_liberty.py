"""Liberty files: functions, energies in picojoules whatever the units, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from weft.power.errors import PowerError
from weft.power.liberty import parse_liberty, read_function, read_library

LIBRARY = """
library (two) {  /* a comment */
  voltage_unit : "1V"; leakage_power_unit : "1nW";
  capacitive_load_unit (10, ff);
  nom_voltage : 1.5
  lu_table_template (ignored) { variable_1 : total_output_net_capacitance; index_1 ("1, 2"); }
  cell (INV) {
    area : 2; cell_leakage_power : 3;
    pin (A) { direction : input; capacitance : 0.5; }
    pin (Y) {
      direction : output; function : "!A";
      internal_power () {
        related_pin : "A";
        rise_power (t) { index_1 ("0, 4"); index_2 ("0.1, 0.2, 0.4");
          values ("9, 1, 9", \\
                  "9, 3, 9"); }
        fall_power (t) { index_1 ("0, 4"); index_2 ("0.1, 0.2, 0.4"); values ("9, 3, 9", "9, 9, 9"); }
      }
    }
  }
  cell (DFF) {
    area : 8; ff (Q0, Q1) { next_state : "D"; clocked_on : "CLK"; }
    pin (D) { direction : input; capacitance : 1; }
    pin (CLK) { direction : input; capacitance : 2; clock : true;
      internal_power () { power (p) { index_1 ("0.1, 0.2"); values ("5, 6"); } } }
    pin (Q) { direction : output; function : "Q0"; }
  }
  cell (LATCH) { latch (a, b) { enable : "E"; data_in : "D"; } pin (Q) { direction : output; function : "a"; } }
  cell (TRI) { pin (Y) { direction : output; function : "A"; three_state : "E"; } }
}
"""


def library(tmp_path: Path, text: str = LIBRARY) -> Path:
    path = tmp_path / "two.lib"
    path.write_text(text)
    return path


def test_energies_are_picojoules_and_capacitances_picofarads(tmp_path: Path) -> None:
    found = read_library(library(tmp_path))
    assert (found.name, found.volts, sorted(found.cells)) == ("two", 1.5, ["DFF", "INV"])
    inverter, register = found.cells["INV"], found.cells["DFF"]
    assert inverter.inputs == {"A": pytest.approx(0.005)}
    assert inverter.leakage_w == pytest.approx(3e-9)
    # The second transition: rise 1 to 3, fall 3 to 9, means 2 and 6, of 10 fF V^2, over 0 to 40 fF; then level.
    energies = inverter.energies["Y"].at(np.array([0, 0.02, 0.04, 1]))
    assert energies == pytest.approx([0.02, 0.04, 0.06, 0.06])
    assert register.energies["CLK"].at(np.zeros(1)) == pytest.approx(0.06)
    assert (register.state, register.next_state, register.clock) == (("Q0", "Q1"), "D", "CLK")
    assert found.smallest_input_pf == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("!(A B)", lambda a, b, c: not (a and b)),
        ("(A*B)+!C", lambda a, b, c: (a and b) or not c),
        ("A&B|C", lambda a, b, c: (a and b) or c),
        ("A^B C", lambda a, b, c: (a != b) and c),
        ("(A+B)'^C", lambda a, b, c: (not (a or b)) != c),
        ("!A' B", lambda a, b, c: a and b),
        ("((A B)+(B C))+(C A)", lambda a, b, c: a + b + c > 1),
        ("1", lambda a, b, c: True),
        ("A 0", lambda a, b, c: False),
    ],
)
def test_functions(text: str, meaning: object) -> None:
    cases = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    words = {
        pin: np.array([sum(case[i] << n for n, case in enumerate(cases))], np.uint64) for i, pin in enumerate("ABC")
    }
    found = int(read_function(text)(words)[0]) & 0xFF
    assert found == sum(bool(meaning(*case)) << n for n, case in enumerate(cases))  # type: ignore[operator]


def test_leakage_is_the_mean_of_its_states(tmp_path: Path) -> None:
    states = 'leakage_power () { when : "A"; value : 2; } leakage_power () { when : "!A"; value : 6; }'
    found = read_library(library(tmp_path, LIBRARY.replace("cell_leakage_power : 3;", states)))
    assert found.cells["INV"].leakage_w == pytest.approx(4e-9)


def test_energies_go_with_the_square_of_the_voltage_unit(tmp_path: Path) -> None:
    found = read_library(library(tmp_path, LIBRARY.replace('"1V"', '"100mV"')))
    assert found.cells["DFF"].energies["CLK"].at(np.zeros(1)) == pytest.approx(0.0006)


@pytest.mark.parametrize("text", ["A +", "(A", "A)", "A ? B", "__import__('os')", ""])
def test_what_is_no_function_is_refused(text: str) -> None:
    with pytest.raises(PowerError, match="liberty file's function"):
        read_function(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("cell (a) { }", "does not begin with a library"),
        ("library (a) { cell (b) {", "ends inside a group"),
        ("library (a) {\n cell b\n}", "line 2 of the liberty file is neither"),
    ],
)
def test_what_is_no_liberty_is_refused(text: str, message: str) -> None:
    with pytest.raises(PowerError, match=message):
        parse_liberty(text)


def test_a_library_that_tells_no_power_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="names no voltage"):
        read_library(library(tmp_path, LIBRARY.replace("nom_voltage : 1.5", "")))
    without = LIBRARY.replace("internal_power", "internal_nothing")
    with pytest.raises(PowerError, match="have no internal_power; hint: name a liberty file with power tables"):
        read_library(library(tmp_path, without))
    with pytest.raises(PowerError, match="is no unit"):
        read_library(library(tmp_path, LIBRARY.replace('"1nW"', '"much"')))
