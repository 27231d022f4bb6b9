"""Cycles that no program with a tiling gets below, of many tilings of a kernel at once: what a proof may cut by.

The array, the vector engine and the bus each need some cycles for a tiling, and none of them is busy from the first
cycle to the last. The first instruction comes a latency after the start, and the first input another one later. What is
made last goes through the vector stages, then it is stored, then the memory answers. Further instructions, tokens,
conflicts of banks and waits in between count nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .....hw.isa import Scratchpad
from ..operators.builder import Window
from ..schedule.tiling import CHANNEL_AXES, ChainTiling, Problem, Tiling
from .chain_tiling import Axis, Layer, Spans, layers_of
from .space import PORTIONS, THREADS, needs, read_by
from .tile_costs import TileLoops, chunks_of, row_cycles_of
from .tiles import Array, ChainTiles, Tiles


def least_of(problem: Problem, tilings: Sequence[Tiling], *, relaxed: bool = False) -> Array:
    """A lower bound for each tiling. ``relaxed``: for every loop order, epilogue, number of threads and portion."""
    tiles = Tiles.of(tilings)
    if relaxed:
        tiles = _with_least_ends(problem, tiles)
    config, rate, latency = problem.config, problem.bytes_per_cycle, problem.rate.latency
    least = needs(problem)
    array = _array(problem, tiles, least.array)
    loaded, first, begun = _loads(problem, tiles, relaxed)
    part = _last_part(problem, tiles)
    end = part * config.out_bytes / rate + latency
    cycles: Array = first / rate + least.vector + end
    if problem.is_matrix:
        cycles = np.maximum(cycles, begun / rate + array + part * problem.vector_stages + end)
    loaded = loaded + config.instruction_bytes * (1 + _instructions(problem, tiles, relaxed))
    cycles = np.maximum(cycles, _of_bus(problem, loaded, least.written))
    return cycles + 2 * latency


def _of_bus(problem: Problem, read: Any, written: float) -> Any:
    """Cycles for bytes, one number or an array of them. Reads and writes share the memory, and each has a bus of its
    own."""
    bus = problem.config.bus_bytes
    return np.maximum((read + written) / problem.rate.bytes_per_cycle, np.maximum(read / bus, written / bus))


def _with_least_ends(problem: Problem, tiles: Tiles) -> Tiles:
    ones = np.ones(len(tiles), np.int64)
    portion = problem.whole_units(-(-problem.portionable // max(PORTIONS)))
    return replace(tiles, epilogue_groups=ones, epilogue_rows=ones, portion=portion * ones)


def _array(problem: Problem, tiles: Tiles, once: float) -> Array:
    section = problem.kernel.section
    if section.tapped and section.window is not None:
        outer, groups, height, width = problem.output
        found: Array = outer * groups * height * row_cycles_of(section.window, width, tiles.columns) * section.taps
        return found
    return np.full(len(tiles), float(once))


def _last(size: int | Array, tile: Array) -> Array:
    """Of the pieces that a size is cut into, the last one."""
    found: Array = size - (-(-size // tile) - 1) * tile
    return found


def _last_part(problem: Problem, tiles: Tiles) -> Array:
    """Entries of the last part of the last tile that goes through the vector stages."""
    _, groups, height, width = problem.output
    of_tile = _last(groups, tiles.groups), _last(height, tiles.rows), _last(width, tiles.columns)
    parts = _last(of_tile[0], tiles.epilogue_groups), _last(of_tile[1], tiles.epilogue_rows)
    found: Array = parts[0] * parts[1] * of_tile[2] * problem.parts
    return found


def _instructions(problem: Problem, tiles: Tiles, relaxed: bool) -> Array:
    """Of the anchor, the vector stages and the stores."""
    count: Array = TileLoops(problem, tiles).tiles
    if not relaxed:
        epilogues = -(-tiles.groups // tiles.epilogue_groups) * -(-tiles.rows // tiles.epilogue_rows)
        count = count * (chunks_of(problem, tiles) + epilogues * (problem.vector_stages + 1))
    return count


def _loads(problem: Problem, tiles: Tiles, relaxed: bool) -> tuple[Array, Array, Array]:
    """Bytes that a program loads at least, of these what comes before anything can be computed, and those during which
    the array does nothing.

    Every byte that is needed is loaded once, and what tiles load again is added: inputs whose tiles overlap or come
    again with each tile of channels, weights that come again with each tile of the picture.
    """
    kernel, window, read = problem.kernel, problem.kernel.window, needs(problem).read
    loaded, first = np.full(len(tiles), float(sum(read.values()))), np.zeros(len(tiles))
    data = read_by(kernel.output, kernel.stages.data)
    shape = next((each.shape for each in kernel.inputs if each.name == data), ())
    if window is None or not shape or problem.window_places:
        return loaded, first, first
    loops, chunks = TileLoops(problem, tiles), chunks_of(problem, tiles)
    outer, groups, height, width = problem.output
    picture = (height, width) if problem.images_are_rows else (shape[2], shape[3])
    rows, first_row = _met(window, 0, height, picture[0], tiles.rows)
    columns, first_column = _met(window, 1, width, picture[1], tiles.columns)
    entry = Scratchpad.INP.dram_bytes(problem.config) if problem.is_matrix else problem.config.out_bytes
    if problem.reduction:
        at_once = _at_once(tiles)
        again = 1.0 if relaxed else _times(loops, problem.data_axes, chunks)
    else:  # each group of the result reads a group of the input
        at_once, again = tiles.groups, 1.0
    first = at_once * first_row * first_column * entry
    every = problem.reduction or groups
    loaded += np.maximum(outer * every * rows * columns * entry * again - read[data], 0)
    if problem.reduction and kernel.section.kept is None and not kernel.section.own_matrices:
        if not relaxed:
            loaded += (_times(loops, CHANNEL_AXES, chunks) - 1) * read[kernel.matrix_weights]
        pixels = first_row * first_column * entry
        first = first + at_once * problem.taps * problem.matrix_bytes
        if not relaxed:
            return loaded, first, _begun(problem, tiles, loops.threads, pixels)
        portions = (0, *(problem.whole_units(-(-problem.portionable // count)) for count in PORTIONS))
        cut = (replace(tiles, portion=np.full(len(tiles), each)) for each in dict.fromkeys(portions))
        return loaded, first, np.minimum.reduce([_begun(problem, each, max(THREADS), pixels) for each in cut])
    return loaded, first, first


def _at_once(tiles: Tiles) -> Array:
    """Input channel groups of a product."""
    found: Array = np.where(tiles.portion > 0, np.minimum(tiles.portion, tiles.reduction), tiles.reduction)
    return found


def _begun(problem: Problem, tiles: Tiles, threads: Array | int, pixels: Array) -> Array:
    """Bytes of the bus during which the array does nothing: those of its first product, or those of the first tile less
    what it may have done before the last product of that. ``pixels``: bytes of the first tile in each input group.

    A product waits for the matrices of all its output groups. Only those of a program's last load may come group by
    group (``stream/split_end.py``): where all groups are in one tile that may be the load of the first tile, too.
    """
    at_once, tile = _at_once(tiles), tiles.groups * problem.parts
    products = -(-problem.reduction // at_once)
    every, of_group = tiles.groups >= problem.output[1], problem.taps * problem.matrix_bytes
    waited = np.where(every & (products == 1), 1, tile)
    first = at_once * (pixels + waited * of_group)
    waited = np.where(every & ((products == 1) | (TileLoops(problem, tiles).tiles <= max(THREADS))), 1, tile)
    before = (products - 1) * at_once  # input groups before the last product
    whole = problem.reduction * pixels + (before * tile + (problem.reduction - before) * waited) * of_group
    done = threads * tile * tiles.rows * tiles.columns * before * problem.taps
    found: Array = np.maximum(first, whole - done * problem.bytes_per_cycle)
    return found


def _times(loops: TileLoops, depends: frozenset[str], chunks: Array) -> Array:
    """How often each byte is loaded of what is filled where these axes change."""
    whole, in_chunks = loops.placed(depends)[1], loops.in_tiles(depends, chunks)[1] / chunks
    found: Array = np.where(chunks == 1, whole, in_chunks) / loops.tiles_along(depends)
    return np.maximum(found, 1.0)


def _met(window: Window, axis: int, size: int, extent: int, tile: Array) -> tuple[Array, Array]:
    """Rows (``axis`` 0) or columns of the input that tiles of an output of ``size`` load: in sum, and the first."""
    known = {each: _met_by(window, axis, size, extent, each) for each in set(tile.tolist())}
    found = np.array([known[each] for each in tile.tolist()], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


@lru_cache(maxsize=4096)
def _met_by(window: Window, axis: int, size: int, extent: int, tile: int) -> tuple[int, int]:
    stride, pad, step = window.strides[axis], window.pads[axis], window.row_step if axis == 0 else 1
    reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
    starts = range(0, size, tile)
    spans = [(start * stride - pad, (min(start + tile, size) - 1) * stride - pad + reach) for start in starts]
    counts = [_inside(start, stop, step, extent) for start, stop in spans]
    return sum(counts), counts[0]


def _inside(start: int, stop: int, step: int, extent: int) -> int:
    """Places of ``range(start, stop, step)`` that are no padding."""
    begin = start if start >= 0 else start + -(start // step) * step
    return len(range(begin, min(stop, extent), step))


def least_of_chains(problem: Problem, tilings: Iterable[ChainTiling], *, relaxed: bool = False) -> Array:
    """A lower bound for each tiling of a chain. ``relaxed``: for every way, order and epilogue of its tile, with rows
    that stay or without."""
    config, rate, latency = problem.config, problem.bytes_per_cycle, problem.rate.latency
    tiles, least = ChainTiles.of(tilings), needs(problem)
    layers = layers_of(problem, tiles)
    first, last = layers[0], layers[-1]
    array = sum(layer.products for layer in layers if layer.section.matrix_weights)
    vector = sum(_on_vector_engine(layer) for layer in layers)
    entry = Scratchpad.INP.dram_bytes(config) if first.section.matrix_weights else config.out_bytes
    data = read_by(problem.kernel.output, first.section.stages.data)
    in_all, at_first = _loaded(problem, first, data)
    every = first.section.output[0] * first.read_groups * in_all * entry
    loaded = sum(least.read.values()) + np.maximum(0, every - least.read.get(data, every))
    if not relaxed:
        again = last.rows.tiles * last.columns.tiles * problem.output[0] - 1
        weights = sum(least.read.get(layer.section.matrix_weights, 0) for layer in layers)
        loaded = loaded + np.where(tiles.resident, 0, again * weights)
    begin = at_first * np.where(first.inner, 1, first.read_groups) * entry
    part = np.ones(len(tiles), np.int64)
    if not relaxed:
        smallest = last.rows.each(lambda spans: min(spans.made)) * last.columns.each(lambda spans: min(spans.made))
        part = np.where(tiles.epilogue_rows >= tiles.rows, smallest, part)
    end = part * config.out_bytes / rate + latency
    of_last = part * sum(name not in dict(last.section.repeated) for name in last.section.stages.vector)
    engines = np.maximum(array + of_last if last.section.matrix_weights else array, vector)
    cycles: Array = np.maximum(begin / rate + engines + end, _of_bus(problem, loaded, least.written))
    return 2 * latency + cycles


def _on_vector_engine(layer: Layer) -> Array:
    """Cycles of the vector engine for what all tiles make of a layer: its stages, of which those of a layer that
    another one reads end with a copy, and its taps, if it is no matter of the array."""
    section = layer.section
    small = dict(section.repeated)
    stages = sum(name not in small for name in section.stages.vector)
    return layer.all_made * layer.groups * (stages + (0 if section.matrix_weights else layer.taps))


def _loaded(problem: Problem, first: Layer, data: str) -> tuple[Array, Array]:
    """Pixels of the chain's input, ``data``, that all tiles load, and those of the first tile."""
    shape = next(each.shape for each in problem.kernel.inputs if each.name == data)
    window = first.section.window
    row_step = window.row_step if window is not None else 1

    def of_tile(spans: Spans, tile: int, step: int, extent: int) -> int:
        start = spans.start[tile]
        return _inside(start, start + (spans.read[tile] - 1) * step + 1, step, extent)

    def along(axis: Axis, step: int, extent: int) -> tuple[Array, Array]:
        every = axis.each(lambda spans: sum(of_tile(spans, tile, step, extent) for tile in range(len(spans.read))))
        return every, axis.each(lambda spans: of_tile(spans, 0, step, extent))

    (rows, first_rows), (columns, first_columns) = (
        along(first.rows, row_step, shape[2]),
        along(first.columns, 1, shape[3]),
    )
    return rows * columns, first_rows * first_columns
