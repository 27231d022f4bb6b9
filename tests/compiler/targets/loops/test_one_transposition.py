"""Transpositions with reshapes between them are one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Expr, Function, Module, TensorType, Var, call, calls, evaluate
from weft.compiler.targets.loops.prepare import prepare


def module_of(x: Var, body: Expr) -> Module:
    return Module(Function((x,), body, Attrs({"name": "main", "outputs": ("out",)})))


def transpositions(module: Module) -> list[Call]:
    return [node for node in calls(module.main.body) if node.op == "transpose"]


def moved(value: Expr, perms: Sequence[Sequence[int]], shapes: Sequence[Sequence[int]]) -> Expr:
    for perm, shape in zip(perms, shapes, strict=True):
        value = call("reshape", call("transpose", value, perm=tuple(perm)), shape=tuple(shape))
    return value


def same(module: Module, x: Var) -> bool:
    given_ = {"x": np.arange(x.tensor_type.size, dtype=np.int32).reshape(x.shape)}
    return np.array_equal(evaluate(prepare(module), given_)["out"], evaluate(module, given_)["out"])


def test_channels_that_become_heads_and_tokens_are_moved_once() -> None:
    x = Var("x", TensorType((4, 7, 16), "int32"))
    heads = moved(x, [(0, 2, 1), (0, 1, 3, 2)], [(2, 2, 16, 7), (2, 2, 7, 16)])
    module = module_of(x, moved(heads, [(0, 2, 1, 3)], [(2, 7, 32)]))
    assert len(transpositions(module)) == 3
    (one,) = transpositions(prepare(module))
    assert one.shape == (2, 7, 2, 16)  # axes that stay neighbours are one, but for those that the operand has
    assert same(module, x)


def test_axes_that_stay_neighbours_are_one() -> None:
    x = Var("x", TensorType((4, 6, 16), "int32"))
    moves = moved(x, [(1, 0, 2), (0, 1, 3, 2)], [(2, 3, 4, 16), (6, 64)])
    (one,) = transpositions(prepare(module_of(x, moves)))
    assert one.shape == (6, 16, 4)


def test_what_comes_back_is_not_moved_at_all() -> None:
    x = Var("x", TensorType((6, 5, 4), "int32"))
    module = module_of(x, moved(x, [(0, 2, 1), (0, 1, 3, 2)], [(3, 2, 4, 5), (6, 5, 4)]))
    assert not transpositions(prepare(module))
    assert same(module, x)


def test_reshapes_that_take_parts_of_axes_keep_transpositions_apart() -> None:
    x = Var("x", TensorType((6, 4), "int32"))
    module = module_of(x, moved(x, [(1, 0), (1, 0)], [(3, 8), (8, 3)]))  # 4 x 6 in rows of 8
    assert len(transpositions(prepare(module))) == 2
    assert same(module, x)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Var, Expr]:
    shapes = st.permutations([1, 2, 2, 3, 4]).flatmap(
        lambda sizes: st.sets(st.integers(1, 4)).map(
            lambda cuts: tuple(prod(sizes[a:b]) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 5], strict=True))
        )
    )
    x = Var("x", TensorType(draw(shapes), "int32"))
    value: Expr = x
    for _ in range(draw(st.integers(1, 4))):
        value = call("transpose", value, perm=tuple(draw(st.permutations(range(len(value.shape))))))
        value = call("reshape", value, shape=draw(shapes))
    return x, value


@settings(max_examples=150, deadline=None)
@given(chains())
def test_any_chain_of_moves_moves_what_it_did(chain: tuple[Var, Expr]) -> None:
    x, value = chain
    module = module_of(x, value)
    assert same(module, x)
    assert len(transpositions(prepare(module))) <= len(transpositions(module))
