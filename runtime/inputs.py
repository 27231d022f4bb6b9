"""What a user gives a model to run on, by the names of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError

Array = npt.NDArray[Any]


def named_inputs(inputs: Mapping[str, Array] | Array, names: Sequence[str]) -> dict[str, Array]:
    """One array for each name, in that order and in this machine's byte order; a model with one input may be given the
    array alone.

    Raises :class:`InputError` for inputs that are missing or unknown.
    """
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise InputError(f"the model has {len(names)} inputs", hint=f"give a dict: {', '.join(names)}")
        inputs = {names[0]: inputs}
    for name in inputs:
        if name not in names:
            raise InputError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(names)}")
    for name in names:
        if name not in inputs:
            raise InputError(f"input {name!r} is missing")
    return {name: _native(np.asarray(inputs[name])) for name in names}


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
