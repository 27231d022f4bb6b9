"""The graph IR: see `ir` for the nodes, `registry` for operators, `text` for the text form, `evaluate` to run it."""

from . import dtypes
from .evaluate import evaluate, evaluate_function
from .ir import (
    UNKNOWN,
    Array,
    Attrs,
    AttrValue,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    TupleGet,
    TupleType,
    Type,
    Var,
)
from .registry import Fusion, Operator, Unsupported, call, operator, operators, set_lowering, unsupported
from .text import constant_table, parse, to_text
from .visit import Mutator, Visitor, calls, rewrite, substitute, topological_order, use_counts, with_children

__all__ = [
    "UNKNOWN", "Array", "AttrValue", "Attrs", "Call", "Constant", "Expr", "Function", "Fusion", "GraphError", "Module",
    "Mutator", "Operator", "Span", "TensorType", "Tuple", "TupleGet", "TupleType", "Type", "Unsupported", "Var",
    "Visitor", "call", "calls", "constant_table", "dtypes", "evaluate", "evaluate_function", "operator", "operators",
    "parse", "rewrite", "set_lowering", "substitute", "to_text", "topological_order", "unsupported", "use_counts",
    "with_children",
]  # fmt: skip
