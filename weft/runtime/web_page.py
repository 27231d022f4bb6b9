"""A web page that is one file: a frame, its style, its script and its data, with nothing fetched from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any


def web_page(
    parts: Path, title: str, data: Mapping[str, Any], connect: str = "'none'", scripts: Sequence[str] = ("page.js",)
) -> str:
    """The page of ``page.html``, ``page.css`` and the ``scripts``, joined in this order, in a folder.

    ``data``: documents for JSON, by the marks of the frame that they replace. ``connect``: what the script may fetch,
    in the words of a content security policy.
    """
    frame, style, *codes = ((parts / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", *scripts))
    script = "\n".join(codes)
    # A "<" in the data could end the script that holds it.
    texts = {name: json.dumps(each, separators=(",", ":")).replace("<", "\\u003c") for name, each in data.items()}
    marks = {"CONNECT": connect, "TITLE": escape(title), "STYLE": style, "SCRIPT": script, **texts}
    # In one go: what stands between two "@" in a text is none of the frame's marks.
    return re.sub(r"@([A-Z]+)@", lambda found: marks[found[1]], frame)
