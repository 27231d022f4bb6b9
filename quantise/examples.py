"""Examples from a file, cut into batches of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..compiler.graph import Array, Module, TensorType
from ..compiler.graph.dtypes import numpy_dtype
from ..runtime.array_files import arrays_in
from ..runtime.inputs import named_inputs
from .errors import QuantiseError


def read_examples(path: Path, module: Module) -> list[dict[str, Array]]:
    """The batches in a .npz file with an array for each input, or in a .npy file for a model of one input.

    An array has the input's shape, but for the first axis, which is a multiple of the input's: one batch behind the
    other. Raises `QuantiseError`, or InputError for a file of another kind.
    """
    inputs = {param.name: param.type for param in module.main.params}
    given = named_inputs(arrays_in(path), list(inputs))
    batches = {name: _batches(path, name, given[name], kind) for name, kind in inputs.items()}
    counts = {name: len(each) for name, each in batches.items()}
    if len(set(counts.values())) > 1:
        raise QuantiseError(f"{path}: the inputs have different numbers of examples: {_listed(counts)}")
    return [dict(zip(batches, batch, strict=True)) for batch in zip(*batches.values(), strict=True)]


def _batches(path: Path, name: str, value: Array, kind: TensorType) -> list[Array]:
    if not kind.shape:
        raise QuantiseError(f"{path}: input {name!r} is one number: examples of it cannot stand in one array")
    rows = kind.shape[0]
    if value.shape[1:] != kind.shape[1:] or not value.size or len(value) % rows:
        raise QuantiseError(f"{path}: {name!r} is {list(value.shape)}, but examples for the input {kind} are "
                            f"{[f'k x {rows}', *kind.shape[1:]]}".replace("'", ""))  # fmt: skip
    if value.dtype != numpy_dtype(kind.dtype):
        if not np.can_cast(value.dtype, numpy_dtype(kind.dtype), "same_kind"):
            raise QuantiseError(f"{path}: {name!r} is of {value.dtype}, but the input is {kind}")
        value = value.astype(numpy_dtype(kind.dtype))
    return [value[start : start + rows] for start in range(0, len(value), rows)]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
