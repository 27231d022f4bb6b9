"""Train the digits network with compiled steps: loss, gradients and update are one graph, made by weft, on the CPU.

The network is that of ``network.py``, read from ONNX; nothing here knows its layers.
Seeded: the same machine and number of threads give the same parameters.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import weft
from numpy.typing import NDArray
from weft.compiler.frontends import from_onnx

from data import Digits, split_digits
from export import float_model
from network import Array, Parameters, initial_parameters, logits

SEED = 1
BATCH = 64
PEAK_RATE = 0.1
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


def compiled_training(parameters: Parameters, batch: int, threads: int) -> weft.train.Training:
    """A training of the network from these parameters."""
    module = from_onnx(float_model(parameters, batch), require_quantised=False)
    module, start = weft.lift_constants(module, list(parameters))
    step = weft.train.sgd(
        weft.train.cross_entropy(module), list(start), momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
    )
    return weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu", threads=threads)))


def train(training: weft.train.Training, digits: Digits, epochs: int, batch: int = BATCH) -> float:
    """Rates fall with a cosine. Gives the mean loss of the last epoch."""
    generator = np.random.default_rng(SEED)
    batches = len(digits.images) // batch
    mean = float("inf")
    for epoch in range(epochs):
        order = generator.permutation(len(digits.images))
        losses, started = [], time.perf_counter()
        for number in range(batches):
            chosen = order[number * batch : (number + 1) * batch]
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * training.steps / (epochs * batches)))
            result = training.step({"image": digits.images[chosen], "labels": digits.labels[chosen]}, rate)
            losses.append(float(result["loss"]))
        mean, seconds = float(np.mean(losses)), time.perf_counter() - started
        print(f"epoch {epoch + 1:3d}  mean loss {mean:.4f}  {batches * batch / seconds:,.0f} images/s")
    return mean


def accuracy(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> float:
    """Share of the images that the network names correctly."""
    return float(np.mean(logits(parameters, images).argmax(axis=1) == labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    train_digits, test_digits = split_digits()
    training = compiled_training(initial_parameters(np.random.default_rng(SEED)), BATCH, options.threads)
    train(training, train_digits, options.epochs)
    print(f"test accuracy {accuracy(training.parameters, test_digits.images, test_digits.labels):.2%}")


if __name__ == "__main__":
    main()
