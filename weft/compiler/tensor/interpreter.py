"""Running a function in NumPy: the meaning of the loop IR.

Perfect nests around one block or intrinsic call are evaluated on whole index grids at once; everything else runs loop
by loop. Buffers start out filled with a pattern, so that reading what was never written shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import InterpreterError, IRError
from .evaluate import ARRAY_VALUES, FUNCTION_VALUES, NUMPY_TYPES, evaluate
from .intrinsic import call_loops
from .ir import (
    FLOATS,
    Allocate,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from .visitor import accumulation, free_vars, loads, stores_of

Array: TypeAlias = npt.NDArray[Any]

POISON = 0x5B
GRID_LIMIT = 1 << 21
"""Largest number of elements that one evaluation holds; larger nests are cut at their outermost loop."""

_REDUCERS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def interpret(func: PrimFunc, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run ``func``; give all its parameters as they are afterwards, by name.

    ``arrays`` holds every parameter that the function does not write, and may hold the others; they are not changed.
    InterpreterError if one is missing or of another shape or type, or if the program reads or writes out of bounds.
    """
    written = {buffer.name for buffer, _ in stores_of(func.body)}
    memory: dict[str, Array] = {}
    for buffer in func.params:
        if buffer.name in arrays:
            memory[buffer.name] = _checked(buffer, arrays[buffer.name]).reshape(-1).copy()
        elif buffer.name in written:
            memory[buffer.name] = _poisoned(buffer)
        else:
            raise InterpreterError(f"no array was given for parameter {buffer.name!r} of {func.name!r}")
    with np.errstate(all="ignore"):
        _Machine(memory).run(func.body, {})
    return {buffer.name: memory[buffer.name].reshape(buffer.shape) for buffer in func.params}


def _checked(buffer: Buffer, array: Array) -> Array:
    if array.shape != buffer.shape or array.dtype != NUMPY_TYPES[buffer.dtype]:
        raise InterpreterError(
            f"parameter {buffer.name!r} is {buffer.dtype}{list(buffer.shape)}, "
            f"but the array is {array.dtype}{list(array.shape)}"
        )
    return array


def _poisoned(buffer: Buffer) -> Array:
    return np.full(buffer.size, POISON, NUMPY_TYPES[buffer.dtype])


@dataclass(frozen=True)
class _Leaf:
    """One store with what is needed to run it over a grid.

    ``loops`` are the leaf's own (of an intrinsic), ``init`` is stored first where all ``init_vars`` are 0. ``update``
    is (operator, value) if the store has the form x = op(x, value).
    """

    name: str
    store: Store
    loops: tuple[tuple[Var, Expr], ...]
    init: Expr | None
    init_vars: tuple[Var, ...]
    target_vars: frozenset[Var]
    update: tuple[str, Expr] | None
    reads_itself: bool
    recurrent: bool

    @staticmethod
    def of(stmt: Block | Store | IntrinsicCall) -> _Leaf:
        loops: tuple[tuple[Var, Expr], ...] = ()
        init: Expr | None = None
        init_vars: tuple[Var, ...] = ()
        match stmt:
            case Block(name=name, body=store):
                init, init_vars = stmt.init, stmt.reduce_vars
            case Store(buffer=buffer):
                name, store = buffer.name, stmt
            case IntrinsicCall(block=name):
                own, store = call_loops(stmt)
                loops = tuple((var, Const(extent)) for var, extent in own)
                if stmt.init is not None:
                    init, init_vars = stmt.init_value, stmt.init
        own_reads = [node for node in loads(store.value) if node.buffer.name == store.buffer.name]
        update = accumulation(store)
        return _Leaf(
            name=name,
            store=store,
            loops=loops,
            init=init,
            init_vars=init_vars,
            target_vars=frozenset(var for index in store.indices for var in free_vars(index)),
            update=update,
            reads_itself=bool(own_reads),
            recurrent=any(read.indices != store.indices for read in own_reads),
        )


class _Machine:
    """Memory (flat arrays by buffer name) and the walk over the statements."""

    def __init__(self, memory: dict[str, Array]) -> None:
        self.memory = memory
        # Keyed by identity; the statement is kept so that its identity stays its own.
        self._leaves: dict[int, tuple[Stmt, _Leaf]] = {}

    def run(self, stmt: Stmt, env: dict[Var, int]) -> None:
        match stmt:
            case For():
                self._run_loop(stmt, env)
            case Seq(body):
                for child in body:
                    self.run(child, env)
            case Allocate(buffer, body):
                self.memory[buffer.name] = _poisoned(buffer)
                self.run(body, env)
                del self.memory[buffer.name]
            case If(cond, then):
                if _value(cond, env):
                    self.run(then, env)
            case Block() | Store() | IntrinsicCall():
                self._run_nest([], self._leaf(stmt), env)

    def _leaf(self, stmt: Block | Store | IntrinsicCall) -> _Leaf:
        if id(stmt) not in self._leaves:
            self._leaves[id(stmt)] = (stmt, _Leaf.of(stmt))
        return self._leaves[id(stmt)][1]

    def _run_loop(self, loop: For, env: dict[Var, int]) -> None:
        nest: list[tuple[Var, Expr]] = []
        node: Stmt = loop
        while isinstance(node, For):
            nest.append((node.var, node.extent))
            node = node.body
        if isinstance(node, Block | Store | IntrinsicCall):
            self._run_nest(nest, self._leaf(node), env)
            return
        for value in range(int(_value(loop.extent, env))):
            self.run(loop.body, {**env, loop.var: value})

    def _run_nest(self, nest: list[tuple[Var, Expr]], leaf: _Leaf, env: dict[Var, int]) -> None:
        """Run the loops around a leaf on one grid, or cut the outermost loop if they do not fit one."""
        loops = [*nest, *leaf.loops]
        inner = {var for var, _ in loops}
        uneven = any(free_vars(extent) & inner for _, extent in loops)
        if not uneven:
            grid = [(var, int(_value(extent, env))) for var, extent in loops]
            if any(extent <= 0 for _, extent in grid):
                return
            sequential = leaf.recurrent or (
                leaf.reads_itself and leaf.update is None and any(var not in leaf.target_vars for var in inner)
            )
            single = prod(extent for _, extent in grid) == 1
            fits = single or not (sequential or self._too_large(grid, leaf))
            if fits and self._run_grid(grid, leaf, env):
                return
        if nest:
            (var, extent), rest = nest[0], nest[1:]
            for value in range(int(_value(extent, env))):
                self._run_nest(rest, leaf, {**env, var: value})
        else:
            self._run_own_loops(leaf, env)

    def _run_own_loops(self, leaf: _Leaf, env: dict[Var, int]) -> None:
        """The loops of an intrinsic one iteration at a time."""
        points: list[dict[Var, int]] = [env]
        for var, extent in leaf.loops:
            points = [{**point, var: value} for point in points for value in range(int(_value(extent, env)))]
        for point in points:
            self._run_grid([], leaf, point)

    def _too_large(self, grid: Sequence[tuple[Var, int]], leaf: _Leaf) -> bool:
        if prod(extent for _, extent in grid) <= GRID_LIMIT:
            return False
        factors = _exact_product(leaf)
        parts = [leaf.store.value] if factors is None else [*factors, *leaf.store.indices]
        for part in parts:
            used = free_vars(part) if factors is not None else {var for var, _ in grid}
            if prod(extent for var, extent in grid if var in used) > GRID_LIMIT:
                return True
        return prod(extent for var, extent in grid if var in leaf.target_vars) > GRID_LIMIT

    def _run_grid(self, grid: Sequence[tuple[Var, int]], leaf: _Leaf, env: dict[Var, int]) -> bool:
        """Run the leaf for all points of the grid; False, with nothing changed, if its points depend on each other."""
        values: dict[Var, Array] = {var: np.asarray(value) for var, value in env.items()}
        shape = tuple(extent for _, extent in grid)
        spatial = tuple(extent if var in leaf.target_vars else 1 for var, extent in grid)
        for axis, (var, extent) in enumerate(grid):
            line = [1] * len(grid)
            line[axis] = extent
            # What does not address the output and does not accumulate: only the last iteration is seen.
            dead = var not in leaf.target_vars and leaf.update is None and not leaf.reads_itself
            values[var] = np.asarray(extent - 1) if dead else np.arange(extent).reshape(line)
        evaluator = _Evaluator(self.memory, values, leaf.name)
        positions = np.broadcast_to(evaluator.position(leaf.store.buffer, leaf.store.indices, None), spatial)
        if leaf.reads_itself and np.unique(positions).size != positions.size:
            return False
        target = self.memory[leaf.store.buffer.name]
        kind = NUMPY_TYPES[leaf.store.buffer.dtype]
        if leaf.init is not None and all(env.get(var, 0) == 0 for var in leaf.init_vars):
            target[positions] = evaluator.value(leaf.init, None)
        if leaf.update is None:
            target[positions] = np.broadcast_to(evaluator.value(leaf.store.value, None), spatial)
            return True
        op, value = leaf.update
        reduced = tuple(axis for axis, (var, _) in enumerate(grid) if var not in leaf.target_vars)
        factors = _exact_product(leaf)
        if factors is not None and reduced:
            total = _contract(evaluator, factors, shape, reduced).astype(kind)
        else:
            whole = np.broadcast_to(evaluator.value(value, None), shape)
            if op in ("add", "mul"):
                total = _REDUCERS[op].reduce(whole, axis=reduced, keepdims=True, dtype=kind)
            else:
                total = _REDUCERS[op].reduce(whole, axis=reduced, keepdims=True)
        target[positions] = _REDUCERS[op](target[positions], total)
        return True


def _exact_product(leaf: _Leaf) -> tuple[Expr, Expr] | None:
    """Factors of a sum of products of bytes, which double precision adds up without rounding."""
    match leaf.update:
        case ("add", BinOp("mul", Cast("int32" | "int64", a), Cast("int32" | "int64", b))):
            if {a.dtype, b.dtype} <= {"int8", "uint8"}:
                return a, b
    return None


def _contract(
    evaluator: _Evaluator, factors: tuple[Expr, Expr], shape: tuple[int, ...], reduced: tuple[int, ...]
) -> Array:
    """Sum of a * b over the reduced axes (kept with extent 1), as int64."""
    arrays = [np.asarray(evaluator.value(factor, None)) for factor in factors]
    arrays = [array.reshape((1,) * (len(shape) - array.ndim) + array.shape) for array in arrays]
    operands: list[Any] = []
    repeated = 1
    for array in arrays:
        axes = [axis for axis, extent in enumerate(array.shape) if extent > 1]
        operands += [array.reshape([array.shape[axis] for axis in axes]).astype(np.float64), axes]
    for axis in reduced:
        if all(array.shape[axis] == 1 for array in arrays):
            repeated *= shape[axis]
    kept = [axis for axis in range(len(shape)) if axis not in reduced and any(a.shape[axis] > 1 for a in arrays)]
    total = np.einsum(*operands, kept, optimize=True)
    full = [max(array.shape[axis] for array in arrays) if axis in kept else 1 for axis in range(len(shape))]
    exact: Array = np.asarray(total).astype(np.int64).reshape(full) * repeated
    return exact


def _convert(values: Array, kind: type[np.generic]) -> Array:
    """What Cast gives: integers wrap, floats that fit no integer become the nearest one that does, nan becomes 0."""
    if values.dtype.name not in FLOATS or not issubclass(kind, np.integer):
        return values.astype(kind)
    values, limits = values.astype(np.float64), np.iinfo(kind)
    # Doubles hold every limit, or the power of two next to it, exactly.
    fits = (values > float(limits.min) - 1) & (values < float(limits.max) + 1)
    nearest = np.where(np.isnan(values), kind(0), np.where(values > 0, kind(limits.max), kind(limits.min)))
    return np.where(fits, np.where(fits, values, 0).astype(kind), nearest)


def _value(expr: Expr, env: Mapping[Var, int]) -> int | float:
    try:
        return evaluate(expr, env)
    except IRError as error:
        raise InterpreterError(error.message) from error


class _Evaluator:
    """Evaluates expressions on arrays of index values. ``mask`` says where a value is really needed (None: all)."""

    def __init__(self, memory: Mapping[str, Array], values: Mapping[Var, Array], place: str) -> None:
        self.memory = memory
        self.values = values
        self.place = f"block {place!r}"

    def value(self, expr: Expr, mask: Array | None) -> Array:
        match expr:
            case Const(value):
                return np.asarray(value, NUMPY_TYPES[expr.type])
            case Var(name):
                if expr not in self.values:
                    raise InterpreterError(f"variable {name!r} has no value", at=self.place)
                return self.values[expr]
            case Cast(dtype, x):
                return _convert(self.value(x, mask), NUMPY_TYPES[dtype])
            case Bits(dtype, x):
                return np.asarray(self.value(x, mask)).view(NUMPY_TYPES[dtype])
            case Call(function, args):
                operands = [self.value(arg, mask).astype(np.float64) for arg in args]
                return np.asarray(FUNCTION_VALUES[function](*operands)).astype(NUMPY_TYPES[expr.dtype])
            case BinOp(op, a, b):
                return self._operator(op, self.value(a, mask), self.value(b, mask), mask)
            case Load(buffer, indices):
                loaded: Array = self._array(buffer)[self.position(buffer, indices, mask)]
                return loaded
            case Select(cond, a, b):
                chosen = self.value(cond, mask)
                if chosen.all():
                    return self.value(a, mask)
                if not chosen.any():
                    return self.value(b, mask)
                where_true, where_false = (chosen, ~chosen) if mask is None else (mask & chosen, mask & ~chosen)
                return np.where(chosen, self.value(a, where_true), self.value(b, where_false))
        raise InterpreterError(f"cannot evaluate {type(expr).__name__}", at=self.place)

    def _operator(self, op: str, a: Array, b: Array, mask: Array | None) -> Array:
        if op in ("shl", "shr"):
            bits = a.dtype.itemsize * 8
            amount = self._safe(
                b, (b >= 0) & (b < bits), mask, lambda bad: f"shift by {bad}, but {a.dtype} has {bits} bits"
            )
            return (np.left_shift if op == "shl" else np.right_shift)(a, amount)
        if op in ("floordiv", "mod"):
            divisor = self._safe(b, b != 0, mask, lambda _: "division by zero", instead=1)
            return (np.floor_divide if op == "floordiv" else np.mod)(a, divisor)
        result: Array = ARRAY_VALUES[op](a, b)
        return result

    def _safe(self, values: Array, valid: Array, mask: Array | None, message: Any, instead: int = 0) -> Array:
        """The values with those that are not valid replaced; an error if one of these is needed."""
        if valid.all():
            return values
        needed = ~valid if mask is None else ~valid & mask
        if needed.any():
            bad = np.broadcast_to(values, needed.shape)[needed].flat[0]
            raise InterpreterError(message(int(bad)), at=self.place)
        return np.where(valid, values, np.asarray(instead, values.dtype))

    def position(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Array | None) -> Array:
        """Flat positions of the elements; InterpreterError where one is needed and lies outside."""
        total: Array = np.asarray(0)
        for axis, (index, extent, stride) in enumerate(zip(indices, buffer.shape, buffer.strides, strict=True)):
            elements = self.value(index, mask)

            def message(bad: int, axis: int = axis, extent: int = extent) -> str:
                return f"index {bad} of dimension {axis} is outside {buffer.name!r}, which has {extent} elements there"

            total = total + self._safe(elements, (elements >= 0) & (elements < extent), mask, message) * stride
        return total

    def _array(self, buffer: Buffer) -> Array:
        if buffer.name not in self.memory:
            raise InterpreterError(f"buffer {buffer.name!r} is read where it does not exist", at=self.place)
        return self.memory[buffer.name]
