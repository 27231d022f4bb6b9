"""A LiteRT file's graph, read into the graph IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...graph import Array, Constant, Expr, GraphError, Span
from ...graph.dtypes import FLOATS, numpy_dtype
from ..errors import ModelError
from ..onnx import reader as onnx_reader
from . import (
    control,
    detection,
    move,
    pointwise,
    product,
    recurrent,
    reduce,
    segment,
    spectrum,
    svdf,
    variables,
    window,
)
from .control import BODIES, settled
from .cut import Part, needed, place_in
from .file import GraphInfo, OperatorInfo, TensorInfo, supported
from .kernels import rounding_of
from .recurrent import STARTS_AT_ZERO
from .schema import CUSTOM, NARROW
from .site import QUANTISED, REFUSED, RULES, Held, Memory, Result, Site
from .variables import KEPT, Key, Variable, changed_by_runs

RULE_MODULES = (
    control,
    detection,
    move,
    pointwise,
    product,
    recurrent,
    reduce,
    segment,
    spectrum,
    svdf,
    variables,
    window,
)
"""The modules that fill `RULES`."""

CONVERTER_MODULES = onnx_reader.CONVERTER_MODULES
"""Of ONNX: some rules are written by its converters."""

_TABLE = "tables are kept between runs"
ACTING = ("ASSIGN_VARIABLE", "CALL_ONCE")
"""Operators that count without a result."""

_BRANCH = "its course depends on values of a run"
_CHANCE = "it is random"
REFUSED.update({
    "STABLEHLO_WHILE": _BRANCH, "STABLEHLO_CASE": _BRANCH,
    "HASHTABLE": _TABLE, "HASHTABLE_FIND": _TABLE, "HASHTABLE_IMPORT": _TABLE, "HASHTABLE_SIZE": _TABLE,
    "RANDOM_STANDARD_NORMAL": _CHANCE, "RANDOM_UNIFORM": _CHANCE, "MULTINOMIAL": _CHANCE,
    "STABLEHLO_RNG_BIT_GENERATOR": _CHANCE,
    "DELEGATE": "it was compiled for another device",
})  # fmt: skip


def place_of(info: OperatorInfo, graph: GraphInfo, around: str = "") -> Span:
    """``around``: the place of the operator that runs the graph, with a slash behind it."""
    tensor = graph.tensors[info.outputs[0]].name if info.outputs else ""
    return Span((f"{around}{place_in(info)}",), tensor)


def refuse_unknown(graphs: Sequence[GraphInfo], start: int) -> None:
    """Raise a `ModelError` that names every operator without a rule in what graph ``start`` runs, with the tensors that
    it gives."""
    counts: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for graph in _reached(graphs, start, {**BODIES, "CALL_ONCE": ("graph",)}):
        for info in graph.operators:
            if info.name not in RULES:
                counts[info.name] += 1
                places.setdefault(info.name, []).append(f"{info.number} ({place_of(info, graph).tensor!r})")
    if not counts:
        return
    lines = []
    for name, count in counts.most_common():
        why = REFUSED.get(name, "it is not of LiteRT itself" if name.startswith(CUSTOM) else "")
        at = ", ".join(places[name][:3])
        lines.append(f"{name} ({count} time{'s' if count > 1 else ''}, operator {at}){f': {why}' if why else ''}")
    raise ModelError(
        f"{len(counts)} operator{'s' if len(counts) > 1 else ''} of LiteRT cannot be read: {'; '.join(lines)}",
        hint="convert the model without these, or the part before and the part after them",
    )


def _reached(graphs: Sequence[GraphInfo], start: int, bodies: Mapping[str, Sequence[str]]) -> list[GraphInfo]:
    """Graph ``start``, and those that its operators run by these options."""
    found, waiting = [start], [start]
    while waiting:
        for info in graphs[waiting.pop()].operators:
            for name in bodies.get(info.name, ()):
                number = info.options[name]
                if 0 <= number < len(graphs) and number not in found:
                    found.append(number)
                    waiting.append(number)
    return [graphs[number] for number in found]


def _results(site: Site) -> tuple[Result, ...]:
    """What the rule gives; of complex numbers, what it gives of either part."""
    complex_ones = [held is not None and held.imaginary is not None for held in site.values]
    if not any(complex_ones) or site.op in spectrum.ENDING:
        made = RULES[site.op](site)
        return made if isinstance(made, tuple) else (made,)
    if site.op not in spectrum.MOVES:
        raise site.error("complex numbers are moved and taken apart, nothing else")
    parts = []
    for imaginary in (False, True):
        values = tuple(Held(held.imaginary, held.order) if imaginary and held is not None and held.imaginary is not None
                       else held for held in site.values)  # fmt: skip
        parts.append(_results(replace(site, values=tuple(None if held is None else Held(held.expr, held.order)
                                                         for held in values))))  # fmt: skip
    pairs = zip(
        *([each if isinstance(each, Held) else Held.plain(each) for each in part] for part in parts), strict=True
    )
    return tuple(Held(real.expr, real.order, imaginary.expr) for real, imaginary in pairs)


def variables_of(graphs: Sequence[GraphInfo], start: int, kernels: str) -> tuple[Memory, list[Variable]]:
    """What the file gives to named variables before the first run of graph ``start``, and those that a run changes."""
    memory = Memory(kernels=kernels)
    for info in graphs[start].operators:
        if info.name == "CALL_ONCE":
            site = Site(info.name, place_of(info, graphs[start]), info, (), (), (), lambda *_: [], memory)
            number = info.options["graph"]
            if not 0 < number < len(graphs) or graphs[number].inputs:
                raise site.error(f"it runs graph {number} of {len(graphs)}", hint="is the file damaged?")
            GraphReader(graphs, number, {}, memory)._operators()
            for name, held in memory.values.items():
                value = site.node.scope.static_value(site.ordered(held))
                if value is None:
                    raise site.error(f"the first value of the variable {name!r} is not a constant")
                memory.values[name] = Held.plain(Constant(value, name))
    return memory, changed_by_runs(_reached(graphs, start, BODIES), memory)


class GraphReader:
    """Reads a graph for values of its inputs, or of other tensors. ``inside``: the graphs that run it, the one of a run
    at the front; ``around``: the places of the operators that do."""

    def __init__(
        self, graphs: Sequence[GraphInfo], number: int, values: Mapping[int, Held], memory: Memory,
        inside: tuple[int, ...] = (), around: str = "",
    ) -> None:  # fmt: skip
        self.graphs, self.graph, self.memory, self.around = graphs, graphs[number], memory, around
        self.inside = (*inside, number)
        self.values: dict[int, Held] = dict(values)

    def run(self, part: Part) -> list[Expr]:
        """The outputs of a part of the graph, with the file's axes."""
        for info in self.graph.operators:
            if info.number not in part.behind:
                self._operator(info)
        return [self._output(index) for index in part.outputs.values()]

    def computed(self, outputs: Mapping[str, int]) -> dict[str, Array]:
        """Results where the values of all inputs are known: each operator gives constants. Raises ModelError."""
        wanted = needed(self.graph, outputs.values(), self.values)
        for info in self.graph.operators:
            left = [index for index in info.outputs if index not in self.values]
            if left and wanted & set(left):
                self._operator(info)
                site = self._place(place_in(info))
                self.values |= {index: settled(site, self.values[index]) for index in left if index in self.values}
        found = {}
        for name, index in outputs.items():
            value = self._place(name).node.scope.static_value(self._output(index))
            assert value is not None  # of operators with constant operands
            found[name] = value
        return found

    def keep(self, key: Key, held: Held) -> None:
        """Give a variable its value."""
        if isinstance(key, int):
            self.values[key] = held
        else:
            self.memory.values[key] = held

    def kept(self, key: Key) -> Held:
        """The value that a variable has come to."""
        return self.values[key] if isinstance(key, int) else self.memory.values[key]

    def _operators(self) -> None:
        for info in self.graph.operators:
            self._operator(info)

    def _body(self, site: Site, number: int, inputs: Sequence[Held]) -> list[Held]:
        """What a graph of the file gives for values, as control flow runs it."""
        if not 0 < number < len(self.graphs):
            raise site.error(f"it runs graph {number} of {len(self.graphs)}", hint="is the file damaged?")
        if number in self.inside:
            raise site.error(f"graph {number} runs itself")
        wanted = len(self.graphs[number].inputs)
        if wanted != len(inputs):
            raise site.error(f"graph {number} takes {wanted} inputs, not {len(inputs)}")
        around = f"{site.span.node}/"
        values = dict(zip(self.graphs[number].inputs, inputs, strict=True))
        reader = GraphReader(self.graphs, number, values, self.memory, self.inside, around)
        reader._operators()
        return [reader._value(index, site) for index in reader.graph.outputs]

    def _output(self, index: int) -> Expr:
        name = self.graph.tensors[index].name
        return self.ordered(self._value(index, self._place(name)), name)

    def _place(self, name: str) -> Site:
        info = OperatorInfo("", -1, (), (), {})
        return Site(f"output {name!r}", Span((), name), info, (), (), (), self._body, self.memory)

    def ordered(self, held: Held, name: str) -> Expr:
        """An output, with the file's axes."""
        site = self._place(name)
        if held.imaginary is not None:
            raise site.error("it is complex, which is not supported", hint="give its parts, or its magnitude")
        return held.to(replace(site.node, span=held.expr.span or site.span), range(len(held.order)))

    def _value(self, index: int, site: Site) -> Held:
        if index in self.values:
            return self.values[index]
        tensor = self.graph.tensors[index]
        if not supported(tensor.dtype) or (tensor.sparsity is not None and tensor.dtype in NARROW):
            kind = tensor.dtype if tensor.sparsity is None else f"sparse {tensor.dtype}"
            raise site.error(f"tensor {tensor.name!r} is {kind}, which is not supported")
        value = tensor.value()
        if value is None and 0 in tensor.shape and not tensor.is_variable:  # converters store nothing for it
            value = np.zeros(tensor.shape, numpy_dtype(tensor.dtype))
        if value is None:
            what = "a variable, which is kept between runs" if tensor.is_variable else "neither computed nor a constant"
            raise site.error(f"tensor {tensor.name!r} is {what}")
        self.values[index] = Held.plain(Constant(value, tensor.name))
        return self.values[index]

    def _site(self, info: OperatorInfo) -> Site:
        place = place_of(info, self.graph, self.around)
        site = Site(info.name, place, info, (), (), (), self._body, self.memory)
        values = tuple(None if index < 0 else self._operand(index, site) for index in info.inputs)
        tensors = tuple(None if index < 0 else self.graph.tensors[index] for index in info.inputs)
        results = tuple(self.graph.tensors[index] for index in info.outputs)
        between = tuple(None if index < 0 else self.graph.tensors[index] for index in info.intermediates)
        return Site(info.name, place, info, values, tensors, results, self._body, self.memory, between)

    def _operand(self, index: int, site: Site) -> Held:
        tensor = self.graph.tensors[index]
        if tensor.is_variable and index not in self.values and site.op in STARTS_AT_ZERO:
            return Held.plain(Constant(np.zeros(tensor.shape, numpy_dtype(tensor.element)), tensor.name))
        return self._value(index, site)

    def _operator(self, info: OperatorInfo) -> None:
        if not info.outputs and info.name not in ACTING:
            return
        site = self._site(info)
        try:
            results = _results(site)
            if len(results) < len(info.outputs):
                raise site.error(f"it gives {len(results)} results, not {len(info.outputs)}")
            kept = (info.inputs[KEPT[info.name]],) if info.name in KEPT else ()
            for index, result in zip((*info.outputs, *kept), results, strict=False):
                self.values[index] = self._stored(site, result, self.graph.tensors[index])
        except ModelError:
            raise
        except GraphError as error:
            raise ModelError(f"{info.name}: {error.message}", at=site.span, hint=error.hint) from None
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError, MemoryError) as error:
            raise ModelError(f"{info.name} cannot be read: {type(error).__name__}: {error}", at=site.span,
                             hint="is the file damaged?") from error  # fmt: skip

    def _stored(self, site: Site, result: Held | Expr, tensor: TensorInfo) -> Held:
        """A result as its tensor holds it: real numbers are quantised where the file says so."""
        held = result if isinstance(result, Held) else Held.plain(result)
        quantisation = tensor.quantisation if tensor.element in QUANTISED else None
        if quantisation is not None and held.expr.dtype in FLOATS:
            rounding = rounding_of(self.memory.kernels, site.op)
            return Held(site.quantised(held.expr, quantisation, tensor.element, held.order, rounding), held.order)
        if (held.imaginary is not None) != (tensor.dtype == "complex64"):
            raise site.error(f"tensor {tensor.name!r} is {tensor.dtype}, but what it would hold is not")
        if held.expr.dtype != tensor.element:
            raise site.error(f"it would give {held.expr.dtype}, but tensor {tensor.name!r} is {tensor.element}")
        return held
