"""From nothing to the accelerator: digits trained in floats, calibrated, trained on in 8 bits, and run on the core.

All of it is compiled by weft and runs on this machine. The accuracy on the test images is printed at every station; the
last two are of the same integers: the network as the CPU computes it, and as the simulated core does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
import weft
from numpy.typing import NDArray
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module

from data import Digits, split_digits
from export import float_model
from network import Array, Parameters, initial_parameters
from train_compiled import BATCH, SEED, accuracy, compiled_training, train

CALIBRATION_IMAGES = 200
PEAK_RATE = 1e-3


def places(parameters: Parameters, batch: int) -> weft.quantise.Plan:
    """What of the network becomes 8 bits."""
    return weft.quantise.plan(from_onnx(float_model(parameters, batch), require_quantised=False))


def train_in_eight_bits(
    parameters: Parameters, ranges: Mapping[str, weft.quantise.Range], digits: Digits, epochs: int, power_of_two: bool
) -> Module:
    """The network after more training with rounded values, for one image a run."""
    eight = weft.quantise.trainable(places(parameters, BATCH), ranges, power_of_two=power_of_two)
    step = weft.train.adam(weft.train.cross_entropy(eight.module), list(eight.start), custom=weft.quantise.GRADIENTS)
    training = weft.train.Training(step, eight.start, weft.load(weft.compile(step.module, target="cpu")))
    generator = np.random.default_rng(SEED)
    batches = len(digits.images) // BATCH
    for epoch in range(epochs):
        order = generator.permutation(len(digits.images))
        losses = []
        for number in range(batches):
            chosen = order[number * BATCH : (number + 1) * BATCH]
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * training.steps / (epochs * batches)))
            result = training.step({"image": digits.images[chosen], "labels": digits.labels[chosen]}, rate)
            losses.append(float(result["loss"]))
        print(f"epoch {epoch + 1:3d} in 8 bits  mean loss {np.mean(losses):.4f}")
    one = weft.quantise.trainable(places(parameters, 1), ranges, power_of_two=power_of_two)
    return weft.quantise.deployed(one, training.parameters)


def answers(module: weft.LoadedModule, images: Array) -> Array:
    """Scores (N, 10)."""
    return np.concatenate([module.run({"image": image[None]})["logits"] for image in images])


def share(scores: Array, labels: NDArray[np.int64]) -> float:
    return float(np.mean(scores.argmax(axis=1) == labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="of training in floats")
    parser.add_argument("--more", type=int, default=5, help="epochs of training in 8 bits")
    parser.add_argument("--power-of-two", action="store_true", help="train scales that are powers of two")
    parser.add_argument("--device", default="fsim", help="of the core: fsim or rtl")
    parser.add_argument("--images", type=int, help="of the test, for the core; all by default")
    options = parser.parse_args()
    train_digits, test = split_digits()
    floats = compiled_training(initial_parameters(np.random.default_rng(SEED)), BATCH, 1)
    train(floats, train_digits, options.epochs)
    parameters = floats.parameters
    one = places(parameters, 1)
    ranges = weft.quantise.calibrate(
        one, [{"image": image[None]} for image in train_digits.images[:CALIBRATION_IMAGES]]
    )
    calibrated = weft.load(weft.compile(weft.quantise.quantised(one, ranges), target="cpu"))
    trained = train_in_eight_bits(parameters, ranges, train_digits, options.more, options.power_of_two)
    expected = answers(weft.load(weft.compile(trained, target="cpu")), test.images)
    some = slice(options.images)
    found = answers(weft.load(weft.compile(trained, "pynq"), device=options.device), test.images[some])
    print(f"floats                    {accuracy(parameters, test.images, test.labels):.2%}")
    print(f"8 bits, calibrated        {share(answers(calibrated, test.images), test.labels):.2%}")
    print(f"8 bits, trained           {share(expected, test.labels):.2%}")
    print(
        f"the same on the core      {share(found, test.labels[some]):.2%} of {len(found)} images, on {options.device}"
    )
    if not np.array_equal(found, expected[some]):
        raise SystemExit("the core computes other scores")
    print("the core's scores are those of the CPU, to the bit")


if __name__ == "__main__":
    main()
