"""A window whose taps lie far apart becomes a dense one on pictures of every ``dilation``-th row or column.

A tile holds all that its window spans, also what lies between the taps: 73 x 73 pixels for the nine taps of a 3 x 3
kernel dilated by 36, as DeepLab has it, which no scratchpad of a small core takes. A dilation of ``d`` never lets a row
meet one whose number has another remainder by ``d``. So the rows are sorted by remainder into ``d`` pictures, each of
which meets the kernel without gaps, and the rows of the results are sorted back. Columns likewise.

Sorting costs the host a step before the layer and one behind it, and the last picture may be filled up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph import Call, Expr, Function, Module, Span, Var, call, calls, operator_of
from ....graph.host import HOST_STEP, host_call, renumber
from ....graph.visit import rewrite, substitute
from ....passes.manager import Pass
from ..cost.tile_costs import estimates, tilings
from ..operators.lower import lower_function
from ..operators.packed_layout import Blocks, is_packable
from ..schedule.tiling import Problem
from .fit_scratchpads import why_not_kernel
from .pack_layout import pack_function

LEAST_SPEEDUP = 1.25
"""The layer has to become this many times faster, sorting included: that costs the host time and memory."""

HOST_BYTES = 4
"""Bytes that the host moves in a cycle of the core: 400 MB a second at 100 MHz."""

LEAST_VALUE = -128.0
"""What the largest of a window is never more than."""

_CUTS = "takes away what filled up the pictures that a dilated window met"


def dilation_phases(core: CoreConfig, rate: DramRate) -> Pass:
    """The pass for a core and its memory."""
    return Pass("dilation-phases", lambda module: _run(module, core, rate), needs=("fuse",), about=__doc__ or "")


@dataclass(frozen=True)
class _Phases:
    """Pictures that the rows and the columns of one are sorted into; 1: they stay."""

    rows: int
    columns: int

    @property
    def count(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class _Layer:
    """A primitive function with a dilated window of stride 1: its ``anchor``, and the values it is called with."""

    node: Call
    function: Function
    anchor: Call

    @property
    def kernel(self) -> tuple[int, int]:
        rows, columns = self.anchor.attr("kernel") if _has(self.anchor, "kernel") else self.anchor.args[1].shape[2:]
        return rows, columns

    @property
    def macs(self) -> int:
        """Its work: what fills up the last of sorted pictures is none."""
        entry = operator_of(self.anchor)
        return entry.macs(self.anchor) if entry is not None else 0

    def choices(self) -> list[_Phases]:
        axes = []
        for step, dilation, taps in zip(
            self.anchor.attr("strides"), self.anchor.attr("dilations"), self.kernel, strict=True
        ):
            axes.append((1, dilation) if step == 1 and dilation > 1 and taps > 1 else (1,))
        return [_Phases(rows, columns) for rows, columns in product(*axes) if rows * columns > 1]


def _run(module: Module, core: CoreConfig, rate: DramRate) -> Module:
    def rule(node: Call) -> Expr | None:
        layer = _layer(node)
        phases = _best(layer, core, rate) if layer is not None else None
        return _sorted_layer(layer, phases) if layer is not None and phases is not None else None

    body = rewrite(module.main.body, rule)
    return module if body is module.main.body else module.with_main(renumber(body))


def _layer(node: Call) -> _Layer | None:
    """A dilated layer, if what it reads beside the window's pictures are pictures of its result's size."""
    function = node.op
    if not isinstance(function, Function) or not function.is_primitive:
        return None
    if not all(is_packable(value.tensor_type) and len(value.shape) == 4 for value in (*node.args, node)):
        return None
    anchors = [each for each in calls(function.body) if _has(each, "dilations")]
    if len(anchors) != 1 or not isinstance(anchors[0].args[0], Var):
        return None
    (anchor,) = anchors
    data = anchor.args[0]
    readers = [each for each in calls(function.body) if data in each.args]
    others = [each for each in function.params if each is not data]
    like = anchor.shape[:1], anchor.shape[2:]
    if readers != [anchor] or any((each.shape[:1], each.shape[2:]) != like for each in others):
        return None
    return _Layer(node, function, anchor)


def _has(node: Call, attribute: str) -> bool:
    entry = operator_of(node)
    return entry is not None and attribute in entry.defaults


def _best(layer: _Layer, core: CoreConfig, rate: DramRate) -> _Phases | None:
    """The fastest way to sort; None where the layer is best left as it is."""
    choices = layer.choices()
    if not choices:
        return None
    moved = sum(value.tensor_type.size for value in (*layer.node.args, layer.node))
    sorting = 2 * HOST_STEP + moved / HOST_BYTES
    plain = _cycles(layer.function, core, rate)
    if plain < LEAST_SPEEDUP * (layer.macs / core.macs_per_cycle + sorting):
        return None
    costs = {phases: _cycles(_dense(layer, phases), core, rate) + sorting for phases in choices}
    best = min(costs, key=lambda phases: (costs[phases], phases.count))
    return best if math.isfinite(costs[best]) and plain >= LEAST_SPEEDUP * costs[best] else None


def _cycles(function: Function, core: CoreConfig, rate: DramRate) -> float:
    """What the cheapest tiling of a layer takes, roughly; infinite where none fits."""
    kernel = lower_function(pack_function(function, Blocks.of(core)))
    if why_not_kernel(kernel, core):
        return math.inf
    problem = Problem(core, kernel, 1, rate=rate)
    return float(min(estimates(problem, tilings(problem)), default=math.inf))


def _dense(layer: _Layer, phases: _Phases) -> Function:
    """The layer's function on sorted pictures."""
    anchor = layer.anchor
    params = tuple(
        Var(param.name, _sort(param, param is anchor.args[0], layer, phases).tensor_type, param.span)
        for param in layer.function.params
    )
    values: dict[Expr, Expr] = dict(zip(layer.function.params, params, strict=True))
    top, left, bottom, right = anchor.attr("pads")
    dilations = anchor.attr("dilations")
    rows, columns = phases.rows > 1, phases.columns > 1
    attrs = anchor.attrs.replace(
        pads=(0 if rows else top, 0 if columns else left, 0 if rows else bottom, 0 if columns else right),
        dilations=(1 if rows else dilations[0], 1 if columns else dilations[1]),
    )
    dense = call(anchor.op, values[anchor.args[0]], *anchor.args[1:], span=anchor.span, **attrs)
    named = layer.function.attrs
    body = substitute(layer.function.body, {**values, anchor: dense})
    return Function(params, body, named.replace(macs=named.get("macs", layer.macs)))


def _sorted_layer(layer: _Layer, phases: _Phases) -> Expr:
    data = layer.anchor.args[0]
    args = [
        _sort(value, param is data, layer, phases)
        for value, param in zip(layer.node.args, layer.function.params, strict=True)
    ]
    made = call(_dense(layer, phases), *args, span=layer.node.span)
    return _sort_back(made, layer.node.shape, phases)


def _sort(value: Expr, is_data: bool, layer: _Layer, phases: _Phases) -> Expr:
    """Pictures ``(N, C, H, W)`` as ``(N * phases, C, ceil(H / rows), ceil(W / columns))``. What the window reads is
    filled up as the window does it, and as far as its last results need it."""
    anchor = layer.anchor
    value_shape, counts = value.shape, (phases.rows, phases.columns)
    before, after, sizes = [0, 0], [0, 0], [0, 0]
    for axis, count in enumerate(counts):
        size, taps, dilation = value_shape[2 + axis], layer.kernel[axis], anchor.attr("dilations")[axis]
        sizes[axis] = size
        if count == 1:
            continue
        made = -(-anchor.shape[2 + axis] // count)
        sizes[axis] = count * (made + (taps - 1) * (dilation // count) if is_data else made)
        before[axis] = anchor.attr("pads")[axis] if is_data else 0
        after[axis] = sizes[axis] - size - before[axis]
    span = Span(value.span.nodes)
    if any((*before, *after)):
        filling = float(anchor.attr("pad_value")) if _has(anchor, "pad_value") else LEAST_VALUE
        value = call("pad", value, pads=(*before, *after), value=filling, span=span)
    outer, channels = value_shape[:2]
    height, width = (size // count for size, count in zip(sizes, counts, strict=True))
    apart = call("reshape", value, shape=(outer, channels, height, phases.rows, width, phases.columns), span=span)
    turned = call("transpose", apart, perm=(0, 3, 5, 1, 2, 4), span=span)
    return call("reshape", turned, shape=(outer * phases.count, channels, height, width), span=span)


def _sort_back(value: Expr, shape: Sequence[int], phases: _Phases) -> Expr:
    outer, channels = shape[:2]
    height, width = value.shape[2:]
    span = Span(value.span.nodes)
    apart = call("reshape", value, shape=(outer, phases.rows, phases.columns, channels, height, width), span=span)
    turned = call("transpose", apart, perm=(0, 3, 4, 1, 5, 2), span=span)
    whole = (outer, channels, height * phases.rows, width * phases.columns)
    picture = call("reshape", turned, shape=whole, span=span)
    if whole == tuple(shape):
        return picture
    part = {"starts": (0,) * 4, "sizes": tuple(shape), "steps": (1,) * 4}
    return host_call("slice", (picture,), part, _CUTS, span)
