"""A page in which a compiled model runs: the simulators as WebAssembly, its programs, and examples of inputs."""

from __future__ import annotations

import base64
import ctypes
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel
from ..hw.isa import ENGINE_NAMES, Engine
from ..runtime.colours import CLASS_OF_KIND, COLOURS, WORDS
from ..runtime.device import FsimDevice, memory_of
from ..runtime.module import LoadedModule
from ..runtime.web_page import web_page
from ..sim.c_interface import ACTIVITY
from ..sim.functional_interface import FunctionalCore, FunctionalResult, describe_functional_core
from ..sim.result import RunResult
from ..sim.timing import CYCLE_LIMIT
from ..sim.timing_interface import CLASSES, Core, Result, describe_core
from ..sim.wasm import wasm_module

Array = npt.NDArray[Any]

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


Recorded = tuple[LoadedModule, StepRecorder]
"""A model that is loaded on such a device."""


def live_model(
    model: CompiledModel, examples: Sequence[Mapping[str, Array]] = (), recorded: Recorded | None = None
) -> dict[str, Any]:
    """What the page has of one model. ``examples``: inputs by name, which ``recorded`` runs for the bytes that the
    page's runs have to leave; without any, the page counts cycles only."""
    config, part, dram = model.config, model.on_core, memory_of(model)
    runs, tops = _recorded(model, examples, *recorded) if recorded is not None else ([], [])
    return {
        "name": model.name,
        "latency": dram.latency,
        "rate": dram.bytes_per_cycle,
        "timingCore": packed(bytes(describe_core(config, dram))),
        "functionalCore": packed(bytes(describe_functional_core(config))),
        "window": part.window_bytes,
        "constants": [(each.offset, packed(each.data.tobytes())) for each in part.constants] if runs else [],
        "programs": [
            {"number": number, "code": packed(step.program.tobytes()), "offset": step.program_offset,
             "count": len(step.program) // config.instruction_bytes}
            for number, step in enumerate(model.programs)
        ],
        "examples": runs,
        "scores": _scores(model, tops),
    }  # fmt: skip


def _recorded(
    model: CompiledModel, examples: Sequence[Mapping[str, Array]], module: LoadedModule, device: StepRecorder
) -> tuple[list[dict[str, Any]], list[tuple[Array, Array]]]:
    """Of each example its picture and what programs read and left; and the model's first output beside the bytes that
    the last program left."""
    runs, tops = [], []
    for example in examples:
        device.steps.clear()
        outputs = module.run(dict(example))
        runs.append({"picture": _picture(next(iter(example.values()))), "steps": list(device.steps)})
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
