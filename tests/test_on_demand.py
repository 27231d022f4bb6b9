"""What is imported when: a name of ``weft`` when it is first used, a command's part when it is called."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import weft
from typer.core import TyperCommand
from weft.cli import app
from weft.cli.commands import PARTS, loaded
from weft.cli.console import PlainConsole
from weft.cli.errors import run

from tests.cli.test_mistakes import MISTAKES, folder

NEED_THE_MODEL = {
    words for words, answer in MISTAKES.items()
    if any(part in answer for part in ("input 'image'", "its inputs: ", "but examples for", "its outputs: "))
    or "is an empty file" in answer
    or words in ("compile text.onnx", "shapes text.onnx", "evaluate digits.onnx three.npy --labels two.npy")
    or words in ("tune text.onnx", "tune text.onnx --target cpu")
    or words in ("compile cut.onnx", "compile m.pt", "compile m.safetensors", "run picture.png")
    or words in ("run digits.onnx --shape N=1", "run digits.onnx -i flat.npy", "run digits.onnx -i last.npy")
    or words == "compile digits.onnx --pass none"  # it takes the passes to know which there are
}  # fmt: skip
"""Mistakes that only who has read the model can see."""

DESCRIBE_HARDWARE = {"hw", "synth", "test-hw", "board", "explore"}
"""Commands whose options follow from the description of the hardware."""

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"

__all__ = ["folder"]

HEAVY = ("amaranth", "onnx", "pydantic", "numpy", "llvmlite", "ml_dtypes", "optuna", "ray")

COUNT = """
import json, sys
{}
own = [name for name in sys.modules if name == "weft" or name.startswith("weft.")]
print(json.dumps([own, [name for name in {} if name in sys.modules]]))
"""


def imported(
    script: str, *arguments: str, folder: Path | None = None, cache: Path | None = None
) -> tuple[list[str], list[str]]:
    """The modules of weft, and those of ``HEAVY``, that a script imports in a new process."""
    command = [sys.executable, "-c", COUNT.format(script, HEAVY), *arguments]
    environment = os.environ | ({} if cache is None else {"WEFT_CACHE": str(cache)})
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    own, others = json.loads(done.stdout.splitlines()[-1])
    return own, others


def test_importing_weft_imports_nothing_else() -> None:
    assert imported("import weft") == (["weft"], [])


def test_what_code_says_for_type_checkers_is_what_names_are() -> None:
    """The names below ``if TYPE_CHECKING`` and the table that is used: the same names from the same parts."""
    tree = ast.parse(Path(weft.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    declared = {
        alias.name: f"{each.module or ''}.{alias.name}".strip(".") if alias.name in weft._PACKAGES else each.module
        for each in block.body if isinstance(each, ast.ImportFrom) for alias in each.names
    }  # fmt: skip
    assert declared == {**weft._MODULES, **weft._PACKAGES}
    assert sorted({*declared, "__version__"}) == sorted(weft.__all__)


@pytest.mark.parametrize("name", weft.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(weft, name) is not None
    assert name in dir(weft)


def test_parts_are_there_as_attributes() -> None:
    own, _ = imported("import weft\nassert weft.hw.__name__ == 'weft.hw'")
    assert "weft.compiler" not in own
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nothing'"):
        _ = weft.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("script", "most", "allowed"),
    [
        ("import weft; weft.named_config('pynq')", 10, {"numpy"}),
        ("import weft; weft.__version__", 2, set()),
        ("import weft; weft.load", 46, {"numpy", "ml_dtypes"}),
        ("import weft.compiler.targets.cpu.target, weft.runtime.host", 60, {"numpy", "ml_dtypes", "llvmlite"}),
    ],
)
def test_parts_load_what_they_need(script: str, most: int, allowed: set[str]) -> None:
    own, others = imported(script)
    assert len(own) <= most, own
    assert set(others) <= allowed


COMMAND = """
import sys
from weft.cli import main
sys.argv = ["weft", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
"""


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["run", "missing.onnx"], ["tune", "missing.onnx"], ["nothing"]],
)
def test_what_needs_no_command_imports_none(words: list[str]) -> None:
    own, others = imported(COMMAND, *words)
    assert len(own) <= 18, own
    assert set(others) <= {"pydantic"}  # typer's, where it is installed


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["run"], {"weft.quantise", "weft.verify", "weft.compiler.operators", "weft.compiler.passes", "weft.sim.rtl"}),
        (["compile", "-o", "again.weft"], {"weft.quantise", "weft.verify", "weft.compiler.passes", "weft.hw.isa"}),
    ],
)
def test_a_model_that_was_compiled_before_needs_no_compiler(
    words: list[str], unused: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    command, *options = words
    own, _ = imported(COMMAND, command, str(DIGITS), *options)
    assert "weft.compiler.passes" in own  # the first time
    own, others = imported(COMMAND, command, str(DIGITS), *options)
    assert not unused & set(own), own
    assert not {"onnx", "amaranth"} & set(others)
    assert command == "run" or "llvmlite" not in others


def test_a_compilation_imports_what_it_needs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    script = "import weft; weft.compile(sys.argv[1], 'tiny')"
    own, others = imported(script, str(DIGITS))
    assert not {"weft.compiler.frontends.litert.source", "weft.compiler.passes.diff"} & set(own)
    assert "amaranth" not in others  # though chains were measured
    shutil.rmtree(tmp_path / "cache" / "models")
    own, others = imported(script, str(DIGITS))
    assert "weft.compiler.passes" in own
    assert not {"amaranth", "weft.sim.timing"} & {*own, *others}  # now all are known
    imported(f"{script}; assert 'importlib.metadata' not in sys.modules", str(DIGITS))  # nobody adds parts


SEEN_EARLY = [words for words in MISTAKES if words not in NEED_THE_MODEL]
FIRST_OF_COMMAND = {words.split()[0]: words for words in reversed(SEEN_EARLY)}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=[] if FIRST_OF_COMMAND[words.split()[0]] == words else [pytest.mark.long])
        for words in SEEN_EARLY
    ],
)
def test_a_mistake_is_found_before_what_takes_long_is_imported(words: str, folder: Path, tmp_path: Path) -> None:
    own, others = imported(COMMAND, *shlex.split(words), folder=folder, cache=tmp_path)
    assert not {"weft.compiler.passes", "weft.compiler.frontends", "weft.quantise.plan"} & set(own)
    assert "onnx" not in others
    if words.split()[0] not in DESCRIBE_HARDWARE:
        assert "amaranth" not in others


def test_a_command_imports_its_own_part_alone() -> None:
    own, others = imported(COMMAND, "hw", "--help")
    assert not [name for name in own if name.startswith(("weft.compiler", "weft.explore", "weft.boards"))]
    assert "onnx" not in others


@pytest.mark.parametrize("name", PARTS)
def test_commands_are_what_their_list_says(name: str) -> None:
    known, command = TyperCommand(name, help=PARTS[name].help), loaded(name)
    assert command.name == name
    assert command.get_short_help_str(1000) == known.get_short_help_str(1000)
    arguments = [each for each in getattr(command, "params", []) if each.param_type_name == "argument"]
    if PARTS[name].reads:
        assert arguments[0].required
        assert arguments[0].nargs == 1


def test_every_command_is_in_the_list() -> None:
    for part in PARTS.values():
        for module in part.modules:
            import_module(f"weft.cli.{module}")
    registered = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    groups = {each.typer_instance.info.name for each in app.registered_groups if each.typer_instance}
    assert registered | groups == set(PARTS)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "missing.onnx"], "'missing.onnx' cannot be read: No such file or directory"),
        (["profile", "missing.onnx", "--target", "cpu"], "'missing.onnx' cannot be read: No such file or directory"),
        (["run", "missing.weft"], "cannot read missing.weft: No such file or directory"),
        (["disasm", "missing"], "cannot read missing: No such file or directory"),
        (["replay", "missing"], "cannot read missing: No such file or directory"),
    ],
)
def test_a_file_that_is_not_there_is_told_at_once(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, words, PlainConsole(stderr=True)) == 1
    assert text in capsys.readouterr().err
