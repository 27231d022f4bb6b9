"""weft: co-design of tensor accelerators and their compiler, in Python.

>>> import weft
>>> model = weft.compile("model.onnx", "pynq")
>>> module = weft.load(model, device="rtl")
>>> outputs = module.run({"image": image})

On this machine's processor:

>>> module = weft.load(weft.compile("model.onnx", target="cpu", threads=2))
>>> outputs = module.run({"image": image})
"""

from .api import compile, load
from .build_schedule import BuiltFunction, build
from .compiler.compiled import CompiledModel
from .compiler.compiled_cpu import CpuModel
from .compiler.compiled_symbolic import SymbolicCpuModel
from .compiler.frontends import infer_types
from .errors import WeftError
from .hw.config import PYNQ, TINY, WIDE, CoreConfig, named_config
from .runtime.artifact import save
from .runtime.cpu import CpuModule
from .runtime.cpu_symbolic import SymbolicCpuModule
from .runtime.device import Device, FsimDevice, NullDevice, RtlDevice, open_device
from .runtime.module import LoadedModule
from .runtime.trace import write_trace

__all__ = [
    "PYNQ",
    "TINY",
    "WIDE",
    "BuiltFunction",
    "CompiledModel",
    "CoreConfig",
    "CpuModel",
    "CpuModule",
    "Device",
    "FsimDevice",
    "LoadedModule",
    "NullDevice",
    "RtlDevice",
    "SymbolicCpuModel",
    "SymbolicCpuModule",
    "WeftError",
    "build",
    "compile",
    "infer_types",
    "load",
    "named_config",
    "open_device",
    "save",
    "write_trace",
]
