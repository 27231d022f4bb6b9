"""A compiled model that is loaded: NumPy arrays in, NumPy arrays out, and an account of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import dtype_name, numpy_dtype
from ..compiler.model import CompiledModel, CoreStep, CutModel, HostProgram, HostStep, TensorSlot
from ..imports import IMPORTS
from .errors import DeviceError, InputError
from .host_steps import Executor
from .inputs import check_kind, named_inputs
from .residents import Kept, Residents
from .run_lock import PICKLE_THE_MODEL, RunLock, stays_here

if TYPE_CHECKING:  # a model that runs on this machine's processor needs no core and no GPU
    from ..sim.result import RunResult
    from .device import Device, HostCodes, WholeModel, WholeRun
    from .gpu.dlpack import TensorThere
    from .gpu.on_device import DeviceTensor
    from .session import Session
    from .session_roles import RoleNames

Array = npt.NDArray[Any]
LoadHost = Callable[[HostProgram], Executor]
Finish = Callable[[Mapping[str, Array]], dict[str, Array]]

HOW_TO_TRACE = "run(..., trace=True) on a device with time, such as 'fsim' or 'rtl'"


@dataclass(frozen=True)
class StepRun:
    """One run of a program on the core, with the step it came from."""

    step: CoreStep
    result: RunResult


@dataclass(frozen=True)
class HostRun:
    """A step on the host, ready to run. ``outputs``: name, shape and type of each; ``layers``: its own; ``state``:
    the slot of the state that it puts together, if that is all it does."""

    executor: Executor
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    layers: slice
    state: str = ""

    @staticmethod
    def of(step: HostStep, executor: Executor) -> HostRun:
        tensors = zip(step.outputs, step.program.outputs, strict=True)
        outputs = tuple((name, tensor.shape, numpy_dtype(tensor.dtype)) for name, tensor in tensors)
        layers = slice(step.first_layer, step.first_layer + len(step.program.layers))
        return HostRun(executor, step.inputs, outputs, layers, step.outputs[0] if step.resident is not None else "")

    def run(self, values: dict[str, Array], results: Mapping[str, Array], seconds: list[float]) -> None:
        """Its results become values, in the memory of ``results`` where that has them. With ``seconds`` the layers are
        timed, too."""
        arrays = [values[name] for name in self.inputs]
        made = [results[name] if name in results else np.empty(shape, dtype) for name, shape, dtype in self.outputs]
        if seconds:
            seconds[self.layers] = self.executor.execute_timed(arrays, made)
        else:
            self.executor.execute(arrays, made)
        for (name, _, _), array in zip(self.outputs, made, strict=True):
            values[name] = array


class LoadedModule:
    """A model in memory, ready to run as often as wanted, from any thread.

    A module, and a device, does one run at a time: others wait. Modules with devices of their own run in parallel.
    After an error and in a forked process a module works; :class:`DeviceError` says where it cannot. It is a context
    manager, which closes it at its end.
    """

    __reduce__ = stays_here(PICKLE_THE_MODEL)

    def __init__(
        self, model: CompiledModel, device: Device | None, load_host: LoadHost, code: HostCodes | None = None,
        finish: Finish | None = None,
    ) -> None:  # fmt: skip
        """``code``: machine code for devices that do the host's part on a processor of their own. ``finish``: what the
        tail of a cut model makes of what came before; without it runs give what the compiled part makes."""
        if model.core is not None and device is None:
            raise DeviceError(f"{model.name!r} has programs for a core, but there is no device to run them")
        if model.core is not None and model.core.cores:
            names = ", ".join(core.name for core in model.core.cores)
            raise DeviceError(f"the stages of {model.name!r} are for unlike cores: {names}",
                              hint="load it with the system that has them")  # fmt: skip
        if model.core is not None and device is not None and device.config.hash64 != model.core.config.hash64:
            raise InputError(
                f"the model is compiled for {model.core.config.name!r}, but the device is a {device.config.name!r}",
                hint=f"compile for {device.config.name!r}",
            )
        self.model = model
        self.runs: tuple[StepRun, ...] = ()
        """The programs of the last run, in order."""
        self.seconds: tuple[float, ...] = ()
        """Of each layer on the host in the last traced run; 0 for layers that the device ran."""
        self._device = device if model.core is not None else None
        self._lock = RunLock() if self._device is None else self._device.lock
        self._closed = False
        self._finish = finish
        self._input_names = [tensor.name for tensor in model.inputs]
        self._input_kinds = {tensor.name: (tensor.shape, numpy_dtype(tensor.dtype)) for tensor in model.inputs}
        self._outputs = {tensor.name: (tensor.shape, numpy_dtype(tensor.dtype)) for tensor in model.outputs}
        self._steps = [
            HostRun.of(step, load_host(step.program)) if isinstance(step, HostStep) else step for step in model.steps
        ]
        self.residents = Residents(model)
        """What sessions have left in the device's memory."""
        self._whole: WholeModel | None = None
        if self._device is not None:
            with self._lock:
                self._device.tenant = self
                self._device.allocate(model.on_core.window_bytes)
                self._write_model()
                if code is not None:
                    self._whole = self._device.whole_model(model, code)

    def __repr__(self) -> str:
        place = "the host" if self._device is None else f"device {self._device.name!r}"
        return f"<LoadedModule of {self.model!r} on {place}{', closed' if self._closed else ''}>"

    @property
    def device(self) -> Device:
        """What runs the programs for the core; :class:`DeviceError` where the model has none."""
        if self._device is None:
            raise DeviceError(f"nothing of {self.model.name!r} runs on a core")
        return self._device

    @property
    def cycles(self) -> int | None:
        """Cycles of all programs of the last run; ``None`` where the device does not model time."""
        counts = [run.result.cycles for run in self.runs]
        return None if not counts or None in counts else sum(count for count in counts if count is not None)

    def close(self) -> None:
        """Wait for the run in progress and give the memory back; later runs are refused."""
        with self._lock:
            if not self._closed and self._device is not None and self._device.tenant is self:
                self._device.tenant = None
                self._device.allocate(0)
            self._closed = True
            self._steps = []

    def __enter__(self) -> LoadedModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        inputs: Mapping[str, Array] | Array,
        outputs: Mapping[str, Array] | None = None,
        *,
        trace: bool = False,
        keep: bool = False,
    ) -> dict[str, Array]:
        """Run the model once.

        inputs
            Arrays by name, or the one array of a model with one input; shapes and types as in ``model.inputs``. They
            are read where they are if they are contiguous, also those of other libraries (by DLPack, ``__dlpack__``),
            which have to be on the host. They stay the caller's, and are not used after the run.
        outputs
            Contiguous arrays to write results to, by name; others are made. None may share memory with an input.
        trace
            Record when each instruction started and retired (devices that model time), and how long each layer on the
            host took.
        keep
            Also return every value between steps: host values and tensors in the window, packed. All of them hold what
            the run made if the model was compiled to ``keep`` them.

        Raises :class:`InputError` for data that does not fit, :class:`CoreFaultError` if the core stops; the model is
        written to the device again then, so that the next run does not meet what spoiled this one. :class:`DeviceError`
        if the module is closed or its device was given to another.
        """
        values = self._checked(inputs)
        results = self._checked_outputs(outputs)
        given = dict(values)
        with self._lock:
            made = self._run(values, results, trace, keep)
        return self._finished(given, made, keep)

    def run_unchecked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As :meth:`run`, for a caller whose arrays are contiguous, one for each input, of its shape and type. A small
        model takes half as long so; with other arrays, memory that is not theirs is read."""
        with self._lock:
            made = self._run(dict(inputs), {}, False, False)
        return made if self._finish is None else self._finished(inputs, made)

    def run_counted(self, inputs: Mapping[str, Array], kept: Kept | None = None) -> tuple[dict[str, Array], int | None]:
        """As :meth:`run`, with the cycles of this run's programs, whichever thread runs next; ``None`` where the device
        does not model time. ``kept``: whose states the inputs are, of which the device may hold a part already."""
        values = self._checked(inputs)
        with self._lock:
            made, cycles = self._run(dict(values), {}, False, False, kept), self.cycles
        return self._finished(values, made), cycles

    def _finished(self, inputs: Mapping[str, Array], made: dict[str, Array], keep: bool = False) -> dict[str, Array]:
        """The model's results, of what its compiled part made."""
        if self._finish is None:
            return made
        results = {**made, **self._finish({**inputs, **made})}
        return results if keep else {name: results[name] for name in self.model.results}

    def _refuse_open_results(self) -> None:
        if isinstance(self.model, CutModel):
            raise DeviceError(
                f"results of {self.model.name!r} have another size in each run", hint="module.run(inputs)"
            )

    def _run(
        self, values: dict[str, Array], results: Mapping[str, Array], trace: bool, keep: bool, kept: Kept | None = None
    ) -> dict[str, Array]:
        self.refuse_if_gone()
        if self._whole is not None and not keep and not (trace and self.device.has_trace):
            made = self._run_whole({name: value[None] for name, value in values.items()}, 1).outputs
            self.seconds = (0.0,) * len(self.model.layers) if trace else ()
            for name, array in results.items():
                array[...] = made[name][0]
            return {name: results.get(name, made[name][0]) for name in self._outputs}
        runs: list[StepRun] = []
        seconds = [0.0] * len(self.model.layers) if trace else []
        for step in self._steps:
            if isinstance(step, HostRun):
                if kept is not None and self.residents.takes(step.state, kept):
                    self.residents.update(self.device, step.state, values, kept)
                    continue
                step.run(values, results, seconds)
                self.residents.forget(step.state)
            else:
                runs.append(self._run_program(step, values, trace))
        for name, array in results.items():
            if values[name] is not array:
                array[...] = values[name]
                values[name] = array
        self.runs, self.seconds = tuple(runs), tuple(seconds)
        if not keep:
            return {name: values[name] for name in self._outputs}
        if self.model.core is not None:
            there = {name: self._slot(slot) for name, slot in self.model.core.slots.items() if name not in values}
            return {**values, **there}
        return values

    def run_on_device(self, inputs: Mapping[str, Any]) -> dict[str, DeviceTensor]:
        """Run a model that is on a GPU of NVIDIA's as a whole, without copies through the host.

        ``inputs``: by name, as for :meth:`run`, or tensors in the GPU's memory of any library with DLPack, which are
        copied there and not used after the run. The results stay there, each in memory of its own, for as long as
        somebody has it: ``torch.from_dlpack(result)``, or ``result.numpy()``.

        Raises :class:`InputError` for tensors on another GPU, or that do not fit; :class:`DeviceError` for models that
        run elsewhere.
        """
        with IMPORTS:
            from .gpu.executor import GpuExecutor
            from .gpu.on_device import gpu_of, run_on_device, tensors_there

        self._refuse_open_results()
        step = self._steps[0] if len(self._steps) == 1 else None
        gpu = gpu_of(getattr(step, "executor", None))
        assert isinstance(step, HostRun)
        assert isinstance(step.executor, GpuExecutor)
        there = tensors_there(inputs, gpu)
        here = named_inputs({name: value for name, value in inputs.items() if name not in there},
                            [name for name in self._input_names if name not in there])  # fmt: skip
        for name, tensor in there.items():
            if name not in self._input_names:
                raise InputError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(self._input_names)}")
            self._check_kind(name, tensor.shape, numpy_dtype(tensor.dtype))
        for name, value in here.items():
            self._check_kind(name, value.shape, value.dtype)
        values: dict[str, Array | TensorThere] = {name: np.ascontiguousarray(value) for name, value in here.items()}
        values.update(there)
        with self._lock:
            self.refuse_if_gone()
            made = run_on_device(step.executor, gpu, [values[name] for name in step.inputs])
        return dict(zip((name for name, _, _ in step.outputs), made, strict=True))

    def session(
        self,
        *,
        prefill: LoadedModule | None = None,
        positions: int | None = None,
        states: Mapping[str, str] | None = None,
        **roles: Unpack[RoleNames],
    ) -> Session:
        """A text, or another sequence, that this model continues token by token: what its runs leave for the next ones
        (keys and values of attention, states of recurrent layers) is kept in the session.

        prefill
            The same model for pieces of several tokens, which then takes prompts.
        positions
            Tokens that the session holds at most; by default what the model's cache does.
        states
            By output, the input of the next run that it becomes; by default pairs as exporters name them, such as
            ``present.0.key`` and ``past_key_values.0.key``.
        roles
            The inputs ``tokens``, ``places`` and ``mask``, and the output ``scores``, where their names are unusual.

        Sessions of one module are independent of each other, and of :meth:`run`. Raises :class:`SessionError` for a
        model that has no such inputs and outputs, or whose states do not fit; ``docs/language.md`` says how they are
        found.
        """
        with IMPORTS:
            from .session import open_session

        return open_session(self, prefill, positions, states, roles)

    def run_batch(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Run the model for each item of a batch: inputs and results have one more axis, in front, for the items.

        A device that does the host's part itself gets as many items at a time as it takes; others one after the other.
        ``runs`` are those of the last item. Raises as :meth:`run` does.
        """
        self._refuse_open_results()
        values = named_inputs(inputs, self._input_names)
        counts = {value.shape[:1] for value in values.values()}
        if len(counts) != 1 or not next(iter(counts)) or 0 in next(iter(counts)):
            raise InputError("the inputs of a batch must have a first axis of one size, at least 1")
        ((count,),) = counts
        if self._whole is None:
            items = [self.run({name: value[number] for name, value in values.items()}) for number in range(count)]
            return {name: np.stack([item[name] for item in items]) for name in self._outputs}
        self._checked({name: value[0] for name, value in values.items()})
        with self._lock:
            self.refuse_if_gone()
            whole = {name: np.ascontiguousarray(value) for name, value in values.items()}
            return self._run_whole(whole, count).outputs

    def _run_whole(self, inputs: Mapping[str, Array], count: int) -> WholeRun:
        """A batch on the device alone."""
        assert self._whole is not None
        try:
            made = self._whole.run(inputs, count)
        except BaseException:
            self._write_model()
            raise
        self.runs = tuple(StepRun(*pair) for pair in zip(self.model.programs, made.results, strict=True))
        self.seconds = ()
        return made

    def refuse_if_gone(self) -> None:
        """Raise :class:`DeviceError` if no run can come any more: the module is closed, or its device has another
        model."""
        if self._closed:
            raise DeviceError("the module is closed", hint="load the model again")
        if self._device is not None and self._device.tenant is not self:
            raise DeviceError(
                f"another model was loaded onto this device {self._device.name!r}",
                hint="open a device for each model",
            )

    def _checked(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        values = named_inputs(inputs, self._input_names)
        for name, value in values.items():
            self._check_kind(name, value.shape, value.dtype)
            if not value.flags.c_contiguous:
                values[name] = np.ascontiguousarray(value)
        return values

    def _check_kind(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        check_kind(name, shape, dtype, *self._input_kinds[name])

    def _checked_outputs(self, outputs: Mapping[str, Array] | None) -> dict[str, Array]:
        if outputs is not None and not isinstance(outputs, Mapping):
            raise InputError("outputs is no dict of arrays", hint=f"by name: {', '.join(self._outputs)}")
        return {name: self._checked_output(name, array) for name, array in (outputs or {}).items()}

    def _checked_output(self, name: str, array: Array) -> Array:
        if name not in self._outputs:
            raise InputError(f"the model has no output {name!r}", hint=f"its outputs: {', '.join(self._outputs)}")
        shape, dtype = self._outputs[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype or not array.flags.carray:
            raise InputError(f"output {name!r} must be a contiguous, writable {dtype_name(dtype)}{list(shape)}")
        return array

    # The core's part

    def _write_model(self) -> None:
        """Put constants and programs into the window."""
        self.residents.forget()
        for constant in self.model.on_core.constants:
            self.device.write(constant.offset, constant.data)
        for step in self.model.steps:
            if isinstance(step, CoreStep):
                self.device.write(step.program_offset, step.program)

    def _run_program(self, step: CoreStep, values: dict[str, Array], trace: bool) -> StepRun:
        slots = self.model.on_core.slots
        for name in step.inputs:
            if name in values:
                self.device.write(slots[name].offset, values[name])
        count = step.program.size // self.model.on_core.config.instruction_bytes
        try:
            result = self.device.launch(step.program_offset, count, trace=trace)
        except BaseException:
            self._write_model()
            raise
        for name in step.outputs:
            values[name] = self._slot(slots[name])
        return StepRun(step, result)

    def _slot(self, slot: TensorSlot) -> Array:
        value: Array = self.device.read(slot.offset, slot.nbytes).view(slot.dtype).reshape(slot.shape)
        return value
