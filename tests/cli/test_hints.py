"""Hints lead somewhere: commands and options that they name exist, and what they say to do works."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import parser
from weft.cli import app
from weft.cli.commands import PARTS as COMMANDS
from weft.cli.commands import loaded
from weft.cli.errors import run
from weft.cli.output import err

ROOT = Path(weft.__file__).parent
PARTS = ("boards", "cli", "compiler", "explore", "hw", "quantise", "runtime", "sim", "train", "tune", "verify")
OF_OTHER_TOOLS = {"--head", "--address"}
"""Options in hints that are not weft's: ``ray start``."""


def options_by_command() -> dict[str, set[str]]:
    """The options of each command, and of all commands of a group together."""

    def options_of(command: Any) -> set[str]:
        own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))

    return {name: options_of(loaded(name)) for name in COMMANDS}


def hints() -> Iterator[tuple[str, str]]:
    """Where a hint stands, and its text; what is put in while the program runs is left out."""
    paths = [*ROOT.glob("*.py"), *(path for part in PARTS for path in (ROOT / part).rglob("*.py"))]
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                pieces = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", " ".join(map(str, pieces))


def test_commands_and_options_in_hints_exist() -> None:
    commands, seen = options_by_command(), 0
    every = set().union(*commands.values()) | OF_OTHER_TOOLS
    for place, text in hints():
        for command, behind in re.findall(r"weft ([a-z][a-z-]+)([^;,'`]*)", text):
            assert command in commands, f"{place}: {text}"
            assert set(re.findall(r"--[a-z][a-z-]+", behind)) <= commands[command], f"{place}: {text}"
            seen += 1
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= every, f"{place}: {text}"
    assert seen > 5


FLOATS = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 1, 4, 4] x) => (float[1, 3, 4, 4] y) <float[3, 1, 1, 1] w = {0.5, -1.0, 2.0}> { y = Conv(x, w) }"""


def test_a_float_model_becomes_one_that_the_refusing_command_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, examples = tmp_path / "net.onnx", tmp_path / "x.npz"
    onnx.save(parser.parse_model(FLOATS), model)
    np.savez(examples, x=np.random.default_rng(0).normal(size=(8, 1, 4, 4)).astype(np.float32))
    assert run(app, ["run", str(model), "--config", "tiny"], err) == 1
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "weft quantise MODEL --calibrate EXAMPLES" in told
    assert run(app, ["quantise", str(model), "--calibrate", str(examples)], err) == 0
    assert run(app, ["run", str(tmp_path / "net-8bit.onnx"), "--config", "tiny"], err) == 0


SHAPE = """<ir_version: 8, opset_import: ["" : 17]>
net (float[6] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }"""


def test_a_value_is_given_as_the_hint_says() -> None:
    model = parser.parse_model(SHAPE)
    with pytest.raises(weft.WeftError, match="if its value is known") as told:
        weft.compile(model, target="accel")
    (code,) = re.findall(r"in Python: (.*), \.\.\.\)$", str(told.value))
    wanted = "weft.compile(weft.from_onnx(MODEL, values={'shape': VALUE})"
    assert code == wanted
    module = weft.from_onnx(model, values={"shape": np.array([3, 2])})
    (found,) = weft.load(weft.compile(module, target="cpu")).run({"x": np.arange(6, dtype=np.float32)}).values()
    assert found.shape == (3, 2)
