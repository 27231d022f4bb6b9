"""The ``weft`` command: compile, passes, run, profile, disasm, hw, synth."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from . import cli_errors
from .api import TARGETS
from .cli_console import PlainConsole
from .compare import COMPARED, ModelInputs, compare, model_inputs
from .compiler.compile import compile_model
from .compiler.compile_cpu import compile_for_any_size
from .compiler.compiled import AccelStep, CompiledModel
from .compiler.compiled_cpu import CpuModel
from .compiler.compiled_symbolic import SymbolicCpuModel
from .compiler.frontends import from_onnx, infer_types
from .compiler.model import TensorSpec
from .compiler.operators.packed_layout import Blocks
from .compiler.passes import installed_passes, integer_passes, load_pass
from .compiler.passes.pipeline import PassOptions
from .compiler.targets.accel.passes import accel_passes
from .hw.config import NAMED, CoreConfig, named_config
from .hw.isa import disassemble, format_instruction
from .hw.synthesis import Target, synthesise
from .hw.synthesis_report import over_limit, path_rows, usage_rows
from .hw.verilog import emit_verilog
from .runtime.artifact import load as load_artifact
from .runtime.artifact import save as save_artifact
from .runtime.cpu import CpuModule
from .runtime.cpu_symbolic import SymbolicCpuModule
from .runtime.device import DEVICES, RtlDevice
from .runtime.errors import DeviceError, InputError
from .runtime.module import StepRun, load
from .runtime.plots import write_plots
from .runtime.profile import profile, write_json
from .runtime.profile_report import bound_table, cause_table, gemm_table, outcome_table
from .runtime.profile_whatif import Recompile, predict_runs, what_if
from .runtime.report import engine_table, layer_table, placement_table
from .runtime.report_cpu import cpu_table, fusion_table
from .runtime.trace import write_runs, write_trace
from .sim.dram import DramModel
from .testbench.coverage import Coverage, read_hits
from .testbench.parts import find_parts, outcome_lines, parts_table
from .testbench.points import core_points, unreachable
from .testbench.runner import Settings, random_seed, run_and_keep_waves, run_file

REPORT_COLUMNS = 180
"""Width of a profile's tables in files and pipes."""

app = typer.Typer(
    name="weft",
    help="Co-design of tensor accelerators and their compiler: from an ONNX file to exact cycles.",
    no_args_is_help=True,
    epilog="--debug with any command shows the traceback of an error.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = PlainConsole()
err = PlainConsole(stderr=True)


class TimedDevice(StrEnum):
    """What knows the cycles of a program."""

    rtl = "rtl"
    model = "model"



ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help=f"Core: {', '.join(NAMED)}, or a JSON file with the fields of CoreConfig.")
]
ShapeOption = Annotated[
    list[str] | None, typer.Option("--shape", help="Shape of a dynamic input, as NAME=1x3x224x224; repeat for more.")
]


def main() -> None:
    """Entry point."""
    sys.exit(cli_errors.run(app, sys.argv[1:], err))


@app.command("compile")
def compile_command(
    model: Annotated[Path, typer.Argument(help="Quantised ONNX model (QDQ, QLinear or Integer form).")],
    config: ConfigOption = "pynq",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Artifact; default: MODEL.weft.")] = None,
    vthreads: Annotated[int, typer.Option(min=1, max=8, help="Virtual threads that hide latency.")] = 2,
    shape: ShapeOption = None,
    strict: Annotated[bool, typer.Option(help="Refuse a model of which any node would run on the host.")] = False,
    dump: Annotated[Path | None, typer.Option(help="Folder for the loop IR of every layer, as text.")] = None,
    added: Annotated[
        list[str] | None, typer.Option("--pass", help="Also run this installed pass ('weft passes' lists them).")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the model before and after each pass; name the first one that differs.")
    ] = False,
    diff: Annotated[
        Path | None, typer.Option(help="Write a web page with the graph before and after each pass.")
    ] = None,
) -> None:
    """Compile a model into one artifact file and report where each part of it will run."""
    path = output or model.with_suffix(".weft")
    options = PassOptions(tuple(load_pass(name) for name in added or ()), check, diff)
    with _progress("compiling") as status:
        compiled = compile_model(
            model,
            read_config(config),
            vthreads=vthreads,
            strict=strict,
            shapes=_shapes(shape or []),
            progress=status.update,
            dump=dump,
            passes=options,
        )
        save_artifact(compiled, path)
    out.print(placement_table(compiled))
    out.print(_summary(compiled))
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes)")


@app.command("passes")
def passes_command() -> None:
    """List the passes of the graph compiler in their order, and those that installed packages add."""
    table = Table("pass", "needs", "then legal", "may differ by")
    for item in (*integer_passes(), *accel_passes(Blocks(1, 16, 16))):
        table.add_row(item.name, ", ".join(item.needs), item.stage, f"{item.tolerance:g}" if item.tolerance else "")
    out.print(table)
    points = installed_passes()
    for name, point in sorted(points.items()):
        out.print(f"{name}: {point.value}", highlight=False, markup=False)
    if not points:
        out.print("no installed package adds a pass (entry point group weft.passes)")


@app.command()
def shapes(
    model: Annotated[Path, typer.Argument(help="ONNX model.")],
    shape: ShapeOption = None,
) -> None:
    """Print the type of every tensor of a model, for any size of what its inputs leave open."""
    found = infer_types(model, _shapes(shape or []))
    for name, kind in found.types.items():
        out.print(f"{name}: {kind}", highlight=False, markup=False, soft_wrap=True)
    for symbol, other in found.equal.items():
        out.print(f"{symbol} must be equal to {other}", highlight=False, markup=False)
    if found.multiple > 1:
        out.print(f"for sizes that are multiples of {found.multiple}", highlight=False)
    if found.otherwise:
        text = f"sizes written as ? depend on the symbols in another way: {', '.join(found.otherwise)}"
        out.print(text, highlight=False, markup=False, soft_wrap=True)


@app.command()
def run(
    source: Annotated[Path, typer.Argument(help="What 'weft compile' wrote; with --target cpu an ONNX model.")],
    device: Annotated[str, typer.Option("--device", "-d", help=f"Where to run: {', '.join(DEVICES)}.")] = "fsim",
    target: Annotated[str, typer.Option("--target", help="accel, or cpu: this machine's processor.")] = "accel",
    threads: Annotated[int, typer.Option(min=1, help="Threads (target cpu only).")] = 1,
    report: Annotated[bool, typer.Option("--report", help="Also print what was fused (target cpu only).")] = False,
    inputs: Annotated[
        Path | None, typer.Option("--input", "-i", help="A .npz with one array per input, or a .npy. Default: random.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to a .npz file.")] = None,
    trace: Annotated[Path | None, typer.Option("--trace", "-t", help="Write a Perfetto timeline (device rtl).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs.")] = 0,
    shape: ShapeOption = None,
) -> None:
    """Run an artifact and print its results; on rtl also the cycles of each layer and each engine.

    With --target cpu: compile an ONNX model for this machine's processor, quantised or not, and run it. Sizes that the
    model leaves open are those of the inputs; of random inputs as --shape says, by default 1.
    """
    if target not in TARGETS:
        raise InputError(f"there is no target {target!r}", hint=f"choose {' or '.join(TARGETS)}")
    if target == "cpu":
        results = _run_on_cpu(source, threads, inputs, seed, report, _shapes(shape or []))
        trace = None
    else:
        compiled = load_artifact(source)
        values = read_inputs(compiled, inputs, seed)
        timed = device == "rtl"
        with _progress(f"loading onto {device}") as status:
            module = load(compiled, device, progress=status.update)
            status.update(f"running on {device}")
            results = module.run(values, trace=timed)
        if timed:
            out.print(layer_table(module))
            out.print(engine_table(module))
    if inputs is None:
        out.print(f"inputs: random, seed {seed}")
    for name, value in results.items():
        text = np.array2string(value, threshold=24, precision=5)
        out.print(f"{name}: {value.dtype.name}{list(value.shape)}\n{text}", highlight=False, markup=False)
    if output is not None:
        np.savez(output, **results)  # type: ignore[arg-type]
        out.print(f"wrote {output}")
    if trace is not None:
        out.print(f"wrote {trace} ({write_trace(module, trace):,} slices); open it at https://ui.perfetto.dev")


def _run_on_cpu(
    source: Path, threads: int, inputs: Path | None, seed: int, report: bool, shapes: dict[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[Any]]:
    with _progress("compiling") as status:
        model = compile_for_any_size(source, threads=threads, shapes=shapes, progress=status.update)
        if isinstance(model, SymbolicCpuModel):
            sizes = dict.fromkeys(model.types.symbols, model.types.multiple)
            sized = tuple(TensorSpec(each.name, each.at(sizes), each.dtype) for each in model.inputs)
            values = read_inputs(ModelInputs(sized), inputs, seed)
            module = SymbolicCpuModule(model).specialised(values)
        else:
            values = read_inputs(model, inputs, seed)
            module = CpuModule(model)
    compiled = module.model
    results = module.run(values)  # the first run touches all memory
    started = time.perf_counter()
    module.run(values)
    seconds = time.perf_counter() - started
    out.print(cpu_table(compiled))
    if report:
        out.print(fusion_table(compiled))
    out.print(f"{seconds * 1e3:.3f} ms a run on {compiled.processor.split()[1]}")
    return results


@app.command("compare")
def compare_command(
    first: Annotated[str, typer.Argument(help=f"One of {', '.join(COMPARED)}.")],
    second: Annotated[str, typer.Argument(help="Another of these.")],
    model: Annotated[Path, typer.Argument(help="ONNX model.")],
    inputs: Annotated[
        Path | None, typer.Option("--input", "-i", help="A .npz with one array per input, or a .npy. Default: random.")
    ] = None,
    config: ConfigOption = "pynq",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU.")] = 1,
    tolerance: Annotated[float, typer.Option(help="For floats, as a part of the tensor's largest magnitude.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of random inputs.")] = 0,
    shape: ShapeOption = None,
) -> None:
    """Run a model on two targets; print the error of each tensor that both make, and the first that differs."""
    with _progress("reading the model") as status:
        module = from_onnx(model, _shapes(shape or []), require_quantised=False)
        values = read_inputs(model_inputs(module), inputs, seed)
        status.update(f"running on {first} and {second}")
        found = compare(module, first, second, values, config=read_config(config), threads=threads, tolerance=tolerance)
    rows = [
        [item.tensor, item.dtype, "x".join(map(str, item.shape)), f"{item.largest:.4g}", f"{item.relative:.2e}",
         f"{item.differing:,}"] for item in found
    ]  # fmt: skip
    columns = ["tensor", "type", "shape", "largest difference", "relative", "elements that differ"]
    table = _table(f"{first} and {second}", columns, rows)
    (out if out.is_terminal else PlainConsole(width=REPORT_COLUMNS)).print(table)
    wrong = next((item for item in found if not item.is_same), None)
    if wrong is not None:
        out.print(f"the first tensor that differs is {wrong.tensor!r}", highlight=False, markup=False)
        raise typer.Exit(1)
    out.print(f"all {len(found)} tensors agree")


@app.command("profile")
def profile_command(
    source: Annotated[Path, typer.Argument(help="Artifact, or quantised ONNX model.")],
    device: Annotated[
        TimedDevice, typer.Option("--device", "-d", help="The RTL, or the timing model (fast; runs nothing).")
    ] = TimedDevice.model,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Core, as for compile. Default: pynq, or the artifact's.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for all results. Default: SOURCE.profile.")
    ] = None,
    vthreads: Annotated[int, typer.Option(min=1, max=8, help="Virtual threads (ONNX model only).")] = 2,
    latency: Annotated[int, typer.Option(min=1, help="DRAM latency in cycles.")] = 100,
    bandwidth: Annotated[int, typer.Option(min=1, help="DRAM bytes a cycle.")] = 8,
    others: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Predict cycles on other hardware.")] = True,
    shape: ShapeOption = None,
) -> None:
    """Say why a model is slow: cycles by layer and cause, bounds, other hardware; roofline, timeline and trace."""
    dram = DramModel(latency=latency, bytes_per_cycle=bandwidth)
    folder = output or source.with_suffix(".profile")
    recompile: Recompile | None = None
    with _progress("reading") as status:
        if source.suffix == ".onnx":
            sizes = _shapes(shape or [])

            def recompile(core: CoreConfig) -> CompiledModel:
                return compile_model(source, core, vthreads=vthreads, shapes=sizes, progress=status.update)

            compiled = recompile(read_config(config or "pynq"))
        else:
            compiled = load_artifact(source, read_config(config) if config else None)
        status.update(f"running on {device.value}")
        runs = _timed_runs(compiled, device, dram, status)
        found = profile(compiled, runs, device.value, dram)
        tables: list[RenderableType] = [cause_table(found), bound_table(found), gemm_table(found)]
        if others:
            status.update("predicting other hardware")
            tables.append(outcome_table(what_if(compiled, dram, recompile)))
        status.update(f"writing {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "report.txt").open("w") as file:
            PlainConsole(file=file, width=REPORT_COLUMNS).print(*tables)
        write_json(found, folder / "layers.json")
        slices = write_runs(compiled, runs, folder / "trace.perfetto.json.gz")
        try:
            write_plots(found, folder)
        except DeviceError as error:
            out.print(f"no pictures: {error}", markup=False)
    (out if out.is_terminal else PlainConsole(width=REPORT_COLUMNS)).print(*tables)
    out.print(f"wrote {folder}; its trace ({slices:,} slices) opens at https://ui.perfetto.dev")


def _timed_runs(model: CompiledModel, device: TimedDevice, dram: DramModel, status: Status) -> Sequence[StepRun]:
    """Traced runs of the model's programs; on the RTL with random inputs, which no cycle depends on."""
    if device is TimedDevice.model:
        return predict_runs(model, dram)
    module = load(model, RtlDevice(model.config, dram=dram, progress=status.update))
    module.run(read_inputs(model, None, 0), trace=True)
    return module.runs


@app.command()
def disasm(
    artifact: Annotated[Path, typer.Argument(help="What 'weft compile' wrote.")],
    layer: Annotated[str | None, typer.Option(help="Only the instructions of this layer.")] = None,
) -> None:
    """Print an artifact's instructions with the layer and tile that each belongs to."""
    compiled = load_artifact(artifact)
    names = [item.name for item in compiled.layers]
    if layer is not None and layer not in names:
        raise InputError(f"there is no layer {layer!r}", hint=f"layers: {', '.join(names)}")
    for step in compiled.steps:
        if not isinstance(step, AccelStep):
            print(f"# host: {', '.join(step.inputs)} -> {', '.join(step.outputs)}: {step.reason}")
            continue
        print(f"# program at {step.program_offset:#x}: {', '.join(step.inputs)} -> {', '.join(step.outputs)}")
        for number, instruction in enumerate(disassemble(compiled.config, step.program)):
            index = int(step.layer_of[number])
            name = names[index] if index >= 0 else "set-up"
            if layer in (None, name):
                print(f"{number:6d}  {format_instruction(instruction):<100}  # {name}, tile {step.tile_of[number]}")


@app.command()
def hw(
    config: ConfigOption = "pynq",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Verilog file; default: CONFIG.v.")] = None,
) -> None:
    """Write the core as Verilog."""
    core = read_config(config)
    path = output or Path(f"{core.name}.v")
    with _progress(f"emitting {core.name}"):
        text = emit_verilog(core)
    path.write_text(text)
    out.print(f"wrote {path} ({len(text):,} characters), configuration hash {core.hash64:016x}")


@app.command()
def synth(
    config: ConfigOption = "pynq",
    target: Annotated[
        Target, typer.Option("--for", help="xc7: Xilinx 7-series; ecp5: with place and route; asic: gates.")
    ] = Target.XC7,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for all files: Verilog, scripts, logs, report.")
    ] = None,
    liberty: Annotated[Path | None, typer.Option(help="Cells to map to (asic only).")] = None,
    depth: Annotated[int, typer.Option(min=0, help="Levels of modules to show.")] = 2,
) -> None:
    """Synthesise a core: what each module takes and, for ecp5, its highest clock. A new core takes minutes."""
    core = read_config(config)
    with _progress(f"synthesising {core.name}") as status:
        result, files = synthesise(core, target, liberty=liberty, progress=status.update)
    columns, rows = usage_rows(result, depth)
    tables = [_table(f"{core.name} on {target}", columns, rows)]
    if (timing := result.timing) is not None:
        title = f"{timing.fmax:.1f} MHz on {timing.part}; the path that limits it, in ns"
        tables.append(_table(title, ["step", "delay", "until", "name"], path_rows(timing.critical_path), named=3))
    (out if out.is_terminal else PlainConsole(width=REPORT_COLUMNS)).print(*tables)
    for text in over_limit(result):
        out.print(Text.assemble(("too large: ", "bold red"), text))
    if output is not None:
        for name, content in files.items():
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            (output / name).write_bytes(content)
        with (output / "report.txt").open("w") as file:
            PlainConsole(file=file, width=REPORT_COLUMNS).print(*tables)
        out.print(f"wrote {output}")


@app.command("test-hw")
def hardware_tests(
    part: Annotated[str | None, typer.Argument(help="One of --list, or a file of cocotb tests. Default: all.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a run exactly. Default: random.")] = None,
    waves: Annotated[bool, typer.Option("--waves", help="Write a waveform even if all is well.")] = False,
    config: ConfigOption = "tiny",
    only: Annotated[str | None, typer.Option(help="Only tests whose name contains this.")] = None,
    long: Annotated[bool, typer.Option("--long", help="More random programs.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show parts and tests; run nothing.")] = False,
) -> None:
    """Run the RTL's cocotb tests; a failure leaves a waveform and says how to look at it."""
    files = find_parts(part)
    if show:
        out.print(parts_table(files))
        return
    core, chosen = read_config(config), random_seed() if seed is None else seed
    folder = Path("build") / "test-hw"
    folder.mkdir(parents=True, exist_ok=True)
    coverage = folder / "coverage.json"
    coverage.unlink(missing_ok=True)
    settings = Settings(config=core, seed=chosen, coverage=coverage, long=long)
    outcomes = []
    for file in files:
        with _progress(file.stem) as status:
            run_part = partial(run_file, waves=True) if waves else run_and_keep_waves
            outcomes.append(run_part(file, settings, folder / file.stem, only=only, progress=status.update))
        out.print(outcome_lines(outcomes[-1]), highlight=False, markup=False, soft_wrap=True)
    covered = Coverage(core_points(core), read_hits(coverage))
    out.print(covered.table(unreachable(core), names=part is None))
    out.print(f"coverage: {coverage}; seed {chosen}")
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, named: int = 0) -> Table:
    """A table of figures; column ``named`` holds words."""
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place in (0, named) else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def read_config(text: str) -> CoreConfig:
    """A named configuration, or one from a JSON file."""
    return CoreConfig.from_json(Path(text).read_text()) if text.endswith(".json") else named_config(text)


def read_inputs(
    model: CompiledModel | CpuModel | ModelInputs, path: Path | None, seed: int
) -> dict[str, npt.NDArray[Any]]:
    """Arrays for the model's inputs from a file, or random ones; :class:`InputError` names the file."""
    if path is None:
        generator = np.random.default_rng(seed)
        return {slot.name: _random(generator, slot.shape, slot.dtype) for slot in model.inputs}
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is not a .npy or .npz file: {error}") from error
    if isinstance(loaded, np.ndarray):
        if len(model.inputs) != 1:
            names = ", ".join(slot.name for slot in model.inputs)
            raise InputError(f"{path} holds one array, but the model has inputs {names}", hint="use a .npz")
        return {model.inputs[0].name: loaded}
    return {name: loaded[name] for name in loaded.files}


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    if dtype.startswith("float"):
        return generator.random(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split("x"))
        except ValueError:
            raise InputError(f"--shape {text!r} is not NAME=1x3x224x224") from None
    return shapes


def _summary(model: CompiledModel) -> str:
    items = model.statistics.items()
    values = {name: f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for name, value in items}
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items())


@contextmanager
def _progress(text: str) -> Iterator[Status]:
    with err.status(text) as status:
        yield status
