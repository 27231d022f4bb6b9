"""Checks from this machine to a loaded design: link, Python, permissions, pynq, memory, overlay, hash, clock."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..hw.config import ISA_VERSION
from ..runtime.errors import DeviceError
from ..shown import one_line
from .device import load_fields
from .finding import Check, FindingError
from .hosts import Host
from .patient import Patient
from .remote import LOAD_SECONDS, SSH, BoardLinkError, Link, design_files
from .zipapp import code_digest

GREETING = "weft"
PROBE = (
    "import json, sys, importlib.util as u; "
    "print(json.dumps([list(sys.version_info[:3]), sys.executable, [bool(u.find_spec(n)) for n in ('numpy', 'pynq')]]))"
)
"""What the board's Python is asked if it does not run the program."""

OLDEST_PYTHON = (3, 10)
LEAST_MEMORY = 4 << 20
"""Bytes of contiguous memory without which no network of any use fits."""

CLOCK_TOLERANCE = 0.01

SSH_SAYS = (
    ("permission denied", "the board does not take this key: ssh-copy-id, or name the key by ssh_options"),
    ("host key verification failed", "log in once by hand, and compare the key"),
    ("could not resolve", "the name is unknown: `ssh` in the file of boards is what ssh is called with"),
    ("connection refused", "the board runs no ssh server, or another port: ssh_options"),
    ("no route to host", "is the board on, and on this network?"),
    ("timed out", "is the board on, and on this network?"),
)
SUDO_SAYS = ("sudo:", "a password is required", "not in the sudoers", "not allowed to execute")


def _link(patient: Patient) -> str:
    """The board's shell answers, and says nothing of its own."""
    host = patient.host
    status, said, complaints = _shell(host, f"echo {GREETING}")
    last = one_line((complaints.strip().splitlines() or [""])[-1])
    if status is None:
        raise FindingError(
            f"the link is silent: no answer in {host.connect_seconds:g} s{f'; {last}' if last else ''}",
            "is the board on, and does `ssh` in the file of boards name it? connect_seconds is the deadline",
        )
    if GREETING not in said.split():
        remedy = next((what for text, what in SSH_SAYS if text in complaints.lower()), "")
        raise FindingError(
            f"ssh does not reach the board: {last or f'it ends with status {status}'}",
            remedy or f"this must work by hand: {shlex.join(_shell_command(host, 'true'))}",
        )
    if said.strip() != GREETING:
        raise FindingError(
            f"the board's shell prints {one_line(said)!r} where {GREETING!r} was asked for",
            "what ~/.bashrc or a banner prints spoils the link: let it print in interactive shells only",
        )
    return f"{host.ssh or host.name} answers" if host.command is None else "the other end answers"


def _python(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The board's Python runs the program, or would if it were allowed to."""
    host = patient.host
    try:
        patient.link = Link(host, patient.progress)
    except BoardLinkError as error:
        patient.trouble = error
        if error.kind not in ("closed", "deadline"):
            raise
        return _probed(host, error)
    except DeviceError as error:
        raise FindingError(error.message, error.hint) from None
    peer = patient.link.peer
    if host.installed and peer.code != code_digest():
        raise FindingError(
            f"{host.installed} on the board is of another version of weft than this one",
            "weft board serve --write weft-link.pyz, and copy it there",
        )
    figures = {"python": peer.python, "numpy": peer.numpy, "machine": peer.machine}
    return f"Python {peer.python}, NumPy {peer.numpy}, {peer.machine}", figures


def _probed(host: Host, error: BoardLinkError) -> tuple[str, dict[str, Any]]:
    """What is wrong with the board's Python, without sudo; if nothing is, the rights are to blame."""
    status, said, complaints = _shell(host, shlex.join([*host.python, "-c", PROBE]))
    remedy = "`python` in the file of boards must be the image's own Python, 3.10 or newer, with NumPy and pynq"
    try:
        version, program, (numpy, _) = json.loads(said)
        text = ".".join(str(int(part)) for part in version)
        found = tuple(version) >= OLDEST_PYTHON
    except (ValueError, TypeError):
        last = one_line((complaints.strip().splitlines() or [f"status {status}"])[-1])
        raise FindingError(f"{host.python[0]} does not run on the board: {last}", remedy) from None
    if not found:
        raise FindingError(f"the board's Python is {text}, too old: {one_line(str(program))}", remedy)
    if not numpy:
        raise FindingError(f"the board's Python {text} has no NumPy: {one_line(str(program))}", remedy)
    if not any(each in error.reason for each in SUDO_SAYS):
        raise FindingError(f"Python {text} is there, but does not run the program: {error.reason}", error.hint)
    return f"Python {text}", {"python": text}


def _permissions(patient: Patient) -> str:
    """The program runs as root."""
    sudo = "docs/boards-running.md has the line for sudo; `sudo` in the file of boards is what stands before Python"
    if isinstance(patient.trouble, BoardLinkError):
        raise FindingError(f"sudo does not let the program run: {patient.trouble.reason}", sudo)
    assert patient.link is not None
    if user := patient.link.peer.user:
        raise FindingError(
            f"no permission: the program runs as user {user}, but pynq maps registers as root only", sudo
        )
    return "the program runs as root"


def _pynq(patient: Patient) -> tuple[str, dict[str, Any]]:
    """pynq is there and sees the board."""
    try:
        patient.system = patient.ask("system")
    except BoardLinkError as error:
        if error.kind != "pynq":
            raise
        there = patient.link is not None and patient.link.peer.pynq
        remedy = (
            "pynq sees devices only with XRT: is this an image of PYNQ, and is /usr/lib/libxrt_core.so.2 there?"
            if there
            else "`python` in the file of boards must be the image's own Python, which has pynq"
        )
        raise FindingError(error.reason, remedy) from None
    version, device = patient.system["pynq"], patient.system["device"]
    return f"pynq {version}, device {device}", {"pynq": version, "device": device}


def _memory(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The kernel has contiguous memory for buffers."""
    total, free = patient.system["cma_total"], patient.system["cma_free"]
    figures = {"cma_total": total, "cma_free": free}
    if total is None or free is None:
        return "the kernel does not say how much contiguous memory there is", figures
    wanted = max(LEAST_MEMORY, patient.least_memory)
    said = f"{free / 2**20:.1f} MiB of {total / 2**20:.1f} MiB of contiguous memory (CMA) are free"
    if free < wanted:
        remedy = "boot with a larger cma=, such as cma=128M" if total < wanted else "end what else uses it"
        raise FindingError(f"too little memory: {said}, and {wanted / 2**20:.1f} MiB are needed", remedy, figures)
    return said, figures


def _overlay(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The design can be loaded, and has a core's block."""
    host, config = patient.host, patient.config
    files = design_files(host)
    assert patient.link is not None
    bit, hwh = (patient.link.send_file(name, content) for name, content in zip(("bit", "hwh"), files, strict=True))
    try:
        patient.loaded = patient.ask(
            "load", LOAD_SECONDS,
            bit=bit, hwh=hwh, ip=host.ip, clock_mhz=host.clock_mhz, **load_fields(config),
        )  # fmt: skip
    except BoardLinkError as error:
        if error.kind == "identity":
            patient.trouble = error  # the next check's
            return f"{host.overlay} is loaded", {}
        remedies = {
            "overlay": "the .bit and the .hwh must be of one design for this board, with one core: weft board build",
        }
        raise FindingError(error.reason, remedies.get(error.kind, error.hint), {"kind": error.kind}) from None
    address = patient.loaded["address"]
    return f"{host.overlay} is loaded; the core's registers are at {address:#x}", {"address": address}


def _hash(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The core is the one that programs are made for."""
    if isinstance(patient.trouble, BoardLinkError):
        raise FindingError(
            patient.trouble.reason,
            "--config names the core that is meant, and `overlay` the .bit that was built for it; if neither is wrong, "
            "the .hwh gives the core another address than the .bit",
        )
    found = f"{patient.config.hash64:016x}"
    return f"core {patient.config.name!r}, {found}, instruction set {ISA_VERSION}", {"hash": found}


def _clock(patient: Patient) -> tuple[str, dict[str, Any]]:
    """pynq says that the clock is the one that the design was built for."""
    mhz = patient.loaded["clock_mhz"]
    wanted = patient.host.clock_mhz or _built_mhz(patient.host)
    figures = {"mhz": mhz, "wanted_mhz": wanted}
    if mhz is None:
        return "pynq cannot tell the clock", figures
    if wanted is not None and abs(mhz - wanted) > CLOCK_TOLERANCE * wanted:
        raise FindingError(
            f"the clock is {mhz:g} MHz, but {wanted:g} MHz are meant",
            "something else set it after the design was loaded, or its PLL cannot make it: choose another clock_mhz",
            figures,
        )
    return f"{mhz:g} MHz, as pynq reads it", figures


def _built_mhz(host: Host) -> float | None:
    """The clock in the manifest beside the overlay."""
    try:
        assert host.overlay is not None
        return float(json.loads(host.overlay.with_suffix(".json").read_text())["clock"]["mhz"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _shell_command(host: Host, words: str) -> list[str]:
    if host.command is not None:
        return [*host.command, words]
    return [*SSH, *host.ssh_options, "--", host.ssh or host.name, words]


def _shell(host: Host, words: str) -> tuple[int | None, str, str]:
    """What the board's shell makes of some words: status (None: it did not end in time), output and complaints."""
    command: Sequence[str] = _shell_command(host, words)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise FindingError(f"{command[0]} cannot be run here: {error.strerror}", "install OpenSSH") from None
    try:
        out, err = process.communicate(timeout=host.connect_seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = None
    return status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


REACH_CHECKS = (
    Check("link", _link),
    Check("python", _python),
    Check("permissions", _permissions),
    Check("pynq", _pynq),
    Check("memory", _memory),
    Check("overlay", _overlay),
    Check("hash", _hash),
    Check("clock", _clock),
)
