"""What 8 bits cost and what brings it back: two networks from random weights to the core, station by station.

python benchmarks/training/quantisation.py                        # both, as docs/quantisation.md has them: half an hour
python benchmarks/training/quantisation.py depthwise --rtl 50 --json quantisation.json
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from weft.progress import progress

from benchmarks.common import Record, print_table, write_json
from examples.stations import depthwise, residual
from examples.stations.networks import Body
from examples.stations.networks import depthwise as depthwise_network
from examples.stations.networks import residual as residual_network
from examples.stations.stations import Journey, Settings, journey

NETWORKS: dict[str, tuple[Body, Settings]] = {
    "residual": (residual_network, residual.SETTINGS),
    "depthwise": (depthwise_network, depthwise.SETTINGS),
}


def records(network: str, found: Journey) -> list[Record]:
    """One for each figure of each station."""
    all_records = []
    for each in found.stations:
        figures = {"accuracy": each.accuracy, "as in floats": each.agree, "images": each.images}
        if np.isfinite(each.signal):
            figures["signal to noise, dB"] = each.signal
        all_records += [Record(network, each.name, figure, value) for figure, value in figures.items()]
    all_records += [Record(network, device, "images that differ", count) for device, count in found.differing.items()]
    return all_records + [Record(network, what, "seconds", seconds) for what, seconds in found.seconds.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--rtl", type=int, default=50, help="images that the RTL computes, too")
    parser.add_argument("--epochs", type=int, help="of training in floats")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := set(options.networks) - NETWORKS.keys():
        parser.error(f"there is no network {min(unknown)!r}; choose from {', '.join(NETWORKS)}")
    found: dict[str, Journey] = {}
    for network in options.networks or NETWORKS:
        body, settings = NETWORKS[network]
        settings = replace(settings, rtl_images=options.rtl, epochs=options.epochs or settings.epochs)
        with progress(network) as status:
            found[network] = journey(body, settings, status)
    rows = [
        [network, each.name, f"{each.accuracy:.1%}", f"{each.agree:.1%}",
         f"{each.signal:.1f} dB" if np.isfinite(each.signal) else "", str(each.images)]
        for network, one in found.items() for each in one.stations
    ]  # fmt: skip
    print_table("stations", ["network", "station", "accuracy", "as in floats", "signal / noise", "images"], rows)
    for network, one in found.items():
        print(f"{network}: " + ", ".join(f"{what}: {seconds:.0f} s" for what, seconds in one.seconds.items()))
        print(f"{network}: images whose scores on the core are not those of the CPU: {one.differing}")
    if options.json:
        write_json(options.json, [record for network, one in found.items() for record in records(network, one)])
    if any(count for one in found.values() for count in one.differing.values()):
        raise SystemExit("the core computes other scores")


if __name__ == "__main__":
    main()
