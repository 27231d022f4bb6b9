"""The options of commands that run the RTL and write a waveform of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..runtime.device import Device, RtlDevice
from ..runtime.errors import DeviceError
from ..runtime.system_device import SimulatedSystem, SystemDevice
from .output import output_file

if TYPE_CHECKING:  # imported where one is asked for: it knows the hardware
    from ..sim.waves import WaveRequest

WavesOption = Annotated[
    Path | None,
    output_file("--waves", help="Write a waveform of the core, .vcd or .fst, or its switching activity, .saif."),
]
FromOption = Annotated[int, typer.Option("--from", min=0, help="First cycle of the waveform.")]
ToOption = Annotated[int | None, typer.Option("--to", min=1, help="Cycle before which the waveform ends.")]


def wave_request(path: Path | None, first: int, stop: int | None, device: str | None) -> WaveRequest | None:
    """What is asked for. DeviceError for another device than rtl, or cycles of no waveform."""
    if path is None:
        if first or stop is not None:
            raise DeviceError("--from and --to are cycles of a waveform", hint="name it: --waves FILE.vcd")
        return None
    if device != RtlDevice.name:
        raise DeviceError(f"device {device or 'fsim'!r} has no waveform", hint=f"--device {RtlDevice.name}")
    from ..sim.waves import WaveRequest

    return WaveRequest(path, first, stop)


def write_waves(device: Device | SystemDevice, request: WaveRequest) -> None:
    """Let a device that was just opened write the waveform."""
    if not isinstance(device, (RtlDevice, SimulatedSystem)):
        raise DeviceError("this device has no waveform", hint=f"--device {RtlDevice.name}")
    device.write_waves(request)


def finished_waves(device: object) -> str:
    """End a device's waveform; how to look at it, and nothing for a device without one."""
    if not isinstance(device, (RtlDevice, SimulatedSystem)) or device.waves is None:
        return ""
    try:
        path, view = device.finish_waves()
    except DeviceError as nothing:  # a run that ended before the core began tells why by itself
        return str(nothing)
    if view is None:
        return f"wrote {path}: switching activity of every net, for power tools"
    return f"wrote {path}: surfer {path}, or with names: gtkwave {view}"
