"""The best core for each of six parts, by the geometric mean of five networks' cycles; the best for each one beside it.

A space of its own for each part (``PARTS``), all with one database: what was measured for one part, or by an earlier
call, is known. Points are judged by sums of layers, and what is best is linked, as ``weft explore`` does it. Then, for
the core that is best for all networks, what stands between its multipliers and the cycles: useful products at full
speed; the bounds of the layers as they were compiled, which their forms, padding and memory cause; the cycles.

    python benchmarks/exploring/parts.py --workers 2 --picture docs/pictures/explore-parts.svg
    python benchmarks/exploring/parts.py --parts xc7z020 --networks resnet18.onnx mobilenet_v2.onnx
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.compiler.tune.database import Database
from weft.explore.measure import LAYER_FIELDS, Measure, Network, open_network
from weft.explore.outcome import Outcome
from weft.explore.space import Space
from weft.explore.study import Study, explore

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.other_networks import FORM
from benchmarks.zoo.quantised_forms import quantised
from benchmarks.zoo.whole_networks import float_network
from examples.models.build import build

BUILT = ("resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2")
"""Of ``examples/models``; the fifth network is the U-Net of ``whole_networks.py``."""

ULTRASCALE: Mapping[str, Any] = {
    "block_in": [16, 32, 64], "block_out": [16, 32], "depthwise": [0, 1], "bus_bits": 128, "wgt_kib": 256,
}  # fmt: skip
"""Their ports to the memory have 128 bits. Larger arrays fit none of the three parts: a row of weights would take more
block RAMs than there are."""

ECP5_SIZES: Mapping[str, Any] = {"depthwise": 0, "bus_bits": 64, "wgt_kib": 64}

PARTS: Mapping[str, Mapping[str, Any]] = {
    "xc7z020": {"block_in": [16, 32], "block_out": [8, 16], "depthwise": [0, 1], "bus_bits": 64, "wgt_kib": [128, 256]},
    "xczu3eg": ULTRASCALE,
    "xck26": ULTRASCALE,
    "xczu7ev": ULTRASCALE,
    "LFE5U-85F": {"block_in": [8, 16], "block_out": [4, 8], "inp_kib": 32, "acc_kib": 64, "out_kib": 16, **ECP5_SIZES},
    "LFE5U-45F": {"block_in": [8, 16], "block_out": [4, 8], "inp_kib": 16, "acc_kib": 32, "out_kib": 8, **ECP5_SIZES},
}
"""The axes of the core for each part; memories are as fast as the bus, chains of layers are not made."""


@dataclass(frozen=True)
class Account:
    """Cycles of a network on a core. ``ideal``: its products at the array's full speed; ``bounds``: of each layer as
    compiled, the largest of what the array, the vector engine and the bus need; ``depthwise``: of depthwise layers."""

    cycles: int
    ideal: float
    bounds: float
    depthwise: float


def account(point: Outcome, measure: Measure) -> Account:
    assert point.design is not None
    rows = [dict(zip(LAYER_FIELDS, row, strict=True)) for row in measure.layers]
    return Account(
        measure.cycles,
        measure.macs / point.design.config.macs_per_cycle,
        sum(max(row["array"], row["vector"], row["memory"]) for row in rows),
        sum(row["cycles"] for row in rows if "depthwise" in row["kind"]),
    )


def space_of(part: str) -> Space:
    return Space.model_validate({
        "name": part, "core": PARTS[part], "compiler": {"chains": False}, "constraints": {"part": part},
        "search": {"judge": "layers", "objectives": ["core_cycles"]},
    })  # fmt: skip


def unet(folder: Path) -> Path:
    """The fifth network, quantised by onnxruntime."""
    path = folder / "unet.onnx"
    if not path.exists():
        model = quantised(*float_network("unet"), FORM)
        path.write_bytes(model.SerializeToString())
    return path


def shape(point: Outcome) -> str:
    assert point.design is not None
    config = point.design.config
    return f"{config.block_in}x{config.block_out}{', depthwise mode' if config.depthwise else ''}"


def short(network: Network) -> str:
    return network.name.partition("-")[0]


def best_for_all(study: Study) -> Outcome | None:
    """The point with the least geometric mean; linked, as all of the front is."""
    front = study.front()
    return min((study.points[place] for place in front), key=lambda each: each.figures["core_cycles"], default=None)


def picture(studies: Sequence[Study], path: Path) -> None:
    """All points that fit, by part: geometric mean of cycles over the largest share of the part."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
    for number, study in enumerate(studies):
        points = [each for each in study.points if each.status == "measured"]
        (dots,) = axes.plot([100 * each.figures["area"] for each in points],
                            [each.figures["core_cycles"] / 1e6 for each in points], "o", ms=4, alpha=0.5,
                            label=study.space.name)  # fmt: skip
        best = best_for_all(study)
        if best is not None:
            place = 100 * best.figures["area"], best.figures["core_cycles"] / 1e6
            axes.plot(*place, "*", ms=12, color=dots.get_color())
            axes.annotate(f"{study.space.name}: {shape(best)}", place, textcoords="offset points",
                          xytext=(-8, -9 if number % 2 else 5), ha="right", fontsize=7)  # fmt: skip
    axes.set(xlabel="largest share of the part, %", ylabel="geometric mean of five networks, Mcycles", yscale="log",
             yticks=(2, 5, 10, 20, 50), yticklabels=("2", "5", "10", "20", "50"))  # fmt: skip
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--networks", type=Path, nargs="+", help="ONNX files instead of the five networks")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--database", type=Path, default=Path("build") / "parts.sqlite")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--picture", type=Path, help="write a picture of all points to this file")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    arguments.database.parent.mkdir(exist_ok=True)
    files = arguments.networks or [
        *(build(name, size=arguments.size) for name in BUILT),
        unet(arguments.database.parent),
    ]
    networks = [open_network(path) for path in files]
    studies: list[Study] = []
    with Database(arguments.database) as database:
        for part in arguments.parts:
            study = explore(space_of(part), networks, database, workers=arguments.workers)
            if study.interrupted:
                break
            studies.append(study)
            fitting = f"{study.count('measured')} of {study.space.size} points fit"
            print(f"{part}: {fitting}; {study.measured} measurements in {study.seconds:.0f} s, {study.reused} known",
                  file=sys.stderr, flush=True)  # fmt: skip
    records = report(studies, networks)
    if arguments.picture:
        picture(studies, arguments.picture)
    if arguments.json:
        write_json(arguments.json, records)
    missing = arguments.parts[len(studies) :]
    if missing:
        print(f"not finished: {', '.join(missing)}; the same command goes on", file=sys.stderr)
    return 0 if not missing and all(best_for_all(study) for study in studies) else 1


def report(studies: Sequence[Study], networks: Sequence[Network]) -> list[Record]:
    """Three tables; the records of the first."""
    rows, alone, limits, records = [], [], [], []
    for study in studies:
        best = best_for_all(study)
        if best is None:
            continue
        part, area = study.space.name, best.area
        assert area is not None
        rows.append([part, f"{study.count('measured')} of {study.space.size}", shape(best), f"{area.LUT:,.0f}",
                     f"{area.DSP:,}", f"{area.BRAM36:g}", f"{best.figures['area']:.0%}",
                     f"{best.figures['core_cycles']:,.0f}",
                     *(f"{best.measures[each.name].cycles:,}" for each in networks)])  # fmt: skip
        records.append(Record(shape(best), part, "geometric mean, cycles", round(best.figures["core_cycles"])))
        own = []
        for network in networks:
            place = study.best_of(network.name)
            assert place is not None  # there are measured points
            point = study.points[place]
            gain = best.measures[network.name].cycles / point.measures[network.name].cycles - 1
            own.append("the same" if point is best else f"{shape(point)} ({gain:.1%})")
        alone.append([part, shape(best), *own])
        accounts = [account(best, best.measures[each.name]) for each in networks]
        limits.append([part, shape(best), *(f"{each.ideal / each.cycles:.0%}, {each.bounds / each.cycles:.0%}, "
                                            f"{each.depthwise / each.cycles:.0%}" for each in accounts)])  # fmt: skip
    names = [short(each) for each in networks]
    print_table("the best core of each part for all networks: cycles, memory as fast as the bus",
                ["part", "points that fit", "array", "LUT", "DSP", "BRAM36", "largest share", "geometric mean", *names],
                rows)  # fmt: skip
    print_table("the best core for each network, and how much longer it takes on the one that is best for all",
                ["part", "best for all", *names], alone)  # fmt: skip
    print_table("of the cycles on it: useful products at full speed, bounds of the layers, in depthwise layers",
                ["part", "array", *names], limits)  # fmt: skip
    return records


if __name__ == "__main__":
    sys.exit(main())
