"""Python functions over arrays of integers as machine code: for scans, whose every step needs what the last one left.

NumPy does not have these, and Python takes a microsecond for what a processor does in a nanosecond. A function under
:func:`scan` is written in a small part of Python and means what Python says, so it is read, tested and, by
:attr:`Scan.python`, run as such. Its machine code is made when it is first called, and kept between runs.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import textwrap
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ....cache import cache_key, kept
from ....imports import IMPORTS
from ..sources import sources_digest

ARRAY = "Ints"
"""Annotation of parameters that are arrays of int64, of one axis and without gaps; all others are whole numbers."""

COMPARED = {ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge", ast.Eq: "eq", ast.NotEq: "ne"}
COMPUTED = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
CHOSEN = {"min": "slt", "max": "sgt"}


def scan(function: Callable[..., int | None]) -> Scan:
    """The function as machine code.

    It may assign whole numbers of 64 bits to names and to elements of arrays, compute with ``+ - * & | ^ ~ << >>``,
    ``min`` and ``max`` of two, compare, and go through ``if``, ``while`` and ``for .. in range``. Constants of its
    module are known. Nothing looks whether an index lies inside of an array: the caller knows that it does.
    """
    return Scan(function)


class Scan:
    """What :func:`scan` makes. ``python``: the function as it was written."""

    def __init__(self, python: Callable[..., int | None]) -> None:
        self.python = python
        self.__doc__ = python.__doc__

    def __call__(self, *arguments: Any) -> int:
        """What the function returns, 0 where it returns nothing. TypeError for an array of another form."""
        values: list[Any] = []
        for argument, is_array in zip(arguments, self._arrays, strict=True):
            if is_array:
                if argument.dtype != np.int64 or argument.ndim != 1 or not argument.flags.c_contiguous:
                    raise TypeError(f"{self.python.__name__} takes arrays of int64 of one axis, without gaps")
                argument = argument.ctypes.data
            values.append(argument)
        return int(self._code(*values))

    @cached_property
    def _arrays(self) -> tuple[bool, ...]:
        notes = self.python.__annotations__
        names = inspect.signature(self.python).parameters
        return tuple(notes[name] == ARRAY for name in names)

    @cached_property
    def _code(self) -> Callable[..., int]:
        with IMPORTS:
            import llvmlite.binding as llvm

        name = self.python.__name__
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        machine = llvm.Target.from_triple(triple).create_target_machine(opt=3, reloc="pic")

        def make() -> bytes:
            with IMPORTS:
                from .optimise import optimised

            text = llvm_text(self.python)
            return bytes(machine.emit_object(optimised(text, machine, triple, vectorise=False, level=2)))

        key = cache_key("scan", self.python.__module__, name, triple, llvm.llvm_version_info, sources_digest())
        builder = llvm.JITLibraryBuilder().add_object_img(kept("cpu", f"{key}.o", make)).export_symbol(name)
        self._held = builder.link(llvm.create_lljit_compiler(machine, use_jit_link=True), name)
        kinds = [ctypes.c_void_p if is_array else ctypes.c_int64 for is_array in self._arrays]
        return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(self._held[name])


def llvm_text(function: Callable[..., Any]) -> str:
    """The function in LLVM IR. SyntaxError at what a scan cannot have."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return _Writer(tree, function.__globals__).text()


class _Writer:
    """Every name has a place on the stack, from which LLVM's optimiser takes it."""

    def __init__(self, tree: ast.FunctionDef, constants: dict[str, Any]) -> None:
        self._tree = tree
        self._constants = constants
        self._arrays = {
            each.arg for each in tree.args.args if isinstance(each.annotation, ast.Name) and each.annotation.id == ARRAY
        }
        self._names = [each.arg for each in tree.args.args if each.arg not in self._arrays]
        self._places: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._loops: list[tuple[str, str]] = []  # where continue and break go

    def text(self) -> str:
        parameters = [f"{'ptr noalias' if each.arg in self._arrays else 'i64'} %{each.arg}"
                      for each in self._tree.args.args]  # fmt: skip
        stored = [node.id for node in ast.walk(self._tree)
                  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]  # fmt: skip
        given, self._names = self._names, list(dict.fromkeys([*self._names, *stored]))
        self._block(self._tree.body)
        self._line("ret i64 0")
        head = [f"%{name}.at = alloca i64" for name in [*self._names, *self._places]]
        head += [f"store i64 %{name}, ptr %{name}.at" for name in given]
        lines = "\n".join([*head, *self._lines])
        return f"define i64 @{self._tree.name}({', '.join(parameters)}) {{\n{lines}\n}}\n"

    def _line(self, line: str) -> None:
        self._lines.append(line)

    def _new(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _set(self, line: str) -> str:
        name = f"%{self._new()}"
        self._line(f"{name} = {line}")
        return name

    def _place(self) -> str:
        self._places.append(self._new())
        return f"%{self._places[-1]}.at"

    def _label(self, label: str) -> None:
        """Go on at a label, where what was written before also goes."""
        self._line(f"br label %{label}")
        self._line(f"{label}:")

    def _jump(self, label: str) -> None:
        """Go to a label; what is written next is behind another one."""
        self._line(f"br label %{label}")
        self._line(f"{self._new()}:")

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self._store(target, self._value(value))
            case ast.AugAssign(target=ast.Name() | ast.Subscript() as target, op=op, value=value):
                place = self._target(target)
                self._line(f"store i64 {self._computed(op, self._set(f'load i64, ptr {place}'), value, node)}, "
                           f"ptr {place}")  # fmt: skip
            case ast.If(test=test, body=body, orelse=orelse):
                then, other, end = self._new(), self._new(), self._new()
                self._branch(test, then, other)
                self._line(f"{then}:")
                self._block(body)
                self._jump_to(end, other)
                self._block(orelse)
                self._label(end)
            case ast.While(test=test, body=body, orelse=[]):
                again, inside, end = self._new(), self._new(), self._new()
                self._label(again)
                self._branch(test, inside, end)
                self._line(f"{inside}:")
                self._loop(body, again, end)
                self._jump_to(again, end)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=bounds), body=body,
                         orelse=[]):  # fmt: skip
                self._for(name, bounds, body)
            case ast.Continue():
                self._jump(self._loops[-1][0])
            case ast.Break():
                self._jump(self._loops[-1][1])
            case ast.Return(value=value):
                self._line(f"ret i64 {'0' if value is None else self._value(value)}")
                self._line(f"{self._new()}:")
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case _:
                raise self._refusal(node)

    def _jump_to(self, label: str, following: str) -> None:
        self._line(f"br label %{label}")
        self._line(f"{following}:")

    def _loop(self, body: list[ast.stmt], following: str, end: str) -> None:
        self._loops.append((following, end))
        self._block(body)
        self._loops.pop()

    def _for(self, name: str, bounds: list[ast.expr], body: list[ast.stmt]) -> None:
        step = int(ast.literal_eval(bounds[2])) if len(bounds) > 2 else 1
        first = self._value(bounds[0]) if len(bounds) > 1 else "0"
        stop, counter = self._value(bounds[min(1, len(bounds) - 1)]), self._place()
        again, inside, following, end = self._new(), self._new(), self._new(), self._new()
        self._line(f"store i64 {first}, ptr {counter}")
        self._label(again)
        now = self._set(f"load i64, ptr {counter}")
        more = self._set(f"icmp {'slt' if step > 0 else 'sgt'} i64 {now}, {stop}")
        self._line(f"br i1 {more}, label %{inside}, label %{end}")
        self._line(f"{inside}:")
        self._line(f"store i64 {now}, ptr %{name}.at")
        self._loop(body, following, end)
        self._label(following)
        self._line(f"store i64 {self._set(f'add i64 {now}, {step}')}, ptr {counter}")
        self._jump_to(again, end)

    def _store(self, target: ast.expr, value: str) -> None:
        self._line(f"store i64 {value}, ptr {self._target(target)}")

    def _target(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name) if name in self._names:
                return f"%{name}.at"
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self._arrays:
                return self._set(f"getelementptr i64, ptr %{name}, i64 {self._value(index)}")
        raise self._refusal(node)

    def _branch(self, node: ast.expr, then: str, other: str) -> None:
        """Go to ``then`` where a condition holds, else to ``other``."""
        match node:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    following = self._new()
                    ways = (following, other) if isinstance(op, ast.And) else (then, following)
                    self._branch(value, *ways)
                    self._line(f"{following}:")
                self._branch(values[-1], then, other)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._branch(operand, other, then)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                a, b = self._value(left), self._value(right)
                holds = self._set(f"icmp {COMPARED[type(op)]} i64 {a}, {b}")
                self._line(f"br i1 {holds}, label %{then}, label %{other}")
            case _:
                holds = self._set(f"icmp ne i64 {self._value(node)}, 0")
                self._line(f"br i1 {holds}, label %{then}, label %{other}")

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int(value)):
                return str(int(value))
            case ast.Name(id=name) if name not in self._names and isinstance(self._constants.get(name), int):
                return str(int(self._constants[name]))
            case ast.Name() | ast.Subscript():
                return self._set(f"load i64, ptr {self._target(node)}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._set(f"sub i64 0, {self._value(operand)}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self._set(f"xor i64 -1, {self._value(operand)}")
            case ast.BinOp(left=left, op=op, right=right):
                return self._computed(op, self._value(left), right, node)
            case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in CHOSEN:
                a, b = self._value(left), self._value(right)
                return self._set(f"select i1 {self._set(f'icmp {CHOSEN[name]} i64 {a}, {b}')}, i64 {a}, i64 {b}")
            case ast.IfExp(test=test, body=body, orelse=orelse):
                place, then, other, end = self._place(), self._new(), self._new(), self._new()
                self._branch(test, then, other)
                for label, chosen in ((then, body), (other, orelse)):
                    self._line(f"{label}:")
                    self._line(f"store i64 {self._value(chosen)}, ptr {place}")
                    self._line(f"br label %{end}")
                self._line(f"{end}:")
                return self._set(f"load i64, ptr {place}")
        raise self._refusal(node)

    def _computed(self, op: ast.operator, a: str, right: ast.expr, node: ast.AST) -> str:
        if type(op) not in COMPUTED:
            raise self._refusal(node)
        return self._set(f"{COMPUTED[type(op)]} i64 {a}, {self._value(right)}")

    def _refusal(self, node: ast.AST) -> SyntaxError:
        return SyntaxError(f"a scan cannot have {ast.unparse(node)!r}: {self._tree.name}")
