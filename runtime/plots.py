"""The profile as pictures: a roofline with a point for each layer, and a timeline of all engines.

matplotlib is an optional dependency (extra ``plot``) and is imported only when something is drawn.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .errors import DeviceError
from .plot_roofline import roofline
from .plot_timeline import engine_timeline
from .profile import Profile

FORMATS = ("png", "svg")
SAME_BYTES = {"svg.hashsalt": "weft", "svg.fonttype": "path"}
"""The same profile gives the same SVG, byte for byte, wherever fonts lie."""


def write_plots(profile: Profile, folder: Path, formats: tuple[str, ...] = FORMATS, bins: int = 1000) -> list[Path]:
    """Draw roofline and timeline into ``folder``, each in all of ``formats``; the files written.

    ``bins``: the timeline's resolution. :class:`DeviceError` if matplotlib is not installed.
    """
    pyplot = _pyplot()
    written = []
    with pyplot.rc_context(SAME_BYTES):
        figures = {"roofline": roofline(profile, pyplot), "timeline": engine_timeline(profile, pyplot, bins)}
        for name, figure in figures.items():
            for kind in formats:
                path = folder / f"{name}.{kind}"
                figure.savefig(path, dpi=130, metadata={"Date": None} if kind == "svg" else None)
                written.append(path)
            pyplot.close(figure)
    return written


def _pyplot() -> Any:
    try:
        importlib.import_module("matplotlib").use("Agg")  # files only: no display is needed
    except ImportError:
        raise DeviceError("the pictures need matplotlib", hint="pip install 'weft[plot]'") from None
    return importlib.import_module("matplotlib.pyplot")
