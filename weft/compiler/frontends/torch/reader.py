"""A graph of PyTorch's core ATen operators, as ``torch.export`` writes it, read into the graph IR.

Sizes that were left open are symbols in PyTorch's graph; a graph is read for given sizes, by putting numbers in.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ...graph import Constant, Expr, GraphError, Span, TensorType
from ..errors import ModelError
from ..onnx import reader as onnx_reader
from ..onnx.loop import looped
from . import (
    backward,
    counting,
    factors,
    index,
    move,
    norm,
    orthogonal,
    pivots,
    pointwise,
    product,
    quantised,
    reduce,
    rotations,
    running,
    special,
    window,
)
from .complex import Complex, constant, converted, reads_complex
from .site import NOT_COMPUTED, REFUSED, RULES, Site
from .tensors import DTYPES, PARTS, array_of, dtype_name
from .values import BY_VALUES

RULE_MODULES = (backward, counting, factors, index, move, norm, orthogonal, pivots, pointwise, product,
                quantised, reduce, rotations, running, special, window)  # fmt: skip
"""The modules that fill `RULES`."""

CONVERTER_MODULES = onnx_reader.CONVERTER_MODULES
"""Of ONNX: some rules are written by its converters."""

Sizes = Mapping[str, int]
Value = Any
"""Of a node: a graph value, a tuple of them, a number, or None."""

CREATED = frozenset(
    f"aten.{name}"
    for name in ("full.default", "full_like.default", "arange.start_step", "arange.default", "arange.start",
                 "scalar_tensor.default", "zeros.default", "ones.default", "zeros_like.default", "ones_like.default",
                 "new_zeros.default", "new_ones.default", "new_full.default", "eye.default", "eye.m",
                 "linspace.default", "logspace.default", "tril_indices.default", "triu_indices.default",
                 "hann_window.default", "empty.memory_format", "empty_like.default", "empty_strided.default",
                 "new_empty.default", "new_empty_strided.default", "empty_permuted.default")
)  # fmt: skip
"""Operators whose results depend on types and sizes alone: PyTorch computes them while a graph is read. What
``empty`` leaves open is zero."""

_CHANCE = "it is random"
_ONLY_GRADIENTS = "results that only a gradient reads are not computed"
REFUSED.update({
    **BY_VALUES,
    "aten.native_dropout.default": "it is random: call eval() before exporting",
    **{f"aten.{name}": _CHANCE for name in (
        "rand.default", "randn.default", "randperm.default", "randint.low", "randint.default", "rand_like.default",
        "randn_like.default", "bernoulli.p", "bernoulli.default", "multinomial.default",
        "normal_functional.default", "uniform.default", "exponential.default")},
})  # fmt: skip

IGNORED = frozenset({
    "aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
    "aten._linalg_check_errors.default",
    "aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten._assert_async.default",
})  # fmt: skip
"""Checks that PyTorch writes into a graph; sizes are checked when it is read."""

HIGHER_ORDER = ("cond", "scan", "map_impl")
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
"""What stands for results that are sizes, which PyTorch has worked out."""


def is_known(target: str) -> bool:
    """Whether a graph may call ``target``."""
    return target in RULES or target in CREATED or target in IGNORED


def is_read(node: Node) -> bool:
    """Whether there is a rule for a node's operator, of the numbers that it takes and gives."""
    target = str(node.target)
    if is_of_complex(node):
        return reads_complex(target) or target in CREATED or target in IGNORED
    return is_known(target) and not leaves_out(node)


def is_of_complex(node: Node) -> bool:
    """Whether a node takes or gives complex numbers."""
    return any(is_complex(each.meta.get("val")) for each in (node, *node.all_input_nodes))


def is_complex(value: Any) -> bool:
    """Whether what PyTorch knows of a result are complex numbers, or some of several results are."""
    if isinstance(value, (tuple, list)):
        return any(map(is_complex, value))
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def leaves_out(node: Node) -> bool:
    """Whether a result is read that the rule does not compute."""
    missing = NOT_COMPUTED.get(str(node.target), frozenset())
    return any(user.target is operator.getitem and user.args[1] in missing and user.users for user in node.users)


def where_in_source(node: Node) -> str:
    """The user's line that a node comes from, or nothing."""
    trace = str(node.meta.get("stack_trace") or "").strip().splitlines()
    files = [(i, line.strip()) for i, line in enumerate(trace) if line.strip().startswith("File ")]
    if not files:
        return ""
    number, place = files[-1]
    text = trace[number + 1].strip() if number + 1 < len(trace) else ""
    parts = place.removeprefix("File ").split(", ")
    line = f"{parts[0].strip(chr(34)).rsplit('/', 1)[-1]}:{parts[1].removeprefix('line ')}" if len(parts) > 1 else ""
    return f"{line} ({text})" if text else line


def span_of(node: Node) -> Span:
    """The part of the module that a node comes from and the node's own name."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if isinstance(path, str) and path] if isinstance(stack, dict) else []
    path = paths[-1].removeprefix("L['self'].") if paths else ""
    return Span((f"{path}.{node.name}" if path else node.name,), node.name)


def refuse_unknown(graph_module: GraphModule, *, by_values: bool = True) -> None:
    """Raise a `ModelError` that names every operator without a rule, with the lines that call it. ``by_values``: those
    among them that need the values of a run."""
    unknown: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    for module in graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            target = str(node.target)
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OperatorBase):
                continue
            if is_read(node):
                continue
            if target in HIGHER_ORDER or isinstance(node.meta.get("val"), NUMBERS):
                continue
            if (not by_values and target in BY_VALUES) or _is_a_check(node):
                continue
            unknown[target] += 1
            if is_known(target):
                kinds[target] = _ONLY_GRADIENTS if leaves_out(node) else "it has no rule for complex numbers"
            places.setdefault(target, [])
            if (place := where_in_source(node)) and place not in places[target]:
                places[target].append(place)
    if not unknown:
        return
    lines = []
    for target, count in unknown.most_common():
        reason = REFUSED.get(target, kinds.get(target, ""))
        why = f": {reason}" if reason else ""
        at = f" at {', '.join(places[target][:3])}" if places[target] else ""
        lines.append(f"{target} ({count} time{'s' if count > 1 else ''}{at}){why}")
    raise ModelError(
        f"{len(unknown)} operator{'s' if len(unknown) > 1 else ''} of PyTorch cannot be read: {'; '.join(lines)}",
        hint="write these lines in other operators, or export the part before and the part after them",
    )


def _is_a_check(node: Node) -> bool:
    """Whether a node is one of `IGNORED` that has to stay in its place among others, by tokens that they hand on."""
    return str(node.target) == "with_effects" and str(node.args[1]) in IGNORED


def at_sizes(expression: sympy.Expr, sizes: Sizes) -> sympy.Expr:
    """An expression of sizes with numbers for the symbols that are known."""
    known = {s: sympy.Integer(sizes[s.name]) for s in expression.free_symbols if s.name in sizes}
    return expression.xreplace(known)


class GraphReader:
    """Reads one graph, and those that it calls, for sizes of its symbols."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = dict(sizes)

    # Sizes

    def number(self, value: Any, what: str) -> Any:
        """A number in which symbols of sizes may stand, as a number."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        expression = value.node.expr
        found = at_sizes(expression, self.sizes)
        if found.free_symbols:
            raise ModelError(f"{what} depends on values of tensors ({expression})",
                             hint="sizes may depend on sizes of inputs only")  # fmt: skip
        kind = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
        return kind(found)

    def type_of(self, value: Any, what: str) -> TensorType | None:
        """The type of what PyTorch knows of a result; of complex ones that of either part."""
        if not isinstance(value, torch.Tensor):
            return None
        shape = tuple(self.number(size, f"the shape of {what}") for size in value.shape)
        return TensorType(shape, PARTS[value.dtype] if value.dtype in PARTS else dtype_name(value.dtype, what))

    # Nodes

    def run(self, graph_module: GraphModule, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a graph for the values of its placeholders."""
        values: dict[Node, Value] = {}
        given = iter(inputs)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._attribute(graph_module, node)
            elif node.op == "output":
                return [None if each is None else values[each] if isinstance(each, Node) else each
                        for each in node.args[0]]  # fmt: skip
            else:
                values[node] = self._node(node, values)
        raise ModelError("the graph has no outputs")

    def _attribute(self, graph_module: GraphModule, node: Node) -> Value:
        found: Any = graph_module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            return found
        return constant(array_of(found, f"{node.target!r}"), str(node.target))

    def _node(self, node: Node, values: Mapping[Node, Value]) -> Value:
        known = node.meta.get("val")
        if isinstance(known, NUMBERS):
            return self.number(known, f"{node.name!r}")
        span = span_of(node)
        try:
            return self._converted(node, span, known, values)
        except ModelError:
            raise
        except GraphError as error:
            raise ModelError(f"{node.target}: {error.message}", at=span, hint=error.hint) from None
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError, StopIteration) as error:
            place = where_in_source(node)
            raise ModelError(f"{node.target} cannot be read: {type(error).__name__}: {error}"
                             + (f" (at {place})" if place else ""), at=span) from error  # fmt: skip

    def _converted(self, node: Node, span: Span, known: Any, values: Mapping[Node, Value]) -> Value:
        target = node.target
        args = self._plain(map_arg(node.args, lambda each: _Held(values[each])), node)
        if target is operator.getitem:
            return args[0][args[1]]
        if not isinstance(target, torch._ops.OperatorBase):
            if any(isinstance(arg, Expr) for arg in args):
                raise ModelError(f"a call of {getattr(target, '__name__', target)!r} cannot stand in a graph", at=span)
            return target(*args)  # arithmetic of sizes  # type: ignore[operator]
        name = str(target)
        if name in IGNORED:
            return None
        if _is_a_check(node):
            return (None,) * len(known)
        if name in CREATED:
            return self._created(node)
        kwargs = self._plain(map_arg(node.kwargs, lambda each: _Held(values[each])), node)
        if name in HIGHER_ORDER and is_of_complex(node):
            raise ModelError(f"{name} of complex numbers is not supported", at=span,
                             hint="hand on torch.view_as_real of them")  # fmt: skip
        if name == "cond":
            return self._cond(span, *args)
        fields = known if isinstance(known, (tuple, list)) else (known,)
        types = tuple(self.type_of(each, f"{node.name!r}") for each in fields)
        site = Site(name, span, types)
        if name == "scan":
            return self._scan(site, *args)
        if name == "map_impl":
            body, xs, more = args
            return self._scan(site, body, (), xs, more)
        kwargs = {key: value for key, value in kwargs.items() if key not in _NOT_OURS}
        result = converted(site, args, kwargs) if is_of_complex(node) else RULES[name](site, *args, **kwargs)
        for whole, wanted in zip(result if isinstance(result, tuple) else (result,), types, strict=False):
            for made in (whole.real, whole.imaginary) if isinstance(whole, Complex) else (whole,):
                if made is None or wanted is None or made.type == wanted:
                    continue
                raise ModelError(
                    f"{name} would be {made.type}, but is {wanted} in PyTorch", at=span,
                    hint="this is a fault of weft: please report the operator and its operands",
                )  # fmt: skip
        return result

    def _created(self, node: Node) -> Constant | Complex:
        """What an operator makes from sizes and types, computed by PyTorch itself."""

        def stand_in(each: Node) -> Any:
            known = each.meta["val"]
            if not isinstance(known, torch.Tensor):
                return self.number(known, f"{each.name!r}")
            kind = self.type_of(known, f"{each.name!r}")
            return torch.zeros(kind.shape if kind else (), dtype=known.dtype)

        args = self._numbers(map_arg(node.args, stand_in), node)
        kwargs = self._numbers(map_arg(node.kwargs, stand_in), node)
        kwargs = {key: torch.device("cpu") if key == "device" else value for key, value in kwargs.items()}
        made = node.target(*args, **kwargs)
        if "empty" in str(node.target):
            made = torch.zeros_like(made)
        return constant(array_of(made, f"{node.name!r}"), node.name, span_of(node))

    def _numbers(self, value: Any, node: Node) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._numbers(each, node) for each in value)
        if isinstance(value, dict):
            return {key: self._numbers(each, node) for key, each in value.items()}
        return self.number(value, f"{node.name!r}")

    def _plain(self, value: Any, node: Node) -> Any:
        """Arguments as rules take them: values, numbers, names of types."""
        if isinstance(value, _Held):
            return value.value
        if isinstance(value, (list, tuple)):
            return type(value)(self._plain(each, node) for each in value)
        if isinstance(value, dict):
            return {key: self._plain(each, node) for key, each in value.items()}
        if isinstance(value, torch.dtype):
            return DTYPES.get(value, str(value))
        return self.number(value, f"{node.name!r}")

    # Control flow

    def _cond(
        self, span: Span, chosen: Value, then: GraphModule, other: GraphModule, operands: Sequence[Value]
    ) -> Value:
        """Both sides are computed; the condition chooses between their results."""
        if not isinstance(chosen, Expr):
            return tuple(self.run(then if chosen else other, operands))
        sides = [self.run(side, operands) for side in (then, other)]
        site = Site("cond", span, (None,))
        flag = site.reshape(site.cast(chosen, "bool"), ())
        return tuple(site.call("nn.where", flag, a, b) for a, b in zip(*sides, strict=True))

    def _scan(
        self, site: Site, body: GraphModule, init: Sequence[Value], xs: Sequence[Value], more: Sequence[Value] = ()
    ) -> Value:
        def step(states: tuple[Expr, ...], items: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
            results = self.run(body, [*states, *items, *more])
            return tuple(results[: len(states)]), tuple(results[len(states) :])

        count = len([kind for kind in site.types if kind is not None]) - len(init)
        last, stacked = looped(site.node, step, init, xs, (False,) * (len(xs) + count))
        return (*last, *stacked)


_NOT_OURS = frozenset({"memory_format", "device", "layout", "pin_memory", "generator"})
"""Arguments that say how tensors lie in memory."""


class _Held:
    """A value among arguments, which `map_arg` does not look into."""

    def __init__(self, value: Value) -> None:
        self.value = value
