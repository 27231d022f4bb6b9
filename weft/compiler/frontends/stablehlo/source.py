"""A StableHLO module as the compiler takes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir import ir

from ....shown import with_article
from ...graph import Attrs, Function, GraphError, Module, Span, TensorType, Tuple, Var
from ...graph.symbolic import SymbolicInput, SymbolicTypes, bind_sizes, infer_symbolic
from ..errors import ModelError
from ..refusals import refuse_floats, refuse_unknown_shapes
from .reader import GraphReader, functions_of, parsed, refuse_unknown, tensor_type

Shapes = Mapping[str, Sequence[int]]

MAIN = "main"


class StablehloSource:
    """A module of StableHLO, ready to be compiled for any target (`weft.compile`).

    Its function ``main`` is read. Inputs have the names of the exported function's arguments (``x``, ``params.w``),
    outputs those of the keys under which it returns them, others are ``output`` or ``output0``, ``output1``, ...

    Raises ModelError for what is no module, and for operations that cannot be read: all of them, with the user's lines.
    """

    def __init__(self, artifact: bytes, file: str = "the model", name: str = "model") -> None:
        """``artifact``: a portable artifact that MLIR wrote (`checked.checked` makes one of a stranger's)."""
        self.name = name
        self._file = file
        with self._texts():
            self._open(artifact)

    def _open(self, artifact: bytes) -> None:
        file = self._file
        self._module = parsed(artifact)
        functions = functions_of(self._module)
        if MAIN not in functions:
            raise ModelError(f"{file} has no function {MAIN!r}")
        refuse_unknown(self._module)
        main = functions[MAIN]
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        arguments = list(main.regions[0].blocks[0].arguments)
        names = _unique([_key(_location_name(each.location)) or f"input{n}" for n, each in enumerate(arguments)])
        self._inputs = {name: tensor_type(each.type, f"input {name!r}")
                        for name, each in zip(names, arguments, strict=True)}  # fmt: skip
        self.output_names = tuple(_output_names(main, len(kind.results)))
        if not self.output_names:
            raise ModelError(f"{file} has no results")

    @contextmanager
    def _texts(self) -> Iterator[None]:
        """The bindings of MLIR raise a RuntimeError for names that are no UTF-8."""
        try:
            yield
        except (RuntimeError, UnicodeError) as error:
            raise ModelError(f"{self._file} cannot be read: {error}", hint="is it damaged?") from None

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs, whose sizes are all fixed."""
        found = [SymbolicInput(name, kind.shape, kind.dtype) for name, kind in self._inputs.items()]
        refuse_unknown_shapes(shapes, self._inputs)
        try:
            bind_sizes(found, shapes)
        except GraphError as error:
            raise ModelError(error.message, hint=error.hint) from None
        return tuple(found)

    def module(self, shapes: Shapes = {}, *, require_quantised: bool = False) -> Module:  # noqa: B006
        """The graph. Raises ModelError."""
        params = [Var(each.name, TensorType(each.at({}), each.dtype), Span((), each.name))
                  for each in self.inputs(shapes)]  # fmt: skip
        with self._texts():
            outputs = GraphReader(self._module).function(MAIN, params)
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        module = Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": self.output_names})))
        if require_quantised:
            refuse_floats(module)
        return module

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every input; those of the tensors between are in the graph."""
        return infer_symbolic(self.inputs(shapes), lambda sizes: dict(self._inputs))


def _location_name(location: Any) -> str:
    found = re.match(r'loc\("([^"]*)"', str(location))
    return found[1] if found else ""


def _key(path: str) -> str:
    """``params['w'][0].b`` as ``params.w.0.b``."""
    return ".".join(part for part in re.split(r"[\[\]'.]+", path) if part)


def _output_names(main: Any, count: int) -> list[str]:
    plain = ["output"] if count == 1 else [f"output{n}" for n in range(count)]
    if "res_attrs" not in main.attributes:
        return plain
    found = [re.search(r'jax\.result_info = "([^"]*)"', str(each)) for each in main.attributes["res_attrs"]]
    keys = [_key(each[1].removeprefix("result")) if each else "" for each in found]
    return _unique([key if key and not key.isdigit() else given for key, given in zip(keys, plain, strict=True)])


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        other, number = name, 1
        while other in found:
            other, number = f"{name}_{number}", number + 1
        found.append(other)
    return found


def from_jax(function: Callable[..., Any], *args: Any, name: str = "") -> StablehloSource:
    """A function of JAX as `weft.compile` takes it.

    function
        What ``jax.jit`` takes. Arrays that it closes over become constants, so give it the parameters that way:
        ``from_jax(lambda x: apply(params, x), x)``.
    args
        Example arguments: arrays, ``jax.ShapeDtypeStruct``, or trees of them. Their shapes and types become
        the model's.
    name
        Of the model in reports; by default that of the function.

    Raises ModelError for what cannot be exported or read; the text names the operations and the lines.
    """
    import jax

    if not callable(function):
        raise ModelError(f"function is {with_article(type(function).__name__)}, but must be a function of JAX")
    try:
        exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*args)
    except Exception as error:  # whatever the user's function raises, and JAX's own
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(f"JAX cannot export it: {type(error).__name__}: {reason}",
                         hint="does jax.jit(function)(*args) run?") from error  # fmt: skip
    own = getattr(function, "__name__", "")
    return StablehloSource(
        exported.mlir_module_serialized, "the model", name or (own if own != "<lambda>" else "model")
    )


def module_of(data: bytes, file: str) -> bytes:
    """The portable artifact inside a file that ``jax.export.Exported.serialize`` wrote. Raises ModelError."""
    import jax

    try:
        return bytes(jax.export.deserialize(bytearray(data)).mlir_module_serialized)
    except Exception as error:
        raise ModelError(f"{file} cannot be read as what jax.export wrote: {type(error).__name__}: {error}") from None
