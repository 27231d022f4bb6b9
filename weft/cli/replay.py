"""``weft replay``: what was recorded on one device, on another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..progress import progress
from ..runtime.device import device_forms, open_device
from ..runtime.recording import load_recording
from ..runtime.replay import replay
from .app import app
from .output import JsonOption, err, out, print_json
from .waves import FromOption, ToOption, WavesOption, finished_waves, wave_request, write_waves


@app.command("replay")
def replay_command(
    source: Annotated[Path, typer.Argument(help="What 'weft run --record' wrote.")],
    device: Annotated[str, typer.Option("--device", "-d", help=f"One of {', '.join(device_forms())}.")] = "rtl",
    timing: Annotated[
        bool, typer.Option("--timing", help="Let cycles, counters and traffic that differ count as differences.")
    ] = False,
    waves: WavesOption = None,
    first: FromOption = 0,
    stop: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recording's programs on a device and name the first difference in each: tensor, layer and instruction.

    The exit status is 1 if faults or results differ.
    """
    request = wave_request(waves, first, stop, device)
    with progress(f"reading {source}", err) as status:
        recording = load_recording(source)
        opened = open_device(device, recording.config, progress=status.update)
        if request is not None:
            write_waves(opened, request)
        status.update(f"running on {device}")
        found = replay(recording, opened)
        looked = finished_waves(opened)
    wrong = [each for each in found if timing or not each.is_timing]
    if as_json:
        print_json({"recorded_on": recording.device, "device": opened.name, "launches": len(recording.launches),
                    "same": not wrong, "differences": [vars(each) for each in found]})  # fmt: skip
        raise typer.Exit(bool(wrong))
    clock = f" at {recording.clock_mhz:g} MHz" if recording.clock_mhz else ""
    out.print(f"{len(recording.launches)} launches, recorded on {recording.device!r}{clock}", markup=False)
    for each in found:
        out.print(f"{'timing: ' if each.is_timing else ''}{each}", highlight=False, markup=False, soft_wrap=True)
    if looked:
        out.print(looked, markup=False, soft_wrap=True)
    out.print("results differ" if wrong else "all results are the same", markup=False)
    raise typer.Exit(bool(wrong))
