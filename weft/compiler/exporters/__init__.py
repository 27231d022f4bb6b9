"""From the graph IR to files that other tools read."""

from .errors import ExportError
from .onnx import export_onnx
from .tail import with_tail

__all__ = ["ExportError", "export_onnx", "with_tail"]
