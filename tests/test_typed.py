"""A user's script is checked against weft's own types, as mypy finds them in an installed package."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GOOD = """
import weft

model = weft.compile("model.onnx", "pynq")
reveal_type(model)
reveal_type(weft.load("model.weft", device="fsim").cycles)
"""

BAD = """
import weft

config: int = weft.named_config("pynq")
weft.named_config(7)
weft.compile("model.onnx", target="cpu", treads=2)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter in whose site-packages weft lies beside what it needs.

    mypy reads types there only of packages that say they have them, unlike on MYPYPATH.
    """
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder / "venv", symlinks=True)
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (packages / "weft").symlink_to(ROOT / "weft")
    (packages / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder / "venv" / "bin" / "python"


def mypy(python: Path, script: Path) -> str:
    options = [
        "--strict",
        "--python-executable",
        str(python),
        "--config-file",
        "",
        "--cache-dir",
        str(ROOT / "build" / "mypy-user"),
    ]
    command = [sys.executable, "-m", "mypy", *options, str(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=script.parent, check=False).stdout


def test_mypy_finds_the_types_of_an_installed_weft(python: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD)
    text = mypy(python, good)
    assert "Success: no issues found" in text, text
    assert "weft.compiler.model.CompiledModel" in text
    assert 'Revealed type is "int | None"' in text.replace("Union[builtins.int, None]", "int | None").replace(
        "builtins.int", "int"
    )
    text = mypy(python, bad)
    assert 'expression has type "CoreConfig", variable has type "int"' in text
    assert 'Unexpected keyword argument "treads" for "compile"' in text, text
    assert 'Argument 1 to "named_config" has incompatible type "int"; expected "str"' in text


def test_the_marker_is_packaged() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert data["weft"] == ["py.typed"]
    assert (ROOT / "weft" / "py.typed").read_bytes() == b""
