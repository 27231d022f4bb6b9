"""From a packed module to a compiled model: steps, window, one program for each run of layers on the core."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from ....hw.config import CoreConfig
from ....hw.errors import InstructionError
from ....hw.isa import Finish, Instruction, Load, Store, assemble
from ...compiled import AccelStep, CompiledModel, ConstantSegment, HostStep, Layer, TensorSlot
from ...graph.ir import Array, Attrs, Call, Constant, Expr, Function, GraphError, Module, TensorType, Var
from ...graph.visit import topological_order
from ..errors import CompileError
from ..memory_plan import Lifetime, aligned, plan_memory
from .check import Range, check_program
from .compile_kernel import Dump, Generated, generate, generate_in_turn
from .depthwise_split import Slice, split
from .emit import DramBuffer, Emitter
from .issue_early import advance
from .lower import Kernel, copy_kernel, lower_function
from .stream import Issue
from .tokens import insert_tokens

Progress = Callable[[str], None]

PASSIVE_HOST_OPERATORS = frozenset(
    {"quantise", "dequantise", "nn.softmax", "unfold", "pack", "unpack", "reshape", "transpose"}
)
"""What ``strict`` lets stand at the two ends of a network."""


@dataclass(frozen=True)
class Options:
    """How to link. ``reuse_memory``: tensors that are not alive at the same time share bytes of the window."""

    threads: int = 2
    reuse_memory: bool = True
    progress: Progress | None = None
    dump: Dump | None = None


def link(module: Module, config: CoreConfig, options: Options) -> CompiledModel:
    """Compile every primitive function of a packed module and put the whole together.

    Raises CompileError that names the function, stage or buffer at fault; every program has passed the checker.
    """
    return _Linker(module, config, options).run()


def check_strict(module: Module) -> None:
    """CompileError for the first host function other than quantisation, softmax and layout at the network's ends."""
    order = [node for node in topological_order(module.main.body) if isinstance(node, Call)]
    after_core: dict[Expr, bool] = {}
    before_core: dict[Expr, bool] = {}
    for node in order:
        after_core[node] = any(after_core.get(arg, False) or _is_primitive(arg) for arg in node.args)
    for node in reversed(order):
        for arg in node.args:
            before_core[arg] = before_core.get(arg, False) or before_core.get(node, False) or _is_primitive(node)
    for node in order:
        if not isinstance(node.op, Function) or node.op.is_primitive:
            continue
        operators = {str(call.op) for call in topological_order(node.op.body) if isinstance(call, Call)}
        between = after_core[node] and before_core.get(node, False)
        if between or not operators <= PASSIVE_HOST_OPERATORS:
            what = node.op.span.node or node.span.node or node.op.name
            raise CompileError(
                f"{', '.join(sorted(operators))} would run on the host: {node.op.host_reason}", at=f"node {what!r}",
                hint="compile without strict, or change the model",
            )  # fmt: skip


def _is_primitive(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Function) and node.op.is_primitive


@dataclass
class _Phase:
    """Calls that run together: on the host one by one, or on the core as one program."""

    on_core: bool
    calls: list[Call] = field(default_factory=list)


@dataclass
class _Linker:
    module: Module
    config: CoreConfig
    options: Options
    names: dict[Expr, str] = field(default_factory=dict)
    slots: dict[str, TensorSlot] = field(default_factory=dict)
    constants: dict[str, ConstantSegment] = field(default_factory=dict)  # by digest of the bytes
    layers: list[Layer] = field(default_factory=list)
    end: int = 0

    def run(self) -> CompiledModel:
        main = self.module.main
        phases = self._phases()
        self._name_values(phases)
        kernels = {
            node: _pieces(node, self.config, self.options.threads)
            for phase in phases if phase.on_core for node in phase.calls
        }  # fmt: skip
        for pieces in kernels.values():
            for piece in pieces:
                for part in piece.parts or (piece,):
                    for _, value in part.kernel.constants:
                        self._constant(value)
        for node in kernels:
            for arg in node.args:
                if isinstance(arg, Constant):
                    self._constant(arg.value)
        self._plan(phases)
        steps: list[AccelStep | HostStep] = []
        for phase in phases:
            if phase.on_core:
                steps.append(self._program(phase, kernels))
            else:
                steps += [self._host_step(node) for node in phase.calls]
        steps += self._renamed_outputs()
        inputs = tuple(TensorSlot(param.name, 0, param.type.shape, param.type.dtype) for param in main.params)
        outputs = tuple(
            TensorSlot(name, 0, result.shape, result.dtype)
            for name, result in zip(main.output_names, main.results, strict=True)
        )
        programs = [step for step in steps if isinstance(step, AccelStep)]
        return CompiledModel(
            name=main.name or "model",
            config=self.config,
            window_bytes=self.end,
            slots=self.slots,
            constants=tuple(self.constants.values()),
            steps=tuple(steps),
            layers=tuple(self.layers),
            inputs=inputs,
            outputs=outputs,
            statistics={
                "instructions": sum(len(step.layer_of) for step in programs),
                "program_bytes": sum(step.program.nbytes for step in programs),
                "constant_bytes": sum(segment.data.nbytes for segment in self.constants.values()),
            },
        )

    def _phases(self) -> list[_Phase]:
        """As few phases as the dataflow allows, alternating between host and core."""
        waiting = [node for node in topological_order(self.module.main.body) if isinstance(node, Call)]
        for node in waiting:
            if not isinstance(node.op, Function):
                raise CompileError(f"{node.op} is in no function", at=str(node.span), hint="run the passes")
        done: set[int] = set()
        phases: list[_Phase] = []
        on_core = False
        while waiting:
            phase = _Phase(on_core)
            later = []
            for node in waiting:
                if _is_primitive(node) == on_core and all(
                    not isinstance(arg, Call) or id(arg) in done for arg in node.args
                ):
                    phase.calls.append(node)
                    done.add(id(node))
                else:
                    later.append(node)
            waiting = later
            on_core = not on_core
            if phase.calls:
                phases.append(phase)
        return phases

    def _name_values(self, phases: Sequence[_Phase]) -> None:
        """Each value gets the name of the user's tensor where that is free; outputs keep theirs."""
        main = self.module.main
        taken = {param.name for param in main.params} | set(main.output_names)
        for param in main.params:
            self.names[param] = param.name
        outputs = {id(result): name for name, result in zip(main.output_names, main.results, strict=True)}
        for phase in phases:
            for node in phase.calls:
                if id(node) in outputs and not phase.on_core and node not in self.names:
                    self.names[node] = outputs[id(node)]
                    continue
                wish = (node.span.tensor if phase.on_core else "") or _function(node).name
                name, number = wish, 0
                while name in taken:
                    number += 1
                    name = f"{wish}.{number}"
                taken.add(name)
                self.names[node] = name

    def _renamed_outputs(self) -> list[HostStep]:
        """Outputs that are inputs, constants, or one value twice: copied by a host function that does nothing."""
        steps = []
        main = self.module.main
        for name, result in zip(main.output_names, main.results, strict=True):
            if self.names.get(result) == name:
                continue
            if isinstance(result, Constant):
                steps.append(HostStep(Function((), result, Attrs({"name": name, "host": "a constant"})), (), (name,),
                                      "a constant"))  # fmt: skip
                continue
            param = Var("x0", result.tensor_type)
            reason = f"the same value as {self.names[result]!r}"
            function = Function((param,), param, Attrs({"name": f"copy_{name}", "host": reason}))
            steps.append(HostStep(function, (self.names[result],), (name,), reason))
        return steps

    def _constant(self, value: Array) -> ConstantSegment:
        data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        digest = hashlib.sha256(data.tobytes()).hexdigest()
        if digest not in self.constants:
            self.constants[digest] = ConstantSegment(f"constant{len(self.constants)}", self.end, data)
            self.end += aligned(data.nbytes)
        return self.constants[digest]

    def _plan(self, phases: Sequence[_Phase]) -> None:
        """Give every tensor that the core reads or writes its place in the window."""
        time = 0
        written: dict[str, tuple[int, TensorType]] = {}
        last: dict[str, int] = {}
        for phase in phases:
            for node in phase.calls:
                for arg in (node, *node.args):
                    if not isinstance(arg, Constant) and (phase.on_core or arg is not node):
                        name = self.names[arg]
                        if phase.on_core:
                            # Host values are written into the window right before the program starts.
                            written.setdefault(name, (time, arg.tensor_type))
                        last[name] = time
                if phase.on_core:
                    time += 1
            time += 1
        starts = self._phase_starts(phases)
        lifetimes = []
        for name, (first, kind) in written.items():
            produced_here = any(self.names[node] == name for phase in phases if phase.on_core for node in phase.calls)
            begin = first if produced_here else max(start for start in starts if start <= first)
            nbytes = kind.size * np.dtype(kind.dtype).itemsize
            until = last[name] if self.options.reuse_memory else time
            lifetimes.append(Lifetime(name, nbytes, begin if self.options.reuse_memory else 0, until))
        offsets, self.end = plan_memory(lifetimes, self.end)
        for name, (_, kind) in written.items():
            self.slots[name] = TensorSlot(name, offsets[name], kind.shape, kind.dtype)

    @staticmethod
    def _phase_starts(phases: Sequence[_Phase]) -> list[int]:
        time = 0
        starts = []
        for phase in phases:
            starts.append(time)
            time += (len(phase.calls) if phase.on_core else 0) + 1
        return starts

    def _host_step(self, node: Call) -> HostStep:
        function = node.op
        if not isinstance(function, Function):
            raise CompileError(f"{function} is no function", at=str(node.span))
        constants = [arg for arg in node.args if isinstance(arg, Constant)]
        if constants:
            raise CompileError("a host function has a constant operand", at=f"function {function.name!r}")
        inputs = tuple(self.names[arg] for arg in node.args)
        shape = node.tensor_type.shape
        self.layers.append(Layer(
            function.name, node.span.nodes, "host", "host", function.host_reason, self.names[node], shape, 0, 0, 0,
        ))  # fmt: skip
        return HostStep(function, inputs, (self.names[node],), function.host_reason)

    def _program(self, phase: _Phase, kernels: Mapping[Call, Sequence[Piece]]) -> AccelStep:
        emitter = Emitter(self.config)
        first_layer = len(self.layers)
        texts = []
        for number, node in enumerate(phase.calls):
            if self.options.progress is not None:
                self.options.progress(f"compiling {_function(node).name} ({number + 1} of {len(phase.calls)})")
            traces = []
            for piece in kernels[node]:
                for generated in self._generate(emitter, node, piece, first_layer + number):
                    traces.append("\n".join(map(str, generated.schedule.trace)))
            texts.append("\n".join(traces))
        stream = insert_tokens(self.config, advance(self.config, emitter.issues))
        program: list[Instruction] = [*(issue.finished for issue in stream), Finish()]
        try:
            code = assemble(self.config, program)
        except InstructionError as error:
            raise CompileError(f"an instruction cannot be encoded: {error.message}", at="the program",
                               hint="a smaller model or batch may fit what instructions reach") from error  # fmt: skip
        offset = self.end
        self.end += aligned(code.nbytes)
        # Checked with a window that ends before the program: nothing may touch it.
        ranges = tuple(Range(item.offset, item.offset + item.data.nbytes) for item in self.constants.values())
        check_program(self.config, code, offset, ranges)
        traffic = _traffic(self.config, stream)
        for number, node in enumerate(phase.calls):
            function = _function(node)
            loaded, stored = traffic.get(first_layer + number, (0, 0))
            self.layers.append(Layer(
                function.name, node.span.nodes, kernels[node][0].kind, "accel", "", self.names[node],
                _plain_shape(node), int(str(function.attrs.get("macs", 0))), loaded, stored, texts[number],
            ))  # fmt: skip
        last = len(self.layers) - 1
        written = {self.names[node] for node in phase.calls}
        read = dict.fromkeys(
            self.names[arg] for node in phase.calls for arg in node.args if not isinstance(arg, Constant)
        )
        return AccelStep(
            program=code,
            program_offset=offset,
            inputs=tuple(name for name in read if name not in written),
            outputs=tuple(name for name in map(self.names.__getitem__, phase.calls) if self._leaves(name)),
            layer_of=np.array([issue.layer for issue in stream] + [last], np.int32),
            tile_of=np.array([issue.tile for issue in stream] + [0], np.int32),
        )

    def _generate(self, emitter: Emitter, node: Call, piece: Piece, layer: int) -> list[Generated]:
        dump = self.options.dump
        parts = [(part.kernel, self._places(node, part)) for part in piece.parts]
        found = generate_in_turn(emitter, parts, layer=layer, dump=dump) if parts else None
        if found is not None:
            return found
        places = self._places(node, piece)
        return [generate(emitter, piece.kernel, places, threads=self.options.threads, layer=layer, dump=dump)]

    def _leaves(self, name: str) -> bool:
        """Whether a value is read by the host."""
        main = self.module.main
        if any(self.names.get(result) == name for result in main.results):
            return True
        return any(
            self.names.get(arg) == name
            for node in topological_order(main.body) if isinstance(node, Call) and not _is_primitive(node)
            for arg in node.args
        )  # fmt: skip

    def _places(self, node: Call, piece: Piece) -> dict[str, DramBuffer]:
        places = {
            tensor.name: DramBuffer(self._constant(value).offset, constant=True)
            for tensor, value in piece.kernel.constants
        }
        for name, (operand, shift) in piece.inputs.items():
            arg = node.args[operand]
            if isinstance(arg, Constant):
                places[name] = DramBuffer(self._constant(arg.value).offset + shift, constant=True)
            else:
                places[name] = DramBuffer(self.slots[self.names[arg]].offset + shift)
        output = self.slots[self.names[node]].offset + piece.output_shift
        places[piece.kernel.output.name] = DramBuffer(output)
        return places


@dataclass(frozen=True)
class Piece:
    """A kernel that computes a part of a function's result: which operand each of its inputs is a part of (from which
    byte on), and where in the result its output begins. ``parts``: pieces that may be computed instead, in turn."""

    kernel: Kernel
    kind: str
    inputs: Mapping[str, tuple[int, int]]
    output_shift: int = 0
    parts: tuple[Piece, ...] = ()


def _pieces(node: Call, config: CoreConfig, threads: int) -> list[Piece]:
    function = _function(node)
    if isinstance(function.body, Call) and function.body.op == "packed_concat":
        return list(_concat_pieces(function, function.body))
    kernel = lower_function(function)
    splits = split(config, function, kernel, threads)
    if splits:
        return [
            replace(_part(node, each.whole, kernel.kind), parts=tuple(_part(node, part, "") for part in each.slices))
            for each in splits
        ]
    names = {tensor.name: (place, 0) for place, tensor in enumerate(kernel.inputs[: len(function.params)])}
    return [Piece(kernel, kernel.kind, names)]


def _part(node: Call, part: Slice, kind: str) -> Piece:
    """Some channel groups of a function."""
    kernel = lower_function(part.function)
    inputs = {
        tensor.name: (place, part.shift(arg.shape))
        for place, (tensor, arg) in enumerate(zip(kernel.inputs, node.args, strict=False))
    }
    return Piece(kernel, kind, inputs, part.shift(node.shape))


def _concat_pieces(function: Function, body: Call) -> Iterable[Piece]:
    """Copies of the operands to their places in the result, one for each batch group."""
    row_bytes = [prod(arg.shape[1:]) for arg in body.args]
    for outer in range(body.shape[0]):
        shift = outer * sum(row_bytes)
        for operand, arg in zip(body.args, row_bytes, strict=True):
            place = function.params.index(operand) if isinstance(operand, Var) else -1
            if place < 0:
                raise CompileError("an operand of concat is no parameter", at=f"function {function.name!r}")
            kernel = copy_kernel(function.name, (1, *operand.shape[1:]), body.attrs["blocks"])
            yield Piece(kernel, "concat", {kernel.inputs[0].name: (place, outer * arg)}, shift)
            shift += arg


def _function(node: Call) -> Function:
    if not isinstance(node.op, Function):
        raise GraphError(f"{node.op} is no function", at=node.span)
    return node.op


def _plain_shape(node: Call) -> tuple[int, ...]:
    shape = _function(node).attrs.get("shape")
    return tuple(int(str(size)) for size in shape) if isinstance(shape, tuple) else node.shape


def _traffic(config: CoreConfig, stream: Sequence[Issue]) -> dict[int, tuple[int, int]]:
    """Bytes loaded and stored by each layer."""
    found: dict[int, tuple[int, int]] = {}
    for issue in stream:
        loaded, stored = found.get(issue.layer, (0, 0))
        match issue.instruction:
            case Load(scratchpad=scratchpad, rows=rows, columns=columns):
                loaded += rows * columns * scratchpad.dram_bytes(config)
            case Store(rows=rows, columns=columns):
                stored += rows * columns * config.out_bytes
            case _:
                continue
        found[issue.layer] = (loaded, stored)
    return found
