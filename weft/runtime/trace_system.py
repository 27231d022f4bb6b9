"""The timeline of several cores: :mod:`.trace` for each, and the bus of each port that cores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..compiler.model import CompiledModel
from .profile_system import PortProfile, SystemProfile
from .trace import metadata, plain_slice, run_events, write_events

READS, WRITES = 0, 1


def write_system(model: CompiledModel, profile: SystemProfile, path: str | Path) -> int:
    """Write the timeline, compressed if the name ends in ``.gz``; number of slices written."""

    def events() -> Iterator[str]:
        process = 0
        for core in profile.cores:
            for number, (run, (origin, _)) in enumerate(zip(core.runs, core.together.programs, strict=True)):
                title = f"core {core.core}" if len(core.runs) == 1 else f"core {core.core}, program {number}"
                yield from run_events(model, run, process, origin, title)
                process += 1
        for port in profile.ports:
            yield from _bus_events(port, process)
            process += 1

    return write_events(path, f"{profile.name} on {profile.config.name}", events())


def _bus_events(port: PortProfile, process: int) -> Iterator[str]:
    """A track for the words that are read and one for those that are written; a slice names the cores."""
    for cores, writes, start, cycles in port.uses.tolist():
        names = [str(core) for core in port.cores if cores >> core & 1]
        label = f"core{'s' if len(names) > 1 else ''} {', '.join(names)}"
        yield plain_slice(label, "bus", start, cycles, process, WRITES if writes else READS)
    yield metadata("process_name", process, 0, "name", f"bus of port {port.port}")
    for track, name in ((READS, "words read"), (WRITES, "words written")):
        yield metadata("thread_name", process, track, "name", name)
