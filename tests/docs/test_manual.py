"""The manual as a site: every page has its place, links lead somewhere, and the reference is made from the code."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import weft
from weft.cli.commands import PARTS
from weft.hw.config import NAMED

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def manual() -> ModuleType:
    """docs/manual.py, as its command sees it."""
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location("manual", DOCS / "manual.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def folder(manual: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manual")
    manual.write_pages(folder)
    return folder


def test_every_page_has_one_place_in_the_reading_order(manual: ModuleType, folder: Path) -> None:
    listed = manual.listed()
    assert len(listed) == len(set(listed))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} == {*listed, "index.md"}


def test_all_links_lead_to_pages_and_pictures(folder: Path) -> None:
    """Sources are not part of the site: links to them have become names."""
    links = 0
    for page in folder.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
                links += 1
    assert links > 150


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("[a](graph.md#operators)", "docs/passes.md", "[a](graph.md#operators)"),
        ("[a](docs/cpu.md)", "README.md", "[a](cpu.md)"),
        ("[a](tutorials/index.md)", "docs/passes.md", "[a](tutorials/index.md)"),
        ("![a](../pictures/core.svg)", "docs/tutorials/01-core.md", "![a](../pictures/core.svg)"),
        ("[a](../examples/digits/README.md)", "docs/gradients.md", "a (`examples/digits/README.md`)"),
        ("[a](https://example.org/x)", "docs/passes.md", "[a](https://example.org/x)"),
        ("[a](../../README.md#use)", "docs/tutorials/01-core.md", "[a](../index.md#use)"),
    ],
)
def test_a_link_of_a_page_becomes_one_of_the_site(manual: ModuleType, link: str, page: str, expected: str) -> None:
    home = {f"docs/{each}": each for each in manual.in_docs()} | {
        source: name for name, source in manual.COPIED.items()
    }
    assert manual.rewritten(link, home[page], home) == expected


def test_the_reference_has_all_commands_names_configurations_and_errors(folder: Path) -> None:
    text = {path.stem: path.read_text() for path in (folder / "reference").glob("*.md")}
    assert all(f"\n## weft {name}\n" in text["commands"] for name in PARTS)
    assert "| `--device, -d` |" in text["commands"]
    values = [name for name in weft.__all__ if name not in ("__version__", "operators", "quantise", "train")]
    assert all(f"\n## weft.{name}\n" in text["python"] for name in values)
    assert all(f"`{name}`" in text["configurations"] for name in NAMED)
    assert "| `bus_bits` | 64 |" in text["configurations"]
    assert all(f"\n## {target}\n" in text["targets"] for target in ("accel", "cpu", "opencl", "cuda"))
    assert "\n## tensorize\n" in text["primitives"]
    assert "| `VerifyError` |" in text["errors"]
    assert " at 0x" not in "".join(text.values())


def test_lists_are_apart_from_the_text_above_but_not_inside_code(manual: ModuleType) -> None:
    assert manual._lists_apart("text\n- a\n- b") == "text\n\n- a\n- b\n"
    assert manual._lists_apart("```\ntext\n- a\n```") == "```\ntext\n- a\n```\n"
