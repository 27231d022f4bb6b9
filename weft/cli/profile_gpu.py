"""``weft profile --target cuda``: where a model's time goes on a GPU, measured on one or predicted without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.model import CompiledModel, GpuCode, HostProgram, HostStep
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target
from ..progress import progress
from ..runtime.gpu.executor import GpuExecutor
from ..runtime.gpu.open import EMULATED, open_gpu
from ..runtime.gpu.predicted import PEAKS, counted_launches, predicted_seconds, random_inputs
from ..runtime.tables import Column, Record, count, records_table, share, words
from .output import err, print_json, wide_console
from .tools import ProfileRequest

CUDA = "cuda"
MODEL = "model"

RUNS = 10
"""Of which the fastest is told."""

ONLY_PREDICTED = (
    "Predicted from what the interpreter of PTX counted and from data sheets, for {}: no caches, no latency but a "
    "launch's own. Measure with --device NUMBER where there is a GPU."
)


def profile_on_gpu(request: ProfileRequest) -> None:
    """Profile a model or an artifact on a GPU, or predict it; prints the launches."""
    with progress("reading", err) as status:
        if request.is_artifact:
            model = request.artifact()
        else:
            model = request.compiled(request.given(status), request.options(), status)
        found = None if request.device == MODEL else request.device
        records, note = profile_gpu(model, found, status.update)
    show_gpu_profile(model, records, note, as_json=request.as_json)


def profile_gpu(model: CompiledModel, device: str | None, told: Callable[[str], None]) -> tuple[list[Record], str]:
    """A record for each launch, or for each layer that a device timed, and what is to be said of them. ``device``: the
    number of a GPU; None predicts."""
    if device == EMULATED:
        raise CompileError("what the interpreter takes says nothing of a GPU",
                           hint="leave --device out for a prediction")  # fmt: skip
    records: list[Record] = []
    notes = set()
    for step in model.steps:
        if not isinstance(step, HostStep):
            continue
        code = find_target(CUDA).host_code(step.program, trusted=False)
        if not isinstance(code, GpuCode) or code.language != "ptx":
            raise CompileError(f"{model.name!r} has no kernels in PTX", hint="compile it with target 'cuda'")
        if device is None:
            told("counting")
            records += _predicted(step.program, code)
            notes.add(ONLY_PREDICTED.format(PEAKS[step.program.processor].name))
        else:
            told(f"running on GPU {device}")
            records += _measured(step.program, code, device)
    total = sum(record["seconds"] for record in records)
    for record in records:
        record["share"] = record["seconds"] / total if total else 0.0
    return records, " ".join(sorted(notes))


def _predicted(program: HostProgram, code: GpuCode) -> list[Record]:
    peaks = PEAKS[program.processor]
    records: list[Record] = []
    for launch in counted_launches(program, code):
        seconds, bound = predicted_seconds(launch.counts, launch.call, peaks)
        layer = program.layers[launch.layer]
        records.append({"layer": layer.name, "kind": layer.kind, "seconds": seconds, "measured": False, "bound": bound,
                        "instructions": launch.counts.warp_instructions,
                        "mma": launch.counts.instructions["mma"]})  # fmt: skip
    return records


def _measured(program: HostProgram, code: GpuCode, device: str) -> list[Record]:
    inputs = random_inputs(program)
    outputs = [np.empty(each.shape, numpy_dtype(each.dtype)) for each in program.outputs]
    executor = GpuExecutor(program, code, open_gpu(code, device))
    runs = [executor.execute_timed(inputs, outputs) for _ in range(RUNS)]
    best = min(runs, key=sum)
    return [{"layer": layer.name, "kind": layer.kind, "seconds": seconds, "measured": True, "bound": None,
             "instructions": None, "mma": None}
            for layer, seconds in zip(program.layers, best, strict=True)]  # fmt: skip


def show_gpu_profile(model: CompiledModel, records: list[Record], note: str, *, as_json: bool) -> None:
    """Print `profile_gpu`, as a table or as JSON."""
    if as_json:
        print_json({"launches": records, "note": note})
        return
    micros = Column("seconds", "us", lambda value: f"{value * 1e6:.1f}", number=True)
    columns = [words("layer"), words("kind"), micros, share("share")]
    predicted = any(not record["measured"] for record in records)
    if predicted:
        columns += [words("bound", "bound by"), count("instructions", "warp instructions"), count("mma")]
    total = sum(record["seconds"] for record in records)
    title = f"{model.name}: {'predicted' if predicted else 'measured'}, {total * 1e6:,.1f} us in all"
    wide_console().print(records_table(title, columns, records))
    if note:
        wide_console().print(note, markup=False)
