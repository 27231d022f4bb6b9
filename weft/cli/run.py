"""``weft run``: a model or an artifact on a device, with its results and what they cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..api import load
from ..compiler.graph.dtypes import dtype_name
from ..compiler.model import CompiledModel, OpenModel, TensorSpec
from ..hw.system_config import load_system
from ..kept_models import compile_kept
from ..progress import Updates, progress
from ..runtime.array_files import arrays_in, write_arrays
from ..runtime.device import SIMULATORS, Device, device_forms, device_kind, memory_of, open_device
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import Array, check_file, check_inputs, in_batches, joined, read_inputs
from ..runtime.module import LoadedModule
from ..runtime.report import engine_records, engine_table, layer_records, layer_table, placement_table
from ..runtime.report_host import fusion_table, host_table
from ..sim.dram import DramModel
from ..sim.dram_kinds import parse_dram_kind
from .added_passes import PassOption, pass_options, pass_records, print_passes
from .app import app
from .memory import MemoryOption, with_banks
from .output import (
    CacheOption,
    CalibrateOption,
    InputOption,
    JsonOption,
    KernelsOption,
    SeedOption,
    ShapeOption,
    SignatureOption,
    check_places,
    err,
    input_file,
    out,
    output_file,
    parse_shapes,
    print_json,
)
from .source import Given, given_file, given_model, is_artifact, opened_artifact
from .target_options import Chosen, options_of, with_target_options
from .trained import OptimiseOption, begin_optimising, check_optimising
from .waves import FromOption, ToOption, WavesOption, finished_waves, wave_request, write_waves

if TYPE_CHECKING:
    from ..compiler.passes import PassRecord
    from ..runtime.recording import RecordingDevice
    from ..sim.waves import WaveRequest

DEFAULT_TARGET = "accel"
DEVICES = {"accel": "a core", "cpu": "this machine's processor", "opencl": "a GPU", "cuda": "a GPU"}
"""What the targets of this package make code for."""


def compiled_source(
    source: Path, target: str | None, shape: list[str] | None, added: list[str] | None, own: list[PassRecord],
    chosen: Chosen, status: Updates, *, cache: bool = True, calibrate: Path | None = None, inputs: Path | None = None,
    kernels: str | None = None, signature: str | None = None,
) -> CompiledModel | OpenModel:  # fmt: skip
    """The artifact in a file, or the model in it, compiled. ``own`` receives the records of the ``added`` passes. A
    file of ``inputs`` is looked at before the work; with an artifact it is left to the caller."""
    if is_artifact(source):
        return opened_artifact(source, chosen, target=target, shape=shape, calibrate=calibrate, kernels=kernels,
                               signature=signature, **{"pass": added})  # fmt: skip
    name = target or DEFAULT_TARGET
    passes = pass_options(added, own)
    options = options_of(name, chosen)
    given = given_file(source, kernels, signature)
    begin = partial(check_inputs_of, inputs, given, parse_shapes(shape))
    if calibrate is not None:
        begin()
    whole = given_model(given, shape, calibrate, status.update)
    shapes = parse_shapes(shape) if calibrate is None else None
    return compile_kept(whole, name, options, shapes=shapes, passes=passes, progress=status.update, cache=cache,
                        begin=begin)  # fmt: skip


def check_device(name: str | None, target: str | None = None) -> None:
    """DeviceError for the name of no device, of one that is not here, or that is not for the target, before a model is
    compiled for it. ``target``: unknown, if None."""
    of_gpu = name is None or name.isdecimal() or name == "emulated"
    if name is not None and target in DEVICES and DEVICES[target] != (what := "a GPU" if of_gpu else "a core"):
        raise DeviceError(f"--device {name} is of {what}, but target {target!r} is for {DEVICES[target]}",
                          hint="leave one of them out")  # fmt: skip
    if target not in (None, DEFAULT_TARGET) and of_gpu:
        from ..runtime.gpu.open import check_gpu

        check_gpu(str(target), name)
    if name is not None and not of_gpu:
        device_kind(name)


def check_inputs_of(inputs: Path | None, model: Given, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a file of inputs that do not fit the model as it is declared."""
    if inputs is None:
        return
    from ..compiler.frontends import read

    check_file(inputs, read(model).inputs(shapes))


@app.command()
@with_target_options
def run(
    source: Annotated[Path, typer.Argument(help="What 'weft compile' wrote, or an ONNX model.")],
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            "-d",
            help=f"What runs the core: {', '.join(device_forms())}; or a GPU's number, or emulated. Default: fsim.",
        ),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="What to compile a model for. Default: accel.")] = None,
    inputs: InputOption = None,
    output: Annotated[Path | None, output_file("--output", "-o", help="Write the results to a .npz file.")] = None,
    record: Annotated[
        Path | None, output_file("--record", help="Keep every program with its memory in a file, for weft replay.")
    ] = None,
    trace: Annotated[
        Path | None, output_file("--trace", "-t", help="Write a Perfetto timeline (devices that know cycles).")
    ] = None,
    waves: WavesOption = None,
    first: FromOption = 0,
    stop: ToOption = None,
    optimise_simulator: OptimiseOption = False,
    latency: Annotated[
        int | None, typer.Option(min=1, help="Latency of the simulated DRAM, in cycles. Default: --dram's.")
    ] = None,
    bandwidth: Annotated[
        int | None, typer.Option(min=1, help="Bytes a cycle of the simulated DRAM. Default: --dram's.")
    ] = None,
    memory: MemoryOption = None,
    system: Annotated[
        Path | None,
        input_file(
            "--system",
            help="Several cores on one memory, as JSON: an item on each, all at once. "
            "On fsim, rtl, or a board that was built for it.",
        ),
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also print the placement and what was fused.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Every layer and every reason, however many.")] = False,
    seed: SeedOption = 0,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    added: PassOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Run an artifact or a model and print its results, with the cycles of each layer and engine on the core and the
    time on the host.

    Sizes that a model leaves open are those of the inputs; of random inputs as --shape says, by default 1.
    """
    own: list[PassRecord] = []
    check_places(output, record, trace)
    request = wave_request(waves, first, stop, device)
    if not is_artifact(source) and (target or DEFAULT_TARGET) != DEFAULT_TARGET and (record or trace) is not None:
        what = "--record keeps programs" if record is not None else "--trace draws cycles"
        raise DeviceError(f"{what} of a core, but target {target!r} makes none", hint="leave out --target")
    check_device(device, None if is_artifact(source) else target or DEFAULT_TARGET)
    check_optimising(wanted=optimise_simulator, device=device, alone=system is None and request is None)
    if inputs is not None:
        arrays_in(inputs)  # a file that is none is told before the model is compiled
    if system is not None:
        from .system_options import check_record_and_trace, for_system

        check_record_and_trace(record, trace, device)
        chosen = for_system(source, chosen, load_system(system))
    if memory is not None:
        parse_dram_kind(memory)
    with progress("reading", err) as status:
        compiled = compiled_source(
            source, target, shape, added, own, chosen, status, cache=cache, calibrate=calibrate_with, inputs=inputs,
            kernels=kernels, signature=signature,
        )  # fmt: skip
        if system is not None:
            from .run_system import run_on_system

            dram = _memory(compiled, latency, bandwidth, memory)
            run_on_system(compiled, system, device, dram, inputs, seed, output, request, trace, status, as_json=as_json)
            return
        if inputs is None and isinstance(compiled, OpenModel) and not compiled.decided_by:
            compiled = compiled.at(least_sizes(compiled))
        indices = index_inputs(compiled) if isinstance(compiled, CompiledModel) else {}
        specs = input_specs(compiled)
        given = read_inputs(specs, inputs, seed, indices)
        if isinstance(compiled, CompiledModel):
            check_inputs(given, specs)  # before a device is made ready
        *before, values = in_batches(given, specs) if isinstance(compiled, CompiledModel) else [given]
        status.update("loading")
        simulator = _simulator(compiled, device, _memory(compiled, latency, bandwidth, memory), request, status)
        recorder = None if record is None else _recorder(compiled, simulator or device, status)
        loaded = load(compiled, recorder or simulator or device, progress=status.update)
        module, values = (loaded, values) if isinstance(loaded, LoadedModule) else loaded.specialised(values)
        timed = module.model.core is not None and module.device.has_time
        if trace is not None and not (timed and module.device.has_trace):
            raise _no_trace(module)
        if optimise_simulator:
            begin_optimising(module.model.config if module.model.core is not None else None)
        status.update("running")
        seconds = None if module.model.core is not None else best_seconds(module, values)
        try:
            found = [module.run(each) for each in before]
            found.append(module.run(values, trace=True))
        finally:  # what failed is what one wants to look at
            if recorder is not None and record is not None:
                from ..runtime.recording import save_recording

                save_recording(recorder.recording(module.model), record)
            looked = finished_waves(simulator)
    results = joined(found)
    if trace is not None:
        from ..runtime.trace import write_trace

        slices = write_trace(module, trace)
    if output is not None:
        write_arrays(output, results)
    if as_json:
        print_json({**run_record(module, results, timed, seconds), "passes": pass_records(own)})
        return
    print_passes(own)
    if timed:
        out.print(layer_table(module))
        out.print(engine_table(module))
    if report or seconds is not None:
        out.print(placement_table(module.model, verbose=verbose))
    if report:
        out.print(fusion_table(module.model))
    out.print(host_table(module, verbose=verbose))
    if seconds is not None:
        out.print(f"{seconds * 1e3:.3f} ms a run")
    if before:
        out.print(f"{len(found):,} batches of examples, one after the other; cycles and times are of the last")
    if inputs is None:
        out.print(f"inputs: random, seed {seed}")
    for name, value in results.items():
        text = np.array2string(value, threshold=24, precision=5)
        out.print(f"{name}: {dtype_name(value.dtype)}{list(value.shape)}\n{text}", highlight=False, markup=False)
    if output is not None:
        out.print(f"wrote {output}", markup=False)
    if record is not None:
        out.print(f"wrote {record}", markup=False)
    if looked:
        out.print(looked, markup=False, soft_wrap=True)
    if trace is not None:
        out.print(f"wrote {trace} ({slices:,} slices); open it at https://ui.perfetto.dev", markup=False)


def _memory(
    compiled: CompiledModel | OpenModel, latency: int | None, bandwidth: int | None, kind: str | None
) -> DramModel | None:
    """The memory that was asked for; None where none was."""
    if latency is None and bandwidth is None and kind is None:
        return None
    if isinstance(compiled, OpenModel) or compiled.core is None:
        what = "--latency and --bandwidth are" if kind is None else "--memory is"
        raise DeviceError(f"{what} of a core's memory, but nothing of {compiled.name!r} runs on a core", hint=ON_CORE)
    usual = memory_of(compiled)
    return with_banks(
        replace(usual, latency=latency or usual.latency, bytes_per_cycle=bandwidth or usual.bytes_per_cycle), kind
    )


ON_CORE = "they are for a model on the core, on device fsim or rtl"


def _simulator(
    compiled: CompiledModel | OpenModel, device: str | None, memory: DramModel | None, request: WaveRequest | None,
    status: Updates,
) -> Device | None:  # fmt: skip
    """The simulator with the memory and the waveform that were asked for; None where none was."""
    if memory is None and request is None:
        return None
    if isinstance(compiled, OpenModel) or compiled.core is None:
        raise DeviceError(f"--waves shows a core's signals, but nothing of {compiled.name!r} runs on a core",
                          hint=ON_CORE)  # fmt: skip
    opened = open_device(device or "fsim", compiled.config, dram=memory or memory_of(compiled), progress=status.update)
    if request is not None:
        write_waves(opened, request)
    elif not isinstance(opened, SIMULATORS):
        what = "--memory" if memory is not None and memory.banks is not None else "--latency and --bandwidth"
        raise DeviceError(f"{what}: device {opened.name!r} has a memory of its own", hint=ON_CORE)
    return opened


def _recorder(compiled: CompiledModel | OpenModel, device: Device | str | None, status: Updates) -> RecordingDevice:
    """A device that keeps what runs on it."""
    if isinstance(compiled, OpenModel) or compiled.core is None:
        why = f"--record keeps programs of a core, but nothing of {compiled.name!r} runs on a core"
        raise DeviceError(why, hint="compile it with target 'accel'")
    from ..runtime.recording import RecordingDevice

    if not isinstance(device, Device):
        memory = memory_of(compiled)
        device = open_device(device or "fsim", compiled.config, dram=memory, progress=status.update)
    return RecordingDevice(device)


def _no_trace(module: LoadedModule) -> DeviceError:
    if module.model.core is None:
        why, hint = f"nothing of {module.model.name!r} runs on a core", "compile it with target 'accel'"
    else:
        why, hint = f"device {module.device.name!r} has none", "choose a device with time, such as 'fsim' or 'rtl'"
    return DeviceError(f"--trace draws cycles of a core, but {why}", hint=hint)


def input_specs(model: CompiledModel | OpenModel) -> tuple[TensorSpec, ...]:
    """The inputs of a model; open sizes are the least that the model allows."""
    if isinstance(model, CompiledModel):
        return model.inputs
    sizes = least_sizes(model)
    return tuple(TensorSpec(each.name, each.at(sizes), each.dtype) for each in model.inputs)


def least_sizes(model: OpenModel) -> dict[str, int]:
    """The least sizes, by symbol, that a model allows."""
    step, lowest = model.types.multiple, model.types.lowest
    return {symbol: step * max(1, -(-lowest.get(symbol, 1) // step)) for symbol in model.types.symbols}


def best_seconds(module: LoadedModule, values: dict[str, Array], runs: int = 3) -> float:
    """The shortest of some runs: the first touches the memory."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        module.run(values)
        times.append(time.perf_counter() - started)
    return min(times)


def run_record(module: LoadedModule, results: dict[str, Array], timed: bool, seconds: float | None) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "model": module.model.name,
        "target": module.model.target,
        "device": module.device.name if module.model.core is not None else None,
        "cycles": module.cycles if timed else None,
        "dram": _memory_record(module),
        "seconds": seconds,
        "layers": layer_records(module),
        "engines": engine_records(module) if timed else [],
        "results": {name: value.tolist() for name, value in results.items()},
    }


def _memory_record(module: LoadedModule) -> dict[str, int | str] | None:
    memory = module.device.dram if module.model.core is not None else None
    if memory is None:
        return None
    banks = memory.banks if isinstance(memory, DramModel) else None
    kind: dict[str, int | str] = {} if banks is None else {"memory": banks.kind.name, "core_mhz": banks.core_mhz}
    return {"bytes_per_cycle": memory.bytes_per_cycle, "latency": memory.latency, **kind}
