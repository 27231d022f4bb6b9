"""Front ends: from a user's model to the graph IR."""

from .errors import ModelError, NeedsValueError
from .onnx import from_onnx
from .specialise import Specialised, specialise

__all__ = ["ModelError", "NeedsValueError", "Specialised", "from_onnx", "specialise"]
