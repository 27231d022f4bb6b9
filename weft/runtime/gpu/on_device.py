"""Runs whose inputs and results stay in a GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.graph.dtypes import STRING, numpy_dtype
from ..errors import DeviceError, InputError
from .cuda import CudaGpu
from .dlpack import CUDA, TensorThere, capsule_of, is_there, taken
from .executor import GpuExecutor
from .gpu import Memory

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class DeviceTensor:
    """A result in the memory of a GPU of NVIDIA's. Its memory is its own, and lives as long as this or what another
    library has made of it: ``torch.from_dlpack(tensor)``, and so in JAX and CuPy."""

    shape: tuple[int, ...]
    dtype: str
    _gpu: CudaGpu
    _memory: Memory

    def numpy(self) -> Array:
        """A copy on the host."""
        data = np.empty(self.shape, numpy_dtype(self.dtype))
        if data.nbytes:
            self._gpu.read(self._memory, 0, data)
        return data

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """A capsule for other libraries. The tensor is complete, so that no ``stream`` has to wait."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the tensor is given where it is, and as it is")
        return capsule_of(TensorThere(self._gpu.device.number, self._gpu.address_of(self._memory), self.shape,
                                      self.dtype, self._memory))  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._gpu.device.number


def gpu_of(executor: object) -> CudaGpu:
    """The GPU that a step runs on; DeviceError where it is none of NVIDIA's."""
    gpu = getattr(executor, "gpu", None)
    if not isinstance(gpu, CudaGpu):
        raise DeviceError("the model does not run on a GPU of NVIDIA's as a whole",
                          hint="compile it with target='cuda', and load it onto a GPU")  # fmt: skip
    return gpu


def tensors_there(inputs: Mapping[str, Any], gpu: CudaGpu) -> dict[str, TensorThere]:
    """Those of the inputs that are in a GPU's memory, which has to be this one's."""
    return {
        name: taken(name, value, gpu.device.number, gpu.stream) for name, value in inputs.items() if is_there(value)
    }


def run_on_device(executor: GpuExecutor, gpu: CudaGpu, inputs: Sequence[Array | TensorThere]) -> list[DeviceTensor]:
    """Run a program once; its results get memory of their own. The inputs fit; the caller lets in one run at a time."""
    outputs = executor.program.outputs
    for each in outputs:
        if each.dtype == STRING:
            raise InputError(f"output {each.name!r} is of strings, which are in no GPU's memory", hint="use run")
    made = executor.execute_on_device(inputs, gpu.borrowed)
    return [DeviceTensor(each.shape, each.dtype, gpu, memory) for each, memory in zip(outputs, made, strict=True)]
