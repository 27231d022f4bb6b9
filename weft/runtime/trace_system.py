"""The timeline of several cores: :mod:`.trace` for each, and the bus of each port that cores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..compiler.model import CompiledModel
from ..hw.system_config import SystemConfig
from ..sim.dram import DramModel
from .errors import DeviceError
from .profile_shared import SharedProfile, Work, profile_shared
from .profile_system import PortProfile, SystemProfile
from .trace import metadata, plain_slice, run_events, write_events

READS, WRITES = 0, 1

PROGRAMS = 900
"""The track of a core that says which program it runs, or for which core it waits; engines have those below."""


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


def write_shared(profile: SharedProfile, path: str | Path) -> int:
    """The timeline of cores that share a model, with traces: of each core its programs and waits, below them what its
    engines do in them; and each bus that cores share. As :func:`write_system`."""

    def events() -> Iterator[str]:
        for core in range(len(profile.config.cores)):
            yield from _core_events(profile, core)
        for number, port in enumerate(profile.ports, len(profile.config.cores)):
            yield from _bus_events(port, number)

    return write_events(path, f"{profile.model.name} on {profile.config.name}", events())


def write_shared_run(model: CompiledModel, config: SystemConfig, dram: DramModel, items: int, path: str | Path) -> int:
    """:func:`write_shared` of so many items; :class:`DeviceError` for none."""
    if not items:
        raise DeviceError(f"there is nothing to draw: {model.name!r} has not run", hint="run it, then write its trace")
    return write_shared(profile_shared(model, config, dram, items=items, trace=True), path)


def _core_events(profile: SharedProfile, core: int) -> Iterator[str]:
    title = f"core {core}"
    for number, work in enumerate(profile.work[core]):
        yield plain_slice(_name(profile, work), "program", work.start, work.cycles, core, PROGRAMS)
        yield from run_events(profile.model, work.run, core, work.start, title, number)
    for wait in profile.waiting[core]:
        name = "starts" if wait.core == core else f"waits for core {wait.core}"
        yield plain_slice(name, "wait", wait.start, wait.stop - wait.start, core, PROGRAMS)
    yield metadata("process_name", core, 0, "name", title)
    yield metadata("thread_name", core, PROGRAMS, "name", "programs and waits")


def _name(profile: SharedProfile, work: Work) -> str:
    turn = f"turn {work.turn}" if profile.model.shared_by > 1 else f"stage {work.step.stage}"
    return f"item {work.item}, {turn}"


def _bus_events(port: PortProfile, process: int) -> Iterator[str]:
    """A track for the words that are read and one for those that are written; a slice names the cores."""
    for cores, writes, start, cycles in port.uses.tolist():
        names = [str(core) for core in port.cores if cores >> core & 1]
        label = f"core{'s' if len(names) > 1 else ''} {', '.join(names)}"
        yield plain_slice(label, "bus", start, cycles, process, WRITES if writes else READS)
    yield metadata("process_name", process, 0, "name", f"bus of port {port.port}")
    for track, name in ((READS, "words read"), (WRITES, "words written")):
        yield metadata("thread_name", process, track, "name", name)
