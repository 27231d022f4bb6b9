"""A core as one netlist of cells: from its modules, with all instances apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.verilog import TOP
from .errors import PowerError
from .liberty import Library

Numbers = npt.NDArray[np.int64]
ZERO, ONE = 0, 1
"""Nets that never change."""


@dataclass(frozen=True)
class Group:
    """All cells of one kind: the net at each pin, ``(cells, pins)``, and the number of each one's module."""

    kind: str
    pins: tuple[str, ...]
    nets: Numbers
    modules: Numbers

    def at(self, pin: str) -> Numbers:
        return self.nets[:, self.pins.index(pin)]


@dataclass(frozen=True)
class FlatMemory:
    """A memory of ``entries`` of ``width`` bits; nets of its enables and of what it gives. A port whose enable is
    :data:`ONE` is read without a clock."""

    entries: int
    width: int
    module: int
    reads: tuple[tuple[int, Numbers], ...]
    """For each port to read: the net of its enable, and those of its data."""
    write_enables: Numbers


@dataclass(frozen=True)
class FlatNetlist:
    """``modules``: paths from the core, ``()`` its own. ``known``: nets whose values a simulation of the RTL gives, by
    the path of a register, of what a memory gives or of an input of the core; a number for each bit."""

    nets: int
    groups: tuple[Group, ...]
    memories: tuple[FlatMemory, ...]
    modules: tuple[tuple[str, ...], ...]
    known: Mapping[tuple[str, ...], Numbers]
    same: Numbers
    """``(pairs, 3)``: the second net is the first, past the port of the module in the third place."""


def flatten(modules: Mapping[str, Mapping[str, Any]], library: Library, top: str = TOP) -> FlatNetlist:
    """Put instances of :func:`~weft.power.cell_modules.mapped_modules` together."""
    nets = 2
    rows: dict[tuple[str, tuple[str, ...]], list[Numbers]] = defaultdict(list)
    owners: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    memories: list[FlatMemory] = []
    paths: list[tuple[str, ...]] = []
    known: dict[tuple[str, ...], Numbers] = {}
    same: list[tuple[int, int, int]] = []

    def place(path: tuple[str, ...], name: str, outside: Mapping[str, Numbers] | None) -> None:
        nonlocal nets
        module = modules[name]
        number = len(paths)
        paths.append(path)
        own: dict[int | str, int] = {"0": ZERO, "1": ONE, "x": ZERO, "z": ZERO}

        def numbered(bits: list[int | str]) -> Numbers:
            nonlocal nets
            found = []
            for bit in bits:
                if bit not in own:
                    own[bit] = nets
                    nets += 1
                found.append(own[bit])
            return np.array(found, np.int64)

        outputs = set(module["outputs"])
        if outside is None:
            for port, bits in module["ports"].items():
                if port not in outputs:
                    known[(*path, port)] = numbered(bits)
        else:
            for port, bits in module["ports"].items():
                if port not in outputs:
                    own.update(zip(bits, outside[port].tolist(), strict=True))
            for port in module["outputs"]:
                for bit, net in zip(module["ports"][port], outside[port].tolist(), strict=True):
                    if bit in own:
                        same.append((own[bit], net, number))
                    else:
                        own[bit] = net
        for kind, content in module["cells"].items():
            pins = tuple(content["pins"])
            flat = numbered([bit for nets_of_cell in content["nets"] for bit in nets_of_cell])
            rows[kind, pins].append(flat.reshape(-1, len(pins)))
            owners[kind, pins] += [number] * len(content["nets"])
        for memory in module["memories"]:
            width, ports = memory["WIDTH"], memory["RD_PORTS"]
            enables, data = numbered(memory["RD_EN"]), numbered(memory["RD_DATA"])
            reads = tuple((int(enables[port]), data[port * width : (port + 1) * width]) for port in range(ports))
            memories.append(FlatMemory(memory["SIZE"], width, number, reads, numbered(memory["WR_EN"])))
        for name_of_net, bits in module["names"].items():
            known[(*path, name_of_net)] = numbered(bits)
        for child in module["children"]:
            ports = modules[child["module"]]["ports"]
            # A port that is not connected has nets that nobody else has.
            outside_nets = {port: numbered(bits) for port, bits in child["nets"].items()}
            for port, bits in ports.items():
                if port not in outside_nets:
                    outside_nets[port] = np.arange(nets, nets + len(bits))
                    nets += len(bits)
            place((*path, child["instance"]), child["module"], outside_nets)

    place((), top, None)
    for kind, pins in rows:
        missing = set(library.cells[kind].inputs) - set(pins)
        if missing:
            raise PowerError(f"cells {kind} leave {', '.join(sorted(missing))} open")
    groups = tuple(
        Group(kind, pins, np.concatenate(rows[kind, pins]), np.array(owners[kind, pins], np.int64))
        for kind, pins in rows
    )
    return FlatNetlist(nets, groups, tuple(memories), tuple(paths), known, np.array(same, np.int64).reshape(-1, 3))
