"""Boxes that overlap better ones are left out: ONNX NonMaxSuppression, with as many results as there can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, register, unsupported
from .reasons import PIECEWISE_CONSTANT
from .samples import sample_of
from .type_rules import flag, integer, require, require_dtype


def chosen_boxes(
    boxes: Array, scores: Array, most: int, overlap: float, least: float = -math.inf, centred: bool = False
) -> Array:
    """(image, class, box) of what is kept, (K, 3) int64, the best of each class first.

    ``boxes``: (N, B, 4) corners or, ``centred``, middle and size. ``scores``: (N, classes, B). ``most``: boxes of a
    class of an image. ``least``: a score must be above it; -inf: any.
    """
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            mine = scores[batch, label]
            waiting = np.argsort(-mine, kind="stable")
            waiting = waiting if least == -math.inf else waiting[mine[waiting] > least]
            kept = 0
            while len(waiting) and kept < most:
                best, waiting = waiting[0], waiting[1:]
                chosen.append((batch, label, int(best)))
                kept += 1
                waiting = waiting[_overlap(boxes[batch, best], boxes[batch, waiting], centred) <= overlap]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _overlap(box: Array, others: Array, centred: bool) -> Array:
    """Intersection over union of one box with others."""

    def corners(boxes: Array) -> tuple[Array, Array]:
        if centred:  # x, y, width, height
            middle, half = boxes[..., :2], boxes[..., 2:] / 2
            return middle - half, middle + half
        first, second = boxes[..., :2], boxes[..., 2:]
        return np.minimum(first, second), np.maximum(first, second)

    (low, high), (other_low, other_high) = corners(box), corners(others)
    shared = np.prod(np.clip(np.minimum(high, other_high) - np.maximum(low, other_low), 0, None), axis=-1)
    union = np.prod(high - low, axis=-1) + np.prod(other_high - other_low, axis=-1) - shared
    return np.asarray(np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0))


def _type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    boxes, scores = operands
    require_dtype(boxes, "the boxes", "float32")
    require_dtype(scores, "the scores", "float32")
    fits = boxes.rank == scores.rank == 3 and boxes.shape == (scores.shape[0], scores.shape[2], 4)
    require(fits, f"boxes {boxes} and scores {scores} must be (N, B, 4) and (N, classes, B)")
    flag(attrs, "centred")
    most = integer(attrs, "most", 0, (1 << 63) - 1)
    return TensorType((scores.shape[0] * scores.shape[1] * min(most, scores.shape[2]), 3), "int64")


def _numpy(boxes: Array, scores: Array, most: int, overlap: float, least: float, centred: bool) -> Array:
    rows = scores.shape[0] * scores.shape[1] * min(most, scores.shape[2])
    result = np.full((rows, 3), -1, np.int64)
    found = chosen_boxes(boxes, scores, most, overlap, least, centred)
    result[: len(found)] = found
    return result


register(Operator(
    "non_max_suppression", "boxes scores", family=Family.INDEX, types=_type, numpy=_numpy,
    defaults={"most": REQUIRED, "overlap": 0.0, "least": -math.inf, "centred": False}, gradient=PIECEWISE_CONSTANT,
    lower=unsupported("how many boxes are left depends on their values"), fusion=Fusion.HOST,
    accuracy=Accuracy.JUMPS, sample=sample_of("non_max_suppression", (2, 5, 4), (2, 3, 5), most=2, overlap=0.5),
    doc="ONNX NonMaxSuppression: (image, class, box) of each box that is kept; as many rows as there can be, those "
        "behind the last one are -1.",
))  # fmt: skip
