"""Operators that move data: shapes, slices, padding."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import STRING
from ..forms import crop_or_pad
from .elementwise import real_constant
from .node import Converted, Node, converter


@converter("Shape")
def _shape(node: Node) -> Converted:
    start, end = node.integer("start", 0), node.attrs.get("end")
    return Constant(np.array(node.input(0).shape[start:end], np.int64))


@converter("Size")
def _size(node: Node) -> Converted:
    return Constant(np.array(math.prod(node.input(0).shape), np.int64))


@converter("Dropout")
def _dropout(node: Node) -> Converted:
    x = node.input(0)
    if node.has(2) and bool(node.constant(2, "training_mode").reshape(())):
        ratio = float(node.constant(1, "the ratio").reshape(())) if node.has(1) else 0.5
        if ratio:
            raise node.error(f"in training mode it drops elements at random (ratio {ratio:g})",
                             hint="export it with a ratio of 0 or in inference mode; weft.train.dropout adds dropout "
                                  "to a model that is read")  # fmt: skip
    mask = np.ones(x.shape, bool) if node.opset >= 10 else np.ones(x.shape, x.dtype)
    return (x, Constant(mask)) if node.wants(1) else x


@converter("Reshape")
def _reshape(node: Node) -> Converted:
    x = node.input(0)
    wanted = list(node.integers("shape") or ()) if node.opset < 5 else list(node.known_integers(1, "the new shape"))
    if not node.integer("allowzero", 0):
        wanted = [x.shape[i] if size == 0 and i < len(x.shape) else size for i, size in enumerate(wanted)]
    if wanted.count(-1) == 1:
        known = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = math.prod(x.shape) // known if known else 0
    return node.reshape(x, wanted)


@converter("Flatten")
def _flatten(node: Node) -> Converted:
    x = node.input(0)
    axis = node.integer("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return node.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@converter("Squeeze")
def _squeeze(node: Node) -> Converted:
    x = node.input(0)
    axes = node.axes(1)
    rank = len(x.shape)
    dropped = {axis % rank for axis in axes} if axes is not None else {i for i in range(rank) if x.shape[i] == 1}
    return node.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in dropped))


@converter("Unsqueeze")
def _unsqueeze(node: Node) -> Converted:
    x = node.input(0)
    axes = node.axes(1) or ()
    rank = len(x.shape) + len(axes)
    added = {axis % rank for axis in axes}
    sizes = iter(x.shape)
    return node.reshape(x, tuple(1 if i in added else next(sizes) for i in range(rank)))


@converter("Transpose")
def _transpose(node: Node) -> Converted:
    x = node.input(0)
    return node.transpose(x, node.integers("perm") or tuple(reversed(range(len(x.shape)))))


@converter("Concat")
def _concat(node: Node) -> Converted:
    inputs = node.tensors
    return node.call("concat", *inputs, axis=node.integer("axis", 1) % max(len(inputs[0].shape), 1))


@converter("Expand")
def _expand(node: Node) -> Converted:
    return expanded(node, node.input(0), node.known_integers(1, "the new shape"))


def expanded(node: Node, x: Expr, shape: tuple[int, ...]) -> Expr:
    """``x`` broadcast with ``shape``: also an axis of ``shape`` may be 1."""
    full = np.broadcast_shapes(x.shape, shape)
    return x if full == x.shape else node.call("expand", x, shape=full)


@converter("Tile")
def _tile(node: Node) -> Converted:
    x = node.input(0)
    repeats = node.known_integers(1, "the repeats")
    if len(repeats) != len(x.shape):
        raise node.error(f"there are {len(repeats)} repeats for the axes of {x.tensor_type}")
    split = [size for old in x.shape for size in (1, old)]
    spread = [size for old, count in zip(x.shape, repeats, strict=True) for size in (count, old)]
    repeated = node.call("expand", node.reshape(x, split), shape=spread)
    return node.reshape(repeated, [old * count for old, count in zip(x.shape, repeats, strict=True)])


@converter("Slice")
def _slice(node: Node) -> Converted:
    x = node.input(0)
    rank = len(x.shape)
    if node.opset < 10:
        starts, ends = node.integers("starts") or (), node.integers("ends") or ()
        axes, steps = node.integers("axes"), None
    else:
        starts, ends = node.known_integers(1, "the starts"), node.known_integers(2, "the ends")
        axes = node.known_integers(3, "the axes") if node.has(3) else None
        steps = node.known_integers(4, "the steps") if node.has(4) else None
    full = [slice(None)] * rank
    axes = tuple(range(len(starts))) if axes is None else axes
    for axis, start, end, step in zip(axes, starts, ends, steps or (1,) * len(starts), strict=True):
        size = x.shape[axis % rank]
        stop = None if step < 0 and end < -size else end
        full[axis % rank] = slice(start, stop, step)
    ranges = [range(*part.indices(size)) for part, size in zip(full, x.shape, strict=True)]
    sizes = tuple(len(places) for places in ranges)
    starts = tuple(places.start if len(places) else 0 for places in ranges)
    steps = tuple(places.step for places in ranges)
    if sizes == x.shape and all(step == 1 for step in steps):
        return x
    return node.call("slice", x, starts=starts, sizes=sizes, steps=steps)


def split_sizes(node: Node, size: int, index: int) -> tuple[int, ...]:
    """The sizes of the parts of an axis, from operand ``index``, the attribute ``split`` or the number of outputs."""
    if node.has(index):
        return node.known_integers(index, "the sizes")
    given = node.integers("split")
    if given is not None:
        return given
    count = node.integer("num_outputs", len(node.outputs))
    each = -(-size // count)
    return tuple(min(each, size - each * i) for i in range(count))


@converter("Split")
def _split(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), 0)
    return parts(node, x, axis, split_sizes(node, x.shape[axis], 1))


def parts(node: Node, x: Expr, axis: int, sizes: tuple[int, ...]) -> tuple[Expr, ...]:
    """``x`` cut along ``axis``."""
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise node.error(f"parts of {sizes} do not make up axis {axis} of {x.tensor_type}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(node.slice(x, axis, start, size) for start, size in zip(starts, sizes, strict=True))


@converter("Pad")
def _pad(node: Node) -> Converted:
    x, rank = node.input(0), len(node.input(0).shape)
    if node.opset < 11:
        given = node.integers("pads") or node.integers("paddings") or ()
    else:
        given = node.integers("pads") or node.known_integers(1, "the pads")
    axes = node.known_integers(3, "the axes") if node.has(3) else tuple(range(rank))
    if len(given) != 2 * len(axes):
        raise node.error(f"pads must be two numbers an axis, but there are {len(given)} for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis % rank], after[axis % rank] = given[i], given[len(axes) + i]
    mode = node.string("mode", "constant")
    if mode == "constant":
        return crop_or_pad(node, x, before, after, _pad_value(node))
    kinds = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in kinds:
        raise node.error(f"the mode {mode!r} is not known")
    for axis in range(rank):
        low, high = before[axis], after[axis]
        if (low, high) == (0, 0):
            continue
        kept = np.arange(x.shape[axis])[max(-low, 0) : x.shape[axis] - max(-high, 0)]
        places = np.pad(kept, (max(low, 0), max(high, 0)), mode=kinds[mode])  # type: ignore[call-overload]
        x = node.call("gather", x, node.like(places, "int64"), axis=axis)
    return x


def _pad_value(node: Node) -> float | str:
    if node.input(0).dtype == STRING:
        return str(node.constant(2, "the padding value").reshape(-1)[0]) if node.has(2) else ""
    if not node.has(2):
        return node.number("value", 0.0)
    known = real_constant(node, 2)
    if known is None:
        known = node.constant(2, "the padding value")
    item = known.reshape(-1)[0]
    return item.item() if item.dtype.kind in "iub" else float(item)


def _spread(node: Node) -> tuple[int, int, int, int, int]:
    """Block size and (N, C, H, W) of the operand."""
    n, c, h, w = node.require_image(node.input(0)).shape
    block = node.integer("blocksize", 0)
    if block < 1:
        raise node.error(f"attribute 'blocksize' must be at least 1, not {block}")
    return block, n, c, h, w


@converter("DepthToSpace")
def _depth_to_space(node: Node) -> Converted:
    b, n, c, h, w = _spread(node)
    rows_first = node.string("mode", "DCR") == "DCR"
    shape = (n, b, b, c // (b * b), h, w) if rows_first else (n, c // (b * b), b, b, h, w)
    perm = (0, 3, 4, 1, 5, 2) if rows_first else (0, 1, 4, 2, 5, 3)
    moved = node.call("transpose", node.reshape(node.input(0), shape), perm=perm)
    return node.reshape(moved, (n, c // (b * b), h * b, w * b))


@converter("SpaceToDepth")
def _space_to_depth(node: Node) -> Converted:
    b, n, c, h, w = _spread(node)
    split = node.reshape(node.input(0), (n, c, h // b, b, w // b, b))
    moved = node.call("transpose", split, perm=(0, 1, 3, 5, 2, 4))
    if node.string("mode", "DCR") == "DCR":
        moved = node.call("transpose", split, perm=(0, 3, 5, 1, 2, 4))
    return node.reshape(moved, (n, c * b * b, h // b, w // b))


@converter("Trilu")
def _triangle(node: Node) -> Converted:
    x = node.input(0)
    offset = int(node.constant(1, "the diagonal").reshape(())) if node.has(1) else 0
    rows, columns = x.shape[-2:]
    difference = np.arange(columns)[None, :] - np.arange(rows)[:, None] - offset
    kept = difference >= 0 if node.integer("upper", 1) else difference <= 0
    return node.call("nn.where", Constant(kept), x, node.like(0, x))
