"""The forms in which onnxruntime's `quantize_static` writes a model."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

Array = npt.NDArray[Any]
Inputs = dict[str, Array]


@dataclass(frozen=True)
class Form:
    """How a model is quantised. ``extra``: onnxruntime's ``extra_options`` that are on; ``all_operators``: also those
    that `quantize_static` leaves alone unless they are named."""

    layout: str = "QDQ"
    activation: str = "QUInt8"
    weight: str = "QInt8"
    per_channel: bool = False
    reduce_range: bool = False
    pre_process: bool = False
    all_operators: bool = False
    method: str = "MinMax"
    extra: tuple[str, ...] = ()

    def __str__(self) -> str:
        flags = [
            name for name in ("per_channel", "reduce_range", "pre_process", "all_operators") if getattr(self, name)
        ]
        method = () if self.method == "MinMax" else (self.method,)
        return " ".join([self.layout, self.activation, self.weight, *method, *flags, *self.extra])


PLAIN = Form()
TYPES = (("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8"))
"""Activations and weights; onnxruntime refuses int8 activations with uint8 weights."""

OPTIONS = {
    "QDQ": (
        "ActivationSymmetric", "WeightSymmetric", "AddQDQPairToWeight", "DedicatedQDQPair",
        "QDQKeepRemovableActivations", "ForceQuantizeNoInputCheck", "ActivationRestrictedAsymmetric",
        "UseQDQContribOps", "CalibTensorRangeSymmetric", "QDQDisableWeightAdjustForInt32Bias",
    ),
    "QOperator": ("ActivationSymmetric", "WeightSymmetric", "ForceQuantizeNoInputCheck", "CalibTensorRangeSymmetric"),
}  # fmt: skip
"""Of ``extra_options``, those that change the file, by layout."""


def random_form(random: np.random.Generator) -> Form:
    """Any form that onnxruntime takes."""
    layout = "QDQ" if random.random() < 0.65 else "QOperator"
    activation, weight = TYPES[int(random.integers(len(TYPES)))]
    options = [name for name in OPTIONS[layout] if random.random() < 0.15]
    if activation != "QUInt8" and "ActivationRestrictedAsymmetric" in options:
        options.remove("ActivationRestrictedAsymmetric")
    return Form(
        layout, activation, weight, per_channel=bool(random.random() < 0.5), reduce_range=bool(random.random() < 0.25),
        pre_process=bool(random.random() < 0.4), all_operators=bool(random.random() < 0.3),
        method=str(random.choice(["MinMax", "MinMax", "MinMax", "Percentile"])), extra=tuple(options),
    )  # fmt: skip


@dataclass
class _Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    batches: Sequence[Inputs]
    place: int = field(default=0)

    def get_next(self) -> Inputs | None:
        self.place += 1
        return self.batches[self.place - 1] if self.place <= len(self.batches) else None


LEFT_ALONE = "nothing of it is quantised"
"""Of a model without an operator that `quantize_static` quantises for its own sake."""


class NotQuantisedError(Exception):
    """onnxruntime cannot quantise a model, or leaves all of it in floating point."""


def quantised(model: onnx.ModelProto, batches: Sequence[Inputs], form: Form) -> onnx.ModelProto:
    """The model as `quantize_static` writes it, calibrated on ``batches``. Raises NotQuantisedError."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
        onnx.save(model, source)
        operators = sorted({node.op_type for node in model.graph.node}) if form.all_operators else None
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                if form.pre_process:
                    quant_pre_process(source, source, skip_symbolic_shape=True)
                quantize_static(
                    source, target, _Reader(batches), quant_format=QuantFormat[form.layout],
                    op_types_to_quantize=operators, per_channel=form.per_channel, reduce_range=form.reduce_range,
                    activation_type=QuantType[form.activation], weight_type=QuantType[form.weight],
                    calibrate_method=CalibrationMethod[form.method],
                    extra_options={**dict.fromkeys(form.extra, True), "WeightSymmetric": _symmetric(form)},
                )  # fmt: skip
        except Exception as error:  # it raises whatever its parts raise
            raise NotQuantisedError(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}") from error
        result = onnx.load(target)
    if any(np.isinf(numpy_helper.to_array(each)).any() for each in result.graph.initializer if "scale" in each.name):
        raise NotQuantisedError("a tensor that holds infinity was quantised: what follows is no number")
    kinds = {node.op_type for node in result.graph.node}
    if not kinds & {"QuantizeLinear", "DequantizeLinear"} and not any(kind.startswith("QLinear") for kind in kinds):
        raise NotQuantisedError(LEFT_ALONE)
    return result


def _symmetric(form: Form) -> bool:
    """onnxruntime's own default but where the form names it."""
    return "WeightSymmetric" in form.extra or form.weight == "QInt8"
