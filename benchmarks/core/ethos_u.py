"""Cycles of LiteRT networks beside what Arm's compiler for Ethos-U says of the same files.

    python benchmarks/core/ethos_u.py               # MLPerf Tiny's four and two MobileNets
    python benchmarks/core/ethos_u.py --model mine.tflite --core pynq
    python benchmarks/core/ethos_u.py --memory arm  # Arm's own memory: 12 bytes a cycle, latency 500

Needs Vela (pip install ethos-u-vela; in an environment of its own, name it with --vela PATH). Both have 256
multiply-accumulates a cycle, the same DRAM with all tensors and weights in it (8 bytes a cycle, latency 100), and as
many bytes of memory beside the array: Vela is told of an SRAM (two ports of 16 bytes a cycle) as large as all
scratchpads of the core; the buffers inside an Ethos-U come on top. weft's cycles are those of its RTL; Vela calls its
own an estimate. It compresses weights: these are random and do not compress, trained ones gain some tenths. What the
host does is printed for both. The exit status is 1 if a network is not as far ahead as TARGET says.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import weft
from weft.compiler.model import CoreStep
from weft.hw.config import CoreConfig, load_config
from weft.hw.dram_rate import DramRate
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.zoo import litert_networks as zoo
from benchmarks.zoo.litert_cases import Case

TARGET = 1.2
"""How many times the cycles of the better Ethos-U each network should take there."""

ACCELERATORS = ("ethos-u65-256", "ethos-u85-256")
MACS = 256
BUS = 16
"""Bytes a cycle of each port of these accelerators, which Vela's rates are shares of."""

NETWORKS: dict[str, Callable[[], Case]] = {
    "ResNet-8": zoo.image_classification,
    "DS-CNN": zoo.keyword_spotting,
    "autoencoder": zoo.anomaly_detection,
    "MobileNetV1 0.25 96": zoo.person_detection,
    "MobileNetV1 1.0 224": zoo.mobilenet_v1,
    "MobileNetV2 1.0 224": zoo.mobilenet_v2,
}

SYSTEM = """
[System_Config.Compared]
core_clock=1e9
axi0_port=Sram
axi1_port=Dram
Sram_clock_scale=1.0
Sram_ports_used=2
Sram_burst_length=32
Sram_read_latency=32
Sram_write_latency=32
Sram_max_reads=16
Sram_max_writes=16
Dram_clock_scale={share}
Dram_ports_used=1
Dram_burst_length=128
Dram_read_latency={latency}
Dram_write_latency={latency}
Dram_max_reads=64
Dram_max_writes=32

[Memory_Mode.Compared]
const_mem_area=Axi1
arena_mem_area=Axi1
cache_mem_area=Axi0
arena_cache_size={cache}
"""


@dataclass(frozen=True)
class Estimate:
    """What Vela says of a file: cycles, and how many of its operators stay on the host."""

    cycles: int
    on_host: int


@dataclass(frozen=True)
class Compared:
    """One network. ``share``: of its multiply-accumulates, those on the core."""

    name: str
    macs: int
    cycles: int
    share: float
    host_steps: int
    estimates: dict[str, Estimate]

    @property
    def factor(self) -> float:
        """Cycles of the better of the others, in ours."""
        return min(each.cycles for each in self.estimates.values()) / self.cycles

    def used(self, cycles: int) -> float:
        return self.macs / (cycles * MACS)


def scratchpad_bytes(config: CoreConfig) -> int:
    return sum(config.depth(memory) * config.entry_bytes(memory) for memory in config.scratchpads)


def estimate(vela: str, model: Path, accelerator: str, rate: DramRate, cache: int, folder: Path) -> Estimate:
    system = folder / "system.ini"
    system.write_text(SYSTEM.format(share=rate.bytes_per_cycle / BUS, latency=rate.latency, cache=cache))
    output = folder / f"{model.stem}-{accelerator}"
    command = [
        vela, str(model), "--accelerator-config", accelerator, "--config", str(system), "--system-config", "Compared",
        "--memory-mode", "Compared", "--optimise", "Performance", "--output-dir", str(output),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tables = sorted(output.glob("*_summary_*.csv"))
    if done.returncode or not tables:
        raise SystemExit(f"Vela failed on {model}:\n{done.stdout}{done.stderr}")
    row = next(csv.DictReader(tables[0].read_text().splitlines()))
    on_host = next((line for line in done.stdout.splitlines() if line.startswith("CPU operators")), "= 0")
    return Estimate(round(float(row["cycles_total"])), int(on_host.partition("=")[2].split()[0]))


def compared(name: str, path: Path, config: CoreConfig, rate: DramRate, vela: str, folder: Path) -> Compared:
    model = weft.compile(path, config, dram=rate)
    core = sum(layer.macs for layer in model.layers if layer.device == "core")
    macs = sum(layer.macs for layer in model.layers)
    host = sum(not isinstance(step, CoreStep) for step in model.steps)
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    cycles = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    cache = scratchpad_bytes(config)
    estimates = {each: estimate(vela, path, each, rate, cache, folder) for each in ACCELERATORS}
    return Compared(name, macs, cycles, core / macs, host, estimates)


def show(results: Iterable[Compared], config: CoreConfig, rate: DramRate) -> None:
    rows = [
        (
            each.name, f"{each.macs / 1e6:.1f} M", f"{each.cycles:,}", f"{each.used(each.cycles):.0%}",
            f"{each.share:.0%}, {each.host_steps} steps",
            *(f"{other.cycles:,} ({each.used(other.cycles):.0%}, {other.on_host} on the CPU)"
              for other in each.estimates.values()),
            f"{each.factor:.2f} x",
        )
        for each in results
    ]  # fmt: skip
    columns = ("network", "MACs", f"weft {config.name}, exact", "used", "on the core", *ACCELERATORS, "ahead")
    print_table(f"256 MACs a cycle, {rate}, {scratchpad_bytes(config) >> 10} KiB beside the array", columns, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", default="pynq", help="of 256 multiply-accumulates a cycle")
    parser.add_argument("--memory", choices=("same", "arm"), default="same")
    parser.add_argument("--model", type=Path, nargs="+", help="LiteRT files instead of the networks here")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--vela", default="vela", help="Vela's command")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    config = load_config(arguments.core)
    if config.macs_per_cycle != MACS:
        parser.error(f"{config.name} has {config.macs_per_cycle} multiply-accumulates a cycle, not {MACS}")
    if shutil.which(arguments.vela) is None:
        parser.error(f"there is no command {arguments.vela!r}; hint: pip install ethos-u-vela, or --vela PATH")
    rate = DramRate(latency=100, bytes_per_cycle=8)
    if arguments.memory == "arm":
        rate = DramRate(latency=500, bytes_per_cycle=12)
    if rate.bytes_per_cycle > config.bus_bytes:
        config = replace(config, name=f"{config.name}-{BUS}", bus_bits=8 * BUS)
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {path.stem: path for path in arguments.model or ()}
        for network in () if arguments.model else arguments.networks:
            files[network] = folder / f"{network.replace(' ', '_')}.tflite"
            files[network].write_bytes(NETWORKS[network]().model)
        for network, path in files.items():
            results.append(compared(network, path, config, rate, arguments.vela, folder))
    show(results, config, rate)
    if arguments.json:
        write_json(arguments.json, (
            Record(f"{config.name}, {rate}", each.name, f"cycles beside {other}", each.cycles, found.cycles)
            for each in results for other, found in each.estimates.items()
        ))  # fmt: skip
    return 0 if all(each.factor >= TARGET for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
