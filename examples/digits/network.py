"""The digits network in plain NumPy: forward and backward, small enough to train in half a minute.

Activations are (N, H, W, C) here, because a convolution is then one matrix product; weights have ONNX's
layout (output channel, input channel, row, column). The network, with a residual around the third convolution::

    image -> conv1 -> relu -> conv2 -> relu --+-> conv3 -> add -> relu -> max pool 2x2 -> average pool -> dense
                                              +--------------^
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Parameters = dict[str, Array]

CHANNELS = (16, 32, 32)
CLASSES = 10


def initial_parameters(generator: np.random.Generator) -> Parameters:
    """Random weights with the variance that keeps the signal through a ReLU (He), and zero biases."""
    parameters: Parameters = {}
    inputs = 1
    for index, outputs in enumerate(CHANNELS, start=1):
        weight = generator.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        parameters[f"conv{index}.weight"] = weight.astype(np.float32)
        parameters[f"conv{index}.bias"] = np.zeros(outputs, np.float32)
        inputs = outputs
    weight = generator.standard_normal((CLASSES, inputs)) * np.sqrt(1 / inputs)
    parameters["dense.weight"] = weight.astype(np.float32)
    parameters["dense.bias"] = np.zeros(CLASSES, np.float32)
    return parameters


def logits(parameters: Parameters, images: Array) -> Array:
    """Scores (N, 10) of ``images`` (N, 1, 8, 8)."""
    return _forward(parameters, images)["logits"]


def loss_and_gradients(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> tuple[float, Parameters]:
    """Mean cross entropy of a batch, and its gradient for every parameter (same names and shapes)."""
    values = _forward(parameters, images)
    shifted = values["logits"] - values["logits"].max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    picked = np.arange(len(labels)), labels
    loss = -float(np.log(probabilities[picked]).mean())

    gradient = probabilities.copy()
    gradient[picked] -= 1
    gradient /= len(labels)
    return loss, _backward(parameters, values, gradient)


def _forward(parameters: Parameters, images: Array) -> dict[str, Array]:
    values: dict[str, Array] = {"image": np.moveaxis(images, 1, 3)}
    values["relu1"] = np.maximum(_convolve(values["image"], parameters, "conv1"), 0)
    values["relu2"] = np.maximum(_convolve(values["relu1"], parameters, "conv2"), 0)
    values["relu3"] = np.maximum(_convolve(values["relu2"], parameters, "conv3") + values["relu2"], 0)
    values["pooled"] = _pool_windows(values["relu3"]).max(axis=(2, 4))
    values["features"] = values["pooled"].mean(axis=(1, 2))
    values["logits"] = values["features"] @ parameters["dense.weight"].T + parameters["dense.bias"]
    return values


def _backward(parameters: Parameters, values: dict[str, Array], gradient: Array) -> Parameters:
    """``gradient`` is that of the logits, (N, 10)."""
    gradients: Parameters = {
        "dense.weight": gradient.T @ values["features"],
        "dense.bias": gradient.sum(axis=0),
    }
    _, rows, columns, _ = values["pooled"].shape
    gradient = (gradient @ parameters["dense.weight"])[:, np.newaxis, np.newaxis] / (rows * columns)
    gradient = _max_pool_gradient(values["relu3"], values["pooled"], gradient)

    sum_gradient = gradient * (values["relu3"] > 0)
    gradient = _convolve_gradients(values["relu2"], sum_gradient, parameters, "conv3", gradients) + sum_gradient
    gradient = gradient * (values["relu2"] > 0)
    gradient = _convolve_gradients(values["relu1"], gradient, parameters, "conv2", gradients)
    gradient = gradient * (values["relu1"] > 0)
    _convolve_gradients(values["image"], gradient, parameters, "conv1", gradients)
    return gradients


def _columns(inputs: Array) -> Array:
    """Every 3x3 neighbourhood of (N, H, W, C), zero-padded, as a row (N * H * W, C * 9)."""
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    columns: Array = windows.reshape(-1, inputs.shape[3] * 9)
    return columns


def _convolve(inputs: Array, parameters: Parameters, name: str) -> Array:
    weight = parameters[f"{name}.weight"]
    outputs = _columns(inputs) @ weight.reshape(len(weight), -1).T + parameters[f"{name}.bias"]
    return outputs.reshape(*inputs.shape[:3], len(weight))


def _convolve_gradients(
    inputs: Array, gradient: Array, parameters: Parameters, name: str, gradients: Parameters
) -> Array:
    """Store the gradients of the layer ``name`` in ``gradients``; return that of its input."""
    weight = parameters[f"{name}.weight"]
    outputs = gradient.reshape(-1, len(weight))
    gradients[f"{name}.weight"] = (outputs.T @ _columns(inputs)).reshape(weight.shape)
    gradients[f"{name}.bias"] = outputs.sum(axis=0)

    batch, height, width, channels = inputs.shape
    windows = (outputs @ weight.reshape(len(weight), -1)).reshape(batch, height, width, channels, 3, 3)
    padded = np.zeros((batch, height + 2, width + 2, channels), outputs.dtype)
    for row in range(3):
        for column in range(3):
            padded[:, row : row + height, column : column + width] += windows[..., row, column]
    return padded[:, 1:-1, 1:-1]


def _pool_windows(inputs: Array) -> Array:
    """(N, H, W, C) as non-overlapping 2x2 windows (N, H / 2, 2, W / 2, 2, C)."""
    batch, height, width, channels = inputs.shape
    return inputs.reshape(batch, height // 2, 2, width // 2, 2, channels)


def _max_pool_gradient(inputs: Array, pooled: Array, gradient: Array) -> Array:
    """``gradient`` broadcasts against ``pooled``; elements that share a maximum share its gradient."""
    chosen = _pool_windows(inputs) == pooled[:, :, np.newaxis, :, np.newaxis]
    share = chosen / chosen.sum(axis=(2, 4), keepdims=True)
    spread = np.broadcast_to(gradient, pooled.shape)[:, :, np.newaxis, :, np.newaxis]
    gradients: Array = (share * spread).reshape(inputs.shape).astype(gradient.dtype)
    return gradients
