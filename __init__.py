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

from . import quantise, train
from .api import compile, load
from .boards.device import PynqDevice
from .build_schedule import BuiltFunction, build
from .compiler import operators
from .compiler.exporters import export_onnx
from .compiler.frontends import infer_types
from .compiler.graph.gradient import CustomGradient
from .compiler.model import CompiledModel, OpenModel
from .compiler.passes.gradient import grad, lift_constants
from .compiler.passes.pipeline import PassOptions
from .compiler.targets.registry import register_target
from .compiler.targets.target import Target
from .errors import WeftError
from .hw.config import PYNQ, TINY, WIDE, CoreConfig, named_config
from .hw.dram_rate import DramRate
from .runtime.artifact import save
from .runtime.device import Device, FsimDevice, LocalDevice, NullDevice, RtlDevice, open_device, register_device
from .runtime.module import LoadedModule
from .runtime.open_module import OpenModule
from .runtime.recording import Recording, RecordingDevice, load_recording, save_recording
from .runtime.replay import replay
from .runtime.trace import write_trace

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
    "PynqDevice",
    "Recording",
    "RecordingDevice",
    "RtlDevice",
    "Target",
    "WeftError",
    "build",
    "compile",
    "export_onnx",
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
