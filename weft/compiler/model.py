"""What the compiler hands over, whatever the target: steps on devices, the memory that they use, and an account of it.

A `CompiledModel` is a list of steps that hand each other named values. A `HostStep` runs a `HostProgram`: kernels of
loop IR on this machine's processor, and NumPy where there is no kernel. A `CoreStep` runs a program on the accelerator.
A model for a CPU is one host step; one for the accelerator has both kinds in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import WeftError
from ..hw.config import CoreConfig
from ..imports import IMPORTS
from .graph.dtypes import numpy_dtype
from .graph.ir import Array, Expr, Function, Module
from .graph.tail import Tail

if TYPE_CHECKING:
    from .graph.symbolic import SymbolicInput, SymbolicTypes


def tensor_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a tensor without padding; of strings without their characters."""
    return prod(shape) * numpy_dtype(dtype).itemsize


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor, such as an input of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)


LayerDevice = Literal["core", "cpu", "gpu", "numpy"]
"""What runs a layer."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One kernel, one NumPy operator or one fused function on the core, for tables and traces."""

    name: str
    nodes: tuple[str, ...]  # the user's nodes that it does the work of
    kind: str  # of kernel: "conv2d", "depthwise_conv2d" and so on; "convolution", "blocked", "plain"; "numpy"
    device: LayerDevice
    output: str  # name of the value that it makes; empty for a change of layout
    shape: tuple[int, ...]  # logical shape of the output
    macs: int  # useful multiply-accumulates of the model, no padding counted
    reason: str = ""  # why it is not compiled for the target that was asked for; empty if it is
    operators: tuple[str, ...] = ()
    bytes_loaded: int = 0  # from DRAM by the core
    bytes_stored: int = 0
    boundaries: tuple[str, ...] = ()  # operands that were not fused, and why
    saved_bytes: int = 0  # memory traffic that there would be if its operators were not fused
    schedule: str = ""  # readable trace of the schedule
    form: str = ""  # how it multiplies bytes, and why not otherwise, where there is a choice


def with_products(layers: Sequence[Layer], products: Mapping[str, int]) -> tuple[Layer, ...]:
    """``layers``, which say what they compute, with what of it is useful work of the model. ``products``: by the user's
    node, its multiply-accumulates.

    They belong to the layers that the node leads, or else to all that are made of it, among several in the proportion
    of what these compute.
    """
    computing = [
        (number, [node for node in layer.nodes if node in products])
        for number, layer in enumerate(layers)
        if layer.macs
    ]
    owners: dict[str, list[int]] = {}
    for number, nodes in computing:
        if nodes:
            owners.setdefault(nodes[0], []).append(number)
    for node in dict.fromkeys(node for _, nodes in computing for node in nodes if node not in owners):
        owners[node] = [number for number, nodes in computing if node in nodes]
    useful = [0 if layer.nodes else layer.macs for layer in layers]
    for node, numbers in owners.items():
        left, whole = products[node], sum(layers[number].macs for number in numbers)
        for number in numbers:
            share = left * layers[number].macs // whole
            useful[number] += share
            left, whole = left - share, whole - layers[number].macs
    return tuple(replace(layer, macs=count) for layer, count in zip(layers, useful, strict=True))


# The host's part


@dataclass(frozen=True, slots=True)
class Place:
    """Memory of a plain tensor during a run of a host program.

    ``kind``: strings, which no kernel reads or writes, are ``strings`` between steps; they are whole tensors, and all
    that their numbers do is tell them apart.
    ``number``: which input or output of the program, or which strings (0 for the arena and the constants).
    ``offset``: bytes from its beginning, or from that of the arena or the constants. ``stride``: bytes by which it
    moves with each round of the loop that its step is in; after ``period`` rounds it is back, if that is not 0.
    """

    kind: Literal["arena", "constant", "input", "output", "strings"]
    number: int
    offset: int
    shape: tuple[int, ...]
    dtype: str
    stride: int = 0
    period: int = 0

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)

    def at(self, turn: int) -> Place:
        """Where it is in a round of its loop."""
        if not self.stride:
            return self
        offset = self.offset + self.stride * (turn % self.period if self.period else turn)
        return replace(self, offset=offset, stride=0, period=0)


@dataclass(frozen=True)
class KernelCode:
    """A kernel as scheduled loop IR, from which machine code is made where the model is loaded.

    ``symbol``: its name, which stands for its content. ``text``: the function, as `tensor.function_text` prints it.
    ``windows``: strides, in elements, of parameters that are the inside of a larger tensor. ``nbytes``: bytes that may
    be touched from where each parameter starts. ``workspace_bytes`` and ``parts``: memory of its own, and counters of
    work, for the program's number of threads.
    """

    symbol: str
    text: str = field(repr=False)
    windows: Mapping[str, tuple[int, ...]]
    nbytes: tuple[int, ...]
    workspace_bytes: int
    parts: int


def windows_text(windows: Mapping[str, tuple[int, ...]]) -> str:
    """Windows (as in `KernelCode`) as text that is the same for equal ones."""
    return str(sorted((name, list(strides)) for name, strides in windows.items()))


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """One run of a kernel. ``arguments``: a place for each of its parameters; ``workspace``: offset in the arena."""

    symbol: str
    arguments: tuple[Place, ...]
    workspace: int | None
    layer: int  # index in the program's layers

    def at(self, turn: int) -> LaunchStep:
        """The step in a round of its loop."""
        return replace(self, arguments=tuple(place.at(turn) for place in self.arguments))


@dataclass(frozen=True, slots=True)
class NumpyStep:
    """An operator that NumPy runs, through its meaning in the graph."""

    function: Function
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    layer: int


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A tensor that is needed in a second place."""

    source: Place
    target: Place


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Indices that machine code is about to trust: each must be in ``-size..size-1``. There is one size for all, or one
    for each number along the last axis. ``node`` is the user's."""

    indices: Place
    sizes: tuple[int, ...]
    node: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps ``first`` to ``last`` of a program, all of them launches, run ``count`` times in turn."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class ArenaTensor:
    """A tensor, or workspace of a kernel, in the arena: its bytes are its own from step ``first`` to step ``last``.

    ``reuses``: the number in ``HostProgram.memory`` of a tensor of equal size whose bytes this one reuses, element over
    element; both are alive only in the step that writes it. None if it has a place of its own.
    """

    name: str
    offset: int
    nbytes: int
    first: int
    last: int
    reuses: int | None


@dataclass(frozen=True)
class HostProgram:
    """Kernels and NumPy operators that run one after another on the host's processor.

    ``processor``: what the schedules were made for; machine code is made for the processor that runs them. ``loops``:
    in their order; none is in another.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    kernels: tuple[KernelCode, ...]
    steps: tuple[LaunchStep | NumpyStep | CopyStep | CheckStep, ...]
    layers: tuple[Layer, ...]
    constants: npt.NDArray[np.uint8] = field(repr=False)
    arena_bytes: int
    memory: tuple[ArenaTensor, ...] = field(repr=False)
    threads: int
    processor: str
    loops: tuple[Loop, ...] = ()

    def rounds(self) -> Iterator[tuple[Loop, range]]:
        """The steps in their order: stretches, each with the loop that it is in. What is in no loop is in one of a
        single round."""
        start = 0
        for loop in self.loops:
            if start < loop.first:
                yield Loop(start, loop.first - 1, 1), range(start, loop.first)
            yield loop, range(loop.first, loop.last + 1)
            start = loop.last + 1
        if start < len(self.steps):
            yield Loop(start, len(self.steps) - 1, 1), range(start, len(self.steps))

    def steps_in_turn(self) -> Iterator[tuple[int, LaunchStep | NumpyStep | CopyStep | CheckStep]]:
        """Every step as often as it runs, with its number."""
        for loop, numbers in self.rounds():
            for turn in range(loop.count):
                for number in numbers:
                    step = self.steps[number]
                    yield number, step.at(turn) if isinstance(step, LaunchStep) else step


@dataclass(frozen=True)
class Resident:
    """What a host step makes where it only moves a state of a session, such as keys, and a run's new rows behind it
    along ``axis``: so it may stay in the core's memory between runs, which then get the new rows alone.

    ``state``: the input. ``rows``: the value. ``places``: for each axis of the state, and of the rows behind it, a
    number for each index: their sum is the byte in the step's one output. All other bytes of it are 0.
    """

    state: str
    rows: str
    axis: int
    places: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class HostStep:
    """A run of a host program. ``inputs`` and ``outputs``: the values that the program's tensors are, in its order.
    ``resident``: where all that it does is to put a state together."""

    program: HostProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_layer: int  # in the model's layers, where those of the program begin
    resident: Resident | None = None


@dataclass(frozen=True)
class LaunchCall:
    """A call of machine code that runs the launches from step ``first`` to step ``last`` of a host program.

    ``counter_bytes``: memory for counters of work, which several threads need.
    """

    first: int
    last: int
    symbol: str
    counter_bytes: int


@dataclass(frozen=True)
class HostCode:
    """Machine code of a host program for one processor.

    ``processor``: triple, name and features of LLVM. ``objects``: object files of the kernels, the functions that call
    them, and the pool of threads. ``calls``: one for each stretch of launches. ``single_calls`` gives object files
    with a function for each launch instead, so that each can be timed; it holds none, so that ``objects`` can be let go
    once they are loaded. ``team_bytes``: memory that the threads share.
    """

    processor: str
    objects: tuple[bytes, ...] = field(repr=False)
    calls: tuple[LaunchCall, ...]
    single_calls: Callable[[], tuple[tuple[bytes, ...], tuple[LaunchCall, ...]]] = field(repr=False, compare=False)
    team_bytes: int


@dataclass(frozen=True)
class GridCall:
    """A launch of a function on a GPU, in ``groups`` along x, y and z, each of so many ``threads``.

    ``params``: the numbers of the kernel's parameters that are its arguments, in order; ``uses_workspace``: whether the
    kernel's workspace follows them. ``shared``: bytes of memory of a group that the function does not declare itself.
    """

    function: str
    groups: tuple[int, int, int]
    threads: int
    params: tuple[int, ...]
    uses_workspace: bool
    shared: int = 0


@dataclass(frozen=True)
class GpuCode:
    """A host program's kernels for a GPU: one ``text`` in a language that its driver compiles, and for each kernel, by
    symbol, the launches that are one run of it. An argument of a function is a tensor's memory and the byte in it at
    which the tensor starts."""

    language: Literal["opencl", "ptx"]
    text: str = field(repr=False)
    calls: Mapping[str, tuple[GridCall, ...]]


# The core's part


@dataclass(frozen=True)
class TensorSlot:
    """A tensor in the DMA window: ``offset`` in bytes from the window's base, packed ``shape``."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)


@dataclass(frozen=True)
class ConstantSegment:
    """Bytes that are written into the window once, when the model is loaded: packed weights, parameters."""

    name: str
    offset: int
    data: npt.NDArray[np.uint8] = field(repr=False)


@dataclass(frozen=True)
class CorePart:
    """What a core has to hold: the window's size, tensors and constants in it."""

    config: CoreConfig
    window_bytes: int
    slots: Mapping[str, TensorSlot]
    constants: tuple[ConstantSegment, ...]
    cores: tuple[CoreConfig, ...] = ()

    def config_of(self, step: CoreStep) -> CoreConfig:
        """The core that a program is for."""
        return self.cores[step.stage] if self.cores else self.config


@dataclass(frozen=True)
class CoreStep:
    """One program on the core. Inputs and outputs are names of tensor slots.

    ``layer_of`` and ``tile_of`` give, for each instruction, the index of its layer in the model and the running number
    of its tile there, so that a cycle can be traced back to the node that caused it. ``stage``: of a pipeline of cores,
    which of them runs it; stages of the programs of a model never fall. ``turn`` and ``core``: where cores share
    layers, the programs of a turn run at once, one on each core, and those of the next turn once all have ended. The
    first of a turn has its inputs, the last its outputs.
    """

    program: npt.NDArray[np.uint8] = field(repr=False)
    program_offset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer_of: npt.NDArray[np.int32] = field(repr=False)
    tile_of: npt.NDArray[np.int32] = field(repr=False)
    stage: int = 0
    turn: int = 0
    core: int = 0


@dataclass(frozen=True)
class Witness:
    """What a compilation says that its programs compute, for whoever wants to prove it (``docs/certificates.md``): the
    packed graph as text with its constants, and for each call in it the name of its value, in order. ``integers``: the
    option by which the integer graph was made."""

    text: str = field(repr=False)
    constants: Mapping[str, Array] = field(repr=False)
    names: tuple[str, ...]
    integers: str = ""

    @staticmethod
    def of(module: Module, names: Mapping[Expr, str]) -> Witness:
        """Of a packed module and the names of its calls."""
        with IMPORTS:
            from .graph.text import constant_table, to_text
            from .graph.visit import calls, uniquely_named

        shown = uniquely_named(module)
        return Witness(to_text(shown), constant_table(shown), tuple(names[node] for node in calls(module.main.body)))

    def module(self) -> Module:
        """The graph; GraphError where the text is none."""
        with IMPORTS:
            from .graph.text import parse

        return parse(self.text, self.constants)


# The whole


@dataclass(frozen=True, repr=False)
class CompiledModel:
    """A model compiled for one target. ``core`` is None where nothing runs on an accelerator. ``witness``: what its
    programs compute. ``tensors``: of a job that keeps all results, the source's tensor that a value is, by the value's
    name; a value that is none, such as a sum that is quantised later, is not in it. Artifacts do not hold it.
    ``from_file``: an artifact said so, which may come from anybody: its kernels are proved before one runs."""

    name: str
    target: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[CoreStep | HostStep, ...]
    layers: tuple[Layer, ...]
    core: CorePart | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    witness: Witness | None = field(default=None, compare=False)
    tensors: Mapping[str, str] = field(default_factory=dict, compare=False)
    from_file: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        """A line: its layers alone would fill pages."""
        ends = [
            ", ".join(f"{each.name}: {each.dtype}[{', '.join(map(str, each.shape))}]" for each in specs)
            for specs in (self.inputs, self.outputs)
        ]
        return f"CompiledModel({self.name!r}, {self.target!r}, {len(self.layers)} layers, {ends[0]} -> {ends[1]})"

    @property
    def results(self) -> tuple[str, ...]:
        """The names of what a run gives."""
        return tuple(tensor.name for tensor in self.outputs)

    @property
    def on_core(self) -> CorePart:
        """What the core has to hold; WeftError where nothing runs on one."""
        if self.core is None:
            raise WeftError(f"nothing of {self.name!r} runs on a core", hint="compile it with target 'accel'")
        return self.core

    @property
    def config(self) -> CoreConfig:
        """The core that the model is compiled for; WeftError where nothing runs on one, or on several unlike ones."""
        if self.on_core.cores:
            names = ", ".join(core.name for core in self.on_core.cores)
            raise WeftError(f"stages of {self.name!r} are for unlike cores: {names}", hint="run it on their system")
        return self.on_core.config

    def with_products(self, products: Mapping[str, int]) -> CompiledModel:
        """The model with useful multiply-accumulates in its layers; see `with_products`."""
        layers = with_products(self.layers, products)

        def told(step: CoreStep | HostStep) -> CoreStep | HostStep:
            if isinstance(step, CoreStep):
                return step
            own = layers[step.first_layer : step.first_layer + len(step.program.layers)]
            return replace(step, program=replace(step.program, layers=own))

        return replace(self, layers=layers, steps=tuple(map(told, self.steps)))

    @property
    def programs(self) -> tuple[CoreStep, ...]:
        """The programs for the core, in the order of their running."""
        return tuple(step for step in self.steps if isinstance(step, CoreStep))

    @property
    def stages(self) -> int:
        """Cores of the pipeline that its programs are split for: 1 without a split, 0 where nothing runs on a core."""
        return max((step.stage + 1 for step in self.programs), default=0)

    @property
    def shared_by(self) -> int:
        """Cores that share each layer: 1 where they do not, 0 where nothing runs on a core."""
        return max((step.core + 1 for step in self.programs), default=0)

    @property
    def wanted_on_host(self) -> frozenset[str]:
        """Values that steps on the host read, or that are results."""
        read = {name for step in self.steps if isinstance(step, HostStep) for name in step.inputs}
        return frozenset(read | {tensor.name for tensor in self.outputs})


@dataclass(frozen=True, repr=False)
class CutModel(CompiledModel):
    """A model of which the last part has results whose size, or course, the values of a run decide. ``outputs`` are the
    tensors that the compiled part makes; the ``tail`` makes of them, and of the inputs, the model's results, on the
    host, by NumPy. ``last`` says what that does, and why: it is none of the ``layers``."""

    tail: Tail = field(kw_only=True)

    @staticmethod
    def of(model: CompiledModel, tail: Tail) -> CutModel:
        """``model``, the compiled part, and what is left of it."""
        return CutModel(**{each.name: getattr(model, each.name) for each in fields(model)}, tail=tail)

    @property
    def results(self) -> tuple[str, ...]:
        return self.tail.outputs

    @property
    def last(self) -> Layer:
        """What the tail does, and why it is not compiled, as a layer says it."""
        nodes, kinds = (tuple(each) for each in zip(*self.tail.operators, strict=True))
        return Layer("host_tail", nodes, "numpy", "numpy", "", (), 0, self.tail.reason, kinds)


class CompileAt(Protocol):
    """What compiles an open model."""

    def __call__(self, sizes: Mapping[str, int], values: Mapping[str, Array] = {}) -> CompiledModel: ...


@dataclass(frozen=True)
class OpenModel:
    """A model with open sizes, or with inputs whose values decide on its course: it is compiled for each when that is
    first needed.

    ``types``: of every tensor, for any size; none where values decide. ``at``: compiles it for sizes by symbol, and for
    values of inputs. Those that have to be known are built in, and no inputs of what it gives. ``decided_by``: of them
    the ones that are asked for first. ``reader``: the function of weft that builds values in.
    """

    name: str
    target: str
    inputs: tuple[SymbolicInput, ...]
    outputs: tuple[str, ...]
    types: SymbolicTypes = field(repr=False)
    at: CompileAt = field(repr=False, compare=False)
    decided_by: tuple[str, ...] = ()
    reader: str = "from_onnx"

    @property
    def openness(self) -> str:
        """What keeps it from being one compiled model, in words."""
        if self.decided_by:
            return f"the course of {self.name!r} depends on the values of {', '.join(map(repr, self.decided_by))}"
        return f"the sizes of {self.name!r} are open: {', '.join(f'{each.name}={each}' for each in self.inputs)}"

    def way_out(self, of_sizes: str) -> str:
        """What to do where it has to be one; ``of_sizes``: how sizes are fixed."""
        if self.decided_by:
            values = ", ".join(f"{name!r}: VALUE" for name in self.decided_by)
            return f"build them in: weft.{self.reader}(MODEL, values={{{values}}}) is a model without these inputs"
        return f"fix them {of_sizes}"
