"""Images in files: decoded as Pillow does, and refused before they are if they are too large."""

from __future__ import annotations

import io
import sys

import numpy as np
import onnx
import pytest
from onnx import helper
from weft.compiler.frontends import ModelError, NeedsValueError, from_onnx
from weft.compiler.frontends.onnx import image as image_module
from weft.compiler.graph import Array, evaluate

Image = pytest.importorskip("PIL.Image", reason="images are decoded by Pillow")


def file_of(pixels: Array, format_: str) -> Array:
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, format=format_)
        return np.frombuffer(file.getvalue(), np.uint8)


def model_of(kind: str, size: int) -> onnx.ModelProto:
    node = helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format=kind)
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, shape)]
            for name, shape in (("x", [size]), ("y", [None, None, None]))]  # fmt: skip
    return helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=[helper.make_opsetid("", 20)],
                             ir_version=10)  # fmt: skip


def decoded(file: Array, kind: str = "RGB") -> Array:
    return evaluate(from_onnx(model_of(kind, len(file)), values={"x": file}, require_quantised=False), {})["y"]


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)


@pytest.mark.parametrize("format_", ["PNG", "BMP", "TIFF", "PPM"])
def test_pixels_are_those_of_the_file(format_: str) -> None:
    file = file_of(PIXELS, format_)
    np.testing.assert_array_equal(decoded(file), PIXELS)
    np.testing.assert_array_equal(decoded(file, "BGR"), PIXELS[:, :, ::-1])
    grey = decoded(file, "Grayscale")
    assert grey.shape == (5, 7, 1)
    np.testing.assert_allclose(grey[:, :, 0], PIXELS @ [0.299, 0.587, 0.114], atol=1)


def test_grey_images_have_the_channels_that_are_asked_for() -> None:
    file = file_of(PIXELS[:, :, 0], "PNG")
    np.testing.assert_array_equal(decoded(file), np.repeat(PIXELS[:, :, :1], 3, axis=2))


@pytest.mark.parametrize("file", [b"", b"\x89PNG\r\n\x1a\n", b"no image at all", bytes(file_of(PIXELS, "PNG")[:60])])
def test_what_cannot_be_decoded_has_no_pixels(file: bytes) -> None:
    assert decoded(np.frombuffer(file, np.uint8)).shape == (0, 0, 3)


def test_other_formats_of_pillow_are_not_decoded() -> None:
    assert decoded(file_of(PIXELS[:, :, 0], "GIF")).shape == (0, 0, 3)


def test_large_images_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "MOST_PIXELS", 34)
    with pytest.raises(ModelError, match="7 x 5 pixels, more than 34"):
        decoded(file_of(PIXELS, "PNG"))


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(PIXELS, "PNG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModelError, match=r"pip install 'weft\[images\]'"):
        decoded(file)


def test_the_file_must_be_known_and_of_bytes() -> None:
    with pytest.raises(NeedsValueError, match="the file with the image must be a constant"):
        from_onnx(model_of("RGB", 9), require_quantised=False)
    with pytest.raises(ModelError, match="must be one of RGB, BGR, Grayscale"):
        decoded(file_of(PIXELS, "PNG"), "CMYK")
