"""Tables of a measured power: by layer, and by module."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
from rich.table import Table

from ..runtime.tables import Column, Record, count, records_table, share, total_of, words
from .measure import Power

_NUMBER = re.compile(r"\$\d+")
"""Of a name that occurs more than once."""

KINDS = ("logic", "clock", "memories")


def layer_power_records(power: Power, mhz: float) -> list[Record]:
    """A record for each layer. Energies in nJ of one run, power in mW at this clock, with leakage."""
    leakage = float(power.leakage_w.sum())
    found: list[Record] = []
    for each in power.layers:
        seconds = each.layer.cycles / (mhz * 1e6)
        nanojoules = each.picojoules * 1e-3 + leakage * seconds * 1e9
        macs = each.layer.layer.macs
        found.append({
            "layer": each.layer.layer.name, "cycles": each.layer.cycles, "sampled": each.sampled,
            "nj": nanojoules, "mw": nanojoules * 1e-6 / seconds,
            **{f"nj_{kind}": float(getattr(each.energies, kind).sum()) * 1e-3 for kind in KINDS},
            "pj_per_mac": nanojoules * 1e3 / macs if macs else None, "deviation": each.deviation,
        })  # fmt: skip
    return found


def module_power_records(power: Power, mhz: float, depth: int = 1) -> list[Record]:
    """A record for each module down to ``depth`` levels, with all below it: cells, registers, mW over the whole run."""
    seconds = power.cycles / (mhz * 1e6)
    sums: dict[tuple[str, ...], Record] = defaultdict(lambda: {
        "cells": 0, "registers": 0, **{f"mw_{kind}": 0.0 for kind in KINDS}, "mw_leakage": 0.0, "mw_held": 0.0
    })  # fmt: skip
    energies = power.energies
    for number, path in enumerate(power.modules):
        own = sums[path[:depth]]
        own["cells"] += int(power.cells[number])
        own["registers"] += int(power.registers[number])
        own["mw_leakage"] += float(power.leakage_w[number]) * 1e3
        for kind in (*KINDS, "held"):
            own[f"mw_{kind}"] += float(getattr(energies, kind)[number]) * 1e-9 / seconds
    total = sum(_milliwatts(own) for own in sums.values())
    found = [
        {
            "module": _NUMBER.sub("", ".".join(path)) or "core itself",
            **own,
            "mw": _milliwatts(own),
            "share": _milliwatts(own) / total,
        }
        for path, own in sums.items()
    ]
    return sorted(found, key=lambda record: -record["mw"])


def _milliwatts(own: Record) -> float:
    return float(sum(own[f"mw_{kind}"] for kind in (*KINDS, "leakage")))


def _decimal(key: str, heading: str, digits: int = 1) -> Column:
    return Column(key, heading, lambda value: f"{value:,.{digits}f}", number=True)


def layer_power_table(power: Power, mhz: float) -> Table:
    records = layer_power_records(power, mhz)
    columns = [
        words("layer", fold=True), count("cycles"), _decimal("nj", "nJ"), _decimal("mw", "mW"),
        *(_decimal(f"nj_{kind}", f"{kind}, nJ") for kind in KINDS), _decimal("pj_per_mac", "pJ a MAC"),
        Column("deviation", "+-", lambda value: f"{value:.1%}" if value else "", number=True),
    ]  # fmt: skip
    total = total_of(records, "cycles", "nj", *(f"nj_{kind}" for kind in KINDS))
    macs = sum(each.layer.layer.macs for each in power.layers)
    total |= {"mw": total["nj"] * mhz / power.cycles, "pj_per_mac": total["nj"] * 1e3 / macs if macs else None}
    total["layer"] = "whole network"
    total["deviation"] = float(
        np.sqrt(sum((record["nj"] * record["deviation"]) ** 2 for record in records)) / total["nj"]
    )
    title = f"{power.model.name} on {power.model.config.name}: cells of {power.library}, {power.volts:g} V, {mhz:g} MHz"
    return records_table(title, columns, records, [total])


def module_power_table(power: Power, mhz: float, depth: int = 1) -> Table:
    records = module_power_records(power, mhz, depth)
    columns = [
        words("module"), count("cells"), count("registers"),
        *(_decimal(f"mw_{kind}", f"{kind}, mW", 2) for kind in KINDS), _decimal("mw", "mW", 2), share("share"),
        _decimal("mw_held", "held, mW", 2),
    ]  # fmt: skip
    keys = ("cells", "registers", *(f"mw_{kind}" for kind in KINDS), "mw", "share", "mw_held")
    return records_table("power by module", columns, records, [{"module": "core", **total_of(records, *keys)}])


def checked(power: Power) -> str:
    """What the cells were compared with."""
    if power.wrong:
        return (
            f"{power.wrong:,} of {power.compared:,} bits of registers would have been others in the cells than in the "
            "RTL: these figures are of another circuit"
        )
    return f"the cells gave all {power.compared:,} bits of registers that the RTL has in these cycles"
