"""A LiteRT model as the compiler takes it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Array, Attrs, Constant, Function, GraphError, Module, Span, TensorType, Tuple, Var
from ...graph.symbolic import SymbolicInput, SymbolicTypes, bind_sizes, infer_symbolic
from ...graph.tail import Tail
from ..errors import ModelError, NeedsValueError
from ..refusals import refuse_floats, refuse_unknown_shapes
from .cut import (
    OF_OPEN_SIZE,
    Part,
    Rest,
    as_record,
    operator_before,
    operators_behind,
    place_in,
    reason_of,
    taken_by,
    without_weights,
)
from .file import SignatureInfo, TensorInfo, read_file, supported
from .kernels import DEFAULT, KERNELS
from .reader import GraphReader, refuse_unknown, variables_of
from .site import Held, Memory

Shapes = Mapping[str, Sequence[int]]


def _chosen(signatures: Sequence[SignatureInfo], name: str | None, file: str) -> SignatureInfo:
    """The signature of a name; without one, that of the first graph, which need not have any."""
    for each in signatures:
        if each.name == name if name is not None else each.graph == 0:
            return each
    if name is None:
        return SignatureInfo("", 0, {}, {})
    known = ", ".join(repr(each.name) for each in signatures)
    raise ModelError(f"{file} has no signature {name!r}", hint=f"it has {known or 'none'}")


def _free(name: str, used: set[str]) -> str:
    """A name that is not used, made of ``name``."""
    while name in used:
        name += "_"
    return name


def _fitting(name: str, tensor: TensorInfo, value: Any) -> Array:
    """A value for an input, whose open sizes may be any. Raises ModelError."""
    found = np.asarray(value)
    shape = tuple(-1 if size < 0 else size for size in tensor.open_shape)
    if found.dtype.kind != np.dtype(tensor.element).kind or found.dtype.kind not in "biuf":
        raise ModelError(f"the value of {name!r} is {found.dtype}, not {tensor.element}")
    if len(found.shape) != len(shape) or any(own not in (-1, n) for own, n in zip(shape, found.shape, strict=True)):
        raise ModelError(f"the value of {name!r} has the shape {list(found.shape)}, not {list(shape)}")
    return np.ascontiguousarray(found.astype(tensor.element)).reshape(found.shape)


class LitertSource:
    """A model in a LiteRT file, ready to be compiled for any target (`weft.compile`).

    The graph of ``signature`` is read, by default the file's first one. Inputs and outputs have the names that the
    signature gives them, else those of their tensors. A variable that a run changes is an input more and, as
    ``next_NAME``, an output more; ``variables`` have what a first run takes. ``kernels``: the set of LiteRT's kernels
    whose integers are meant, of `KERNELS`. Raises ModelError for a damaged file, for a signature that it has not, and
    for operators that cannot be read: all of them, with places.
    """

    def __init__(
        self, data: bytes, file: str, name: str = "model", kernels: str = DEFAULT, signature: str | None = None
    ) -> None:
        if kernels not in KERNELS:
            raise ModelError(f"LiteRT has no kernels {kernels!r}", hint=f"known: {', '.join(KERNELS)}")
        self.name = name
        found = read_file(data, file)
        chosen = _chosen(found.signatures, signature, file)
        self._data, self._kernels, self._signature = data, kernels, signature
        self._built_in: dict[str, Array] = {}
        self._graphs, self._start, self._graph = found.graphs, chosen.graph, found.graphs[chosen.graph]
        refuse_unknown(self._graphs, self._start)
        self._input_names = self._named(self._graph.inputs, chosen.input_names)
        self.output_names = self._named(self._graph.outputs, chosen.output_names)
        if not self.output_names:
            raise ModelError(f"{file} has no outputs")
        if len(set(self._graph.inputs)) != len(self._graph.inputs):
            raise ModelError(f"{file} names an input twice")
        self._memory, self.variables = variables_of(self._graphs, self._start, kernels)
        self.variables = [replace(each, name=self._free(each.name)) for each in self.variables]
        self._part = Part(dict(zip(self.output_names, self._graph.outputs, strict=True)))
        self.output_names += tuple(each.output for each in self.variables)

    def with_values(self, values: Mapping[str, Any]) -> LitertSource:
        """The model with these values of inputs, which it then has no more. Raises ModelError for a value that an input
        cannot have."""
        fields = dict(self._fields())
        refuse_unknown_shapes(values, [name for name in fields if name not in self._built_in])
        made = copy.copy(self)
        made._built_in = self._built_in | {name: _fitting(name, fields[name], value) for name, value in values.items()}
        return made

    def cut(self, shapes: Shapes, error: NeedsValueError) -> tuple[LitertSource, Tail]:
        """The part that can be compiled, and what depends on results whose size, or course, the values of a run
        decide, which ``error`` met. Raises ``error`` where the model cannot be cut."""
        if self.variables or self._memory.values:
            raise error
        causes: dict[int, NeedsValueError] = {}
        while True:
            number = operator_before(self._graph, error)
            if number in causes or not (error.operator in OF_OPEN_SIZE or self._unknowable(error)):
                raise error
            causes[number] = error
            try:
                return self._cut_before(shapes, causes)
            except NeedsValueError as other:
                error = other

    def _unknowable(self, error: NeedsValueError) -> bool:
        """Whether no user can know the values: they stand for real numbers, or are many."""
        fields = dict(self._fields())
        return (
            any(each.dtype.startswith("float") or fields[each.name].quantisation is not None for each in error.inputs)
            or not error.is_of_few_integers
        )

    def _cut_before(self, shapes: Shapes, causes: Mapping[int, NeedsValueError]) -> tuple[LitertSource, Tail]:
        graph = self._graph
        behind = operators_behind(graph, causes)
        later = {index for info in graph.operators if info.number in behind for index in info.outputs}
        kept = {name: index for name, index in self._part.outputs.items() if index not in later}
        reader, _ = self._read(shapes, Part(kept, behind))
        inputs = {index: name for name, index in self._inputs()}
        taken = [index for index in taken_by(graph, behind) if not reader.values[index].expr.static]
        if any(reader.values[index].imaginary is not None for index in taken):
            raise next(iter(causes.values()))
        there = {index: name for name, index in kept.items()}
        used = {*self._input_names, *self.output_names}
        crossing: dict[str, int] = {}
        for index in taken:
            if index not in there and index not in inputs:
                name = _free(graph.tensors[index].name or f"tensor{index}", {*used, *crossing})
                crossing[name] = index
        if not kept and not crossing:  # what is compiled only hands inputs over
            crossing = {_free(f"{inputs[index]}_taken", used): index for index in taken}
        if not kept and not crossing:
            raise ModelError("nothing of this model depends on an input", hint="its results are constants: keep those")
        given = inputs | there | {index: name for name, index in crossing.items()}
        head = copy.copy(self)
        head._part = Part(kept | crossing, behind)
        head.output_names = tuple(head._part.outputs)
        rest = Rest(
            self._kernels, self._signature, {given[index]: index for index in taken},
            {name: index for name, index in self._part.outputs.items() if index in later},
            {name: as_record(value) for name, value in self._built_in.items()},
        )  # fmt: skip
        operators = tuple((place_in(info), info.name) for info in graph.operators if info.number in behind)
        model = rest.before(without_weights(self._data, self._graphs, self._start, behind, taken))
        return head, Tail(model, tuple(rest.inputs), self.output_names, operators, reason_of(causes[min(causes)]))

    def computed(self, given: Mapping[int, Array], outputs: Mapping[str, int]) -> dict[str, Array]:
        """Tensors of the graph, by name, from others that they follow from. Raises ModelError."""
        self._check_places((*given, *outputs.values()))
        values = {index: self._built_in[name] for name, index in self._inputs() if name in self._built_in} | dict(given)
        held = {index: Held.plain(Constant(np.asarray(value))) for index, value in values.items()}
        return GraphReader(self._graphs, self._start, held, Memory(kernels=self._kernels)).computed(outputs)

    def element_types(self, tensors: Mapping[str, int]) -> dict[str, str]:
        """Of tensors of the graph, by name. Raises ModelError."""
        self._check_places(tensors.values())
        return {name: self._graph.tensors[index].element for name, index in tensors.items()}

    def _check_places(self, places: Iterable[int]) -> None:
        """Raises ModelError for what is no tensor of the graph."""
        count = len(self._graph.tensors)
        for index in places:
            if not 0 <= index < count:
                raise ModelError(f"there is no tensor {index} of {count}", hint="compile the model again")

    def _inputs(self) -> list[tuple[str, int]]:
        """The graph's inputs, by name."""
        return list(zip(self._input_names, self._graph.inputs, strict=True))

    def _free(self, name: str) -> str:
        """A variable's name, changed where an input or an output has it."""
        while name in self._input_names or f"next_{name}" in self.output_names:
            name += "_state"
        return name

    def _named(self, indices: Sequence[int], names: Mapping[int, str]) -> tuple[str, ...]:
        """Names of tensors, each once."""
        found: list[str] = []
        for index in indices:
            name = plain = names.get(index) or self._graph.tensors[index].name or f"tensor{index}"
            number = 1
            while name in found:
                name, number = f"{plain}_{number}", number + 1
            found.append(name)
        return tuple(found)

    def _fields(self) -> list[tuple[str, TensorInfo]]:
        fields = [(name, self._graph.tensors[index]) for name, index in self._inputs()]
        for name, tensor in fields:
            if not supported(tensor.dtype):
                raise ModelError(f"input {name!r} is {tensor.dtype}, which is not supported")
        return fields

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs; a size that the file leaves open has the name ``input.axis``."""
        fields = [(name, tensor) for name, tensor in self._fields() if name not in self._built_in]
        found = [SymbolicInput(name, tuple(f"{name}.{axis}" if size < 0 else size
                                           for axis, size in enumerate(tensor.open_shape)), tensor.element)
                 for name, tensor in fields]  # fmt: skip
        refuse_unknown_shapes(shapes, [each.name for each in found])
        try:
            sizes = bind_sizes(found, shapes)
        except GraphError as error:
            raise ModelError(error.message, hint=error.hint) from None
        whole = [replace(each, shape=tuple(sizes.get(str(size), size) for size in each.shape)) for each in found]
        return (*whole, *(SymbolicInput(each.name, each.type.shape, each.type.dtype) for each in self.variables))

    def module(self, shapes: Shapes = {}, *, require_quantised: bool = False) -> Module:  # noqa: B006
        """The graph for these shapes of the inputs. Raises ModelError."""
        _, module = self._read(shapes, self._part)
        if require_quantised:
            refuse_floats(module)
        return module

    def _read(self, shapes: Shapes, part: Part) -> tuple[GraphReader, Module]:
        """What is read of the graph, and as a module."""
        params = []
        for each in self.inputs(shapes):
            still = [size for size in each.shape if isinstance(size, str)]
            if still:
                raise ModelError(f"the size {still[0]!r} is open", hint="give the shape of the input with shapes=")
            params.append(Var(each.name, TensorType(each.at({}), each.dtype), Span((), each.name)))
        given = {param.name: Held.plain(param) for param in params}
        given |= {name: Held.plain(Constant(value, name)) for name, value in self._built_in.items()}
        memory = replace(self._memory, values=dict(self._memory.values), names=list(self._memory.names))
        reader = GraphReader(self._graphs, self._start, {index: given[name] for name, index in self._inputs()}, memory)
        for variable in self.variables:
            reader.keep(variable.key, given[variable.name])
        outputs = reader.run(part)
        for variable in self.variables:
            outputs.append(reader.ordered(reader.kept(variable.key), variable.output))
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        names = (*part.outputs, *(each.output for each in self.variables))
        function = Function(tuple(params), body, Attrs({"name": "main", "outputs": names}))
        return reader, Module(function)

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every tensor, for any size."""
        inputs = self.inputs(shapes)

        def at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
            chosen = {each.name: each.at(sizes) for each in inputs}
            try:
                reader, module = self._read(chosen, self._part)
            except NeedsValueError as error:
                reader, module = self._read(chosen, self.cut(chosen, error)[0]._part)
            types = {param.name: param.tensor_type for param in module.main.params}
            for info in self._graph.operators:
                for index in info.outputs:
                    if index not in reader.values:  # behind a cut
                        continue
                    held = reader.values[index]
                    types.setdefault(self._graph.tensors[index].name or f"tensor{index}",
                                     TensorType(held.shape, held.expr.dtype))  # fmt: skip
            return types

        return infer_symbolic(inputs, at)
