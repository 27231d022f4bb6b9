"""Which values of a float model become 8 bits, and which constants are weights.

The places are those that the integer contract has a form for (docs/integers.md): what convolutions, products and
poolings read and give, with the constants and the clamp behind them; sums and products of two 8-bit values; results of
elementwise functions of one 8-bit value, as a whole. What stands between, such as softmax or a layer normalisation,
stays in floats between 8-bit values.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..compiler.graph import (
    LINEAR,
    Anchor,
    Call,
    Constant,
    EightBits,
    Expr,
    Function,
    Fusion,
    Module,
    Role,
    Tuple,
    Var,
    operator,
    operator_of,
    require_module,
    role_of,
    topological_order,
)
from ..compiler.graph.registry import apply
from ..compiler.graph.visit import with_children
from ..compiler.passes.pipeline import PassOptions, float_passes, run_passes
from ..compiler.passes.scans import unroll_loops
from .errors import QuantiseError

PRODUCTS = (Anchor.CONVOLUTION, Anchor.PRODUCT)


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant operand of a convolution or a product. ``axis``: that of the output channels, which get a scale each;
    None if the product has none."""

    value: Constant
    axis: int | None
    name: str


@dataclass(frozen=True, eq=False)
class Plan:
    """What becomes 8 bits.

    ``module``: the model after the passes for floats, batch normalisations folded. ``values``: places by name, in
    the order in which they are computed. ``weights``: by the call and the number of its operand. ``offsets``: constants
    of accumulators by name, which stay in floats here and become part of the requantise.
    """

    module: Module
    values: Mapping[str, Expr]
    weights: Mapping[tuple[Call, int], Weight]
    offsets: Mapping[str, Constant]


class Form(enum.Enum):
    """How a value could be had in integers."""

    FLOAT = "in floats alone"
    EIGHT = "8 bits, or a move of such"
    FUNCTION = "a function of one 8-bit value"
    ACCUMULATOR = "sums of products, still without a clamp"
    CLAMPED = "what nothing but a quantise can follow"


def plan(module: Module) -> Plan:
    """Find the places; `QuantiseError` for a model that has 8-bit tensors or nothing to quantise."""
    require_module(module, QuantiseError)
    module = unroll_loops(module)
    nodes = topological_order(module.main.body)
    if any(role_of(node) is Role.QUANTISE for node in nodes):
        raise QuantiseError("the model is quantised already", hint="give the float model")
    planner = _Planner(run_passes(_weights_as_floats(module), float_passes(), PassOptions()))
    found = planner.run()
    if not found.weights:
        raise QuantiseError("the model has no convolution and no product with weights, so there is nothing to quantise")
    return found


def require_plan(value: object) -> None:
    """`QuantiseError` for what is no plan."""
    if not isinstance(value, Plan):
        raise QuantiseError(f"{value!r:.80} is no plan", hint="weft.quantise.plan(module) makes one")


def require_examples(value: object) -> None:
    """`QuantiseError` for what holds no examples one after the other, such as the inputs of a single one."""
    if isinstance(value, (Mapping, str)) or not isinstance(value, Iterable):
        raise QuantiseError(f"examples is {value!r:.80}, but must be a list of inputs by name",
                            hint="of one example: [inputs]")  # fmt: skip


def _weights_as_floats(module: Module) -> Module:
    """With the floats that constants of few bits stand for, as models have them whose weights alone are quantised."""
    main = module.main
    memo: dict[int, Expr] = {}
    for node in topological_order(main.body):
        children = tuple(memo[id(child)] for child in node.children)
        made = with_children(node, children)
        if (
            isinstance(made, Call)
            and role_of(made) is Role.DEQUANTISE
            and all(isinstance(arg, Constant) for arg in made.args)
        ):
            values = [arg.value for arg in made.args if isinstance(arg, Constant)]
            name = made.args[0].name if isinstance(made.args[0], Constant) else ""
            made = Constant(apply(made, values), name, made.span)
        memo[id(node)] = made
    if memo[id(main.body)] is main.body:
        return module
    return Module(Function(main.params, memo[id(main.body)], main.attrs, main.span), module.stage)


@dataclass
class _Planner:
    """``source``: the 8-bit value that a value is a function of. ``channels``: the axis of an accumulator's channels;
    none of one that is a sum of two, which no factor joins."""

    module: Module
    forms: dict[Expr, Form] = field(default_factory=dict)
    source: dict[Expr, Expr] = field(default_factory=dict)
    channels: dict[Expr, int] = field(default_factory=dict)
    users: dict[Expr, list[Call | None]] = field(default_factory=dict)
    chosen: set[Expr] = field(default_factory=set)
    weights: dict[tuple[Call, int], Weight] = field(default_factory=dict)
    offsets: dict[str, Constant] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def run(self) -> Plan:
        body = self.module.main.body
        order = list(dict.fromkeys(topological_order(body)))
        for node in order:
            for child in node.children:
                self.users.setdefault(child, []).append(node if isinstance(node, Call) else None)
        for node in order:
            if isinstance(node, Var):
                self.forms[node] = Form.FLOAT  # until something wants it in 8 bits
            elif isinstance(node, Call):
                self.forms[node] = self._form(node)
        for result in body.fields if isinstance(body, Tuple) else (body,):
            self._settle(result)
            self._settle_pooling(result)
        for node in reversed(order):
            if self._is_better_in_floats(node):
                self.chosen.discard(node)
                self.forms[node] = Form.FLOAT
        values = {self._name(node, "value"): node for node in order if node in self.chosen}
        return Plan(self.module, values, self.weights, self.offsets)

    def _is_better_in_floats(self, node: Expr) -> bool:
        """Whether a function of an 8-bit value, or a concatenation, is read by elementwise operators in floats alone: 8
        bits between would only be made to be given up, as in the turned half of rotary positions."""
        if node not in self.chosen or not isinstance(node, Call) or not self._is_plain_function(node):
            return False
        readers = self.users.get(node, [])
        return bool(readers) and all(
            reader is not None
            and self.forms[reader] is Form.FLOAT
            and (_joins_eight(reader) or operator(str(reader.op)).fusion is Fusion.ELEMENTWISE)
            for reader in readers
        )

    def _is_plain_function(self, node: Call) -> bool:
        entry = operator_of(node)
        if entry is None or not all(self._is_eight(arg) or self.forms.get(arg) is Form.FLOAT for arg in node.args
                                    if not isinstance(arg, Constant)):  # fmt: skip
            return False
        return _joins_eight(node) or (entry.fusion is Fusion.ELEMENTWISE and len(self._computed(node)) == 1)

    def _form(self, node: Call) -> Form:
        if not isinstance(node.op, str) or node.dtype != "float32":
            return self._float(node)
        entry = operator(node.op)
        if entry.anchor in PRODUCTS:
            return self._product(node)
        if entry.eight_bits is EightBits.SUMS and not self._is_part_of_a_norm(node):
            self._settle(node.args[0], wanted=True)
            return Form.ACCUMULATOR if self._is_eight(node.args[0]) else Form.FLOAT
        computed = self._computed(node)
        if (
            entry.eight_bits is EightBits.JOINS
            and computed
            and all(self.forms[arg] is not Form.FLOAT for arg in computed)
        ):
            for arg in computed:
                if self.forms[arg] is Form.FUNCTION or len(self.users[arg]) > 1:
                    self._settle(arg)
            return Form.CLAMPED
        if entry.eight_bits is EightBits.PICKS or (entry.fusion is Fusion.LAYOUT and not node.attrs.get("value", 0)):
            return self._move(node, computed)
        if entry.fusion is Fusion.ELEMENTWISE and computed:
            return self._elementwise(node, computed)
        return self._float(node)

    def _product(self, node: Call) -> Form:
        for number, arg in enumerate(node.args):
            if isinstance(arg, Constant):
                if arg.dtype == "float32":
                    self.weights[node, number] = Weight(arg, _channels(node, number), self._name(arg, _place(node)))
            else:
                self._settle(arg, wanted=True)
        self.channels[node] = len(node.shape) - 1 if role_of(node) is Role.MATRIX_PRODUCT else 1
        return Form.ACCUMULATOR

    def _move(self, node: Call, computed: Sequence[Expr]) -> Form:
        operand = node.args[0]
        if _picks(node) and isinstance(operand, Var):
            self._settle(operand, wanted=True)
        if computed != [operand] or self.forms[operand] is Form.FLOAT:
            return self._float(node)
        axis = _moved_axis(node, self.channels.get(operand))
        if self.forms[operand] is Form.ACCUMULATOR and axis is not None and len(self.users[operand]) == 1:
            self.channels[node] = axis  # a product of stacks of rows is one of rows, between two of these
            return Form.ACCUMULATOR
        self._settle(operand)
        return Form.EIGHT

    def _elementwise(self, node: Call, computed: Sequence[Expr]) -> Form:
        first = computed[0]
        if len(computed) == 1 and self._joins(node, first):
            return Form.CLAMPED if role_of(node) is Role.CLAMP else Form.ACCUMULATOR
        if any(self.forms[arg] is Form.FLOAT for arg in computed):
            return self._float(node)
        for arg in computed:
            if self.forms[arg] is not Form.FUNCTION:
                self._settle(arg)
        sources = {self.source.get(arg, arg) for arg in computed}
        if len(sources) == 1 and all(arg.shape == node.shape for arg in computed):
            self.source[node] = sources.pop()
            return Form.FUNCTION
        role = role_of(node)
        if len(computed) == len(node.args) == 2 and role in (Role.ADD, Role.SUBTRACT, Role.MULTIPLY):
            for arg in computed:
                self._settle(arg)
            # Of a sum the clamp joins the requantise; a constant behind it does not.
            return Form.CLAMPED if role is Role.MULTIPLY else Form.ACCUMULATOR
        return self._float(node)

    def _joins(self, node: Call, operand: Expr) -> bool:
        """Whether a call with constants alone joins the requantise of its operand's accumulator."""
        if self.forms[operand] is not Form.ACCUMULATOR or len(self.users[operand]) > 1 or node.shape != operand.shape:
            return False
        role = role_of(node)
        if role is Role.CLAMP:
            return True
        axis = self.channels.get(operand)
        if role not in LINEAR or axis is None or (role is Role.DIVIDE and node.args[0] is not operand):
            return False
        constant = next(arg for arg in node.args if arg is not operand)
        if not isinstance(constant, Constant) or not _by_channel(constant.shape, node.shape, axis):
            return False
        self.channels[node] = axis
        if constant.value.size > 1:
            self.offsets[self._name(constant, f"{_place(node)}.offset")] = constant
        return True

    def _float(self, node: Call) -> Form:
        """Nothing of this call is 8 bits; what it reads of accumulators is."""
        for arg in self._computed(node):
            if self.forms[arg] is not Form.FLOAT:
                self._settle(arg)
        return Form.FLOAT

    def _settle(self, value: Expr, wanted: bool = False) -> None:
        """Make 8 bits of a value that has an integer form; with ``wanted`` also of one in floats."""
        form = self.forms.get(value, Form.EIGHT)
        if form is Form.EIGHT or (form is Form.FLOAT and not wanted) or value.dtype != "float32":
            return
        self.chosen.add(value)
        self.forms[value] = Form.EIGHT
        self.source.pop(value, None)

    def _settle_pooling(self, result: Expr) -> None:
        """A maximum that nothing but an output reads would be one of floats."""
        while isinstance(result, Call) and result not in self.chosen and self._is_eight(result):
            if _picks(result):
                self.chosen.add(result)
            result = result.args[0]

    def _is_eight(self, value: Expr) -> bool:
        return self.forms.get(value) is Form.EIGHT

    def _computed(self, node: Call) -> list[Expr]:
        return [arg for arg in node.args if not isinstance(arg, Constant)]

    def _is_part_of_a_norm(self, node: Call) -> bool:
        """Whether a normalisation is made of a reduction: the mean of squares, or one that is subtracted."""
        if operator(str(node.op)).anchor is not Anchor.REDUCTION:
            return False
        operand = node.args[0]
        role = role_of(operand)
        is_square = role is Role.POWER or (role is Role.MULTIPLY and len(set(operand.children)) == 1)
        centres = any(role_of(user) is Role.SUBTRACT and operand in user.args
                      for user in self.users.get(node, []) if user is not None)  # fmt: skip
        return isinstance(operand, Constant) or is_square or centres

    def _name(self, node: Expr, otherwise: str) -> str:
        """A name that nothing else has: that of the constant, the input or the tensor."""
        name = node.name if isinstance(node, (Constant, Var)) else node.span.tensor
        name = unique = name or otherwise
        number = 1
        while unique in self.names:
            number += 1
            unique = f"{name}.{number}"
        self.names.add(unique)
        return unique


def _joins_eight(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.eight_bits is EightBits.JOINS


def _picks(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.eight_bits is EightBits.PICKS


def _place(node: Call) -> str:
    return node.span.tensor or node.span.node or str(node.op)


def _channels(node: Call, operand: int) -> int | None:
    """The axis of a constant operand along which the result's channels lie."""
    shape = node.args[operand].shape
    if role_of(node) is Role.MATRIX_PRODUCT:
        # Products of stacks share one scale: the integer form has one a column.
        return len(shape) - 2 + operand if len(shape) == 2 else None
    return 0 if operand == 1 else None


def _moved_axis(node: Call, axis: int | None) -> int | None:
    """Where the channels of an operand lie behind a move that keeps them together; None if it does not."""
    shape = node.args[0].shape
    if axis is None:
        return None
    if node.op == "transpose":
        return int(node.attr("perm").index(axis))
    if node.op == "reshape" and axis == len(shape) - 1 and node.shape and node.shape[-1] == shape[-1]:
        return len(node.shape) - 1
    return None


def _by_channel(constant: tuple[int, ...], shape: tuple[int, ...], channels: int) -> bool:
    """Whether a constant is a number, or one for each channel."""
    padded = (1,) * (len(shape) - len(constant)) + constant
    return all(size == 1 or axis == channels for axis, size in enumerate(padded))
