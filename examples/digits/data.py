"""The handwritten digits that ship with scikit-learn, and the one split that everything here uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TEST_IMAGES = 360
SPLIT_SEED = 20


@dataclass(frozen=True)
class Digits:
    """One part of the data set: ``images`` is (N, 1, 8, 8) float32 in 0..1, ``labels`` is (N,) int64 in 0..9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def split_digits() -> tuple[Digits, Digits]:
    """The 1,437 training and 360 test images: always the same ones, with the same share of every digit."""
    bunch = load_digits()
    images = (bunch.images[:, np.newaxis] / 16.0).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=TEST_IMAGES, random_state=SPLIT_SEED, stratify=labels
    )
    return Digits(train_images, train_labels), Digits(test_images, test_labels)
