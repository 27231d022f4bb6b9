"""weft: co-design of tensor accelerators and their compiler, in Python.

>>> import weft
>>> model = weft.compile("model.onnx", "pynq")
>>> module = weft.load(model, device="rtl")
>>> outputs = module.run({"image": image})
"""

from .compiler.compile import compile_model as compile
from .compiler.compiled import CompiledModel
from .hw.config import PYNQ, TINY, WIDE, CoreConfig, named_config
from .runtime.artifact import save
from .runtime.device import Device, FsimDevice, NullDevice, RtlDevice, open_device
from .runtime.module import LoadedModule, load
from .runtime.trace import write_trace

__all__ = [
    "PYNQ",
    "TINY",
    "WIDE",
    "CompiledModel",
    "CoreConfig",
    "Device",
    "FsimDevice",
    "LoadedModule",
    "NullDevice",
    "RtlDevice",
    "compile",
    "load",
    "named_config",
    "open_device",
    "save",
    "write_trace",
]
