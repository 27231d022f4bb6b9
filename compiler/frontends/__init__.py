"""Front ends: from a user's model to the graph IR."""

from .errors import ModelError, NeedsValueError
from .onnx import from_onnx

__all__ = ["ModelError", "NeedsValueError", "from_onnx"]
