"""The operators of the graph IR: one entry each, in the file of its kind. Importing this package registers them all.

What is exported here is all that an entry from another package needs: see docs/extending.md.
"""

from ..graph.chooser import Chooser
from ..graph.gradient import through
from ..graph.registry import (
    REQUIRED,
    Accuracy,
    Anchor,
    EightBits,
    Family,
    Fusion,
    NoGradientError,
    Operator,
    Role,
    Unsupported,
    operators,
    register,
    unsupported,
)
from ..tensor.view import Builder, NotLoweredError, View
from . import (
    arithmetic,
    block_product,
    cast,
    convolution,
    functions,
    index,
    integer,
    integer_moments,
    integer_rows,
    interpolate,
    matrix,
    move,
    norm,
    pooling,
    quantise,
    reduce,
    scan,
    sort,
    strings,
    suppression,
)
from .build import contract, nn
from .elementwise_entry import elementwise, formula
from .samples import sample_of
from .type_rules import broadcasting, require, require_dtype

__all__ = [
    "REQUIRED", "Accuracy", "Anchor", "Builder", "Chooser", "EightBits", "Family", "Fusion", "NoGradientError",
    "NotLoweredError", "Operator", "Role", "Unsupported", "View", "arithmetic", "block_product", "broadcasting", "cast",
    "contract", "convolution", "elementwise", "formula", "functions", "index", "integer", "integer_moments",
    "integer_rows", "interpolate", "matrix", "move", "nn", "norm", "operators", "pooling", "quantise", "reduce",
    "register", "require", "require_dtype", "sample_of", "scan", "sort", "strings", "suppression", "through",
    "unsupported",
]  # fmt: skip
