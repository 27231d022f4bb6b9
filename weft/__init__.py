"""weft: co-design of tensor accelerators and their compiler, in Python.

>>> import weft
>>> model = weft.compile("model.onnx", "pynq")
>>> module = weft.load(model, device="rtl")
>>> outputs = module.run({"image": image})

On this machine's processor:

>>> module = weft.load(weft.compile("model.onnx", target="cpu", threads=2))
>>> outputs = module.run({"image": image})

``weft.save`` writes a compiled model into a file, which ``weft.load`` takes, too.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__: str

if TYPE_CHECKING:
    from . import quantise, train
    from .api import certify, compile, load
    from .boards.device import PynqDevice
    from .build_schedule import BuiltFunction, build
    from .compiler import operators
    from .compiler.exporters import export_onnx
    from .compiler.frontends import from_jax, from_litert, from_onnx, from_torch, infer_types
    from .compiler.graph.gradient import CustomGradient
    from .compiler.model import CompiledModel, OpenModel
    from .compiler.passes.gradient import grad, lift_constants
    from .compiler.passes.pipeline import PassOptions
    from .compiler.targets.registry import register_target
    from .compiler.targets.target import Target
    from .errors import WeftError
    from .hw.config import PYNQ, TINY, WIDE, CoreConfig, named_config
    from .hw.dram_rate import DramRate
    from .hw.system_config import SystemConfig
    from .runtime.artifact import save
    from .runtime.device import Device, FsimDevice, LocalDevice, NullDevice, RtlDevice, open_device, register_device
    from .runtime.module import LoadedModule
    from .runtime.open_module import OpenModule
    from .runtime.pipeline_module import PipelineModule
    from .runtime.recording import Recording, RecordingDevice, load_recording, save_recording
    from .runtime.replay import replay
    from .runtime.split_module import SplitModule
    from .runtime.system_module import SystemModule
    from .runtime.trace import write_trace

_PARTS = {
    "api": "certify compile load",
    "boards.device": "PynqDevice",
    "build_schedule": "BuiltFunction build",
    "compiler.exporters": "export_onnx",
    "compiler.frontends": "from_jax from_litert from_onnx from_torch infer_types",
    "compiler.graph.gradient": "CustomGradient",
    "compiler.model": "CompiledModel OpenModel",
    "compiler.passes.gradient": "grad lift_constants",
    "compiler.passes.pipeline": "PassOptions",
    "compiler.targets.registry": "register_target",
    "compiler.targets.target": "Target",
    "errors": "WeftError",
    "hw.config": "PYNQ TINY WIDE CoreConfig named_config",
    "hw.dram_rate": "DramRate",
    "hw.system_config": "SystemConfig",
    "runtime.artifact": "save",
    "runtime.device": "Device FsimDevice LocalDevice NullDevice RtlDevice open_device register_device",
    "runtime.module": "LoadedModule",
    "runtime.open_module": "OpenModule",
    "runtime.pipeline_module": "PipelineModule",
    "runtime.recording": "Recording RecordingDevice load_recording save_recording",
    "runtime.replay": "replay",
    "runtime.split_module": "SplitModule",
    "runtime.system_module": "SystemModule",
    "runtime.trace": "write_trace",
}
"""Where each name stands. A part is imported when a name of it is first used: whoever runs a model that was compiled
before needs no compiler, and whoever asks for the version needs nothing."""

_PACKAGES = {"operators": "compiler.operators", "quantise": "quantise", "train": "train"}

_MODULES = {name: part for part, names in _PARTS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    from .imports import IMPORTS

    with IMPORTS:
        value = _value(name)
    globals()[name] = value
    return value


def _value(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("weft")
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{_PACKAGES[name]}")
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PYNQ",
    "TINY",
    "WIDE",
    "BuiltFunction",
    "CompiledModel",
    "CoreConfig",
    "CustomGradient",
    "Device",
    "DramRate",
    "FsimDevice",
    "LoadedModule",
    "LocalDevice",
    "NullDevice",
    "OpenModel",
    "OpenModule",
    "PassOptions",
    "PipelineModule",
    "PynqDevice",
    "Recording",
    "RecordingDevice",
    "RtlDevice",
    "SplitModule",
    "SystemConfig",
    "SystemModule",
    "Target",
    "WeftError",
    "__version__",
    "build",
    "certify",
    "compile",
    "export_onnx",
    "from_jax",
    "from_litert",
    "from_onnx",
    "from_torch",
    "grad",
    "infer_types",
    "lift_constants",
    "load",
    "load_recording",
    "named_config",
    "open_device",
    "operators",
    "quantise",
    "register_device",
    "register_target",
    "replay",
    "save",
    "save_recording",
    "train",
    "write_trace",
]
