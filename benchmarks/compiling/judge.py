"""The judge of layers: what it costs on a core never seen, and how near its sums are to linked programs.

ResNet-18, ResNet-50 and MobileNetV2 are judged one after the other with an empty database, then again with what the
database knows, then compiled as linked programs. CPU seconds; reading the networks and the passes that know no core are
done before, as an exploration does them once.

    python benchmarks/compiling/judge.py
    python benchmarks/compiling/judge.py --core wide --size 96
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from weft.compiler.tune.database import Database
from weft.explore.measure import Network, integers, layers_of, measure, open_network
from weft.explore.space import Design
from weft.hw.config import load_config
from weft.hw.dram_rate import DramRate
from weft.tune.layers import LayerJudge

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
UNSEEN_SECONDS, KNOWN_SECONDS, NEAR = 3.0, 1.0, 0.015
"""What is wanted: CPU seconds for all networks, and how far a sum may be from the linked program."""

Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    started = time.process_time()
    return work(), time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", default="pynq")
    parser.add_argument("--bytes-per-cycle", type=int, help="of the DRAM; default: those of the bus")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    config = load_config(arguments.core)
    rate = DramRate(bytes_per_cycle=arguments.bytes_per_cycle or config.bus_bytes)
    design = Design(config, rate, vthreads=2, chains=False)
    networks = [open_network(build(name, size=arguments.size)) for name in arguments.networks]
    for each in networks:
        integers(design, each)

    def judged(network: Network, judge: LayerJudge) -> int:
        return sum(layer.cost.cycles for layer in layers_of(design, network, judge))

    unseen, known, counts = [], [], []
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "judge.sqlite") as database:
        first, second = (LayerJudge(config, rate, design.vthreads, database) for _ in range(2))
        for network in networks:
            before = first.judged
            unseen.append(timed(lambda network=network: judged(network, first)))  # type: ignore[misc]
            counts.append(first.judged - before)
        for network in networks:
            known.append(timed(lambda network=network: judged(network, second)))  # type: ignore[misc]
    rows, records, good = [], [], True
    for network, count, (cycles, seconds), (again, less) in zip(networks, counts, unseen, known, strict=True):
        linked, whole = timed(lambda network=network: measure(design, network).cycles)  # type: ignore[misc]
        off = cycles / linked - 1
        good &= cycles == again and abs(off) <= NEAR
        name = network.name.partition("-")[0]
        figures = [f"{value:.2f}" for value in (seconds, less, whole)]
        rows.append([name, str(count), *figures, f"{cycles:,}", f"{linked:,}", f"{off:+.2%}"])
        seconds, whole = round(seconds, 2), round(whole, 2)
        records.append(Record(config.name, name, "judged, CPU s", seconds, whole))
        records.append(Record(config.name, name, "sum of layers, cycles", cycles, linked))
    total, less = (sum(seconds for _, seconds in each) for each in (unseen, known))
    print_table(f"judged and linked on {config.name} with {rate.bytes_per_cycle} bytes a cycle",
                ["network", "new kernels", "judged, CPU s", "known, CPU s", "linked, CPU s", "sum of layers, cycles",
                 "linked, cycles", ""], rows)  # fmt: skip
    for text, value, most in (("never seen", total, UNSEEN_SECONDS), ("known", less, KNOWN_SECONDS)):
        print(f"{text}: {value:.2f} CPU s, wanted {most:.0f}: {'yes' if value <= most else 'MISSED'}")
        good &= value <= most
    if arguments.json:
        write_json(arguments.json, records)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
