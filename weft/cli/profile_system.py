"""``weft profile --system``: what the cores of a system cost each other, and who had the bus."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ..hw.system_config import load_system
from ..progress import Updates, progress
from ..runtime.errors import DeviceError
from ..runtime.plots import write_shared_plot, write_system_plot
from ..runtime.profile_dram import dram_record, dram_table
from ..runtime.profile_report import cause_table, memory_note
from ..runtime.profile_shared import SharedProfile, profile_shared
from ..runtime.profile_shared_report import cause_records as shared_cause_records
from ..runtime.profile_shared_report import cause_table as shared_cause_table
from ..runtime.profile_shared_report import core_records as shared_core_records
from ..runtime.profile_shared_report import core_table as shared_core_table
from ..runtime.profile_shared_report import turn_records, turn_table
from ..runtime.profile_system import MODEL, SystemProfile, profile_system
from ..runtime.profile_system_report import (
    bus_records,
    bus_table,
    core_records,
    core_table,
    layer_records,
    layer_table,
)
from ..runtime.system_module import check_cores
from ..runtime.trace_system import write_shared, write_system
from ..sim.dram import DramModel
from .output import check_folders, err, out, print_json, print_report, wide_console
from .profile_core import opened
from .tools import ProfileRequest

TRACE = "trace.perfetto.json.gz"


def profile_on_system(request: ProfileRequest) -> None:
    """Profile an item on each core of the request's system, or a model that all share; writes tables, picture and trace
    into its folder."""
    assert request.system is not None
    if request.device != MODEL:
        raise DeviceError(f"a system is profiled by the timing model, not on {request.device!r}",
                          hint="leave out --device: the model has the cycles of the system's RTL")  # fmt: skip
    folder = request.folder
    check_folders(folder)
    system = load_system(request.system)
    with progress("reading", err) as status:
        compiled, dram, _ = opened(request, status)
        if compiled.shared_by > 1 or compiled.stages > 1:
            status.update("running on all cores")
            _profile_shared(request, profile_shared(compiled, system, dram, trace=True), dram, status)
            return
        check_cores(compiled, system)
        status.update("running on all cores")
        measured = profile_system(compiled, system, dram)
        slowest = max(measured.cores, key=lambda each: each.together.cycles)
        tables = [core_table(measured), bus_table(measured.ports), layer_table(measured), cause_table(slowest.together)]
        rows = dram_record(dram, [measured.dram_use], measured.cycles)
        if rows is not None:
            tables.append(dram_table(rows))
        if note := memory_note(compiled, dram):
            tables.append(Text(note))
        status.update(f"writing {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        print_report(tables, folder / "report.txt")
        slices = write_system(compiled, measured, folder / TRACE)
        try:
            write_system_plot(measured, folder)
        except DeviceError as error:
            err.print(f"no picture: {error}", markup=False)
    if request.as_json:
        print_json({**system_record(measured), **({} if rows is None else {"dram": rows})})
        return
    wide_console().print(*tables)
    out.print(f"wrote {folder}; {opens(slices)}", markup=False)


def _profile_shared(request: ProfileRequest, measured: SharedProfile, dram: DramModel, status: Updates) -> None:
    """Tables, picture and trace of cores that share a model."""
    folder = request.folder
    tables = [shared_core_table(measured), turn_table(measured), shared_cause_table(measured)]
    if measured.ports:
        tables.append(bus_table(measured.ports))
    rows = dram_record(dram, [measured.dram_use], measured.cycles)
    if rows is not None:
        tables.append(dram_table(rows))
    status.update(f"writing {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    print_report(tables, folder / "report.txt")
    slices = write_shared(measured, folder / TRACE)
    try:
        write_shared_plot(measured, folder)
    except DeviceError as error:
        err.print(f"no picture: {error}", markup=False)
    if request.as_json:
        print_json({**shared_record(measured), **({} if rows is None else {"dram": rows})})
        return
    wide_console().print(*tables)
    out.print(f"wrote {folder}; {opens(slices)}", markup=False)


def opens(slices: int) -> str:
    """Where to look at a trace."""
    return f"its trace ({slices:,} slices) opens at https://ui.perfetto.dev"


def shared_record(profile: SharedProfile) -> dict[str, Any]:
    """What ``--json`` prints of cores that share a model."""
    return {
        "model": profile.model.name,
        "system": profile.config.name,
        "items": profile.items,
        "cycles": profile.cycles,
        "starts": profile.starts,
        "cores": shared_core_records(profile),
        "turns": turn_records(profile),
        "causes": shared_cause_records(profile),
        "bus": bus_records(profile.ports),
    }


def system_record(profile: SystemProfile) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "model": profile.name,
        "system": profile.config.name,
        "cycles": profile.cycles,
        "throughput": profile.throughput,
        "cores": core_records(profile),
        "bus": bus_records(profile.ports),
        "layers": layer_records(profile),
    }
