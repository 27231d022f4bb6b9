"""Examples from a file, cut into batches of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ..compiler.graph import Array, Module
from ..compiler.graph.dtypes import numpy_dtype
from ..runtime.array_files import arrays_in, typed
from ..runtime.inputs import named_inputs
from .errors import QuantiseError


class Input(Protocol):
    """What an input is: its name, its shape, and the type of its elements."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


def read_examples(path: Path, module: Module) -> list[dict[str, Array]]:
    """The batches in a .npz file with an array for each input, or in a .npy file for a model of one input.

    An array has the input's shape, but for the first axis, which is a multiple of the input's: one batch behind the
    other. Raises `QuantiseError`, or InputError for a file of another kind.
    """
    return batches_in(path, arrays_in(path), module.main.params)


def batches_in(path: Path, arrays: Array | Mapping[str, Array], inputs: Sequence[Input]) -> list[dict[str, Array]]:
    """As `read_examples`, of arrays that were read from ``path``."""
    given = named_inputs(arrays, [each.name for each in inputs])
    batches = {each.name: _batches(path, given[each.name], each) for each in inputs}
    counts = {name: len(each) for name, each in batches.items()}
    if len(set(counts.values())) > 1:
        raise QuantiseError(f"{path}: the inputs have different numbers of examples: {_listed(counts)}")
    return [dict(zip(batches, batch, strict=True)) for batch in zip(*batches.values(), strict=True)]


def _batches(path: Path, given: Array, wanted: Input) -> list[Array]:
    name, dtype = wanted.name, numpy_dtype(wanted.dtype)
    kind = f"{wanted.dtype}{list(wanted.shape)}"
    if not wanted.shape:
        raise QuantiseError(f"{path}: input {name!r} is one number: examples of it cannot stand in one array")
    value, rows = typed(given, wanted.dtype), wanted.shape[0]
    if value.shape[1:] != wanted.shape[1:] or not value.size:
        raise QuantiseError(f"{path}: {name!r} is {list(value.shape)}, but examples for the input {kind} are "
                            f"{[f'k x {rows}', *wanted.shape[1:]]}".replace("'", ""))  # fmt: skip
    if len(value) % rows:
        fewer = len(value) // rows * rows
        raise QuantiseError(f"{path}: the {len(value):,} examples of {name!r} are no multiple of the batch, {rows}: "
                            f"the input is {kind}", hint=_whole_batches(fewer, fewer + rows))  # fmt: skip
    if value.dtype != dtype:
        if not np.can_cast(value.dtype, dtype, "same_kind"):
            raise QuantiseError(f"{path}: {name!r} is of {value.dtype}, but the input is {kind}")
        value = value.astype(dtype)
    return [value[start : start + rows] for start in range(0, len(value), rows)]


def _whole_batches(fewer: int, more: int) -> str:
    return f"give {fewer:,} or {more:,}" if fewer else f"give {more:,}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
