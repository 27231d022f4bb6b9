"""A graph of operators as a program of loop kernels: layouts, memory, constants, steps; no machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from ...graph.dtypes import STRING, numpy_dtype
from ...graph.ir import Attrs, Call, Constant, Expr, Function, Module, TensorType, TupleGet, TupleType, Var
from ...graph.registry import call as graph_call
from ...graph.registry import operator_of
from ...graph.scan import SCAN, body_of
from ...model import (
    CheckStep,
    CopyStep,
    HostProgram,
    KernelCode,
    LaunchStep,
    Layer,
    LayerDevice,
    Loop,
    NumpyStep,
    Place,
    TensorSpec,
)
from ...operators.index import index_sizes, indices_of
from ...tensor.bounds import Elements, require_bounds
from ...tensor.errors import BoundsError, TensorError
from ...tensor.ir import Buffer, PrimFunc
from ...tensor.printer import function_text
from ...tensor.view import element_type
from ..errors import CompileError
from ..memory_plan import aligned
from .arena import Arena, ArenaSlot, ConstantAt, InputAt, OutputAt, PartOf, Slot, StringsAt, memory_figures
from .fusion import FusedGroup
from .halo import border_function
from .in_place import overwritable
from .joins import parts_of
from .kernel_code import KERNEL, kernel_code
from .kernels import Array, Kernel
from .known_indices import known_elements
from .layouts import NO_HALO, PLAIN, Layout, brought_into_blocks
from .placement import KernelKind, Placement, place_groups
from .plain import converting_kernel
from .scans import OPERAND, scan_plan, with_loops
from .slots import Slots
from .target import LoopTarget

Progress = Callable[[str], None]
Dump = Callable[[str, str], None]
Step = LaunchStep | NumpyStep | CopyStep | CheckStep
Locate = Callable[[Slot, tuple[int, ...], str, int], Place]
"""The place of a tensor: its memory, shape, type, and the byte of the memory at which it starts."""


def link_host(
    module: Module, target: LoopTarget, threads: int, *, progress: Progress | None = None, dump: Dump | None = None
) -> HostProgram:
    """Make a program of a module whose ``main`` consists of operators. CompileError names the kernel at fault.

    ``progress`` is called with a line of text for each kernel, ``dump`` with the name of each kernel and its loop IR.
    """
    return _Linker(module, target, threads, progress or (lambda _: None), dump).run()


def program_figures(program: HostProgram) -> dict[str, int]:
    """Kernels, bytes of memory, and what fusion saves."""
    return {
        "kernels": len(program.kernels), "constant_bytes": program.constants.size,
        "fused_groups": sum(len(layer.operators) > 1 for layer in program.layers),
        "saved_bytes": sum(layer.saved_bytes for layer in program.layers),
        "arena_bytes": program.arena_bytes, **memory_figures(program.memory),
    }  # fmt: skip


@dataclass
class _Linker:
    """Collects steps; each is made in the end, when it is planned where everything lies."""

    module: Module
    target: LoopTarget
    threads: int
    progress: Progress
    dump: Dump | None
    slots: Slots = field(default_factory=Slots)
    arena: Arena = field(default_factory=Arena)
    constants: dict[bytes, ConstantAt] = field(default_factory=dict)
    blob: list[bytes] = field(default_factory=list)
    blob_bytes: int = 0
    kernels: dict[str, KernelCode] = field(default_factory=dict)  # by symbol
    steps: list[Callable[[Locate], Step]] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    checked: set[tuple[Expr, tuple[int, ...]]] = field(default_factory=set)  # indices, and the sizes that they fit
    scheduled: dict[tuple[str, str], tuple[PrimFunc, KernelCode]] = field(default_factory=dict)  # by text before
    loops: list[Loop] = field(default_factory=list)
    borders: dict[object, tuple[KernelCode, tuple[Buffer, ...]]] = field(default_factory=dict)
    strings: int = 0  # tensors of strings that there are between steps

    def run(self) -> HostProgram:
        main = with_loops(self.module, self.target.groups).main
        self.module = Module(main, self.module.stage)
        groups = self.target.groups(main.body)
        if sum(_work(group) for group in groups) < self.target.shared_work:
            self.threads = 1
        placement = place_groups(groups, main.results, self.target.kinds)
        for number, param in enumerate(main.params):
            self.slots[param, PLAIN] = InputAt(number)
        direct = placement.written_directly(main.results)
        for value, number in direct.items():
            self.slots[value, PLAIN] = OutputAt(number)
        for group in placement.groups:
            self.progress(f"scheduling {group.name}")
            self._group(group, placement)
        for number, result in enumerate(main.results):
            if number not in direct.values() and result.tensor_type.size:
                self._copy_output(result, number, placement)
        return self._linked()

    # Steps

    def _group(self, group: FusedGroup, placement: Placement) -> None:
        if group.root.op == SCAN:
            self._scan(group.root, placement)
            return
        if group.reason:
            self._numpy(group, placement)
            return
        if group.root in placement.aliases:
            self._alias(group.root, group.root.args[0], placement)
            return
        if group.root in placement.joins:
            self._join(group, placement)
            return
        layouts = {value: placement.layout(value) for value in group.inputs}
        if group.root in placement.data and group.anchor is not None:
            data = group.anchor.args[0]
            layouts[data] = self._covering(data, placement.data[group.root], placement)
        output = placement.layout(group.root)
        for value, layout in layouts.items():
            if layout.is_plain and brought_into_blocks(value, group.root, output):
                layouts[value] = self._covering(value, Layout(output.block), placement)
        kind = placement.kernels[group.root]
        kernel, origin = self._revised(kind, group, layouts, output) or (kind.build(group, layouts, output, KERNEL), "")
        self._check_indices(group, placement)
        try:
            self._prepare_part(group.root, placement)
            text = self._launch(kernel, group.root, layouts, output, known_elements(kernel, group, layouts))
        except BoundsError as error:
            operators = ", ".join(str(node.op) for node in group.members)
            raise CompileError(f"what it computes ({operators}) is not known to stay inside of its tensors: {error}",
                               at=f"kernel {group.name!r}") from error  # fmt: skip
        except TensorError as error:
            raise CompileError(f"its default schedule fails: {error}", at=f"kernel {group.name!r}") from error
        self._describe(group, kind.name, self.target.device, origin, kernel.form)
        if self.dump is not None:
            self.dump(f"{len(self.layers):03}.{group.name}", text)

    def _revised(
        self, kind: KernelKind, group: FusedGroup, layouts: dict[Expr, Layout], output: Layout
    ) -> tuple[Kernel, str] | None:
        """The kernel as the target's ``revise`` wants it, and why; None without that, or if it cannot be scheduled."""
        if self.target.revise is None:
            return None
        revised = self.target.revise(kind, group, layouts, output, self.threads)
        if revised is None:
            return None
        try:
            kernel = revised.kind.build(group, layouts, output, KERNEL)
            self._scheduled(kernel, known_elements(kernel, group, layouts))
        except (CompileError, TensorError):
            return None
        return kernel, revised.origin

    def _alias(self, result: Call, value: Expr, placement: Placement) -> None:
        """The memory of ``value`` is that of ``result``, too."""
        if result.op == "barrier" and not isinstance(value, Constant):  # in all layouts in which it is there
            for layout, slot in tuple(self.slots.of(value).items()):
                self.slots[result, layout] = slot
        else:
            self.slots[result, PLAIN] = self._plain(value, placement)

    def _join(self, group: FusedGroup, placement: Placement) -> None:
        """A concatenation: operands that are not in its memory already are copied there."""
        root = group.root
        layout = placement.layout(root)
        whole = self._prepare_part(root, placement) or self._whole(root, layout)
        for value, byte in parts_of(root, layout):
            if placement.parts.get(value, (None,))[0] == root:
                continue
            source = placement.layout(value)
            kernel = converting_kernel(value, source, layout, KERNEL, self.target)
            self._launch(kernel, value, {value: source}, layout, slot=_part(whole, byte))
            name = f"{value.span.node or value.span.tensor or 'input'}: part"
            self.layers.append(Layer(name, value.span.nodes, "convert", self.target.device, "", value.shape, 0))

    def _prepare_part(self, value: Expr, placement: Placement) -> Slot | None:
        """The slot of a value that is written into a concatenation; None of others."""
        if value not in placement.parts:
            return None
        key = value, placement.layout(value)
        if key not in self.slots:
            result, byte = placement.parts[value]
            whole = self._prepare_part(result, placement) or self._whole(result, placement.layout(result))
            self.slots[key] = _part(whole, byte)
        return self.slots[key]

    def _whole(self, value: Expr, layout: Layout) -> Slot:
        """The memory of a value that is made in parts."""
        key = value, layout
        if key not in self.slots:
            self.slots[key] = self._allocate(_name(value), _nbytes(value, layout))
        return self.slots[key]

    def _launch(
        self, kernel: Kernel, result: Expr, layouts: dict[Expr, Layout], layout: Layout,
        elements: Elements | None = None, slot: Slot | None = None,
    ) -> str:  # fmt: skip
        """Let a kernel make ``result`` in ``layout``; gives its text. ``elements``: what is known of its indices;
        ``slot``: where else than where the value is."""
        slot = slot or self.slots.get((result, layout))
        sources = [self._used(self.slots[value, layouts[value]]) for value in kernel.inputs]
        new: ArenaSlot | None = None
        if slot is None:
            slot = new = self._allocate(_name(result), _nbytes(result, layout))
            self.slots[result, layout] = new
        func, code = self._scheduled(kernel, elements)
        sources = [self._used(source) for source in sources]
        if new is not None:
            fits = overwritable(func, len(kernel.inputs), kernel.windows, kernel.offset)
            self.arena.offer(new, list(zip(sources, fits, strict=True)), len(self.steps))
        constants = [self._constant(value) for value in kernel.constants]
        workspace = None
        if code.workspace_bytes:
            workspace = self._allocate(f"workspace of {_name(result)}", code.workspace_bytes)
        item = numpy_dtype(layout.dtype(element_type(result.dtype))).itemsize
        slots = (*sources, *constants, self._used(slot))
        self._add_launch(code, func.params, slots, kernel.offset * item, workspace)
        if layout.halo != NO_HALO:  # behind the kernel, which may read an operand that lies there, or spill into it
            self._fill_halo(result, layout, slot)
        return code.text

    def _fill_halo(self, result: Expr, layout: Layout, slot: Slot) -> None:
        dtype = element_type(result.dtype)
        key = result.shape, dtype, layout
        if key not in self.borders:
            border = border_function(result.shape, dtype, layout, KERNEL)
            self.borders[key] = kernel_code(border, {}, self.threads), border.params
        code, params = self.borders[key]
        self._add_launch(code, params, (self._used(slot),), 0, None)

    def _scheduled(self, kernel: Kernel, elements: Elements | None) -> tuple[PrimFunc, KernelCode]:
        """The kernel's function, scheduled and proved to stay inside, and its code. Steps of a recurrence are equal
        kernels, of which one is enough."""
        key = (function_text(kernel.func), str(sorted(kernel.windows.items()))) if not elements else None
        if key is not None and key in self.scheduled:
            return self.scheduled[key]
        func = kernel.schedule().func
        require_bounds(func, elements)
        result = func, kernel_code(func, kernel.windows, self.threads)
        if key is not None:
            self.scheduled[key] = result
        return result

    def _add_launch(
        self, code: KernelCode, params: tuple[Buffer, ...], slots: tuple[Slot, ...], offset: int,
        workspace: ArenaSlot | None,
    ) -> None:  # fmt: skip
        """``offset``: the byte in the last slot at which the kernel's result starts."""
        self.kernels.setdefault(code.symbol, code)
        layer = len(self.layers)

        def step(locate: Locate) -> Step:
            starts = [0] * (len(slots) - 1) + [offset]
            places = tuple(
                locate(slot, param.shape, param.dtype, start)
                for slot, param, start in zip(slots, params, starts, strict=True)
            )
            space = None if workspace is None else locate(workspace, (), "uint8", 0).offset
            return LaunchStep(code.symbol, places, space, layer)

        self.steps.append(step)

    def _check_indices(self, group: FusedGroup, placement: Placement) -> None:
        """Have the indices of a gather or scatter looked at before it runs: machine code cannot refuse one."""
        for node in group.members:
            indices, sizes = indices_of(node), index_sizes(node)
            if indices is None or isinstance(indices, Constant) or not sizes or (indices, sizes) in self.checked:
                continue
            self.checked.add((indices, sizes))
            self._add_check(node, indices.tensor_type, sizes, self._used(self._plain(indices, placement)))

    def _add_check(self, node: Call, indices: TensorType, sizes: tuple[int, ...], slot: Slot) -> None:
        self.steps.append(lambda locate: CheckStep(_located(locate, slot, indices), sizes, str(node.span)))

    def _numpy(self, group: FusedGroup, placement: Placement) -> None:
        root = group.root
        self._check_indices(group, placement)
        inputs = [(self._plain(value, placement), value.tensor_type) for value in group.inputs]
        params = {value: Var(f"x{number}", value.tensor_type) for number, value in enumerate(group.inputs)}
        if isinstance(root.op, Function):
            raise CompileError("functions must be taken apart first", at=f"function {root.op.name!r}")
        body = graph_call(root.op, *(params.get(arg, arg) for arg in root.args), span=root.span, **root.attrs)
        function = Function(tuple(params.values()), body, Attrs({"name": group.name}), root.span)
        parts: list[tuple[Expr, TensorType]] = [(root, root.type)] if isinstance(root.type, TensorType) else []
        if isinstance(root.type, TupleType):
            parts = [(TupleGet(root, place, root.span), kind) for place, kind in enumerate(root.type.fields)]
        outputs: list[tuple[Slot, TensorType]] = []
        for value, kind in parts:
            outputs.append((self._result(root, kind), kind))
            self.slots[value, PLAIN] = outputs[-1][0]
        for slot, _ in inputs:
            self._used(slot)
        layer = len(self.layers)
        self.steps.append(lambda locate: NumpyStep(
            function, tuple(_located(locate, *each) for each in inputs),
            tuple(_located(locate, *each) for each in outputs), layer,
        ))  # fmt: skip
        self._describe(group, "numpy", "numpy")

    def _result(self, root: Call, kind: TensorType) -> Slot:
        """Where a result of an operator that NumPy runs will be."""
        if kind.dtype == STRING:
            return self._strings_slot()
        return self._allocate(_name(root), kind.size * numpy_dtype(kind.dtype).itemsize)

    def _copy_output(self, result: Expr, number: int, placement: Placement) -> None:
        self._copy(self._plain(result, placement), OutputAt(number), result.tensor_type)

    def _copy(self, source: Slot, target: Slot, kind: TensorType) -> None:
        self._used(source), self._used(target)
        self.steps.append(lambda locate: CopyStep(_located(locate, source, kind), _located(locate, target, kind)))

    # Loops

    def _scan(self, node: Call, placement: Placement) -> None:
        """A loop: the body's kernels once, whose places move from round to round."""
        plan, body, count = scan_plan(node), body_of(node), int(node.attr("steps"))
        sources = [self._plain(value, placement) for value in node.args]
        memories = [self._allocate(_name(node), nbytes) for nbytes in plan.memories]
        for value, source, state in zip(node.args, sources, plan.states, strict=False):
            self._copy(source, _part(memories[state.memory], state.start), value.tensor_type)
        inner = replace(self, module=Module(body, "operators"), slots=Slots(), checked=set())
        for param, source, read in zip(body.params, sources, plan.reads, strict=True):
            slot = source if read.memory == OPERAND else memories[read.memory]
            inner.slots[param, PLAIN] = _part(slot, read.start, read.stride, read.period)
        first, first_layer = len(self.steps), len(self.layers)
        inner._body([(value, _part(memories[to.memory], to.start, to.stride, to.period)) for value, to in plan.writes])
        self.blob_bytes = inner.blob_bytes
        for slot in (*sources, *memories):
            self.arena.use(slot, len(self.steps) - 1)
        self.loops.append(Loop(first, len(self.steps) - 1, count))
        for number, layer in enumerate(self.layers[first_layer:], first_layer):
            self.layers[number] = replace(layer, macs=layer.macs * count, saved_bytes=layer.saved_bytes * count)
        for number, result in enumerate(plan.results):
            self.slots[TupleGet(node, number, node.span), PLAIN] = _part(memories[result.memory], result.start)

    def _body(self, targets: Sequence[tuple[Expr, Slot]]) -> None:
        """The kernels of a loop's body, whose results go to these places."""
        groups = self.target.groups(self.module.main.body)
        placement = place_groups(groups, self.module.main.results, self.target.kinds)
        copies: list[tuple[Expr, Slot]] = []
        for value, slot in targets:
            made_here = value in placement.kernels and placement.layout(value) == PLAIN
            if made_here and (value, PLAIN) not in self.slots:
                self.slots[value, PLAIN] = slot
            else:
                copies.append((value, slot))
        for group in placement.groups:
            self.progress(f"scheduling {group.name}")
            self._group(group, placement)
        for value, slot in copies:
            if isinstance(value, Constant):
                self.slots[value, PLAIN] = self._constant(value.value)
            source = placement.layout(value)
            kernel = converting_kernel(value, source, PLAIN, KERNEL, self.target)
            self._launch(kernel, value, {value: source}, PLAIN, slot=slot)
            name = f"{_name(value)}: carried"
            self.layers.append(Layer(name, value.span.nodes, "convert", self.target.device, "", value.shape, 0))

    # Tensors in the layout that a reader needs

    def _plain(self, value: Expr, placement: Placement) -> Slot:
        if isinstance(value, Constant):
            return self._constant_strings(value) if value.dtype == STRING else self._constant(value.value)
        if (value, PLAIN) not in self.slots:
            self._convert(value, placement.layout(value), PLAIN)
        return self.slots[value, PLAIN]

    def _covering(self, value: Expr, wanted: Layout, placement: Placement) -> Layout:
        """A layout in which ``value`` is there that a reader of ``wanted`` can read; it is made if there is none."""
        for layout in self.slots.of(value):
            if layout.covers(wanted):
                return layout
        self._convert(value, placement.layout(value), wanted)
        return wanted

    def _convert(self, value: Expr, source: Layout, layout: Layout) -> None:
        if _same_memory(value, source) and _same_memory(value, layout):
            self.slots[value, layout] = self.slots[value, source]
            return
        kernel = converting_kernel(value, source, layout, KERNEL, self.target)
        self._launch(kernel, value, {value: source}, layout)
        name = f"{value.span.node or value.span.tensor or 'input'}: layout"
        self.layers.append(Layer(name, value.span.nodes, "convert", self.target.device, "", value.shape, 0))

    # Memory

    def _allocate(self, name: str, nbytes: int) -> ArenaSlot:
        return self.arena.allocate(name, nbytes, len(self.steps))

    def _used(self, slot: Slot) -> Slot:
        """The slot, which the next step uses."""
        self.arena.use(slot, len(self.steps))
        return slot

    def _constant(self, value: Array) -> ConstantAt:
        data = np.ascontiguousarray(value).tobytes()
        key = hashlib.blake2b(data).digest()
        if key not in self.constants:
            self.constants[key] = ConstantAt(self.blob_bytes)
            self.blob.append(data.ljust(aligned(len(data)), b"\0"))
            self.blob_bytes += aligned(len(data))
        return self.constants[key]

    def _constant_strings(self, value: Constant) -> Slot:
        """Strings that are known: they have no bytes among the constants, so a step of NumPy hands them on."""
        if (value, PLAIN) not in self.slots:
            self.slots[value, PLAIN] = slot = self._strings_slot()
            function, layer = Function((), value, Attrs({"name": "strings"}), value.span), len(self.layers)
            self.steps.append(lambda locate: NumpyStep(
                function, (), (_located(locate, slot, value.tensor_type),), layer
            ))  # fmt: skip
            self.layers.append(Layer(value.name or _name(value), value.span.nodes, "numpy", "numpy", value.span.tensor,
                                     value.shape, 0, "strings have no kernels"))  # fmt: skip
        return self.slots[value, PLAIN]

    def _strings_slot(self) -> Slot:
        self.strings += 1
        return StringsAt(self.strings - 1)

    # The whole

    def _describe(self, group: FusedGroup, kind: str, device: LayerDevice, schedule: str = "", form: str = "") -> None:
        operators = tuple(str(node.op) for node in group.members)
        shape = group.root.shape if isinstance(group.root.type, TensorType) else ()
        self.layers.append(Layer(
            group.name, group.span.nodes, kind, device, group.root.span.tensor, shape, _macs(group), group.reason,
            operators, boundaries=group.boundaries, saved_bytes=group.saved_bytes, schedule=schedule,
            form=form,
        ))  # fmt: skip

    def _linked(self) -> HostProgram:
        memory, arena_bytes = self.arena.plan()

        def locate(slot: Slot, shape: tuple[int, ...], dtype: str, byte: int) -> Place:
            match slot:
                case PartOf(whole, first, stride, period):
                    return replace(locate(whole, shape, dtype, first + byte), stride=stride, period=period)
                case ArenaSlot(number):
                    return Place("arena", 0, memory[number].offset + byte, shape, dtype)
                case ConstantAt(offset):
                    return Place("constant", 0, offset + byte, shape, dtype)
                case StringsAt(number):
                    return Place("strings", number, 0, shape, dtype)
                case InputAt(index):
                    return Place("input", index, byte, shape, dtype)
                case OutputAt(index):
                    return Place("output", index, byte, shape, dtype)

        main = self.module.main
        return HostProgram(
            tuple(TensorSpec(param.name, param.type.shape, param.type.dtype) for param in main.params),
            tuple(TensorSpec(name, result.shape, result.dtype)
                  for name, result in zip(main.output_names, main.results, strict=True)),
            tuple(self.kernels.values()), tuple(step(locate) for step in self.steps), tuple(self.layers),
            np.frombuffer(b"".join(self.blob), np.uint8), arena_bytes, memory, self.threads, self.target.processor,
            tuple(self.loops),
        )  # fmt: skip


def _located(locate: Locate, slot: Slot, kind: TensorType) -> Place:
    return locate(slot, kind.shape, kind.dtype, 0)


def _nbytes(value: Expr, layout: Layout) -> int:
    return prod(layout.shape(value.shape)) * numpy_dtype(layout.dtype(element_type(value.dtype))).itemsize


def _part(slot: Slot, byte: int, stride: int = 0, period: int = 0) -> PartOf:
    """The part of a tensor that begins at this byte of it, and moves in a loop."""
    match slot:
        case PartOf(whole, first, moving) if not moving:
            return PartOf(whole, first + byte, stride, period)
        case PartOf():
            raise CompileError("a loop in a loop must be unrolled first")
    return PartOf(slot, byte, stride, period)


def _name(value: Expr) -> str:
    return value.span.tensor or value.span.node or "unnamed"


def _same_memory(value: Expr, layout: Layout) -> bool:
    """Whether a tensor in ``layout`` has its elements in the plain order."""
    if layout.is_plain:
        return True
    if prod(value.shape[2:]) != 1 or layout.halo != NO_HALO or layout.dtype(element_type(value.dtype)) != value.dtype:
        return False
    return value.shape[1] % layout.block == 0


def _work(group: FusedGroup) -> int:
    """How much a kernel computes, roughly; NumPy's work is nobody's to share."""
    if group.root.op == SCAN:
        return _macs(group)
    if group.reason:
        return 0
    elements = prod(group.root.shape) if isinstance(group.root.type, TensorType) else 0
    return _macs(group) + elements * len(group.members)


def _macs(group: FusedGroup) -> int:
    """Useful multiply-accumulates of a group."""
    return sum(entry.macs(node) for node in group.members if (entry := operator_of(node)) is not None)
