"""Front ends: from a user's model to the graph IR."""

from .errors import ModelError, NeedsValueError
from .onnx import from_onnx, load_model
from .onnx_symbolic import infer_types, symbolic_inputs
from .specialise import Specialised, specialise

__all__ = [
    "ModelError", "NeedsValueError", "Specialised", "from_onnx", "infer_types", "load_model", "specialise",
    "symbolic_inputs",
]  # fmt: skip
