"""What README and the manual name exists: pages and their headings, files, modules, functions, commands and options."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
import weft
from weft.cli.app import app
from weft.cli.commands import CommandsOnDemand, loaded

ROOT = Path(__file__).parents[1]
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in BESIDE), *sorted((ROOT / "docs").rglob("*.md"))]
SUFFIXES = "py|md|cpp|h|svg|sh|onnx|toml|txt|json|v"
ENTRY_POINT_GROUPS = {"weft.operators", "weft.passes", "weft.targets", "weft.devices", "weft.frontends"}
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@cache
def files() -> frozenset[str]:
    """Every file of the project, and every folder with a slash behind, relative to the root."""
    paths = [
        path
        for top in ROOT.iterdir()
        if top.name not in ("build", "dist", ".git", ".venv") and not top.name.endswith(("_cache", ".egg-info"))
        for path in ([top, *top.rglob("*")] if top.is_dir() else [top])
        if "__pycache__" not in path.parts
    ]
    return frozenset(path.relative_to(ROOT).as_posix() + "/" * path.is_dir() for path in paths)


@cache
def sources() -> str:
    """The text of all sources of the project."""
    kinds = (".py", ".cpp", ".h", ".toml")
    names = sorted(name for name in files() if name.endswith(kinds) and name != "tests/test_docs.py")
    return "\n".join((ROOT / name).read_text() for name in names)


@cache
def words() -> frozenset[str]:
    """Every identifier in the sources."""
    return frozenset(re.findall(r"\w+", sources()))


def code_spans(text: str) -> list[str]:
    """What stands between single backticks, outside of fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def heading_anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_links(text: str, folder: Path) -> list[str]:
    """Relative links to a file, or to a heading in one, that is not there."""
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = folder / name
        page = target.read_text() if anchor and name and target.exists() else text
        if (name and not target.exists()) or (anchor and anchor not in heading_anchors(page)):
            missing.append(link)
    return missing


def missing_files(text: str) -> list[str]:
    """File and folder names in backticks that end no path of the project. A file that a run writes has its name in a
    source instead."""
    names = {span for span in code_spans(text) if re.fullmatch(rf"[\w./-]+(\.({SUFFIXES})|/)", span)}
    absent = [name for name in names if not any(path == name or path.endswith(f"/{name}") for path in files())]
    return sorted(name for name in absent if name.endswith((".py", "/")) or f'"{Path(name).name}"' not in sources())


def missing_names(text: str) -> list[str]:
    """Dotted names of weft that cannot be imported, and identifiers in backticks that no source has."""
    dotted = set(re.findall(r"(?<![\w/.\"-])weft\.[a-zA-Z_][\w.]*\w", text)) - ENTRY_POINT_GROUPS
    missing = [name for name in sorted(dotted) if not can_be_imported(name)]
    for span in code_spans(text):
        match = re.fullmatch(r"(?:[a-z]\w*\.)*(\w+)(?:\(.*\))?", span)
        name = match[1] if match else ""
        if re.search(r"[a-z]_[a-z]|[a-z][A-Z]", name) and name not in words():
            missing.append(span)
    return missing


def missing_imports(text: str) -> list[str]:
    """Names that a line of an example imports from weft, and that are not there."""
    lines = re.findall(r"^ *from (weft[\w.]*) import ([\w, ]+)", text, flags=re.M)
    names = [f"{module}.{name.split()[0]}" for module, names in lines for name in names.split(", ")]
    return [name for name in names if not can_be_imported(name)]


def can_be_imported(name: str) -> bool:
    value: object = weft
    path = "weft"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            value = getattr(value, part) if hasattr(value, part) else import_module(path)
        except ImportError:
            return False
    return True


def commands(text: str) -> Iterator[str]:
    """Lines that call weft, without their comments: in code blocks, and in backticks."""
    blocks = re.findall(r"^(?:    |\$ )((?:\.venv/bin/)?weft .+)$", text, flags=re.M)
    spans = [span for span in code_spans(text) if span.startswith("weft ")]
    for line in (*blocks, *spans):
        yield re.sub(r"\s+#.*", "", line)


# Typer makes all commands anew in each call, a tenth of a second: once a process is enough.
read = cache(loaded)


@cache
def whole_command() -> Any:
    return typer.main.get_command(app)


def faults_of_command(line: str, own_options: Container[str] = ()) -> list[str]:
    """What of a line is no command of weft's, and no option of it or of a target that the page itself adds."""
    command = whole_command()
    _, *arguments = line.split()
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        first = arguments.pop(0)
        if first not in command.commands:
            return [f"{line}: no command {first}"]
        command = read(first) if isinstance(command, CommandsOnDemand) else command.commands[first]
    options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    names = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    return [f"{line}: no option {name}" for name in names if name not in options and name not in own_options]


@PAGE
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    assert missing_links(page.read_text(), page.parent) == []


@PAGE
def test_files_in_backticks_exist(page: Path) -> None:
    assert missing_files(page.read_text()) == []


@PAGE
def test_names_in_backticks_exist(page: Path) -> None:
    assert missing_names(page.read_text()) == []


@PAGE
def test_commands_and_their_options_exist(page: Path) -> None:
    text = page.read_text()
    own_options = {f"--{name.replace('_', '-')}" for name in re.findall(r"^ +(\w+): .*= option\(", text, flags=re.M)}
    assert [fault for line in commands(text) for fault in faults_of_command(line, own_options)] == []


@PAGE
def test_scripts_of_printed_commands_and_their_options_exist(page: Path) -> None:
    own = set(re.findall(r"^```python\n# (\w+\.py)\b", page.read_text(), flags=re.M))  # a block that becomes a file
    for script, rest in re.findall(r"python ([\w/]+\.py)([^#`\n]*)", page.read_text()):
        if script in own:
            continue
        assert script in files()
        text = (ROOT / script).read_text()
        assert [option for option in re.findall(r"--[\w-]+", rest) if f'"{option}"' not in text] == []


@PAGE
def test_names_that_examples_import_exist(page: Path) -> None:
    assert missing_imports(page.read_text()) == []


@PAGE
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), flags=re.M))
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))


def test_architecture_has_a_line_for_every_page() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    pages = {page.name for page in PAGES if page.parent.name == "docs"} - {"architecture.md"}
    assert {page for page in pages if f"\n| [{page}]({page}) | " not in text} == set()


def test_the_manual_has_a_place_for_every_page() -> None:
    """``NAV`` in docs/manual.py is the reading order of the site."""
    text = (ROOT / "docs" / "manual.py").read_text()
    pages = {page.name for page in PAGES if page.parent.name == "docs"}
    assert {page for page in pages if f'"{page}"' not in text} == set()


def test_each_word_of_the_glossary_stands_once_and_on_the_pages_that_it_names() -> None:
    rows = re.findall(r"^\| ([^|`]+) \| .* \| (\[.*\)) \|$", (ROOT / "docs" / "glossary.md").read_text(), flags=re.M)
    words = [word for word, _ in rows]
    assert len(words) == len(set(words)) > 50
    for word, pages in rows:
        for page in re.findall(r"\]\(([^)#]+)", pages):
            assert word.lower() in (ROOT / "docs" / page).read_text().lower(), f"{page} has no {word!r}"


def test_what_does_not_exist_is_reported(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Here it is\n")
    text = "[a](page.md#here-it-is) [b](page.md#there) [c](gone.md) `hw/gone.py` `gone_name` `weft.gone` `weft.load`\n"
    assert missing_links(text, tmp_path) == ["page.md#there", "gone.md"]
    assert missing_files(text) == ["hw/gone.py"]
    assert missing_names(text) == ["weft.gone", "gone_name"]
    assert missing_imports("from weft.compiler import tensor as t, gone\n") == ["weft.compiler.gone"]
    assert list(commands("    weft run m.onnx --gone  # so\n`weft gone`")) == ["weft run m.onnx --gone", "weft gone"]
    assert faults_of_command("weft run m.onnx --gone") == ["weft run m.onnx --gone: no option --gone"]
    assert faults_of_command("weft gone") == ["weft gone: no command gone"]
    assert faults_of_command("weft board gone") == ["weft board gone: no command gone"]
    assert faults_of_command("weft board list --gone") == ["weft board list --gone: no option --gone"]
