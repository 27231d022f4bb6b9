"""Convolutions whose kernel is computed while the model runs, as products of matrices, which run in register tiles.

Tiles for convolutions want kernels that are known, since they are laid out beforehand. In training none is: weights are
inputs, and the gradient of weights is a convolution with another gradient as its kernel. So what each window meets is
put side by side (`gather` at constant places), and multiplied. Which of the two operands is laid out anew, and in which
order the result comes, is chosen for the fewest elements moved: weights of late layers are larger than their images.

- `_channels_last`: columns (pixels, kernel x channels) times kernels. Moves the kernels twice.
- `_batch_last`: kernels as they lie, (filters, channels x kernel), times columns (channels x kernel, pixels x batch).
- `_result_first`: the same kernels with columns turned around; the result is (filters, batch, pixels). It is for the
  gradient of weights, whose result is large, and whose "batch" are the channels of the weights.
- `_place_by_place`: of one filter a group there are no products of matrices. Where the result has few places, as the
  gradient of depthwise weights, each is a sum over what one place of the kernel's images meets, for all groups at once:
  lanes are groups.
- `_spread_out`: a transposed convolution, such as the gradient of data: the product of each pixel with all kernels, of
  which each pixel of the result adds up those that meet it. The smaller of kernels and products is turned around.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...graph.dtypes import HALVES, numpy_dtype
from ...graph.ir import Call, Constant, Expr, Span
from ...graph.registry import Anchor, Fusion, Role, apply, call, operator_of, role_of
from .product import COMPUTED_IN_FLOAT32

COLUMN_BYTES = 256 << 20
"""Of what all windows meet: where it is more, the convolution stays as it is."""

SHORTEST_ROW = 8
"""Elements: rows that are shorter are moved one element at a time."""

LONG_ROW = 16
"""Elements: along rows of a kernel that are as long, lanes run as they lie."""

MOST_PLACES = 32
"""Of a result that is computed place by place; each of them is a kernel."""

Table = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def as_product_of_columns(node: Call) -> Expr | None:
    """nn.conv2d or nn.conv3d(x, w) with computed w  ->  nn.matmul of what the windows meet and the kernels;
    in groups  ->  the same over images that were padded before"""
    entry = operator_of(node)
    if entry is None or entry.anchor is not Anchor.CONVOLUTION or node.dtype not in COMPUTED_IN_FLOAT32:
        return None
    x, w = node.args
    if isinstance(w, Constant) or 0 in (*x.shape, *w.shape):
        return None
    if node.attr("groups") != 1:
        return _place_by_place(node) if _has_few_places(node) else _padded_before(node)
    batch, channels = x.shape[:2]
    filters, places, taps = w.shape[0], prod(node.shape[2:]), prod(w.shape[2:])
    columns, kernels, result = batch * places * taps * channels, w.tensor_type.size, node.tensor_type.size
    if columns * numpy_dtype(node.dtype).itemsize > COLUMN_BYTES:
        return None
    base = _turned_kernel(w) if set(node.attr("strides")) == {1} else None
    rows_of_batch, rows_of_channels = _slowness(batch), _slowness(channels)
    costs = {
        _channels_last: columns * rows_of_channels + 2 * kernels + result,
        # As the second operand of a product columns are copied into panels.
        _batch_last: columns * (1 + rows_of_batch) + result,
        _result_first: columns * (2 + rows_of_channels) + kernels,
    }
    if base is not None:
        # The kernels are turned around first where another form is taken.
        costs = {form: cost + 3 * kernels for form, cost in costs.items()}
        data = _data(node)
        spread = prod(data.shape[2:]) * batch * filters * taps
        costs[_spread_out] = spread * (1 + rows_of_batch) + 2 * result
    return min(costs, key=lambda form: costs[form])(node)


def _slowness(row: int) -> float:
    """By how much elements of such rows are moved more slowly than those of long ones."""
    return max(1.0, SHORTEST_ROW / row)


def _padded_before(node: Call) -> Expr | None:
    """A convolution in groups stays one, over images among zeros: lanes then need no guards."""
    if not any(node.attr("pads")):
        return None
    attrs = node.attrs.replace(pads=(0,) * len(node.attr("pads")))
    return call(str(node.op), _padded(node), node.args[1], span=node.span, **attrs)


def _has_few_places(node: Call) -> bool:
    """Whether a convolution in groups, of a filter each, sums up more for a place than there are places, and cannot do
    so along rows. Of 16 bits it can, but takes longer."""
    w, groups = node.args[1], node.attr("groups")
    places = node.shape[0] * prod(node.shape[2:])
    summed = w.tensor_type.size // w.shape[0]
    in_rows = node.dtype == "float32" and node.attr("dilations")[-1] == 1 and w.shape[-1] >= LONG_ROW
    few = w.shape[0] == groups >= SHORTEST_ROW and places <= min(MOST_PLACES, summed)
    return few and not in_rows


def _place_by_place(node: Call) -> Expr:
    (x, w), span, groups, kernel = node.args, _inner(node), node.attr("groups"), node.args[1].shape[2:]
    batch, each, places, rank = x.shape[0], w.shape[1], node.shape[2:], len(kernel)
    # Groups last, before anything is padded: what moved the images before is then one move with this.
    split = call("reshape", x, shape=(batch, groups, each, *x.shape[2:]), span=span)
    turned = call("transpose", split, perm=(*range(3, rank + 3), 0, 2, 1), span=span)
    images = _among_zeros(turned, node, 3)
    turned = call("transpose", w, perm=(*range(2, rank + 2), 1, 0), span=span)
    weights = _widened(call("reshape", turned, shape=(*kernel, 1, each, groups), span=span), span)
    steps, sums = (*node.attr("dilations"), 1, 1, 1), []
    for image, *place in product(range(batch), *map(range, places)):
        starts = (*(at * stride for at, stride in zip(place, node.attr("strides"), strict=True)), image, 0, 0)
        met = call("slice", images, starts=starts, sizes=weights.shape, steps=steps, span=span)
        terms = call("nn.multiply", _widened(met, span), weights, span=span)
        total = call("nn.reduce_sum", terms, axes=tuple(range(rank + 2)), span=span)
        sums.append(call("reshape", total, shape=(1, groups), span=span))
    whole = call("concat", *sums, axis=0, span=span) if len(sums) > 1 else sums[0]
    values = _cast(call("reshape", whole, shape=(batch, *places, groups), span=span), [node.dtype], span)
    return call("transpose", values, perm=(0, rank + 1, *range(1, rank + 1)), span=node.span)


def _inner(node: Call) -> Span:
    return Span(node.span.nodes)  # what is inside does not make the user's tensor


def _channels_last(node: Call) -> Expr:
    (x, w), span = node.args, _inner(node)
    kernel, places = w.shape[2:], node.shape[2:]
    images = _among_zeros(_with_channels_last(x, span), node, 1)
    batch, *size, channels = images.shape
    depth = prod(kernel) * channels
    pixels = call("reshape", images, shape=(batch, prod(size), channels), span=span)
    columns = call("gather", pixels, Constant(_met(node, size)), axis=1, span=span)
    rows = call("reshape", columns, shape=(batch * prod(places), depth), span=span)
    weights = call("reshape", _with_channels_last(w, span), shape=(w.shape[0], depth), span=span)
    values = call("nn.matmul", rows, call("transpose", weights, perm=(1, 0), span=span), span=span)
    image = call("reshape", values, shape=(batch, *places, w.shape[0]), span=span)
    rank = len(kernel)
    return call("transpose", image, perm=(0, rank + 1, *range(1, rank + 1)), span=node.span)


def _batch_last(node: Call) -> Expr:
    span, w, places = _inner(node), node.args[1], node.shape[2:]
    x, rank = node.args[0], len(places)
    turned = _among_zeros(call("transpose", x, perm=(*range(1, rank + 2), 0), span=span), node, 1)
    channels, *size, batch = turned.shape
    depth = channels * prod(w.shape[2:])
    pixels = call("reshape", turned, shape=(channels, prod(size), batch), span=span)
    columns = call("gather", pixels, Constant(np.ascontiguousarray(_met(node, size).T)), axis=1, span=span)
    columns = call("reshape", columns, shape=(depth, prod(places) * batch), span=span)
    source, casts = _before_casts(w)
    weights = _cast(call("reshape", source, shape=(w.shape[0], depth), span=span), casts, span)
    values = call("nn.matmul", weights, columns, span=span)
    image = call("reshape", values, shape=(w.shape[0], *places, batch), span=span)
    return call("transpose", image, perm=(rank + 1, *range(rank + 1)), span=node.span)


def _result_first(node: Call) -> Expr:
    span, w, places = _inner(node), node.args[1], node.shape[2:]
    images = _among_zeros(_with_channels_last(node.args[0], span), node, 1)
    batch, *size, channels = images.shape
    rank, depth = len(size), channels * prod(w.shape[2:])
    pixels = call("reshape", images, shape=(batch, prod(size), channels), span=span)
    columns = call("gather", pixels, Constant(_met(node, size)), axis=1, span=span)
    rows = call("reshape", columns, shape=(batch * prod(places), depth), span=span)
    weights = call("reshape", _with_channels_last(w, span), shape=(w.shape[0], depth), span=span)
    values = call("nn.matmul", weights, call("transpose", rows, perm=(1, 0), span=span), span=span)
    image = call("reshape", values, shape=(w.shape[0], batch, *places), span=span)
    return call("transpose", image, perm=(1, 0, *range(2, rank + 2)), span=node.span)


def _spread_out(node: Call) -> Expr:
    span, w, places = _inner(node), _turned_kernel(node.args[1]), node.shape[2:]
    data = _data(node)
    batch, filters, *size = data.shape  # those of the convolution that this one turns around
    assert w is not None
    channels, kernel = w.shape[1], w.shape[2:]
    rank, taps, pixels = len(size), prod(kernel), prod(size)
    source, casts = _before_casts(w)
    kernels = call("reshape", source, shape=(filters, channels * taps), span=span)
    if w.tensor_type.size < channels * taps * pixels * batch:
        kernels = call("transpose", kernels, perm=(1, 0), span=span)
        rows = call("transpose", data, perm=(1, *range(2, rank + 2), 0), span=span)
        rows = call("reshape", rows, shape=(filters, pixels * batch), span=span)
        parts = call("nn.matmul", _widened(_cast(kernels, casts, span), span), _widened(rows, span), span=span)
    else:
        rows = call("transpose", data, perm=(*range(2, rank + 2), 0, 1), span=span)
        rows = call("reshape", rows, shape=(pixels * batch, filters), span=span)
        parts = call("nn.matmul", _widened(rows, span), _widened(_cast(kernels, casts, span), span), span=span)
        parts = call("transpose", parts, perm=(1, 0), span=span)
    parts = call("reshape", parts, shape=(channels, taps * pixels, batch), span=span)
    table = _meeting(node, tuple(size), tuple(kernel))
    if (table == taps * pixels).any():  # a row of zeros for what meets nothing
        parts = call("pad", parts, pads=(0, 0, 1, 0), span=span)
    met = call("gather", parts, Constant(table), axis=1, span=span)
    sums = call("nn.reduce_sum", met, axes=(2,), span=span)
    image = _cast(call("reshape", sums, shape=(channels, *places, batch), span=span), [node.dtype], span)
    return call("transpose", image, perm=(rank + 1, *range(rank + 1)), span=node.span)


def _before_casts(x: Expr) -> tuple[Expr, list[str]]:
    """What is cast, and to which types, one after the other. Moves come before casts, which a product makes itself."""
    casts: list[str] = []
    while isinstance(x, Call) and role_of(x) is Role.CAST:
        casts.insert(0, x.dtype)
        x = x.args[0]
    return x, casts


def _cast(x: Expr, dtypes: list[str], span: Span) -> Expr:
    for dtype in dtypes:
        x = call("nn.cast", x, to=dtype, span=span) if x.dtype != dtype else x
    return x


def _widened(x: Expr, span: Span) -> Expr:
    """Of 16 bits, in 32: parts are added up before they are rounded."""
    return _cast(x, ["float32"], span) if x.dtype in HALVES else x


def _padded(node: Call) -> Expr:
    return _among_zeros(node.args[0], node, 0)


def _among_zeros(images: Expr, node: Call, behind: int) -> Expr:
    """Images padded as a convolution wants them; so many of their axes are behind those of their places."""
    pads, rank, kept = node.attr("pads"), len(node.attr("pads")) // 2, (0,) * behind
    around = (*pads[:rank], *kept, *pads[rank:], *kept)
    return call("pad", images, pads=around, span=_inner(node)) if any(pads) else images


def _with_channels_last(x: Expr, span: Span) -> Expr:
    """(N, C, ...) as (N, ..., C)."""
    return call("transpose", x, perm=(0, *range(2, len(x.shape)), 1), span=span)


def _met(node: Call, size: Any) -> Table:
    """For each window the pixels of a padded image of this size that it meets, in row-major order: (windows, pixels of
    the kernel)."""
    kernel, places = node.args[1].shape[2:], node.shape[2:]
    flat: Table = np.zeros((prod(places), prod(kernel)), np.int64)
    for axis, (count, step, dilation) in enumerate(
        zip(size, node.attr("strides"), node.attr("dilations"), strict=True)
    ):
        starts = np.array([place[axis] for place in product(*map(range, places))]) * step
        offsets = np.array([place[axis] for place in product(*map(range, kernel))]) * dilation
        flat = flat * count + starts[:, np.newaxis] + offsets
    return flat


# Transposed convolutions


def _data(node: Call) -> Expr:
    """What a convolution goes over, without the zeros between its elements."""
    x = node.args[0]
    return x.args[0] if _factors(x) is not None and isinstance(x, Call) else x


def _factors(x: Expr) -> tuple[int, ...] | None:
    """Of a ``dilate`` of all axes behind the channels."""
    if isinstance(x, Call) and x.op == "dilate" and len(x.attr("factors")) == len(x.shape) - 2:
        return tuple(x.attr("factors"))
    return None


def _turned_kernel(w: Expr) -> Expr | None:
    """The kernels (filters, channels, ...) of which ``w`` is the transposed form, (channels, filters, ...) with the
    kernel's axes from their end; None if it is not made so."""
    steps: list[Call] = []
    base = w
    while isinstance(base, Call) and len(base.args) == 1 and _moves(base):
        steps.append(base)
        base = base.args[0]
        if base.shape == (w.shape[1], w.shape[0], *w.shape[2:]) and _turns(base.shape, steps):
            return base
    return None


def _moves(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.fusion is Fusion.LAYOUT


def _turns(shape: tuple[int, ...], steps: list[Call]) -> bool:
    """Whether moves, the last first, make the transposed form of kernels of this shape."""
    numbers = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    found = numbers
    for step in reversed(steps):
        moved = call(str(step.op), Constant(found), span=step.span, **step.attrs)
        found = apply(moved, [found])
    return np.array_equal(found, np.flip(numbers, tuple(range(2, numbers.ndim))).swapaxes(0, 1))


def _meeting(node: Call, size: tuple[int, ...], kernel: tuple[int, ...]) -> Table:
    """For each pixel of a transposed convolution the parts that meet there, as tap x pixel of the data, row-major:
    (pixels, most that meet one); one more than the last part stands for none."""
    factors = _factors(node.args[0]) or (1,) * len(size)
    places = node.shape[2:]
    taps, pixels = prod(kernel), prod(size)
    tap: Table = np.zeros((1, 1), np.int64)
    pixel, meets = tap, tap + 1
    for axis, (count, step) in enumerate(zip(size, factors, strict=True)):
        turn, before = node.attr("dilations")[axis], node.attr("pads")[axis]
        offset = kernel[axis] - 1 - np.arange(kernel[axis])
        position = np.arange(places[axis])[:, np.newaxis] + offset * turn - before
        inside = (position % step == 0) & (position >= 0) & (position // step < count)
        one_tap = np.broadcast_to(np.arange(kernel[axis]), position.shape)
        tap, pixel = _each(tap * kernel[axis], one_tap), _each(pixel * count, np.where(inside, position // step, 0))
        meets = _each(meets, inside.astype(np.int64), np.multiply)
    found = np.where(meets > 0, tap * pixels + pixel, taps * pixels)
    return np.sort(found, axis=1)[:, : max(1, int(meets.sum(axis=1).max()))]


def _each(a: Table, b: Table, combine: Any = np.add) -> Table:
    """Of (m, k) and (n, l) the (m * n, k * l) of all pairs, in row-major order."""
    pairs: Table = combine(a[:, np.newaxis, :, np.newaxis], b[np.newaxis, :, np.newaxis, :])
    return pairs.reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])
