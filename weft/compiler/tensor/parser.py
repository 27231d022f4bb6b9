"""Reading the text form of the loop IR back. The text is Python syntax, so Python's own parser takes it apart."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .errors import IRError
from .ir import (
    DTYPES,
    FUNCTIONS,
    Alignment,
    Allocate,
    BinOp,
    Bits,
    Block,
    BlockKind,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Region,
    Select,
    Stmt,
    Store,
    TensorIntrinsic,
    Var,
    sequence,
)

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
_COMPARE: dict[type[ast.cmpop], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne"}
_BLOCK_KINDS: dict[str, BlockKind] = {
    "spatial": "spatial",
    "copy": "copy",
    "reduce": "reduce",
    "reduce-init": "reduce-init",
    "reduce-update": "reduce-update",
}


Resolve: TypeAlias = Callable[[str], TensorIntrinsic]
"""Gives the intrinsic of a name; IRError if there is none."""


PARSES = 100
"""Attempts at a text, at most."""


def parse(text: str, intrinsics: Mapping[str, TensorIntrinsic] | Resolve | None = None) -> PrimFunc:
    """The function that ``function_text`` printed. Intrinsics are looked up by name in ``intrinsics``.

    IRError, with the line, if the text is not of that form.
    """
    try:
        module = _tree(text)
    except SyntaxError as error:
        raise IRError(f"not the text of a function: {error.msg}", at=f"line {error.lineno}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a zero byte; nests that are too deep
        raise IRError(f"not the text of a function: {error}") from error
    match module.body:
        case [ast.FunctionDef() as node]:
            return _Parser(intrinsics or {}).function(node)
    raise IRError("the text must be one function", at="line 1")


def _tree(text: str) -> ast.Module:
    """Python's syntax tree. CPython counts how deep it is in one place for all threads (python/cpython#106905): where a
    finaliser lets another thread parse meanwhile, its count is wrong afterwards, and it raises SystemError."""
    for _ in range(PARSES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


class _Parser:
    """Holds the buffers that are in scope."""

    def __init__(self, intrinsics: Mapping[str, TensorIntrinsic] | Resolve) -> None:
        self.intrinsics = intrinsics
        self.buffers: dict[str, Buffer] = {}

    def function(self, node: ast.FunctionDef) -> PrimFunc:
        params = []
        for argument in node.args.args:
            if argument.annotation is None:
                raise _error(argument, f"parameter {argument.arg!r} has no type")
            params.append(self._declare(argument.arg, argument.annotation))
        return PrimFunc(node.name, tuple(params), self._suite(node.body))

    def _declare(self, name: str, node: ast.expr, options: Sequence[ast.keyword] = ()) -> Buffer:
        match node:
            case ast.BinOp(
                left=ast.Subscript(value=ast.Name(id=dtype), slice=shape),
                op=ast.MatMult(),
                right=ast.Constant(value=str(scope)),
            ):
                sizes = tuple(_integer(size) for size in _tuple(shape))
                buffer = Buffer(name, sizes, _dtype(dtype, node), scope, _alignments(options))
                self.buffers[name] = buffer
                return buffer
        raise _error(node, f'the type of {name!r} must be like int8[4, 16] @ "global"')

    def _suite(self, nodes: list[ast.stmt]) -> Stmt:
        return sequence(*map(self._statement, nodes))

    def _statement(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body):
                return self._loop(Var(name), call, body)
            case ast.With(
                items=[
                    ast.withitem(
                        context_expr=ast.Call(func=ast.Name(id="allocate"), args=[kind], keywords=options),
                        optional_vars=to,
                    )
                ],
                body=body,
            ) if isinstance(to, ast.Name):
                hidden = self.buffers.get(to.id)
                buffer = self._declare(to.id, kind, options)
                result = Allocate(buffer, self._suite(body))
                del self.buffers[to.id]
                if hidden is not None:
                    self.buffers[to.id] = hidden
                return result
            case ast.With(
                items=[ast.withitem(context_expr=ast.Call(func=ast.Name(id="block")) as call)],
                body=[ast.Assign() as item],
            ):
                return self._block(call, item)
            case ast.If(test=test, body=body, orelse=[]):
                return If(self._expr(test), self._suite(body))
            case ast.Assign():
                return self._store(node)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call):
                return self._call(name, call)
        raise _error(node, "not a statement of the loop IR")

    def _loop(self, var: Var, call: ast.Call, body: list[ast.stmt]) -> For:
        notes: list[tuple[str, str | int]] = []
        for keyword in call.keywords:
            match keyword:
                case ast.keyword(arg=str(key), value=ast.Constant(value=str(note) | int(note))):
                    notes.append((key, note))
                case _:
                    raise _error(call, "an annotation must be a name and a text or an integer")
        match call:
            case ast.Call(func=ast.Name(id="bind"), args=[extent, ast.Constant(value=str(axis))]):
                kind = f"bind:{axis}"
            case ast.Call(func=ast.Name(id=name), args=[extent]):
                kind = "serial" if name == "range" else name
            case _:
                raise _error(call, "a loop must run over range(extent), unroll(extent), ...")
        return For(var, self._expr(extent), kind, self._suite(body), tuple(notes))

    def _block(self, call: ast.Call, item: ast.Assign) -> Block:
        match call.args:
            case [ast.Constant(value=str(name)), ast.Constant(value=str(kind))] if kind in _BLOCK_KINDS:
                keywords = {keyword.arg: keyword.value for keyword in call.keywords}
                init = self._expr(keywords["init"]) if "init" in keywords else None
                over = _variables(keywords["over"]) if "over" in keywords else ()
                return Block(name, _BLOCK_KINDS[kind], self._store(item), over, init)
        raise _error(call, "a block needs a name and one of the kinds " + ", ".join(_BLOCK_KINDS))

    def _store(self, node: ast.Assign) -> Store:
        match node.targets:
            case [ast.Subscript(value=ast.Name(id=name), slice=indices)]:
                return Store(self._buffer(name, node), self._indices(indices), self._expr(node.value))
        raise _error(node, "a store must be buffer[indices] = value")

    def _call(self, name: str, call: ast.Call) -> IntrinsicCall:
        intrinsic = self._intrinsic(name, call)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        match call.args:
            case [ast.Constant(value=str(block))]:
                pass
            case _:
                raise _error(call, f"a call of {name!r} must begin with the name of its block")
        needed = [*(operand.name for operand in intrinsic.operands), *(param.name for param in intrinsic.scalars)]
        missing = [item for item in needed if item not in keywords]
        if missing:
            raise _error(call, f"the call of {name!r} lacks {missing[0]!r}")
        init_value = self._expr(keywords["init_value"]) if "init_value" in keywords else None
        return IntrinsicCall(
            intrinsic=intrinsic,
            operands=tuple(self._region(keywords[operand.name]) for operand in intrinsic.operands),
            scalars=tuple((param.name, self._expr(keywords[param.name])) for param in intrinsic.scalars),
            block=block,
            reduce_vars=_variables(keywords["over"]) if "over" in keywords else (),
            init=_variables(keywords["init"]) if "init" in keywords else None,
            init_value=init_value if isinstance(init_value, Const) else None,
        )

    def _intrinsic(self, name: str, call: ast.Call) -> TensorIntrinsic:
        if not callable(self.intrinsics):
            if name not in self.intrinsics:
                raise _error(call, f"intrinsic {name!r} is not among those given")
            return self.intrinsics[name]
        try:
            return self.intrinsics(name)
        except IRError as error:
            raise IRError(error.message, at=f"line {call.lineno}", hint=error.hint) from None

    def _region(self, node: ast.expr) -> Region:
        match node:
            case ast.Call(
                func=ast.Name(id="tile"),
                args=[
                    ast.Subscript(value=ast.Name(id=name), slice=indices),
                    ast.List(elts=shape),
                    ast.List(elts=strides),
                ],
            ):
                return Region(
                    self._buffer(name, node),
                    self._indices(indices),
                    tuple(map(_integer, shape)),
                    tuple(map(_integer, strides)),
                )
        raise _error(node, "an operand must be tile(buffer[indices], shape, strides)")

    def _indices(self, node: ast.expr) -> tuple[Expr, ...]:
        return tuple(self._expr(index) for index in _tuple(node))

    def _buffer(self, name: str, node: ast.AST) -> Buffer:
        if name not in self.buffers:
            raise _error(node, f"buffer {name!r} is not known here")
        return self.buffers[name]

    def _expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool(value)):
                return Const(value, "bool")
            case ast.Constant(value=int(value)):
                return Const(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return Const(-value)
            case ast.Name(id=name):
                return Var(name)
            case ast.BinOp(left=a, op=operator, right=b) if type(operator) in _BINARY:
                return BinOp(_BINARY[type(operator)], self._expr(a), self._expr(b))
            case ast.Compare(left=a, ops=[comparison], comparators=[b]) if type(comparison) in _COMPARE:
                return BinOp(_COMPARE[type(comparison)], self._expr(a), self._expr(b))
            case ast.Call(func=ast.Name(id="min" | "max" as op), args=[a, b]):
                return BinOp(op, self._expr(a), self._expr(b))
            case ast.Call(func=ast.Name(id="select"), args=[cond, a, b]):
                return Select(self._expr(cond), self._expr(a), self._expr(b))
            case ast.Call(func=ast.Name(id=function), args=args) if function in FUNCTIONS:
                return Call(function, tuple(map(self._expr, args)))
            case ast.Call(func=ast.Attribute(value=x, attr="astype"), args=[ast.Name(id=dtype)]):
                return Cast(_dtype(dtype, node), self._expr(x))
            case ast.Call(func=ast.Attribute(value=x, attr="bits"), args=[ast.Name(id=dtype)]):
                return Bits(_dtype(dtype, node), self._expr(x))
            case ast.Call(func=ast.Name(id=dtype), args=[literal]) if dtype in DTYPES:
                return Const(_number(literal), _dtype(dtype, node))
            case ast.Subscript(value=ast.Name(id=name), slice=indices):
                return Load(self._buffer(name, node), self._indices(indices))
        raise _error(node, "not an expression of the loop IR")


def _tuple(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _alignments(options: Sequence[ast.keyword]) -> tuple[Alignment, ...]:
    alignments: list[Alignment] = []
    for option in options:
        match option:
            case ast.keyword(arg="align", value=ast.List(elts=items)):
                for item in items:
                    match _tuple(item):
                        case [axis, factor, offset]:
                            alignments.append(Alignment(_integer(axis), _integer(factor), _integer(offset)))
                        case _:
                            raise _error(item, "an alignment must be (axis, factor, offset)")
            case _:
                raise _error(option.value, "an allocation takes a type and align=[(axis, factor, offset), ...]")
    return tuple(alignments)


def _integer(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
    raise _error(node, "expected an integer")


def _number(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return value
        case ast.Constant(value="inf" | "-inf" | "nan" as word):
            return float(word)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value) | float(value))):
            return -value
    raise _error(node, "expected a number")


def _variables(node: ast.expr) -> tuple[Var, ...]:
    match node:
        case ast.List(elts=names):
            return tuple(Var(name.id) for name in names if isinstance(name, ast.Name))
    raise _error(node, "expected a list of loop variables")


def _dtype(name: str, node: ast.AST) -> DType:
    for dtype in DTYPES:
        if dtype == name:
            return dtype
    raise _error(node, f"unknown type {name!r}")


def _error(node: ast.AST, message: str) -> IRError:
    return IRError(message, at=f"line {getattr(node, 'lineno', 0)}")
