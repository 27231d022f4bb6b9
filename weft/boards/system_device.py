"""``pynq://NAME`` with a system: all cores on a board, as a device of the runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..hw.errors import ConfigError
from ..hw.relay_plan import RelayPlan, settings_of_plan, settings_of_turns
from ..hw.system_config import SystemConfig
from ..runtime.device import Bytes, Progress
from ..runtime.errors import DeviceError
from ..runtime.system_device import SystemDevice
from ..sim.dram import DramModel
from ..sim.relay_run import Host as Served
from ..sim.relay_run import RelayResult, check_relay, check_turns
from ..sim.result import RunResult
from ..sim.system_run import NOTHING, CoreProgram, SystemResult, check_programs
from .design import system_digits
from .device import BoardMemory, board_of, run_result
from .hosts import KERNELS, Host, no_overlay


class PynqSystem(SystemDevice):
    """The cores of a system on a board behind ssh, with one window of the board's memory for all of them.

    Cores count their own cycles, and those of each program as on the RTL. Of runs that cores start themselves, the
    last one's are known, and the cycles of all together. ``dram`` is what a core alone is compared with.

    The host cannot use a window while cores run: pynq writes a buffer back, and reads it, as a whole.
    """

    serves = False

    def __init__(
        self, config: SystemConfig, window_bytes: int, *, host: Host, shared: range = NOTHING,
        dram: DramModel | None = None, progress: Progress | None = None, windows: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, "pynq", window_bytes, shared=shared, dram=dram, windows=windows)
        if host.kernels == "board":
            raise DeviceError(f"board {host.name!r} is to run the steps between programs, which it cannot for a system",
                              hint='kernels = "host" in the file of boards')  # fmt: skip
        check_overlay(host, config)
        self.board = board_of(replace(host, kernels=KERNELS[0]))
        self._memory = BoardMemory(self.board, config, progress or (lambda _: None))
        self._memory.allocate(self._memory_bytes)

    @property
    def clock_mhz(self) -> float | None:
        """The clock of the cores in MHz, read back from the board."""
        return self.board.clock_mhz

    def write(self, offset: int, raw: Bytes) -> None:
        self._memory.write(offset, raw)

    def read(self, offset: int, size: int) -> Bytes:
        return self._memory.read(offset, size)

    def close(self) -> None:
        self._memory.allocate(0)

    def run(self, programs: Sequence[CoreProgram | None]) -> SystemResult:
        check_programs(self.config, programs)
        answer = self._memory.run("together", **self._fields(programs))
        return SystemResult(self._results(answer["runs"]), (0,) * len(self.config.cores))

    def relay(
        self, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int, host: Served | None = None
    ) -> RelayResult:
        check_relay(self.config, plan, programs, runs)
        check_turns(self.config, programs)
        if host is not None:
            raise DeviceError("a board's host cannot use a window while cores run")
        settings = settings_of_plan(plan, runs)
        settings += settings_of_turns([[(each.offset, each.count) for each in own] for own in programs])
        fields = self._fields([own[0] for own in programs])
        answer = self._memory.run("relay", np.array(settings, "<u4").tobytes(), runs=runs, **fields)
        return RelayResult(tuple(answer["ended"]), self._results(answer["runs"]), cycles=answer["cycles"])

    def _fields(self, programs: Sequence[CoreProgram | None]) -> dict[str, Any]:
        """What a request says of the programs, one for each core."""
        said = [
            program
            and {
                "start": program.window_start,
                "size": program.window_bytes,
                "offset": program.offset,
                "count": program.count,
            }
            for program in programs
        ]
        return {"programs": said, "shared": [self.shared.start, self.shared.stop]}

    def _results(self, runs: Sequence[dict[str, Any] | None]) -> tuple[RunResult | None, ...]:
        name = self.board.host.name
        if len(runs) != len(self.config.cores):
            raise DeviceError(f"board {name!r} answers for {len(runs)} cores, not for {len(self.config.cores)}")
        each = zip(self.config.cores, runs, strict=True)
        return tuple(None if run is None else run_result(core, name, run) for core, run in each)


def check_overlay(host: Host, config: SystemConfig) -> None:
    """:class:`DeviceError` unless the board's overlay was built for this system, by the manifest beside it: what is
    between the cores has no register that tells of it."""
    if host.overlay is None:
        raise no_overlay(host)
    path = host.overlay.with_suffix(".json")
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        hint = "copy the .json that was written with the overlay beside it"
        raise DeviceError(f"the overlay of board {host.name!r} has no manifest", at=path, hint=hint) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DeviceError(f"not the manifest of an overlay: {error}", at=path) from None
    if not isinstance(values, dict) or "system" not in values:
        raise DeviceError(f"the overlay of board {host.name!r} has one core, not the system {config.name!r}", at=path,
                          hint="run without a system, or load an overlay of it: weft board build --system")  # fmt: skip
    try:
        there = SystemConfig.from_json(json.dumps(values["system"]))
    except ConfigError as error:
        raise DeviceError(f"not the manifest of an overlay: {error}", at=path) from None
    if system_digits(there) != system_digits(config):
        raise DeviceError(
            f"the overlay of board {host.name!r} was built for another system: {'; '.join(differences(there, config))}",
            at=path, hint="run with the system.json that was written with the overlay, or build one for this system",
        )  # fmt: skip


def differences(there: SystemConfig, wanted: SystemConfig) -> list[str]:
    """In what a system differs from the one that is wanted, a text for each thing."""
    if len(there.cores) != len(wanted.cores):
        return [f"it has {len(there.cores)} cores, not {len(wanted.cores)}"]
    texts = [
        f"core {number} is a {one.name!r} of other fields ({', '.join(_fields_apart(one, other))})"
        for number, (one, other) in enumerate(zip(there.cores, wanted.cores, strict=True))
        if one.hash64 != other.hash64
    ]
    for field in ("ports", "shared_reads", "relay"):
        if (one := getattr(there, field)) != (other := getattr(wanted, field)):
            texts.append(f"{field} is {one}, not {other}")
    return texts


def _fields_apart(one: Any, other: Any) -> list[str]:
    mine, others = asdict(one), asdict(other)
    return [name for name in mine if mine[name] != others[name] and name != "name"]
