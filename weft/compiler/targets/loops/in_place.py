"""Which operands a kernel may overwrite with its result.

In place means that each element of the result lies where one element of the operand lay, and that no element of the
result is computed twice. A statement reads before it writes, so any order of its iterations, on any thread, is right.
Each statement that reads the operand must be one of these:

- the statement that makes the result, and it reads only the element that it replaces (no halo, broadcast, transpose);
- one in an earlier part of the kernel (a sum over everything): all threads finish a part before any begins the next;
- one that reads only the row which the same iteration of the loops around both replaces later (the sum of a softmax).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...tensor import ir as tir
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.simplify import Loops, simplify
from ...tensor.tree import leaves, loops_of, ranges_of, writers
from ...tensor.visitor import free_vars, loads_of, walk_exprs


def overwritable(
    func: tir.PrimFunc, inputs: int, windows: Mapping[str, tuple[int, ...]], offset: int
) -> tuple[bool, ...]:
    """For each of the first ``inputs`` parameters of a scheduled function, whether its last one, the result, may be
    written over it.

    ``windows``, ``offset``: strides of the result where it is the inside of a larger tensor, and the element of that
    tensor at which it starts. Operands are whole tensors.
    """
    output = func.params[-1]
    written = _positions_of(func, output, windows.get(output.name, output.strides), offset)
    plain = output.name not in windows and not offset
    return tuple(
        written is not None and _is_read_there(func, buffer, output, *written, plain and buffer.shape == output.shape)
        for buffer in func.params[:inputs]
    )


def _positions_of(
    func: tir.PrimFunc, output: tir.Buffer, strides: Sequence[int], offset: int
) -> tuple[tir.Stmt, tir.Expr] | None:
    """The one statement that makes the elements of the result, and where each lies; None if an element may be written
    more than once."""
    paths = writers(func.body, output)
    leaf = paths[0][-1]
    if len(paths) > 1 or not isinstance(leaf, tir.Block) or leaf.init is not None:
        return None
    position = _position(leaf.body.indices, strides, offset)
    loops = ranges_of(paths[0])
    shared = [node for node in walk_exprs(position) if isinstance(node, tir.BinOp) and node.op in ("min", "max")]
    apart = all(var in free_vars(position) for var, extent in loops if extent != tir.Const(1))
    return None if shared or not apart else (leaf, position)


def _is_read_there(
    func: tir.PrimFunc, buffer: tir.Buffer, output: tir.Buffer, writer: tir.Stmt, position: tir.Expr, whole: bool
) -> bool:
    """Whether ``buffer`` is read only in earlier parts than that of the statement ``writer``, or earlier in the
    iteration that replaces it, or by the writer, at the element that it is about to write. ``whole``: whether the
    result has the shape of the operand."""
    if ITEM_BYTES[buffer.dtype] != ITEM_BYTES[output.dtype]:
        return False
    paths = list(leaves(func.body))
    last = next(_part(path) for path in paths if path[-1] is writer)
    before = True
    for path in paths:
        before = before and _part(path) is not last
        for read, indices in loads_of(path[-1]):
            if read != buffer or before:
                continue
            if path[-1] is writer:
                allowed = _same(_position(indices, buffer.strides, 0), position, ranges_of(path))
            else:
                allowed = whole and _is_of_its_own_iteration(path, indices, paths, writer)
            if not allowed:
                return False
    return True


def _is_of_its_own_iteration(
    path: Sequence[tir.Stmt], indices: Sequence[tir.Expr], paths: Sequence[Sequence[tir.Stmt]], writer: tir.Stmt
) -> bool:
    """Whether what a statement reads at ``indices`` of the operand is replaced only later in the same iteration of the
    loops around both: the index of some axis is the loop's variable in both, for each of these loops."""
    order = [other[-1] for other in paths]
    target = next(other for other in paths if other[-1] is writer)
    if not isinstance(writer, tir.Block) or order.index(path[-1]) > order.index(writer):
        return False
    same = {read for read, written in zip(indices, writer.body.indices, strict=True) if read == written}
    around = [node for node in loops_of(target) if any(node is other for other in path)]
    return all(node.var in same or node.extent == tir.Const(1) for node in around)


def _part(path: Sequence[tir.Stmt]) -> tir.Stmt:
    """The statement at the top of the function that a leaf is in: a part of the work (see ``emit``)."""
    return next(node for node in path if not isinstance(node, tir.Allocate | tir.Seq))


def _position(indices: Sequence[tir.Expr], strides: Sequence[int], start: int) -> tir.Expr:
    """Where an element lies in memory, counted in elements."""
    total: tir.Expr = tir.Const(start)
    for index, stride in zip(indices, strides, strict=True):
        total = total + index * stride
    return total


def _same(a: tir.Expr, b: tir.Expr, loops: Loops) -> bool:
    return simplify(a - b, loops) == tir.Const(0)
