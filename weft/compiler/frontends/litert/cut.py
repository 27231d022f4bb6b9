"""LiteRT models with results whose size, or course, depends on the values of a run: they are cut before the first
operator of that kind. What stands before it is compiled as any model; what depends on it is read anew in every run,
with the values of that run for constants, so that each operator gives a constant, by NumPy.

A tail is the file, with a line before it that says what is computed of it. Weights that only the compiled part has are
zeros in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....imports import IMPORTS
from ...graph import Array
from ...graph.dtypes import numpy_dtype
from ...graph.tail import Tail
from ..errors import ModelError, NeedsValueError
from .control import BODIES
from .file import GraphInfo, OperatorInfo

MAGIC = b"weft tail of a LiteRT file "
"""What a tail begins with; its line ends the first line."""

OF_OPEN_SIZE = ("UNIQUE", "WHERE")
"""Operators whose results have as many elements as the values of their operands say."""


@dataclass(frozen=True)
class Part:
    """What is read of a graph: all but the operators ``behind``. ``outputs``: tensors by name."""

    outputs: Mapping[str, int]
    behind: frozenset[int] = frozenset()


def operator_before(graph: GraphInfo, error: NeedsValueError) -> int:
    """The operator of the graph that needs a value, or runs what does. Raises ``error`` if there is none."""
    (place,) = error.span.nodes[:1] or ("",)
    for info in graph.operators:
        own = place_in(info)
        if place == own or place.startswith(f"{own}/"):
            return info.number
    raise error


def place_in(info: OperatorInfo) -> str:
    """The name of an operator among those of its graph."""
    return f"{info.name}:{info.number}"


def operators_behind(graph: GraphInfo, first: Iterable[int]) -> frozenset[int]:
    """Operators that are, or depend on, one of ``first``."""
    behind, made = set(first), set[int]()
    for info in graph.operators:
        if info.number in behind or made & set(info.inputs):
            behind.add(info.number)
            made |= set(info.outputs)
    return frozenset(behind)


def taken_by(graph: GraphInfo, behind: frozenset[int]) -> list[int]:
    """Tensors that these operators take, and that others, or the caller, give."""
    given = {*graph.inputs, *(index for info in graph.operators if info.number not in behind for index in info.outputs)}
    return list(dict.fromkeys(
        index for info in graph.operators if info.number in behind for index in info.inputs if index in given
    ))  # fmt: skip


@dataclass(frozen=True)
class Rest:
    """What a tail computes: of signature ``signature``, as ``kernels`` have it, the tensors ``outputs`` from those of
    ``inputs``, by name. ``values``: of inputs that are built in, each its type, its shape and its elements."""

    kernels: str
    signature: str | None
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    values: Mapping[str, tuple[str, Sequence[int], Sequence[Any]]] = field(default_factory=dict)

    def before(self, data: bytes) -> bytes:
        """The tail: this, and the file."""
        return MAGIC + json.dumps(vars(self)).encode() + b"\n" + data

    def built_in(self) -> dict[str, Array]:
        return {name: np.array(elements, numpy_dtype(dtype)).reshape(shape)
                for name, (dtype, shape, elements) in self.values.items()}  # fmt: skip


def as_record(value: Array) -> tuple[str, list[int], list[Any]]:
    """A value that is built in, for `Rest`."""
    return str(value.dtype), list(value.shape), value.reshape(-1).tolist()


def without_weights(
    data: bytes, graphs: Sequence[GraphInfo], start: int, behind: frozenset[int], given: Iterable[int]
) -> bytes:
    """The file with zeros for constants that no operator ``behind`` of graph ``start`` takes, nor a graph that it runs,
    nor what such an operand follows from, but for tensors that are given."""
    graph = graphs[start]
    taken = {index for info in graph.operators if info.number in behind for index in info.inputs}
    kept = needed(graph, taken, given)
    if any(info.name in BODIES for info in graph.operators):  # bodies may share constants of any graph
        return data
    base = np.frombuffer(data, np.uint8).ctypes.data
    made = bytearray(data)
    spared = [_extent(graph, index, base) for index in kept]
    for index in range(len(graph.tensors)):
        begin, end = _extent(graph, index, base)
        if index not in kept and not any(begin < other_end and other < end for other, other_end in spared):
            made[begin:end] = bytes(end - begin)
    return bytes(made)


def _extent(graph: GraphInfo, index: int, base: int) -> tuple[int, int]:
    """Where the bytes of a constant are in the file."""
    content = graph.tensors[index].data
    if content is None or not len(content):
        return 0, 0
    begin = np.frombuffer(content, np.uint8).ctypes.data - base
    return begin, begin + len(content)


def needed(graph: GraphInfo, wanted: Iterable[int], given: Iterable[int] = ()) -> set[int]:
    """Tensors that others follow from, ``given`` ones known; with these."""
    found, known = set(wanted), set(given)
    for info in reversed(graph.operators):
        if found & set(info.outputs) - known:
            found |= set(info.inputs)
    return found


class Finish:
    """What a tail does in a run. ModelError for a tail that cannot be read."""

    def __init__(self, tail: Tail) -> None:
        line, _, data = tail.model.removeprefix(MAGIC).partition(b"\n")
        try:
            self._rest = Rest(**json.loads(line))
            values = self._rest.built_in()
            places = {*self._rest.inputs.values(), *self._rest.outputs.values()}
            if {*self._rest.inputs} != {*tail.inputs} or not all(type(place) is int for place in places):
                raise ValueError("it names tensors that nothing gives")
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"the tail of a model is damaged: {error}", hint="compile the model again") from None
        with IMPORTS:
            from .source import LitertSource
        source = LitertSource(data, "the tail", kernels=self._rest.kernels, signature=self._rest.signature)
        self._source = source.with_values(values) if values else source

    def element_types(self) -> dict[str, str]:
        """Of its results, by name. ModelError."""
        return self._source.element_types(self._rest.outputs)

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The results for these values of its inputs. ModelError for what the file does not allow with them."""
        given = {index: values[name] for name, index in self._rest.inputs.items()}
        return self._source.computed(given, self._rest.outputs)


def is_tail(model: bytes) -> bool:
    """Whether a tail is of a LiteRT file."""
    return model.startswith(MAGIC)


def reason_of(error: NeedsValueError) -> str:
    what = "the size of its result" if error.operator in OF_OPEN_SIZE else error.what
    return f"{error.operator}: {what} depends on the values of a run"
