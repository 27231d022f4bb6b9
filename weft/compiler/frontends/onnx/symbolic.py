"""ONNX models whose inputs leave sizes open: which symbols there are, and the type of each tensor for any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from ...graph import GraphError, TensorType
from ...graph.symbolic import SymbolicInput, SymbolicTypes, bind_sizes, infer_symbolic, sizes_text
from ..errors import ModelError, NeedsValueError
from .cut import types_before
from .reader import load_model, tensor_types
from .types import dtype_name, known_size, symbol_of


def symbolic_inputs(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[SymbolicInput, ...]:
    """The tensors that a run of ``model`` takes, with a symbol for every dimension that it leaves open.

    A dimension without a name is called ``input.axis``. ``shapes`` fixes the symbols of the inputs that it gives, in
    the other inputs too. Inputs whose rank is not known are left out. Raises `ModelError` for shapes that do not fit.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    found: list[SymbolicInput] = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        if value.name in constants or not value.type.HasField("tensor_type"):
            continue
        if not kind.HasField("shape") and value.name in (shapes or {}):
            found.append(SymbolicInput(value.name, tuple((shapes or {})[value.name]), dtype_name(kind.elem_type)))
        elif kind.HasField("shape"):
            sizes = [symbol_of(dim) or f"{value.name}.{axis}" if (known := known_size(dim)) is None else known
                     for axis, dim in enumerate(kind.shape.dim)]  # fmt: skip
            found.append(SymbolicInput(value.name, tuple(sizes), dtype_name(kind.elem_type)))
    try:
        fixed = bind_sizes(found, shapes or {})
    except GraphError as error:
        raise ModelError(error.message, hint=error.hint) from None
    return tuple(
        replace(each, shape=tuple(fixed.get(size, size) if isinstance(size, str) else size for size in each.shape))
        for each in found
    )


def infer_types(
    source: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> SymbolicTypes:
    """The type of every tensor of a model, for any size of the symbols among the dimensions of its inputs.

    >>> print(weft.infer_types("resnet18.onnx").types["logits"])
    float32[N, 1000]

    Tensors whose size the values of a run decide have no type. ``shapes`` fixes inputs, as for `from_onnx`. Raises
    `ModelError` for a model that cannot be read at all, or not for several sizes.
    """
    model = load_model(source)
    inputs = symbolic_inputs(model, shapes)

    def types_at(sizes: Mapping[str, int]) -> dict[str, TensorType]:
        chosen = {**(shapes or {}), **{each.name: each.at(sizes) for each in inputs}}
        try:
            return tensor_types(model, chosen)
        except NeedsValueError as error:
            return types_before(model, chosen, error)
        except ModelError as error:
            advice = "where only some sizes are good, fix them by shapes=, in which -1 leaves a size open"
            tried = f"read with {sizes_text(sizes)}; {advice}" if sizes else ""
            raise ModelError(error.message, at=error.at, hint="; ".join(filter(None, (error.hint, tried)))) from None

    return infer_symbolic(inputs, types_at)
