"""DRAMsim3 beside weft's DRAM with banks: row hits, activations and refreshes of the same accesses, within 1 %.

The timing model runs a network on cores with ports of their own. Each access of the DRAM goes to DRAMsim3 at the clock
in which weft's controller sends it, with the same timings and the same order of rows, banks and columns. DRAMsim3
decides for itself what opens rows, and when it refreshes. It is built by g++ from a folder with its sources (commit
2981759 of umd-memsys/DRAMsim3); without them nothing is compared.

    python benchmarks/systems/dram_peer.py --source DRAMsim3
    python benchmarks/systems/dram_peer.py --source DRAMsim3 --models a.weft b.weft     # what 'weft compile' wrote
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import PYNQ
from weft.hw.system_config import SystemConfig
from weft.runtime.artifact import load as load_artifact
from weft.runtime.profile_system import timed_rounds
from weft.sim.dram import DramModel
from weft.sim.dram_interface import DramCommand, DramUse
from weft.sim.dram_kinds import DramKind, parse_dram_kind
from weft.sim.system_timing import predict_system

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build

COMMIT = "2981759"
"""What the figures are of."""

TOLERANCE = 0.01

FLAT = DramModel(latency=100, bytes_per_cycle=8)
CASES = (
    (1, "ddr3-1066x16@100"), (4, "ddr3-1066x16@100"), (1, "ddr3-1066x32@100"), (4, "ddr3-1066x32@100"),
    (1, "ddr4-2400x64@200"), (4, "ddr4-2400x64@200"),
)  # fmt: skip
"""Cores, and the memory that they share."""

WITHOUT = ("thermal.cc", "thermal_replay.cc", "sp_ienv.c", "thermal_solver.c")
"""Sources of an option that is not wanted."""

TAIL = 500
"""Clocks in which DRAMsim3 ends what it was asked for last."""

ROWS, COLUMNS, CHIP_BITS = 65_536, 1024, 16
"""Of the chips, which are those of `sim/dram_kinds.py`."""


@dataclass(frozen=True)
class Counts:
    """What a DRAM did."""

    accesses: int
    hits: int
    activations: int
    refreshes: int


@dataclass(frozen=True)
class Row:
    """The same accesses on both."""

    network: str
    cores: int
    memory: str
    ours: Counts
    theirs: Counts

    @property
    def worst(self) -> float:
        """The largest relative difference of a count."""
        pairs = zip(vars(self.ours).values(), vars(self.theirs).values(), strict=True)
        return max(abs(one - other) / max(one, 1) for one, other in pairs)


def built(source: Path, folder: Path) -> Path:
    """The program of DRAMsim3, made of its sources once."""
    program = folder / "dramsim3main"
    files = sorted(path for path in (source / "src").glob("*.cc") if path.name not in WITHOUT)
    if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in files):
        folder.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{source / each}" for each in ("src", "ext/headers", "ext/fmt/include")]
        words = [
            "g++",
            "-O2",
            "-std=c++11",
            "-w",
            "-DFMT_HEADER_ONLY=1",
            *includes,
            *map(str, files),
            "-o",
            str(program),
        ]
        subprocess.run(words, check=True)
    return program


def config_text(kind: DramKind) -> str:
    """A kind as DRAMsim3 reads it. Its tRFC2, power and what it has for sleeping chips take no part."""
    chips = kind.bus_bits // CHIP_BITS
    megabytes = ROWS * COLUMNS * CHIP_BITS // 8 * kind.banks * chips >> 20
    times = {
        "tCK": 1000 / float(kind.clock_mhz), "AL": 0, "CL": kind.CL, "CWL": kind.CWL, "tRCD": kind.RCD, "tRP": kind.RP,
        "tRAS": kind.RAS, "tRFC": kind.RFC, "tREFI": kind.REFI, "tRPRE": 0, "tWPRE": 0, "tRRD_S": kind.RRD_S,
        "tRRD_L": kind.RRD_L, "tWTR_S": kind.WTR_S, "tWTR_L": kind.WTR_L, "tFAW": kind.FAW, "tWR": kind.WR,
        "tRTP": kind.RTP, "tCCD_S": kind.CCD_S, "tCCD_L": kind.CCD_L, "tRTRS": 1,
    }  # fmt: skip
    tables = {
        "dram_structure": {
            "protocol": kind.name.partition("-")[0].upper(), "bankgroups": kind.groups,
            "banks_per_group": kind.banks // kind.groups, "rows": ROWS, "columns": COLUMNS, "device_width": CHIP_BITS,
            "BL": kind.burst,
        },
        "timing": times,
        "system": {
            "channel_size": megabytes, "channels": 1, "bus_width": kind.bus_bits, "address_mapping": "rochrababgco",
            "queue_structure": "PER_BANK", "refresh_policy": "RANK_LEVEL_STAGGERED", "row_buf_policy": "OPEN_PAGE",
            "cmd_queue_size": 1, "trans_queue_size": 32, "unified_queue": "true",
        },
        "other": {"epoch_period": 10**9, "output_level": 1},
    }  # fmt: skip
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()) for name, table in tables.items()
    )


def addresses_of(kind: DramKind, commands: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """The bytes at which column commands read or write: columns lowest, then banks, then rows."""
    line = commands["row"].astype(np.uint64) * np.uint64(kind.banks) + commands["bank"]
    return line * np.uint64(kind.row_bytes) + commands["column"].astype(np.uint64) * np.uint64(kind.access_bytes)


def run_peer(program: Path, kind: DramKind, use: DramUse, folder: Path) -> Counts:
    """DRAMsim3 on the accesses of a run."""
    assert use.commands is not None
    moves = use.commands[np.isin(use.commands["kind"], [DramCommand.READ, DramCommand.WRITE])]
    moves = moves[np.argsort(moves["tick"], kind="stable")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kind.ini").write_text(config_text(kind))
    with (folder / "accesses.trace").open("w") as trace:
        for address, move in zip(addresses_of(kind, moves), moves, strict=True):
            what = "WRITE" if move["kind"] == DramCommand.WRITE else "READ"
            trace.write(f"0x{int(address):X} {what} {int(move['tick'])}\n")
    clocks = int(use.commands["tick"].max()) + TAIL
    words = [str(program), str(folder / "kind.ini"), "-c", str(clocks), "-o", str(folder), "-t",
             str(folder / "accesses.trace")]  # fmt: skip
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    found = json.loads((folder / "dramsim3.json").read_text())["0"]
    hits = found["num_read_row_hits"] + found["num_write_row_hits"]
    return Counts(found["num_read_cmds"] + found["num_write_cmds"], hits, found["num_act_cmds"], found["num_ref_cmds"])


def measure(network: str, model: CompiledModel, program: Path, folder: Path) -> Iterator[Row]:
    """The network on all memories, where its first program ends."""
    for cores, name in CASES:
        banks = parse_dram_kind(name)
        system = SystemConfig(cores=(model.config,) * cores, ports=tuple(range(cores)))
        rounds, shared = timed_rounds(model, system)
        use = predict_system(system, rounds[0], replace(FLAT, banks=banks), shared=shared, trace=True).dram
        assert use is not None
        ours = Counts(use.accesses, use.hits, use.activations, use.refreshes)
        theirs = run_peer(program, banks.kind, use, folder / f"{network}-{cores}-{banks.kind.name}")
        yield Row(network, cores, name, ours, theirs)


def compiled(arguments: argparse.Namespace) -> Iterator[tuple[str, CompiledModel]]:
    """Name of the network, model."""
    for path in arguments.models:
        model = load_artifact(path, None)
        assert isinstance(model, CompiledModel)
        yield model.name.split("-")[0], model
    for name in arguments.networks if not arguments.models else ():
        model = weft.compile(build(name, size=arguments.size), PYNQ)
        assert isinstance(model, CompiledModel)
        yield name, model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="folder with the sources of DRAMsim3")
    parser.add_argument("--networks", nargs="*", default=["mobilenet_v2"])
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="artifacts, instead of networks")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--build", type=Path, default=Path("build") / "dramsim3", help="where it is built and runs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.source is None or not (arguments.source / "src" / "main.cc").exists():
        print(
            f"nothing was compared: --source must be a folder with DRAMsim3's sources, commit {COMMIT}", file=sys.stderr
        )
        return 2
    program = built(arguments.source, arguments.build)
    rows = [row for name, model in compiled(arguments) for row in measure(name, model, program, arguments.build)]
    print_table(
        "A DRAM with banks, weft / DRAMsim3",
        ["network", "cores", "memory", "accesses", "row hits", "activations", "refreshes", "largest difference"],
        [
            (row.network, str(row.cores), row.memory,
             *(f"{one:,} / {other:,}" for one, other in
               zip(vars(row.ours).values(), vars(row.theirs).values(), strict=True)),
             f"{row.worst:.2%}{'' if row.worst <= TOLERANCE else ', missed'}")
            for row in rows
        ],
    )  # fmt: skip
    if arguments.json:
        write_json(arguments.json, [
            Record(f"{row.cores} x pynq, {row.memory}", row.network, name, one, other)
            for row in rows
            for (name, one), other in zip(vars(row.ours).items(), vars(row.theirs).values(), strict=True)
        ])  # fmt: skip
    return int(any(row.worst > TOLERANCE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
