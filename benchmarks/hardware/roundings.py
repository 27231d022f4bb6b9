"""What each way to round costs a core: cells of xc7 by Yosys, more than of the same core that rounds half up alone.

Modules that all these cores share are left out (:mod:`.synthesis_difference`). What stays is the vector engine with its
lanes, and modules that hold a number of the core. The area model's figures stand beside Yosys', which vary by some 100
LUT with what is synthesised together.

    python benchmarks/hardware/roundings.py                 # of the core ``tiny``: minutes
    python benchmarks/hardware/roundings.py half_even two_roundings --core pynq
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from weft.boards.area import area_of
from weft.hw.config import CoreConfig, named_config
from weft.roundings import HALF_UP, ROUNDINGS

from benchmarks.common import Record, print_table, write_json
from benchmarks.hardware.synthesis_difference import differences

OTHERWISE = tuple(each for each in ROUNDINGS if each != HALF_UP)
MODELLED = ("LUT", "DSP")
ALLOWED = 0.02
"""Part of what a core takes by which the area model may be wrong about a rounding's share."""


def records_of(core: CoreConfig, roundings: Sequence[str]) -> list[Record]:
    """What Yosys says that a core takes more with each rounding, beside the area model where that has a figure."""
    cores = [replace(core, name=f"{core.name}, {each}", rounding=each) for each in roundings]
    before, records = asdict(area_of(core)), []
    for named, more in zip(cores, differences(cores, core), strict=True):
        after = asdict(area_of(named))
        for column in (*MODELLED, "FF"):
            model = after[column] - before[column] if column in MODELLED else None
            records.append(Record(core.name, named.rounding, column, more[column], model))
    return records


def is_close(found: Record, core: CoreConfig) -> bool:
    """Whether the area model says what Yosys says."""
    if found.reference is None:
        return True
    return abs(float(found.value) - float(found.reference)) <= ALLOWED * asdict(area_of(core))[found.figure]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("roundings", nargs="*", default=OTHERWISE, help=f"of {', '.join(OTHERWISE)}; default: all")
    parser.add_argument("--core", default="tiny", help="the name of a configuration")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.roundings) - set(OTHERWISE):
        parser.error(f"no rounding beside half up is called {', '.join(sorted(unknown))}")
    core = named_config(arguments.core)
    records = records_of(core, arguments.roundings)
    rows = [
        [each.workload, each.figure, f"{each.value:+,g}", "" if each.reference is None else f"{each.reference:+,.0f}",
         "" if is_close(each, core) else "NO"] for each in records
    ]  # fmt: skip
    print_table(f"{core.name}, {core.lanes} lanes, more than with half up alone, xc7",
                ["rounding", "cells", "Yosys", "area model", "close"], rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    return 0 if all(is_close(each, core) for each in records) else 1


if __name__ == "__main__":
    sys.exit(main())
