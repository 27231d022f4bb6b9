"""Models that end in results whose size depends on the values of a run, such as the post-processing of detectors: they
are cut before the first operator of that kind. What stands before it is compiled as any model; what depends on it is
read anew in every run, with the values of that run for constants, and computed by NumPy's meanings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx import helper, numpy_helper

from ...graph import Array, Constant, evaluate
from ..errors import ModelError, NeedsValueError
from .reader import captured, from_onnx, values_of
from .types import element_type

OF_OPEN_SIZE = ("NonZero", "Unique", "NonMaxSuppression", "Compress")
"""Operators whose results have as many elements as the values of their operands say."""


@dataclass(frozen=True)
class Tail:
    """The part of a model that is read in every run. ``model``: the bytes of an ONNX model of its own; ``inputs``: the
    tensors that it takes; ``operators``: by node; ``reason``: why it is not compiled."""

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[tuple[str, str], ...]
    reason: str

    @cached_property
    def _proto(self) -> onnx.ModelProto:
        return onnx.load_from_string(self.model)

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The results for these values of its inputs. ModelError for what the standard does not allow with them."""
        given = {name: values[name] for name in self.inputs}
        module = from_onnx(self._proto, values=given, require_quantised=False, largest_results=False)
        return dict(evaluate(module, {}))


def cut(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], error: NeedsValueError
) -> tuple[onnx.ModelProto, Tail]:
    """The part of ``model`` that is compiled, which gives all that the tail takes, and the tail. ``error``: what a
    reading of the whole said; it is raised again where no operator of `OF_OPEN_SIZE` is the cause."""
    names = [node.name or f"{node.op_type}_{i}" for i, node in enumerate(model.graph.node)]
    of_open_size: set[int] = set()
    while True:
        at = {names.index(name) for name in error.span.nodes[:1] if name in names}
        found = {number for number in at if model.graph.node[number].op_type in OF_OPEN_SIZE}
        if not found or found <= of_open_size:
            raise error
        of_open_size |= found
        behind = _behind(model.graph, of_open_size)
        try:
            return _parts(model, shapes, behind, [model.graph.node[number].op_type for number in sorted(of_open_size)])
        except NeedsValueError as other:
            error = other


def _behind(graph: onnx.GraphProto, first: set[int]) -> set[int]:
    """Nodes that are, or depend on, one of ``first``."""
    behind, size = set(first), 0
    while len(behind) != size:
        size = len(behind)
        made = {name for number in behind for name in graph.node[number].output if name}
        behind |= {number for number, node in enumerate(graph.node) if made & {*node.input, *captured(node)}}
    return behind


def _parts(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], behind: set[int], causes: list[str]
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
    if not there and not crossing:
        crossing = list(given)  # what is compiled only hands inputs over
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
    reason = f"{causes[0]}: the size of its result depends on the values of a run"
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
