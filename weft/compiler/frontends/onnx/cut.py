"""Models with results whose size, or course, depends on the values of a run, such as the post-processing of detectors:
they are cut before the first operator of that kind. What stands before it is compiled as any model; what depends on it
is read anew in every run, with the values of that run for constants, and computed by NumPy's meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import onnx
from onnx import helper, numpy_helper

from ...graph import Array, Constant, TensorType, evaluate
from ...graph.tail import Tail
from ..errors import ModelError, NeedsValueError
from .litert_tail import OPERATOR as LITERT_TAIL
from .reader import captured, from_onnx, load_model, tensor_types, values_of
from .types import element_type

OF_OPEN_SIZE = ("NonZero", "Unique", "NonMaxSuppression", "Compress", LITERT_TAIL)
"""Operators whose results have as many elements as the values of their operands say."""

Made = TypeVar("Made")
Causes = Mapping[int, NeedsValueError]
"""The nodes before which a model is cut, by their number, and what reading them said."""


class Finish:
    """What a tail does in a run. ModelError for a tail that cannot be read."""

    def __init__(self, tail: Tail) -> None:
        self._inputs, self._model = tail.inputs, load_model(tail.model)

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The results for these values of its inputs. ModelError for what the standard does not allow with them."""
        given = {name: values[name] for name in self._inputs}
        module = from_onnx(self._model, values=given, require_quantised=False, largest_results=False)
        return dict(evaluate(module, {}))


def cut(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], error: NeedsValueError
) -> tuple[onnx.ModelProto, Tail]:
    """The part of ``model`` that is compiled, which gives all that the tail takes, and the tail. ``error``: what a
    reading of the whole said; it is raised again where the model cannot be cut."""
    named = _with_names(model)
    return _divided(named, error, lambda behind, causes: _parts(named, shapes, behind, causes))


def types_before(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], error: NeedsValueError
) -> dict[str, TensorType]:
    """The types of the tensors that `cut` leaves in the compiled part. Raises ``error`` as it does."""
    named = _with_names(model)

    def types(behind: set[int], causes: Causes) -> dict[str, TensorType]:
        before = [node for number, node in enumerate(named.graph.node) if number not in behind]
        made = {name for number in behind for name in named.graph.node[number].output}
        kept = [each for each in named.graph.output if each.name not in made]
        return tensor_types(_with(named, before, kept), shapes)

    return _divided(named, error, types)


def _divided(
    model: onnx.ModelProto, error: NeedsValueError, attempt: Callable[[set[int], Causes], Made]
) -> Made:  # fmt: skip
    """What ``attempt`` makes of the nodes that are not compiled; as long as it needs another value, these become more.
    The last error where it is none that the values of a run answer."""
    causes: dict[int, NeedsValueError] = {}
    while True:
        found = dict.fromkeys(_nodes_of(model.graph, error), error)
        if not found.keys() - causes.keys() or not (_is_of_open_size(error) or error.is_of_floats):
            raise error
        causes |= found
        try:
            return attempt(_behind(model.graph, set(causes)), causes)
        except NeedsValueError as other:
            error = other


def _is_of_open_size(error: NeedsValueError) -> bool:
    return error.operator in OF_OPEN_SIZE


def _nodes_of(graph: onnx.GraphProto, error: NeedsValueError) -> list[int]:
    """The nodes of the model that stand for the one that needs a value, which may be in a subgraph of theirs."""
    (place,) = error.span.nodes[:1] or ("",)
    around = {place[:end] for end, letter in enumerate(place) if letter == "/"} | {place}
    found = [(len(node.name), number) for number, node in enumerate(graph.node) if node.name in around]
    longest = max(found, default=(0, 0))[0]
    return [number for length, number in found if length == longest]


def _with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the names that nodes without one have for a reader: they follow from places, which parts of the
    model do not keep."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for number, node in enumerate(made.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return made


def _behind(graph: onnx.GraphProto, first: set[int]) -> set[int]:
    """Nodes that are, or depend on, one of ``first``."""
    behind, size = set(first), 0
    while len(behind) != size:
        size = len(behind)
        made = {name for number in behind for name in graph.node[number].output if name}
        behind |= {number for number, node in enumerate(graph.node) if made & {*node.input, *captured(node)}}
    return behind


def _parts(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], behind: set[int], causes: Causes
) -> tuple[onnx.ModelProto, Tail]:
    graph = model.graph
    before = [node for number, node in enumerate(graph.node) if number not in behind]
    after = [node for number, node in enumerate(graph.node) if number in behind]
    made = {name for node in after for name in node.output if name}
    results = [value for value in graph.output if value.name in made]
    inputs = {value.name for value in graph.input} - {each.name for each in graph.initializer}
    taken = dict.fromkeys(
        name for node in after for name in (*node.input, *captured(node)) if name and name not in made
    )
    kept = [value for value in graph.output if value.name not in made]

    trial = _with(model, before, [*kept, *map(_untyped, [name for name in taken if not _is_constant(graph, name)])])
    known = values_of(trial, shapes, taken)
    initialisers = [each for each in graph.initializer if each.name in taken]
    initialisers += [numpy_helper.from_array(value.value, name) for name, value in known.items()
                     if isinstance(value, Constant) and not _is_constant(graph, name)]  # fmt: skip
    given = {name: value.tensor_type for name, value in known.items() if not isinstance(value, Constant)}
    there = {value.name for value in kept}
    crossing = [name for name in given if name not in there and name not in inputs]
    if not there and not crossing:  # what is compiled only hands inputs over
        if not any(map(_is_of_open_size, causes.values())):
            raise next(iter(causes.values()))
        crossing = list(given)
    if not there and not crossing:
        raise ModelError("nothing of this model depends on an input", hint="its results are constants: keep those")
    typed = {
        name: helper.make_tensor_value_info(name, element_type(kind.dtype), kind.shape) for name, kind in given.items()
    }
    head = _with(model, before, [*kept, *(typed[name] for name in crossing)])
    end = _with(model, after, results)
    del end.graph.input[:], end.graph.initializer[:]
    end.graph.input.extend(typed.values())
    end.graph.initializer.extend(initialisers)
    first = causes[min(causes)]
    what = "the size of its result" if _is_of_open_size(first) else first.what
    reason = f"{first.operator}: {what} depends on the values of a run"
    operators = tuple((node.name, node.op_type) for node in after)
    order = tuple(value.name for value in graph.output)
    return head, Tail(end.SerializeToString(), tuple(given), order, operators, reason)


def _with(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """``model`` with these nodes and outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    made.graph.node.extend(nodes)
    made.graph.output.extend(outputs)
    return made


def _untyped(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def _is_constant(graph: onnx.GraphProto, name: str) -> bool:
    return any(each.name == name for each in graph.initializer)
