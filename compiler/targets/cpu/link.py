"""A whole graph for a CPU: its kernels, a plan of memory, and the steps of a run."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

import llvmlite.ir as ll
import numpy as np

from ...compiled_cpu import CheckStep, CompiledStep, CopyStep, CpuLayer, CpuModel, CpuTensor, NumpyStep, Place
from ...graph.dtypes import numpy_dtype
from ...graph.ir import Attrs, Call, Constant, Expr, Function, Module, TensorType, TupleGet, TupleType, Var
from ...graph.registry import call as graph_call
from ...graph.registry import operator_of
from ...operators.index import index_sizes
from ...tensor.errors import TensorError
from ...tensor.printer import function_text
from ...tensor.view import element_type
from ..errors import CompileError
from ..loops.arena import Arena
from ..loops.fusion import Group, group_calls
from ..loops.halo import border_function
from ..loops.in_place import overwritable
from ..loops.kernels import Array, Kernel, blocked_kernel, converting_kernel, plain_kernel
from ..loops.layouts import NO_HALO, PLAIN, Layout
from ..loops.placement import Plan, plan_layouts
from ..memory_plan import aligned
from .convolution import convolution_kernel
from .llvm.emit import emit_kernel
from .llvm.object_code import cached, cached_object, object_code, sources_digest
from .llvm.step_function import Launch, Slot, emit_step
from .llvm.threads import pool_text
from .processor import CpuTarget
from .products import product_kernel

Progress = Callable[[str], None]
Dump = Callable[[str, str], None]

KERNEL = "weft_kernel"
"""Name of every kernel while it is emitted, so that equal ones have equal text."""

WORK_WORTH_THREADS = 4_000_000
"""Multiply-accumulates and elements below which a model runs on one thread: its kernels take microseconds."""

HEAD = struct.Struct("<3Q")
"""What stands before a kernel's code in the cache: the numbers of ``_Code``."""

PIXELS = 14
"""Pixels of a row that poolings and depthwise convolutions reduce at a time, at most."""


def link(
    module: Module, target: CpuTarget, threads: int, *, progress: Progress | None = None, dump: Dump | None = None
) -> CpuModel:
    """Compile a module whose ``main`` consists of operators. CompileError names the kernel at fault."""
    return _Linker(module, target, threads, progress or (lambda _: None), dump).run()


@dataclass(frozen=True)
class _Code:
    """Machine code of a kernel, the bytes of workspace that it needs, its parts, and a bit for each of the first inputs
    that it may overwrite."""

    content: bytes
    workspace: int
    parts: int
    overwritable: int


@dataclass(frozen=True)
class _Numpy:
    function: Function
    inputs: tuple[tuple[Slot, TensorType], ...]
    outputs: tuple[tuple[Slot, TensorType], ...]
    reason: str


@dataclass(frozen=True)
class _Copy:
    source: Slot
    target: Slot
    type: TensorType


@dataclass(frozen=True)
class _Check:
    indices: Slot
    type: TensorType
    sizes: tuple[int, ...]
    node: str


@dataclass
class _Linker:
    module: Module
    target: CpuTarget
    threads: int
    progress: Progress
    dump: Dump | None
    slots: dict[tuple[Expr, Layout], Slot] = field(default_factory=dict)
    arena: Arena = field(default_factory=Arena)
    constants: dict[bytes, Slot] = field(default_factory=dict)
    blob: list[bytes] = field(default_factory=list)
    blob_bytes: int = 0
    objects: dict[str, _Code] = field(default_factory=dict)  # of kernels, by symbol
    steps: list[Launch | _Numpy | _Copy | _Check] = field(default_factory=list)
    layers: list[CpuLayer] = field(default_factory=list)
    checked: set[tuple[Expr, tuple[int, ...]]] = field(default_factory=set)  # indices, and the sizes that they fit

    def run(self) -> CpuModel:
        main = self.module.main
        groups = group_calls(main.body, self.target.fusion)
        if sum(_work(group) for group in groups) < WORK_WORTH_THREADS:
            self.threads = 1
        plan = plan_layouts(groups, main.results)
        for number, param in enumerate(main.params):
            self.slots[param, PLAIN] = Slot("input", number)
        made: dict[Expr, int] = {}
        for number, result in enumerate(main.results):
            if isinstance(result, Call) and plan.layout(result) == PLAIN and plan.kinds.get(result) != "numpy":
                made.setdefault(result, number)
        for result, number in made.items():
            self.slots[result, PLAIN] = Slot("output", number)
        for group in groups:
            self.progress(f"compiling {group.name}")
            self._group(group, plan)
        for number, result in enumerate(main.results):
            if made.get(result) != number and result.tensor_type.size:
                self._copy_output(result, number, plan)
        return self._linked()

    # Steps

    def _group(self, group: Group, plan: Plan) -> None:
        kind = plan.kinds[group.root]
        if kind == "numpy":
            self._numpy(group, plan)
            return
        if kind == "alias":
            self.slots[group.root, PLAIN] = self._plain(group.inputs[0], plan)
            return
        layouts = {value: plan.layout(value) for value in group.inputs}
        if group.root in plan.wanted and group.anchor is not None:
            data = group.anchor.args[0]
            layouts[data] = self._covering(data, plan.wanted[group.root], plan)
        output = plan.layout(group.root)
        if kind == "convolution":
            kernel = convolution_kernel(group, layouts, output, KERNEL, self.target)
        elif kind == "blocked":
            kernel = blocked_kernel(group, layouts, output, KERNEL, PIXELS)
        elif kind == "product":
            kernel = product_kernel(group, layouts, KERNEL, self.target)
        else:
            kernel = plain_kernel(group, layouts, KERNEL)
        self._check_indices(group, plan)
        try:
            self._launch(kernel, group.root, layouts, output)
        except TensorError as error:
            raise CompileError(f"its default schedule fails: {error}", at=f"kernel {group.name!r}") from error
        self._describe(group, kind, kernel)

    def _launch(self, kernel: Kernel, result: Expr, layouts: dict[Expr, Layout], layout: Layout) -> None:
        """Compile a kernel and let it make ``result`` in ``layout``."""
        nbytes = prod(layout.shape(result.shape)) * numpy_dtype(layout.dtype(element_type(result.dtype))).itemsize
        slot = self.slots.get((result, layout))
        sources = [(self._used(self.slots[value, layouts[value]]), 0) for value in kernel.inputs]
        made_here = slot is None
        if slot is None:
            slot = self.slots[result, layout] = self._allocate(_name(result), nbytes)
        if layout.halo != NO_HALO:
            dtype = element_type(result.dtype)
            border = border_function(result.shape, dtype, layout, KERNEL)
            symbol = self._compile(Kernel(border, "as it is", lambda _: None, (), (), {}, 0))
            self.steps.append(Launch(symbol, ((self._used(slot), 0),), None, self.objects[symbol].parts))
        symbol = self._compile(kernel)
        constants = [(self._constant(value), 0) for value in kernel.constants]
        sources = [(self._used(source), byte) for source, byte in sources]
        item = numpy_dtype(layout.dtype(element_type(result.dtype))).itemsize
        arguments = (*sources, *constants, (self._used(slot), kernel.offset * item))
        code = self.objects[symbol]
        if made_here:
            inputs = [(source, bool(code.overwritable >> place & 1)) for place, (source, _) in enumerate(sources)]
            self.arena.offer(slot, inputs, len(self.steps))
        workspace = self._allocate(f"workspace of {_name(result)}", code.workspace) if code.workspace else None
        self.steps.append(Launch(symbol, arguments, workspace, code.parts))

    def _check_indices(self, group: Group, plan: Plan) -> None:
        """Have the indices of a gather looked at before its kernel runs, since machine code cannot refuse one."""
        for node in group.members:
            sizes = index_sizes(node)
            if sizes and not isinstance(node.args[1], Constant) and (node.args[1], sizes) not in self.checked:
                self.checked.add((node.args[1], sizes))
                slot = self._used(self._plain(node.args[1], plan))
                self.steps.append(_Check(slot, node.args[1].tensor_type, sizes, str(node.span)))

    def _numpy(self, group: Group, plan: Plan) -> None:
        root = group.root
        inputs = tuple((self._plain(value, plan), value.tensor_type) for value in group.inputs)
        params = {value: Var(f"x{number}", value.tensor_type) for number, value in enumerate(group.inputs)}
        if isinstance(root.op, Function):
            raise CompileError("functions must be taken apart first", at=f"function {root.op.name!r}")
        body = graph_call(root.op, *(params.get(arg, arg) for arg in root.args), span=root.span, **root.attrs)
        function = Function(tuple(params.values()), body, Attrs({"name": group.name}), root.span)
        parts: list[tuple[Expr, TensorType]] = [(root, root.type)] if isinstance(root.type, TensorType) else []
        if isinstance(root.type, TupleType):
            parts = [(TupleGet(root, place, root.span), kind) for place, kind in enumerate(root.type.fields)]
        outputs = []
        for value, kind in parts:
            slot = self.slots[value, PLAIN] = self._allocate(
                _name(root), kind.size * numpy_dtype(kind.dtype).itemsize
            )
            outputs.append((slot, kind))
        inputs = tuple((self._used(slot), kind) for slot, kind in inputs)
        self.steps.append(_Numpy(function, inputs, tuple(outputs), group.reason))
        self._describe(group, "numpy")

    def _copy_output(self, result: Expr, number: int, plan: Plan) -> None:
        source = self._plain(result, plan)
        self.steps.append(_Copy(self._used(source), Slot("output", number), result.tensor_type))

    # Tensors in the layout that a reader needs

    def _plain(self, value: Expr, plan: Plan) -> Slot:
        if isinstance(value, Constant):
            return self._constant(value.value)
        if (value, PLAIN) not in self.slots:
            self._convert(value, plan.layout(value), PLAIN)
        return self.slots[value, PLAIN]

    def _covering(self, value: Expr, wanted: Layout, plan: Plan) -> Layout:
        """A layout in which ``value`` is there that a reader of ``wanted`` can read; it is made if there is none."""
        for known, layout in self.slots:
            if known == value and layout.covers(wanted):
                return layout
        self._convert(value, plan.layout(value), wanted)
        return wanted

    def _convert(self, value: Expr, source: Layout, layout: Layout) -> None:
        if _same_memory(value, source) and _same_memory(value, layout):
            self.slots[value, layout] = self.slots[value, source]
            return
        kernel = converting_kernel(value, source, layout, KERNEL)
        self._launch(kernel, value, {value: source}, layout)
        name = f"{value.span.node or value.span.tensor or 'input'}: layout"
        self.layers.append(CpuLayer(name, value.span.nodes, "convert", (), value.shape, 0))

    # Memory

    def _allocate(self, name: str, nbytes: int) -> Slot:
        return self.arena.allocate(name, nbytes, len(self.steps))

    def _used(self, slot: Slot) -> Slot:
        """The slot, which the next step uses."""
        self.arena.use(slot, len(self.steps))
        return slot

    def _constant(self, value: Array) -> Slot:
        data = np.ascontiguousarray(value).tobytes()
        key = hashlib.blake2b(data).digest()
        if key not in self.constants:
            self.constants[key] = Slot("constant", self.blob_bytes)
            self.blob.append(data.ljust(aligned(len(data)), b"\0"))
            self.blob_bytes += aligned(len(data))
        return self.constants[key]

    # Code

    def _compile(self, kernel: Kernel) -> str:
        """Machine code of a kernel; gives its symbol. Equal kernels are one, and are kept on disk."""
        parts = [sources_digest(), self.target.key, self.threads, kernel.recipe, sorted(kernel.windows.items()),
                 len(kernel.inputs), kernel.offset]  # fmt: skip
        key = "\n".join([*map(str, parts), function_text(kernel.func)])
        symbol = f"weft_{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}"
        if symbol not in self.objects:

            def make() -> bytes:
                module = ll.Module("kernel")
                func = kernel.schedule().func
                needs = emit_kernel(module, func, self.target, self.threads, kernel.windows)
                text = str(module).replace(f'@"{KERNEL}"', f'@"{symbol}"')
                over = overwritable(func, min(64, len(kernel.inputs)), kernel.windows, kernel.offset)
                mask = sum(1 << place for place, fits in enumerate(over) if fits)
                head = HEAD.pack(needs.total(self.threads), needs.parts, mask)
                return head + object_code(text, self.target)

            content = cached(key, make)
            self.objects[symbol] = _Code(content[HEAD.size :], *HEAD.unpack_from(content))
        return symbol

    def _describe(self, group: Group, kind: str, kernel: Kernel | None = None) -> None:
        operators = tuple(str(node.op) for node in group.members)
        shape = group.root.shape if isinstance(group.root.type, TensorType) else ()
        layer = CpuLayer(
            group.name, group.span.nodes, kind, operators, shape, _macs(group), group.reason, group.boundaries,
            group.saved_bytes,
        )  # fmt: skip
        self.layers.append(layer)
        if self.dump is not None and kernel is not None:
            self.dump(f"{len(self.layers):03}.{group.name}", str(kernel.schedule()))

    # The whole

    def _linked(self) -> CpuModel:
        started = time.perf_counter()
        memory, planned = self.arena.plan()
        offsets = {Slot("arena", number): each.offset for number, each in enumerate(memory)}
        offsets |= {slot: slot.where for slot in self.constants.values()}
        module = ll.Module("steps")
        steps: list[CompiledStep | NumpyStep | CopyStep | CheckStep] = []
        waiting: list[Launch] = []

        def place(slot: Slot, kind: TensorType) -> Place:
            return Place(slot.kind, offsets.get(slot, slot.where), kind.shape, kind.dtype)  # type: ignore[arg-type]

        def flush() -> None:
            if waiting:
                symbol = f"weft_step_{len(steps)}"
                steps.append(CompiledStep(symbol, emit_step(module, symbol, waiting, offsets)))
                waiting.clear()

        for step in self.steps:
            if isinstance(step, Launch):
                waiting.append(step)
                continue
            flush()
            if isinstance(step, _Copy):
                steps.append(CopyStep(place(step.source, step.type), place(step.target, step.type)))
            elif isinstance(step, _Check):
                steps.append(CheckStep(place(step.indices, step.type), step.sizes, step.node))
            else:
                inputs = tuple(place(*item) for item in step.inputs)
                outputs = tuple(place(*item) for item in step.outputs)
                steps.append(NumpyStep(step.function, inputs, outputs, step.reason))
        flush()
        main = self.module.main
        codes = [code.content for code in self.objects.values()]
        codes.append(cached_object(str(module), self.target))
        model = CpuModel(
            main.name or "model", self.target.key, self.threads, tuple(codes),
            np.frombuffer(b"".join(self.blob), np.uint8), planned["arena_bytes"],
            tuple(CpuTensor(param.name, param.type.shape, param.type.dtype) for param in main.params),
            tuple(CpuTensor(name, result.shape, result.dtype)
                  for name, result in zip(main.output_names, main.results, strict=True)),
            tuple(steps), tuple(self.layers), cached_object(pool_text(self.target.triple), self.target),
            memory,
        )  # fmt: skip
        figures = {
            "kernels": len(self.objects), "code_bytes": sum(map(len, codes)), "constant_bytes": self.blob_bytes,
            "fused_groups": sum(len(layer.operators) > 1 for layer in self.layers),
            "saved_bytes": sum(layer.saved_bytes for layer in self.layers),
            **planned, "link_seconds": time.perf_counter() - started,
        }  # fmt: skip
        return replace(model, statistics=figures)


def _name(value: Expr) -> str:
    return value.span.tensor or value.span.node or "unnamed"


def _same_memory(value: Expr, layout: Layout) -> bool:
    """Whether a tensor in ``layout`` has its elements in the plain order."""
    if layout.is_plain:
        return True
    if value.shape[2:] != (1, 1) or layout.halo != NO_HALO or value.dtype == "int8":
        return False
    return value.shape[1] % layout.block == 0


def _work(group: Group) -> int:
    """How much a group computes, roughly."""
    elements = prod(group.root.shape) if isinstance(group.root.type, TensorType) else 0
    return _macs(group) + elements * len(group.members)


def _macs(group: Group) -> int:
    """Useful multiply-accumulates of a group's anchor."""
    entry = operator_of(group.anchor)
    return entry.macs(group.anchor) if entry is not None and group.anchor is not None else 0
