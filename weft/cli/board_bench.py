"""``weft board bench`` and ``weft board serve``: what a board costs, and the program that runs on it."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api import load
from ..boards.bench import measure_board
from ..boards.device import PynqDevice
from ..boards.doctor import core_of
from ..boards.hosts import Host, find_host
from ..boards.zipapp import code_digest, zipapp
from ..compiler.model import CompiledModel
from ..files import write_atomically
from ..hw.config import CoreConfig, load_config
from ..progress import Updates, progress
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from .app import board_app
from .doctor import CoreOption, HostArgument, ModelOption, compiled_network
from .output import CalibrateOption, JsonOption, err, out, output_file, print_json, table


@board_app.command()
def bench(
    host: HostArgument,
    config: CoreOption = None,
    model: ModelOption = None,
    calibrate_with: CalibrateOption = None,
    launches: Annotated[int, typer.Option(min=1, help="Launches of an empty program.")] = 100,
    megabytes: Annotated[int, typer.Option(min=1, max=1024, help="MiB to send up and down.")] = 8,
    images: Annotated[int, typer.Option(min=1, help="Runs of the network.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Measure a board from here: connecting, an empty program, bytes each way, a network."""
    chosen = find_host(host.removeprefix("pynq://"))
    core = core_of(chosen) if config is None else load_config(config)
    with progress(f"{chosen.name}: compiling", err) as status:
        network = compiled_network(model, core, calibrate_with, status)
        costs = measure_board(chosen, core, launches=launches, megabytes=megabytes, progress=status.update)
        figures: dict[str, Any] = {"board": chosen.name, "core": core.name, **asdict(costs)}
        if network is not None:
            figures |= _network(network, chosen, core, images, status)
    if as_json:
        print_json(figures)
        return
    rows = [
        ["link, design, memory", f"{costs.connect_seconds:.2f} s"],
        ["empty program", f"{costs.launch_seconds * 1e3:.2f} ms (longest {costs.longest_launch_seconds * 1e3:.2f} ms)"],
        ["bytes up", f"{costs.up_bytes_per_second / 1e6:.1f} MB/s"],
        ["bytes down", f"{costs.down_bytes_per_second / 1e6:.1f} MB/s"],
    ]
    if network is not None:
        rows += [
            [f"first result of {network.name}, with connecting", f"{figures['first_result_seconds']:.2f} s"],
            [f"{network.name}", f"{figures['images_per_second']:.1f} a second, {figures['cycles']:,} cycles each"],
        ]
    out.print(table(f"{chosen.name}, {core.name} at {costs.clock_mhz or 0:g} MHz", ["what", "figure"], rows))


def _network(model: CompiledModel, host: Host, core: CoreConfig, images: int, status: Updates) -> dict[str, Any]:
    """A network from a new link on: its first result, and many."""
    inputs = read_inputs(model.inputs, None, 0, index_inputs(model))
    status.update(f"{host.name}: {model.name}")
    started = time.perf_counter()
    with load(model, PynqDevice(core, host=host, progress=status.update)) as module:
        module.run(inputs)
        first = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(images):
            module.run(inputs)
        seconds = time.perf_counter() - started
        return {
            "network": model.name,
            "first_result_seconds": first,
            "images_per_second": images / seconds,
            "cycles": module.cycles,
        }


@board_app.command()
def serve(
    write: Annotated[
        Path | None, output_file("--write", help="Write the program to this file, to be put on a board, and end.")
    ] = None,
) -> None:
    """Run the board's end of a link on standard input and output; on a board, as root, in place of what is sent.

    --write makes the file that a board's own Python runs, without weft.
    """
    if write is not None:
        write_atomically(write, zipapp())
        out.print(f"wrote {write}, SHA-256 {code_digest()}", markup=False, soft_wrap=True)
        out.print("on the board it must belong to root and be writable by root alone: docs/boards-running.md")
        return
    if os.isatty(0):
        raise DeviceError(
            "weft board serve speaks with a host on its standard input, and this is a terminal",
            hint="the host starts it: `installed` in its file of boards; --write FILE writes the program to a file",
        )
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        program = Path(folder) / "weft-link.pyz"
        program.write_bytes(zipapp())
        sys.stdout.flush()
        runpy.run_path(str(program), run_name="__main__")
