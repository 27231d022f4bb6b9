"""Complex numbers of LiteRT files: what is refused. What they give is judged with the suite's families."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.litert.source import LitertSource

from benchmarks.zoo.litert_models import ModelWriter, interpreted, options


def refused(net: ModelWriter, x: int, y: int, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        LitertSource(net.finish([x], [y]), "model").module()


def spectrum(lengths: tuple[int, int] = (1, 8)) -> tuple[ModelWriter, int, int]:
    net = ModelWriter()
    x, y = net.tensor((1, 8), "float32", name="x"), net.tensor((1, lengths[1] // 2 + 1), "complex64", name="y")
    net.op("RFFT2D", [x, net.constant(lengths, "int32")], [y])
    return net, x, y


def test_complex_outputs_are_refused() -> None:
    refused(*spectrum(), "it is complex, which is not supported")


def test_arithmetic_of_complex_numbers_is_refused() -> None:
    net, x, spectral = spectrum()
    y = net.tensor((1, 5), "complex64")
    net.op("MUL", [spectral, spectral], [y], options("MulOptions"))
    refused(net, x, y, "complex numbers are moved and taken apart, nothing else")


def test_a_complex_tensor_holds_complex_numbers() -> None:
    net, x, spectral = spectrum()
    y = net.tensor((1, 5), "float32")
    net.op("RESHAPE", [spectral, net.constant([1, 5], "int32")], [y], options("ReshapeOptions"))
    refused(net, x, y, "is float32, but what it would hold is not")
    net = ModelWriter()
    x, y = net.tensor((2, 4), "float32", name="x"), net.tensor((2, 4), "float32")
    net.op("REAL", [x], [y])
    refused(net, x, y, r"operand 0 is float32\[2, 4\], not complex")


@pytest.mark.parametrize("lengths", [(1, 1 << 20), (1 << 14, 2)])
def test_waves_that_would_fill_the_memory_are_refused(lengths: tuple[int, int]) -> None:
    """A damaged file may ask for matrices of any size."""
    refused(*spectrum(lengths), "it needs a tensor of shape")


def test_a_scaled_sigma_of_boxes_is_refused() -> None:
    net = ModelWriter()
    boxes, scores = net.tensor((3, 4), "float32", name="x"), net.constant(np.ones(3), "float32")
    limits = [net.constant(each, "float32") for each in (0.5, 0.0, 0.3)]
    results = [net.tensor((2,), "int32"), net.tensor((2,), "float32"), net.tensor((), "int32")]
    net.op("NON_MAX_SUPPRESSION_V5", [boxes, scores, net.constant(2, "int32"), *limits], results)
    refused(net, boxes, results[0], "sigma must be 0")


@pytest.mark.parametrize("kind", ["float32", "int32"])
def test_a_cast_of_complex_numbers_takes_the_real_part(kind: str) -> None:
    net, x, spectral = spectrum()
    y = net.tensor((1, 5), kind, name="taken")
    net.op("CAST", [spectral], [y], options("CastOptions"))
    file = net.finish([x], [y])
    values = np.random.default_rng(5).integers(-8, 9, (1, 8)).astype(np.float32)
    found = weft.load(weft.compile(file, target="cpu")).run({"x": values})["taken"]
    np.testing.assert_allclose(found, np.fft.rfft(values).real.astype(kind), atol=1e-5)
    if kind == "float32":
        (wanted,) = interpreted(file, [values])
        np.testing.assert_allclose(found, wanted, atol=1e-5)
