"""Images made from a seed: a shape in each, of any place, size, angle and colour, over clutter and noise.

The digits that come with scikit-learn are too easy to show what 8 bits cost. Classes differ here in the outline alone,
which colour, contrast and noise hide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

SIZE = 24
"""Height and width of an image of three colours."""

SOFTNESS = 0.06
"""Of an outline, in units of the shape."""


def _half_planes(u: Array, v: Array, corners: int) -> Array:
    """A regular polygon, by its distance from the centre."""
    angles = 2 * np.pi * np.arange(corners) / corners
    return np.asarray(np.max([u * np.cos(each) + v * np.sin(each) for each in angles], axis=0))


SHAPES: dict[str, Callable[[Array, Array], Array]] = {
    "disc": lambda u, v: np.hypot(u, v) - 0.75,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.65) - 0.2,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.66,
    "frame": lambda u, v: np.abs(np.maximum(np.abs(u), np.abs(v)) - 0.58) - 0.17,
    "triangle": lambda u, v: _half_planes(u, v, 3) - 0.5,
    "plus": lambda u, v: np.minimum(np.maximum(np.abs(u) - 0.85, np.abs(v) - 0.27),
                                    np.maximum(np.abs(v) - 0.85, np.abs(u) - 0.27)),
    "star": lambda u, v: np.hypot(u, v) - 0.6 * (1 + 0.45 * np.cos(5 * np.arctan2(v, u))),
    "half": lambda u, v: np.maximum(np.hypot(u, v) - 0.9, v),
    "crescent": lambda u, v: np.maximum(np.hypot(u, v) - 0.85, 0.7 - np.hypot(u - 0.4, v)),
    "bar": lambda u, v: np.maximum(np.abs(u) - 0.95, np.abs(v) - 0.3),
}  # fmt: skip
"""Each below 0 inside of the shape, about -1..1 in both axes."""

CLASSES = len(SHAPES)


@dataclass(frozen=True)
class Images:
    """``images`` is (N, 3, SIZE, SIZE) float32 of about -2..2, ``labels`` is (N,) int64, a place in `SHAPES`."""

    images: Array
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: slice | NDArray[np.int64]) -> Images:
        return Images(self.images[chosen], self.labels[chosen])


def shapes(count: int, seed: int) -> Images:
    """Image i depends on the seed and on i."""
    drawn = [_image(np.random.default_rng((seed, number))) for number in range(count)]
    return Images(np.stack([image for image, _ in drawn]), np.array([label for _, label in drawn], np.int64))


def _image(generator: np.random.Generator) -> tuple[Array, int]:
    label = int(generator.integers(CLASSES))
    rows, columns = np.mgrid[:SIZE, :SIZE] / (SIZE / 2) - 1
    background = generator.normal(0, 0.5, 3)[:, None, None] * np.ones((1, SIZE, SIZE))
    slope = generator.normal(0, 0.4, (3, 2))
    background += slope[:, :1, None] * rows + slope[:, 1:, None] * columns
    for _ in range(int(generator.integers(1, 4))):  # stripes behind the shape
        angle, place = generator.uniform(0, np.pi), generator.uniform(-1, 1)
        distance = np.abs(np.cos(angle) * rows + np.sin(angle) * columns - place) - generator.uniform(0.03, 0.12)
        background += _covered(distance) * generator.normal(0, 0.5, 3)[:, None, None]
    colour = background.mean(axis=(1, 2)) + generator.choice([-1, 1]) * generator.uniform(0.7, 1.5, 3)
    angle, size = generator.uniform(0, 2 * np.pi), generator.uniform(0.45, 0.8)
    y, x = generator.uniform(size - 1, 1 - size, 2) * 0.8
    u = (np.cos(angle) * (columns - x) + np.sin(angle) * (rows - y)) / size
    v = (np.cos(angle) * (rows - y) - np.sin(angle) * (columns - x)) / size
    cover = _covered(list(SHAPES.values())[label](u.astype(np.float32), v.astype(np.float32)))
    image = background + cover * (colour[:, None, None] - background)
    image += generator.normal(0, generator.uniform(0.05, 0.25), image.shape)
    return image.astype(np.float32), label


def _covered(distance: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(np.clip(distance / SOFTNESS, -30, 30))))
