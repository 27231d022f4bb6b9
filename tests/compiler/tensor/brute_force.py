"""The loop IR executed one scalar at a time in plain Python: slow, and independent of the interpreter's grids.

Loops whose iterations may run at once do so here: in lockstep, statement by statement, the last iteration first. So a
mark on a loop whose iterations meet shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from weft.compiler import tensor as t
from weft.compiler.tensor.evaluate import OPERATOR_VALUES, call_function, convert, wrap

Memory = dict[str, Any]


@dataclass(frozen=True)
class Thread:
    """One of the iterations that run at once: its loop variables and the buffers that it sees."""

    env: dict[t.Var, int]
    memory: Memory


def run(func: t.PrimFunc, arrays: Memory) -> Memory:
    """All parameters after running ``func``."""
    memory = {name: array.copy() for name, array in arrays.items()}
    for buffer in func.params:
        memory.setdefault(buffer.name, np.zeros(buffer.shape, t.NUMPY_TYPES[buffer.dtype]))
    with np.errstate(all="ignore"):
        execute(func.body, [Thread({}, memory)])
    return {buffer.name: memory[buffer.name] for buffer in func.params}


def execute(stmt: t.Stmt, threads: list[Thread]) -> None:
    match stmt:
        case t.For(var=var, extent=extent, kind=kind, body=body):
            counts = [scalar(extent, thread) for thread in threads]
            steps = list(zip(threads, counts, strict=True))
            if kind not in ("serial", "unroll"):
                woven = [
                    Thread({**thread.env, var: value}, thread.memory)
                    for thread, count in steps
                    for value in reversed(range(count))
                ]
                execute(body, woven)
                return
            for value in range(max(counts, default=0)):
                execute(body, [Thread({**thread.env, var: value}, thread.memory) for thread, n in steps if value < n])
        case t.Seq(body):
            for child in body:
                execute(child, threads)
        case t.Allocate(buffer, body):
            empty = np.full(buffer.shape, 99, t.NUMPY_TYPES[buffer.dtype])
            execute(body, [Thread(thread.env, {**thread.memory, buffer.name: empty.copy()}) for thread in threads])
        case t.If(cond, then):
            execute(then, [thread for thread in threads if scalar(cond, thread)])
        case t.Store():
            for thread in threads:
                store(stmt, thread)
        case t.Block(body=body, reduce_vars=reduce_vars, init=init):
            for thread in threads:
                if init is not None and all(thread.env[var] == 0 for var in reduce_vars):
                    store(t.Store(body.buffer, body.indices, init), thread)
                store(body, thread)


def store(stmt: t.Store, thread: Thread) -> None:
    place = tuple(scalar(index, thread) for index in stmt.indices)
    thread.memory[stmt.buffer.name][place] = scalar(stmt.value, thread)


def scalar(expr: t.Expr, thread: Thread) -> Any:
    match expr:
        case t.Const(value):
            return wrap(value, expr.dtype)
        case t.Var():
            return thread.env[expr]
        case t.BinOp(op, a, b):
            return wrap(OPERATOR_VALUES[op](scalar(a, thread), scalar(b, thread)), expr.dtype)
        case t.Call(function, args):
            return call_function(function, tuple(scalar(arg, thread) for arg in args), expr.dtype)
        case t.Select(cond, a, b):
            return scalar(a if scalar(cond, thread) else b, thread)
        case t.Cast(dtype, x):
            return convert(scalar(x, thread), x.dtype, dtype)
        case t.Load(buffer, indices):
            place = tuple(scalar(index, thread) for index in indices)
            assert all(0 <= index < extent for index, extent in zip(place, buffer.shape, strict=True))
            return thread.memory[buffer.name][place].item()
    raise TypeError(expr)
