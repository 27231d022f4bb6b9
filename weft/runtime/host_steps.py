"""What all that runs a host program shares: the check of its arrays, and the steps that NumPy does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import dtype_name, numpy_dtype
from ..compiler.graph.evaluate import evaluate_function
from ..compiler.graph.ir import GraphError
from ..compiler.model import CheckStep, HostProgram, NumpyStep, Place, TensorSpec
from .errors import InputError

Array = npt.NDArray[Any]


class Executor(Protocol):
    """A host program in memory, ready to run as often as wanted; its caller lets in one run at a time, with arrays that
    were checked."""

    @property
    def program(self) -> HostProgram:
        """What runs."""

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the program once. Raises `InputError` for an index that is outside of its axis."""

    def execute_timed(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[float, ...]:
        """As `execute`; gives the seconds of each of the program's layers."""


class HostStrings:
    """The strings of a run: no kernel reads or writes them, so they are in no memory but NumPy's."""

    def __init__(self) -> None:
        self._held: dict[int, Array] = {}

    def get(self, place: Place, inputs: Sequence[Any], outputs: Sequence[Array]) -> Array:
        """The strings at a place; of the inputs, those of strings are arrays."""
        if place.kind == "strings":
            return self._held[place.number]
        found: Array = (inputs if place.kind == "input" else outputs)[place.number]
        return found

    def put(self, place: Place, value: Array, outputs: Sequence[Array]) -> None:
        """Let strings be at a place, which is no input."""
        if place.kind == "strings":
            self._held[place.number] = value
        else:
            outputs[place.number][...] = value

    def clear(self) -> None:
        """Forget the run."""
        self._held.clear()


def check_arrays(program: HostProgram, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """InputError unless the arrays are contiguous and have the program's shapes and types, in its order."""
    if len(inputs) != len(program.inputs) or len(outputs) != len(program.outputs):
        raise InputError(f"the program takes {len(program.inputs)} inputs and {len(program.outputs)} outputs, "
                         f"not {len(inputs)} and {len(outputs)}")  # fmt: skip
    for tensor, array in zip(program.inputs, inputs, strict=True):
        if array.shape != tensor.shape or array.dtype != numpy_dtype(tensor.dtype) or not array.flags.c_contiguous:
            raise _mismatch("input", tensor, array)
    for tensor, array in zip(program.outputs, outputs, strict=True):
        if array.shape != tensor.shape or array.dtype != numpy_dtype(tensor.dtype) or not array.flags.carray:
            raise _mismatch("output", tensor, array)


def _mismatch(what: str, tensor: TensorSpec, array: Array) -> InputError:
    contiguous = "contiguous " if what == "output" or not array.flags.c_contiguous else ""
    return InputError(
        f"{what} {tensor.name!r} must be {contiguous}{tensor.dtype}{list(tensor.shape)}, "
        f"not {dtype_name(array.dtype)}{list(array.shape)}"
    )


def results_of(step: NumpyStep, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a step's operator; InputError where these values have none."""
    try:
        value = evaluate_function(step.function, inputs)
    except GraphError as error:
        raise InputError(error.message, at=error.at or step.function.body.span, hint=error.hint) from error
    return value if isinstance(value, tuple) else (value,)


def check_indices(indices: Array, step: CheckStep) -> None:
    """InputError for the first index that is not inside its axis."""
    values, sizes = indices.reshape(indices.shape or (1,)), np.array(step.sizes)
    outside = (values < -sizes) | (values >= sizes)
    if outside.any():
        sizes = np.broadcast_to(sizes, outside.shape)
        index, size = int(values[outside][0]), int(sizes[outside][0])
        raise InputError(f"index {index} is outside of an axis of {size} elements", at=step.node,
                         hint=f"it must be in -{size}..{size - 1}")  # fmt: skip
