"""``weft verify`` and ``weft compile --certify``: what they print, and their status."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest
import weft
from typer.testing import CliRunner
from weft.cli import app
from weft.compiler.model import CompiledModel
from weft.hw.isa import Vector
from weft.hw.programs import assemble, disassemble
from weft.runtime.artifact import load, save
from weft.verify import VerifyError

from tests.verify.planted import with_program

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled with a certificate."""
    path = tmp_path_factory.mktemp("verify") / "digits.weft"
    result = CliRunner().invoke(app, ["compile", str(DIGITS), "-c", "tiny", "--certify", "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "digits: proved for all inputs: 1 outputs of the packed graph and" in result.output
    assert "trusted: the host's kernels" in result.output
    return path


def test_an_artifact_is_proved_by_its_model(artifact: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(artifact), "--model", str(DIGITS), "--seed", "1f", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["proved"] is True
    assert record["outputs"] == 1
    assert record["alarms"] == []
    assert int(record["seed"], 16) == 0x1F


def test_without_its_model_it_says_what_is_left_open(artifact: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(artifact)])
    assert result.exit_code == 0, result.output
    assert "trusted: that the packed graph is the model's" in result.output


@pytest.mark.parametrize("option", [("--integers", "all"), ("--kernels", "default"), ("--signature", "serve")])
def test_how_a_model_is_read_is_said_of_a_model(artifact: Path, option: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["verify", str(artifact), *option])
    assert result.exit_code == 2
    assert "it says how a model is read, but none is given" in " ".join(result.stderr.replace("│", " ").split())
    with pytest.raises(VerifyError, match="integers says how a model is compiled, but none is given; hint: give its"):
        weft.certify(artifact, integers="all")


def test_a_wrong_program_has_status_1(artifact: Path, tmp_path: Path) -> None:
    model = load(artifact)
    instructions = disassemble(model.config, model.programs[0].program)
    place = next(n for n, each in enumerate(instructions) if isinstance(each, Vector) and each.high == 127)
    changed = Vector(**{**vars(instructions[place]), "high": 126})
    wrong = with_program(model, 0, assemble(model.config, [*instructions[:place], changed, *instructions[place + 1 :]]))
    assert isinstance(wrong, CompiledModel)
    save(wrong, tmp_path / "wrong.weft")
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "wrong.weft"), "-m", str(DIGITS)])
    assert result.exit_code == 1
    assert "not proved: program: layer " in result.output
    assert "digits: not proved (seed " in result.output


def test_a_model_for_a_processor_has_no_programs_to_prove(tmp_path: Path) -> None:
    weft.save(weft.compile(DIGITS, target="cpu"), tmp_path / "cpu.weft")
    for model in ([], ["-m", str(DIGITS)], ["-m", str(other_model(tmp_path))]):
        result = CliRunner().invoke(app, ["verify", str(tmp_path / "cpu.weft"), *model])
        assert result.exit_code != 0
        assert "runs on a core" in str(result.exception)


def test_another_model_is_named(artifact: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(artifact), "-m", str(other_model(tmp_path))])
    assert result.exit_code != 0
    assert "made of another model: its inputs are image, and those of the model a, b" in str(result.exception)


def other_model(folder: Path) -> Path:
    """An addition, in floats."""
    path = folder / "sum.onnx"
    onnx.save(onnx.parser.parse_model(SUM), path)
    return path


SUM = """<ir_version: 8, opset_import: ["" : 17]> sum (float[N] a, float[N] b) => (float[N] y) { y = Add (a, b) }"""


def test_a_seed_that_is_no_number_is_refused(artifact: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(artifact), "--seed", "xyz"])
    assert result.exit_code == 2
