"""The page of one compilation, or of two beside each other: no network, no server, everything is inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runtime.colours import CAUSE_NAMES, CLASS_OF_CAUSE, COLOURS, WORDS
from ..runtime.profile import WHY
from ..runtime.profile_cycles import Cause
from ..runtime.web_page import web_page
from .kernels import words

PARTS = Path(__file__).parent
"""Where the page's frame, style and script are."""


def view_page(sides: Sequence[dict[str, Any]]) -> str:
    """The page. ``sides``: as `side.side` makes them, one or two."""
    details = [{"layers": side["details"], "kernels": side["kernels"]} for side in sides]
    apart = ("details", "kernels")
    data = {
        "sides": [{name: value for name, value in side.items() if name not in apart} for side in sides],
        **words(),
        "classes": [{"name": name, "word": word, "colour": COLOURS[name]} for name, word in WORDS.items()],
        "causes": [
            {"name": CAUSE_NAMES[cause], "class": list(WORDS).index(CLASS_OF_CAUSE[cause]), "why": WHY.get(cause, "")}
            for cause in Cause
        ],
    }
    title = " and ".join(dict.fromkeys(side["name"] for side in sides))
    return web_page(PARTS, title, {"DATA": data, "DETAILS": details}, scripts=("kernels.js", "page.js"))
