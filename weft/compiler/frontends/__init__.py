"""Front ends: from a user's model to the graph IR."""

from .errors import ModelError, NeedsValueError
from .litert import from_litert
from .onnx.reader import from_onnx, load_model
from .onnx.specialise import Specialised, specialise
from .onnx.symbolic import infer_types, symbolic_inputs
from .source import Source, for_batch, module_and_tail, read
from .stablehlo import from_jax
from .torch import from_torch

__all__ = [
    "ModelError", "NeedsValueError", "Source", "Specialised", "for_batch", "from_jax", "from_litert", "from_onnx",
    "from_torch", "infer_types", "load_model", "module_and_tail", "read", "specialise", "symbolic_inputs",
]  # fmt: skip
