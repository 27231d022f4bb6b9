"""Networks of PyTorch Image Models (timm), which nobody here wrote, exported to ONNX with random weights."""

from __future__ import annotations

import io

import numpy as np
import onnx

from benchmarks.zoo.quantised_forms import Inputs

PREFIX = "timm:"
"""Of the names of these networks."""

OPSET = 17
BATCHES = 2
"""Of data for calibration."""


class NotExportedError(Exception):
    """timm is not installed, or has no such network."""


def exported_network(name: str) -> tuple[onnx.ModelProto, list[Inputs]]:
    """The float model of ``timm:NAME`` at its usual picture size, and data for it. Raises NotExportedError.

    Weights are timm's initial ones. Scales of batch normalisations that start at zero are drawn anew, as trained ones
    are not zero: with zeros whole layers would have nothing to compute.
    """
    try:
        import timm
        import torch
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision that was built for another torch
        raise NotExportedError(f"{name} needs timm, torch and torchvision: {error}") from error
    torch.manual_seed(0)
    try:
        network = timm.create_model(name.removeprefix(PREFIX), pretrained=False).eval()
    except RuntimeError as error:
        raise NotExportedError(f"{name}: {error}") from error
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d) and part.track_running_stats:
            for value, low in ((part.running_mean, -0.5), (part.running_var, 0.5), (part.weight, 0.5)):
                torch.nn.init.uniform_(value, low, low + 1)
    shape = (1, *network.default_cfg["input_size"])
    file = io.BytesIO()
    torch.onnx.export(network, (torch.zeros(shape),), file, dynamo=False, opset_version=OPSET, input_names=["x"])
    chance = np.random.default_rng(0)
    batches = [{"x": chance.standard_normal(shape).astype(np.float32)} for _ in range(BATCHES)]
    return onnx.load_from_string(file.getvalue()), batches
