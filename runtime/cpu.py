"""Running a model that is compiled for this machine's processor: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.compiled_cpu import CpuModel
from ..compiler.graph.dtypes import numpy_dtype
from .errors import InputError
from .host import HostExecutor
from .inputs import named_inputs

Array = npt.NDArray[Any]


class CpuModule:
    """A compiled model in memory, ready to run as often as wanted, from any thread and in forked processes.

    One run at a time, others wait; runs of several modules overlap.
    """

    def __init__(self, model: CpuModel) -> None:
        self.model = model
        self.executor = HostExecutor(model.program, model.code())
        self._input_names = [tensor.name for tensor in model.inputs]
        self._output_names = {tensor.name for tensor in model.outputs}
        self._new = [(tensor.name, tensor.shape, numpy_dtype(tensor.dtype)) for tensor in model.outputs]

    @property
    def arena_bytes(self) -> int:
        """Memory that is allocated for tensors between kernels."""
        return self.executor.arena_bytes

    def run(self, inputs: Mapping[str, Array] | Array, outputs: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Run the model once.

        inputs
            Arrays by name, or the one array of a model with one input. They are read where they are if they are
            contiguous.
        outputs
            Contiguous arrays to write to, by name; others are made. None may share memory with an input.

        Raises :class:`InputError` for data that does not fit.
        """
        values = named_inputs(inputs, self._input_names)
        arrays = [_contiguous(values[name]) for name in self._input_names]
        outputs = outputs or {}
        if not outputs.keys() <= self._output_names:
            name = min(outputs.keys() - self._output_names)
            raise InputError(f"the model has no output {name!r}",
                             hint=f"its outputs: {', '.join(sorted(self._output_names))}")  # fmt: skip
        results = [
            outputs[name] if name in outputs else np.empty(shape, dtype) for name, shape, dtype in self._new
        ]
        self.executor.run(arrays, results)
        return {name: array for (name, _, _), array in zip(self._new, results, strict=True)}


def _contiguous(value: Array) -> Array:
    """The array, copied if it is not contiguous."""
    return value if value.flags.c_contiguous else np.ascontiguousarray(value).reshape(value.shape)
