"""Two networks on several cores of one chip, against one big core of the same area: rounds by the exact model.

All systems take at most ``LUT`` look-up tables of a xczu7ev. In a round every network is wanted equally often. A big
core does one network after the other; a system gives each network a core of its own, or each core a picture of one
network after the other. The memory is a DDR4-2400 with banks; cores share a port of 128 bits, or have one each.

    python benchmarks/systems/shared_system.py --picture docs/pictures/explore-systems.svg
    python benchmarks/systems/shared_system.py --networks a.onnx b.onnx
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from weft.compiler.tune.database import Database
from weft.explore.measure import Network, open_network
from weft.explore.outcome import Outcome, host_cycles
from weft.explore.space import Space
from weft.explore.study import Study, explore

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build

BUILT = ("resnet18", "mobilenet_v2")

LUT = 79_000
"""What the big core takes, rounded up."""

BIG, DENSE, ALL = "big", "dense", {"bus_bits": 128, "wgt_kib": 256}

SPACE = Space.model_validate({
    "name": "two networks",
    "core": {"block_in": 16, "block_out": 16, "depthwise": 1, **ALL},
    "cores": {
        BIG: {"block_in": 32, "block_out": 32, "depthwise": 1, **ALL},
        DENSE: {"block_in": 32, "block_out": 16, "depthwise": 0, **ALL},
    },
    "memory": {"banks": "ddr4-2400x64"},
    "system": {
        "cores": [f"1 {BIG}", "2 core", f"core + {DENSE}", f"2 {DENSE}"], "ports": ["one", "own"],
        "split": ["pictures", "networks"],
    },
    "constraints": {"part": "xczu7ev", "LUT": LUT},
    "search": {"objectives": ["throughput", "latency"]},
})  # fmt: skip


def shape(point: Outcome) -> str:
    """The arrays of a point; "d" has the depthwise mode."""
    assert point.design is not None
    cores = [f"{core.block_in}x{core.block_out}{'d' if core.depthwise else ''}" for core in point.design.cores]
    return " + ".join(cores)


def short(network: Network) -> str:
    return network.name.partition("-")[0]


def manner(point: Outcome) -> str:
    """Which ports, and who does what."""
    assert point.design is not None
    if len(point.design.cores) == 1:
        return "one network after the other"
    ports = "a port each" if point.assignment["system.ports"] == "own" else "one port"
    return f"{ports}, {'a picture' if point.assignment['system.split'] == 'pictures' else 'a network'} each"


def bars(point: Outcome, networks: Sequence[Network]) -> list[tuple[int, str, int, int]]:
    """Of a round of the cores: core, network, begin, cycles. Of alike pictures the last core's time stands for all."""
    found, begun = [], 0
    for network in networks:
        measure = point.measures[network.name]
        start = measure.started if point.assignment["system.split"] == "networks" else begun
        found += [(part[0], short(network), start, measure.cycles) for part in measure.parts]
        begun += measure.cycles
    return found


def picture(study: Study, networks: Sequence[Network], path: Path) -> None:
    """Above the throughput and latency of all points; below rounds of the big core, and of a network on each core."""
    from matplotlib import pyplot

    points = [each for each in study.points if each.status == "measured"]
    shown = [each for each in points if len(each.measures[networks[0].name].parts) == 1]
    figure, (above, below) = pyplot.subplots(2, figsize=(7.2, 6.4), layout="constrained", height_ratios=(3, 2))
    for name in dict.fromkeys(map(shape, points)):
        own = [each for each in points if shape(each) == name]
        above.plot([each.figures["latency"] / 1e6 for each in own], [each.figures["throughput"] for each in own], "o",
                   ms=6, alpha=0.7, label=name)  # fmt: skip
    above.set(xlabel="until both networks have their images, Mcycles", ylabel="images a Gcycle", ylim=(0, None))
    above.legend(frameon=False, fontsize=8)
    colours = dict(zip(map(short, networks), ("tab:blue", "tab:orange"), strict=False))
    labels, row = [], 0
    for point in shown:
        assert point.design is not None
        for core, network, start, cycles in bars(point, networks):
            below.barh(row + core, cycles / 1e6, left=start / 1e6, height=0.8, color=colours.get(network, "grey"))
        labels += [f"{name}, {manner(point)}" if number == 0 else name
                   for number, name in enumerate(shape(point).split(" + "))]  # fmt: skip
        row += len(point.design.cores)
    below.set(xlabel="Mcycles of the cores in a round", yticks=range(row))
    below.set_yticklabels(labels, fontsize=7)
    below.invert_yaxis()
    below.legend([pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()], list(colours),
                 frameon=False, fontsize=8)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def report(study: Study, networks: Sequence[Network]) -> list[Record]:
    """A table of all points, the highest throughput first; its records."""
    points = [each for each in study.points if each.status == "measured"]
    points.sort(key=lambda each: -each.figures["throughput"])
    big = next(each for each in points if each.design is not None and len(each.design.cores) == 1)
    rows, records = [], []
    for each in points:
        assert each.area is not None
        rows.append([
            shape(each), manner(each), f"{each.area.LUT:,.0f}", f"{each.area.DSP:,}", f"{each.area.BRAM36:g}",
            *(f"{each.measures[network.name].cycles:,}" for network in networks),
            f"{sum(host_cycles(study.space, one) * one.batch for one in each.measures.values()):,.0f}",
            f"{each.figures['latency']:,.0f}", f"{each.figures['latency'] / big.figures['latency']:.2f}",
            f"{each.figures['throughput']:.1f}", f"{each.figures['throughput'] / big.figures['throughput']:.2f} x",
        ])  # fmt: skip
        where = f"{shape(each)}, {manner(each)}"
        for name in ("latency", "throughput"):
            records.append(Record(where, "a round", name, round(each.figures[name], 2), round(big.figures[name], 2)))
    names = [short(network) for network in networks]
    print_table(f"{' and '.join(names)} on at most {LUT:,} LUT, beside one big core",
                ["cores", "ports, and who does what", "LUT", "DSP", "BRAM36", *(f"{name}: cycles" for name in names),
                 "host's cycles of a round", "latency", "against big", "images a Gcycle", "against big"],
                rows)  # fmt: skip
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, nargs=2, help="ONNX files instead of ResNet-18 and MobileNetV2")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--database", type=Path, default=Path("build") / "shared_system.sqlite")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="write a picture of all points to this file")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    arguments.database.parent.mkdir(exist_ok=True)
    networks = [
        open_network(path) for path in arguments.networks or [build(name, size=arguments.size) for name in BUILT]
    ]
    with Database(arguments.database) as database:
        study = explore(SPACE, networks, database, workers=arguments.workers)
    print(f"{study.measured} measurements in {study.seconds:.0f} s, {study.reused} known", file=sys.stderr)
    failed = [each for each in study.points if each.status == "failed"]
    for each in failed:
        print(f"{dict(each.assignment)}: {each.reason}", file=sys.stderr)
    if failed or study.interrupted or not study.count("measured"):
        return 1
    records = report(study, networks)
    if arguments.picture:
        picture(study, networks, arguments.picture)
    if arguments.json:
        write_json(arguments.json, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
