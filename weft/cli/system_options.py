"""Cores of a system as options of compilation, where the user names none."""

from __future__ import annotations

from pathlib import Path

from ..compiler.targets.errors import CompileError
from ..hw.system_config import SystemConfig
from .source import is_artifact
from .target_options import Chosen


def for_system(source: Path, chosen: Chosen, system: SystemConfig) -> Chosen:
    """``chosen`` with the system's core, where all are alike, or with the core of each stage, where they are not.
    Options that name cores stay, and an artifact is for the cores that it was compiled for. CompileError for unlike
    cores that are to run one program."""
    if is_artifact(source):
        return chosen
    count = len(system.cores)
    if len({core.hash64 for core in system.cores}) == 1:
        return chosen if "config" in chosen or "cores" in chosen else {**chosen, "config": system.cores[0]}
    if chosen.get("stages", count if "cores" in chosen else 1) != count or chosen.get("split", 1) != 1:
        raise CompileError(
            f"the cores of {system.name!r} are unlike, so there is no program that all of them can run", at="--system",
            hint=f"--stages {count} gives each a stage of the model",
        )  # fmt: skip
    return chosen if "cores" in chosen else {**chosen, "cores": system.cores}
