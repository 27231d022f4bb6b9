"""All that is asked of ``pynq``: a design loaded, its block found, memory, the clock. Works with 3.1 and 4.0."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LinkError
from .interrupt import InterruptLine, event_loop

CACHED_METADATA = "_current_metadata.pkl"
"""pynq's own copy of the last design's description, in the folder of its module ``pl_server``."""

XRT_LIBRARIES = ("/usr/lib/libxrt_core.so.2", "/usr/lib/libxrt_core.so")


def import_pynq() -> Any:
    """The package; LinkError if it is not there.

    On an image it finds its devices only if ``XILINX_XRT`` is set, which a login shell does, but ``sudo`` and ``ssh``
    do not.
    """
    if any(os.path.exists(library) for library in XRT_LIBRARIES):
        os.environ.setdefault("XILINX_XRT", "/usr")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("pynq")
    except Exception as error:  # whatever a package does when it is imported where it does not fit
        raise LinkError("pynq", f"pynq cannot be imported: {type(error).__name__}: {error}") from None


def device_name(pynq: Any) -> str:
    """What pynq calls the device that designs are loaded into; LinkError if it finds none."""
    device = _guarded("pynq finds no device", lambda: pynq.Device.active_device)
    return str(getattr(device, "name", ""))


def version_of(package: str) -> str:
    """Version of an installed package; empty if it has none."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


class LoadedDesign:
    """A design in the logic. ``block`` is pynq's driver of the core's cell; it has ``read`` and ``write``. ``line`` is
    the core's interrupt; without one, ``no_interrupt`` says why."""

    def __init__(self, overlay: Any, name: str) -> None:
        self._overlay = overlay
        entry = overlay.ip_dict[name]
        self.address = int(entry["phys_addr"])
        self.device = str(getattr(overlay.device, "name", ""))
        self.line: InterruptLine | None = None
        self.no_interrupt = ""
        pins = list(entry.get("interrupts") or ())
        asyncio.set_event_loop(event_loop())  # pynq takes the current one
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                self.block = getattr(overlay, name)
        except OSError as error:  # in the kernel's files of interrupts: all else does without them
            import pynq

            self.block = pynq.MMIO(self.address, int(entry["addr_range"]), device=overlay.device)
            self.no_interrupt = f"{type(error).__name__}: {error}"
        else:
            found = [getattr(self.block, pin, None) for pin in pins]
            if found and found[0] is not None:
                self.line = InterruptLine(found[0])
            else:
                why = [str(each.message) for each in said if "Interrupt" in str(each.message)]
                self.no_interrupt = why[0] if why else "the design does not connect it to the processor"
        for what in ("read", "write"):
            if not callable(getattr(self.block, what, None)):
                raise LinkError("overlay", f"block {name!r} of the design has no registers")

    def allocate(self, size: int) -> Any:
        """A buffer that the core and the processor share, cached on the processor's side."""
        import pynq

        return pynq.allocate((size,), dtype="u1", target=self._overlay.device, cacheable=1)

    def clock_mhz(self) -> float | None:
        """The clock that the logic has in fact, in MHz; None if pynq cannot tell."""
        import pynq

        try:
            return float(pynq.Clocks.fclk0_mhz)
        except (RuntimeError, ValueError, ZeroDivisionError, AttributeError, TypeError, OSError):
            return None


@dataclass(frozen=True)
class Wanted:
    """The cell that a design has to hold: its type begins with one of ``types``, and is not one of ``others``, of which
    ``unlike`` says what they are."""

    types: Sequence[str]
    others: Sequence[str]
    unlike: str


def load_design(pynq: Any, bit: Path, wanted: Wanted, name: str | None, clock_mhz: float | None) -> LoadedDesign:
    """Program the logic with ``bit`` (its ``.hwh`` beside it) and find the cell that is wanted: by ``name``, or the
    only one of its type. LinkError of kind ``pynq`` or ``overlay`` if that fails."""
    forget_metadata(pynq)
    overlay = _guarded("the design cannot be loaded", lambda: pynq.Overlay(str(bit)))
    cells = overlay.ip_dict
    of_type = {cell: str(entry.get("type")) for cell, entry in cells.items() if name in (None, cell)}
    if any(each.startswith(tuple(wanted.others)) for each in of_type.values()):
        raise LinkError("overlay", wanted.unlike)
    if name is None:
        found = [cell for cell, kind in of_type.items() if kind.startswith(tuple(wanted.types))]
        if len(found) != 1:
            listed = ", ".join(f"{cell} ({entry.get('type')})" for cell, entry in cells.items())
            raise LinkError("overlay", f"the design has {len(found)} cores, not one; its blocks: {listed or 'none'}")
        name = str(found[0])
    elif name not in cells:
        raise LinkError("overlay", f"the design has no block {name!r}; it has {', '.join(cells) or 'none'}")
    if clock_mhz is not None:
        _guarded("the clock cannot be set", lambda: setattr(pynq.Clocks, "fclk0_mhz", clock_mhz))
    chosen = name
    design: LoadedDesign = _guarded("the core's block cannot be used", lambda: LoadedDesign(overlay, chosen))
    return design


def forget_metadata(pynq: Any) -> None:
    """Remove pynq's pickled description of the last design.

    It is found by the digest of the ``.bit`` alone: with another ``.hwh`` it would give addresses of long ago. And
    unpickling what lies in a folder runs whatever was put there.
    """
    cached = Path(pynq.__file__).parent / "pl_server" / CACHED_METADATA
    try:
        cached.unlink(missing_ok=True)
    except OSError as error:
        raise LinkError("pynq", f"{cached} cannot be removed ({error.strerror}), and it may be out of date") from None


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _guarded(what: str, action: Callable[[], Any]) -> Any:
    """The action's result; whatever pynq raises becomes a LinkError: it has no errors of its own."""
    try:
        return action()
    except LinkError:
        raise
    except Exception as error:
        kind = "pynq" if "No Devices Found" in str(error) else "overlay"
        if isinstance(error, PermissionError) or "permission" in str(error).lower():  # pynq has no error for it
            kind = "permission"
        raise LinkError(kind, f"{what}: {type(error).__name__}: {error}") from error
