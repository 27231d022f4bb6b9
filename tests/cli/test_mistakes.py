"""Mistakes of people at the command line: each is answered with one line that says what to do, and a status.
None leaves a file behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import MODEL, weft

MISTAKES = {
    # what is typed: what the answer has to hold
    "compile none.onnx": "'none.onnx' cannot be read",
    "compile text.onnx": "text.onnx",
    "compile digits.onnx --target abacus": "known: accel, cpu",
    "compile digits.onnx --config broken.json": "broken.json: not a configuration in JSON",
    "compile digits.onnx --config odd.json": "block_in must be a power of two",
    "compile digits.onnx -o no/where.weft": "no/where.weft: No such file or directory",
    "compile text.onnx --calibrate none.npz": "none.npz",
    "run digits.onnx -i notes.txt": "make one with np.save or np.savez",
    "run digits.onnx -i none.npz": "none.npz",
    "run digits.onnx -i wide.npy": "input 'image' must be float32[1, 1, 8, 8], not float32[1, 1, 8, 9]",
    "run digits.onnx -i zeros.npz": "the model has no input 'zeros'; hint: its inputs: image",
    "run digits.onnx -i doubles.npy": "input 'image' must be float32[1, 1, 8, 8], not float64[1, 1, 8, 8]",
    "run digits.onnx --calibrate zeros.npy -i wide.npy": "input 'image' must be float32[1, 1, 8, 8], not",
    "compare cpu fsim digits.onnx -i wide.npy": "input 'image' must be float32[1, 1, 8, 8], not",
    "run digits.onnx -i flat.npy": "hint: insert axes of 1, or take them away: numpy.reshape to [1, 1, 8, 8]",
    "run digits.onnx -i last.npy": "hint: insert axes of 1, or take them away: numpy.reshape to [1, 1, 8, 8]",
    "evaluate digits.onnx wide.npy": "wide.npy: image is [1, 1, 8, 9], but examples for the input",
    "evaluate digits.onnx three.npy --labels two.npy": "there are 2 labels, but 3 examples",
    "evaluate digits.onnx zeros.npy --result scores": "the model has no output 'scores'; hint: its outputs: ",
    "run digits.onnx --device gpu0": "unknown device 'gpu0'; hint: known: ",
    "run digits.onnx --target cpu --record x.wrec": "--record keeps programs of a core, but target 'cpu' makes none",
    "run digits.onnx --system none.json": "none.json: No such file or directory",
    "compare cpu fsim digits.onnx --config nosuch": "unknown configuration 'nosuch'; hint: known: pynq",
    "synth --for asic --liberty none.lib": "none.lib: No such file or directory",
    "run cut.weft": "compile the model again",
    "evaluate digits.onnx notes.txt": "make one with np.save or np.savez",
    "evaluate digits.onnx zeros.npy --labels zeros.npy": "labels are whole numbers",
    "quantise digits.onnx": "missing option '--calibrate'; hint: weft quantise --help",
    "profile digits.onnx --latency 0": "'--latency'",
    "profile digits.onnx --target gpu": "there is no target 'gpu'; hint: known: accel, cpu",
    "view digits.onnx none.weft": "none.weft",
    "view afolder": "afolder",
    "tune digits.onnx --tuned x": "--database",
    "tune text.onnx": "text.onnx",
    "tune text.onnx --target cpu": "text.onnx",
    "explore bad.toml -n digits.onnx": "there is no field 'blok_in'",
    "explore bad.toml": "missing option '--networks'",
    "compare cpu": "missing argument 'second'; hint: weft compare --help",
    "compare cpu abacus digits.onnx": "choose reference",
    "disasm digits.onnx": "make one with 'weft compile'",
    "shapes text.onnx": "text.onnx",
    "replay text.onnx": "text.onnx",
    "verify digits.onnx": "make one with 'weft compile'",
    "hw --config nonesuch": "known: pynq",
    "hw --for zx81": "'zx81' is not one of",
    "test-hw nosuchpart": "parts: core",
    "board build nosuch -o out": "known: kv260",
    "gpu kernels": "no such command 'kernels'; hint: weft gpu --help",
    "compile digits.onnx --vthreads 0": "vthreads is 0, but must be at least 1",
    "compile digits.onnx --vthreads zero": "invalid value for '--vthreads'",
    "compile digits.onnx --dram fast": "'fast' is no rate; hint: bytes a cycle",
    "compile digits.onnx --shape image": "--shape 'image' is not NAME=1x3x224x224",
    "compile digits.onnx --target cpu --config pynq": "target 'cpu' has no option --config; hint: its options: ",
    "run digits.onnx --system pair.json": "pair.json: cores[1]: unknown configuration 'pyng'; hint: known: pynq",
    "run digits.onnx --device": "option '--device' requires an argument",
    "view digits.onnx --live --target cpu": "--live runs programs of the core, but target 'cpu' makes none",
    "view digits.onnx --live -i wide.npy": "input 'image' must be float32[1, 1, 8, 8], not float32[1, 1, 8, 9]",
    "profile digits.onnx --device rlt": "unknown device 'rlt'; hint: known: ",
    "hw --config tiny -o afolder": "afolder: Is a directory",
    "evaluate digits.onnx ragged.npy": "Object arrays cannot be loaded",
    "gpu check digits.onnx": "digits.onnx: this is not PTX, which is text",
    "generate digits.onnx hello": "missing option '--prompt'",
    "weft run digits.onnx": "no such command 'weft'",
    "doctor --nosuch": "no such option: --nosuch",
    "compile m.pt": "'m.pt' is weights or a module of PyTorch, not a graph that can be compiled; hint: give the module",
    "compile m.safetensors": "is weights without a graph, not a graph that can be compiled; hint: load them into",
    "compile cut.onnx": "'cut.onnx' is not a complete ONNX file",
    "run picture.png": "it begins as another kind of file: models are .onnx, .tflite, .pt2",
    "run digits.onnx --shape N=1": "the inputs are 'image'; hint: name an input, with all of its sizes: 'weft shapes'",
    "compile empty.onnx": "'empty.onnx' is an empty file; hint: export or copy the model again",
    "compile empty.tflite": "'empty.tflite' is an empty file",
    "shapes empty.mlir": "'empty.mlir' is an empty file",
    "run empty.tflite --kernels reference": "'empty.tflite' is an empty file",
    "compile empty.weft": "'empty.weft' is an empty file",
    "run empty.weft": "empty.weft: the file is empty, so it is no weft artifact; hint: make one with 'weft compile'",
    "profile empty.weft": "empty.weft: the file is empty, so it is no weft artifact",
    "view notes.weft": "notes.weft: this is not a weft artifact",
    "replay empty.wrec": "empty.wrec: the file is empty, so it is no weft recording",
    "compile .": "'.': a folder, where a file is wanted",
    "compile digits.onnx --tuned none.sqlite": "no tuning database 'none.sqlite'; hint: make it with `weft tune`",
    "run digits.onnx --tuned none.sqlite": "no tuning database 'none.sqlite'; hint: make it with `weft tune`",
    "compile digits.onnx --ranges mse": "--ranges, --equalise, --correct-bias and --adaround need examples; hint: give",
    "compile digits.onnx --shape image=1x3x8x8": "input 'image': dimension 1 is 3, but must be 1",
    "compile digits.onnx --target cpu --processor 8086": "there is no processor '8086'; hint: choose host, x86-64-v2",
    "compile digits.onnx --pass none": "there is no pass 'none'",
    "run digits.onnx --target cuda --device 99": "hint: ",
    "evaluate digits.onnx zeros.npy --target cuda --device 99": "hint: ",
    "run digits.onnx --target opencl --device emulated": "no device for OpenCL is emulated; hint: compile the",
    "run digits.onnx --threads 0 --target cpu": "threads is 0, but must be 1..256",
    "run digits.onnx --memory ddr9": "unknown memory 'ddr9'; hint: known: ddr3-1066x16",
    "run digits.onnx -i image=zeros.npy": "image=zeros.npy: No such file or directory",
    "run digits.onnx --trace no/such/run.json": "no/such/run.json: No such file or directory",
    "run digits.onnx --waves run.fst --device fsim": "device 'fsim' has no waveform; hint: --device rtl",
    "run digits.onnx --waves": "option '--waves' requires an argument; hint: weft run --help",
    "replay none.wrec": "cannot read none.wrec: No such file or directory",
    "explore digits.onnx -n digits.onnx": "digits.onnx: not TOML",
    "tune digits.onnx --trials many": "invalid value for '--trials'",
    "synth --for pluto": "invalid value for '--for': 'pluto' is not one of",
    "board virtual none": "unknown board 'none'; hint: known: kv260",
    "test-hw notes.txt": "there is no part 'notes.txt'; hint: parts: core",
    "shapes digits.onnx --shape x=ax3": "--shape 'x=ax3' is not NAME=1x3x224x224",
    "Compile digits.onnx": "no such command 'Compile'. Did you mean 'compile'?",
    "frobnicate": "no such command 'frobnicate'",
}


def prepare(folder: Path) -> None:
    """Write the files that the mistakes name."""
    (folder / "digits.onnx").write_bytes(MODEL.read_bytes())
    (folder / "text.onnx").write_text("hello\n")
    (folder / "cut.weft").write_bytes(b"PK\x03\x04" + bytes(400))
    (folder / "notes.txt").write_text("x")
    (folder / "m.pt").write_text("x")
    (folder / "m.safetensors").write_text("xx")
    (folder / "cut.onnx").write_bytes(MODEL.read_bytes()[:300])
    for name in ("empty.onnx", "empty.tflite", "empty.mlir", "empty.weft", "empty.wrec"):
        (folder / name).write_bytes(b"")
    (folder / "notes.weft").write_text("hello\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    (folder / "odd.json").write_text('{"block_in": 7}')
    (folder / "broken.json").write_text("{")
    (folder / "bad.toml").write_text('base = "tiny"\n[core]\nblok_in = [4]\n')
    (folder / "afolder").mkdir()
    (folder / "pair.json").write_text('{"name": "pair", "cores": ["pynq", "pyng"]}')
    np.save(folder / "ragged.npy", np.array([{}], object))
    np.save(folder / "two.npy", np.zeros(2, np.int64))
    np.save(folder / "wide.npy", np.zeros((1, 1, 8, 9), np.float32))
    np.save(folder / "flat.npy", np.zeros((8, 8), np.float32))
    np.save(folder / "last.npy", np.zeros((1, 8, 8, 1), np.float32))
    np.save(folder / "doubles.npy", np.zeros((1, 1, 8, 8)))
    np.save(folder / "three.npy", np.zeros((3, 1, 8, 8), np.float32))
    np.savez(folder / "zeros.npz", zeros=np.zeros((1, 1, 8, 8), np.float32))
    np.save(folder / "zeros.npy", np.zeros((1, 1, 8, 8), np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    prepare(folder)
    return folder


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: words.replace(" ", "_").replace("/", "."))
def test_a_mistake_is_answered_in_one_line(words: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    result = weft(*shlex.split(words), folder=folder)
    assert sorted(folder.rglob("*")) == before
    assert result.returncode in (1, 2), result.stdout
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert MISTAKES[words] in last
    assert result.stderr.count("error: ") == 1
    work = ("compiling conv", "choosing chains", "scheduling ")
    assert not [each for each in work if each in result.stderr]  # it is told before the work, not behind it


def test_a_group_without_a_command_shows_its_help(folder: Path) -> None:
    result = weft("board", folder=folder)
    assert result.returncode in (0, 2)
    assert "doctor" in result.stdout + result.stderr
    assert "error" not in result.stderr
