"""A whole model on a board: machine code for the board's processor and a plan, sent once; then one message a batch.

Between programs of the core, kernels that weft has compiled for the board run there. What only NumPy can do has no such
kernel, so a model that needs it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import STRING, numpy_dtype
from ..compiler.model import CheckStep, CompiledModel, CopyStep, CoreStep, HostCode, HostStep, NumpyStep, tensor_bytes
from ..compiler.model import Place as ModelPlace
from ..runtime.device import HostCodes, WholeRun
from ..runtime.errors import CoreFaultError, DeviceError, InputError
from ..sim.result import RunResult
from .link import plan
from .link.frames import PAYLOAD_BYTES, pieces
from .link.messages import LONGEST_RUN
from .remote import SLACK_SECONDS, BoardLinkError, Link
from .shared_library import processor_of, shared_library

MOST_ITEMS = 256
"""Items of one message at most, so that a deadline means something."""


@dataclass(frozen=True)
class Package:
    """All that a board gets of a model: its plan, its libraries, the constants of its steps on the processor."""

    plan: plan.Plan
    libraries: tuple[bytes, ...]
    constants: bytes


def package(model: CompiledModel, code: HostCodes, machine: str) -> Package:
    """A model for boards whose kernel calls the processor ``machine``.

    :class:`DeviceError` for a model that NumPy has a part in, a processor without code, or a missing linker.
    """
    processor = processor_of(machine)
    values = _Values(model)
    steps: list[plan.HostStep | plan.CoreStep] = []
    libraries: list[bytes] = []
    constants = b""
    wanted = model.wanted_on_host
    threads, team_bytes = 1, 0
    for step in model.steps:
        if isinstance(step, CoreStep):
            steps.append(_core_step(model, step, values, wanted))
            continue
        compiled = code(step.program, processor.name)
        threads, team_bytes = step.program.threads, compiled.team_bytes  # the same in all steps
        raw = step.program.constants.tobytes()
        steps.append(_host_step(model, step, compiled, values, len(libraries), (len(constants), len(raw))))
        libraries.append(shared_library(compiled.objects, processor))
        constants += raw
    inputs, outputs = ([values.number(each.name) for each in tensors] for tensors in (model.inputs, model.outputs))
    whole = plan.Plan(tuple(values.sizes), tuple(inputs), tuple(outputs), tuple(steps), threads, team_bytes)
    return Package(whole, tuple(libraries), constants)


class _Values:
    """Numbers of values, in the order in which steps name them."""

    def __init__(self, model: CompiledModel) -> None:
        self._numbers: dict[str, int] = {}
        self.sizes: list[int] = []
        for tensor in model.inputs:
            self.add(tensor.name, tensor.nbytes)

    def add(self, name: str, nbytes: int) -> int:
        """A value; it may be there already."""
        if name not in self._numbers:
            self._numbers[name] = len(self.sizes)
            self.sizes.append(nbytes)
        return self._numbers[name]

    def number(self, name: str) -> int:
        return self._numbers[name]

    def __contains__(self, name: str) -> bool:
        return name in self._numbers


def _core_step(model: CompiledModel, step: CoreStep, values: _Values, wanted: frozenset[str]) -> plan.CoreStep:
    core = model.on_core
    writes = [(values.number(name), core.slots[name].offset) for name in step.inputs if name in values]
    reads = [(values.add(name, core.slots[name].nbytes), core.slots[name].offset) for name in step.outputs
             if name in wanted]  # fmt: skip
    count = step.program.size // core.config.instruction_bytes
    return plan.CoreStep(step.program_offset, count, tuple(writes), tuple(reads))


def _host_step(
    model: CompiledModel, step: HostStep, code: HostCode, values: _Values, library: int, constants: tuple[int, int]
) -> plan.HostStep:
    program = step.program
    calls = {call.first: call for call in code.calls}
    actions: list[plan.Call | plan.Copy | plan.Check] = []
    for number, each in enumerate(program.steps):
        if isinstance(each, NumpyStep):
            layer = program.layers[each.layer]
            raise DeviceError(f"NumPy runs {layer.name!r} of {model.name!r}, and the board's part has none: "
                              f"{layer.reason}", hint='set kernels = "host" for this board')  # fmt: skip
        if isinstance(each, CopyStep) and each.source.dtype == STRING:
            raise DeviceError(f"{model.name!r} hands on strings, which the board's part does not know",
                              hint='set kernels = "host" for this board')  # fmt: skip
        if number in calls:
            actions.append(plan.Call(calls[number].symbol, calls[number].counter_bytes))
        elif isinstance(each, CopyStep):
            actions.append(plan.Copy(_place(each.source), _place(each.target)))
        elif isinstance(each, CheckStep):
            actions.append(plan.Check(_place(each.indices), each.indices.dtype, each.sizes, each.node))
    inputs = tuple(values.number(name) for name in step.inputs)
    outputs = tuple(values.add(name, tensor.nbytes) for name, tensor in zip(step.outputs, program.outputs, strict=True))
    return plan.HostStep(library, inputs, outputs, constants, program.arena_bytes, tuple(actions))


def _place(place: ModelPlace) -> plan.Place:
    return plan.Place(place.kind, place.number, place.offset, tensor_bytes(place.shape, place.dtype))


class BoardModel:
    """A model that is on a board with all its parts; it is sent again when the link is another one.

    ``connect`` gives an open link on which the window exists, and the window's number; ``result`` reads the account of
    a program.
    """

    def __init__(
        self, model: CompiledModel, code: HostCodes, connect: Callable[[], tuple[Link, int]],
        result: Callable[[dict[str, Any]], RunResult],
    ) -> None:  # fmt: skip
        self._model, self._code, self._connect, self._result = model, code, connect, result
        self._link: Link | None = None
        self._number = 0
        self._package: Package | None = None
        self._ready()

    def _ready(self) -> Link:
        """A link on which the model is known."""
        link, window = self._connect()
        if link is self._link:
            return link
        made = self._package or package(self._model, self._code, link.peer.machine)
        seconds = link.host.connect_seconds
        libraries = []
        for content in made.libraries:
            answer, _ = link.ask("library", seconds, digest=link.send_file("code", content))
            libraries.append(answer["library"])
        text = plan.plan_text(made.plan)
        constants = link.send_file("constants", made.constants) if made.constants else None
        answer, _ = link.ask(
            "model", seconds, plan=link.send_file("plan", text), constants=constants, libraries=libraries, window=window
        )
        self._link, self._number, self._package = link, answer["model"], made
        return link

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], count: int) -> WholeRun:
        """A batch in as many messages as its bytes take."""
        whole = self._package
        assert whole is not None
        largest = max(whole.plan.input_bytes, whole.plan.output_bytes, 1)
        step = max(1, min(MOST_ITEMS, PAYLOAD_BYTES // largest))
        parts: list[bytes] = []
        cycles, seconds = 0, 0.0
        results: tuple[RunResult, ...] = ()
        for first in range(0, count, step):
            items = min(step, count - first)
            raw = self._packed({name: value[first : first + items] for name, value in inputs.items()}, items)
            outputs, results, more_cycles, more_seconds = self._infer(raw, items)
            parts.append(outputs)
            cycles, seconds = cycles + more_cycles, seconds + more_seconds
        return WholeRun(self._unpacked(b"".join(parts), count), results, cycles, seconds)

    def _packed(self, inputs: Mapping[str, npt.NDArray[Any]], count: int) -> memoryview:
        """Item after item, each with all inputs in the model's order."""
        rows = [inputs[tensor.name].reshape(count, -1).view(np.uint8) for tensor in self._model.inputs]
        whole = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
        return np.ascontiguousarray(whole).reshape(-1).data

    def _unpacked(self, raw: bytes, count: int) -> dict[str, npt.NDArray[Any]]:
        table = np.frombuffer(bytearray(raw), np.uint8).reshape(count, -1)
        outputs: dict[str, npt.NDArray[Any]] = {}
        place = 0
        for tensor in self._model.outputs:
            column = np.ascontiguousarray(table[:, place : place + tensor.nbytes])
            outputs[tensor.name] = column.view(numpy_dtype(tensor.dtype)).reshape(count, *tensor.shape)
            place += tensor.nbytes
        return outputs

    def _infer(self, raw: memoryview, count: int) -> tuple[bytes, tuple[RunResult, ...], int, float]:
        """One batch: the bytes of its outputs, the programs of the last item, cycles and seconds of all."""
        link = self._ready()
        host = link.host
        one_message = len(raw) <= PAYLOAD_BYTES
        for start, length in () if one_message else pieces(len(raw)):
            link.ask("feed", host.connect_seconds, raw[start : start + length], model=self._number, offset=start)
        assert self._package is not None
        programs = max(1, self._package.plan.programs)
        deadline = min(LONGEST_RUN, count * programs * host.run_seconds) + host.connect_seconds + SLACK_SECONDS
        expected = count * self._package.plan.output_bytes
        try:
            frames = link.ask_many(
                "infer", deadline, raw if one_message else b"", programs + len(pieces(expected)),
                model=self._number, count=count, seconds=host.run_seconds, watchdog=host.watchdog,
                wait=host.wait,
            )  # fmt: skip
        except BoardLinkError as error:
            if error.kind == "input":
                raise InputError(error.message) from None
            raise
        return self._account(link, frames, count, expected)

    def _account(
        self, link: Link, frames: list[tuple[dict[str, Any], bytes]], count: int, expected: int
    ) -> tuple[bytes, tuple[RunResult, ...], int, float]:
        results = tuple(self._result(answer["run"]) for answer, _ in frames if answer["run"] is not None)
        for result in results:
            if result.fault is not None:
                raise CoreFaultError(f"device 'pynq': {result.fault}", result)
        outputs = b"".join(payload for _, payload in frames)
        last = frames[-1][0]
        assert self._package is not None
        if last["done"] != count or len(outputs) != expected or len(results) != self._package.plan.programs:
            raise link.wrong(f"infer: {last['done']} items, {len(outputs)} bytes and {len(results)} runs came, "
                             f"not {count}, {expected} and {self._package.plan.programs}")  # fmt: skip
        return outputs, results, last["cycles"], last["seconds"]
