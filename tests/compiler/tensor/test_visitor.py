"""What rewritings do not change stays the same objects."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.tensor.ir import (
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    minimum,
    select,
)
from weft.compiler.tensor.tree import replace_node, simplify_tree
from weft.compiler.tensor.visitor import (
    free_vars,
    loads,
    map_accesses,
    map_children,
    map_exprs,
    map_stmt_exprs,
    substitute,
    substitute_stmt,
    walk_exprs,
)

ROW, COL = Var("i"), Var("j")
X, Y, Z = (Buffer(name, (4, 8), "int32", "global") for name in "xyz")


def nest(name: str, target: Buffer, source: Buffer, row: Expr = ROW) -> Stmt:
    value = select(COL < 3, Load(source, (row, COL)) + 1, Const(0, "int32"))
    block = Block(name, "spatial", Store(target, (row, COL), value))
    return If(Const(0) < row, For(COL, minimum(row, 5), "serial", block))


def body() -> Stmt:
    return For(ROW, Const(4), "serial", Allocate(Y, Seq((nest("first", Y, X), nest("second", Z, X)))))


def parts(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, For)
    assert isinstance(stmt.body, Allocate)
    assert isinstance(stmt.body.body, Seq)
    return stmt.body.body.body


def test_a_rewriting_that_changes_nothing_gives_the_same_inner_loops() -> None:
    for before in (body(), simplify_tree(body())):
        for after in (map_stmt_exprs(before, lambda expr: expr), substitute_stmt(before, {Var("other"): Const(1)})):
            assert after == before
            for new, old in zip(parts(after), parts(before), strict=True):
                assert isinstance(new, If)
                assert isinstance(old, If)
                assert new.then is old.then
    assert map_children(before, lambda child: child) is before


def test_only_what_accesses_a_buffer_becomes_another() -> None:
    before = body()
    after = map_accesses(before, Y, Buffer("w", (4, 8), "int32"), lambda indices: indices)
    (first, second), (old_first, old_second) = parts(after), parts(before)
    assert first != old_first
    assert second == old_second
    assert isinstance(second, If)
    assert isinstance(old_second, If)
    assert second.then is old_second.then


def test_what_is_simplified_already_stays() -> None:
    once = simplify_tree(For(ROW, Const(4), "serial", nest("only", Z, X)))
    twice = simplify_tree(once)
    assert isinstance(once, For)
    assert isinstance(twice, For)
    assert twice == once


def test_what_is_simple_under_some_loops_is_not_under_others() -> None:
    """What a statement was found to be under its loops is neither believed under others nor handed to processes."""
    copied = Block("copy", "spatial", Store(Z, (ROW, COL), Load(X, (ROW, COL))))
    inner = For(COL, minimum(ROW + 3, 5), "serial", copied)
    found = simplify_tree(For(ROW, Const(4), "serial", inner))
    for _ in range(2):
        assert simplify_tree(found) is found
    assert isinstance(found, For)
    assert found.simple_under >= 0
    fresh = pickle.loads(pickle.dumps(found))
    assert fresh == found
    assert fresh.simple_under == fresh.body.simple_under == -1
    once = simplify_tree(For(ROW, Const(1), "serial", found.body))
    assert once == simplify_tree(For(ROW, Const(1), "serial", fresh.body)) != found
    assert isinstance(once, For)
    assert isinstance(once.body, For)
    assert once.body.extent == Const(3)
    assert simplify_tree(found) is found


def _values() -> st.SearchStrategy[Expr]:
    """Values with loads in all places: of operators, selects, casts, and of the indices of other loads."""
    index = st.sampled_from([ROW, COL, ROW * 2 + COL, Const(3)])
    leaves = st.one_of(
        st.builds(lambda buffer, row, col: Load(buffer, (row, col)), st.sampled_from([X, Y, Z]), index, index),
        st.integers(-9, 9).map(lambda value: Const(value, "int32")),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b, c: select(a < b, c, a), inner, inner, inner),
            st.builds(lambda a, col: Load(X, (a.astype("int64"), col)), inner, index),
        ),
        max_leaves=8,
    )


@given(_values())
def test_what_is_remembered_of_an_expression_is_what_it_has(expr: Expr) -> None:
    nodes = list(walk_exprs(expr))
    for _ in range(2):
        assert free_vars(expr) == {node for node in nodes if isinstance(node, Var)}
        assert loads(expr) == tuple(node for node in nodes if isinstance(node, Load))


@given(_values(), st.sampled_from([{}, {ROW: COL}, {ROW: COL + 1, COL: ROW}, {Var("k"): ROW}]))
def test_variables_are_replaced_all_at_once(expr: Expr, bindings: dict[Var, Expr]) -> None:
    replaced = substitute(expr, bindings)
    assert replaced == map_exprs(expr, lambda node: bindings.get(node) if isinstance(node, Var) else None)
    assert (replaced is expr) == free_vars(expr).isdisjoint(bindings)


def test_a_node_is_replaced_however_deep_it_is() -> None:
    """Deeper than Python calls go; what stands beside the path stays the same object."""
    store, other, beside = (
        Store(buffer, (ROW, COL), Const(number, "int32")) for number, buffer in enumerate((X, Y, Z))
    )
    before: Stmt = store
    for _ in range(2000):
        before = Allocate(X, Seq((beside, before)))
    for new in (other, None):
        node = replace_node(before, store, new)
        for _ in range(1999):
            assert isinstance(node, Allocate)
            assert isinstance(node.body, Seq)
            assert node.body.body[0] is beside
            node = node.body.body[1]
        assert isinstance(node, Allocate)
        assert node.body == (beside if new is None else Seq((beside, other)))
    assert replace_node(before, other, None) is before
    assert replace_node(store, store, None) is None
