"""The kernels of a function on the core. Most functions are one; a concatenation is one a part, and a depthwise
convolution may be split between the two compute engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph.ir import Array, Call, Expr, Function
from ...errors import CompileError
from ..operators.depthwise_mode import in_depthwise_mode
from ..operators.lower import Kernel, copy_kernel, lower_function
from ..operators.moves import entries_of, first_entries
from ..operators.weight_groups import in_records
from ..schedule.tiling import Tiling
from ..walk.emit_move import Move
from . import forms
from .chain_plan import plan_of
from .depthwise_split import Slice, Split, fastest_in_mode, split, split_at
from .phases import function_of, is_packed_concat
from .tuned import Lookup, Setting, Tuned, layer_text

CONCAT = "concat"
"""The kind of a part that copies an operand of a concatenation to its place."""

MOVE = "move"
"""The kind of a part that brings entries into another order."""


@dataclass(frozen=True)
class KernelSlice:
    """A kernel that computes a part of a function's result, or all of it.

    ``inputs``: for each of the kernel's inputs, which operand of the call it is a part of, and the byte at which that
    part begins. ``output_shift``: the byte of the result at which the kernel's output begins. ``turns``: slices that
    may be computed instead, taking turns in the stream. ``tuned``: the setting that was measured, which comes first.
    ``chosen``: the tiling that a pass chose.
    ``move``: what is done instead of the kernel, which then only has the names and shapes.
    """

    kernel: Kernel
    kind: str
    inputs: Mapping[str, tuple[int, int]]
    output_shift: int = 0
    turns: tuple[KernelSlice, ...] = ()
    tuned: Tuned | None = None
    chosen: Tiling | None = None
    move: Move | None = None


def slices_of(
    node: Call, config: CoreConfig, rate: DramRate, threads: int, tuned: Lookup | None = None
) -> list[KernelSlice]:
    """The kernels that compute a call of a packed primitive function. ``tuned``: settings that were measured; a
    depthwise layer takes the form of its own."""
    function = function_of(node)
    if is_packed_concat(node) and isinstance(function.body, Call):
        return [_with_setting(part, tuned) for part in _concat_slices(function, function.body)]
    entries = entries_of(function)
    if entries is not None and isinstance(function.body, Call):
        return [_move_slice(function, function.body, entries)]
    kernel = lower_function(function)
    if kernel.kind == forms.DEPTHWISE:
        found = tuned(layer_text(kernel)) if tuned is not None else None
        parts = form_slices(node, kernel, config, found.setting) if found is not None else None
        if parts is not None:
            return [replace(part, tuned=found) for part in parts]
        return _fastest_form(node, kernel, config, rate, threads)
    plan = plan_of(function)
    if plan is not None:
        measured = Tuned(Setting(plan.tiling, plan.form), plan.cycles, plan.record) if plan.record else None
        return [replace(_whole(node, kernel), tuned=measured, chosen=plan.tiling)]
    return [_with_setting(_whole(node, in_records(kernel, config)), tuned)]


def _fastest_form(node: Call, kernel: Kernel, config: CoreConfig, rate: DramRate, threads: int) -> list[KernelSlice]:
    """A depthwise layer in the form that the estimate prefers."""
    function = function_of(node)
    tapped = fastest_in_mode(config, rate, function, kernel, threads)
    if tapped is not None:
        return [_whole(node, tapped)]
    splits = split(config, rate, function, kernel, threads)
    return _split_slices(node, splits) if splits else [_whole(node, kernel)]


def form_slices(node: Call, kernel: Kernel, config: CoreConfig, setting: Setting) -> list[KernelSlice] | None:
    """The kernels of a depthwise layer (``kernel``: on the vector engine) in the form of a setting; None where the core
    does not have it."""
    function = function_of(node)
    groups = kernel.output.shape[1]
    match setting.form:
        case forms.VECTOR:
            return [_whole(node, kernel)]
        case forms.MODE:
            in_mode = in_depthwise_mode(config, function)
            return [_whole(node, lower_function(in_mode))] if in_mode is not None else None
        case forms.ARRAY if config.block_in == config.block_out:
            return _split_slices(node, split_at(function, kernel, groups))
        case forms.SHARED if config.block_in == config.block_out and 0 < setting.on_array < groups:
            return _split_slices(node, split_at(function, kernel, setting.on_array))
    return None


def form_of(parts: Sequence[KernelSlice]) -> tuple[str, int]:
    """The form that the slices of a depthwise layer are, and if both engines share it the array's channel groups."""
    first = parts[0]
    if first.turns:
        return forms.SHARED, first.turns[-1].kernel.output.shape[1]
    if first.kernel.section.tapped:
        return forms.MODE, 0
    return (forms.VECTOR if first.kernel.kind == forms.DEPTHWISE else forms.ARRAY), 0


def _with_setting(part: KernelSlice, tuned: Lookup | None) -> KernelSlice:
    return replace(part, tuned=tuned(part.kernel.signature)) if tuned is not None else part


def _whole(node: Call, kernel: Kernel) -> KernelSlice:
    """All of a function in one kernel."""
    count = len(function_of(node).params)
    kind = forms.DEPTHWISE if kernel.section.tapped and not kernel.producers else kernel.kind
    return KernelSlice(kernel, kind, {tensor.name: (place, 0) for place, tensor in enumerate(kernel.inputs[:count])})


def _split_slices(node: Call, splits: Sequence[Split]) -> list[KernelSlice]:
    return [
        replace(_part(node, each.whole, forms.DEPTHWISE), turns=tuple(_part(node, part, "") for part in each.slices))
        for each in splits
    ]


def _part(node: Call, part: Slice, kind: str) -> KernelSlice:
    """Some channel groups of a function."""
    kernel = lower_function(part.function)
    inputs = {
        tensor.name: (place, part.shift(arg.shape))
        for place, (tensor, arg) in enumerate(zip(kernel.inputs, node.args, strict=False))
    }
    return KernelSlice(kernel, kind, inputs, part.shift(node.shape))


def _move_slice(function: Function, body: Call, entries: Array) -> KernelSlice:
    operands = [arg.shape for arg in body.args[1:]]
    kernel = copy_kernel(function.name, body.shape, body.attrs["blocks"])
    inputs = {f"{kernel.inputs[0].name}.{number}": (number, 0) for number in range(len(operands))}
    move = Move(entries.astype(np.int32).tobytes(), tuple(first_entries(operands)))
    return KernelSlice(kernel, MOVE, inputs, move=move)


def _concat_slices(function: Function, body: Call) -> Iterator[KernelSlice]:
    """Copies of the operands to their places in the result, one for each batch group."""
    group_bytes = [prod(arg.shape[1:]) for arg in body.args]
    places: dict[Expr, int] = {param: place for place, param in enumerate(function.params)}
    for outer in range(body.shape[0]):
        shift = outer * sum(group_bytes)
        for operand, nbytes in zip(body.args, group_bytes, strict=True):
            if operand not in places:
                raise CompileError("an operand of concat is no parameter", at=f"function {function.name!r}")
            kernel = copy_kernel(function.name, (1, *operand.shape[1:]), body.attrs["blocks"])
            source = (places[operand], outer * nbytes)
            yield KernelSlice(kernel, CONCAT, {kernel.inputs[0].name: source}, shift)
            shift += nbytes
