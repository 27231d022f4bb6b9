"""A simulator that is compiled again by what it does: who finds it, what is refused, and that GCC takes the counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from weft.cli.app import app
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.mac_array_packed import Multipliers
from weft.runtime.errors import DeviceError
from weft.sim import build, training
from weft.sim.build import TRAINED, build_library
from weft.sim.errors import BuildError
from weft.sim.rtl import RtlSimulator
from weft.sim.waves import Waves

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

FUNCTION = """
extern "C" int often(int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += i & 3 ? i : -i;
    return sum;
}
"""
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).often(1000))"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Slow steps take no time; the list says which ran."""
    ran: list[str] = []

    def translate(config: object, verilog: str, folder: Path, waves: Waves = Waves.NONE) -> list[Path]:
        return [folder / "a.cpp"]

    def compile_library(
        sources: list[Path], library: Path, root: Path, *, quick: bool = False, waves: Waves = Waves.NONE,
        own_flags: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        ran.append(f"compile {' '.join(own_flags)}".strip())
        library.write_bytes(b"library")

    for module in (build, training):
        monkeypatch.setattr(module, "model_verilog", lambda *settings: str(settings))
        monkeypatch.setattr(module, "run_verilator", translate)
        monkeypatch.setattr(module, "compile_library", compile_library)
    monkeypatch.setattr(training, "run_tool", lambda command, name: ran.append(Path(command[-1]).name))
    return ran


def test_what_was_trained_is_found_in_place_of_the_plain_library_alone(steps: list[str], tmp_path: Path) -> None:
    forms: list[dict[str, Any]] = [{"quick": True}, {"waves": Waves.VCD}, {"multipliers": Multipliers.PACKED}]
    plain = build_library(TINY, cache_root=tmp_path)[0]
    others = [build_library(TINY, cache_root=tmp_path, **form)[0] for form in forms]
    steps.clear()
    trained = training.train(TINY, root=tmp_path)
    assert steps == ["compile -fprofile-generate", "counting.so", "compile -fprofile-use -Wno-missing-profile"]
    assert (trained.suffix, trained.stem) == (TRAINED, plain.stem)
    assert build_library(TINY, cache_root=tmp_path)[0] == trained
    assert training.train(TINY, root=tmp_path) == trained
    assert [build_library(TINY, cache_root=tmp_path, **form)[0] for form in forms] == others
    assert build_library(PYNQ, cache_root=tmp_path)[0].suffix == ".so"
    assert steps[3:] == ["compile"]
    trained.write_bytes(b"damaged")
    assert build_library(TINY, cache_root=tmp_path)[0] == plain


def test_counts_of_a_run_are_used(tmp_path: Path) -> None:
    """Both builds lie in one folder, under the same names."""
    source = tmp_path / "a.cpp"
    source.write_text(FUNCTION)
    results = []
    for name, flags in (("counting.so", training.COUNT), ("used.so", ("-fprofile-use", "-Werror=missing-profile"))):
        build.compile_library([source], tmp_path / name, tmp_path, own_flags=flags)
        command = [sys.executable, "-c", CALL, str(tmp_path / name)]
        results.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert (tmp_path / "a.gcda").exists()
    assert results[0] == results[1]


def test_random_programs_run_on_a_library_that_is_no_entry_of_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "counting.so"
    library.write_bytes(build_library(TINY)[0].read_bytes())
    monkeypatch.setattr(training, "PROGRAMS", 3)
    monkeypatch.setattr(sys, "argv", ["training", TINY.to_json(), str(library)])
    training.main()
    assert training.exercise(TINY, library) > 100
    assert str(library) in Path("/proc/self/maps").read_text()
    assert RtlSimulator(TINY, 4096).build_times.total == 0


def test_training_begins_in_another_process_once(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[list[str]] = []
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    assert training.start_training(TINY)
    assert begun == [[sys.executable, "-m", "weft.sim.training", TINY.to_json()]]
    monkeypatch.setattr(sys, "argv", begun[0][2:])
    priorities: list[int] = []
    monkeypatch.setattr(os, "nice", priorities.append)
    training.main()
    assert priorities == [training.LEAST_PRIORITY]
    assert not training.start_training(TINY)


@pytest.mark.parametrize(
    ("version", "limit", "message"),
    [
        ("clang++ clang version 16", "1G", r"a simulator is trained by GCC, but the C\+\+ compiler is clang\+\+; hint"),
        ("g++ Free Software Foundation", "0", "WEFT_CACHE_LIMIT: a trained simulator would not be kept; hint"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    version: str, limit: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "compiler_version", lambda: version)
    monkeypatch.setenv("WEFT_CACHE_LIMIT", limit)
    with pytest.raises(BuildError, match=message):
        training.check_training()


def test_a_run_on_rtl_begins_the_training_of_its_core(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[CoreConfig] = []

    def start(config: CoreConfig) -> bool:
        begun.append(config)
        return len(begun) == 1

    monkeypatch.setattr(training, "start_training", start)
    command = ["run", str(DIGITS), "--config", "tiny", "--device", "rtl", "--optimise-simulator"]
    said = [CliRunner().invoke(app, command).stderr for _ in range(2)]
    assert "the simulator of tiny is being optimised in the background, for later runs" in said[0]
    assert "the simulator of tiny is optimised already" in said[1]
    assert begun == [TINY] * 2


@pytest.mark.parametrize("options", [[], ["--device", "fsim"], ["--device", "rtl", "--waves", "no.vcd"]])
def test_a_run_without_such_a_simulator_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["run", str(DIGITS), "--config", "tiny", "--optimise-simulator", *options])
    assert isinstance(result.exception, DeviceError)
    assert "--optimise-simulator is of one core on device rtl, without a waveform" in str(result.exception)
