"""The text form of a module: readable, and `parse` gives an equal module back.

    constant @conv1.w: int8[16, 3, 3, 3] checksum "9f0c..."
    fn @conv1(%x: int8[1, 3, 8, 8]) {primitive=true} {
      %0 = conv2d(%x, @conv1.w, strides=(2, 2)) : int32[1, 16, 3, 3]  # "conv1"
      return %0
    }
    fn @main(%image: float32[1, 3, 8, 8]) {outputs=("y",)} { ... }

The last function is ``main``. A module that passes have changed begins with its stage (``stage packed``). Attributes
at their default are left out; one may be a record, ``tiling=ChainTiling(groups=2, rows=8)``. Small constants stand
inline; the others are named, and their values travel in a table beside the text (`constant_table`), tied to it by a
checksum.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .dtypes import DTYPES, STRING, is_float, numpy_dtype
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
from .records import Record, record_of
from .registry import REQUIRED, call, operator
from .visit import topological_order

INLINE_ELEMENTS = 8
INLINE_CHARACTERS = 256
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.]*\Z")


def checksum(constant: Constant) -> str:
    return constant.digest.hex()[:16]


def _name(text: str) -> str:
    return text if _PLAIN_NAME.match(text) else json.dumps(text)


def _value_text(value: AttrValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value)
        case tuple():
            inner = ", ".join(_value_text(item) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case Function():
            return f"@{_name(value.name)}"
        case Record():
            shown = ", ".join(f"{name}={_value_text(item)}" for name, item in value.shown_fields)
            return f"{type(value).__name__}({shown})"
    return repr(value)


def _element_text(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _is_inline(constant: Constant) -> bool:
    value = constant.value
    if value.size > INLINE_ELEMENTS or 0 in value.shape:
        return False
    if constant.dtype == STRING:
        return sum(map(len, value.reshape(-1).tolist())) <= INLINE_CHARACTERS
    return not (is_float(constant.dtype) and bool(np.any(value != value)))  # a NaN has a sign and a payload


def _named_constants(module: Module) -> dict[Constant, str]:
    """A unique name for every constant that does not stand inline, in order of first use."""
    names: dict[Constant, str] = {}
    used_names: set[str] = set()
    for function in (*module.functions, module.main):
        for node in topological_order(function.body):
            if isinstance(node, Constant) and not _is_inline(node) and node not in names:
                base = node.name or "constant"
                name, count = base, 1
                while name in used_names:
                    name, count = f"{base}.{count}", count + 1
                used_names.add(name)
                names[node] = name
    return names


def constant_table(module: Module) -> dict[str, Array]:
    """The values of the constants that the text of ``module`` names."""
    return {name: constant.value for constant, name in _named_constants(module).items()}


def to_text(module: Module) -> str:
    """The text of a module."""
    names = _named_constants(module)
    lines = [] if module.stage == "source" else [f"stage {_name(module.stage)}"]
    lines += [
        f'constant @{_name(name)}: {constant.type} checksum "{checksum(constant)}"' for constant, name in names.items()
    ]
    for function in (*module.functions, module.main):
        lines += _function_lines(function, names)
    return "\n".join(lines) + "\n"


def _function_lines(function: Function, names: Mapping[Constant, str]) -> list[str]:
    params = ", ".join(f"%{_name(param.name)}: {param.type}" for param in function.params)
    attrs = {name: value for name, value in function.attrs.items() if name != "name"}
    shown = "{" + ", ".join(f"{name}={_value_text(value)}" for name, value in attrs.items()) + "} " if attrs else ""
    lines = [f"fn @{_name(function.name)}({params}) {shown}{{" + _span_text(function.span)]
    text: dict[int, str] = {}
    param_names = {param.name for param in function.params}  # exporters also call an input "0"
    numbers = (number for number in itertools.count() if str(number) not in param_names)
    for node in topological_order(function.body):
        match node:
            case Var():
                text[id(node)] = f"%{_name(node.name)}"
                continue
            case Constant():
                text[id(node)] = f"@{_name(names[node])}" if node in names else _inline_text(node)
                continue
            case Tuple():
                right = f"({', '.join(text[id(item)] for item in node.fields)})"
            case TupleGet():
                right = f"{text[id(node.value)]}[{node.index}]"
            case Call():
                right = _call_text(node, [text[id(arg)] for arg in node.args])
            case _:
                raise GraphError(f"no text form for {type(node).__name__}")
        text[id(node)] = f"%{next(numbers)}"
        lines.append(f"  {text[id(node)]} = {right} : {node.type}{_span_text(node.span)}")
    return [*lines, f"  return {text[id(function.body)]}", "}"]


def _inline_text(constant: Constant) -> str:
    values = ", ".join(_element_text(item) for item in constant.value.reshape(-1).tolist())
    return f"{constant.type}({values})" if constant.value.ndim else f"{constant.dtype}({values})"


def _call_text(node: Call, args: list[str]) -> str:
    if isinstance(node.op, Function):
        head, defaults = f"@{_name(node.op.name)}", Attrs()
    else:
        optional = {key: value for key, value in operator(node.op).defaults.items() if value is not REQUIRED}
        head, defaults = node.op, Attrs(optional)
    shown = [
        f"{key}={_value_text(value)}"
        for key, value in node.attrs.items()
        if key not in defaults or repr(defaults[key]) != repr(value)
    ]
    return f"{head}({', '.join([*args, *shown])})"


def _span_text(span: Span) -> str:
    if not span:
        return ""
    nodes = ", ".join(json.dumps(node) for node in span.nodes)
    return f"  # {nodes}" + (f" -> {json.dumps(span.tensor)}" if span.tensor else "")


_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|(?P<span>\#[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>-?(?:inf|nan)\b|[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+))
    |(?P<name>[A-Za-z_][\w.]*)|(?P<mark>->|[%@(){}\[\],:=])""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    result: list[_Token] = []
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise GraphError(f"line {line}: cannot read {text[place : place + 20]!r}")
        kind = str(match.lastgroup)
        if kind != "blank":
            result.append(_Token(kind, match.group(), line))
        line += match.group().count("\n")
        place = match.end()
    return [*result, _Token("end", "the end of the text", line)]


class _Parser:
    def __init__(self, text: str, constants: Mapping[str, Array]) -> None:
        self.tokens = _tokens(text)
        self.place = 0
        self.table = constants
        self.constants: dict[str, Constant] = {}
        self.functions: dict[str, Function] = {}
        self.values: dict[str, Expr] = {}

    def error(self, message: str, ahead: bool = False) -> GraphError:
        """An error in what was read last, or with ``ahead`` in what comes next."""
        token = self.tokens[self.place if ahead else max(self.place - 1, 0)]
        return GraphError(f"line {token.line}: {message}")

    def next_place(self) -> int:
        """Where the next token stands that is not a span comment."""
        place = self.place
        while self.tokens[place].kind == "span":
            place += 1
        return place

    def peek(self, text: str) -> bool:
        token = self.tokens[self.next_place()]
        return token.text == text and token.kind in ("mark", "name")

    def names_an_attribute(self) -> bool:
        """Whether ``name =`` comes next."""
        place = self.next_place()
        following = self.tokens[place : place + 2]
        return following[0].kind == "name" and following[-1].text == "="

    def take(self, *kinds: str) -> str:
        self.place = self.next_place()
        token = self.tokens[self.place]
        if token.kind not in kinds:
            raise self.error(f"expected a {' or '.join(kinds)}, but found {token.text!r}", ahead=True)
        self.place += 1
        return token.text

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.place = self.next_place()
            raise self.error(f"expected {text!r}, but found {self.tokens[self.place].text!r}", ahead=True)

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.place = self.next_place() + 1
            return True
        return False

    def span(self) -> Span:
        """The span comment right here, if there is one."""
        token = self.tokens[self.place]
        if token.kind != "span":
            return UNKNOWN
        self.place += 1
        items = re.findall(r'"(?:[^"\\]|\\.)*"|->', token.text)
        nodes = tuple(json.loads(item) for item in itertools.takewhile(lambda item: item != "->", items))
        tensor = items[len(nodes) + 1 :]
        if len(nodes) < len(items) and (len(tensor) != 1 or tensor[0] == "->"):
            raise self.error("expected the name of a tensor behind '->'")
        return Span(nodes, json.loads(tensor[0]) if tensor else "")

    def identifier(self) -> str:
        text = self.take("name", "string", "number")
        return str(json.loads(text)) if text.startswith('"') else text

    def module(self) -> Module:
        stage = self.identifier() if self.accept("stage") else "source"
        while self.accept("constant"):
            self.constant_line()
        last: Function | None = None
        while self.accept("fn"):
            last = self.function()
            self.functions[last.name] = last
        self.place = self.next_place()
        if self.tokens[self.place].kind != "end":
            raise self.error(f"expected 'fn', but found {self.tokens[self.place].text!r}", ahead=True)
        if last is None:
            raise self.error("there is no function")
        return Module(last, stage)

    def constant_line(self) -> None:
        self.expect("@")
        name = self.identifier()
        self.expect(":")
        wanted = self.tensor_type()
        self.expect("checksum")
        digest = json.loads(self.take("string"))
        if name not in self.table:
            raise self.error(f"constant {name!r} is not in the table of constants")
        constant = Constant(self.table[name], name)
        if constant.type != wanted or checksum(constant) != digest:
            raise self.error(f"constant {name!r} in the table is not the one that the text means (checksum differs)")
        self.constants[name] = constant

    def function(self) -> Function:
        self.expect("@")
        name = self.identifier()
        self.expect("(")
        params: list[Var] = []
        while not self.accept(")"):
            self.expect("%")
            param = self.identifier()
            self.expect(":")
            params.append(Var(param, self.tensor_type()))
            self.accept(",")
        self.expect("{")
        attrs: dict[str, AttrValue] = {"name": name}
        if self.tokens[self.place].kind != "span" and self.names_an_attribute():
            while not self.accept("}"):
                key = self.take("name")
                self.expect("=")
                attrs[key] = self.value()
                self.accept(",")
            self.expect("{")
        span = self.span()
        self.values = {param.name: param for param in params}
        while self.accept("%"):
            target = self.identifier()
            self.expect("=")
            node = self.expression()
            if self.accept(":"):
                wanted = self.any_type()
                if wanted != node.type:
                    raise self.error(f"%{target} is written as {wanted}, but it is {node.type}")
            self.values[target] = _with_span(node, self.span())
        self.expect("return")
        body = self.expression()
        self.expect("}")
        return Function(tuple(params), body, Attrs(attrs), span)

    def any_type(self) -> Type:
        if not self.accept("("):
            return self.tensor_type()
        fields: list[TensorType] = []
        while not self.accept(")"):
            fields.append(self.tensor_type())
            self.accept(",")
        return TupleType(tuple(fields))

    def tensor_type(self) -> TensorType:
        dtype = self.take("name")
        shape: list[int] = []
        self.expect("[")
        while not self.accept("]"):
            shape.append(int(self.take("number")))
            self.accept(",")
        return TensorType(tuple(shape), dtype)

    def value(self) -> AttrValue:
        if self.accept("("):
            items: list[AttrValue] = []
            while not self.accept(")"):
                items.append(self.value())
                self.accept(",")
            return tuple(items)
        if self.accept("@"):
            return self.function_named(self.identifier())
        text = self.take("name", "string", "number")
        if self.accept("("):
            return self.record(text)
        if text in ("true", "false"):
            return text == "true"
        if text.startswith('"'):
            return str(json.loads(text))
        try:
            return _number(text)
        except ValueError:
            raise self.error(f"{text!r} is not a value") from None

    def record(self, name: str) -> Record:
        """Behind its name and the bracket."""
        values: dict[str, AttrValue] = {}
        while not self.accept(")"):
            field = self.take("name")
            self.expect("=")
            values[field] = self.value()
            self.accept(",")
        try:
            return record_of(name, values)
        except (ValueError, GraphError) as error:
            raise self.error(str(error)) from None

    def expression(self) -> Expr:
        node = self.primary()
        while self.accept("["):
            node = TupleGet(node, int(self.take("number")))
            self.expect("]")
        return node

    def primary(self) -> Expr:
        if self.accept("%"):
            name = self.identifier()
            if name not in self.values:
                raise self.error(f"%{name} is not defined")
            return self.values[name]
        if self.accept("@"):
            name = self.identifier()
            if name in self.constants and not self.peek("("):
                return self.constants[name]
            return self.call(self.function_named(name))
        if self.accept("("):
            fields: list[Expr] = []
            while not self.accept(")"):
                fields.append(self.expression())
                self.accept(",")
            return Tuple(tuple(fields))
        name = self.take("name")
        return self.inline_constant(name) if name in DTYPES else self.call(name)

    def function_named(self, name: str) -> Function:
        if name not in self.functions:
            raise self.error(f"@{name} is not defined")
        return self.functions[name]

    def inline_constant(self, dtype: str) -> Constant:
        shape: tuple[int, ...] = ()
        if self.peek("["):
            self.place -= 1
            shape = self.tensor_type().shape
        self.expect("(")
        values: list[AttrValue] = []
        while not self.accept(")"):
            values.append(self.value())
            self.accept(",")
        if len(values) != int(np.prod(shape)):
            raise self.error(f"{dtype}{list(shape)} has {int(np.prod(shape))} elements, but {len(values)} are given")
        wrong = next((value for value in values if isinstance(value, str) != (dtype == STRING)), None)
        if wrong is not None:
            raise self.error(f"{wrong!r} is no element of a tensor of {dtype}")
        return Constant(np.array(values, numpy_dtype(dtype)).reshape(shape))

    def call(self, op: str | Function) -> Call:
        self.expect("(")
        args: list[Expr] = []
        attrs: dict[str, AttrValue] = {}
        while not self.accept(")"):
            if self.names_an_attribute():
                key = self.take("name")
                self.expect("=")
                attrs[key] = self.value()
            else:
                args.append(self.expression())
            self.accept(",")
        try:
            return call(op, *args, span=UNKNOWN, **attrs)
        except GraphError as error:
            raise self.error(str(error)) from None


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _with_span(node: Expr, span: Span) -> Expr:
    match node:
        case Call():
            return Call(node.op, node.args, node.attrs, node.type, span)
        case Tuple():
            return Tuple(node.fields, span)
        case TupleGet():
            return TupleGet(node.value, node.index, span)
    return node


def parse(text: str, constants: Mapping[str, Array] | None = None) -> Module:
    """The module that ``text`` describes; ``constants`` holds the values that it names.

    Raises `GraphError` with the line when the text is wrong, a constant is missing or its checksum differs.
    """
    parser = _Parser(text, constants or {})
    try:
        return parser.module()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # a number or a value that cannot be
        raise parser.error(f"cannot be read: {error}") from error
