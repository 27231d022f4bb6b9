"""A page in which a compiled model runs: the simulators as WebAssembly, its programs, and examples of inputs."""

from __future__ import annotations

import base64
import ctypes
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel, CopyStep, HostStep, LaunchCall, Place
from ..hw.isa import ENGINE_NAMES, Engine
from ..runtime.colours import CLASS_OF_KIND, COLOURS, WORDS
from ..runtime.device import FsimDevice, memory_of
from ..runtime.module import LoadedModule
from ..runtime.web_page import web_page
from ..sim.c_interface import ACTIVITY
from ..sim.functional_interface import FunctionalCore, FunctionalResult, describe_functional_core
from ..sim.result import RunResult
from ..sim.timing_interface import CLASSES, Core, Result, describe_core
from ..sim.timing_ports import CYCLE_LIMIT
from ..sim.wasm import wasm_module

Array = npt.NDArray[Any]

MOST_CLASSES = 1000
"""Classes of a model whose scores the page shows as bars."""

PARTS = Path(__file__).parent / "live_page"
"""Where the page's frame, style and script are."""


class StepRecorder(FsimDevice):
    """The functional simulator, which keeps what each program of a model reads and leaves in the window."""

    def __init__(self, model: CompiledModel) -> None:
        super().__init__(model.config, timing=False)
        self._model = model
        self.steps: list[dict[str, Any]] = []

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        step = self._model.programs[len(self.steps) % len(self._model.programs)]
        inputs = self._slots(step.inputs)
        result = super().execute(offset, count, trace)
        self.steps.append({"inputs": inputs, "outputs": self._slots(step.outputs)})
        return result

    def _slots(self, names: Sequence[str]) -> list[tuple[int, str]]:
        slots = (self._model.on_core.slots[name] for name in names)
        return [(slot.offset, packed(self.read(slot.offset, slot.nbytes).tobytes())) for slot in slots]


@dataclass(frozen=True)
class HostInPage:
    """A program of the host as a module of WebAssembly, and the functions in it that run its launches."""

    module: bytes
    calls: tuple[LaunchCall, ...]


Recorded = tuple[LoadedModule, StepRecorder]
"""A model that is loaded on such a device."""


def live_model(
    model: CompiledModel, examples: Sequence[Mapping[str, Array]] = (), recorded: Recorded | None = None,
    hosts: Sequence[HostInPage] = (), why: str = "",
) -> dict[str, Any]:  # fmt: skip
    """What the page has of one model.

    ``examples``: inputs by name, which ``recorded`` runs for the bytes that the page's runs have to leave.
    ``hosts``: the host's programs in their order; with them the page runs the whole model, also on what is drawn.
    Without them ``why`` says why not, and the page runs the core's programs on examples, or counts cycles only.
    """
    config, part, dram = model.config, model.on_core, memory_of(model)
    runs, tops = _recorded(model, examples, *recorded) if recorded is not None else ([], [])
    steps = _steps(model, hosts) if hosts else []
    pad = _pad(model, examples) if steps else None
    return {
        "name": model.name,
        "latency": dram.latency,
        "rate": dram.bytes_per_cycle,
        "timingCore": packed(bytes(describe_core(config, dram))),
        "functionalCore": packed(bytes(describe_functional_core(config))),
        "window": part.window_bytes,
        "constants": [(each.offset, packed(each.data.tobytes())) for each in part.constants] if runs or pad else [],
        "programs": [
            {"number": number, "code": packed(step.program.tobytes()), "offset": step.program_offset,
             "count": len(step.program) // config.instruction_bytes}
            for number, step in enumerate(model.programs)
        ],
        "examples": runs,
        "scores": _scores(model, tops),
        "steps": steps,
        "why": why,
        "pad": pad,
        "result": _result(model) if steps else None,
    }  # fmt: skip


def _steps(model: CompiledModel, hosts: Sequence[HostInPage]) -> list[dict[str, Any]]:
    """What the page runs one after the other. Values are bytes by name; those of the core lie in its window."""
    slots, given = model.on_core.slots, iter(hosts)

    def places(names: Sequence[str]) -> list[tuple[str, int, int]]:
        return [(name, slots[name].offset, slots[name].nbytes) for name in names]

    steps: list[dict[str, Any]] = []
    for step in model.steps:
        if isinstance(step, HostStep):
            steps.append(_host_step(step, next(given)))
        else:
            number = sum("program" in each for each in steps)
            steps.append({"program": number, "inputs": places(step.inputs), "outputs": places(step.outputs)})
    return steps


def _host_step(step: HostStep, host: HostInPage) -> dict[str, Any]:
    program = step.program
    symbols = {call.first: call.symbol for call in host.calls}
    work: list[Any] = []
    for number, each in enumerate(program.steps):
        if number in symbols:
            work.append(symbols[number])
        elif isinstance(each, CopyStep):
            work.append([*_at(each.source), *_at(each.target), each.source.nbytes])
    return {
        "wasm": packed(host.module),
        "inputs": step.inputs,
        "outputs": [(name, tensor.nbytes) for name, tensor in zip(step.outputs, program.outputs, strict=True)],
        "constants": packed(program.constants.tobytes()),
        "arena": program.arena_bytes,
        "counters": max((call.counter_bytes for call in host.calls), default=0),
        "work": work,
    }


def _at(place: Place) -> tuple[str, int, int]:
    return place.kind, place.number, place.offset


def _pad(model: CompiledModel, examples: Sequence[Mapping[str, Array]]) -> dict[str, Any] | None:
    """Where a picture can be drawn: the size of a model's only input, and its darkest and lightest value in the first
    example; 0 and 1 without any. None for inputs that are no pictures of one channel."""
    spec = model.inputs[0]
    sizes = [size for size in spec.shape if size > 1]
    if len(model.inputs) > 1 or spec.dtype != "float32" or len(sizes) != 2 or min(sizes) < 4:
        return None
    first = examples[0][spec.name] if examples else np.asarray([0.0, 1.0])
    low, high = float(first.min()), float(first.max())
    return {
        "name": spec.name,
        "height": sizes[0],
        "width": sizes[1],
        "low": low,
        "high": high if high > low else low + 1,
    }


def _result(model: CompiledModel) -> dict[str, Any] | None:
    """The model's first output, where it has a score for each class; None otherwise."""
    spec = model.outputs[0]
    count = int(np.prod(spec.shape))
    if spec.dtype not in ("float32", "int8", "uint8") or not 2 <= count <= MOST_CLASSES or model.config.batch > 1:
        return None
    return {"name": spec.name, "dtype": spec.dtype}


def _recorded(
    model: CompiledModel, examples: Sequence[Mapping[str, Array]], module: LoadedModule, device: StepRecorder
) -> tuple[list[dict[str, Any]], list[tuple[Array, Array]]]:
    """Of each example its picture and what programs read and left; and the model's first output beside the bytes that
    the last program left."""
    runs, tops = [], []
    for example in examples:
        device.steps.clear()
        outputs = module.run(dict(example))
        kept = {
            what: {name: packed(np.ascontiguousarray(value).tobytes()) for name, value in arrays.items()}
            for what, arrays in (("inputs", example), ("outputs", outputs))
        }
        runs.append({"picture": _picture(next(iter(example.values()))), "steps": list(device.steps), **kept})
        tops.append((np.asarray(next(iter(outputs.values()))), _last_output(model, device)))
    return runs, tops


def live_page(models: Sequence[dict[str, Any]]) -> str:
    """The page of what :func:`live_model` makes."""
    classes = [
        {"kind": kind, "name": name.lower().replace("_", " "), "word": WORDS[name], "colour": COLOURS[name]}
        for kind, name in sorted(CLASS_OF_KIND.items())
    ]
    data = {
        "wasm": packed(wasm_module()),
        "models": list(models),
        "engines": ENGINE_NAMES[: len(Engine)],
        "classes": classes,
        "kinds": CLASSES,
        "limit": CYCLE_LIMIT,
        "layout": {
            "core": ctypes.sizeof(Core),
            "latency": Core.latency.offset,
            "rate": Core.bytes_per_cycle.offset,
            "result": ctypes.sizeof(Result),
            "cycles": Result.cycles.offset,
            "counters": Result.counters.offset,
            "activity": ctypes.sizeof(ACTIVITY.python()),
            "functionalCore": ctypes.sizeof(FunctionalCore),
            "functionalResult": ctypes.sizeof(FunctionalResult),
        },
    }
    title = " and ".join(dict.fromkeys(model["name"] for model in models))
    return web_page(PARTS, title, {"DATA": data})


def packed(content: bytes) -> str:
    """Gzip in base64."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _picture(array: Array) -> dict[str, Any] | None:
    """Grey values of an array that is a picture of one channel; None if it is none."""
    plain = array.reshape([size for size in array.shape if size > 1])
    if plain.ndim != 2 or not np.issubdtype(plain.dtype, np.number) or not np.isfinite(plain).all():
        return None
    low, high = float(plain.min()), float(plain.max())
    grey = np.round((plain.astype(np.float64) - low) * (255 / ((high - low) or 1))).astype(int)
    return {"width": plain.shape[1], "height": plain.shape[0], "values": grey.reshape(-1).tolist()}


def _last_output(model: CompiledModel, device: StepRecorder) -> Array:
    slot = model.on_core.slots[model.programs[-1].outputs[-1]]
    return device.read(slot.offset, slot.nbytes).view(np.int8)


def _scores(model: CompiledModel, tops: Sequence[tuple[Array, Array]]) -> tuple[int, int] | None:
    """Where the bytes lie that rank classes, and how many: only if they do so in every example as the model's first
    output does."""
    count = int(np.prod(model.outputs[0].shape))
    slot = model.on_core.slots[model.programs[-1].outputs[-1]] if model.programs else None
    if slot is None or slot.dtype != "int8" or count < 2 or slot.nbytes < count or model.config.batch > 1:
        return None
    ranked = all(
        final.size == count and np.array_equal(np.argsort(final.reshape(-1), kind="stable"),
                                               np.argsort(raw[:count], kind="stable"))
        for final, raw in tops
    )  # fmt: skip
    return (slot.offset, count) if tops and ranked else None
