"""Passes that make a graph ready for loop kernels, after those that all targets share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil, sqrt

import numpy as np

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Call, Constant, Expr, Function, Module, TensorType
from ...graph.registry import apply, call
from ...graph.visit import Mutator, calls, rewrite, substitute
from ...passes.cleanup import cse
from ...passes.manager import Pass, Rule, rule_pass
from ...passes.pipeline import float_passes, integer_passes
from ...passes.scans import scan_bodies
from ...passes.simplify import MOVES, flatten_into_kernel
from ...scope import Scope
from .block_product import as_block_product
from .computed_kernels import as_product_of_columns
from .einsums import as_matrix_product
from .one_transposition import one_transposition
from .phases import with_phases_last
from .quantised_weights import kept_weights
from .quotients import as_product
from .rewrite_convolutions import as_plain_images
from .sink_reshapes import with_reshapes_last
from .tables import as_look_up
from .whole_products import as_product_of_bytes
from .widening import widened_where_used

_moves_that_meet = rule_pass(
    "moves-that-meet", (*MOVES, one_transposition), about="Moves of data behind each other become one, or none."
)


def loop_passes(*, dot_products: bool = False, weight_only: bool = False, rounded: int = 0) -> list[Pass]:
    """The passes before linking: all operators stand in ``main``, none works on empty tensors or constants alone, sums
    of products are products of matrices, tables of bytes are elementwise, convolutions go over images without gaps,
    with kernels that are known, reshapes stand behind what is elementwise, and 16 bits are widened where they are read.
    ``dot_products``: whether the target multiplies bytes faster than floats; ``weight_only``: whether its products
    widen weights of 8 bits or fewer themselves; ``rounded``: columns that it computes together where rows are rounded
    to 8 bits for weights of 4, else 0."""
    passes = _loop_passes(dot_products, weight_only, rounded)
    return [*passes, scan_bodies("kernels-of-loops", passes, tolerance=1e-5)]


def _loop_passes(dot_products: bool, weight_only: bool, rounded: int) -> list[Pass]:
    of_blocks = [_rewriting("rounded-activations", partial(as_block_product, lanes=rounded), 0.05)] if rounded else []
    folded = Pass(
        "fold-known-values", partial(with_known_values, weight_only=weight_only), about=known_value.__doc__ or ""
    )
    of_bytes = [_rewriting("products-of-bytes", as_product_of_bytes), _moves_that_meet] if dot_products else []
    return [
        Pass(
            "inline-functions",
            lambda module: module.with_main(inline_functions(module.main.body)),
            stage="operators",
            about=inline_functions.__doc__ or "",
        ),
        *of_blocks,
        cse,  # each result of a loop was a function with the loop in it; products of the same rows round them once
        _moves_that_meet,
        Pass(
            "remove-empty-tensors",
            lambda module: module.with_main(without_empty_tensors(module.main.body)),
            about=without_empty_tensors.__doc__ or "",
        ),
        folded,
        _rewriting("tables-to-look-ups", as_look_up),
        _rewriting("einsum-to-matmul", as_matrix_product, tolerance=1e-5),
        _rewriting("plain-convolutions", as_plain_images, tolerance=1e-5),
        *of_bytes,
        Pass("computed-kernels", with_computed_kernels, tolerance=1e-5),
        _rewriting("quotients-as-products", as_product, tolerance=1e-6),
        Pass("phases-last", with_phases_last),
        Pass("reshapes-last", with_reshapes_last),
        Pass("widened-where-used", widened_where_used),
        _rewriting("concatenations-in-parts", in_parts),
    ]


def host_passes(
    *, quantised: bool, scope: Scope = Scope.PRODUCTS, dot_products: bool = False, volumes: bool = False,
    weight_only: bool = False, rounded: int = 0,
) -> list[Pass]:  # fmt: skip
    """All passes of a target that runs whole models as loop kernels. ``volumes``: whether it has convolutions over
    volumes of bytes; the others as `loop_passes` has them."""
    of_integers = [*integer_passes(scope=scope, volumes=volumes), flatten_into_kernel]
    passes = of_integers if quantised else float_passes()
    return [*passes, *loop_passes(dot_products=dot_products, weight_only=weight_only, rounded=rounded)]


def prepare(module: Module, *, dot_products: bool = False, weight_only: bool = False) -> Module:
    """The module after `loop_passes`, without their checks."""
    for item in loop_passes(dot_products=dot_products, weight_only=weight_only):
        module = item(module)
    return replace(module, stage="operators")


def _rewriting(name: str, rule: Rule, tolerance: float = 0.0) -> Pass:
    return Pass(
        name,
        lambda module: module.with_main(rewrite(module.main.body, rule)),
        tolerance=tolerance,
        about=rule.__doc__ or "",
    )


def with_computed_kernels(module: Module) -> Module:
    """Convolutions with computed kernels as products; moves that these put behind each other become one."""
    body = rewrite(module.main.body, as_product_of_columns)
    return module if body is module.main.body else _moves_that_meet(module.with_main(body))


def inline_functions(body: Expr) -> Expr:
    """Every call of a function replaced by the function's body."""

    class Inline(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            if not isinstance(node.op, Function):
                return node
            inner = substitute(inline_functions(node.op.body), dict(zip(node.op.params, node.args, strict=True)))
            if isinstance(inner, Call) and len(calls(node.op.body)) == 1:
                # Equal functions are one object, which knows the first of the user's nodes only.
                return call(inner.op, *inner.args, span=node.span, **inner.attrs)
            return inner

    return Inline().run(body)


def without_empty_tensors(body: Expr) -> Expr:
    """Tensors without elements have one value only, which is known: they become constants, and a concat leaves them
    out. So no kernel has loops without iterations."""

    class Known(Mutator):
        def _rewrite(self, node: Expr) -> Expr:
            if _is_empty(node):
                return Constant(np.zeros(node.shape, numpy_dtype(node.dtype)), span=node.span)
            if isinstance(node, Call) and _is_concat(node):
                kept = [arg for arg in node.args if not _is_empty(arg)]
                if len(kept) < len(node.args):
                    return kept[0] if len(kept) == 1 else call("concat", *kept, span=node.span, **node.attrs)
            return node

    return Known().run(body)


MOST_OPERANDS = 128
"""Of a concatenation that is one kernel. Its code asks at each element which operand that is, and the time that LLVM
takes grows with the square of the operands."""


def in_parts(node: Call) -> Expr | None:
    """A concat of many operands  ->  a concat of concats of some: what they take to compile grows with the operands"""
    if not _is_concat(node) or len(node.args) <= MOST_OPERANDS:
        return None
    operands = list(node.args)
    while len(operands) > MOST_OPERANDS:
        size = min(MOST_OPERANDS, ceil(sqrt(len(operands))))
        parts = [operands[first : first + size] for first in range(0, len(operands), size)]
        operands = [
            call("concat", *part, span=node.span, **node.attrs) if len(part) > 1 else part[0] for part in parts
        ]  # fmt: skip
    return call("concat", *operands, span=node.span, **node.attrs)


def with_known_values(module: Module, weight_only: bool = False) -> Module:
    """What depends on constants alone computed, but for weights that stay quantised."""
    kept = kept_weights(module.main.body) if weight_only else set()
    body = rewrite(module.main.body, lambda node: None if node in kept else known_value(node))
    return module.with_main(body)


def known_value(node: Call) -> Expr | None:
    """An operator on constants  ->  its result, also of quantised weights: nothing will want their integers any more"""
    values = [arg.value for arg in node.args if isinstance(arg, Constant)]
    if not values or len(values) < len(node.args) or not isinstance(node.type, TensorType):
        return None
    return Constant(apply(node, values), span=node.span)


def _is_concat(node: Call) -> bool:
    return node.op == "concat"


def _is_empty(node: Expr) -> bool:
    return isinstance(node.type, TensorType) and node.type.size == 0
