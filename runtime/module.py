"""A compiled model on a device: NumPy arrays in, NumPy arrays out, and an account of every cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..compiler.compiled import AccelStep, CompiledModel, HostStep, TensorSlot
from ..compiler.graph.evaluate import evaluate_function
from ..sim.result import RunResult
from .artifact import load as load_artifact
from .device import Device, Progress, open_device
from .errors import DeviceError, InputError
from .inputs import named_inputs

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StepRun:
    """One program's run, with the step it came from."""

    step: AccelStep
    result: RunResult


class LoadedModule:
    """A model in a device's memory, ready to run as often as wanted, from any thread.

    A device does one run at a time: others wait. Modules on devices of their own run in parallel. After an error and in
    a forked process a module works; :class:`DeviceError` says where it cannot.
    """

    def __init__(self, model: CompiledModel, device: Device) -> None:
        if device.config.hash64 != model.config.hash64:
            raise InputError(
                f"the model is compiled for {model.config.name!r}, but the device is a {device.config.name!r}",
                hint=f"compile for {device.config.name!r}",
            )
        self.model = model
        self.device = device
        self.runs: tuple[StepRun, ...] = ()
        """The programs of the last run, in order."""
        self._closed = False
        with device.lock:
            device.tenant = self
            device.allocate(model.window_bytes)
            self._write_model()

    def close(self) -> None:
        """Wait for the run in progress and free the window; later runs are refused."""
        with self.device.lock:
            if not self._closed and self.device.tenant is self:
                self.device.tenant = None
                self.device.allocate(0)
            self._closed = True

    def _write_model(self) -> None:
        """Put constants and programs into the window."""
        for constant in self.model.constants:
            self.device.write(constant.offset, constant.data)
        for step in self.model.steps:
            if isinstance(step, AccelStep):
                self.device.write(step.program_offset, step.program)

    @property
    def cycles(self) -> int | None:
        """Cycles of all programs of the last run; ``None`` where the device does not model time."""
        counts = [run.result.cycles for run in self.runs]
        return None if not counts or None in counts else sum(count for count in counts if count is not None)

    def run(self, inputs: Mapping[str, Array] | Array, *, trace: bool = False, keep: bool = False) -> dict[str, Array]:
        """Run the model once.

        inputs
            Arrays by name, or the one array of a model with one input; shapes and types as in ``model.inputs``.
        trace
            Record when each instruction started and retired (devices that model time).
        keep
            Also return every value between steps: host values and tensors in the window, packed.

        Raises :class:`InputError` for data that does not fit, :class:`CoreFaultError` if the core stops; the model is
        written to the device again then, so that the next run does not meet what spoiled this one. :class:`DeviceError`
        if the module is closed or its device was given to another.
        """
        values = self._check_inputs(inputs)
        with self.device.lock:
            return self._run(values, trace, keep)

    def _run(self, values: dict[str, Array], trace: bool, keep: bool) -> dict[str, Array]:
        if self._closed:
            raise DeviceError("the module is closed", hint="load the model again")
        if self.device.tenant is not self:
            raise DeviceError(
                f"another model was loaded onto this device {self.device.name!r}", hint="open a device for each model"
            )
        runs: list[StepRun] = []
        for step in self.model.steps:
            if isinstance(step, AccelStep):
                runs.append(self._run_program(step, values, trace))
            else:
                self._run_host(step, values)
        self.runs = tuple(runs)
        if keep:
            values.update({name: self._slot(slot) for name, slot in self.model.slots.items() if name not in values})
            return values
        return {slot.name: values[slot.name] for slot in self.model.outputs}

    def _check_inputs(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        values = named_inputs(inputs, [slot.name for slot in self.model.inputs])
        for slot in self.model.inputs:
            value = values[slot.name]
            if value.shape != slot.shape or value.dtype.name != slot.dtype:
                resized = value.dtype.name == slot.dtype and value.ndim == len(slot.shape)
                hint = f"sizes are fixed at compilation: --shape {slot.name}={'x'.join(map(str, value.shape))}"
                raise InputError(
                    f"input {slot.name!r} must be {slot.dtype}{list(slot.shape)}, "
                    f"not {value.dtype.name}{list(value.shape)}",
                    hint=hint if resized else "",
                )
        return values

    def _run_program(self, step: AccelStep, values: dict[str, Array], trace: bool) -> StepRun:
        for name in step.inputs:
            if name in values:
                self.device.write(self.model.slots[name].offset, values[name])
        count = step.program.size // self.model.config.instruction_bytes
        try:
            result = self.device.launch(step.program_offset, count, trace=trace)
        except BaseException:
            self._write_model()
            raise
        for name in step.outputs:
            values[name] = self._slot(self.model.slots[name])
        return StepRun(step, result)

    def _run_host(self, step: HostStep, values: dict[str, Array]) -> None:
        result = evaluate_function(step.function, [values[name] for name in step.inputs])
        results = result if isinstance(result, tuple) else (result,)
        values.update(zip(step.outputs, results, strict=True))

    def _slot(self, slot: TensorSlot) -> Array:
        value: Array = self.device.read(slot.offset, slot.nbytes).view(slot.dtype).reshape(slot.shape)
        return value


def load(
    model: CompiledModel | str | Path, device: str | Device = "fsim", *, progress: Progress | None = None
) -> LoadedModule:
    """Put a compiled model, or the artifact in a file, onto a device.

    ``device``: ``"null"``, ``"fsim"``, ``"rtl"`` (for the core that the model was compiled for), or a :class:`Device`.
    """
    config = device.config if isinstance(device, Device) else None
    compiled = model if isinstance(model, CompiledModel) else load_artifact(model, config)
    target = device if isinstance(device, Device) else open_device(device, compiled.config, progress=progress)
    return LoadedModule(compiled, target)
