"""The custom operator behind detectors: TFLite_Detection_PostProcess, which decodes boxes and leaves out overlapping
ones (TensorFlow's ``lite/kernels/detection_postprocess.cc``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Expr
from .schema import CUSTOM
from .site import Result, Site, rule

_SIZES = ("y_scale", "x_scale", "h_scale", "w_scale")


@rule(f"{CUSTOM} 'TFLite_Detection_PostProcess'")
def _detections(site: Site) -> tuple[Result, ...]:
    """Boxes (1, M, 4), their classes (1, M) and scores (1, M), and how many there are (1).

    What lies behind the last detection is 0; the interpreter leaves it unset.
    """
    codes, scores, anchors = (site.ordered(site.real(index)) for index in range(3))
    count = codes.shape[1] if len(codes.shape) == 3 else 0
    if codes.shape[:1] != (1,) or scores.shape[:-1] != (1, count) or anchors.shape != (count, 4) or codes.shape[2] < 4:
        raise site.error("it takes boxes (1, N, 4), scores (1, N, classes) and anchors (N, 4), not "
                         f"{list(codes.shape)}, {list(scores.shape)} and {list(anchors.shape)}")  # fmt: skip
    classes, most = _whole(site, "num_classes"), _whole(site, "max_detections")
    background = scores.shape[2] - classes
    if background not in (0, 1):
        raise site.error(f"{classes} classes do not fit scores of {scores.shape[2]}")
    boxes = _decoded(site, codes, anchors)
    scores = site.slice(scores, 2, background, classes)
    if site.info.options.get("use_regular_nms", False):
        return _by_class(site, boxes, scores, most)
    return _all_classes_at_once(site, boxes, scores, most)


def _whole(site: Site, name: str, default: int | None = None) -> int:
    value = site.info.options.get(name, default)
    if value is None or value != int(value) or value < 1:
        raise site.error(f"option {name!r} must be a whole number of 1 or more, not {value}")
    return int(value)


def _number(site: Site, name: str) -> float:
    value = site.info.options.get(name)
    if value is None or not math.isfinite(value):
        raise site.error(f"option {name!r} must be a number, not {value}")
    return float(value)


def _decoded(site: Site, codes: Expr, anchors: Expr) -> Expr:
    """Corners (1, N, 4): top, left, bottom, right. Codes and anchors hold the middle, y before x, then the size."""
    scales = [_number(site, name) for name in _SIZES]
    if min(scales) <= 0:
        raise site.error(f"scales {scales} must be above 0")
    units = site.like(np.array(scales), codes)
    scaled = site("divide", site.slice(codes, 2, 0, 4), units)
    around = site.reshape(anchors, (1, *anchors.shape))
    middle, size = (site.slice(scaled, 2, start, 2) for start in (0, 2))
    own_middle, own_size = (site.slice(around, 2, start, 2) for start in (0, 2))
    middle = site("add", site("multiply", middle, own_size), own_middle)
    half = site("multiply", site("multiply", site("exp", size), 0.5), own_size)
    return site.concat([site("subtract", middle, half), site("add", middle, half)], 2)


def _kept(site: Site, boxes: Expr, scores: Expr, most: int) -> Expr:
    """(R, 3): image, class, box of what is kept; rows of -1 behind it. ``scores`` (1, classes, N)."""
    least = np.nextafter(np.float32(_number(site, "nms_score_threshold")), np.float32(-np.inf))
    overlap = float(np.float32(_number(site, "nms_iou_threshold")))
    return site.call("non_max_suppression", boxes, scores, most=most, overlap=overlap, least=float(least))


def _column(site: Site, kept: Expr, number: int) -> tuple[Expr, Expr]:
    """One column of what is kept, 0 where nothing is; and which rows are something."""
    column = site.reshape(site.slice(kept, 1, number, 1), (kept.shape[0],))
    return site("maximum", column, 0), site("less", site.like(-1, column), column)


def _all_classes_at_once(site: Site, boxes: Expr, scores: Expr, most: int) -> tuple[Result, ...]:
    """A box counts by its best class, and is given with its best few: each box has as many rows, of which those
    beyond the number of classes hold nothing."""
    rows = _whole(site, "max_classes_per_detection", 1)
    few = min(rows, scores.shape[2])
    best = site.call("nn.reduce_max", scores, axes=(2,), keepdims=False)
    kept = _kept(site, boxes, site.reshape(best, (1, 1, scores.shape[1])), most)
    index, there = _column(site, kept, 2)
    own = site.call("gather", scores, index, axis=1)
    places = site.call("top_k", own, k=few, axis=2)
    count = kept.shape[0]
    filled = site.like(np.arange(rows)[None, None] < few, "bool")
    flat = (1, count * rows)
    wide = site.call("expand", site.reshape(site.call("gather", boxes, index, axis=1), (1, count, 1, 4)),
                     shape=(1, count, rows, 4))  # fmt: skip
    found = site.call("gather_elements", own, places, axis=2)
    return _results(
        site, site.reshape(wide, (*flat, 4)), site.reshape(_longer(site, places, rows, 2), flat),
        site.reshape(_longer(site, found, rows, 2), flat),
        site.reshape(site("and", site.reshape(there, (1, count, 1)), filled), flat), there, most * rows,
    )  # fmt: skip


def _by_class(site: Site, boxes: Expr, scores: Expr, most: int) -> tuple[Result, ...]:
    """Each class by itself, then the best of all."""
    by_class = site.call("transpose", scores, perm=(0, 2, 1))
    kept = _kept(site, boxes, by_class, _whole(site, "detections_per_class", 100))
    (label, there), (index, _) = _column(site, kept, 1), _column(site, kept, 2)
    flat = site.reshape(by_class, (by_class.shape[1] * by_class.shape[2],))
    place = site("add", site("multiply", label, by_class.shape[2]), index)
    found = site.where(there, site.call("gather", flat, place, axis=0), -math.inf)
    best = site.call("top_k", found, k=min(most, kept.shape[0]), axis=0)
    label, index, there, found = (site.call("gather", each, best, axis=0) for each in (label, index, there, found))
    rows = best.shape[0]
    return _results(
        site, site.call("gather", boxes, index, axis=1), site.reshape(label, (1, rows)),
        site.reshape(found, (1, rows)), site.reshape(there, (1, rows)), there,
        most * _whole(site, "max_classes_per_detection", 1),
    )  # fmt: skip


def _results(
    site: Site, boxes: Expr, labels: Expr, scores: Expr, there: Expr, counted: Expr, rows: int
) -> tuple[Result, ...]:
    """``there`` (1, R): which are something; ``counted``: which count; ``rows``: how many the results have."""
    zero = site.like(0, scores)
    boxes = site.where(site.reshape(there, (1, there.shape[1], 1)), boxes, zero)
    labels = site.where(there, site.cast(labels, scores.dtype), zero)
    scores = site.where(there, scores, zero)
    total = site.call("nn.reduce_sum", site.cast(counted, scores.dtype), axes=(0,), keepdims=True)
    wanted: Sequence[Any] = [_longer(site, each, rows) for each in (boxes, labels, scores)]
    return (*wanted, total)


def _longer(site: Site, x: Expr, size: int, axis: int = 1) -> Expr:
    """With zeros behind, up to a size of one axis."""
    lacking = size - x.shape[axis]
    if not lacking:
        return x
    zeros = np.zeros([lacking if number == axis else own for number, own in enumerate(x.shape)])
    return site.concat([x, site.like(zeros, x)], axis)


@rule("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def _non_max_suppression(site: Site) -> tuple[Result, ...]:
    """The boxes that stay, best first, as many as are asked for at most, and how many there are. Places behind the last
    are 0."""
    boxes, scores = site.raw(0), site.raw(1)
    if len(boxes.shape) != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise site.error(f"{boxes.type} and {scores.type} are no boxes and their scores")
    most = site.numbers(2, "the number of boxes")[0]
    overlap, least = (float(site.constant(index, "the limits").reshape(-1)[0]) for index in (3, 4))
    site.made((most,))
    if site.op.endswith("5") and float(site.constant(5, "sigma").reshape(-1)[0]):
        raise site.error("scores that overlaps lower are not read, so sigma must be 0")
    count = boxes.shape[0]
    found: Expr = site.call(
        "non_max_suppression", site.reshape(boxes, (1, count, 4)), site.reshape(scores, (1, 1, count)), most=most,
        overlap=overlap, least=least, centred=False,
    )  # fmt: skip
    rows = found.shape[0]
    places = site.reshape(site.slice(found, 1, 2, 1), (rows,))
    if rows < most:
        places = site.concat([places, site.like(np.full(most - rows, -1), places)], 0)
    stays = site("less_equal", site.like(0, places), places)
    number = site.call("nn.reduce_sum", site.cast(stays, "int32"), axes=(0,), keepdims=False)
    safe = site("maximum", places, 0)
    chosen = site.cast(safe, "int32")
    if site.op.endswith("4"):
        return chosen, number
    taken = site.call("gather", scores, site.cast(safe, "int64"), axis=0)
    return chosen, site.where(stays, taken, 0.0), number
