"""``weft board``: boards, the cores that fit them, and what Vivado or open tools build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ..boards.board import Board, all_boards
from ..boards.design import fitted_core, make_design
from ..boards.errors import BoardError
from ..boards.fit import Fit, fit, measured_cores, number
from ..boards.standalone.board import StandaloneBoard, any_board, standalone_boards
from ..boards.standalone.fit import require_fit
from ..hw.config import CoreConfig, load_config
from ..hw.system_config import SystemConfig, load_system
from ..progress import progress
from .app import board_app
from .output import JsonOption, err, input_file, out, output_folder, print_json, table, wide_console

RESOURCES = ("LUT", "FF", "BRAM36", "URAM", "DSP")
BOARD_COLUMNS = ("board", "part", *RESOURCES, "DDR GB/s", "port", "MHz", "core", "fullest", "pynq")
STANDALONE_COLUMNS = ("board", "part", "package", "grade", "memory KiB", "MHz", "baud", "core")
CORE_COLUMNS = ("board", "core", "array", *RESOURCES, "fits")


SystemOption = Annotated[
    Path | None, input_file("--system", help="Several cores on one memory, as JSON; instead of --config.")
]


@board_app.command("list")
def list_boards(
    cores: Annotated[bool, typer.Option("--cores", help="Every measured core on every board.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show all boards, each with its default core; shares are of the part, by synthesis (docs/synthesis.md)."""
    boards = list(all_boards().values())
    if as_json:
        values = [_board_values(board) | {"cores": _core_values(board)} for board in boards]
        print_json([*values, *map(_standalone_values, standalone_boards().values())])
    elif cores:
        rows = [_core_row(each) for board in boards for each in _fits(board)]
        wide_console().print(table("measured cores on boards: share of the part", CORE_COLUMNS, rows, named=1))
    else:
        wide_console().print(table("PYNQ boards", BOARD_COLUMNS, [_board_row(board) for board in boards], named=1))
        rows = [_standalone_row(board) for board in standalone_boards().values()]
        wide_console().print(table("boards without a processor, for open tools", STANDALONE_COLUMNS, rows, named=1))


@board_app.command()
def build(
    board: Annotated[str, typer.Argument(help="A name that `weft board list` shows, or a .toml file.")],
    output: Annotated[
        Path | None, output_folder("--output", "-o", help="Folder to write into. Default: the board's name.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Core: a name, or a JSON file. Default: the board's.")
    ] = None,
    system: SystemOption = None,
    clock: Annotated[float | None, typer.Option(help="Highest clock in MHz. Default: the board's.")] = None,
    vivado: Annotated[str | None, typer.Option(help="Run this Vivado: its program, or `vivado` from PATH.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if synthesis says that it does not fit.")] = False,
) -> None:
    """Write Verilog, Tcl and manifest of a core, or of a system of cores, on a PYNQ board; with --vivado, build the
    overlay of them.

    For a board without a processor: make its bitstream with Yosys, nextpnr and the packer of its family. Steps that are
    done are kept.
    """
    chosen = any_board(board)
    held = chosen_cores(chosen, config, system)
    output = output or Path(chosen.name)
    if isinstance(chosen, StandaloneBoard):
        assert isinstance(held, CoreConfig)  # by chosen_cores
        if vivado is not None:
            raise BoardError(f"{chosen.name} is built with open tools", at="--vivado", hint="leave it out")
        if not force:
            require_fit(chosen, held)
        _build_bitstream(chosen, held, output, clock)
        return
    from ..boards.build import find_vivado, run_vivado, write_design  # takes long, and a board may be unknown

    found = fit(chosen, held)
    if not force:
        found.require()
    design = make_design(chosen, held, mhz=clock)
    if vivado is not None:
        vivado = find_vivado(vivado)
    with progress(f"writing {held.name} for {chosen.name}", err):
        paths = write_design(design, output)
    out.print(f"{held.name} on {chosen.title}, {design.clock.mhz:.3f} MHz, design {design.hash[:16]}")
    for line in _remarks(found):
        out.print(Text.assemble(("note: ", "bold yellow"), line))
    out.print(f"wrote {len(paths)} files into {output}; {output / 'README.txt'} has the next steps")
    if vivado is not None:
        with progress("vivado", err) as status:
            built = run_vivado(output, vivado, status.update)
        out.print(f"built {output / 'overlay'}: {built['mhz']} MHz, {built['setup_slack_ns']} ns to spare")


def chosen_cores(board: Board | StandaloneBoard, config: str | None, system: Path | None) -> CoreConfig | SystemConfig:
    """What is to be on a board: a system, a core, or by default the board's. BoardError where it cannot be there."""
    if system is None:
        return board.default_core if config is None else load_config(config)
    if config is not None:
        raise BoardError("a system says which cores it has", at="--config", hint="leave out --config or --system")
    if isinstance(board, StandaloneBoard):
        raise BoardError(f"the design of {board.name} has one core", at="--system",
                         hint="a board with a processor, which `weft board list` shows first")  # fmt: skip
    return load_system(system)


def _build_bitstream(board: StandaloneBoard, core: CoreConfig, output: Path, clock: float | None) -> None:
    """The bitstream of a board without a processor, and how to use it."""
    from ..boards.standalone.flow import CONFIG_FILE
    from ..boards.standalone.flow import build as build_bitstream

    with progress(f"building {core.name} for {board.name}", err) as status:
        built = build_bitstream(board, output, core, mhz=clock, progress=status.update)
    out.print(f"{core.name} on {board.title}: {built.mhz:.1f} MHz by nextpnr, {built.asked_mhz:g} MHz its clock")
    used = ", ".join(f"{used:,} {name} ({used / most:.0%})" for name, (used, most) in built.used.items())
    out.print(f"it takes {used}", highlight=False)
    out.print(f"wrote {built.path}. To the board, and then a model on it:\n", highlight=False)
    out.print(f"    {board.programmer} {built.path}", highlight=False, markup=False, soft_wrap=True)
    run = f"weft run MODEL.onnx --config {output / CONFIG_FILE} --device serial:///dev/ttyUSB0"
    out.print(f"    {run}", highlight=False, markup=False, soft_wrap=True)


def _remarks(found: Fit) -> list[str]:
    """What the user should know about how sure it is that the core fits."""
    if not found.measured:
        what = "this core" if isinstance(found.core, CoreConfig) else "one of these cores"
        hint = "`weft synth --config CORE --for xc7` shows what it takes"
        return [f"nobody has synthesised {what} yet, so it may not fit; {hint}"]
    remarks = [f"does not fit: {text}" for text in found.shortages]
    if found.differs:
        remarks.append(f"what it takes was measured with another {' and '.join(found.differs)}, which changes little")
    return remarks


def _fits(board: Board) -> list[Fit]:
    return [fit(board, fitted_core(board, core)) for core in measured_cores()]


def _board_row(board: Board) -> list[str]:
    resources, core = board.resources, board.default_core
    clock = board.clock.clock()
    shares = fit(board, core).shares
    fullest = max(shares, key=lambda name: shares[name], default=None)
    return [
        board.name,
        board.part,
        *(number(getattr(resources, name)) for name in RESOURCES),
        f"{board.ddr.bytes_per_second / 1e9:.1f}",
        f"{board.memory_port}, {max(board.port.data_bits)} bits",
        f"{clock.mhz:.1f}",
        core.name,
        "not measured" if fullest is None else f"{shares[fullest]:.0%} {fullest}",
        board.software.pynq,
    ]


def _standalone_row(board: StandaloneBoard) -> list[str]:
    kibibytes, mhz = number(board.memory_bytes / 1024), f"{board.core_clock().mhz:.1f}"
    core = board.default_core.name
    return [board.name, board.part, board.package, str(board.grade), kibibytes, mhz, number(board.baud), core]


def _standalone_values(board: StandaloneBoard) -> dict[str, Any]:
    return {
        "name": board.name,
        "title": board.title,
        "family": board.family,
        "part": board.part,
        "package": board.package,
        "grade": board.grade,
        "memory_bytes": board.memory_bytes,
        "mhz": board.core_clock().mhz,
        "baud": board.baud,
        "core": board.default_core.name,
        "core_hash": f"{board.default_core.hash64:016x}",
    }


def _core_row(each: Fit) -> list[str]:
    core = each.core
    assert isinstance(core, CoreConfig)  # of measured_cores
    shares = [f"{each.shares[name]:.0%}" if name in each.shares else "" for name in RESOURCES]
    array = f"{core.batch}x{core.block_in}x{core.block_out}"
    return [each.board.name, core.name, array, *shares, _verdict(each)]


def _verdict(each: Fit) -> str:
    """``yes``, or the first thing that stands against it."""
    if each.shortages:
        return each.shortages[0]
    try:
        make_design(each.board, each.core)
    except BoardError as error:
        return error.message
    return "yes"


def _board_values(board: Board) -> dict[str, Any]:
    clock, software = board.clock.clock(), board.software
    return {
        "name": board.name,
        "title": board.title,
        "part": board.part,
        "processing_system": board.processing_system,
        "architecture": board.system.architecture,
        "resources": {name: getattr(board.resources, name) for name in RESOURCES},
        "ddr_bytes": board.ddr.bytes,
        "ddr_bytes_per_second": board.ddr.bytes_per_second,
        "cma_bytes": board.cma_bytes,
        "port": board.memory_port,
        "protocol": board.port.protocol,
        "mhz": clock.mhz,
        "core": board.default_core.name,
        "core_hash": f"{board.default_core.hash64:016x}",
        "image": software.image,
        "pynq": software.pynq,
        "vivado": software.vivado,
    }


def _core_values(board: Board) -> list[dict[str, Any]]:
    return [{"core": each.core.name, "shares": dict(each.shares), "verdict": _verdict(each)} for each in _fits(board)]
