"""An option that a target, a device or a file does not have is refused in one line, with what there is instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.targets.errors import CompileError
from weft.runtime.errors import DeviceError

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("refusals") / "m.weft"
    model = weft.compile(DIGITS, target="cpu")
    assert isinstance(model, weft.CompiledModel)
    weft.save(model, path)
    return path


def test_options_of_another_target() -> None:
    with pytest.raises(
        CompileError,
        match=r"'cpu' has no option 'config'; hint: its options: threads, tuned, processor, integers, activations$",
    ):
        weft.compile(DIGITS, "wide", target="cpu")
    with pytest.raises(CompileError, match="'accel' has no option 'tf32'; hint: its options: config, dram, tuned"):
        weft.compile(DIGITS, "wide", tf32=True)
    with pytest.raises(
        CompileError, match=r"'accel' has no option 'shape'; hint: did you mean shapes\? Else its options"
    ):
        weft.compile(DIGITS, "wide", shape={"image": (1, 1, 8, 8)})  # type: ignore[call-overload]


@pytest.mark.parametrize("device", ["rtl", "null"])
def test_a_device_for_a_model_that_needs_none(artifact: Path, device: str) -> None:
    message = f"nothing of 'digits' runs on a core, so device '{device}' has nothing to do; hint: load it without"
    model = weft.compile(DIGITS, target="cpu")
    core = weft.open_device(device, weft.TINY)
    for source in (model, artifact):
        for each in (device, core):
            with pytest.raises(DeviceError, match=message):
                weft.load(source, each)


MODEL, ARTIFACT = "MODEL", "ARTIFACT"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", MODEL, "--target", "cpu", "--trace", "t.json"),
         "--trace draws cycles of a core, but target 'cpu' makes none; hint: leave out --target"),
        (("run", MODEL, "--device", "null", "--trace", "t.json"),
         "--trace draws cycles of a core, but device 'null' has none; hint: choose a device with time, such as 'fsim'"),
        (("run", ARTIFACT, "--kernels", "reference"), "--kernels is for models: ARTIFACT is compiled already"),
        (("run", MODEL, "--kernels", "reference"),
         f"{str(DIGITS)!r}: no LiteRT file: such a file has TFL3 from its fifth byte on; hint: only LiteRT files have"),
        (("compile", MODEL, "--kernels", "reference", "--calibrate", ARTIFACT),
         "--kernels is for LiteRT files that are in 8 bits already; hint: leave out --calibrate"),
        (("run", ARTIFACT, "--config", "wide"), "--config is an option of compilation: ARTIFACT is compiled already"),
        (("run", ARTIFACT, "--threads", "2"), "--threads is an option of compilation: ARTIFACT is compiled already"),
        (("profile", ARTIFACT, "--shape", "n=2"), "--shape is for models: ARTIFACT is compiled already"),
        (("run", ARTIFACT, "--target", "cpu"), "--target is for models: ARTIFACT is compiled"),
        (("run", MODEL, "--target", "cpu", "--device", "rtl"),
         "--device rtl is of a core, but target 'cpu' is for this machine's processor; hint: leave one of them out"),
        (("profile", MODEL, "--target", "cpu", "--device", "rtl"), "--device rtl is of a core, but target 'cpu' is"),
        (("evaluate", MODEL, ARTIFACT, "--target", "cpu", "--device", "0"), "--device 0 is of a GPU, but target 'cpu'"),
        (("run", MODEL, "--device", "0"), "--device 0 is of a GPU, but target 'accel' is for a core; hint: leave one"),
        (("run", MODEL, "--target", "opencl", "--device", "fsim"), "--device fsim is of a core, but target 'opencl'"),
        (("run", MODEL, "--threads", "0"), "threads is 0, but must be 1..256"),
        (("run", MODEL, "--input", ARTIFACT), "ARTIFACT is a zip, but no .npz file: its member 'manifest.json' is no"),
        (("run", MODEL, "--target", "cpu", "--config", "wide"),
         "target 'cpu' has no option --config; hint: its options: --threads, --tuned, --processor, --integers"),
        (("passes", "--target", "cpu", "--vthreads", "4"),
         "target 'cpu' has no option --vthreads; hint: its options: --threads, --tuned, --processor, --integers"),
        (("compile", MODEL, "--gpu", "generic"),
         "target 'accel' has no option --gpu; hint: its options: --config, --dram, --tuned, --vthreads, --stages"),
        (("compile", "."), "'.': a folder, where a file is wanted"),
        (("profile", "/"), "'/': a folder, where a file is wanted"),
        (("run", MODEL, "--target", "gpu"), "there is no target 'gpu'; hint: known: accel, cpu"),
        (("compare", "cpu", "gpu", MODEL), "there is nothing called 'gpu' to compare; hint: choose reference, accel"),
    ],
)  # fmt: skip
def test_the_command(
    words: tuple[str, ...], message: str, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    places = {MODEL: str(DIGITS), ARTIFACT: str(artifact)}
    assert run(app, [places.get(word, word) for word in words], err) == 1
    printed = capsys.readouterr()
    (line,) = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    assert f"error: {message.replace(ARTIFACT, str(artifact))}" in line
    assert not printed.out
    assert not list(tmp_path.iterdir())
