"""The manual as a site: every page has its place, links lead somewhere, and the reference is made from the code."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import weft
from weft.cli.commands import PARTS
from weft.compiler.operators import numerics
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.cpu.intrinsics import KINDS
from weft.compiler.tensor import Schedule
from weft.hw.config import NAMED
from weft.hw.isa import Opcode, instruction_layout

from tests.browser import shown_by_browser

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


def test_every_field_pass_and_primitive_is_explained(manual: ModuleType, folder: Path) -> None:
    """The reference is made of the code: what the code does not say would be an empty cell."""
    text = {path.stem: path.read_text() for path in (folder / "reference").glob("*.md")}
    for page in ("instructions", "configurations"):
        assert not [line for line in text[page].splitlines() if re.search(r"^\| `\w.*\| *\|$", line)], page
    assert not re.findall(r"^\| `([\w-]+)` \|  \|", text["targets"], flags=re.M)
    primitives = sys.modules["reference_primitives"]
    methods = {name for name, member in vars(Schedule).items() if inspect.isfunction(member) and name[0] != "_"}
    assert methods == {*primitives.EXAMPLES, *primitives.ASKING}
    for name in primitives.EXAMPLES:
        before, after = primitives.shown(name)
        assert before != after, name
        assert before in text["primitives"]
        assert after in text["primitives"]


def test_the_bits_of_instructions_are_those_of_the_layouts(folder: Path) -> None:
    """Against Amaranth's layouts, which the RTL decodes by."""
    text = (folder / "reference" / "instructions.md").read_text()
    for opcode in Opcode:
        assert (folder / "reference" / f"instruction-{opcode.name.lower()}.svg").exists()
        section = text.split(f"\n## {opcode.name}\n")[1].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        for number, config in enumerate(NAMED.values(), start=1):
            shown = {row[0].strip("`"): row[number].removesuffix(", signed") for row in rows if row[number]}
            layout = instruction_layout(config, opcode)
            fields = {name: f"{each.offset + each.width - 1}:{each.offset}" for name, each in layout if each.width}
            assert shown == fields, (opcode, config.name)


def test_intrinsics_and_messages_of_errors_are_in_the_reference(folder: Path) -> None:
    text = {path.stem: path.read_text() for path in (folder / "reference").glob("*.md")}
    for config in NAMED.values():
        for name in intrinsics(config):
            assert re.search(rf"^### {name}( \(|$)", text["intrinsics"], flags=re.M), name
    for kind in KINDS:
        assert f"\n### {kind}_" in text["intrinsics"]
    assert "### InputError" in text["errors"]
    assert "| the model has no input \\{name} | its inputs: \\{...} |" in text["errors"]
    assert text["errors"].count("\n| ") > 400


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_opens_with_what_it_is_for_and_an_example(page: Path) -> None:
    """In short sentences, before its first rule."""
    opening = re.split(r"^## ", page.read_text().split("\n", 1)[1], maxsplit=1, flags=re.M)[0]
    assert re.search(r"^```|^    \S|!\[", opening, flags=re.M), "no example and no picture"
    text = re.sub(r"```.*?```", "", opening, flags=re.S)
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    prose = [block for block in blocks if not block.startswith(("    ", "|", "![", "- "))]
    first = next(block for block in blocks if not block.startswith("!["))
    assert prose[:1] == [first], "it begins with something else than words"
    longest = max(re.split(r"[.:;?!]\s", prose[0]), key=lambda sentence: len(sentence.split()))
    assert len(longest.split()) <= 30, longest


def test_the_first_example_of_the_integer_contract_is_right() -> None:
    text = (DOCS / "integers.md").read_text().split("## Numbers")[0]
    zero, scale = 3, 0.02 * 0.005
    multiplier, shift = numerics.quantise_multiplier(np.array([scale / 0.05]))
    bias = np.array([round(0.3 / scale) - zero * 40], np.int32)
    limits = {"zero_point": -5, "low": -128, "high": 127, "left_shift": 0, "out": "int8"}
    found = numerics.requantise(np.full((1, 1, 1, 1), 20000, np.int32), bias, multiplier, shift, **limits)
    real = (20000 - zero * 40) * scale + 0.3
    shown = (20000 + int(bias[0]), f"{multiplier[0]} >> {shift[0]}", int(found.item()) + 5, int(found.item()),
             f"{real:.3f}", f"{real / 0.05 - 5:.2f}")  # fmt: skip
    assert shown == (22880, "8589935 >> 32", 46, 41, "2.288", "40.76")
    assert all(str(each) in text for each in shown)


def test_lists_are_apart_from_the_text_above_but_not_inside_code(manual: ModuleType) -> None:
    assert manual._lists_apart("text\n- a\n- b") == "text\n\n- a\n- b\n"
    assert manual._lists_apart("```\ntext\n- a\n```") == "```\ntext\n- a\n```\n"


def test_a_link_that_shows_the_name_of_a_file_shows_the_title_of_its_page(manual: ModuleType) -> None:
    assert manual.titled("see [isa.md](../isa.md#a)") == "see [The instruction set](../isa.md#a)"
    assert manual.titled("[`01-core.md`](01-core.md)") == "[1. The core in ten minutes](01-core.md)"
    for other in ("[this](isa.md)", "[none.md](none.md)", "isa.md", "[isa.md]"):
        assert manual.titled(other) == other


SPEAKER = 'addEventListener("message", event => postMessage(["heard", event.data, self !== top]));'


def test_the_search_of_a_site_that_is_opened_as_files_has_a_worker(tmp_path: Path) -> None:
    """Browsers start no worker for such pages, so a frame runs the script of the search."""
    (tmp_path / "speaker.js").write_text(SPEAKER)
    shim = (DOCS / "theme" / "iframe-worker.js").as_uri()
    probe = f"""
      const worker = new Worker("{(tmp_path / "speaker.js").as_uri()}"), heard = [];
      const all = new Promise(
        done => worker.addEventListener("message", event => heard.push(event.data) === 2 && done()));
      worker.postMessage({{query: "tensorize"}});
      worker.postMessage(2);
      await all;
      return heard;
    """
    page = f'<html><head><script src="{shim}"></script></head><body></body></html>'
    assert shown_by_browser(page, probe) == [["heard", {"query": "tensorize"}, True], ["heard", 2, True]]


@pytest.mark.parametrize(
    ("element", "strangers"),
    [
        ('<script src="https://example.org/a.js"></script>', {"//example.org/a.js"}),
        ("<script src=//example.org/a.js></script>", {"//example.org/a.js"}),
        ('<link rel="stylesheet" href="http://example.org/a.css">', {"//example.org/a.css"}),
        ('<script src="../iframe-worker.js"></script><a href="https://example.org">read</a>', set()),
    ],
)
def test_pages_fetch_nothing_from_elsewhere(
    manual: ModuleType, tmp_path: Path, element: str, strangers: set[str]
) -> None:
    (tmp_path / "page.html").write_text(f"<html>{element}</html>")
    assert manual.fetched(tmp_path) == strangers
