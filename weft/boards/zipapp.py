"""The program for the board as one zip file: :mod:`.link` and constants of the core.

The same sources give the same bytes. A board gets it over the link at each connect, or
once by hand (``docs/boards-running.md``).
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import resources

from ..hw.bus import PAGE_BYTES
from ..hw.config import PROGRAM_ALIGNMENT
from ..hw.cycle_class import CycleClass
from ..hw.isa import ENGINE_NAMES, Engine, Fault
from ..hw.register_windows import GROUP_MEMBERS, GROUP_WINDOW, SHARED_START, SHARED_STOP, WINDOW_BYTES
from ..hw.registers import MAGIC, WINDOW_ALIGNMENT, Control, Kind, Register, Status, class_counter
from ..hw.relay_plan import RelayControl, RelayRegister, RelayStatus
from ..hw.system_config import MOST_CORES
from .design import CORE_VLNV, SYSTEM_VLNV
from .link.constants import FILE, Constants

PACKAGE = "weft_link"
"""The package's name in the zip file."""

CORE_TYPES = (f"{CORE_VLNV.rpartition(':')[0]}:",)
"""What the type of a core's cell begins with; the version follows."""

SYSTEM_TYPES = (f"{SYSTEM_VLNV.rpartition(':')[0]}:",)
"""As :data:`CORE_TYPES`, of a system of cores."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
OLDEST_PYTHON = """\
import sys
if sys.version_info < (3, 10):
    sys.exit("weft needs Python 3.10 or newer on the board, and this is %d.%d" % sys.version_info[:2])
"""
"""What runs on the board first, in words that any Python 3 knows."""

_MAIN = f"{OLDEST_PYTHON}from {PACKAGE}.server import main\n\nmain()\n"
_READ_BEATS = (Register.READ_BEATS_LOAD_LO, Register.READ_BEATS_LOADW_LO, Register.READ_BEATS_FETCH_LO)


def core_constants() -> Constants:
    """What the driver has to know, from the one place where each is written down."""
    classes = list(CycleClass.__members__.values())
    return Constants(
        magic=MAGIC,
        registers={register.name: int(register) for register in Register},
        control={bit.name or "": int(bit) for bit in Control},
        status={bit.name or "": int(bit) for bit in Status},
        settings=tuple(int(register) for register in Register if register.kind is Kind.SETTING),
        read_beats=tuple(int(address) for address in _READ_BEATS),
        counters=tuple(
            (int(engine), int(kind.value), class_counter(engine, kind)) for engine in Engine for kind in classes
        ),
        engines=ENGINE_NAMES,
        causes={int(cause): cause.name for cause in Fault},
        window_alignment=WINDOW_ALIGNMENT,
        program_alignment=PROGRAM_ALIGNMENT,
        core_types=CORE_TYPES,
        system_types=SYSTEM_TYPES,
        core_space=WINDOW_BYTES,
        system_registers=_system_registers(),
        relay_settings=tuple(_relay_settings()),
        relay_control={bit.name or "": int(bit) for bit in RelayControl},
        relay_status={bit.name or "": int(bit) for bit in RelayStatus},
        page_bytes=PAGE_BYTES,
    )


def _system_registers() -> dict[str, int]:
    own = {"GROUP": GROUP_WINDOW, "GROUP_MEMBERS": GROUP_MEMBERS, "SHARED_START": SHARED_START,
           "SHARED_STOP": SHARED_STOP}  # fmt: skip
    return own | {register.name: int(register) for register in RelayRegister}


def _relay_settings() -> Iterator[int]:
    """Addresses of what settings_of_plan and settings_of_turns write."""
    for register in RelayRegister:
        if register.kind is Kind.SETTING or register is RelayRegister.TURN_COUNT:
            yield from (int(register) + 4 * core for core in range(MOST_CORES if register.of_cores else 1))


@cache
def zipapp(*, takes_code: bool = True) -> bytes:
    """The zip file. ``python FILE`` runs it; so does :data:`weft.boards.remote.BOOT` from memory.

    ``takes_code``: whether it loads machine code that the host sends for the board's processor.
    """
    constants = replace(core_constants(), takes_code=takes_code)
    files = {"__main__.py": _MAIN, f"{PACKAGE}/{FILE}": constants.to_json()}
    for source in resources.files(__package__).joinpath("link").iterdir():
        if source.name.endswith(".py"):
            files[f"{PACKAGE}/{source.name}"] = source.read_text()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return buffer.getvalue()


def code_digest() -> str:
    """What the board says that it runs, if it runs this code."""
    return hashlib.sha256(zipapp()).hexdigest()
