"""Several cores as data: which cores, and which of them share a port of memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..whole import whole
from .config import CoreConfig, fields_in_json, named_config, text_in
from .errors import ConfigError

MOST_CORES = 8
"""Cores that a system can have."""

MOST_WEIGHT = 15
"""Bursts in a row that a core's turn at an arbiter can have."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """One to eight cores on one memory.

    cores
        The configuration of each. They may differ, but their buses have the same width of data and of addresses.
    ports
        For each core the number of its memory port; by default all share port 0. Ports count from 0 without a gap. An
        arbiter stands in front of a port that several cores share, and nothing in front of one that a core has alone.
    weights
        For each core how many bursts its turn at the arbiter has at most, 1 to 15; none where each has 1. One that asks
        for nothing passes its turn on.
    shared_reads
        Whether one read of the memory answers all cores of a port that read the same weights (:mod:`.shared_reads`).
    relay
        Whether cores can start each other, without the host (:mod:`.relay`).
    """

    cores: tuple[CoreConfig, ...]
    ports: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    name: str = "system"
    shared_reads: bool = False
    relay: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ConfigError(f"name must be a text, not {self.name!r}", at="name")
        if not isinstance(self.cores, Sequence) or isinstance(self.cores, str):
            raise ConfigError(f"cores must be a list of configurations, not {self.cores!r:.80}", at="cores")
        object.__setattr__(self, "cores", tuple(self.cores))
        if not 1 <= len(self.cores) <= MOST_CORES:
            raise ConfigError(f"a system has 1 to {MOST_CORES} cores, not {len(self.cores)}", at="cores")
        for number, core in enumerate(self.cores):
            if not isinstance(core, CoreConfig):
                raise ConfigError(f"{core!r:.80} is no configuration of a core", at=f"cores[{number}]")
        self._check_buses()
        self._check_ports()
        self._check_weights()
        for name in ("shared_reads", "relay"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {value!r:.80}", at=name)
        if self.shared_reads and self.port_count == len(self.cores):
            raise ConfigError("no two cores have one port, so there is nobody to share reads with", at="shared_reads",
                              hint="give cores the same port, or leave shared_reads out")  # fmt: skip

    def _check_buses(self) -> None:
        first = self.cores[0]
        for number, core in enumerate(self.cores):
            for field in ("bus_bits", "address_bits"):
                if getattr(core, field) != getattr(first, field):
                    raise ConfigError(
                        f"{field} is {getattr(core, field)}, but core 0 has {getattr(first, field)}",
                        at=f"cores[{number}]", hint="give all cores of a system buses of one width",
                    )  # fmt: skip

    def _check_ports(self) -> None:
        if not isinstance(self.ports, Sequence) or isinstance(self.ports, str):
            raise ConfigError(f"ports must be a list of numbers, not {self.ports!r:.80}", at="ports")
        given = tuple(self.ports) or (0,) * len(self.cores)
        numbers = tuple(number for port in given if (number := whole(port)) is not None and number >= 0)
        if len(numbers) != len(given):
            raise ConfigError(f"{list(given)} are not all numbers of ports", at="ports")
        if len(numbers) != len(self.cores):
            raise ConfigError(f"{len(numbers)} ports for {len(self.cores)} cores", at="ports",
                              hint="name the port of each core, or none: then all share one")  # fmt: skip
        if missing := sorted(set(range(max(numbers))) - set(numbers)):
            raise ConfigError(f"no core has port {missing[0]}, but one has port {max(numbers)}", at="ports",
                              hint="number the ports from 0 without a gap")  # fmt: skip
        object.__setattr__(self, "ports", numbers)

    def _check_weights(self) -> None:
        if not isinstance(self.weights, Sequence) or isinstance(self.weights, str):
            raise ConfigError(f"weights must be a list of numbers, not {self.weights!r:.80}", at="weights")
        given = tuple(self.weights)
        if given and len(given) != len(self.cores):
            raise ConfigError(f"{len(given)} weights for {len(self.cores)} cores", at="weights",
                              hint="give the weight of each core, or none: then all have the same")  # fmt: skip
        weights = []
        for number, value in enumerate(given):
            weight = whole(value)
            if weight is None or not 1 <= weight <= MOST_WEIGHT:
                raise ConfigError(f"a weight must be 1 to {MOST_WEIGHT} bursts, not {value!r:.80}",
                                  at=f"weights[{number}]")  # fmt: skip
            if weight > 1 and len(self.cores_of(self.ports[number])) == 1:
                raise ConfigError(f"core {number} has port {self.ports[number]} alone, so it waits for no turn",
                                  at=f"weights[{number}]", hint="give it weight 1, or cores the same port")  # fmt: skip
            weights.append(weight)
        object.__setattr__(self, "weights", tuple(weights) if max(weights, default=1) > 1 else ())

    @property
    def port_count(self) -> int:
        """Memory ports."""
        return max(self.ports) + 1

    def cores_of(self, port: int) -> tuple[int, ...]:
        """Numbers of the cores on a port, ascending: the order of their turns."""
        return tuple(core for core, own in enumerate(self.ports) if own == port)

    def weight_of(self, core: int) -> int:
        """Bursts of a core's turn at its arbiter."""
        return self.weights[core] if self.weights else 1

    @property
    def bus_bytes(self) -> int:
        """Bytes that a port carries in a cycle."""
        return self.cores[0].bus_bytes

    def to_json(self) -> str:
        """JSON text; :meth:`from_json` reads it back."""
        cores = [asdict(core) for core in self.cores]
        ports = list(self.ports)
        weights = list(self.weights)
        modes = {"shared_reads": self.shared_reads, "relay": self.relay}
        text = {"name": self.name, "cores": cores, "ports": ports, "weights": weights, **modes}
        return json.dumps(text, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> SystemConfig:
        """Read what :meth:`to_json` wrote, or a part of it: only ``cores`` is needed. A core is the name of a
        configuration, or an object with some of its fields. :class:`ConfigError` names the place."""
        values = fields_in_json(text, SystemConfig, "system")
        if not isinstance(values.get("cores"), list):
            raise ConfigError("a system needs a list of cores", at="cores", hint='{"cores": ["pynq", "pynq"]}')
        cores = tuple(_core(number, core) for number, core in enumerate(values["cores"]))
        return SystemConfig(**(values | {"cores": cores}))


def _core(number: int, value: Any) -> CoreConfig:
    at = f"cores[{number}]"
    try:
        if isinstance(value, str):
            return named_config(value)
        if isinstance(value, dict):
            return CoreConfig.from_json(json.dumps(value))
    except ConfigError as error:
        raise ConfigError(error.message, at=at, hint=error.hint) from error
    raise ConfigError(f"{value!r:.80} is neither the name of a configuration nor an object of its fields", at=at)


def load_system(path: str | Path) -> SystemConfig:
    """The system in a JSON file; :class:`ConfigError` if there is none."""
    try:
        return SystemConfig.from_json(text_in(path))
    except ConfigError as error:
        place = f"{path}: {error.at}" if error.at not in ("", str(path)) else str(path)
        raise ConfigError(error.message, at=place, hint=error.hint) from error
