"""A graph over the field: every value for random inputs.

Operators of the integer contract have rules of their own (`integer_operators`); packed ones are these on tensors with
padding. What only moves elements is asked where it moves them: its meaning in NumPy runs on numbers of places. All else
is an unknown function: of each element where it works element by element, otherwise of all its operands together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.ir import Call, Constant, Expr, Function, GraphError, TensorType, Tuple, TupleGet, Var
from ..compiler.graph.registry import Fusion, apply, operator_of
from ..compiler.graph.visit import topological_order
from . import layout
from .errors import NotProvedError
from .field import Elements, fold, of_int
from .integer_operators import RULES, Context, as_function_of_byte, of_byte
from .layout import Blocks
from .normal_forms import Kinds
from .values import Array, OneByte, Value, bytes_value, constant_value, known, plain, without_repeats

Node = Value | Array | list[Value]
"""Constants stay arrays; a list for several results."""

Observer = Callable[[Call, Value], None]

_PACKED_WEIGHTS = {
    "conv2d": layout.dense_weights,
    "grouped_conv2d": layout.block_weights,
    "depthwise_conv2d": layout.depthwise_weights,
    "tapped_conv2d": layout.tapped_weights,
}
_PACKED_RANK = 7
_WHOLE = ("bool", "int8", "uint8", "int16", "uint16", "int32")
"""Element types whose numbers stand for themselves."""
_PLACES = 1 << 40
"""Numbers of places begin here, so that no constant is taken for one."""


def evaluated(
    function: Function, arguments: Sequence[Node], context: Context, observe: Observer | None = None
) -> list[Value]:
    """The results of a function; a packed tensor is (N, C, H, W) with its padding.

    ``observe``: is told every call of the function itself, and what it makes.
    """
    values: dict[int, Node] = {}
    bindings = dict(zip(function.params, arguments, strict=True))
    for node in topological_order(function.body):
        values[id(node)] = _node(node, values, bindings, context)
        made = values[id(node)]
        if observe is not None and isinstance(node, Call) and isinstance(made, Value):
            observe(node, made)
    result = values[id(function.body)]
    return result if isinstance(result, list) else [as_value(result)]


def _node(node: Expr, values: Mapping[int, Node], bindings: Mapping[Var, Node], context: Context) -> Node:
    match node:
        case Var():
            return bindings[node]
        case Constant():
            return node.value
        case Tuple():
            return [as_value(values[id(child)]) for child in node.fields]
        case TupleGet():
            several = values[id(node.value)]
            return several[node.index] if isinstance(several, list) else several
        case Call():
            operands = [values[id(arg)] for arg in node.args]
            if isinstance(node.op, Function):
                return _called(node.op, operands, context)
            return _operator(node, operands, context)
    raise NotProvedError(f"a node of kind {type(node).__name__}")


def _called(function: Function, operands: Sequence[Node], context: Context) -> Node:
    results = evaluated(function, operands, context)
    if not isinstance(function.body.type, TensorType):
        return results
    (result,) = results
    if function.body.type.dtype != "int8" or not result.kind.any():
        return result
    return bytes_value(result.elements(context.keys))  # it is stored: an open sum ends here


def as_value(node: Node) -> Value:
    """A single value, of what may be a constant."""
    if isinstance(node, Value):
        return node
    if isinstance(node, list):
        raise NotProvedError("several values where one is meant")
    return constant_value(node)


def _operator(node: Call, operands: Sequence[Node], context: Context) -> Node:
    name, attrs = str(node.op), dict(node.attrs)
    if name in ("pack", "unpack") or name.startswith("packed_"):
        return _packed(node, name.removeprefix("packed_"), operands, attrs, context)
    made = _by_rule(name, operands, attrs, context)
    if made is not None:
        return made
    if context.one_byte:
        made = _of_one_byte(node, operands, context)
        if made is not None:
            return made
    entry = operator_of(node)
    if entry is not None and entry.fusion is Fusion.LAYOUT and isinstance(node.type, TensorType):
        moved = _moved(node, operands, context)
        if moved is not None:
            return moved
    return _unknown(node, operands, context)


def _by_rule(name: str, operands: Sequence[Node], attrs: Mapping[str, Any], context: Context) -> Value | None:
    """By a rule of the integer contract; None where there is none for such operands."""
    if name not in RULES or any(isinstance(each, list) for each in operands):
        return None
    rule, count = RULES[name]
    split = len(operands) - count
    constants = [each for each in operands[split:] if isinstance(each, np.ndarray)]
    if len(constants) != count or len(attrs.get("kernel", (0, 0))) != 2 or any(w.ndim == 5 for w in constants):
        return None
    data = [as_value(each) for each in operands[:split]]
    made = rule(context, data, constants, attrs)
    if context.one_byte and name == "max_pool":
        return bytes_value(made.elements(context.keys))
    return made


# Packed tensors


def _packed(node: Call, name: str, operands: Sequence[Node], attrs: dict[str, Any], context: Context) -> Node:
    blocks = Blocks(*attrs.pop("blocks"))
    data = [
        constant_value(layout.plain_of(each)) if isinstance(each, np.ndarray) and each.ndim == _PACKED_RANK else each
        for each in operands
    ]
    if name == "pack":
        return _rearranged(as_value(operands[0]), lambda x: layout.filled(x, blocks), keeps_channels=True)
    if name == "unpack":
        return _rearranged(as_value(data[0]), lambda x: _without_padding(x, attrs["shape"]), keeps_channels=True)
    if name == "as_pixel":  # its channels are the bytes of what is filled up, as they lie
        shape = node.args[0].shape
        return _rearranged(as_value(data[0]), lambda x: layout.in_memory_order(x, shape).reshape(1, -1, 1, 1))
    if name == "concat":
        return _side_by_side([as_value(each) for each in data])
    if name == "move":
        return _moved_entries(operands, node, attrs["shape"])
    if name in _PACKED_WEIGHTS:
        w = data[1]
        if not isinstance(w, np.ndarray):
            raise NotProvedError(f"{name} of computed weights")
        depthwise = name in ("depthwise_conv2d", "tapped_conv2d")
        groups = 1 if name == "conv2d" else len(w) if name == "grouped_conv2d" else None
        plain_w = _PACKED_WEIGHTS[name](w)
        data[1] = plain_w
        attrs["groups"] = len(plain_w) if depthwise else groups
        name = "conv2d"
    elif name == "product":
        attrs["zero_points"] = (0, 0)
        attrs["outputs"] = -(-attrs["outputs"] // blocks.block_out) * blocks.block_out
    elif name.startswith("requantise"):
        parameters = data[1]
        if not isinstance(parameters, np.ndarray):
            raise NotProvedError("a requantise with computed parameters")
        tables = [layout.plain_table(each) for each in data[2:] if isinstance(each, np.ndarray)]
        _, groups, _, _, rows, _, lanes = node.args[0].shape
        data = [data[0], *layout.channel_parameters(parameters, groups * rows * lanes), *tables]
    elif name == "look_up":
        data = [data[0], *(layout.plain_table(each) for each in data[1:] if isinstance(each, np.ndarray))]
    made = _by_rule(name, data, attrs, context)
    if made is None:
        raise NotProvedError(f"the verifier has no rule for {node.op!r} with such operands")
    return made


def _moved_entries(operands: Sequence[Node], node: Call, shape: tuple[int, ...]) -> Value:
    """Whole entries in other places; a number below 0 stands for 128 more in all lanes."""
    entries, lanes = operands[0], shape[-2] * shape[-1]
    if not isinstance(entries, np.ndarray):
        raise NotProvedError("a move to computed places")
    sources = [as_value(each) for each in operands[1:]]
    numbers = entries.astype(np.int64)[:, None]
    fills = np.repeat(np.where(numbers < 0, numbers + 128, 0), lanes, 1)

    def make() -> tuple[Elements, Kinds]:
        every = np.concatenate([
            layout.in_memory_order(x.open_elements, arg.shape).reshape(-1, lanes)
            for x, arg in zip(sources, node.args[1:], strict=True)
        ])  # fmt: skip
        kinds = np.concatenate([
            layout.in_memory_order(x.kind, arg.shape).reshape(-1, lanes)
            for x, arg in zip(sources, node.args[1:], strict=True)
        ])  # fmt: skip
        filled, no_kind = plain(of_int(fills))
        chosen = np.maximum(entries, 0)
        picked = np.where(numbers < 0, filled, every[chosen]), np.where(numbers < 0, no_kind, kinds[chosen])
        return layout.plain_of(picked[0].reshape(shape)), layout.plain_of(picked[1].reshape(shape))

    return Value(
        make, min(int(fills.min()), *(x.low for x in sources)), max(int(fills.max()), *(x.high for x in sources)),
        max(128.0, *(x.size for x in sources)), max(x.degree for x in sources),
    )  # fmt: skip


def _without_padding(x: Any, shape: Sequence[int]) -> Any:
    images, channels = shape[:2]
    return x[:images, :channels].reshape(shape)


def _rearranged(x: Value, change: Callable[[Any], Any], *, keeps_channels: bool = False) -> Value:
    """A value whose places change; bounds are those of what is not filled up, since no result depends on that.

    ``keeps_channels``: each stays at its number, though some may be cut off at the end or filled up.
    """
    made = None if x.of_byte is None else _byte_rearranged(x.of_byte, change, keeps_channels)
    if made is not None:
        return Value(lambda: plain(change(x.open_elements)), x.low, x.high, x.size, x.degree, made)
    return Value(lambda: (change(x.open_elements), change(x.kind)), x.low, x.high, x.size, x.degree)


def _byte_rearranged(x: OneByte, change: Callable[[Any], Any], keeps_channels: bool) -> OneByte | None:
    """A function of a byte in other places, if every place has one: channels that are filled up have the function that
    is 0; other places that are filled up have none."""
    base, table = change(x.base), x.table
    if base.size <= x.base.size and (keeps_channels or table.shape[1] == 1):
        return replace(x, base=base, table=without_repeats(table[:, : base.shape[1]]))
    channels, more = x.base.shape[1], base.shape[1] - x.base.shape[1]
    if not keeps_channels or base.size * channels != x.base.size * base.shape[1]:
        return None
    own = np.broadcast_to(table, (len(table), channels))
    return replace(x, base=base, table=np.concatenate([own, np.zeros((len(table), more), own.dtype)], 1))


def _side_by_side(values: Sequence[Value]) -> Value:
    return Value(
        lambda: (np.concatenate([x.open_elements for x in values], 1), np.concatenate([x.kind for x in values], 1)),
        min(x.low for x in values), max(x.high for x in values),
        max(x.size for x in values), max(x.degree for x in values),
    )  # fmt: skip


# Functions of one 8-bit value outside of the integer contract


def _of_one_byte(node: Call, operands: Sequence[Node], context: Context) -> Value | None:
    """What makes whole numbers of one 8-bit value and constants, element by element or by a place in a table: by its
    results for all numbers. None for all else."""
    entry = operator_of(node)
    computed = [place for place, each in enumerate(operands) if not isinstance(each, np.ndarray)]
    if entry is None or len(computed) != 1 or not isinstance(node.type, TensorType):
        return None
    place = computed[0]
    x, kind = operands[place], node.args[place].tensor_type.dtype
    is_table = node.op == "gather" and place == 1 and node.args[0].shape[1:] == () and len(node.args[0].shape) == 1
    if not (is_table or entry.fusion is Fusion.ELEMENTWISE) or node.dtype not in _WHOLE or kind not in _WHOLE:
        return None
    function = as_function_of_byte(x) if isinstance(x, Value) else None
    if function is None or node.shape != function.base.shape:
        return None
    arguments: list[Array] = []
    for number, operand in enumerate(operands):
        if number == place:
            arguments.append(function.table.astype(numpy_dtype(kind)))
        elif isinstance(operand, np.ndarray):
            shape = operand.shape
            by_channel = len(shape) == len(node.shape) and operand.size == (shape[1] if len(shape) > 1 else 0)
            if operand.size != 1 and not is_table and not by_channel:
                return None
            arguments.append(operand if is_table else operand.reshape((1, -1)))
    found = np.asarray(entry.numpy(*arguments, **dict(node.attrs)))
    if found.ndim != 2 or len(found) != len(function.table) or found.shape[1] not in (1, *function.base.shape[1:2]):
        return None
    return of_byte(replace(function, table=found.astype(np.int64)), context.keys)


# Moves


def _moved(node: Call, operands: Sequence[Node], context: Context) -> Value | None:
    """What a move makes; None where its operands are not only elements of its result's type and constants."""
    places: list[Array] = []
    sources: list[Value] = []
    first = _PLACES
    for arg, operand in zip(node.args, operands, strict=True):
        if isinstance(operand, np.ndarray) and arg.tensor_type.dtype != node.dtype:
            places.append(operand)
            continue
        if isinstance(operand, list) or arg.tensor_type.dtype != node.dtype:
            return None
        if isinstance(operand, np.ndarray) and operand.dtype.kind not in "iub":
            return None
        source = as_value(operand)
        count = source.open_elements.size
        places.append(np.arange(first, first + count, dtype=np.int64).reshape(source.open_elements.shape))
        sources.append(source)
        first += count
    try:
        found = np.asarray(operator_of(node).numpy(*places, **dict(node.attrs)))  # type: ignore[union-attr]
    except (GraphError, ValueError, TypeError, IndexError, OverflowError):  # such as padding with infinity
        return None
    is_place = found >= _PLACES
    if found.shape != node.shape or (not is_place.all() and np.dtype(found.dtype).kind not in "iub"):
        return None
    if not is_place.all() and node.dtype.startswith(("float", "bfloat")):
        return None
    chosen = np.where(is_place, found - _PLACES, 0).astype(np.int64)
    numbers = np.where(is_place, 0, found).astype(np.int64)
    return _picked(sources, chosen, is_place, numbers, context)


def _picked(sources: Sequence[Value], chosen: Array, is_place: Array, numbers: Array, context: Context) -> Value:
    bounds = [*((x.low, x.high) for x in sources), (int(numbers.min(initial=0)), int(numbers.max(initial=0)))]
    low, high = min(each[0] for each in bounds), max(each[1] for each in bounds)
    size = max([*(x.size for x in sources), float(max(abs(bounds[-1][0]), abs(bounds[-1][1])))])
    degree = max([0.0, *(x.degree for x in sources)])

    def pick(arrays: Sequence[Array], otherwise: Any) -> Any:
        every = np.concatenate([each.ravel() for each in arrays]) if arrays else np.zeros(1, np.uint64)
        taken = every[chosen] if every.size else np.zeros(chosen.shape, np.uint64)
        return taken if is_place.all() else np.where(is_place, taken, otherwise)

    of_byte = None
    only = sources[0].of_byte if len(sources) == 1 else None
    if only is not None and only.table.shape[1] == 1 and is_place.all():
        of_byte = replace(only, base=pick([only.base], None))

    def make() -> tuple[Elements, Kinds]:
        return plain(pick([x.elements(context.keys) for x in sources], of_int(numbers)))

    return Value(make, low, high, size, degree, of_byte)


# Unknown functions


def _unknown(node: Call, operands: Sequence[Node], context: Context) -> Node:
    if all(isinstance(each, np.ndarray) for each in operands) and operands and isinstance(node.type, TensorType):
        return apply(node, [each for each in operands if isinstance(each, np.ndarray)])
    entry, keys = operator_of(node), context.keys
    name = f"{node.op} {sorted(map(repr, dict(node.attrs).items()))}"
    if isinstance(node.type, TensorType) and entry is not None and entry.fusion is Fusion.ELEMENTWISE:
        arrays = [_content(each, context) for each in operands]
        if all(each.shape == node.shape or each.size == 1 for each in arrays):
            key = keys.key(name, *(each.reshape(()) if each.size == 1 else each for each in arrays))
            return _typed(keys.under(key, np.zeros(node.shape, np.uint64)), node.dtype)
    content = b"".join(np.ascontiguousarray(_content(each, context)).tobytes() for each in operands)
    stands_for = int(keys.digest(content)[0])
    kinds = (node.type,) if isinstance(node.type, TensorType) else node.type.fields
    made = [
        _typed(keys.atoms(kind.shape, "unknown", name, stands_for, number), kind.dtype)
        for number, kind in enumerate(kinds)
    ]
    return made[0] if isinstance(node.type, TensorType) else made


def _typed(elements: Elements, dtype: str) -> Value:
    return bytes_value(elements) if dtype == "int8" else known(elements)


def _content(node: Node, context: Context) -> Elements:
    """What stands for an operand of an unknown function: its elements, or those of a constant's bits."""
    if isinstance(node, list):
        return np.concatenate([x.elements(context.keys).ravel() for x in node])
    if isinstance(node, Value):
        return node.elements(context.keys)
    if node.dtype.kind in "iub" and node.dtype.itemsize < 8:
        return of_int(node)
    if node.dtype.kind not in "iubf":
        return context.keys.digest(repr(node.tolist()).encode())
    bits = np.ascontiguousarray(node).reshape(-1).view(f"u{node.dtype.itemsize}")
    return fold(bits.astype(np.uint64)).reshape(node.shape)
