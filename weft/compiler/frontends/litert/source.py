"""A LiteRT model as the compiler takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...graph import Attrs, Function, GraphError, Module, Span, TensorType, Tuple, Var
from ...graph.symbolic import SymbolicInput, SymbolicTypes, bind_sizes, infer_symbolic
from ..errors import ModelError
from ..refusals import refuse_floats, refuse_unknown_shapes
from .file import SignatureInfo, TensorInfo, read_file, supported
from .kernels import DEFAULT, KERNELS
from .reader import GraphReader, refuse_unknown, variables_of
from .site import Held

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
        self.output_names += tuple(each.output for each in self.variables)

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
        fields = [(name, self._graph.tensors[index])
                  for name, index in zip(self._input_names, self._graph.inputs, strict=True)]  # fmt: skip
        for name, tensor in fields:
            if not supported(tensor.dtype):
                raise ModelError(f"input {name!r} is {tensor.dtype}, which is not supported")
        return fields

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs; a size that the file leaves open has the name ``input.axis``."""
        found = [SymbolicInput(name, tuple(f"{name}.{axis}" if size < 0 else size
                                           for axis, size in enumerate(tensor.open_shape)), tensor.element)
                 for name, tensor in self._fields()]  # fmt: skip
        refuse_unknown_shapes(shapes, [each.name for each in found])
        try:
            sizes = bind_sizes(found, shapes)
        except GraphError as error:
            raise ModelError(error.message, hint=error.hint) from None
        whole = [replace(each, shape=tuple(sizes.get(str(size), size) for size in each.shape)) for each in found]
        return (*whole, *(SymbolicInput(each.name, each.type.shape, each.type.dtype) for each in self.variables))

    def module(self, shapes: Shapes = {}, *, require_quantised: bool = False) -> Module:  # noqa: B006
        """The graph for these shapes of the inputs. Raises ModelError."""
        _, module = self._read(shapes)
        if require_quantised:
            refuse_floats(module)
        return module

    def _read(self, shapes: Shapes) -> tuple[GraphReader, Module]:
        params = []
        for each in self.inputs(shapes):
            still = [size for size in each.shape if isinstance(size, str)]
            if still:
                raise ModelError(f"the size {still[0]!r} is open", hint="give the shape of the input with shapes=")
            params.append(Var(each.name, TensorType(each.at({}), each.dtype), Span((), each.name)))
        plain = [Held.plain(param) for param in params]
        count = len(self._graph.inputs)
        memory = replace(self._memory, values=dict(self._memory.values), names=list(self._memory.names))
        reader = GraphReader(self._graphs, self._start, plain[:count], memory)
        for variable, held in zip(self.variables, plain[count:], strict=True):
            reader.keep(variable.key, held)
        outputs = reader.run()
        for variable in self.variables:
            outputs.append(reader.ordered(reader.kept(variable.key), variable.output))
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        function = Function(tuple(params), body, Attrs({"name": "main", "outputs": self.output_names}))
        return reader, Module(function)

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every tensor, for any size."""
        inputs = self.inputs(shapes)

        def at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
            reader, module = self._read({each.name: each.at(sizes) for each in inputs})
            types = {param.name: param.tensor_type for param in module.main.params}
            for info in self._graph.operators:
                for index in info.outputs:
                    held = reader.values[index]
                    types.setdefault(self._graph.tensors[index].name or f"tensor{index}",
                                     TensorType(held.shape, held.expr.dtype))  # fmt: skip
            return types

        return infer_symbolic(inputs, at)
