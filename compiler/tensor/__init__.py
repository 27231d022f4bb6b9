"""Tensor IR: what is computed (``compute``), how (``Schedule``), with which hardware (``tensor_intrinsic``).

Nothing in this package knows a target: scopes are free words, and what an intrinsic emits is handed on unseen.
``sum``, ``max`` and ``min`` are reductions and hide the built-ins when imported by name.
"""

from __future__ import annotations

from .compute import ReduceAxis, Reduction, Tensor, compute, lower, max, min, placeholder, reduce_axis, sum
from .errors import InterpreterError, IRError, ScheduleError, TensorError
from .evaluate import evaluate
from .interpreter import NUMPY_TYPES, interpret
from .intrinsic import call_loops, flat_buffer, scalar, tensor_intrinsic, tile
from .ir import (
    Allocate,
    BinOp,
    Block,
    Buffer,
    Cast,
    Const,
    DType,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    Operand,
    PrimFunc,
    Region,
    ScalarParam,
    Select,
    Seq,
    Stmt,
    Store,
    TensorIntrinsic,
    Var,
    clamp,
    maximum,
    minimum,
    select,
)
from .parser import parse
from .printer import expr_text, function_text, intrinsic_text, stmt_text
from .schedule import Schedule, Step, Trace, create_schedule, replay, trace_from_json, trace_to_json
from .simplify import constant_range, lower_bound, simplify, upper_bound
from .verify import verify

__all__ = [
    "NUMPY_TYPES",
    "Allocate",
    "BinOp",
    "Block",
    "Buffer",
    "Cast",
    "Const",
    "DType",
    "Expr",
    "For",
    "IRError",
    "If",
    "InterpreterError",
    "IntrinsicCall",
    "Load",
    "Operand",
    "PrimFunc",
    "ReduceAxis",
    "Reduction",
    "Region",
    "ScalarParam",
    "Schedule",
    "ScheduleError",
    "Select",
    "Seq",
    "Step",
    "Stmt",
    "Store",
    "Tensor",
    "TensorError",
    "TensorIntrinsic",
    "Trace",
    "Var",
    "call_loops",
    "clamp",
    "compute",
    "constant_range",
    "create_schedule",
    "evaluate",
    "expr_text",
    "flat_buffer",
    "function_text",
    "interpret",
    "intrinsic_text",
    "lower",
    "lower_bound",
    "max",
    "maximum",
    "min",
    "minimum",
    "parse",
    "placeholder",
    "reduce_axis",
    "replay",
    "scalar",
    "select",
    "simplify",
    "stmt_text",
    "sum",
    "tensor_intrinsic",
    "tile",
    "trace_from_json",
    "trace_to_json",
    "upper_bound",
    "verify",
]
