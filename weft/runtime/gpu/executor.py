"""Running a host program on a GPU: kernels there, NumPy here for what has none."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from ...compiler.graph.dtypes import STRING, numpy_dtype
from ...compiler.model import CheckStep, CopyStep, GpuCode, GridCall, HostProgram, LaunchStep, NumpyStep, Place
from ..errors import DeviceError
from ..host_steps import Array, HostStrings, check_arrays, check_indices, results_of
from ..run_lock import RunLock
from .dlpack import TensorThere
from .gpu import Gpu, Launch, Memory, Program

_Numbered: TypeAlias = tuple[int, LaunchStep | NumpyStep | CopyStep | CheckStep]


class GpuExecutor:
    """A host program on a device, ready to run as often as wanted, from any thread.

    Constants, tensors between kernels, inputs and outputs have memory on the device, which is kept between runs. One
    run at a time, others wait; runs of several executors overlap. In a forked process it refuses: drivers do not
    outlive a fork.
    """

    def __init__(self, program: HostProgram, code: GpuCode, gpu: Gpu) -> None:
        """``code`` must be of this program. Raises `DeviceError` where the device cannot hold or compile it."""
        self.program, self.gpu = program, gpu
        self._process = os.getpid()
        self._memory: dict[tuple[str, int], Memory] = {
            ("arena", 0): gpu.allocate(program.arena_bytes),
            ("constant", 0): gpu.allocate(program.constants.size),
        }
        for kind, tensors in (("input", program.inputs), ("output", program.outputs)):
            for number, tensor in enumerate(tensors):
                if tensor.dtype != STRING:
                    self._memory[kind, number] = gpu.allocate(tensor.nbytes)
        self._strings = HostStrings()
        if program.constants.size:
            gpu.write(self._memory["constant", 0], 0, program.constants)
        self._loaded = loaded = gpu.load(code)  # it is shared as long as somebody has it
        steps = [step for _, step in program.steps_in_turn()]  # a loop's, as often as they run
        self._steps = tuple(enumerate(steps))
        self._launches = {
            number: [self._prepared(loaded, step, call) for call in code.calls[step.symbol]]
            for number, step in self._steps if isinstance(step, LaunchStep)
        }  # fmt: skip
        gpu.synchronise()
        groups = itertools.groupby(self._steps, lambda each: isinstance(each[1], LaunchStep))
        self._work = [self._joined(list(group)) for _, group in groups]
        self._lock = RunLock()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the program once. Inputs and outputs are contiguous arrays of the program's shapes and types, in its
        order.

        Raises `InputError` for an array that does not fit, and for an index that is outside of its axis; `DeviceError`
        for what the device reports, with the kernel and the user's node.
        """
        check_arrays(self.program, inputs, outputs)
        with self._lock:
            self.execute(inputs, outputs)

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """As `run`, for a caller that has checked the arrays and lets in one run at a time."""
        self._write_inputs(inputs)
        self._run_work(inputs, outputs)
        self._read_outputs(outputs)

    def execute_on_device(
        self, inputs: Sequence[Array | TensorThere], borrowed: Callable[[int], Memory]
    ) -> list[Memory]:
        """As `execute`; gives the outputs in memory of their own. ``borrowed``: memory from an address on."""
        self._write_inputs(inputs, borrowed)
        self._run_work(inputs, ())
        made = []
        for number, tensor in enumerate(self.program.outputs):
            made.append(self.gpu.allocate(tensor.nbytes))
            if tensor.nbytes:
                self.gpu.copy(self._memory["output", number], 0, made[-1], 0, tensor.nbytes)
        self._strings.clear()
        self.gpu.synchronise()
        return made

    def _run_work(self, inputs: Sequence[Array | TensorThere], outputs: Sequence[Array]) -> None:
        for launch, steps in self._work:
            if launch is not None:
                self.gpu.launch(launch)
                continue
            for number, step in steps:
                if isinstance(step, LaunchStep):
                    try:
                        for each in self._launches[number]:
                            self.gpu.launch(each)
                    except DeviceError as error:
                        raise self._naming(step, error) from error
                else:
                    self._host_step(step, inputs, outputs)

    def execute_timed(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[float, ...]:
        """As `execute`; gives the seconds of each of the program's layers: those that the device counted, for what it
        runs. Copies and checks of indices are in none."""
        self._write_inputs(inputs)
        seconds = [0.0] * len(self.program.layers)
        for number, step in self._steps:
            if isinstance(step, LaunchStep):
                with self._named(step):
                    seconds[step.layer] += sum(map(self.gpu.timed, self._launches[number]))
                continue
            started = time.perf_counter()
            self._host_step(step, inputs, outputs)
            if isinstance(step, NumpyStep):
                seconds[step.layer] += time.perf_counter() - started
        self._read_outputs(outputs)
        return tuple(seconds)

    def kernels(self) -> list[Launch]:
        """All launches of a run, in order."""
        return [each for number, _ in self._steps for each in self._launches.get(number, ())]

    def kernel_timer(self, times: int = 1) -> Callable[[], float]:
        """What gives the seconds of a run as the device counts them, on the data of the last run, the mean of ``times``
        one after the other. Copies of inputs and outputs are not in it; DeviceError where a step runs on the host."""
        if any(not isinstance(step, LaunchStep) for _, step in self._steps):
            raise DeviceError("the model has steps on the host, which no device times")
        launches = self.kernels() * times
        joined = self.gpu.joined(launches)

        def seconds() -> float:
            with self._lock:
                return (sum(map(self.gpu.timed, launches)) if joined is None else self.gpu.timed(joined)) / times

        return seconds

    # Steps

    def _prepared(self, loaded: Program, step: LaunchStep, call: GridCall) -> Launch:
        places = [step.arguments[number] for number in call.params]
        arguments = [(self._memory[place.kind, place.number], place.offset) for place in places]
        if call.uses_workspace:
            arguments.append((self._memory["arena", 0], step.workspace or 0))
        with self._named(step):
            return self.gpu.prepare(loaded, call, arguments)

    def _joined(self, steps: list[_Numbered]) -> tuple[Launch | None, list[_Numbered]]:
        """Neighbouring steps of one kind, and what launches them all where the device can."""
        launches = [each for number, _ in steps for each in self._launches.get(number, ())]
        return (self.gpu.joined(launches) if len(launches) > 1 else None), steps

    @contextmanager
    def _named(self, step: LaunchStep) -> Iterator[None]:
        """As `_naming`, of all errors within; a launch has no time for it."""
        try:
            yield
        except DeviceError as error:
            raise self._naming(step, error) from error

    def _naming(self, step: LaunchStep, error: DeviceError) -> DeviceError:
        """An error of the device's that says in which kernel and node it came up."""
        node = self.program.layers[step.layer].name
        return DeviceError(error.message, at=f"kernel {step.symbol!r} of {node!r}", hint=error.hint)

    def _host_step(
        self, step: NumpyStep | CopyStep | CheckStep, inputs: Sequence[Array | TensorThere], outputs: Sequence[Array]
    ) -> None:
        def fetched(place: Place) -> Array:
            if place.dtype == STRING:
                return self._strings.get(place, inputs, outputs)
            return self._fetched(place, inputs)

        match step:
            case NumpyStep():
                values = [fetched(place) for place in step.inputs]
                for place, value in zip(step.outputs, results_of(step, values), strict=True):
                    if place.dtype == STRING:
                        self._strings.put(place, value, outputs)
                        continue
                    data = np.ascontiguousarray(value, numpy_dtype(place.dtype))
                    if place.nbytes:
                        self.gpu.write(self._memory[place.kind, place.number], place.offset, data)
            case CheckStep(indices):
                check_indices(self._fetched(indices, inputs), step)
            case CopyStep(source, target) if source.dtype == STRING:
                self._strings.put(target, fetched(source), outputs)
            case CopyStep(source, target):
                if source.nbytes:
                    self.gpu.copy(self._memory[source.kind, source.number], source.offset,
                                  self._memory[target.kind, target.number], target.offset, source.nbytes)  # fmt: skip

    def _fetched(self, place: Place, inputs: Sequence[Array | TensorThere]) -> Array:
        """The tensor at a place, on the host."""
        if place.kind == "input" and not place.offset and isinstance(given := inputs[place.number], np.ndarray):
            return given.reshape(place.shape)
        data = np.empty(place.shape, numpy_dtype(place.dtype))
        if place.nbytes:
            self.gpu.read(self._memory[place.kind, place.number], place.offset, data)
        return data

    def _write_inputs(
        self, inputs: Sequence[Array | TensorThere], borrowed: Callable[[int], Memory] | None = None
    ) -> None:
        if os.getpid() != self._process:
            raise DeviceError("the model was loaded before this process was forked, which no driver of a GPU outlives",
                              hint="load the model in this process")  # fmt: skip
        self._strings.clear()
        for number, (tensor, array) in enumerate(zip(self.program.inputs, inputs, strict=True)):
            if not array.nbytes or tensor.dtype == STRING:
                continue
            if isinstance(array, np.ndarray):
                self.gpu.write(self._memory["input", number], 0, array)
            elif borrowed is not None:
                self.gpu.copy(borrowed(array.address), 0, self._memory["input", number], 0, array.nbytes)

    def _read_outputs(self, outputs: Sequence[Array]) -> None:
        self._strings.clear()
        for number, (tensor, array) in enumerate(zip(self.program.outputs, outputs, strict=True)):
            if array.nbytes and tensor.dtype != STRING:
                self.gpu.read(self._memory["output", number], 0, array)
        self.gpu.synchronise()
