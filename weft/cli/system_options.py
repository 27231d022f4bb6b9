"""Cores of a system as options of compilation, where the user names none."""

from __future__ import annotations

from pathlib import Path

from ..compiler.targets.errors import CompileError
from ..hw.system_config import SystemConfig
from ..runtime.errors import DeviceError
from .source import is_artifact
from .target_options import Chosen


def check_record_and_trace(record: Path | None, trace: Path | None, device: str | None) -> None:
    """:class:`DeviceError` for what a system cannot keep, before anything is compiled."""
    if record is not None:
        raise DeviceError("a recording has the programs of one core", at="--record",
                          hint="run without --system to record them; of several cores --waves shows the signals, and "
                          "--device rtl beside fsim whether results are the same")  # fmt: skip
    if trace is not None and device not in (None, "fsim"):
        raise DeviceError(f"the timing model has the trace of several cores, not {device!r}", at="--trace",
                          hint="leave out --device: the model has the cycles of the system's RTL")  # fmt: skip


def for_system(source: Path, chosen: Chosen, system: SystemConfig) -> Chosen:
    """``chosen`` with the system's core, where all are alike, or with the core of each stage, where they are not; with
    the ports of cores that each have a stage, or share each layer, and where these share reads without branches side
    by side. Options that name cores stay, and an artifact is for
    the cores that it was compiled for. CompileError for unlike cores that are to run one program, and for more or fewer
    parts than cores."""
    if is_artifact(source):
        return chosen
    count = len(system.cores)
    cores = chosen.get("cores", "")
    named = len([name for name in cores.split(",") if name.strip()] if isinstance(cores, str) else cores)
    parts = {"split": chosen.get("split", 1), "stages": chosen.get("stages", 1), "cores": named or 1}
    for way, wanted in parts.items():
        if wanted not in (1, count):
            raise CompileError(
                f"{wanted} cores are to have a part of the model, but {system.name!r} has {count}", at=f"--{way}",
                hint=f"name {count} cores, or leave it out" if way == "cores" else f"--{way} {count}, or leave it out",
            )  # fmt: skip
    ports: Chosen = {"ports": system.ports} if max(parts.values()) > 1 else {}
    if system.shared_reads and parts["split"] > 1:  # cores that read unlike weights wait for each other's reads
        ports = {"branches": False, **ports}
    if len({core.hash64 for core in system.cores}) == 1:
        own = {} if "config" in chosen or "cores" in chosen else {"config": system.cores[0]}
        return {**own, **ports, **chosen}
    if max(parts["stages"], parts["cores"]) != count or parts["split"] != 1:
        raise CompileError(
            f"the cores of {system.name!r} are unlike, so there is no program that all of them can run", at="--system",
            hint=f"--stages {count} gives each a stage of the model",
        )  # fmt: skip
    return {"cores": system.cores, **ports, **chosen}
