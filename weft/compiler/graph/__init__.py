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
    require_module,
)
from .registry import (
    LINEAR,
    Accuracy,
    Anchor,
    EightBits,
    Family,
    Fusion,
    Operator,
    Role,
    Unsupported,
    call,
    operator,
    operator_of,
    operators,
    register,
    role_of,
    unsupported,
)
from .text import constant_table, parse, to_text
from .visit import Mutator, Visitor, calls, rewrite, substitute, topological_order, use_counts, with_children

__all__ = [
    "LINEAR", "UNKNOWN", "Accuracy", "Anchor", "Array", "AttrValue", "Attrs", "Call", "Constant", "EightBits", "Expr",
    "Family", "Function", "Fusion", "GraphError", "Module", "Mutator", "Operator", "Role", "Span", "TensorType",
    "Tuple", "TupleGet", "TupleType", "Type", "Unsupported", "Var", "Visitor", "call", "calls", "constant_table",
    "dtypes", "evaluate", "evaluate_function", "operator", "operator_of", "operators", "parse", "register",
    "require_module", "rewrite", "role_of", "substitute", "to_text", "topological_order", "unsupported", "use_counts",
    "with_children",
]  # fmt: skip
