"""The option of ``weft run`` that has the RTL simulator optimised for later runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ..hw.config import CoreConfig
from ..runtime.device import RtlDevice
from ..runtime.errors import DeviceError
from .output import err

OptimiseOption = Annotated[
    bool,
    typer.Option(
        "--optimise-simulator",
        help="With device rtl: also compile a faster simulator of the core in the background, for later runs.",
    ),
]


def check_optimising(*, wanted: bool, device: str | None, alone: bool) -> None:
    """Refuse what has no such simulator, before the work begins. ``alone``: one core that writes no waveform."""
    if not wanted:
        return
    if device != RtlDevice.name or not alone:
        raise DeviceError("--optimise-simulator is of one core on device rtl, without a waveform",
                          hint=f"--device {RtlDevice.name}, without --system and --waves")  # fmt: skip
    from ..sim.training import check_training

    check_training()


def begin_optimising(config: CoreConfig | None) -> None:
    """Begin in the background; a line on stderr says so."""
    if config is None:
        raise DeviceError("--optimise-simulator: nothing of this model runs on a core", hint="use target 'accel'")
    from ..sim.training import start_training

    begun = start_training(config)
    what = "is being optimised in the background, for later runs" if begun else "is optimised already"
    err.print(f"the simulator of {config.name} {what}", highlight=False, markup=False)
