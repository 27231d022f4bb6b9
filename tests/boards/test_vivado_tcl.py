"""The scripts for Vivado, run in a Tcl interpreter that records them; and that faults planted in them are caught."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from weft.boards.board import all_boards, find_board
from weft.boards.design import Design, make_design
from weft.boards.ip_core import package_tcl
from weft.boards.vivado_tcl import build_tcl
from weft.hw.config import TINY
from weft.hw.system_config import SystemConfig

from . import vivado_stub
from .tcl_checks import cells, mistakes
from .vivado_stub import Record, Vivado

BOARDS = sorted(all_boards())


def run(design: Design, script: str | None = None, package: str | None = None, **answers: str) -> Record:
    """What a design's scripts, or changed ones, call."""
    vivado = Vivado(mhz=design.clock.mhz, **answers)  # type: ignore[arg-type]
    return vivado.run(script or build_tcl(design), package or package_tcl(design))


def design_of(name: str) -> Design:
    return make_design(find_board(name))


SYSTEM = SystemConfig(name="two", cores=(TINY, TINY), relay=True)


@pytest.mark.parametrize("name", BOARDS)
def test_the_script_of_every_board_is_sound(name: str) -> None:
    record = run(design_of(name))
    assert mistakes(record) == []
    assert len(cells(record)) == 6


@pytest.mark.parametrize("name", BOARDS)
def test_it_is_sound_without_the_board_files(name: str) -> None:
    record = run(design_of(name), board_parts="")
    assert mistakes(record) == []
    (preset,) = record.of("apply_bd_automation")
    assert 'apply_board_preset "0"' in preset[4]
    assert any("Vivado has no board files" in call[1] for call in record.of("puts"))


def test_the_interpreter_outside_python_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    design = design_of("pynq-z2")
    inside = run(design)
    monkeypatch.setattr(vivado_stub, "_evaluate", vivado_stub._evaluate_outside)
    assert run(design) == inside


@pytest.mark.parametrize("name", BOARDS)
def test_numbers_in_the_script_are_those_of_the_design(name: str) -> None:
    design = design_of(name)
    record = run(design)
    assigned = {call[-1]: (int(call[3], 16), int(call[5], 16)) for call in record.of("assign_bd_address")}
    assert assigned["weft_core/s_axil/reg0"] == (design.control.base, design.control.bytes)
    memory = [value for key, value in assigned.items() if key.startswith("ps/")]
    assert memory == [(window.base, window.bytes) for window in design.board.ddr.windows]
    assert all(call[-1] == design.board.part for call in record.of("create_project"))


def test_the_registers_are_described_to_vivado() -> None:
    record = run(design_of("zcu104"))
    assert ["ipx::add_register", "STATUS", "reg0"] in record.calls
    assert ["set_property", "address_offset", "0x014", "STATUS"] in record.calls


@pytest.mark.parametrize("name", ["pynq-z2", "ultra96-v2"])
def test_the_script_of_a_system_is_sound(name: str) -> None:
    record = run(make_design(find_board(name), SYSTEM))
    assert mistakes(record) == []
    assigned = {call[-1]: int(call[5], 16) for call in record.of("assign_bd_address")}
    assert assigned["weft_system/s_axil/reg0"] == 1 << 16
    assert ["set_property", "range", "65536", "reg0"] in record.calls
    for register, offset in (("CORE_1_STATUS", "0x1014"), ("GROUP_MEMBERS", "0xfffc"), ("ENDED_1", "0xffc4")):
        assert ["set_property", "address_offset", offset, register] in record.calls


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"progress": "37%"}, "synth_1 ended at 37%"),
        ({"wns": "-0.2"}, r"too slow by -0.2 ns at 100.000000 MHz: .* lower --clock"),
        ({"whs": "-0.01"}, "too fast by -0.01 ns"),
        ({"wns": ""}, "no timing was reported"),
    ],
)
def test_a_run_that_failed_stops_the_script_before_the_export(answers: dict[str, str], message: str) -> None:
    record = run(design_of("pynq-z2"), **answers)
    assert re.search(message, record.error)
    assert not record.of("write_hw_platform")
    assert not [call for call in record.of("file") if call[1] == "copy"]
    assert ["file", "delete", "overlay/weft.bit", "overlay/weft.hwh", "overlay/built.json"] in record.calls


def test_a_clock_that_was_not_reached_stops_the_script() -> None:
    design = design_of("pynq-z2")
    record = Vivado(mhz=96.97).run(build_tcl(design), package_tcl(design))
    assert "the clock is 96.970000 MHz, but 100.000000 were planned" in record.error
    assert not record.of("launch_runs")


def test_another_version_of_vivado_is_a_warning_only() -> None:
    record = run(design_of("pynq-z2"), version="2022.1")
    assert mistakes(record) == []
    assert any("WARNING: Vivado 2022.1" in call[1] for call in record.of("puts"))


def swap(text: str, first: str, second: str) -> str:
    """Two lines of a text exchanged."""
    lines = text.splitlines()
    one, other = lines.index(first), lines.index(second)
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def drop(pattern: str) -> Callable[[str], str]:
    return lambda text: replaced(text, pattern, "")


def replaced(text: str, pattern: str, new: str) -> str:
    result, count = re.subn(pattern, lambda _: new, text, count=1, flags=re.MULTILINE)
    assert count == 1, pattern
    return result


def put(pattern: str, new: str) -> Callable[[str], str]:
    return lambda text: replaced(text, pattern, new)


FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "a bus that is not connected": (drop(r"^connect_bd_intf_net .*m_axi.*\n"), "bus weft_core/m_axi is not connected"),
    "a bus that is connected twice": (
        put(r"^connect_bd_intf_net .*m_axi.*\n", "connect_bd_intf_net [bus weft_core/m_axi] [bus ps/S_AXI_HP0]\n" * 2),
        "bus weft_core/m_axi is connected 2 times",
    ),
    "validation after the launch": (
        lambda text: swap(text, "validate_bd_design", "launch_runs synth_1 -jobs $jobs"),
        "comes before",
    ),
    "no validation": (drop(r"^validate_bd_design\n"), "never called: validate_bd_design"),
    "export before timing is known": (
        lambda text: swap(
            text,
            "set wns [get_property STATS.WNS [get_runs impl_1]]",
            "write_hw_platform -fixed -include_bit -force platform/platform.xsa",
        ),
        "can't read \"wns\"",
    ),
    "a port without a clock": (drop(r"\[pin ps/S_AXI_HP0_ACLK\] "), "bus ps/S_AXI_HP0 has no clock"),
    "a core without a clock": (drop(r"\[pin weft_core/aclk\] "), "pin weft_core/aclk is not driven"),
    "a core without a reset": (drop(r"\[pin weft_core/aresetn\] "), "pin weft_core/aresetn is not driven"),
    "an interrupt that goes nowhere": (drop(r"^connect_bd_net \[pin interrupts/irq\].*\n"), "IRQ_F2P is not driven"),
    "two drivers of a wire": (
        put(r"\[pin interrupts/irq\]", "[pin interrupts/irq] [pin weft_core/interrupt]"),
        "a net must have one driver",
    ),
    "a misspelled command": (put("^validate_bd_design", "validate_bd_desing"), "no such command: validate_bd_desing"),
    "an option that there is not": (put("-to_step write_bitstream", "-until write_bitstream"), "no option -until"),
    "a misspelled pin": (put(r"pin reset/ext_reset_in", "pin reset/ext_reset"), "pin reset/ext_reset: 0 found"),
    "a misspelled segment": (put("HP0_DDR_LOWOCM", "HP0_DDR_LOW"), "segment ps/S_AXI_HP0/HP0_DDR_LOW: 0 found"),
    "an address that is not aligned": (put("-offset 0x43c00000", "-offset 0x43c08000"), "is not aligned"),
    "addresses that overlap": (put("-offset 0x41800000", "-offset 0x43c00000"), "overlaps 0x43c00000"),
    "a slave without an address": (drop(r"^assign_bd_address .*Reg\]\n"), "interrupts/S_AXI/Reg has no address"),
    "an absolute path": (put(r"^file mkdir ", "file mkdir /tmp/x "), "absolute path: file mkdir /tmp/x"),
    "a run nobody waits for": (drop(r"^finish synth_1\n"), "never called: wait_on_run synth_1"),
    "a port that is on and not used": (
        put(r"CONFIG.PCW_USE_M_AXI_GP0 \{1\}", "CONFIG.PCW_USE_M_AXI_GP0 {1} CONFIG.PCW_USE_M_AXI_GP1 {1}"),
        "bus ps/M_AXI_GP1 is not connected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str) -> None:
    change, message = FAULTS[fault]
    design = design_of("pynq-z2")
    joined = build_tcl(design).replace(" \\\n  [pin", " [pin")  # a net on one line
    found = mistakes(run(design, change(joined)))
    assert any(message in each for each in found), found
