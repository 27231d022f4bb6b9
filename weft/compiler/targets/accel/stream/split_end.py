"""The last weights of a program, and its last products, are cut by output group.

Nothing runs beside a program's last products: they begin when the last load of weights is done, and the program ends
with them. Cut with it, all but the last part run while the rest is on its way. So a layer of few rows, whose weights
take the whole time, may have large tiles, which need fewer instructions, and still ends with small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Load, Loop, Opcode, Scratchpad
from .....hw.load_counts import entries_each, entries_of
from .accesses import Stream, stream_of
from .rows import last_of
from .split_loads import cut_load
from .split_products import Product, product_at
from .stream import Issue

SMALLEST_LAST_PART_MICRO_OPS = 16
"""Micro-ops of a part: about as long as the array's pipeline."""

MOST_PARTS_OF_LAST_LOAD = 8
"""Of a load: each costs the bus some cycles."""


def split_end(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with them cut; it means the same."""
    stream = stream_of(issues)
    rows = stream.rows
    place = last_of(rows, Opcode.GEMM)
    product = product_at(stream, place) if place >= 0 else None
    if product is None:
        return stream
    loads = rows.places(Opcode.LOAD)
    loads = loads[loads < place]
    loads = loads[rows.column("scratchpad", loads) == Scratchpad.WGT]
    if not len(loads):
        return stream
    of_load = int(loads[-1])
    whole, load = rows[place], rows[of_load].instruction
    assert isinstance(load, Load)
    group = _loaded_by_group(config, load, product)
    count = product.levels[-1][0]
    size = _size(product) if group else count
    if size == count:
        return stream
    parts = [_loop(product, size, whole), *product.parts(whole, size)]
    if count % size:
        parts.insert(-1, _loop(product, count % size, whole))
    cuts = [first * group for first in range(size, count, size)]
    return stream.cut({of_load: cut_load(config, rows[of_load], load, cuts), place: parts})


def _loaded_by_group(config: CoreConfig, load: Load, product: Product) -> int:
    """Rows of the load, or columns of a single row, for each output group of the product; 0 where it does not load the
    product's matrices, a group after another."""
    count, _, _, to_wgt = product.levels[-1]
    whole = load.index == product.gemm.wgt and entries_of(config, load) == count * to_wgt
    if not whole or load.pad_top or load.pad_bottom or load.pad_left or load.pad_right:
        return 0
    if load.rows > 1:
        return load.rows // count if load.rows % count == 0 else 0
    each = entries_each(config, load)
    return to_wgt // each if to_wgt % each == 0 else 0


def _size(product: Product) -> int:
    """Output groups of a part: as few as are long enough, all parts alike where that is possible."""
    count = product.levels[-1][0]
    inner = prod(extent for extent, *_ in product.levels[:-1])
    least = max(-(-count // MOST_PARTS_OF_LAST_LOAD), -(-SMALLEST_LAST_PART_MICRO_OPS // inner))
    if least >= count:
        return count
    return next((size for size in range(least, count) if count % size == 0), least)


def _loop(product: Product, extent: int, issue: Issue) -> Issue:
    """What sets the outermost loop to so many output groups. No product comes behind that needs the old one."""
    _, to_dst, to_src, to_wgt = product.levels[-1]
    level = len(product.levels) - 1
    loop = Loop(engine=Engine.GEMM, level=level, extent=extent, dst_stride=to_dst, a_stride=to_src, b_stride=to_wgt)
    return Issue(loop, layer=issue.layer, tile=issue.tile)
