"""Ensembles of decision trees (ai.onnx.ml.TreeEnsemble), as steps that all trees and rows take at once.

Nodes and leaves are numbered together; a leaf leads to itself. So after as many steps as the deepest tree has levels,
each row is at a leaf of each tree. A step picks the node's feature and threshold, compares, and picks the next number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import FLOATS, limits, numpy_dtype
from .node import Converted, Node, converter

DEEPEST = 512
"""Levels of a tree: each is a step of the graph."""

LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, UNEQUAL, MEMBER = range(7)
AVERAGE, SUM, LEAST, GREATEST = range(4)
NO_TRANSFORM, SOFTMAX, LOGISTIC = range(3)


@dataclass(frozen=True)
class _Forest:
    """Tables of all nodes, with the leaves behind them. ``after``: where a node leads, (2, count), if its comparison
    does not hold, and if it does. ``members``: each set, filled up with NaN. ``depth``: steps to any leaf."""

    roots: Array
    after: Array
    features: Array
    splits: Array
    modes: Array
    missing: Array
    members: Array
    depth: int
    weights: Array
    targets: Array


@converter("ai.onnx.ml.TreeEnsemble")
def _tree_ensemble(node: Node) -> Converted:
    x = node.input(0)
    if len(x.shape) != 2 or x.dtype not in FLOATS:
        raise node.error(f"its operand must be floats (N, features), not {x.tensor_type}")
    forest = _forest(node, x)
    place: Expr = node.call("expand", Constant(forest.roots[None]), shape=(x.shape[0], len(forest.roots)))
    for _ in range(forest.depth):
        place = _next(node, forest, x, place)
    return _transformed(node, _aggregated(node, forest, x, place))


def _integers(node: Node, name: str, count: int | None = None, most: int | None = None) -> Array:
    values = np.array(node.integers(name) or (), np.int64)
    if count is not None and len(values) != count:
        raise node.error(f"attribute {name!r} has {len(values)} numbers for {count} nodes or leaves")
    if most is not None and len(values) and not 0 <= int(values.min()) <= int(values.max()) < most:
        raise node.error(f"a number of attribute {name!r} is outside of 0..{most - 1}")
    return values


def _tensor(node: Node, name: str, count: int) -> Array:
    values = np.asarray(node.attrs.get(name, ())).reshape(-1)
    if len(values) != count:
        raise node.error(f"attribute {name!r} has {len(values)} elements for {count} nodes or leaves")
    return values


def _forest(node: Node, x: Expr) -> _Forest:
    features = _integers(node, "nodes_featureids", most=x.shape[1])
    count = len(features)
    targets = _integers(node, "leaf_targetids", most=node.integer("n_targets", 0))
    leaves = len(targets)
    roots = _integers(node, "tree_roots", most=count)
    if not count or not leaves or not len(roots):
        raise node.error("has no tree with a leaf")
    after = []
    for side in ("false", "true"):
        numbers, is_leaf = (_integers(node, f"nodes_{side}{what}", count) for what in ("nodeids", "leafs"))
        most = np.where(is_leaf != 0, leaves, count)
        if ((numbers < 0) | (numbers >= most)).any():
            raise node.error(f"a number of attribute 'nodes_{side}nodeids' is outside of the nodes or leaves")
        after.append(np.concatenate([np.where(is_leaf != 0, count + numbers, numbers), count + np.arange(leaves)]))
    modes = _tensor(node, "nodes_modes", count).astype(np.int64)
    if modes.min() < LESS_EQUAL or modes.max() > MEMBER:
        raise node.error(f"a mode is outside of {LESS_EQUAL}..{MEMBER}")
    splits = _tensor(node, "nodes_splits", count).astype(numpy_dtype(x.dtype))
    missing = _integers(node, "nodes_missing_value_tracks_true")
    missing = missing != 0 if len(missing) == count else np.zeros(count, bool)

    def with_leaves(values: Array) -> Array:
        return np.concatenate([values, np.zeros((leaves, *values.shape[1:]), values.dtype)])

    return _Forest(
        roots, np.stack(after), with_leaves(features), with_leaves(splits), with_leaves(modes), with_leaves(missing),
        with_leaves(_members(node, modes, splits.dtype)), _depth(node, roots, np.stack(after), count),
        _tensor(node, "leaf_weights", leaves).astype(numpy_dtype(x.dtype)), targets,
    )  # fmt: skip


def _members(node: Node, modes: Array, dtype: np.dtype[Any]) -> Array:
    """The set of each node, (nodes, largest set), filled up with NaN."""
    sets: list[list[float]] = [[]]
    for value in np.asarray(node.attrs.get("membership_values", ())).reshape(-1).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    places = np.flatnonzero(modes == MEMBER)
    given = sets if sets[-1] else sets[:-1]
    if len(given) != len(places):
        raise node.error(f"there are {len(given)} sets of members for {len(places)} nodes that ask for one")
    table = np.full((len(modes), max(map(len, given), default=0)), np.nan, dtype)
    for place, values in zip(places, given, strict=True):
        table[place, : len(values)] = values
    return table


def _depth(node: Node, roots: Array, after: Array, count: int) -> int:
    """Steps from any root to a leaf. `ModelError` for nodes that lead back to themselves, and for trees too deep."""
    level = np.unique(roots)
    for depth in range(DEEPEST + 1):
        level = level[level < count]
        if not len(level):
            return depth
        level = np.unique(after[:, level])
    raise node.error(f"a tree is deeper than {DEEPEST} levels, or leads back to itself")


def _next(node: Node, forest: _Forest, x: Expr, place: Expr) -> Expr:
    """Where each row is in each tree after a step, (N, trees)."""

    def picked(table: Array) -> Expr:
        return node.call("gather", Constant(table), place, axis=0)

    value = node.call("gather_elements", x, picked(forest.features), axis=1)
    split = picked(forest.splits)
    inner = forest.modes[: len(forest.modes) - len(forest.targets)]
    holds: Expr | None = None
    for mode in np.unique(inner).tolist():
        if mode == MEMBER:
            found = _is_member(node, value, picked(forest.members))
        else:
            found = _COMPARISONS[mode](node, value, split)
        if holds is None:
            holds = found
        else:
            here = node.call("nn.equal", picked(forest.modes), node.like(mode, "int64"))
            holds = node.call("nn.where", here, found, holds)
    assert holds is not None  # there is a node
    if forest.missing.any():
        unknown = node.call("nn.and", node.call("nn.is_nan", value), picked(forest.missing))
        holds = node.call("nn.or", holds, unknown)
    return node.call("nn.where", holds, picked(forest.after[1]), picked(forest.after[0]))


def _compared(op: str, swapped: bool = False, inverted: bool = False) -> Callable[[Node, Expr, Expr], Expr]:
    def build(node: Node, value: Expr, split: Expr) -> Expr:
        result = node.call(op, split, value) if swapped else node.call(op, value, split)
        return node.call("nn.not", result) if inverted else result

    return build


_COMPARISONS: dict[int, Callable[[Node, Expr, Expr], Expr]] = {
    LESS_EQUAL: _compared("nn.less_equal"), LESS: _compared("nn.less"),
    GREATER_EQUAL: _compared("nn.less_equal", swapped=True), GREATER: _compared("nn.less", swapped=True),
    EQUAL: _compared("nn.equal"), UNEQUAL: _compared("nn.equal", inverted=True),
}  # fmt: skip


def _is_member(node: Node, value: Expr, members: Expr) -> Expr:
    same = node.call("nn.equal", node.reshape(value, (*value.shape, 1)), members)
    return node.call("nn.reduce_max", same, axes=(2,), keepdims=False)


def _aggregated(node: Node, forest: _Forest, x: Expr, place: Expr) -> Expr:
    """What the leaves of all trees say of each target, (N, targets)."""
    count = len(forest.modes) - len(forest.targets)
    how = node.integer("aggregate_function", SUM)
    if how not in (AVERAGE, SUM, LEAST, GREATEST):
        raise node.error(f"attribute 'aggregate_function' must be {AVERAGE}..{GREATEST}, not {how}")
    low, high = limits(x.dtype)
    nothing = {LEAST: high, GREATEST: low}.get(how, 0)

    def of_leaves(values: Array) -> Expr:
        table = np.concatenate([np.zeros(count, values.dtype), values])
        return _deeper(node, node.call("gather", Constant(table), place, axis=0))

    wanted = Constant(np.arange(node.integer("n_targets", 0)).reshape(1, 1, -1))
    here = node.call("nn.equal", of_leaves(forest.targets), wanted)
    said = node.call("nn.where", here, of_leaves(forest.weights), node.like(nothing, x))
    op = {LEAST: "nn.reduce_min", GREATEST: "nn.reduce_max"}.get(how, "nn.reduce_sum")
    result: Expr = node.call(op, said, axes=(1,), keepdims=False)
    return node.call("nn.divide", result, node.like(len(forest.roots), x)) if how == AVERAGE else result


def _deeper(node: Node, x: Expr) -> Expr:
    return node.reshape(x, (*x.shape, 1))


def _transformed(node: Node, scores: Expr) -> Expr:
    match node.integer("post_transform", NO_TRANSFORM):
        case 0:
            return scores
        case 1:
            return node.call("nn.softmax", scores, axis=1)
        case 2:
            return node.call("nn.sigmoid", scores)
        case other:
            raise node.error(f"the transform {other} of scores is not supported",
                             hint="supported are 0 (none), 1 (softmax), 2 (logistic)")  # fmt: skip
