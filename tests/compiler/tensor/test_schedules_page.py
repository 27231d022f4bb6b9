"""docs/schedules.md: its examples run, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"


def test_the_examples_print_what_the_page_says() -> None:
    names: dict[str, Any] = {}
    printed = ""
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 8
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(text, names)
            printed = output.getvalue().strip()
        else:
            assert printed == text.strip()
