"""Moves of data, pieces of tensors, and tensors made of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import INTEGERS, numpy_dtype
from .site import Held, Result, Site, rule


def reshaped(site: Site, held: Held, shape: Sequence[int]) -> Held:
    """A value under another shape. Where the first axis and the channels stay, those between change in place."""
    rank = len(shape)
    size = held.shape
    kept = len(size) >= 3 and rank >= 3 and size[0] == shape[0] and size[-1] == shape[-1]
    if kept and held.order == (0, len(size) - 1, *range(1, len(size) - 1)):
        return Held(site.reshape(held.expr, (shape[0], shape[-1], *shape[1:-1])), (0, rank - 1, *range(1, rank - 1)))
    return Held.plain(site.reshape(site.ordered(held), shape))


@rule("DENSIFY")
def _densify(site: Site) -> Result:
    """A sparse constant, which is read as the whole tensor."""
    return site.held(0)


@rule("RESHAPE")
def _reshape(site: Site) -> Result:
    held = site.held(0)
    given = site.numbers(1, "the shape") if site.has(1) else site.option("new_shape")
    wanted = list(site.results[0].shape if given is None else given)
    total = math.prod(held.shape)
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted):
        raise site.error(f"{wanted} is no shape")
    if -1 in wanted:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = total // rest if rest else 0
    if math.prod(wanted) != total:
        raise site.error(f"a tensor of shape {list(held.shape)} cannot have the shape {wanted}")
    return reshaped(site, held, wanted)


@rule("SQUEEZE")
def _squeeze(site: Site) -> Result:
    held = site.held(0)
    rank = len(held.order)
    given = site.option("dims")
    axes = {site.axis(each, rank) for each in given} if given else {i for i, n in enumerate(held.shape) if n == 1}
    if any(held.shape[axis] != 1 for axis in axes):
        raise site.error(f"axes {sorted(axes)} of {list(held.shape)} are not all of size 1")
    return reshaped(site, held, [size for axis, size in enumerate(held.shape) if axis not in axes])


@rule("EXPAND_DIMS")
def _expand_dims(site: Site) -> Result:
    held = site.held(0)
    axis = site.axis(site.numbers(1, "the axis")[0], len(held.order) + 1)
    return reshaped(site, held, (*held.shape[:axis], 1, *held.shape[axis:]))


@rule("TRANSPOSE")
def _transpose(site: Site) -> Result:
    """Nothing is moved: the axes get other names."""
    held = site.held(0)
    perm = site.numbers(1, "the permutation")
    rank = len(held.order)
    perm = [each + rank if each < 0 else each for each in perm]
    if sorted(perm) != list(range(rank)):
        raise site.error(f"{perm} is no permutation of {rank} axes")
    return Held(held.expr, tuple(perm.index(axis) for axis in held.order))


@rule("CONCATENATION")
def _concatenate(site: Site) -> Result:
    rank = len(site.held(0).order)
    axis = site.axis(site.option("axis"), rank)
    if any(len(site.held(index).order) != rank for index in range(len(site.values))):
        raise site.error("its operands have different numbers of axes")
    order = next((value.order for value in site.values if value and not value.expr.static), tuple(range(rank)))
    parts = [site.ordered(site.real(index), order) for index in range(len(site.values))]
    joined = site.concat(parts, order.index(axis))
    if site.quantisation(0) is None:
        joined = site.activated(joined) if joined.dtype.startswith("float") else joined
    return Held(joined, order)


@rule("PACK")
def _pack(site: Site) -> Result:
    parts = [site.raw(index) for index in range(len(site.values))]
    axis = site.axis(site.option("axis"), len(parts[0].shape) + 1)
    shape = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    return site.concat([site.reshape(part, shape) for part in parts], axis)


def _piece(site: Site, held: Held, axis: int, start: int, size: int, step: int = 1) -> Held:
    return Held(site.slice(held.expr, held.place(axis), start, size, step), held.order)


@rule("UNPACK")
def _unpack(site: Site) -> tuple[Result, ...]:
    held = site.held(0)
    axis = site.axis(site.option("axis"), len(held.order))
    shape = [size for number, size in enumerate(held.shape) if number != axis]
    if held.shape[axis] != len(site.results):
        raise site.error(f"axis {axis} of {list(held.shape)} does not give {len(site.results)} tensors")
    return tuple(reshaped(site, _piece(site, held, axis, number, 1), shape) for number in range(held.shape[axis]))


def _parts(site: Site, held: Held, axis: int, sizes: Sequence[int]) -> tuple[Result, ...]:
    if sum(sizes) != held.shape[axis] or any(size < 0 for size in sizes) or len(sizes) != len(site.results):
        raise site.error(
            f"axis {axis} of {list(held.shape)} cannot be split into {len(site.results)} parts {list(sizes)}"
        )
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return tuple(_piece(site, held, axis, start, size) for start, size in zip(starts, sizes, strict=True))


@rule("SPLIT")
def _split(site: Site) -> tuple[Result, ...]:
    held = site.held(1)
    axis = site.axis(site.numbers(0, "the axis")[0], len(held.order))
    count = max(len(site.results), 1)
    return _parts(site, held, axis, [held.shape[axis] // count] * count)


@rule("SPLIT_V")
def _split_sizes(site: Site) -> tuple[Result, ...]:
    held = site.held(0)
    axis = site.axis(site.numbers(2, "the axis")[0], len(held.order))
    sizes = site.numbers(1, "the sizes")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = held.shape[axis] - sum(sizes) - 1
    return _parts(site, held, axis, sizes)


@rule("SLICE")
def _slice(site: Site) -> Result:
    held = site.held(0)
    sizes = site.numbers(2, "the size")
    if not site.raw(1).static and -1 not in sizes and len(sizes) == len(held.order):
        return _moving_piece(site, held, site.raw(1), sizes)
    starts = site.numbers(1, "the beginning")
    if len(starts) != len(held.order) or len(sizes) != len(starts):
        raise site.error(f"{len(starts)} beginnings and {len(sizes)} sizes do not fit {list(held.shape)}")
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        size = held.shape[axis] - start if size == -1 else size
        if start < 0 or size < 0 or start + size > held.shape[axis]:
            raise site.error(f"elements {start} to {start + size} are not all in axis {axis} of {list(held.shape)}")
        held = _piece(site, held, axis, start, size)
    return held


def _moving_piece(site: Site, held: Held, starts: Expr, sizes: Sequence[int]) -> Held:
    """A piece of known size that begins where a run says, in the tensor as a whole: one that would reach out of it ends
    at its end."""
    for axis, size in enumerate(sizes):
        room = held.shape[axis] - size
        if size < 0 or room < 0:
            raise site.error(f"a piece of {list(sizes)} is not in {list(held.shape)}")
        if room:
            start = site("minimum", site("maximum", site.cast(site.slice(starts, 0, axis, 1), "int64"), 0), room)
            rows = site("add", start, site.like(np.arange(size), "int64"))
            held = Held(site.call("gather", held.expr, rows, axis=held.place(axis)), held.order)
    return held


@rule("STRIDED_SLICE")
def _strided_slice(site: Site) -> Result:
    """As NumPy's brackets: bit i of a mask speaks of entry i."""
    held = site.held(0)
    begins, ends, steps = (site.numbers(index, "where to cut") for index in (1, 2, 3))
    if not len(begins) == len(ends) == len(steps) <= 32 or 0 in steps:
        raise site.error(f"from {begins} to {ends} in steps of {steps} is no cut")
    masks = {name: int(site.option(f"{name}_mask")) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}

    def has(name: str, entry: int) -> bool:
        return bool(masks[name] >> entry & 1)

    entries = range(len(begins))
    taken = sum(1 for entry in entries if not has("ellipsis", entry) and not has("new_axis", entry))
    left = len(held.order) - taken
    if left < 0:
        raise site.error(f"{taken} cuts are too many for {list(held.shape)}")
    axis = 0
    shape: list[int] = []
    for entry in entries:
        if has("ellipsis", entry):
            shape += held.shape[axis : axis + left]
            axis, left = axis + left, 0
        elif has("new_axis", entry):
            shape.append(1)
        else:
            size, step = held.shape[axis], steps[entry]
            if has("shrink_axis", entry):
                start = begins[entry] + (size if begins[entry] < 0 else 0)
                if not 0 <= start < size:
                    raise site.error(f"there is no element {begins[entry]} in axis {axis} of {list(held.shape)}")
                held = _piece(site, held, axis, start, 1)
            else:
                last = begins[entry] + ends[entry] if site.option("offset") else ends[entry]
                places = range(*slice(None if has("begin", entry) else begins[entry],
                                      None if has("end", entry) else last, step).indices(size))  # fmt: skip
                held = _piece(site, held, axis, places.start if len(places) else 0, len(places), step if places else 1)
                shape.append(len(places))
            axis += 1
    return reshaped(site, held, (*shape, *held.shape[axis:]))


@rule("PAD", "PADV2")
def _pad(site: Site) -> Result:
    held = site.held(0)
    pads = site.constant(1, "the padding").reshape(-1, 2).tolist()
    if len(pads) != len(held.order) or any(each < 0 for pair in pads for each in pair):
        raise site.error(f"the padding {pads} does not fit {list(held.shape)}")
    site.made([size + sum(pair) for size, pair in zip(held.shape, pads, strict=True)])
    quantisation = site.quantisation(0)
    value: float = 0
    if site.has(2):
        value = site.constant(2, "the value").reshape(-1)[0].item()
    elif quantisation is not None:
        value = int(quantisation.zeros.reshape(-1)[0])
    inner = [tuple(pads[axis]) for axis in held.order]
    padding = site.integers([*(pair[0] for pair in inner), *(pair[1] for pair in inner)])
    return Held(site.onnx("Pad", held.expr, padding, site.like(value, held.expr)), held.order)


@rule("MIRROR_PAD")
def _mirror_pad(site: Site) -> Result:
    held = site.held(0)
    pads = site.constant(1, "the padding").reshape(-1, 2).tolist()
    edge = int(site.option("mode"))  # 1: the first element is repeated, too
    most = [size - 1 + edge for size in held.shape]
    if len(pads) != len(held.order) or any(
        not 0 <= each <= most[axis] for axis, pair in enumerate(pads) for each in pair
    ):
        raise site.error(f"the padding {pads} does not fit {list(held.shape)}")
    for axis, (before, after) in enumerate(pads):
        if before or after:
            rows = np.pad(np.arange(held.shape[axis]), (before, after), "symmetric" if edge else "reflect")
            held = Held(site.call("gather", held.expr, Constant(rows), axis=held.place(axis)), held.order)
    return held


@rule("TILE")
def _tile(site: Site) -> Result:
    x, counts = site.raw(0), site.numbers(1, "the counts")
    if len(counts) != len(x.shape):
        raise site.error(f"{len(counts)} counts do not fit {list(x.shape)}")
    site.made([size * count for size, count in zip(x.shape, counts, strict=True)])
    return site.onnx("Tile", x, site.integers(counts))  # type: ignore[no-any-return]


@rule("BROADCAST_TO")
def _broadcast(site: Site) -> Result:
    x, shape = site.raw(0), site.made(site.numbers(1, "the shape"))
    return site.expand(x, shape)


@rule("REVERSE_V2")
def _reverse(site: Site) -> Result:
    held = site.held(0)
    for each in site.numbers(1, "the axes"):
        axis = site.axis(each, len(held.order))
        rows = np.arange(held.shape[axis])[::-1].copy()
        held = Held(site.call("gather", held.expr, Constant(rows), axis=held.place(axis)), held.order)
    return held


@rule("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _space_and_batch(site: Site) -> Result:
    x = site.raw(0)
    block = site.numbers(1, "the block")
    edges = site.constant(2, "the edges").reshape(-1, 2).tolist()
    count = len(block)
    if not count or len(edges) != count or len(x.shape) < 1 + count or min(block) < 1 or min(map(min, edges)) < 0:
        raise site.error(f"blocks of {block} with edges {edges} do not fit {list(x.shape)}")
    rest, product = x.shape[1 + count :], math.prod(block)
    if site.op == "SPACE_TO_BATCH_ND":
        around = [(0, 0), *edges, *((0, 0) for _ in rest)]
        site.made([size + sum(pair) for size, pair in zip(x.shape, around, strict=True)])
        quantisation = site.quantisation(0)
        value = site.like(0 if quantisation is None else int(quantisation.zeros.reshape(-1)[0]), x)
        if any(map(any, edges)):
            x = site.onnx("Pad", x, site.integers([*(p[0] for p in around), *(p[1] for p in around)]), value)
        sizes = x.shape[1 : 1 + count]
        if any(size % b for size, b in zip(sizes, block, strict=True)):
            raise site.error(f"{list(sizes)} has no whole blocks of {block}")
        pairs = [each for size, b in zip(sizes, block, strict=True) for each in (size // b, b)]
        split = site.reshape(x, (x.shape[0], *pairs, *rest))
        inner, outer = [2 + 2 * i for i in range(count)], [1 + 2 * i for i in range(count)]
        turned = site.transpose(split, (*inner, 0, *outer, *range(1 + 2 * count, len(split.shape))))
        counts = [size // b for size, b in zip(sizes, block, strict=True)]
        return site.reshape(turned, (x.shape[0] * product, *counts, *rest))
    if x.shape[0] % product:
        raise site.error(f"{x.shape[0]} images are no whole blocks of {block}")
    sizes = x.shape[1 : 1 + count]
    split = site.reshape(x, (*block, x.shape[0] // product, *x.shape[1:]))
    between = [each for i in range(count) for each in (count + 1 + i, i)]
    turned = site.transpose(split, (count, *between, *range(2 * count + 1, len(split.shape))))
    whole = [size * b for size, b in zip(sizes, block, strict=True)]
    held = Held.plain(site.reshape(turned, (x.shape[0] // product, *whole, *rest)))
    for axis, (before, after) in enumerate(edges, 1):
        if before + after > held.shape[axis]:
            raise site.error(f"edges {edges} are larger than {whole}")
        held = _piece(site, held, axis, before, held.shape[axis] - before - after)
    return held


# Made of shapes


@rule("SHAPE")
def _shape_of(site: Site) -> Result:
    return site.like(np.array(site.held(0).shape, np.int64), site.results[0].element)


@rule("RANK")
def _rank(site: Site) -> Result:
    return site.like(len(site.held(0).order), site.results[0].element)


@rule("WHERE")
def _places(site: Site) -> Result:
    """Where elements are not zero, a row for each."""
    return site.like(np.argwhere(site.constant(0, "its operand")), site.results[0].element)


@rule("UNIQUE")
def _unique(site: Site) -> tuple[Result, ...]:
    """Each element once, in the order in which they first appear, and where each stands there."""
    x = site.constant(0, "its operand").reshape(-1)
    values, first, places = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return (site.like(values[order], site.held(0).expr),
            site.like(np.argsort(order)[places.reshape(-1)], site.results[1].element))  # fmt: skip


@rule("ZEROS_LIKE")
def _zeros(site: Site) -> Result:
    return site.like(np.zeros(site.made(site.held(0).shape)), site.held(0).expr)


@rule("FILL")
def _fill(site: Site) -> Result:
    return site.expand(site.reshape(site.raw(1), ()), site.made(site.numbers(0, "the shape")))


@rule("BROADCAST_ARGS")
def _common_shape(site: Site) -> Result:
    shapes = [site.numbers(index, "a shape") for index in (0, 1)]
    return site.like(np.array(np.broadcast_shapes(*map(tuple, shapes)), np.int64), site.results[0].element)


@rule("RANGE")
def _range(site: Site) -> Result:
    start, end, step = (site.constant(index, "an end of the range").reshape(-1)[0] for index in range(3))
    if not step or not all(np.isfinite(float(each)) for each in (start, end, step)):
        raise site.error(f"there is no range from {start} to {end} in steps of {step}")
    count = max(math.ceil((float(end) - float(start)) / float(step)), 0)
    site.made([count])
    return Constant((start + np.arange(count) * step).astype(numpy_dtype(site.held(0).expr.dtype)))


# Computed places


@rule("GATHER")
def _gather(site: Site) -> Result:
    held, places = site.held(0), site.raw(1)
    axis = site.axis(site.option("axis"), len(held.order))
    batch = int(site.option("batch_dims"))
    batch += len(places.shape) if batch < 0 else 0
    if places.dtype not in INTEGERS or not 0 <= batch <= min(axis, len(places.shape)):
        raise site.error(f"places of type {places.tensor_type} with {batch} axes in common cannot be read")
    if not batch:
        return site.call("gather", site.ordered(held), site.cast(places, "int64"), axis=axis)
    if axis != batch:
        raise site.error(f"axis {axis} behind {batch} axes in common is not supported", hint="transpose the operand")
    index = site.reshape(site.cast(places, "int64"), (*places.shape, 1))
    return site.call("gather_nd", site.ordered(held), index, batch_dims=batch)


@rule("GATHER_ND")
def _gather_nd(site: Site) -> Result:
    return site.call("gather_nd", site.raw(0), site.cast(site.raw(1), "int64"))


@rule("SCATTER_ND")
def _scatter_nd(site: Site) -> Result:
    """Elements that are set several times are summed."""
    updates = site.raw(1)
    shape = site.made(site.numbers(2, "the shape"))
    base = site.like(np.zeros(shape), updates)
    return site.call("scatter_nd", base, site.cast(site.raw(0), "int64"), updates, reduction="add")


@rule("ONE_HOT")
def _one_hot(site: Site) -> Result:
    places, depth = site.raw(0), site.numbers(1, "the depth")[0]
    rank = len(places.shape)
    axis = site.axis(int(site.option("axis")), rank + 1)
    site.made([*places.shape, depth])
    lane = [depth if number == axis else 1 for number in range(rank + 1)]
    classes = site.like(np.arange(depth).reshape(lane), places)
    spread = site.reshape(places, (*places.shape[:axis], 1, *places.shape[axis:]))
    on, off = (site.reshape(site.raw(index), ()) for index in (2, 3))
    return site.call("nn.where", site.call("nn.equal", spread, classes), on, off)


@rule("DYNAMIC_UPDATE_SLICE")
def _update_slice(site: Site) -> Result:
    x, update, place = site.raw(0), site.raw(1), site.raw(2)
    if (
        place.shape != (len(x.shape),)
        or len(update.shape) != len(x.shape)
        or any(part > whole for part, whole in zip(update.shape, x.shape, strict=False))
    ):
        raise site.error(f"a part of shape {list(update.shape)} at {place.type} does not fit {list(x.shape)}")
    site.made(update.shape)
    if not x.shape:
        return update
    room = site.integers(whole - part for whole, part in zip(x.shape, update.shape, strict=True))
    starts = site("minimum", site("maximum", site.cast(place, "int64"), 0), room)
    grid = Constant(np.stack(np.meshgrid(*map(np.arange, update.shape), indexing="ij"), -1).astype(np.int64))
    known = site.node.scope.static_value(starts)
    return site.call("scatter_nd", x, site("add", grid, starts) if known is None else Constant(grid.value + known),
                     update)  # fmt: skip


@rule("REVERSE_SEQUENCE")
def _reverse_sequence(site: Site) -> Result:
    """The first elements of each row, as many as its length says, in the opposite order."""
    x = site.raw(0)
    counts = site.raw(1)
    axis, batch = site.axis(site.option("seq_dim"), len(x.shape)), site.axis(site.option("batch_dim"), len(x.shape))
    size = x.shape[axis]
    if axis == batch or counts.shape != (x.shape[batch],):
        raise site.error(f"lengths of type {counts.type} do not fit {list(x.shape)}")
    known = site.node.scope.static_value(counts)
    if known is not None and any(not 0 <= n <= size for n in known):
        raise site.error(f"lengths {known.tolist()} do not fit {list(x.shape)}")
    rank = len(x.shape)
    length = site.reshape(
        site.cast(counts, "int64"), [x.shape[batch] if number == batch else 1 for number in range(rank)]
    )
    place = Constant(np.arange(size).reshape([size if number == axis else 1 for number in range(rank)]))
    turned = site("subtract", site("subtract", length, 1), place)
    places = site.expand(site.where(site("less_equal", site.like(0, turned), turned), turned, place), x.shape)
    return site.call("gather_elements", x, places, axis=axis)
