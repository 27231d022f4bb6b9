"""The operator registry: one entry an operator, with all that the stack knows of it.

An entry is written in one file and never changed from elsewhere. A rule that is missing is written down as
``unsupported("why")``, so that a gap is a decision and not an oversight.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ...imports import IMPORTS
from ...plugins import OPERATORS, load_plugin, plugins
from .chooser import Chooser
from .dtypes import STRING
from .ir import UNKNOWN, Array, Attrs, Expr, Function, GraphError, Span, TensorType, Type
from .ir import Call as _Call
from .strings import StringsError, canonical, check_length

if TYPE_CHECKING:  # running a model takes no loop IR
    from ..tensor.view import Builder, View

TypeRule = Callable[[Sequence[TensorType], Attrs], Type]
NumpyRule = Callable[..., Any]
Gradient = Callable[[Expr, _Call], tuple[Expr | None, ...]]
"""From the gradient of the result and the call: the gradient of each operand, None for one that has none.

A gradient may have the shape to which its operand was broadcast: it is summed. The call is the forward value itself, so
a rule that uses it or its operands computes nothing twice. Raises `NoGradientError` for a use without a rule."""

Lowering = Callable[["Builder", _Call, "tuple[View, ...]"], "View"]
"""From the builder of a kernel, the call and its operands to the result, as tensor expressions."""

IntegerRule = Callable[[Any, _Call, str], Any]
"""From the `integers.describer.Describer` of a model, the call and its name in messages to what its result is in
integers: an `integers.form.IntegerForm`, which may be a `Refusal` with the reason."""

Sample = Callable[[str], _Call]
"""From an element type to a call of the operator on variables of it. Raises `GraphError` for a type that it does not
take."""

Draw = Callable[[Chooser], Expr]
"""A random call of the operator. Raises `GraphError` when what was chosen does not fit."""

OWN = (
    "weft.compiler.operators",
    "weft.compiler.targets.accel.operators.operators",
    "weft.compiler.targets.accel.operators.window_operators",
    "weft.compiler.targets.accel.operators.moves",
)
"""Modules that register this package's operators, by name, since they import this one. They are imported when an
operator is looked for, so that whoever runs a model that has kernels alone does without."""


class Family(enum.Enum):
    """Where an operator belongs: this decides at which stage of compilation it may stand (`passes.legality`)."""

    SOURCE = "Models as read"
    INDEX = "Picking and placing elements"
    MOVE = "Moves that the integer contract knows, too"
    QUANTISE = "Quantisation"
    INTEGER = "The integer contract"
    HOST = "Between the integer contract and the host"
    PACKED = "The integer contract on packed tensors"


AS_READ = frozenset({Family.SOURCE, Family.INDEX, Family.MOVE, Family.QUANTISE})
"""Of the operators that a model consists of when it has been read."""


class Fusion(enum.Enum):
    """How an operator may take part in a fused function."""

    ANCHOR = "anchor"  # starts a function: convolution, matrix product, pooling
    ELEMENTWISE = "elementwise"  # same index in and out, up to broadcasting: joins the function of its producer
    LAYOUT = "layout"  # moves data only: each element of the result is one of an operand, or a constant
    REDUCTION = "reduction"  # combines elements along axes: starts a function, takes elementwise producers in
    OPAQUE = "opaque"  # a function of its own: sorts, scans, scatters, samples at computed places
    HOST = "host"  # has no kernel on any target


class Anchor(enum.Enum):
    """What kind of loop nest starts a kernel: targets choose layouts and schedules by it."""

    CONVOLUTION = "convolution"  # operands x (N, C, ...) and w (O, C/groups, ...)
    POOL = "pool"  # a window over the axes after (N, C)
    PRODUCT = "product"  # of matrices, most in the last two axes
    REDUCTION = "reduction"  # along the attribute ``axes``, which ``keepdims`` keeps


class Role(enum.Enum):
    """What an operator computes, for passes and quantisers that use its laws. Whatever has a role obeys them."""

    ADD = "a + b"
    SUBTRACT = "a - b"
    MULTIPLY = "a * b"
    DIVIDE = "a / b"
    POWER = "a to the power of b"
    ROOT = "the square root of x"
    CLAMP = "x within its attributes low and high"
    CAST = "x in another element type"
    LARGEST = "the largest element of a window or along axes"
    SUM = "the sum of the elements of a window or along axes"
    MEAN = "the mean of the elements of a window or along axes"
    MATRIX_PRODUCT = "a times b over their last two axes"
    SOFTMAX = "exponentials along the attribute axis, divided by their sum"
    QUANTISE = "x in steps of a scale, as small integers"
    DEQUANTISE = "small integers times a scale"
    NORMALISATION = "x less a mean, over a deviation, with a factor and an offset a channel"


LINEAR = frozenset({Role.ADD, Role.SUBTRACT, Role.MULTIPLY, Role.DIVIDE})
"""With a constant operand these are a factor and an offset (a quotient, where the constant is the divisor)."""


class EightBits(enum.Enum):
    """What a quantiser makes of an operator on 8-bit values that is no product, no move and not elementwise."""

    SUMS = "sums of 8-bit values, which a requantise follows"
    PICKS = "values of its operand"
    JOINS = "values of all its operands, with one scale"


class Accuracy(enum.Enum):
    """What two right implementations may differ by."""

    EXACT = "exact"  # equal operands give the same bits, and close operands give close results
    ROUNDED = "rounded"  # floats differ in their last digits
    JUMPS = "jumps"  # equal operands give the same bits, but close ones may give something else


class NoGradientError(GraphError):
    """This use of an operator has no gradient. The message is the reason."""


@dataclass(frozen=True)
class Unsupported:
    """A rule that an operator does not have, and why.

    ``is_zero``: of a gradient that is 0 wherever there is one, so that nothing is lost without a rule.
    """

    reason: str
    is_zero: bool = False


def unsupported(reason: str) -> Unsupported:
    return Unsupported(reason)


def no_products(node: _Call) -> int:
    """The multiply-accumulates of an operator that has none."""
    return 0


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


@dataclass(frozen=True, eq=False)
class Operator:
    """All the rules of one operator.

    ``operands``: their names, separated by blanks; a ``*`` behind the last one takes any number, weights are called w.
    ``defaults``: every attribute with its default; ``REQUIRED`` stands for none.
    ``types``: types of the operands, attributes -> type of the result, or `GraphError`.
    ``numpy``: arrays..., attributes as keywords -> array; the operator's exact meaning.
    ``gradient``, ``lower``, ``sample``, ``draw``: see `Gradient`, `Lowering`, `Sample`, `Draw`.
    ``anchor``: the kind of its loop nest, where a target may want to know.
    ``role``: what it computes, where that has laws that others use.
    ``integer``: what a floating-point result is in integers, by `IntegerRule`; an operator without one is moved as its
    operand is, if it is a move, and else computed in floats. ``eight_bits``: what a quantiser makes of it.
    ``cost``: arithmetic for each element of the result beside multiply-accumulates, in units of an addition.
    ``macs``: multiply-accumulates of a call that are useful, so without padding.
    ``folds``: whether constant folding may evaluate it.
    ``passive``: whether it is no work of a model when the host does it before the first layer or after the last.
    ``index_sizes``: sizes of the axes in which the indices of a call, its operand ``index_operand``, count: machine
    code trusts that they are inside.
    """

    name: str
    operands: str
    _: KW_ONLY
    family: Family
    types: TypeRule
    numpy: NumpyRule
    gradient: Gradient | Unsupported
    lower: Lowering | Unsupported
    fusion: Fusion
    sample: Sample | Unsupported
    doc: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    anchor: Anchor | None = None
    role: Role | None = None
    integer: IntegerRule | None = None
    eight_bits: EightBits | None = None
    cost: int = 1
    macs: Callable[[_Call], int] = no_products
    accuracy: Accuracy = Accuracy.ROUNDED
    draw: Draw | None = None
    folds: bool = True
    passive: bool = False
    index_sizes: Callable[[_Call], tuple[int, ...]] | None = None
    index_operand: int = 1

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.operands.split())

    @property
    def is_variadic(self) -> bool:
        return self.operands.endswith("*")

    @property
    def weights(self) -> int | None:
        """The position of a convolution's or product's weights; None where both operands are data."""
        return self.arguments.index("w") if self.anchor is not None and "w" in self.arguments else None


_operators: dict[str, Operator] = {}
_loaded: set[str] = set()
"""Of the groups below, those that were imported."""


def register(entry: Operator) -> Operator:
    """Add an operator. Raises `GraphError` when there is one of that name."""
    if entry.name in _operators:
        raise GraphError(f"operator {entry.name!r} is registered twice", hint="give the new one a name of its own")
    _operators[entry.name] = entry
    return entry


def operator(name: str, at: Span = UNKNOWN) -> Operator:
    """The entry of ``name``."""
    if name not in _operators:
        _load()
    if name not in _operators:
        raise GraphError(f"there is no operator {name!r}", at=at, hint=_way_out(name))
    return _operators[name]


_NEAREST = 3


def _way_out(name: str) -> str:
    """What to do about a name that no operator has."""
    domain, _, own = name.rpartition(".")
    if not name.startswith("nn.") and (same := f"nn.{name}") in _operators:
        return f"{same!r} is one of floats"
    inside = [known for known in _operators if known.rpartition(".")[0] == domain] or list(_operators)
    short = {known.rpartition(".")[2]: known for known in inside}
    nearest = [short[each] for each in get_close_matches(own, short, _NEAREST)]
    nearest = nearest or get_close_matches(name, _operators, _NEAREST)
    listed = "docs/operators.md lists all, docs/extending.md says how to add one"
    return f"nearest: {', '.join(nearest)}; {listed}" if nearest else listed


def operator_of(node: object) -> Operator | None:
    """The entry of the operator that a node calls; None for everything else."""
    return operator(node.op, node.span) if isinstance(node, _Call) and isinstance(node.op, str) else None


def role_of(node: object) -> Role | None:
    """The role of the operator that a node calls; None for everything else."""
    entry = operator_of(node)
    return None if entry is None else entry.role


def operators() -> tuple[Operator, ...]:
    """Every operator, by name."""
    _load()
    return tuple(_operators[name] for name in sorted(_operators))


def _load() -> None:
    """Import this package's operators and what other packages add, when an operator is looked for that is not here."""
    for group, load in (("own", _load_own), (OPERATORS, _load_plugins)):
        if group not in _loaded:
            load()
            _loaded.add(group)


def _load_own() -> None:
    with IMPORTS:
        for module in OWN:
            import_module(module)


def _load_plugins() -> None:
    _loaded.add(OPERATORS)  # before the first is loaded: it may look for operators itself
    try:
        for point in plugins(OPERATORS).values():
            load_plugin(point, "operators of", GraphError)
    except GraphError:
        _loaded.discard(OPERATORS)  # whoever asks next is told, too
        raise


def call(op: str | Function, *args: Expr, span: Span = UNKNOWN, **attrs: Any) -> _Call:
    """``op`` applied to ``args``: fills in default attributes, checks operands, works out the type.

    Raises `GraphError` that names ``span`` when the operands do not fit.
    """
    if isinstance(op, Function):
        return _Call(op, args, Attrs(attrs), _call_type(op, args, span), span)
    for place, arg in enumerate(args):
        if not isinstance(arg, Expr):
            name = op.name if isinstance(op, Function) else op
            raise GraphError(f"operand {place} of {name} is {arg!r:.80}, but must be a value of the graph",
                             at=span, hint="a number or an array becomes one by Constant(...)")  # fmt: skip
    entry = operator(op, span)
    least = len(entry.arguments) - entry.is_variadic
    if len(args) < least or (len(args) > least and not entry.is_variadic):
        takes = f"at least {least}" if entry.is_variadic else str(least)
        raise GraphError(f"{op} takes {takes} operands ({', '.join(entry.arguments)}), not {len(args)}", at=span)
    unknown = [name for name in attrs if name not in entry.defaults]
    if unknown:
        names = ", ".join(entry.defaults) or "none"
        raise GraphError(f"{op} has no attribute {unknown[0]!r}; it has: {names}", at=span)
    merged = {**entry.defaults, **attrs}
    missing = [name for name, value in merged.items() if value is REQUIRED]
    if missing:
        raise GraphError(f"{op} needs the attribute {missing[0]!r}", at=span)
    frozen = Attrs(merged)
    try:
        result = entry.types([arg.tensor_type for arg in args], frozen)
    except GraphError as error:
        raise GraphError(f"{op}: {error.message}", at=span, hint=error.hint) from None
    return _Call(op, args, frozen, result, span)


def _call_type(function: Function, args: tuple[Expr, ...], span: Span) -> Type:
    argument_types, parameter_types = [arg.type for arg in args], [param.type for param in function.params]
    if argument_types != parameter_types:
        raise GraphError(
            f"function {function.name!r} takes ({', '.join(map(str, parameter_types))}), "
            f"but is called with ({', '.join(map(str, argument_types))})",
            at=span,
        )
    return function.type


def apply_all(node: _Call, values: Sequence[Array]) -> tuple[Array, ...]:
    """As `apply`, of an operator with several results."""
    with _naming(node):
        results = operator(str(node.op)).numpy(*(np.asarray(value, order="C") for value in values), **node.attrs)
    return tuple(map(canonical, results))


def apply(node: _Call, values: Sequence[Array]) -> Array:
    """The NumPy meaning of a call of an operator.

    Operands are laid out in C order, since NumPy adds in another order where a value lies differently in memory.
    Raises GraphError that names the node where these values have no result, as an index outside of its axis.
    """
    if isinstance(node.op, Function):
        raise GraphError("apply() takes operators, not functions; use evaluate()", at=node.span)
    operands = [np.asarray(value, order="C") for value in values]
    with _naming(node):
        if isinstance(node.type, TensorType) and node.type.dtype == STRING:
            check_length(operands, node.type.size)
        with np.errstate(all="ignore"):  # what is not a number, or not finite, is part of every meaning
            return canonical(operator(node.op).numpy(*operands, **node.attrs))


@contextmanager
def _naming(node: _Call) -> Iterator[None]:
    """Errors of values that have no result name the node."""
    try:
        yield
    except (GraphError, StringsError) as error:
        raise GraphError(error.message, at=error.at or node.span, hint=error.hint) from None
    except (IndexError, ValueError, OverflowError) as error:
        raise GraphError(f"it has no result for these inputs: {error}", at=node.span,
                         hint="are indices and sizes inside of their tensors?") from error  # fmt: skip
