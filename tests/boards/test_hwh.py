"""The ``.hwh`` that we write, as pynq's own parser reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from weft.boards.board import all_boards, find_board
from weft.boards.design import CORE_CELL, CORE_VLNV, SYSTEM_CELL, SYSTEM_VLNV, Design, make_design
from weft.boards.hwh import hwh_text
from weft.hw.config import TINY
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import Engine
from weft.hw.register_windows import GROUP_MEMBERS, SHARED_STOP, WINDOW_BYTES
from weft.hw.registers import Register, Status, class_counter
from weft.hw.relay_plan import RelayRegister
from weft.hw.system_config import SystemConfig

from .pynq_metadata import parse

BOARDS = sorted(all_boards())
SYSTEM = SystemConfig(name="two", cores=(TINY, TINY), shared_reads=True, relay=True)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the parser makes of each board's file, by the board's name."""
    folder = tmp_path_factory.mktemp("hwh")
    paths = {name: folder / f"{name}.hwh" for name in (*BOARDS, SYSTEM.name)}
    for name, path in paths.items():
        design = make_design(find_board("pynq-z2"), SYSTEM) if name == SYSTEM.name else design_of(name)
        path.write_text(hwh_text(design))
    found = parse(list(paths.values()))
    return {name: found[str(path)] for name, path in paths.items()}


def design_of(name: str) -> Design:
    return make_design(find_board(name))


@pytest.mark.parametrize("name", BOARDS)
def test_the_core_is_where_the_design_puts_it(name: str, parsed: Mapping[str, Any]) -> None:
    core, design = parsed[name]["ips"][CORE_CELL], design_of(name)
    assert (core["type"], core["phys_addr"], core["addr_range"]) == (
        CORE_VLNV, design.control.base, design.control.bytes,
    )  # fmt: skip


def test_a_system_is_where_the_design_puts_it_with_the_registers_of_all_cores(parsed: Mapping[str, Any]) -> None:
    cell, design = parsed[SYSTEM.name]["ips"][SYSTEM_CELL], make_design(find_board("pynq-z2"), SYSTEM)
    assert (cell["type"], cell["phys_addr"], cell["addr_range"]) == (SYSTEM_VLNV, design.control.base, 1 << 16)
    found = {name: register["address_offset"] for name, register in cell["registers"].items()}
    assert found["CORE_0_STATUS"] == Register.STATUS
    assert found["CORE_1_STATUS"] == WINDOW_BYTES + Register.STATUS
    assert found["GROUP_MEMBERS"] == GROUP_MEMBERS
    assert found["SHARED_STOP"] == SHARED_STOP
    assert found["WAITS_1"] == RelayRegister.WAITS + 4
    assert "WAITS_2" not in found
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("name", BOARDS)
def test_the_interrupt_goes_through_the_controller_to_the_processors(name: str, parsed: Mapping[str, Any]) -> None:
    found, design = parsed[name], design_of(name)
    assert found["controllers"] == {"interrupts": {"parent": "", "index": 0, "raw_irq": design.system.raw_interrupt}}
    pin = {"controller": "interrupts", "index": 0, "fullpath": f"{CORE_CELL}/interrupt"}
    assert found["pins"][f"{CORE_CELL}/interrupt"] == pin
    assert found["ips"][CORE_CELL]["interrupts"] == {"interrupt": pin}


@pytest.mark.parametrize("name", BOARDS)
def test_one_clock_runs_at_the_rate_of_the_design(name: str, parsed: Mapping[str, Any]) -> None:
    clocks, clock = parsed[name]["clocks"], design_of(name).clock
    assert [clocks[str(number)]["enable"] for number in range(4)] == [1, 0, 0, 0]
    assert clock.pll_mhz / (clocks["0"]["divisor0"] * clocks["0"]["divisor1"]) == pytest.approx(clock.mhz)
    if design_of(name).system.name == "zynq-ultrascale":
        assert clocks["0"]["frequency"] == pytest.approx(clock.mhz, abs=1e-6)


def test_pynq_sees_every_register(parsed: Mapping[str, Any]) -> None:
    registers = parsed["pynq-z2"]["ips"][CORE_CELL]["registers"]
    expected = {register.name: int(register) for register in Register}
    for engine in Engine:
        for cycle_class in CycleClass:
            expected[f"{engine.name}_{cycle_class.name}_LO"] = class_counter(engine, cycle_class)
            expected[f"{engine.name}_{cycle_class.name}_HI"] = class_counter(engine, cycle_class) + 4
    assert {name: register["address_offset"] for name, register in registers.items()} == expected
    assert registers["CONTROL"]["access"] == "write-only"
    assert registers["WATCHDOG"]["access"] == "read-write"
    bits = {name: bit["bit_offset"] for name, bit in registers["STATUS"]["fields"].items()}
    assert bits == {bit.name: bit.bit_length() - 1 for bit in Status}


@pytest.mark.parametrize("lost", ["EXTERNALPORTS", "VLNV", "FULLNAME"])
def test_the_parser_does_notice_what_is_missing(lost: str, tmp_path: Path) -> None:
    """So that the tests above are worth something: without these, reading fails or the core is not found."""
    path = tmp_path / "lost.hwh"
    path.write_text(hwh_text(design_of("zcu104")).replace(lost, f"no-{lost}"))
    try:
        cores = parse([path])[str(path)]["ips"]
    except AssertionError:
        return
    assert CORE_CELL not in cores
