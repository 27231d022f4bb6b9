"""From a float model to an int8 one, by onnxruntime: per-channel weights, activations calibrated on images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from .network import Array

FORMATS = {"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}
ACTIVATIONS = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}


def quantise(model: onnx.ModelProto, images: Array, path: Path, *, form: str, activations: str) -> None:
    """Write ``model`` to ``path``, its weights int8 with one scale per output channel.

    ``form`` is a key of `FORMATS`, ``activations`` one of `ACTIVATIONS`; ``images`` (N, C, H, W) give the ranges.
    """
    with tempfile.TemporaryDirectory() as folder:
        typed_path = Path(folder) / "typed.onnx"
        # Batch normalisation is folded already; onnxruntime's optimiser would only rename things.
        quant_pre_process(model, typed_path, skip_optimization=True, skip_symbolic_shape=True)
        quantize_static(
            typed_path,
            path,
            _Images(model.graph.input[0].name, images),
            quant_format=FORMATS[form],
            per_channel=True,
            activation_type=ACTIVATIONS[activations],
            weight_type=QuantType.QInt8,
        )


class _Images(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Feeds images to the calibration, one at a time."""

    def __init__(self, name: str, images: Array) -> None:
        self._name = name
        self._images: Iterator[Array] = iter(images)

    def get_next(self) -> dict[str, Array] | None:
        image = next(self._images, None)
        return None if image is None else {self._name: image[np.newaxis]}
