"""A PyTorch model as the compiler takes it: what ``torch.export`` captured, for any sizes that it left open."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, OutputSpec
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from ....shown import with_article
from ...graph import Attrs, Constant, Expr, Function, Module, Span, TensorType, Tuple, Var
from ...graph.symbolic import SymbolicInput, SymbolicTypes, bind_sizes, infer_symbolic, sizes_text
from ..errors import ModelError
from ..refusals import refuse_floats, refuse_unknown_shapes
from ..site import OperatorSite
from ..source import Source
from .complex import Complex, constant, of_pairs, pairs
from .reader import GraphReader, at_sizes, refuse_unknown, where_in_source
from .tensors import PARTS, array_of, dtype_name
from .values import BY_VALUES, by_onnx, first_by_values

Shapes = Mapping[str, Sequence[int]]

NEXT = ".next"
"""Behind the name of a state: the output that is its value for the next run."""


@dataclass(frozen=True)
class _Input:
    """A placeholder that is an input of the model: the user's, or a buffer that the model changes."""

    name: str
    sizes: tuple[int | sympy.Expr, ...]
    dtype: str
    is_complex: bool = False
    """Then both parts lie along its last axis."""


def source_of(program: ExportedProgram, name: str = "model", symbols: Mapping[str, str] | None = None) -> Source:
    """The source of an exported program: a `TorchSource`, or, where values of a run decide sizes, one of ONNX."""
    decomposed = _decomposed(program)
    first = first_by_values(decomposed.graph_module)
    if first is None:
        return TorchSource(decomposed, name, symbols)
    refuse_unknown(decomposed.graph_module, by_values=False)
    users = [spec for spec in decomposed.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    place = where_in_source(first)
    why = BY_VALUES.get(str(first.target), "its size depends on values")
    reason = f"{first.target}{f' at {place}' if place else ''}: {why}"
    return by_onnx(decomposed, name, _names(decomposed, len(users)), reason)


class TorchSource:
    """An exported program in core operators, ready to be compiled for any target (`weft.compile`).

    Inputs have the names of the arguments of ``forward``. The outputs of a dictionary have its keys for names, others
    are ``output`` or ``output0``, ``output1``, ... Complex tensors have both parts in an axis
    behind the others. A buffer that the model changes is an input of its own name, and an output ``NAME.next``, which
    the next run is given for it.

    Raises ModelError for a program with operators that cannot be read: all of them, with the user's lines.
    """

    def __init__(self, program: ExportedProgram, name: str = "model", symbols: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._program = program
        self._symbols = dict(symbols or {})  # PyTorch's names of open sizes to the user's
        refuse_unknown(self._program.graph_module)
        signature = self._program.graph_signature
        self._states = {spec.target: spec for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION}
        self._fields: dict[str, _Input] = {}
        self._placeholders: list[Any] = []
        placeholders = [node for node in self._program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            self._placeholders.append(self._placeholder(node, spec))
        self.output_names = tuple(name for name, _ in self._outputs())

    # What the program takes and gives

    def _placeholder(self, node: Any, spec: Any) -> Any:
        """An `_Input`, a `Constant`, or the value of an argument that is no tensor."""
        is_state = spec.kind is InputKind.BUFFER and spec.target in self._states
        if spec.kind is InputKind.USER_INPUT or is_state:
            if isinstance(spec.arg, ConstantArgument):
                return spec.arg.value
            value = node.meta["val"]
            name = spec.target if is_state else node.name
            if not isinstance(value, torch.Tensor):
                kind = with_article(type(value).__name__)
                raise ModelError(f"input {name!r} is {kind}, but only tensors can be inputs",
                                 hint="export with the number as a constant, or as a tensor of no axes")  # fmt: skip
            sizes = tuple(size.node.expr if isinstance(size, torch.SymInt) else int(size) for size in value.shape)
            if value.dtype in PARTS:
                self._fields[name] = _Input(name, (*sizes, 2), PARTS[value.dtype], True)
            else:
                self._fields[name] = _Input(name, sizes, dtype_name(value.dtype, f"input {name!r}"))
            return self._fields[name]
        if spec.kind is InputKind.TOKEN:  # of the order of checks
            return None
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            tensors = {**self._program.state_dict, **self._program.constants}
            return constant(array_of(tensors[spec.target], f"{spec.target!r}"), spec.target)
        raise ModelError(f"input {node.name!r} is {with_article(spec.kind.name.lower())}, which weft cannot take")

    def _outputs(self) -> list[tuple[str, OutputSpec]]:
        """Every output that is kept, in the program's order, with its name."""
        specs = self._program.graph_signature.output_specs
        users = [spec for spec in specs if spec.kind is OutputKind.USER_OUTPUT]
        names = iter(_names(self._program, len(users)))
        result = []
        for spec in specs:
            if spec.kind is OutputKind.USER_OUTPUT:
                name = next(names)
                if not isinstance(spec.arg, ConstantArgument):
                    result.append((name, spec))
            elif spec.kind is OutputKind.TOKEN:
                continue
            elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                result.append((f"{spec.target}{NEXT}", spec))
            else:
                raise ModelError(f"an output is {with_article(spec.kind.name.lower())}, which weft cannot give",
                                 hint="export the model in inference mode")  # fmt: skip
        return result

    # A source

    def _size(self, size: int | sympy.Expr) -> int | str:
        if isinstance(size, int) or size.is_Integer:
            return int(size)
        return self._symbols.get(str(size), str(size))

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs; a size that was left open has the name that ``dynamic_shapes`` gave it, or PyTorch's."""
        refuse_unknown_shapes(shapes, self._fields)
        found = [SymbolicInput(each.name, tuple(map(self._size, each.sizes)), each.dtype)
                 for each in self._fields.values()]  # fmt: skip
        sizes = bind_sizes(found, shapes)
        return tuple(
            SymbolicInput(each.name, tuple(sizes.get(str(size), size) for size in each.shape), each.dtype)
            for each in found
        )

    def module(self, shapes: Shapes = {}, *, require_quantised: bool = False) -> Module:  # noqa: B006
        """The graph for these shapes of the inputs. Raises ModelError."""
        reader = GraphReader(self._bound(shapes))
        params: list[Var] = []
        values: list[Any] = []
        for each in self._placeholders:
            if isinstance(each, _Input):
                params.append(Var(each.name, TensorType(self._shape(reader, each), each.dtype), Span((), each.name)))
                site = OperatorSite("view_as_complex", params[-1].span)
                values.append(of_pairs(site, params[-1]) if each.is_complex else params[-1])
            else:
                values.append(each)
        made = reader.run(self._program.graph_module, values)
        specs = self._program.graph_signature.output_specs
        by_spec = {id(spec): value for spec, value in zip(specs, made, strict=True)}
        results = {name: by_spec[id(spec)] for name, spec in self._outputs()}
        for name, value in results.items():
            if isinstance(value, Complex):
                results[name] = pairs(OperatorSite("view_as_real", Span((), name)), value)
        outputs = {name: value if isinstance(value, Expr) else Constant(np.asarray(value))
                   for name, value in results.items()}  # fmt: skip
        body = next(iter(outputs.values())) if len(outputs) == 1 else Tuple(tuple(outputs.values()))
        module = Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": tuple(outputs)})))
        if require_quantised:
            refuse_floats(module)
        return module

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every tensor, for any size."""
        inputs = self.inputs(shapes)

        def at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
            reader = GraphReader(self._sampled(inputs, sizes))
            types = {each.name: TensorType(self._shape(reader, each), each.dtype) for each in self._fields.values()}
            for node in self._program.graph.nodes:
                kind = reader.type_of(node.meta.get("val"), node.name) if node.op == "call_function" else None
                if kind is not None:
                    types[node.name] = kind
            return types

        lowest = {self._symbols.get(str(symbol), str(symbol)): int(bounds.lower)
                  for symbol, bounds in self._program.range_constraints.items() if bounds.lower.is_Integer}  # fmt: skip
        return replace(infer_symbolic(inputs, at), lowest=lowest)

    # Sizes

    def _bound(self, shapes: Shapes) -> dict[str, int]:
        """The sizes of PyTorch's symbols for these shapes, inside the ranges that the program is for."""
        inputs = self.inputs(shapes)
        still = [f"{size!r} of {each.name!r}" for each in inputs for size in each.shape if isinstance(size, str)]
        if still:
            raise ModelError(f"the size {still[0]} is open", hint="give the shape of the input with shapes=")
        sizes = self._solved({each.name: each.at({}) for each in inputs})
        for symbol, bounds in self._program.range_constraints.items():
            size = sizes.get(str(symbol))
            if size is not None and not bounds.lower <= size <= bounds.upper:
                name = self._symbols.get(str(symbol), str(symbol))
                raise ModelError(f"the size {name} is {size}, but the program was exported for "
                                 f"{bounds.lower} to {bounds.upper}",
                                 hint="give inputs of such a size, on the command line with --shape; "
                                 "or export it with another range")  # fmt: skip
        return sizes

    def _sampled(self, inputs: Sequence[SymbolicInput], sizes: Mapping[str, int]) -> dict[str, int]:
        """PyTorch's symbols for a sample of open sizes, where those that follow from others do so whatever their
        sample."""
        dimensions = [(size, shown) for each in inputs
                      for size, shown in zip(self._fields[each.name].sizes, each.shape, strict=True)
                      if not isinstance(size, int) and isinstance(shown, str)]  # fmt: skip
        if all(size.is_Symbol for size, _ in dimensions):
            return self._solved({each.name: each.at(sizes) for each in inputs})
        found: dict[str, int] = {}
        for size, shown in sorted(dimensions, key=lambda item: not item[0].is_Symbol):
            for symbol in size.free_symbols:
                found.setdefault(symbol.name, sizes[shown])
        given = {each.name: tuple(shown if isinstance(shown, int) else int(at_sizes(size, found)) for size, shown in
                                  zip(self._fields[each.name].sizes, each.shape, strict=True))
                 for each in inputs}  # fmt: skip
        return self._solved(given)

    def _solved(self, shapes: Shapes) -> dict[str, int]:
        """The symbols whose expressions give these shapes."""
        sizes: dict[str, int] = {}
        expressions = [(each.name, axis, size, shapes[each.name][axis]) for each in self._fields.values()
                       for axis, size in enumerate(each.sizes) if not isinstance(size, int)]  # fmt: skip
        expressions.sort(key=lambda item: not item[2].is_Symbol)
        for name, axis, expression, value in expressions:
            rest = at_sizes(expression, sizes)
            if len(rest.free_symbols) == 1:
                symbol = next(iter(rest.free_symbols))
                found = [each for each in sympy.solve(rest - value, symbol) if each.is_Integer and each >= 0]
                if found:
                    sizes[symbol.name] = int(found[0])
                    continue
            elif not rest.free_symbols and int(rest) == value:
                continue
            raise ModelError(f"input {name!r}: dimension {axis} is {value}, but must be {expression} "
                             f"({sizes_text(sizes) or 'no size is known'})")  # fmt: skip
        return sizes

    @staticmethod
    def _shape(reader: GraphReader, each: _Input) -> tuple[int, ...]:
        return tuple(size if isinstance(size, int) else int(at_sizes(size, reader.sizes)) for size in each.sizes)


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """In core ATen operators. Raises ModelError."""
    try:
        return program.run_decompositions()
    except Exception as error:  # it runs the program, and what a file says of its sizes
        raise ModelError(f"PyTorch cannot decompose the program: {_reason(error)}",
                         hint="program.run_decompositions() shows the whole reason") from error  # fmt: skip


def _reason(error: Exception) -> str:
    """Of an error of PyTorch's: its kind, its first line and, of open sizes, what they do not satisfy."""
    lines = str(error).strip().splitlines()
    guards = [line.strip().removeprefix("- ") for line in lines[1:] if line.startswith("  - ")]
    first = lines[0].partition(" For more information, run with")[0] if guards else "".join(lines[:1])
    return ": ".join(filter(None, [type(error).__name__, " ".join([first, *guards])]))


def _suggested(error: Exception) -> str:
    """The sizes that PyTorch would take instead of those that were left open, where it knows some."""
    _, found, text = str(error).partition("Suggested fixes:\n")
    fixes = itertools.takewhile(bool, map(str.strip, text.splitlines()))
    return f"in dynamic_shapes: {', '.join(fixes)}" if found else ""


def _remedy(error: Exception) -> str:
    """What a user may do about an error of ``torch.export``'s."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return _BRANCH
    if isinstance(error, DynamicOutputShapeException):
        return _INSTEAD.get(
            str(error.func), "compute it outside of the module, as PyTorch has no sizes for its results"
        )
    return _suggested(error) or "torch.export.export(model, args, strict=False) shows the whole reason"


_INSTEAD = {"aten.linalg_lstsq.default": "write torch.linalg.pinv(a) @ b, whose sizes are known"}
"""Of operators that PyTorch cannot capture, since their results may be empty."""

_BRANCH = "choose by torch.where or torch.cond; torch.compile(module, backend='weft') leaves the choice to Python"


def _place(error: Exception) -> str:
    """The last line outside of PyTorch and of this package that led to an error; code that PyTorch makes has none."""
    inside = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.line and not frame.filename.startswith(inside)]  # fmt: skip
    last = frames[-1] if frames else None
    return f"{Path(last.filename).name}:{last.lineno} ({last.line})" if last is not None else ""


def _names(program: ExportedProgram, count: int) -> list[str]:
    """Of the user's outputs: by the keys under which ``forward`` returns them, if it does."""
    plain = ["output"] if count == 1 else [f"output{number}" for number in range(count)]
    spec = program.call_spec.out_spec
    if spec is None or spec.num_leaves != count:
        return plain
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), spec))[0]
    keys = [[str(getattr(key, "key", getattr(key, "name", ""))) for key in path] for path, _ in paths]
    named = [".".join(part for part in path if part) for path in keys]
    return named if all(named) and len(set(named)) == count else plain


def open_program(path: str | Path) -> Source:
    """The source of a file that ``torch.export.save`` wrote. Raises ModelError."""
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # a damaged archive raises whatever its parts raise
        raise ModelError(f"{str(path)!r} cannot be read as an exported program: {_reason(error)}") from error
    return source_of(program, Path(path).stem)


def from_torch(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str = "",
) -> Source:
    """A PyTorch model as `weft.compile` takes it.

    model
        A module, which ``torch.export`` captures with the example inputs, or a program that it captured. A module in
        training mode is captured as it is: call ``eval()`` first for inference.
    args, kwargs
        Example inputs of ``forward``: their shapes and types become those of the model.
    dynamic_shapes
        As ``torch.export.export`` takes it: sizes that stay open. A CPU target compiles for them as they come; others
        are given them by ``shapes=``.
    name
        Of the model in reports; by default that of its class.

    Raises ModelError for what cannot be captured or read; the text names the operators and the lines.
    """
    if isinstance(model, ExportedProgram):
        return source_of(model, name or "model", _symbol_names(model, dynamic_shapes))
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"model is {with_article(type(model).__name__)}, but must be a torch.nn.Module or an ExportedProgram"
        )
    if isinstance(args, torch.Tensor):
        args = (args,)
    try:
        with torch.no_grad():
            program = torch.export.export(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # capturing runs the user's code, which raises anything
        place = _place(error)
        raise ModelError(
            f"torch.export cannot capture {type(model).__name__}: {_reason(error)}{f' (at {place})' if place else ''}",
            hint=_remedy(error),
        ) from error  # fmt: skip
    return source_of(program, name or type(model).__name__.lower(), _symbol_names(program, dynamic_shapes))


def _symbol_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """The user's names of open sizes by PyTorch's, from where both stand."""
    if not dynamic_shapes:
        return {}
    given = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, Mapping) else list(dynamic_shapes)
    users = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in users]
    names: dict[str, str] = {}
    by_name = dict(dynamic_shapes) if isinstance(dynamic_shapes, Mapping) else {}
    for number, node in enumerate(nodes):
        sizes = by_name.get(node.name) if node.name in by_name else given[number] if number < len(given) else None
        value = node.meta.get("val")
        if sizes is None or not isinstance(value, torch.Tensor):
            continue
        if not isinstance(sizes, (Mapping, list, tuple)):
            continue
        for axis, dim in sizes.items() if isinstance(sizes, Mapping) else enumerate(sizes):
            name, size = getattr(dim, "__name__", ""), value.shape[axis]
            if name and name.isidentifier() and isinstance(size, torch.SymInt):
                names.setdefault(str(size.node.expr), name)
    return names
