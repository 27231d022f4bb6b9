"""Train the digits network, quantise it, and store it as ``digits.onnx`` beside this script.

Seeded: the same machine and library versions give the same file. Takes half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from data import Digits, split_digits
from examples.precise import precise_session
from export import float_model, quantise
from network import Array, Parameters, initial_parameters, logits, loss_and_gradients

SEED = 1
EPOCHS = 60
BATCH = 64
PEAK_RATE = 4e-3
WEIGHT_DECAY = 1e-4
CALIBRATION_IMAGES = 500
MODEL_PATH = Path(__file__).parent / "digits.onnx"


def train(digits: Digits) -> Parameters:
    """Adam with a cosine schedule; every image is moved by up to one pixel each time that it is seen."""
    generator = np.random.default_rng(SEED)
    parameters = initial_parameters(generator)
    first_moments = {name: np.zeros_like(value) for name, value in parameters.items()}
    second_moments = {name: np.zeros_like(value) for name, value in parameters.items()}
    batches = len(digits.images) // BATCH
    steps = EPOCHS * batches
    step = 0
    for epoch in range(EPOCHS):
        order = generator.permutation(len(digits.images))
        total_loss = 0.0
        for batch in range(batches):
            chosen = order[batch * BATCH : (batch + 1) * BATCH]
            images = _moved(digits.images[chosen], generator)
            loss, gradients = loss_and_gradients(parameters, images, digits.labels[chosen])
            total_loss += loss
            step += 1
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, gradient in gradients.items():
                first_moments[name] += 0.1 * (gradient - first_moments[name])
                second_moments[name] += 0.001 * (gradient**2 - second_moments[name])
                first = first_moments[name] / (1 - 0.9**step)
                second = second_moments[name] / (1 - 0.999**step)
                update = first / (np.sqrt(second) + 1e-8) + WEIGHT_DECAY * parameters[name]
                parameters[name] = (parameters[name] - rate * update).astype(np.float32)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}  mean loss {total_loss / batches:.4f}")
    return parameters


def _moved(images: Array, generator: np.random.Generator) -> Array:
    """Each of ``images`` (N, 1, 8, 8) moved by -1, 0 or 1 rows and columns, zeros following."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    offsets = generator.integers(0, 3, (len(images), 2))
    return np.stack(
        [image[:, row : row + 8, column : column + 8] for image, (row, column) in zip(padded, offsets, strict=True)]
    )


def accuracy_with_onnxruntime(path: Path, digits: Digits) -> float:
    """Share of ``digits`` that the model at ``path`` names correctly."""
    session = precise_session(path)
    answers = [int(np.argmax(session.run(None, {"image": image[np.newaxis]})[0])) for image in digits.images]
    return float(np.mean(np.asarray(answers) == digits.labels))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    train_digits, test_digits = split_digits()
    parameters = train(train_digits)
    float_answers = logits(parameters, test_digits.images).argmax(axis=1)
    quantise(float_model(parameters), train_digits.images[:CALIBRATION_IMAGES], MODEL_PATH)
    print(f"test accuracy, float      {float(np.mean(float_answers == test_digits.labels)):.2%}")
    print(f"test accuracy, quantised  {accuracy_with_onnxruntime(MODEL_PATH, test_digits):.2%}")
    print(f"{MODEL_PATH}: {MODEL_PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
