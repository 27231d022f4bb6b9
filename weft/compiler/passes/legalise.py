"""From the QDQ form to the integer contract (docs/integers.md). What is left in floating point goes to the host.

The walk keeps three things for every node of the source: what its value is in integers (`real`), the int8 value that
stands for it (uint8 tensors are represented by int8 ones, 128 lower), and the value as the host would compute it.
Unused expressions are never part of the result, so all three are built eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import numpy as np

from ...roundings import HALF_AWAY, HALF_UP, ROUNDINGS, TWO_ROUNDINGS
from ..graph import (
    Anchor,
    Call,
    Constant,
    Expr,
    Family,
    Function,
    Module,
    Role,
    Span,
    Tuple,
    TupleGet,
    TupleType,
    Var,
    call,
    operator,
    operator_of,
    role_of,
    topological_order,
    use_counts,
)
from ..graph.asked_rounding import asked_rounding
from ..graph.evaluate import static_value
from ..graph.host import host_call, renumber
from ..graph.visit import respan
from ..integers.describer import Describer
from ..integers.form import IntegerForm, Integers, Refusal, concatenated
from ..scope import Scope
from .emit_integers import quantised
from .float_gates import gated_in_digits
from .function_of_product import quantised_function
from .hand_over import handed_over, is_of_picture
from .integer_rows import integer_rows
from .manager import Pass
from .mean_in_digits import mean_in_digits
from .tabulate import island_of, tabulated

_LOOP = "a loop of floats"

STEPS_OF_A_TABLE = 2
"""Operators on one 8-bit value from which on a table of the core is less work than the operators."""


def legalise_for(
    block: int, scope: Scope = Scope.PRODUCTS, *, volumes: bool = False, tables: bool = False, core: bool = False,
    roundings: Collection[str] = ROUNDINGS,
) -> Pass:  # fmt: skip
    """The pass for an array that multiplies computed matrices, ``block`` channels at a time; 0: the host does.
    ``volumes``: whether there are convolutions over volumes of bytes. ``tables``: whether the core has tables.
    ``core``: whether products run beside the host, which gets their sums where it needs them as floats.
    ``roundings``: how what multiplies may round sums; where the model asks for another, it rounds half up."""

    def run(module: Module) -> Module:
        return _Legaliser(module, block, scope, volumes, tables, core, roundings).run()

    return Pass("legalise", run, stage="integer", tolerance=0.25, about=__doc__ or "")


legalise = legalise_for(0)
"""The module in integer arithmetic; every host function says why it is one."""


class _Legaliser:
    def __init__(
        self,
        module: Module,
        block: int,
        scope: Scope,
        volumes: bool,
        core_tables: bool,
        core: bool,
        roundings: Collection[str],
    ) -> None:
        self.module = module
        self.scope = scope
        self.core = core
        self.core_tables = core_tables
        self.roundings = roundings
        self.uses = use_counts(module.main.body)
        nodes = topological_order(module.main.body)
        self.order = {id(node): place for place, node in enumerate(nodes)}
        self.described: dict[int, IntegerForm] = {}
        self.integers: dict[int, Expr] = {}
        self.floats: dict[int, Expr] = {}
        self.unasked: dict[int, Callable[[], Expr]] = {}  # makes `floats` of calls: most have readers of integers alone
        self.tables: set[int] = set()
        self.functions: set[int] = set()
        whole_factors = any(self._rounding(node) != HALF_UP for node in nodes)
        self.describer = Describer(self.described, self.integers, self.uses, block, volumes, whole_factors, core)

    def run(self) -> Module:
        body = self.module.main.body
        for node in topological_order(body):
            if isinstance(node, Tuple):
                continue
            if isinstance(node.type, TupleType) or isinstance(node, TupleGet):
                self._of_a_loop(node)
            elif node.dtype in ("int8", "uint8") and not node.static:
                self._eight_bits(node)
            else:
                self._real(node)
        if isinstance(body, Tuple):
            return self.module.with_main(renumber(Tuple(tuple(self._output(item) for item in body.fields), body.span)))
        return self.module.with_main(renumber(self._output(body)))

    def _output(self, node: Expr) -> Expr:
        if isinstance(node, Call) and node.static:
            return Constant(static_value(node), span=node.span)
        return self._as_given(node, f"output {node.span.tensor!r} is uint8")

    # Host

    def _host(self, op: str, args: tuple[Expr, ...], attrs: dict[str, object], reason: str, span: Span) -> Expr:
        if all(arg.static for arg in args):
            return call(op, *args, span=span, **attrs)
        return host_call(op, args, attrs, reason, span)

    def _float_on_host(self, node: Expr, reason: str) -> Expr:
        if not isinstance(node, Call) or isinstance(node.op, Function):
            return node
        args = tuple(self._as_given(arg, f"{node.op} works on uint8") for arg in node.args)
        return self._host(node.op, args, dict(node.attrs), reason, node.span)

    def _as_given(self, node: Expr, reason: str) -> Expr:
        """A value as the source has it; ``reason``: why the host needs it so."""
        if id(node) in self.floats or id(node) in self.unasked:
            return self._float(node)
        value = self.integers[id(node)]
        return self._host("to_unsigned", (value,), {}, reason, node.span) if node.dtype == "uint8" else value

    def _float(self, node: Expr) -> Expr:
        """A value in floating point, made now if nobody has asked for it before, after those that it is made of."""
        asked: dict[int, Expr] = {}
        below = [node]
        while below:
            each = below.pop()
            if id(each) in self.unasked and id(each) not in asked:
                asked[id(each)] = each
                below += each.children
        for key in sorted(asked, key=self.order.__getitem__):
            self.floats[key] = self.unasked.pop(key)()
        return self.floats[id(node)]

    # 8-bit values

    def _eight_bits(self, node: Expr) -> None:
        """Find the int8 value that stands for an int8 or uint8 node."""
        match node:
            case Var():
                value: Expr = node
                if node.dtype == "uint8":
                    value = self._host("to_signed", (node,), {}, f"input {node.name!r} is uint8", node.span)
            case Call() if role_of(node) is Role.QUANTISE:
                value = self._quantise(node)
            case Call(op="reshape" | "transpose" | "concat" as op):
                args = [self._signed(arg) for arg in node.args]
                value = call(op, *args, span=node.span, **node.attrs)
            case Call(op="pad"):
                fill = int(node.attr("value")) - (128 if node.dtype == "uint8" else 0)
                attrs = node.attrs.replace(value=fill)
                value = call("pad", self._signed(node.args[0]), span=node.span, **attrs)
            case Call(op=str() as op) if operator(op).family is Family.INDEX and op != "dilate" and _moves_one(node):
                reason = f"{op} moves data, which the accelerator does not do"
                operands = (self._signed(node.args[0]), *(self._as_given(arg, reason) for arg in node.args[1:]))
                value = self._host(op, operands, dict(node.attrs), reason, node.span)
            case Call():
                value = self._float_on_host(node, f"{node.op} has no integer form")
                if node.dtype == "uint8":
                    value = self._host("to_signed", (value,), {}, f"the result of {node.op} is uint8", node.span)
            case _:
                value = node
        self.integers[id(node)] = value

    def _signed(self, node: Expr) -> Expr:
        if id(node) in self.integers:
            return self.integers[id(node)]
        if isinstance(node, Constant) and node.dtype == "uint8":
            return Constant((node.value.astype(np.int16) - 128).astype(np.int8), node.name, node.span)
        return call("to_signed", node, span=node.span) if node.dtype == "uint8" else node

    def _rounding(self, node: Expr) -> str:
        """What a quantise asks for, where it can be had."""
        asked = asked_rounding(node)
        return asked if asked in self.roundings else HALF_UP

    def _quantise(self, node: Call) -> Expr:
        found = self._integers_of(node)
        return (
            self._quantise_on_host(node, self._float(node.args[0]), found.reason)
            if isinstance(found, Refusal)
            else found
        )

    def _integers_of(self, node: Call) -> Expr | Refusal:
        """The int8 value of a quantise, made of integers; or why it is quantised in floating point."""
        source, scale, zero_point = node.args
        offset = 128 if node.dtype == "uint8" else 0
        described = self.described[id(source)]
        match source:
            case Call(op="concat", args=parts) if isinstance(described, Refusal) and not scale.shape:
                return self._quantise_parts(node, source, parts)
        if not (isinstance(scale, Constant) and isinstance(zero_point, Constant)):
            described = Refusal("its scale is computed while the model runs")
        elif scale.value.ndim:
            described = Refusal("activations with one scale a channel")
        known = scale.static and zero_point.static and not scale.shape
        by_table = known and self._rounding(node) not in (TWO_ROUNDINGS, HALF_AWAY)  # floats do not round so
        table = tabulated(node, self.integers, self.tables) if by_table and self.tables else None
        if table is not None:  # the host makes a part of it anyway
            self.tables.add(id(node))
            return table
        look_up = self._on_core(node, described) if known and self.core_tables else None
        if look_up is not None:
            return look_up
        if self.scope is Scope.ALL and isinstance(scale, Constant) and known:
            zero = int(static_value(zero_point)) - offset
            rows = integer_rows(source, lambda value: self.described[id(value)], float(scale.value), zero, node.span)
            if rows is not None:
                return rows
        reason = described.reason if isinstance(described, Refusal) else ""
        if isinstance(scale, Constant) and isinstance(zero_point, Constant) and not isinstance(described, Refusal):
            zero = int(zero_point.value) - offset
            rounding = self._rounding(node)
            wide = TWO_ROUNDINGS in self.roundings
            result = quantised(described, float(scale.value), zero, node.span, rounding, wide)
            if not isinstance(result, Refusal):
                return result
            reason = result.reason
            for each in [*self.unasked]:  # what reads it has read it for the reason of before
                self.floats[each] = self.unasked.pop(each)()
            self.floats[id(source)] = self._float_on_host(source, reason)
        if self.core and known and isinstance(described, Refusal):
            function = quantised_function(node, self.described, self.order, core_tables=self.core_tables)
            if function is None:
                function = self._picked_of_integers(node, source)
            if function is not None:
                return function
            step, zero = float(static_value(scale)), int(static_value(zero_point)) - offset
            gated = gated_in_digits(source, step, self.described, self.order, self._float)
            product = quantised(gated, step, zero, node.span) if gated is not None else None
            if isinstance(product, Expr):
                return product
        table = tabulated(node, self.integers) if known else None
        if table is not None:
            self.tables.add(id(node))
            return table
        return Refusal(reason)

    def _on_core(self, node: Call, described: IntegerForm) -> Expr | None:
        """A function of one of the core's 8-bit values as a table of the core, where that is less work than what
        ``described`` says: a single operator in integers is one step as well. 8-bit values between that are such
        functions, too, are no steps of their own."""
        island = island_of(node.args[0], self.functions)
        if island is None:
            return None
        self.functions.add(id(node))
        steps = [
            each for each in island if operator(str(each.op)).family is not Family.QUANTISE and each.op != "reshape"
        ]
        if len(steps) < STEPS_OF_A_TABLE and not isinstance(described, Refusal):
            return None
        between = self.functions.intersection(map(id, island))
        match tabulated(node, self.integers, between, on_core=True):
            case Call(args=(Call(op=str()), _)) as found:  # not of an input, nor of what a function of the host makes
                return found
        return None

    def _picked_of_integers(self, node: Call, source: Expr) -> Expr | None:
        """Of a quantise behind an operator that picks elements (a move, the largest of a window): the operator on the
        integers of what it picks from, where the core makes those. Quantising keeps the order of numbers, so it does
        not matter which of the two comes first. None for others."""
        if not isinstance(source, Call) or isinstance(source.op, Function) or source.dtype != "float32":
            return None
        entry = operator(source.op)
        if entry.role is not Role.LARGEST and entry.family not in (Family.MOVE, Family.INDEX):
            return None
        if not source.args or any(not isinstance(arg, Constant) for arg in source.args[1:]):
            return None
        inner = call("quantise", source.args[0], *node.args[1:], span=Span(node.span.nodes), **node.attrs)
        found = self._integers_of(inner)
        if isinstance(found, Refusal):
            return None
        step, zero = float(static_value(node.args[1])), int(static_value(node.args[2])) - (node.dtype == "uint8") * 128
        known = {id(source.args[0]): Integers(found, step, zero)}
        form = replace(self.describer, described=known).describe(source)
        if not isinstance(form, Integers) or (form.scale, form.zero_point) != (step, zero):
            return None
        return respan(form.q, Span(form.q.span.merged(node.span).nodes, node.span.tensor))

    def _quantise_parts(self, node: Call, source: Call, parts: tuple[Expr, ...]) -> Expr:
        """A concatenation of which the host makes a part: each part is quantised where it is made."""
        signed = []
        for part in parts:
            quantised_part = call("quantise", part, *node.args[1:], span=Span(node.span.nodes), **node.attrs)
            signed.append(self._static(quantised_part) if part.static else self._quantise(quantised_part))
        span = Span(source.span.merged(node.span).nodes, node.span.tensor)
        return concatenated(signed, source.attr("axis"), source.shape, span)

    def _static(self, node: Expr) -> Expr:
        return self._signed(Constant(static_value(node), span=node.span))

    def _quantise_on_host(self, node: Call, source: Expr, reason: str) -> Expr:
        scale, zero_point = node.args[1:]
        args = (source, self._float(scale), self._signed(zero_point))
        return self._host("quantise", args, dict(node.attrs), reason, node.span)

    # Loops, whose values are all floats or wide integers (`scans.unroll_quantised_loops`)

    def _of_a_loop(self, node: Expr) -> None:
        """Each result is a host function with the loop in it: those that run together become one loop again."""
        self.described[id(node)] = Refusal(_LOOP)
        match node:
            case TupleGet(value=Call(op=str() as op, args=args) as loop):
                given = tuple(self._as_given(arg, f"{op} works on uint8") for arg in args)
                self.floats[id(node)] = host_call(op, given, loop.attrs, _LOOP, node.span, result=node.index)
            case TupleGet():
                self.floats[id(node)] = TupleGet(self._float(node.value), node.index, node.span)

    # Real values

    def _real(self, node: Expr) -> None:
        described = self.describer.describe(node)
        if self.core and isinstance(described, Refusal):
            described = mean_in_digits(node, self.describer) or described
        self.described[id(node)] = described
        match node:
            case Call(args=(q, scale, zero_point)) if role_of(node) is Role.DEQUANTISE and id(q) in self.integers:
                given = self.integers[id(q)]
                self.unasked[id(node)] = partial(self._dequantise_on_host, node, given, scale, zero_point)
            case Call():
                self.unasked[id(node)] = partial(self._real_on_host, node, described)
            case _:
                self.floats[id(node)] = node

    def _real_on_host(self, node: Call, described: IntegerForm) -> Expr:
        sums = (self._sums(node, described) or self._largest(node, described)) if self.core else None
        reason = described.reason if isinstance(described, Refusal) else "its result is used as float32"
        return self._float_on_host(node, reason) if sums is None else sums

    def _sums(self, node: Call, described: IntegerForm) -> Expr | None:
        """The value of a product, or of a mean, as the core hands it to the host; None for other operators."""
        entry = operator(node.op) if isinstance(node.op, str) else None
        products = (Anchor.CONVOLUTION, Anchor.PRODUCT)
        if entry is None or node.dtype != "float32":
            return None
        if entry.anchor not in products and entry.role not in (Role.MEAN, Role.SUM):
            return None
        return handed_over(described, f"{entry.name.removeprefix('nn.')} {node.span.node!r}", node.span)

    def _largest(self, node: Call, described: IntegerForm) -> Expr | None:
        """The largest of 8-bit values, which the core has found; None for other operators."""
        if role_of(node) is not Role.LARGEST or not isinstance(described, Integers) or node.dtype != "float32":
            return None
        found = described.q
        entry = operator_of(found)
        if not is_of_picture(found.children[0] if entry is not None and entry.family is Family.MOVE else found):
            return None
        scale = Constant(np.array(described.scale, np.float32))
        zero_point = Constant(np.array(described.zero_point, np.int8))
        reason = "converts integers to float32 for what follows"
        return self._host("dequantise", (found, scale, zero_point), {}, reason, node.span)

    def _dequantise_on_host(self, node: Call, q: Expr, scale: Expr, zero_point: Expr) -> Expr:
        reason = "converts integers to float32 for what follows"
        args = (q, self._float(scale), self._signed(zero_point))
        return self._host("dequantise", args, dict(node.attrs), reason, node.span)


def _moves_one(node: Call) -> bool:
    """Whether only the first operand holds what the result holds: the int8 values that stand for uint8 ones move alike,
    but go neither into others (scatters) nor into sums."""
    return all(arg.dtype != "uint8" for arg in node.args[1:])
