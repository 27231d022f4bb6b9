"""The command as a user types it: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from weft.cli.app import app
from weft.cli.errors import run
from weft.cli.output import err, out

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def weft(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in ``folder``, but in this process, which has the package in memory already."""
    output, errors, command = io.StringIO(), io.StringIO(), [*map(str, words)]
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = run(app, command, err)
    return subprocess.CompletedProcess(command, status, output.getvalue(), errors.getvalue())


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 120)


def typed(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in ``folder`` as a user does."""
    command = [sys.executable, "-m", "weft", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    result = typed("compile", MODEL, "-o", "digits.weft", "--dump", "ir", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "conv3" in result.stdout
    assert "1 layer on cpu: input 'image' is float32" in result.stdout
    assert "vthread" in (folder / "ir" / "conv3.loops.txt").read_text()
    return folder / "digits.weft"


@pytest.mark.parametrize(
    "command", ["board", "compile", "shapes", "run", "compare", "disasm", "hw", "profile", "synth", "test-hw"]
)
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    result = weft(command, "--help", folder=tmp_path)
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_a_user_sees_one_line_and_the_status(tmp_path: Path) -> None:
    result = typed("disasm", MODEL, folder=tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


def test_run_writes_results_that_the_input_decides(artifact: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "zeros.npy", np.zeros((1, 1, 8, 8), np.float32))
    for name in ("a", "b"):
        result = weft("run", artifact, "-i", "zeros.npy", "-o", f"{name}.npz", folder=tmp_path)
        assert result.returncode == 0, result.stderr
    first, second = (np.load(tmp_path / f"{name}.npz")["logits"] for name in ("a", "b"))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (1, 10)


def test_run_on_rtl_shows_where_the_cycles_went(artifact: Path, tmp_path: Path) -> None:
    result = weft("run", artifact, "-d", "rtl", "-t", "trace.json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "utilisation" in result.stdout
    assert "token gemm" in result.stdout
    assert (tmp_path / "trace.json").stat().st_size > 10_000


def test_disasm_shows_one_layer(artifact: Path, tmp_path: Path) -> None:
    result = weft("disasm", artifact, "--layer", "max_pool", folder=tmp_path)
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    assert lines
    assert all("# max_pool, tile" in line for line in lines)
    assert any("op=max_accumulate" in line for line in lines)


def test_object_files_are_written_on_request(tmp_path: Path) -> None:
    words = ("compile", MODEL, "--target", "cpu", "--processor", "aarch64", "-o", "m.weft", "--objects", "out")
    result = weft(*words, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {"weft_model.h", "weft_model.c", "constants.bin"} < {path.name for path in (tmp_path / "out").iterdir()}
    assert (tmp_path / "out" / "kernel0.o").read_bytes()[18:20] == (183).to_bytes(2, "little")  # AArch64
    result = weft("compile", MODEL, "-o", "n.weft", "--objects", "none", folder=tmp_path)
    assert result.returncode == 1
    assert "has programs for a core, which object files cannot hold" in result.stderr
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "n.weft").exists()


def test_hw_writes_verilog_in_the_form_that_fits_the_part(tmp_path: Path) -> None:
    for words in ((), ("--for", "ecp5", "-o", "ecp5.v")):
        result = weft("hw", "-c", "tiny", *words, folder=tmp_path)
        assert result.returncode == 0, result.stderr
    texts = {name: (tmp_path / f"{name}.v").read_text() for name in ("tiny", "ecp5")}
    assert all("module weft_core" in text for text in texts.values())
    assert texts["tiny"].count(" * ") < texts["ecp5"].count(" * ")  # xc7 is the default: two products in one


def test_hw_writes_memories_that_macros_can_replace(tmp_path: Path) -> None:
    result = weft("hw", "-c", "tiny", "--memories", "weft_sram.v", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "wrote weft_sram.v: weft_sram for 23 memories of 14 sizes" in result.stdout
    core, model = ((tmp_path / name).read_text() for name in ("tiny.v", "weft_sram.v"))
    assert core.count("weft_sram #(") == 23
    assert "module weft_sram #(" not in core
    assert model.count("module weft_sram #(") == 1
    assert "4 of 64 entries of 128 bits, written 64 at a time" in model


def cut(path: Path) -> None:
    (path / "bad.onnx").write_bytes(MODEL.read_bytes()[:5000])


def flipped(path: Path) -> None:
    result = weft("compile", MODEL, "-o", "bad.weft", folder=path)
    assert result.returncode == 0
    raw = bytearray((path / "bad.weft").read_bytes())
    raw[len(raw) // 2] ^= 1
    (path / "bad.weft").write_bytes(raw)


@pytest.mark.parametrize(
    ("words", "prepare", "message"),
    [
        (("compile", "none.onnx"), None, "none.onnx"),
        (("compile", "bad.onnx"), cut, "is not a complete ONNX file"),
        (
            ("compile", MODEL, "-c", "zynq"),
            None,
            "known: pynq, pynq-float32, pynq-reference, pynq-tables, pynq-w4, tiny, wide",
        ),
        (("compile", MODEL, "-c", "none.json"), None, "none.json"),
        (("compile", MODEL, "--shape", "image=big"), None, "--shape 'image=big' is not NAME=1x3x224x224"),
        (("run", "none.weft"), None, "cannot read none.weft: No such file"),
        (("run", "bad.weft"), flipped, "the checksum of the file is wrong"),
        (("disasm", MODEL), None, "this is not a weft artifact; hint: make one with 'weft compile'"),
    ],
)
def test_bad_input_is_one_readable_line(words: tuple[str, ...], prepare: object, message: str, tmp_path: Path) -> None:
    if callable(prepare):
        prepare(tmp_path)
    result = weft(*words, folder=tmp_path)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert message in " ".join(result.stderr.split())


def test_an_unknown_device_lists_the_known_ones(artifact: Path, tmp_path: Path) -> None:
    result = weft("run", artifact, "-d", "fpga", folder=tmp_path)
    assert result.returncode == 1
    assert "unknown device 'fpga'; hint: known: null, fsim, rtl" in result.stderr


def test_a_model_with_an_open_batch_runs_for_any(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> m (float[N, 3, H, 8] x) => (float[A, B, C, D] y)'
    body = "{ y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) z = Slice (y, s, e) }"
    ends = "<int64[1] s = {0}, int64[1] e = {10}>"
    onnx.save(onnx.parser.parse_model(text + ends + body), tmp_path / "open.onnx")
    result = weft("shapes", "open.onnx", "--shape", "x=N", folder=tmp_path)
    assert "--shape 'x=N' is not NAME=1x3x224x224" in result.stderr
    result = weft("shapes", "open.onnx", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "x: float32[N, 3, H, 8]\n" in result.stdout
    assert "y: float32[N, 3, ?, 4]\n" in result.stdout
    assert "sizes written as ? depend on the symbols in another way: y, z\n" in result.stdout
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 4, 8), np.float32))
    result = weft("run", "--target", "cpu", "open.onnx", "-i", "x.npy", folder=tmp_path)
    assert "y: float32[5, 3, 2, 4]" in result.stdout
    result = weft("run", "--target", "cpu", "open.onnx", "--shape", "x=2x3x6x8", folder=tmp_path)
    assert "y: float32[2, 3, 3, 4]" in result.stdout
