"""A front end that an installed package adds reads its files for every command."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.frontends import ModelError, read

from .conftest import FOLDER, Command

FILE = FOLDER / "sums_front_end.py"


@pytest.fixture
def sums(installed: Path, tmp_path: Path) -> Path:
    points = next(installed.glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[weft.frontends]\nsums = sums_front_end:open_model\n")
    path = tmp_path / "two.sums"
    path.write_text("a + b\nb + b + c\n")
    return path


def test_a_file_of_its_kind_is_compiled_and_run(sums: Path) -> None:
    loaded = weft.load(weft.compile(sums, target="cpu"))
    inputs = {name: np.full(8, value, np.float32) for name, value in (("a", 1), ("b", 2), ("c", 4))}
    made = loaded.run(inputs)
    assert (made["line1"][0], made["line2"][0]) == (3, 8)
    assert read(sums).name == "two"


def test_commands_take_it(sums: Path, weft_command: Command, tmp_path: Path) -> None:
    done = weft_command("compile", sums, "--target", "cpu", "-o", tmp_path / "two.weft")
    assert done.status == 0, done.err
    sums.write_text("a + 3\n")
    refused = weft_command("compile", sums, "--target", "cpu")
    assert refused.status != 0
    assert "'3' is no name" in refused.err


def test_a_front_end_that_cannot_be_loaded_is_named(sums: Path, installed: Path) -> None:
    points = next(installed.glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[weft.frontends]\nbroken = sums_front_end:nothing\n")
    with pytest.raises(ModelError, match="front end 'broken'"):
        weft.compile(sums, target="cpu")


def test_what_nobody_reads_is_refused_with_what_can_be_given() -> None:
    with pytest.raises(ModelError, match="a list is no model that can be read"):
        weft.compile([1, 2], target="cpu")


def test_the_manual_quotes_this_very_file() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    (quoted,) = [code for code in re.findall(r"```python\n(.*?)```", manual, re.DOTALL) if "class SumsSource" in code]
    assert quoted in FILE.read_text()
