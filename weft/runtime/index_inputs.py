"""Which inputs of a model are indices, so that random ones can be drawn inside of their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..compiler.graph.dtypes import INTEGERS
from ..compiler.model import CheckStep, CompiledModel, CopyStep, HostStep, LaunchStep, NumpyStep, Place
from ..imports import IMPORTS

if TYPE_CHECKING:
    from ..compiler.graph.ir import Module

IndexSizes = Mapping[str, tuple[int, ...]]
"""For inputs whose elements are indices, by name: the sizes of the axes in which they count, one or one for each number
of the input's last axis."""


COMPUTED = (1,)
"""For an input that indices are computed from: 0 is an index of any axis."""


def index_inputs(model: CompiledModel) -> dict[str, tuple[int, ...]]:
    """The inputs that a model uses as indices, also where it computes on them first."""
    indices: dict[str, tuple[int, ...]] = {}
    for step in reversed(model.steps):
        if isinstance(step, HostStep):
            _follow(step, indices)
    return {tensor.name: indices[tensor.name] for tensor in model.inputs if tensor.name in indices}


def module_indices(module: Module) -> dict[str, tuple[int, ...]]:
    """As `index_inputs`, of a module as it was read."""
    with IMPORTS:
        from ..compiler.graph.ir import Var
        from ..compiler.graph.visit import calls, topological_order
        from ..compiler.operators.index import index_sizes, indices_of

    indices: dict[str, tuple[int, ...]] = {}
    for node in calls(module.main.body):
        operand, sizes = indices_of(node), index_sizes(node)
        for source in topological_order(operand) if operand is not None and sizes else ():
            if isinstance(source, Var) and source.dtype in INTEGERS:
                _add(indices, source.name, sizes if source is operand else COMPUTED)
    return indices


def _add(indices: dict[str, tuple[int, ...]], name: str, sizes: tuple[int, ...]) -> None:
    """Of several sizes the smallest decides."""
    before = indices.get(name, sizes)
    same = len(before) == len(sizes)
    indices[name] = tuple(map(min, before, sizes)) if same else (min(*before, *sizes),)


def _follow(step: HostStep, indices: dict[str, tuple[int, ...]]) -> None:
    """Go from each check of a step's program back to the program's inputs that decide what is checked. ``indices``: the
    values that are indices, by name; those that the step makes are there already."""
    wanted: list[tuple[Place, tuple[int, ...]]] = [
        (Place("output", number, 0, tensor.shape, tensor.dtype), indices[name])
        for number, (name, tensor) in enumerate(zip(step.outputs, step.program.outputs, strict=True))
        if name in indices
    ]
    for each in reversed([each for _, each in step.program.steps_in_turn()]):
        if isinstance(each, CheckStep):
            wanted.append((each.indices, each.sizes))
            continue
        written, read = _traffic(each)
        hit = [entry for entry in wanted if any(_overlap(entry[0], place) for place in written)]
        wanted = [entry for entry in wanted if entry not in hit]
        if hit:
            wanted += [(place, COMPUTED) for place in read if place.dtype in INTEGERS]
    for place, sizes in wanted:
        if place.kind == "input":
            _add(indices, step.inputs[place.number], sizes)


def _traffic(step: LaunchStep | NumpyStep | CopyStep) -> tuple[Sequence[Place], Sequence[Place]]:
    """What a step writes, and what it reads."""
    match step:
        case LaunchStep(arguments=arguments):
            return arguments[-1:], arguments[:-1]
        case NumpyStep(inputs=inputs, outputs=outputs):
            return outputs, inputs
        case CopyStep(source, target):
            return (target,), (source,)


def _overlap(a: Place, b: Place) -> bool:
    same = (a.kind, a.number) == (b.kind, b.number)
    return same and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
