"""The parser that pynq 4.0.0 reads a ``.hwh`` with, in the environment of virtual boards: weft never depends on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.boards.environments import PYNQ_4, pynq_python

READ = """\
import json, sys, warnings
from pynqmetadata.frontends import Metadata
from pynqmetadata.views.runtime import RuntimeMetadataParser
found = {}
for path in sys.argv[1:]:
    parsed = RuntimeMetadataParser(Metadata(input=path))
    found[path] = {
        "ips": {
            name: {key: ip.get(key) for key in ("type", "phys_addr", "addr_range", "parameters", "registers")}
            | {"interrupts": {pin: dict(at) for pin, at in ip.get("interrupts", {}).items()}}
            for name, ip in parsed.ip_dict.items()
        },
        "controllers": {name: dict(at) for name, at in parsed.interrupt_controllers.items()},
        "pins": {name: dict(at) for name, at in parsed.interrupt_pins.items()},
        "clocks": {str(number): dict(clock) for number, clock in parsed.clock_dict.items()},
    }
json.dump(found, sys.stdout, default=str)
"""


def parse(paths: Sequence[Path]) -> Mapping[str, Any]:
    """What the parser makes of each file: cores with addresses and registers, interrupts, clocks."""
    return dict(json.loads(_run([str(pynq_python(PYNQ_4)), "-c", READ, *map(str, paths)])))


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command[:3]} failed:\n{result.stdout[-1000:]}\n{result.stderr[-3000:]}"
    return result.stdout
