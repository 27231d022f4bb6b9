"""The kernels of a function on the core. Most functions are one; a concatenation is one a part, and a depthwise
convolution may be split between the two compute engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from ....hw.config import CoreConfig
from ....hw.dram_rate import DramRate
from ...graph.ir import Call, Function, Var
from ..errors import CompileError
from .depthwise_split import Slice, fastest_in_mode, split
from .lower import Kernel, copy_kernel, lower_function
from .phases import function_of


@dataclass(frozen=True)
class KernelSlice:
    """A kernel that computes a part of a function's result, or all of it.

    ``inputs``: for each of the kernel's inputs, which operand of the call it is a part of, and the byte at which that
    part begins. ``output_shift``: the byte of the result at which the kernel's output begins. ``turns``: slices that
    may be computed instead, taking turns in the stream.
    """

    kernel: Kernel
    kind: str
    inputs: Mapping[str, tuple[int, int]]
    output_shift: int = 0
    turns: tuple[KernelSlice, ...] = ()


def slices_of(node: Call, config: CoreConfig, rate: DramRate, threads: int) -> list[KernelSlice]:
    """The kernels that compute a call of a packed primitive function."""
    function = function_of(node)
    if isinstance(function.body, Call) and function.body.op == "packed_concat":
        return list(_concat_slices(function, function.body))
    kernel = lower_function(function)
    inputs = {tensor.name: (place, 0) for place, tensor in enumerate(kernel.inputs[: len(function.params)])}
    tapped = fastest_in_mode(config, rate, function, kernel, threads)
    if tapped is not None:
        return [KernelSlice(tapped, kernel.kind, inputs)]
    splits = split(config, rate, function, kernel, threads)
    if splits:
        return [
            replace(_part(node, each.whole, kernel.kind), turns=tuple(_part(node, part, "") for part in each.slices))
            for each in splits
        ]
    return [KernelSlice(kernel, kernel.kind, inputs)]


def _part(node: Call, part: Slice, kind: str) -> KernelSlice:
    """Some channel groups of a function."""
    kernel = lower_function(part.function)
    inputs = {
        tensor.name: (place, part.shift(arg.shape))
        for place, (tensor, arg) in enumerate(zip(kernel.inputs, node.args, strict=False))
    }
    return KernelSlice(kernel, kind, inputs, part.shift(node.shape))


def _concat_slices(function: Function, body: Call) -> Iterator[KernelSlice]:
    """Copies of the operands to their places in the result, one for each batch group."""
    group_bytes = [prod(arg.shape[1:]) for arg in body.args]
    for outer in range(body.shape[0]):
        shift = outer * sum(group_bytes)
        for operand, nbytes in zip(body.args, group_bytes, strict=True):
            if not isinstance(operand, Var) or operand not in function.params:
                raise CompileError("an operand of concat is no parameter", at=f"function {function.name!r}")
            kernel = copy_kernel(function.name, (1, *operand.shape[1:]), body.attrs["blocks"])
            source = (function.params.index(operand), outer * nbytes)
            yield KernelSlice(kernel, "concat", {kernel.inputs[0].name: source}, shift)
            shift += nbytes
