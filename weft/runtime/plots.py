"""The profile as pictures: a roofline with a point for each layer, and a timeline of all engines.

matplotlib is an optional dependency (extra ``plot``) and is imported only when something is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import DeviceError
from .machine_roof import MachineRoof
from .plot_host_roofline import host_roofline
from .plot_roofline import roofline
from .plot_shared import shared_timeline
from .plot_system import system_timeline
from .plot_timeline import engine_timeline
from .profile import Profile
from .profile_host import KernelProfile
from .profile_shared import SharedProfile
from .profile_system import SystemProfile

FORMATS = ("png", "svg")
SAME_BYTES = {"svg.hashsalt": "weft", "svg.fonttype": "path"}
"""The same profile gives the same SVG, byte for byte, wherever fonts lie."""


def write_plots(profile: Profile, folder: Path, formats: tuple[str, ...] = FORMATS, bins: int = 1000) -> list[Path]:
    """Draw roofline and timeline into ``folder``, each in all of ``formats``; the files written.

    ``bins``: the timeline's resolution. :class:`DeviceError` if matplotlib is not installed.
    """
    pyplot = _pyplot()
    with pyplot.rc_context(SAME_BYTES):
        figures = {"roofline": roofline(profile, pyplot), "timeline": engine_timeline(profile, pyplot, bins)}
        written = [_save(figure, folder / name, formats, pyplot) for name, figure in figures.items()]
    return [path for paths in written for path in paths]


def write_system_plot(
    profile: SystemProfile, folder: Path, formats: tuple[str, ...] = FORMATS, bins: int = 1000
) -> list[Path]:
    """Draw the timeline of several cores, as :func:`write_plots` does."""
    pyplot = _pyplot()
    with pyplot.rc_context(SAME_BYTES):
        return _save(system_timeline(profile, pyplot, bins), folder / "timeline", formats, pyplot)


def write_shared_plot(profile: SharedProfile, folder: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Draw the timeline of cores that share a model, as :func:`write_plots` does."""
    pyplot = _pyplot()
    with pyplot.rc_context(SAME_BYTES):
        return _save(shared_timeline(profile, pyplot), folder / "timeline", formats, pyplot)


def write_host_plot(
    name: str, kernels: Sequence[KernelProfile], roof: MachineRoof, folder: Path, formats: tuple[str, ...] = FORMATS
) -> list[Path]:
    """Draw the roofline of a profile on a processor, as `write_plots` does."""
    pyplot = _pyplot()
    with pyplot.rc_context(SAME_BYTES):
        return _save(host_roofline(name, kernels, roof, pyplot), folder / "roofline", formats, pyplot)


def _save(figure: Any, stem: Path, formats: tuple[str, ...], pyplot: Any) -> list[Path]:
    written = [stem.with_suffix(f".{kind}") for kind in formats]
    for path in written:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return written


def _pyplot() -> Any:
    try:
        importlib.import_module("matplotlib").use("Agg")  # files only: no display is needed
    except ImportError:
        raise DeviceError("the pictures need matplotlib", hint="pip install 'weft[plot]'") from None
    return importlib.import_module("matplotlib.pyplot")
