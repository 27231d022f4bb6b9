"""The loop IR executed one scalar at a time in plain Python: slow, and independent of the interpreter's grids."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft.compiler import tensor as t
from weft.compiler.tensor.evaluate import OPERATOR_VALUES, wrap

Memory = dict[str, Any]


def run(func: t.PrimFunc, arrays: Memory) -> Memory:
    """All parameters after running ``func``."""
    memory = {name: array.copy() for name, array in arrays.items()}
    for buffer in func.params:
        memory.setdefault(buffer.name, np.zeros(buffer.shape, t.NUMPY_TYPES[buffer.dtype]))
    execute(func.body, {}, memory)
    return {buffer.name: memory[buffer.name] for buffer in func.params}


def execute(stmt: t.Stmt, env: dict[t.Var, int], memory: Memory) -> None:
    match stmt:
        case t.For(var=var, extent=extent, body=body):
            for value in range(scalar(extent, env, memory)):
                execute(body, {**env, var: value}, memory)
        case t.Seq(body):
            for child in body:
                execute(child, env, memory)
        case t.Allocate(buffer, body):
            memory[buffer.name] = np.full(buffer.shape, 99, t.NUMPY_TYPES[buffer.dtype])
            execute(body, env, memory)
        case t.If(cond, then):
            if scalar(cond, env, memory):
                execute(then, env, memory)
        case t.Store(buffer, indices, value):
            place = tuple(scalar(index, env, memory) for index in indices)
            memory[buffer.name][place] = scalar(value, env, memory)
        case t.Block(body=store, reduce_vars=reduce_vars, init=init):
            if init is not None and all(env[var] == 0 for var in reduce_vars):
                execute(t.Store(store.buffer, store.indices, init), env, memory)
            execute(store, env, memory)


def scalar(expr: t.Expr, env: dict[t.Var, int], memory: Memory) -> Any:
    match expr:
        case t.Const(value):
            return value
        case t.Var():
            return env[expr]
        case t.BinOp(op, a, b):
            return wrap(OPERATOR_VALUES[op](scalar(a, env, memory), scalar(b, env, memory)), expr.dtype)
        case t.Select(cond, a, b):
            return scalar(a if scalar(cond, env, memory) else b, env, memory)
        case t.Cast(dtype, x):
            return wrap(scalar(x, env, memory), dtype)
        case t.Load(buffer, indices):
            place = tuple(scalar(index, env, memory) for index in indices)
            assert all(0 <= index < extent for index, extent in zip(place, buffer.shape, strict=True))
            return memory[buffer.name][place].item()
    raise TypeError(expr)
