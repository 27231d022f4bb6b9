"""Items (pictures of digits) for models on a pair of cores, and whether two runs gave the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import weft
from weft.hw.config import TINY

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PAIR = weft.SystemConfig(name="pair", cores=(TINY, TINY), ports=(0, 1))

Item = np.ndarray[Any, Any]


def images(model: weft.CompiledModel, count: int) -> list[Item]:
    spec = model.inputs[0]
    return [np.random.default_rng(seed).random(spec.shape).astype(spec.dtype) for seed in range(count)]


def equal(first: list[dict[str, Item]], second: list[dict[str, Item]]) -> bool:
    return all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(first, second, strict=True)
    )
