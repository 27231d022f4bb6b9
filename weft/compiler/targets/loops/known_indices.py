"""Between which numbers data lie that a kernel uses as indices: constants, and what is checked before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...graph.dtypes import is_float
from ...graph.ir import Expr
from ...operators.index import index_sizes, indices_of
from ...tensor.bounds import Elements
from ...tensor.intervals import Interval
from ...tensor.ir import Load, PrimFunc
from ...tensor.visitor import loads_of, stores_of, walk_exprs
from .fusion import FusedGroup
from .kernels import Kernel
from .layouts import PLAIN, Layout

COLUMNS_AT_MOST = 8
"""Numbers of a last axis that are looked at one by one: the coordinates of an element."""


def known_elements(kernel: Kernel, group: FusedGroup, layouts: Mapping[Expr, Layout]) -> Elements:
    """What is known of a kernel's parameters that hold indices."""
    used = _index_buffers(kernel.func)
    if not used:
        return {}
    names = [param.name for param in kernel.func.params]
    known: dict[str, tuple[Interval, ...]] = {}
    for name, array in zip(names[len(kernel.inputs) :], kernel.constants, strict=False):
        if name in used:
            known[name] = intervals_of(array)
    checked = dict(_checked_sizes(group))
    for name, value in zip(names, kernel.inputs, strict=False):
        if name in used and value in checked:
            known[name] = in_range(checked[value] if layouts[value] == PLAIN else (max(checked[value]),))
    return {name: each for name, each in known.items() if each}


def in_range(sizes: tuple[int, ...]) -> tuple[Interval, ...]:
    """Indices of axes of these sizes; a negative one counts from the end."""
    return tuple((-size, size - 1) for size in sizes)


def intervals_of(array: np.ndarray[Any, Any]) -> tuple[Interval, ...]:
    """Of a constant; empty where it holds no integers."""
    if is_float(array.dtype.name) or array.dtype == np.bool_ or not array.size:
        return ()
    if array.ndim < 2 or array.shape[-1] > COLUMNS_AT_MOST:
        return ((int(array.min()), int(array.max())),)
    columns = array.reshape(-1, array.shape[-1])
    return tuple((int(low), int(high)) for low, high in zip(np.min(columns, 0), np.max(columns, 0), strict=True))


def _checked_sizes(group: FusedGroup) -> Iterator[tuple[Expr, tuple[int, ...]]]:
    """Operands of a group that hold indices, and the sizes of the axes in which they count."""
    for node in group.members:
        indices, sizes = indices_of(node), index_sizes(node)
        if indices is not None and sizes:
            yield indices, sizes


def _index_buffers(func: PrimFunc) -> set[str]:
    """Buffers of which elements are used to find others."""
    accesses = (*loads_of(func.body), *stores_of(func.body))
    parts = (node for _, indices in accesses for index in indices for node in walk_exprs(index))
    return {node.buffer.name for node in parts if isinstance(node, Load)}
