"""The tutorials run from top to bottom in an empty folder, print what they say, and draw what they show."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tutorial_pages import blocks, drawn, run

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md"))


def run_page(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docs" / "tutorial_pages.py"), "--check", name]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    done = run_page(page.stem, tmp_path)
    assert done.returncode == 0, done.stderr


OF_TESTS = ("hypothesis", "pytest")
"""What only a developer has installed."""


def test_pages_need_nothing_that_only_tests_need() -> None:
    """Pages use the tests' benches, which must not bring the tests' own packages with them."""
    names: set[str] = set()
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.kind == "python":
                found = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.ImportFrom)]
                names |= {node.module for node in found if node.module and node.module.startswith("tests.")}
    assert names
    code = f"import sys; sys.modules.update(dict.fromkeys({OF_TESTS})); import {', '.join(sorted(names))}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_index_has_every_page_in_order() -> None:
    text = (ROOT / "docs" / "tutorials" / "index.md").read_text()
    places = [text.find(f"]({page.name})") for page in PAGES]
    assert -1 not in places
    assert places == sorted(places)


RIGHT = """
```python
number = 2
print("one", number)
```

```text
one ...
```

```python
# mine.py is written down
print("three")
```

```console
$ python mine.py && echo four
three
four
```
"""


def test_a_page_that_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [block.kind for block in blocks(RIGHT)] == ["python", "text", "python", "console"]
    assert run(RIGHT, "right") == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("one ...", "two ...", "right.md, line 8: the page says"),
        ("number = 2", "number = 1 / 0", "right.md, line 3: Traceback"),
        ("$ python mine.py", "$ python gone.py", "right.md, line 17: $ python gone.py"),
        ("\nfour", "\nfive", "exit status 0; it prints"),
    ],
)
def test_a_page_that_is_wrong(
    old: str, new: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert fault in run(RIGHT.replace(old, new), "right")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    """A picture, then what the reader does, needs, and how long it takes; and the picture is drawn by its code."""
    text = page.read_text()
    head = text[: text.index("\n## ")]
    places = [head.find(part) for part in ("![", "- **You do:**", "- **You need:**", "- **It takes:**")]
    assert -1 not in places
    assert places == sorted(places)
    assert drawn(text)
