"""Images made from a seed: smooth fields with edges and a colour cast of their own, scaled as photographs usually are.

Not white noise: that averages out in the first layers, so that all images look alike to a network.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LOWEST, HIGHEST = -2.1, 2.6  # of photographs in 0..255, after subtracting ImageNet's mean and dividing by its deviation


def images(count: int, size: int = 224, seed: int = 0) -> Array:
    """``count`` images (count, 3, size, size), float32 in -2.1..2.6; image i depends on ``seed``, ``size`` and i."""
    return np.stack([_image(np.random.default_rng((seed, index)), size) for index in range(count)])


def _image(generator: np.random.Generator, size: int) -> Array:
    """Three colour planes that share most of their structure, split into regions of different brightness."""
    roughness = generator.uniform(1.2, 2.2)
    shared = _smooth_field(generator, size, roughness)
    regions = np.sign(_smooth_field(generator, size, 2.5))
    contrast, region_contrast = generator.uniform(0.3, 0.9), generator.uniform(0.1, 0.7)
    cast = generator.normal(0, 0.5, 3)
    region_cast = generator.normal(1, 0.4, 3)
    planes = [
        contrast * (0.85 * shared + 0.5 * _smooth_field(generator, size, roughness))
        + region_contrast * region_cast[channel] * regions
        + cast[channel]
        for channel in range(3)
    ]
    image: Array = np.clip(np.stack(planes), LOWEST, HIGHEST).astype(np.float32)
    return image


def _smooth_field(generator: np.random.Generator, size: int, exponent: float) -> NDArray[np.float64]:
    """(size, size) with mean 0, variance 1 and an amplitude that falls as frequency ** -exponent."""
    rows, columns = np.fft.fftfreq(size)[:, np.newaxis], np.fft.rfftfreq(size)[np.newaxis]
    frequency = np.hypot(rows, columns) * size
    frequency[0, 0] = np.inf  # no constant part
    stretch = generator.uniform(0.5, 2.0)  # prefer a direction
    anisotropy = np.hypot(rows * stretch, columns / stretch) * size
    anisotropy[0, 0] = np.inf
    phases = np.exp(2j * np.pi * generator.random(frequency.shape))
    field = np.fft.irfft2(phases * np.sqrt(frequency * anisotropy) ** -exponent, (size, size))
    normalised: NDArray[np.float64] = field / field.std()
    return normalised
