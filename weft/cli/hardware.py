"""``weft hw``, ``weft synth`` and ``weft test-hw``: the core itself."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..files import write_atomically
from ..hw.axi_rules import rules_verilog
from ..hw.config import NAMED, load_config
from ..hw.errors import ConfigError
from ..hw.lint_waivers import waiver_file
from ..hw.sram import sram_model, sram_sizes
from ..hw.synthesis import Target, multipliers_for, synthesise
from ..hw.synthesis_report import over_limit, path_rows, usage_rows
from ..hw.system_config import SystemConfig, load_system
from ..hw.verilog import emit_verilog, top_of
from ..progress import progress
from ..testbench.coverage import Coverage, read_hits
from ..testbench.parts import files_with, find_parts, outcome_lines, parts_table, waves_line
from ..testbench.points import core_points, unreachable
from ..testbench.runner import Settings, random_seed, run_failed, run_file
from ..testbench.simulators import VERILATOR, find_simulator
from .app import app
from .output import (
    ConfigOption,
    JsonOption,
    check_places,
    err,
    input_file,
    out,
    output_file,
    output_folder,
    print_json,
    print_report,
    table,
    wide_console,
)


@app.command()
def hw(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            help=f"Core: {', '.join(NAMED)}, or a JSON file with the fields of CoreConfig. Default: pynq.",
        ),
    ] = None,
    target: Annotated[
        Target,
        typer.Option("--for", help="xc7: Xilinx 7-series, two products a multiplier; ecp5, asic: plain multipliers."),
    ] = Target.XC7,
    output: Annotated[Path | None, output_file("--output", "-o", help="Verilog file; default: CONFIG.v.")] = None,
    system: Annotated[
        Path | None, input_file("--system", help="Several cores on one memory, as JSON; instead of --config.")
    ] = None,
    initial_values: Annotated[
        bool, typer.Option(help="Give registers the values that they have after rst; ASIC flows want none.")
    ] = True,
    waivers: Annotated[
        Path | None,
        output_file(help="Also write what silences Verilator's -Wall, each waiver with its reason (.vlt)."),
    ] = None,
    memories: Annotated[
        Path | None,
        output_file(help="Memories are instances of weft_sram, whose model goes here (.v): macros can replace it."),
    ] = None,
    rules: Annotated[
        Path | None,
        output_file(help="Also write AXI's rules as assertions: a module to be put beside this one (.sv)."),
    ] = None,
) -> None:
    """Write the core, or a system of cores, as Verilog, in the form that fits a part. Cycles and results are the same
    in all."""
    if config is not None and system is not None:
        raise ConfigError("a system says which cores it has", at="--config", hint="leave out --config or --system")
    what = load_config(config or "pynq") if system is None else load_system(system)
    path = output or Path(f"{what.name}.v")
    check_places(path, waivers, memories, rules)
    with progress(f"emitting {what.name}", err):
        text = emit_verilog(
            what, multipliers_for(target), initial_values=initial_values, replaceable_memories=memories is not None
        )
    write_atomically(path, text.encode())
    cores = what.cores if isinstance(what, SystemConfig) else (what,)
    hashes = ", ".join(f"{core.hash64:016x}" for core in cores)
    out.print(f"wrote {path} for {target} ({len(text):,} characters), configuration hash {hashes}")
    if waivers is not None:
        write_atomically(waivers, waiver_file(path.name).encode())
        out.print(f"wrote {waivers}: verilator --lint-only -Wall {waivers} {path}", soft_wrap=True)
    if memories is not None:
        write_atomically(memories, sram_model(text).encode())
        sizes = sram_sizes(text)
        out.print(f"wrote {memories}: weft_sram for {sizes.total()} memories of {len(sizes)} sizes", soft_wrap=True)
    if rules is not None:
        beats = max(core.burst_beats for core in cores)
        write_atomically(rules, rules_verilog(text, top_of(what), beats).encode())
        out.print(f"wrote {rules}: instantiate {top_of(what)}_rules beside {top_of(what)}, on the same wires")


@app.command()
def synth(
    config: ConfigOption = "pynq",
    target: Annotated[
        Target, typer.Option("--for", help="xc7: Xilinx 7-series; ecp5: with place and route; asic: gates.")
    ] = Target.XC7,
    output: Annotated[
        Path | None, output_folder("--output", "-o", help="Folder for all files: Verilog, scripts, logs, report.")
    ] = None,
    liberty: Annotated[Path | None, input_file("--liberty", help="Cells to map to (asic only).")] = None,
    depth: Annotated[int, typer.Option(min=0, help="Levels of modules to show.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Synthesise a core: what each module takes and, for ecp5, its highest clock. A new core takes minutes."""
    core = load_config(config)
    with progress(f"synthesising {core.name}", err) as status:
        result, files = synthesise(core, target, liberty=liberty, progress=status.update)
    columns, rows = usage_rows(result, depth)
    tables = [table(f"{core.name} on {target}", columns, rows)]
    if (timing := result.timing) is not None:
        title = f"{timing.fmax:.1f} MHz on {timing.part}; the path that limits it, in ns"
        tables.append(table(title, ["step", "delay", "until", "name"], path_rows(timing.critical_path), named=3))
    if output is not None:
        for name, content in files.items():
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(output / name, content)
        print_report(tables, output / "report.txt")
    if as_json:
        usage = [{"module": name.strip(), **figures} for name, figures in result.rows(depth)]
        clock = None if timing is None else timing.fmax
        print_json({"core": core.name, "target": target, "usage": usage, "mhz": clock, "over": over_limit(result)})
        return
    wide_console().print(*tables)
    for text in over_limit(result):
        out.print(Text.assemble(("too large: ", "bold red"), text))
    if output is not None:
        out.print(f"wrote {output}")


@app.command("test-hw")
def hardware_tests(
    part: Annotated[str | None, typer.Argument(help="One of --list, or a file of cocotb tests. Default: all.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a run exactly. Default: random.")] = None,
    waves: Annotated[
        bool | None, typer.Option(help="Write a waveform of all tests, or none. Default: of those that fail.")
    ] = None,
    sim: Annotated[str, typer.Option(help="verilator, icarus, or another that cocotb drives.")] = VERILATOR,
    config: ConfigOption = "tiny",
    only: Annotated[str | None, typer.Option(help="Only tests whose name contains this.")] = None,
    long: Annotated[bool, typer.Option("--long", help="More random programs.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show parts and tests; run nothing.")] = False,
) -> None:
    """Run the RTL's cocotb tests; a failure is named, repeated with a waveform, and how to look at it is said."""
    files = find_parts(part)
    if show:
        out.print(parts_table(files))
        return
    if only is not None:
        files = files_with(only, files)
    core, chosen = load_config(config), random_seed() if seed is None else seed
    find_simulator(sim)
    folder = Path("build") / "test-hw"
    folder.mkdir(parents=True, exist_ok=True)
    coverage = folder / "coverage.json"
    coverage.unlink(missing_ok=True)
    settings = Settings(config=core, seed=chosen, coverage=coverage, long=long)
    again = [*(["--config", shlex.quote(config)] if config != "tiny" else []), *(["--long"] if long else [])]
    outcomes = []

    def show_text(text: str) -> None:
        out.print(text, highlight=False, markup=False, soft_wrap=True)

    for file in files:
        place = folder / file.stem
        with progress(file.stem, err) as status:
            outcome = run_file(
                file,
                settings,
                place,
                waves=bool(waves),
                only=None if only is None else re.escape(only),
                simulator=sim,
                progress=status.update,
            )
        outcomes.append(outcome)
        show_text(outcome_lines(outcome, *again))
        if not outcome.passed and waves is None:  # after the reason: with a waveform, building takes a minute or more
            with progress(f"{file.stem}: a waveform of what failed", err) as status:
                outcome = run_failed(outcome, settings, place, simulator=sim, progress=status.update)
        if outcome.waves is not None or (not outcome.passed and waves is not False):
            show_text(waves_line(outcome))
    covered = Coverage(core_points(core), read_hits(coverage))
    out.print(covered.table(unreachable(core), names=part is None))
    out.print(f"coverage: {coverage}; seed {chosen}")
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)
