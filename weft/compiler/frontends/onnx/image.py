"""Images in files, decoded while the model is read: the size of the result depends on the bytes.

Pillow decodes them, which the extra ``images`` installs.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ...graph import Array, Constant
from ..errors import ModelError
from .node import Converted, Node, converter

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What may be decoded, by Pillow's names: no other of its many decoders sees a byte."""

MOST_PIXELS = 1 << 26
_MODES = {"RGB": ("RGB", 3), "BGR": ("RGB", 3), "Grayscale": ("L", 1)}


@converter("ImageDecoder")
def _image_decoder(node: Node) -> Converted:
    x = node.input(0)
    if x.dtype != "uint8" or len(x.shape) != 1:
        raise node.error(f"its operand must be the bytes of a file, uint8[n], not {x.tensor_type}")
    kind = node.string("pixel_format", "RGB")
    if kind not in _MODES:
        raise node.error(f"attribute 'pixel_format' must be one of {', '.join(_MODES)}, not {kind!r}")
    return Constant(_decoded(node, node.known(x, "the file with the image"), kind), node.span.tensor, node.span)


def _decoded(node: Node, file: Array, kind: str) -> Array:
    """The pixels, (height, width, channels) uint8, of the first image of a file; none if it cannot be decoded, as ONNX
    wants it. `ModelError` where Pillow is missing, and for an image of more than `MOST_PIXELS`."""
    try:
        from PIL import Image
    except ImportError:
        raise node.error("images are decoded by Pillow, which is not installed",
                         hint="pip install 'weft[images]'") from None  # fmt: skip
    mode, channels = _MODES[kind]
    try:
        with Image.open(io.BytesIO(file.tobytes()), formats=FORMATS) as image:
            _check_size(node, image.size)  # before a pixel is decoded
            pixels: Array = np.asarray(image.convert(mode)).reshape(image.height, image.width, channels)
    except (MemoryError, ModelError):
        raise
    except Image.DecompressionBombError as error:
        raise node.error(str(error), hint="use a smaller image") from None
    except Exception:  # damaged files raise whatever Pillow's parsers raise
        return np.zeros((0, 0, channels), np.uint8)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if kind == "BGR" else pixels


def _check_size(node: Node, size: Any) -> None:
    width, height = size
    if width * height > MOST_PIXELS:
        raise node.error(f"the image has {width:,} x {height:,} pixels, more than {MOST_PIXELS:,}",
                         hint="use a smaller image")  # fmt: skip
