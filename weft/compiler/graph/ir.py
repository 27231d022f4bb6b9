"""The graph IR: an immutable, typed dataflow graph.

A node never changes after it is built, knows its type, and knows the user's node it came from (its *span*, which takes
no part in equality). Two nodes are equal when they compute the same thing: equality compares digests that are made
once, when a node is built, so it costs the same for a residual network of any depth (a naive recursive comparison is
exponential in the number of diamonds).
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from ...errors import WeftError
from ...whole import whole, whole_tuple
from .dtypes import DTYPES, dtype_name
from .records import Record, why_no_attribute
from .strings import canonical, content

Array = NDArray[Any]
Scalar = bool | int | float | str
AttrValue = Union[Scalar, tuple["AttrValue", ...], "Function", Record]


@dataclass(frozen=True)
class Span:
    """Where a node comes from: the user's node (or several, when a pass merged them) and the tensor it produces."""

    nodes: tuple[str, ...] = ()
    tensor: str = ""

    @property
    def node(self) -> str:
        return self.nodes[0] if self.nodes else ""

    def __bool__(self) -> bool:
        """Whether it names any place."""
        return bool(self.nodes or self.tensor)

    def __str__(self) -> str:
        if not self.nodes:
            return f"tensor {self.tensor!r}" if self.tensor else "unknown place"
        return "node " + ", ".join(repr(node) for node in self.nodes)

    def merged(self, *others: Span) -> Span:
        """This span and ``others``; the tensor stays this one's."""
        nodes = dict.fromkeys(node for span in (self, *others) for node in span.nodes)
        return Span(tuple(nodes), self.tensor)


UNKNOWN = Span()


class GraphError(WeftError):
    """Something in the graph is not as it must be."""


MOST_ELEMENTS = 1 << 40
"""Of a tensor, without its empty dimensions: more fit no memory, and sizes stay well inside 64 bits."""


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor; every dimension is known.

    The shape may be given as any sequence of integers, the type as NumPy's object of it.
    """

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        shape = whole_tuple(self.shape)
        if shape is None:
            raise GraphError(f"the shape of a tensor is {self.shape!r:.80}, but must be a tuple of whole numbers",
                             hint="such as (1, 3, 224, 224)")  # fmt: skip
        if shape is not self.shape:
            object.__setattr__(self, "shape", shape)
        if type(self.dtype) is not str:
            object.__setattr__(self, "dtype", _type_name(self.dtype))
        if self.dtype not in DTYPES:
            raise GraphError(f"{self.dtype!r} is not an element type; the types are {', '.join(DTYPES)}")
        if any(size < 0 for size in self.shape):
            raise GraphError(f"a tensor cannot have the shape {self.shape}")
        if math.prod(filter(None, self.shape)) > MOST_ELEMENTS:
            raise GraphError(f"a tensor of shape {self.shape} has more than {MOST_ELEMENTS:,} elements")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _type_name(dtype: object) -> str:
    """The name of a type that is no text: NumPy's object or class of it."""
    if isinstance(dtype, (str, np.dtype)) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        return str(dtype) if isinstance(dtype, str) else dtype_name(np.dtype(dtype))
    raise GraphError(f"the type of a tensor is {dtype!r:.80}, but must be a name", hint=f"one of {', '.join(DTYPES)}")


def _of(values: object, kind: type[Any], what: str) -> tuple[Any, ...]:
    """``values`` as a tuple, all of one kind; GraphError names the first that is another."""
    if type(values) is not tuple:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise GraphError(f"{what} are {values!r:.80}, but must be a tuple of {kind.__name__} objects")
        values = tuple(values)
    for place, value in enumerate(values):
        if not isinstance(value, kind):
            raise GraphError(f"{what}: number {place} is {value!r:.80}, but must be of class {kind.__name__}")
    return values


@dataclass(frozen=True)
class TupleType:
    """Type of several values together."""

    fields: tuple[TensorType, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _of(self.fields, TensorType, "the fields of a tuple's type"))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


Type = TensorType | TupleType


class Attrs(Mapping[str, AttrValue]):
    """Immutable attributes of a call or a function, ordered by name. Lists become tuples."""

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        given = {} if values is None else values
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise GraphError(f"attributes are {given!r:.80}, but must be values by name", hint='such as {"axis": 1}')
        self._items: dict[str, AttrValue] = {name: _freeze(value) for name, value in sorted(given.items())}

    def __getitem__(self, name: str) -> AttrValue:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(repr(self._items))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and repr(self._items) == repr(other._items)

    def __repr__(self) -> str:
        return f"Attrs({self._items!r})"

    def replace(self, **values: Any) -> Attrs:
        return Attrs({**self._items, **values})


def _freeze(value: Any) -> AttrValue:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, Function):
        return value
    if isinstance(value, Record):
        reason = why_no_attribute(value)
        if reason:
            raise GraphError(f"an attribute must stay as it is, but {reason}")
        return value
    kinds = "a bool, int, float, str, a tuple of such, a record, or a function"
    raise GraphError(f"an attribute must be {kinds}, not {type(value).__name__}")


def _digest(*parts: object) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes | memoryview) else repr(part).encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


class Expr:
    """A value in the graph. ``type`` is what it is, ``digest`` stands for what it computes; ``static`` says whether it
    depends on constants only."""

    type: Type
    span: Span
    digest: bytes
    static: bool

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    @property
    def tensor_type(self) -> TensorType:
        """The type of a value that must be one tensor."""
        if not isinstance(self.type, TensorType):
            raise GraphError(f"expected one tensor, but found the tuple {self.type}", at=self.span)
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor_type.shape

    @property
    def dtype(self) -> str:
        return self.tensor_type.dtype


def _all_static(values: tuple[Expr, ...]) -> bool:
    """Without any, there may be another source, such as chance."""
    return bool(values) and all(value.static for value in values)


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A parameter of a function."""

    name: str
    type: TensorType
    span: Span = UNKNOWN
    digest: bytes = field(init=False, repr=False)
    static = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise GraphError(f"the name of a parameter is {self.name!r:.80}, but must be a text")
        if not isinstance(self.type, TensorType):
            raise GraphError(f"the type of parameter {self.name!r} is {self.type!r:.80}, but must be a TensorType",
                             hint='such as TensorType((1, 3), "float32")')  # fmt: skip
        object.__setattr__(self, "digest", _digest("var", self.name, str(self.type)))


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time. ``name`` is for people and for the text form; it takes no part in equality."""

    value: Array
    name: str = ""
    span: Span = UNKNOWN
    type: TensorType = field(init=False)
    digest: bytes = field(init=False)
    static = True

    def __post_init__(self) -> None:
        value = np.array(canonical(self.value), order="C", copy=True)
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "type", TensorType(value.shape, dtype_name(value.dtype)))
        plain = value.dtype.kind in "biuf"  # not copied, as weights are most of what is compiled
        data = value.reshape(-1).view(np.uint8).data if plain else content(value)
        object.__setattr__(self, "digest", _digest("constant", str(self.type), data))

    def __repr__(self) -> str:
        return f"Constant({self.name!r}, {self.type})"


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """``op`` applied to ``args``. ``op`` is an operator's name, or a function of the module (fused or on the host).

    Build calls with `weft.compiler.graph.call`, which works out the type.
    """

    op: str | Function
    args: tuple[Expr, ...]
    attrs: Attrs
    type: Type
    span: Span = UNKNOWN
    digest: bytes = field(init=False)
    static: bool = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.op, (str, Function)):
            raise GraphError(f"what a call calls is {self.op!r:.80}, but must be a Function or an operator's name")
        name = self.op if isinstance(self.op, str) else self.op.name
        object.__setattr__(self, "args", _of(self.args, Expr, f"the operands of {name!r}"))
        head = self.op if isinstance(self.op, str) else self.op.digest
        parts = [arg.digest for arg in self.args]
        object.__setattr__(self, "digest", _digest("call", head, repr(self.attrs), *parts))
        object.__setattr__(self, "static", _all_static(self.args))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def attr(self, name: str) -> Any:
        """Attribute ``name``; its presence is certain because the operator's type rule has checked it."""
        return self.attrs[name]

    def __repr__(self) -> str:
        return f"Call({self.op!r}, {len(self.args)} args, {self.type})"


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    """Several values together."""

    fields: tuple[Expr, ...]
    span: Span = UNKNOWN
    type: TupleType = field(init=False)
    digest: bytes = field(init=False, repr=False)
    static: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _of(self.fields, Expr, "the fields of a tuple"))
        object.__setattr__(self, "type", TupleType(tuple(item.tensor_type for item in self.fields)))
        object.__setattr__(self, "digest", _digest("tuple", *(item.digest for item in self.fields)))
        object.__setattr__(self, "static", _all_static(self.fields))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.fields


@dataclass(frozen=True, eq=False)
class TupleGet(Expr):
    """Field ``index`` of a tuple."""

    value: Expr
    index: int
    span: Span = UNKNOWN
    type: TensorType = field(init=False)
    digest: bytes = field(init=False, repr=False)
    static: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            raise GraphError(f"a field is taken of {self.value!r:.80}, but must be of a value of the graph")
        index = whole(self.index)
        if index is None:
            raise GraphError(f"the number of a field is {self.index!r:.80}, but must be a whole number", at=self.span)
        object.__setattr__(self, "index", index)
        if not isinstance(self.value.type, TupleType) or not 0 <= self.index < len(self.value.type.fields):
            raise GraphError(f"there is no field {self.index} in {self.value.type}", at=self.span)
        object.__setattr__(self, "type", self.value.type.fields[self.index])
        object.__setattr__(self, "digest", _digest("get", self.index, self.value.digest))
        object.__setattr__(self, "static", self.value.static)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, repr=False)
class Function:
    """Parameters, a body, and attributes.

    Attributes with a meaning: ``name`` (unique in a module); ``primitive`` (the function becomes one kernel);
    ``host`` (it runs on the host, the value is the reason); ``outputs`` (names of the results of ``main``).
    """

    params: tuple[Var, ...]
    body: Expr
    attrs: Attrs = field(default_factory=Attrs)
    span: Span = UNKNOWN
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", _of(self.params, Var, "the parameters of a function"))
        if not isinstance(self.body, Expr):
            raise GraphError(f"the body of a function is {self.body!r:.80}, but must be a value of the graph")
        if not isinstance(self.attrs, Attrs):
            object.__setattr__(self, "attrs", Attrs(self.attrs))
        names = [param.name for param in self.params]
        if len(set(names)) != len(names):
            raise GraphError(f"function {self.name!r} has two parameters of one name: {', '.join(names)}")
        parts = [param.digest for param in self.params]
        object.__setattr__(self, "digest", _digest("function", repr(self.attrs), *parts, self.body.digest))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        """Its digest is part of it: attributes that hold functions are compared by their text."""
        return f"Function({self.name!r}, {len(self.params)} params, {self.type}, {self.digest.hex()})"

    @property
    def name(self) -> str:
        return str(self.attrs.get("name", ""))

    @property
    def type(self) -> Type:
        return self.body.type

    @property
    def is_primitive(self) -> bool:
        return bool(self.attrs.get("primitive", False))

    @property
    def host_reason(self) -> str:
        """Why the function runs on the host; empty when it does not."""
        return str(self.attrs.get("host", ""))

    @property
    def results(self) -> tuple[Expr, ...]:
        """The values that the function returns: the fields of a tuple, or the body alone."""
        if isinstance(self.body, Tuple):
            return self.body.fields
        if isinstance(self.body.type, TupleType):
            return tuple(TupleGet(self.body, number, self.body.span) for number in range(len(self.body.type.fields)))
        return (self.body,)

    @property
    def output_names(self) -> tuple[str, ...]:
        names = self.attrs.get("outputs")
        if isinstance(names, tuple):
            return tuple(str(name) for name in names)
        return tuple(f"output{i}" for i in range(len(self.results)))


def topological_order(root: Expr) -> list[Expr]:
    """Every node reachable from ``root``, once, producers before consumers. A node is known by its identity."""
    last, order = _last_order
    if last() is not root:
        order = _ordered(root)
        if len(order) >= LONG_ORDER:
            _remember(root, order)
    return [*order, root]


LONG_ORDER = 32
"""Nodes from which on an order is remembered: passes ask dozens of times for that of one graph."""

_last_order: tuple[Callable[[], Expr | None], list[Expr]] = (lambda: None, [])
"""The last root of so many nodes, as a weak reference, and all below it in order."""


def _remember(root: Expr, order: list[Expr]) -> None:
    """Until another comes, or until nobody has ``root`` any more, so that no graph is kept alive."""
    global _last_order

    def forget(gone: object) -> None:
        global _last_order
        if _last_order[0] is gone:
            _last_order = (lambda: None, [])

    _last_order = (weakref.ref(root, forget), order)


def _ordered(root: Expr) -> list[Expr]:
    """The order without its last node, which is the root."""
    order: list[Expr] = []
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            order.append(node)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(node.children))
    order.pop()
    return order


@dataclass(frozen=True)
class Module:
    """A whole model: ``main`` and, through its calls, every function that it uses.

    ``stage``: how far compilation has come, a name in `passes.legality.STAGES`, which says what may stand here.
    """

    main: Function
    stage: str = "source"

    def __post_init__(self) -> None:
        if not isinstance(self.main, Function):
            raise GraphError(f"the main function of a module is {self.main!r:.80}, but must be a Function",
                             hint='such as Function((x,), body, Attrs({"name": "main"}))')  # fmt: skip

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that ``main`` and those below it call, and those that calls have as attributes; each once, what
        another needs before it."""
        found: dict[Function, None] = {}
        _collect_functions(self.main, found)
        return tuple(found)

    def with_main(self, body: Expr) -> Module:
        """The same module with another body of ``main``; this one, where that is its own."""
        if body is self.main.body:
            return self
        return Module(Function(self.main.params, body, self.main.attrs, self.main.span), self.stage)


def require_module(value: object, error: type[WeftError] = GraphError) -> Module:
    """``value`` if it is a module; otherwise an ``error`` that says what makes one of it."""
    if isinstance(value, Module):
        return value
    if all(callable(getattr(value, name, None)) for name in ("inputs", "module")):  # a front end has opened it
        raise error(f"{type(value).__name__} is no module of the graph IR, but a model that has one",
                    hint="give what its .module() returns")  # fmt: skip
    raise error(f"{value!r:.80} is no module of the graph IR",
                hint="weft.from_onnx(path, require_quantised=False) reads a file as one, and "
                     "weft.from_torch(model, inputs).module() is that of a model of PyTorch")  # fmt: skip


def _collect_functions(function: Function, found: dict[Function, None]) -> None:
    for node in topological_order(function.body):
        if not isinstance(node, Call):
            continue
        own = node.op if isinstance(node.op, Function) else None
        for inner in (own, *(value for value in node.attrs.values() if isinstance(value, Function))):
            if inner is not None and inner not in found:
                _collect_functions(inner, found)
                found[inner] = None
