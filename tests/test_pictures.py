"""The pictures of the manual are as the code draws them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def test_pictures_are_as_their_command_draws_them() -> None:
    command = [sys.executable, str(DOCS / "pictures.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("path", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_stand_on_a_page(path: Path) -> None:
    assert any(f"pictures/{path.name})" in page.read_text() for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", ["architecture", "core", "isa", "convolution", "train-memory"])
def test_drawings_are_on_a_white_sheet(name: str) -> None:
    root = ElementTree.parse(DOCS / "pictures" / f"{name}.svg").getroot()
    sheet = next(item for item in root if item.tag.endswith("rect"))
    assert sheet.get("fill") == "#ffffff"
    assert float(sheet.get("width", 0)) + 1 == float(root.get("width", 0))
