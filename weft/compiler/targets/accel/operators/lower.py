"""Packed primitive functions as tensor expressions, through the ``lower`` of each operator's entry (`operators`,
`window_operators`), and what a schedule has to know of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from .....hw.dram_rate import USUAL_RATE
from .....hw.isa import TAP_COLUMNS, TAP_ROWS, VectorOp
from .... import tensor as te
from ....graph.ir import Array, Call, Constant, Expr, Function, Var
from ....graph.registry import Family, operator_of
from ....graph.visit import calls, topological_order
from ....operators.lowering import lower_call
from ....tensor import ir as tir
from ....tensor.ir import PrimFunc
from ....tensor.printer import function_text
from ....tensor.schedule import Schedule, Trace, create_schedule
from ....tensor.view import Builder, NotLoweredError, View
from ...errors import CompileError
from .builder import Accumulated, Formula, PackedBuilder, Window
from .empty_matrices import Kept, Mask
from .filled_parameters import Filled
from .operators import AS_PIXEL, packed_form, plain_form
from .packed_layout import Blocks, blocks_of, matrix_pitch
from .share import WHOLE, Share


@dataclass(frozen=True)
class Stages:
    """Names of the stages of a kernel by what they are, which is all that a schedule rule looks at.

    ``data``: the anchor's padded input. ``widened``: other activations from DRAM as int32. ``weights``: widened weights
    from DRAM. ``reduce``: the anchor's reduction. ``vector``: arithmetic in the accumulator layout in the order of
    execution, the last of which narrows. ``in_place``: of these, (stage, tensor to overwrite). ``parameters``:
    (stage, packed tensor that it reads from DRAM). ``tables``: (copy of a table as int32, the table). ``output`` copies
    to DRAM; empty where the result stays on the core. Without an anchor its names are empty.
    """

    data: str
    widened: tuple[str, ...]
    weights: str
    reduce: str
    vector: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, str], ...]
    output: str
    tables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """One layer of a kernel: its anchor, if it has one, with what stands before and behind it.

    ``kind``: of the anchor, or "elementwise". ``output``: the packed shape of its result. ``window``: of the anchor, in
    the coordinates of its padded input. ``input_groups``: that the anchor's reduction runs over; 0 where each output
    group reads only its own input group. ``tapped``: the array takes nine taps of a channel at a time, in its depthwise
    mode. ``own_matrices``: each image has weights of its own, which are computed. ``repeated``:
    stages that have one entry for several of the result, with the axes ("cd", "y", "x") along which they have.
    ``anchor_repeated``: such axes of the anchor.
    ``shared``: parameters that all channel groups share, so that they are loaded once.
    ``kept``: which matrices of the weights are multiplied, if not all. ``records``: matrices of a record of 4-bit
    weights, which are loaded together (``weight_groups.py``); 0 where weights have 8 bits. ``filled``: parameters of
    which an entry may be filled in, not read.
    """

    kind: str
    stages: Stages
    output: tuple[int, ...]
    window: Window | None = None
    input_groups: int = 0
    tapped: bool = False
    own_matrices: bool = False
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    anchor_repeated: tuple[str, ...] = ()
    kept: Kept | None = None
    records: int = 0
    shared: tuple[str, ...] = ()
    filled: tuple[tuple[str, Filled], ...] = ()

    @cached_property
    def parameters(self) -> int:
        """Accumulator entries of the parameters of each channel group's requantises."""
        return VectorOp.REQUANTISE.b_entries * sum(name not in self.shared for _, name in self._of_requantises)

    @cached_property
    def shared_parameters(self) -> int:
        """Accumulator entries of parameters that all channel groups share."""
        return VectorOp.REQUANTISE.b_entries * sum(name in self.shared for _, name in self._of_requantises)

    @property
    def filled_parameters(self) -> int:
        """Of :attr:`parameters`, those that loads may fill in."""
        return len(self.filled)

    @property
    def _of_requantises(self) -> list[tuple[str, str]]:
        return [(stage, name) for stage, name in self.stages.parameters if stage != self.stages.reduce]

    @cached_property
    def taps(self) -> int:
        """Weights of a channel, or matrices of a channel group, that make one output; in the depthwise mode, matrices
        of nine taps."""
        if self.window is None:
            return 1
        height, width = self.window.kernel
        return (height // TAP_ROWS) * (width // TAP_COLUMNS) if self.tapped else height * width

    @property
    def kept_share(self) -> float:
        """The share of the weights' matrices that are multiplied."""
        return self.kept.share if self.kept is not None else 1.0

    @cached_property
    def matrix_weights(self) -> str:
        """The packed tensor of weights that the anchor's reduction multiplies entries with, as matrices; or empty."""
        return next((name for stage, name in self.stages.parameters if stage == self.stages.reduce), "")


@dataclass(frozen=True)
class Kernel:
    """A fused function as tensor expressions. ``inputs`` are the function's parameters, then its constants.

    ``section`` makes its result. A chain has ``producers`` too, the first layer first: the last vector stage of each is
    the ``data`` of the next one. ``share``: what is computed of the result; ``output`` and ``section`` are of it all.
    """

    name: str
    inputs: tuple[te.Tensor, ...]
    constants: tuple[tuple[te.Tensor, Array], ...]
    output: te.Tensor
    section: Section
    blocks: Blocks
    producers: tuple[Section, ...] = ()
    share: Share = WHOLE

    @cached_property
    def signature(self) -> str:
        """What tilings and cycles depend on: shapes, the window, the stages, and which weights are left out; not names,
        other constants, nor scales or zero points."""
        names = {tensor.name: f"in{number}" for number, tensor in enumerate(self.inputs)}

        def renamed(value: Any) -> Any:
            if isinstance(value, str):
                return names.get(value) or names.get(value.removesuffix("_wide"), value)
            return [renamed(each) for each in value]

        def layer(section: Section) -> dict[str, Any]:
            return {
                "stages": {name: renamed(value) for name, value in asdict(section.stages).items()},
                "window": asdict(section.window) if section.window is not None else None,
                "input_groups": section.input_groups,
                **({"tapped": True} if section.tapped else {}),
                **({"own_matrices": True} if section.own_matrices else {}),
                **({"repeated": section.repeated} if section.repeated else {}),
                **({"kept": section.kept.digest} if section.kept is not None else {}),
                **({"records": section.records} if section.records else {}),
                **({"filled": [[names[name], each.first] for name, each in section.filled]} if section.filled else {}),
            }

        described = {
            "kind": self.kind,
            "blocks": asdict(self.blocks),
            "inputs": [[list(tensor.shape), tensor.dtype] for tensor in self.inputs],
            "output": list(self.output.shape),
            **layer(self.section),
            **({"producers": [layer(each) for each in self.producers]} if self.producers else {}),
            **({"share": self.share.parts} if not self.share.is_whole else {}),
        }
        return json.dumps(described, sort_keys=True, separators=(",", ":"))

    @cached_property
    def unscheduled(self) -> Schedule:
        """The kernel's function before any step of a schedule; whoever schedules it takes a copy."""
        return create_schedule(self.output, self.inputs, self.name)

    @cached_property
    def schedules(self) -> dict[object, tuple[PrimFunc, Trace]]:
        """What it was scheduled to already, by core and tiling: passes hand it on to the linker with the kernel."""
        return {}

    @cached_property
    def text(self) -> str:
        """What the kernel computes, as text: all but its name and the values of constants."""
        return function_text(replace(self.unscheduled.func, name=""))

    def shared(self, share: Share) -> Kernel:
        """The kernel of which only a share is computed. What does not depend on that is worked out once."""
        made = replace(self, share=share)
        made.__dict__.update(unscheduled=self.unscheduled, text=self.text, schedules=self.schedules)
        return made

    @property
    def kind(self) -> str:
        """Of the anchor, or "chain"."""
        return "chain" if self.producers else self.section.kind

    @property
    def sections(self) -> tuple[Section, ...]:
        """All layers, the first one first."""
        return (*self.producers, self.section)

    def kept_of(self, name: str) -> Mask | None:
        """Which matrices of a packed tensor are loaded and multiplied, one after another; None: all."""
        kept = next((each.kept for each in self.sections if each.matrix_weights == name), None)
        return None if kept is None else kept.mask.ravel()

    def pitch_of(self, name: str) -> int:
        """How many entries the matrices of a packed tensor are apart in DRAM."""
        return matrix_pitch(self.blocks) if any(each.matrix_weights == name for each in self.sections) else 1

    def records_of(self, name: str) -> int:
        """How many matrices of a packed tensor are a record of 4 bits in DRAM; 0: they have 8 bits."""
        return next((each.records for each in self.sections if each.matrix_weights == name), 0)

    def filled_of(self, name: str) -> Filled | None:
        """The entry of a packed tensor of parameters that a load may fill in; None: all are read."""
        return next((filled for each in self.sections for named, filled in each.filled if named == name), None)

    @property
    def stages(self) -> Stages:
        return self.section.stages

    @property
    def window(self) -> Window | None:
        return self.section.window

    @property
    def input_groups(self) -> int:
        return self.section.input_groups

    @property
    def matrix_weights(self) -> str:
        return self.section.matrix_weights


def is_chain(function: Function) -> bool:
    """Whether a primitive function calls others, the layers of a chain, instead of operators."""
    return isinstance(function.body, Call) and isinstance(function.body.op, Function)


def lower_function(function: Function) -> Kernel:
    """The tensor expressions of a packed primitive function whose result is one int8 tensor; once for functions that
    differ in nothing but attributes.

    Raises CompileError naming the operator that has no compute rule.
    """
    lowered = _LOWERED.setdefault(function.body, {})
    own = function.name, function.params
    if own not in lowered:
        lowered[own] = _Lowering(function).run()
    return lowered[own]


_LOWERED: WeakKeyDictionary[Expr, dict[tuple[str, tuple[Var, ...]], Kernel]] = WeakKeyDictionary()
"""Kernels of functions that are still in use, by body: passes and the linker ask for the same ones, and attributes that
passes give a function are no part of what it computes."""


@dataclass
class _Lowering:
    """The tensor expressions of one function, layer by layer. Names and links are shared by all layers."""

    function: Function
    taken: set[str] = field(default_factory=set)
    links: dict[str, Formula] = field(default_factory=dict)
    constants: list[tuple[te.Tensor, Array]] = field(default_factory=list)

    def run(self) -> Kernel:
        function = self.function
        matrices = [node.args[1] for node in calls(function.body) if node.op == packed_form("product")]
        pixels = {node.args[0]: node for node in calls(function.body) if node.op == AS_PIXEL}
        params = [
            self._matrices(param) if param in matrices
            else self._pixel(param, pixels[param]) if param in pixels
            else self._placeholder(param, param.name)
            for param in function.params
        ]  # fmt: skip
        if not is_chain(function):
            output, section = self._layer(function, params, stays=False)
            return self._kernel(params, [section], output)
        values: dict[Expr, te.Tensor] = dict(zip(function.params, params, strict=True))
        sections = []
        for node in topological_order(function.body):
            if isinstance(node, Call) and isinstance(node.op, Function):
                operands = [values[arg] for arg in node.args]
                values[node], section = self._layer(node.op, operands, stays=node is not function.body)
                sections.append(section)
        return self._kernel(params, sections, values[function.body])

    def _kernel(self, params: list[te.Tensor], sections: list[Section], output: te.Tensor) -> Kernel:
        inputs = (*params, *(tensor for tensor, _ in self.constants))
        *producers, last = sections
        blocks = self._builder(self.function).blocks
        return Kernel(self.function.name, inputs, tuple(self.constants), output, last, blocks, tuple(producers))

    def _placeholder(self, node: Var | Constant, wish: str) -> te.Tensor:
        return te.placeholder(node.shape, _dtype(node), Builder(_taken=self.taken).name(wish))

    def _matrices(self, node: Var) -> te.Tensor:
        """An activation (N, C groups, outputs, 1, 1, 1, block_in) as the matrices that its bytes are."""
        images, groups, outputs, *_, block = node.shape
        wish = Builder(_taken=self.taken).name(node.name)
        return te.placeholder((images, groups, outputs // block, block, block), _dtype(node), wish)

    def _pixel(self, node: Var, read: Call) -> te.Tensor:
        """An activation as the one pixel that its bytes are read as."""
        return te.placeholder(read.shape, _dtype(node), Builder(_taken=self.taken).name(node.name))

    def _builder(self, function: Function) -> PackedBuilder:
        first = next((node for node in topological_order(function.body) if isinstance(node, Call)), None)
        if first is None:
            raise CompileError("it computes nothing", at=f"function {function.name!r}")
        if isinstance(first.op, Function):
            return self._builder(first.op)
        return PackedBuilder(blocks=blocks_of(first.attrs["blocks"]), links=self.links, _taken=self.taken)

    def _layer(self, function: Function, operands: list[te.Tensor], *, stays: bool) -> tuple[te.Tensor, Section]:
        """A layer's result, and what it consists of. With ``stays`` the result is a link, else it is in DRAM."""
        place = f"function {function.name!r}"
        builder = self._builder(function)
        values: dict[Expr, te.Tensor] = dict(zip(function.params, operands, strict=True))
        order = topological_order(function.body)
        last_reader = {arg: node for node in order for arg in node.children}
        for node in order:
            if node in values and not isinstance(node, Constant):  # each reader has constants of its own
                continue  # a parameter, or computed before by an equal node
            match node:
                case Var():
                    raise CompileError(f"variable {node.name!r} is no parameter", at=place)
                case Constant():
                    values[node] = self._placeholder(node, f"constant{len(self.constants)}")
                    self.constants.append((values[node], node.value))
                case Call():
                    builder.narrow = node is function.body
                    builder.stays = stays and builder.narrow
                    builder.ending = frozenset(values[arg].name for arg in node.args if last_reader[arg] is node)
                    values[node] = _lowered(builder, node, tuple(values[arg] for arg in node.args), place)
        result = values[function.body]
        if stays and result.name not in self.links:
            raise CompileError("its result cannot stay on the core: no requantise makes it", at=place)
        if result.dtype != "int8":
            result = _narrowed(builder, builder.in_accumulator(result))
        output = result if stays else _stored(builder, result)
        stages = Stages(
            builder.data, tuple(builder.widened), builder.weights, builder.reduce, tuple(builder.vector),
            tuple(builder.in_place), tuple(builder.parameters), "" if stays else output.name, tuple(builder.tables),
        )  # fmt: skip
        kind = plain_form(str(builder.anchor.op)) if builder.anchor is not None else "elementwise"
        reads = 0 if builder.anchor is None or builder.data in self.links else prod(builder.anchor.args[0].shape)
        return output, Section(
            kind,
            stages,
            output.shape,
            builder.window,
            builder.input_groups,
            builder.tapped,
            builder.own_matrices,
            builder.repeated(builder.accumulator_shape(result.shape)),
            builder.anchor_repeated(builder.accumulator_shape(result.shape)),
            self._kept(builder, output.shape, reads + (0 if stays else prod(output.shape))),
            shared=tuple(builder.shared),
            filled=tuple(self._filled(builder)),
        )

    def _filled(self, builder: PackedBuilder) -> Iterator[tuple[str, Filled]]:
        """The constant parameters of requantises of which an entry is one number, but for those that all groups share:
        they are loaded once."""
        of_requantises = {name for stage, name in builder.parameters if stage != builder.reduce} - {*builder.shared}
        for tensor, value in self.constants:
            filled = Filled.of(value) if tensor.name in of_requantises else None
            if filled is not None:
                yield tensor.name, filled

    def _kept(self, builder: PackedBuilder, output: tuple[int, ...], moved: int) -> Kept | None:
        """Which matrices of a layer's constant weights are multiplied, if it pays to leave out the others. ``moved``:
        bytes of activations from and to DRAM."""
        weights = {name for stage, name in builder.parameters if stage == builder.reduce}
        value = next((value for tensor, value in self.constants if tensor.name in weights), None)
        if value is None:
            return None
        kept, rate = Kept.of(value), USUAL_RATE.bytes_per_cycle
        pixels = output[0] * output[2] * output[3]
        return kept if kept.saves(pixels, prod(value.shape[-2:]) / rate, moved / rate) else None


def copy_kernel(name: str, shape: tuple[int, ...], blocks: object) -> Kernel:
    """Copies an activation of packed ``shape`` through the core, as it is."""
    builder = PackedBuilder(blocks=blocks_of(blocks))
    source = te.placeholder(shape, "int8", builder.name("x0"))
    output = _stored(builder, _narrowed(builder, builder.in_accumulator(source)))
    stages = Stages("", tuple(builder.widened), "", "", tuple(builder.vector), (), (), output.name)
    return Kernel(name, (source,), (), output, Section("elementwise", stages, output.shape), builder.blocks)


def _dtype(node: Expr) -> tir.DType:
    if node.dtype == "int8":
        return "int8"
    if node.dtype == "int32":
        return "int32"
    raise CompileError(f"a packed tensor is int8 or int32, not {node.dtype}")


def _lowered(builder: PackedBuilder, node: Call, operands: tuple[te.Tensor, ...], place: str) -> te.Tensor:
    """The result of a packed operator."""
    entry, reason = operator_of(node), "only packed operators do"
    if entry is not None and entry.family is Family.PACKED:
        try:
            result = lower_call(builder, node, tuple(View.of(tensor) for tensor in operands)).tensor
        except NotLoweredError as error:
            reason = error.message
        else:
            if result is not None:
                return result
            reason = "its result is not a stage"
    raise CompileError(f"operator {node.op!r} cannot run on the accelerator: {reason}", at=place)


def _narrowed(builder: PackedBuilder, wide: Accumulated) -> te.Tensor:
    return builder.stage(wide.shape, wide.__getitem__, "narrow", narrow=True)


def _stored(builder: PackedBuilder, narrow: te.Tensor) -> te.Tensor:
    """The copy of the narrowed result to DRAM."""

    def read(no: tir.Expr, cd: tir.Expr, y: tir.Expr, x: tir.Expr, r: tir.Expr, n: tir.Expr, s: tir.Expr) -> tir.Expr:
        return narrow[(no, cd, y, x, r, n, s)]

    return te.compute(narrow.shape, read, builder.name("output"))
