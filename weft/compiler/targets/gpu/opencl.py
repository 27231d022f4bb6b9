"""Launches as text in OpenCL C 1.2, for any vendor's driver.

Integers wrap, floats are rounded after each operation and never contracted, division rounds down, and conversions to
integers saturate: all as the loop IR says (`tensor.expressions`). C does none of that by itself, so what it leaves open
goes through the functions of `opencl_functions`, of which a program holds those that it uses. Floats of 16 bits are
held in single precision and rounded after each step, since most devices cannot compute with them.

A parameter is the memory and the byte in it at which its tensor starts: buffers of OpenCL have no addresses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...tensor.evaluate import wrap
from ...tensor.intervals import Facts
from ...tensor.ir import (
    FLOATS,
    INTEGER_RANGES,
    Allocate,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Number,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...tensor.linear import Linear, linear_form
from ...tensor.visitor import stores_of, walk_exprs
from ..errors import CompileError
from .digits import Digit
from .launches import Barrier, Grid, Phase
from .opencl_functions import FUNCTIONS, HALVES, MEMORY_TYPES, TYPES, UNSIGNED, function_text

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "shl": "<<", "shr": ">>", "lt": "<",
    "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
LARGEST_INT = (1 << 31) - 1

GUARDED_AT_MOST = 8
"""A loop that runs at most so often, but not always, is written as one that does, with a condition in it."""


@dataclass(frozen=True)
class KernelText:
    """``text`` of one kernel function, and the names of the functions of `opencl_functions` that it calls."""

    text: str
    functions: frozenset[str]


def kernel_text(name: str, func: PrimFunc, grid: Grid, windows: Mapping[str, tuple[int, ...]]) -> KernelText:
    """A launch of ``func`` as a kernel function. Its parameters: memory and first byte of each of the grid's ``params``
    in their order, then of the workspace where the grid has such buffers. ``windows``: as in `KernelCode`."""
    return _Printer(name, func, grid, windows).run()


def program_text(kernels: Iterable[KernelText]) -> str:
    """The text of a program with these kernels."""
    kernels = list(kernels)
    used = frozenset().union(*(each.functions for each in kernels))
    body = "\n".join(each.text for each in kernels)
    head = ["#pragma OPENCL FP_CONTRACT OFF"]
    functions = function_text(used)
    if re.search(r"\bdouble\b", f"{functions}{body}"):
        head.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    return "\n".join([*head, functions, body])


@dataclass(frozen=True)
class _Memory:
    """A buffer: the expression of its pointer, and the distances in elements between neighbours."""

    pointer: str
    strides: tuple[int, ...]


@dataclass
class _Printer:
    """Prints one launch. ``facts``: between which numbers the variables lie at the place that is printed."""

    name: str
    func: PrimFunc
    grid: Grid
    windows: Mapping[str, tuple[int, ...]]
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    memory: dict[str, _Memory] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    facts: Facts = field(default_factory=lambda: Facts({}))
    private_halves: set[str] = field(default_factory=set)  # buffers that hold floats of 16 bits as single ones

    def run(self) -> KernelText:
        grid = self.grid
        written = {buffer.name for phase in _bodies(grid.body) for buffer, _ in stores_of(phase)}
        params: list[str] = []
        for number in grid.params:
            buffer = self.func.params[number]
            constant = "" if buffer.name in written else "const "
            pointer = self.named(buffer.name)
            params += [f"__global {constant}uchar *m{number}", f"const long b{number}"]
            kind = f"__global {constant}{MEMORY_TYPES[buffer.dtype]} *"
            self.say(f"{kind}const {pointer} = ({kind})(m{number} + b{number});")
            self.memory[buffer.name] = _Memory(pointer, self.windows.get(buffer.name, buffer.strides))
        if grid.workspace:
            params += ["__global uchar *space", "const long first"]
        for buffer, offset in grid.workspace:
            pointer, kind = self.named(buffer.name), f"__global {MEMORY_TYPES[buffer.dtype]} *"
            self.say(f"{kind}const {pointer} = ({kind})(space + first + {offset});")
            self.memory[buffer.name] = _Memory(pointer, buffer.strides)
        for place, buffers in (("__local ", grid.shared), ("", grid.registers)):
            for buffer in buffers:
                self.allocate(buffer, place)
        self.say("const int thread = get_local_id(0);")
        for axis, digits in enumerate(grid.blocks):
            for digit in digits:
                self.digit(digit, f"(int)get_group_id({axis})", digits)
        self.statement(grid.body)
        head = f"__kernel __attribute__((reqd_work_group_size({grid.threads}, 1, 1)))"
        text = "\n".join([head, f"void {self.name}({', '.join(params)}) {{", *self.lines, "}", ""])
        return KernelText(text, frozenset(self.functions))

    # Lines

    def say(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def named(self, name: str) -> str:
        """A name of the loop IR as one of C that is no keyword and no other's."""
        if name not in self.names:
            plain = "v_" + re.sub(r"\W", "_", name, flags=re.ASCII)
            while plain in self.names.values():
                plain += "_"
            self.names[name] = plain
        return self.names[name]

    def allocate(self, buffer: Buffer, place: str) -> None:
        name = self.named(buffer.name)
        # What is held is what can be computed with; what is shared takes as little memory as it can.
        kind = MEMORY_TYPES[buffer.dtype] if place else TYPES[buffer.dtype]
        self.say(f"{place}{kind} {name}[{buffer.size}];")
        self.memory[buffer.name] = _Memory(name, buffer.strides)
        if not place and buffer.dtype in HALVES:
            self.private_halves.add(buffer.name)

    def digit(self, digit: Digit, number: str, digits: tuple[Digit, ...]) -> None:
        value = f"{number} / {digit.weight}" if digit.weight > 1 else number
        if digit is not digits[0]:
            value = f"{value} % {digit.radix}"
        self.say(f"const int {self.named(digit.var.name)} = {value if digit.radix > 1 else '0'};")
        self.facts = self.facts.inside_loop(digit.var, digit.extent)

    # Statements

    def statement(self, stmt: Stmt) -> None:
        facts = self.facts
        match stmt:
            case Phase():
                self.phase(stmt)
            case Barrier(everywhere):
                both = " | CLK_GLOBAL_MEM_FENCE" if everywhere else ""
                self.say(f"barrier(CLK_LOCAL_MEM_FENCE{both});")
            case Seq(body=items):
                for item in items:
                    self.statement(item)
            case For():
                self.loop(stmt)
            case Allocate(buffer, body):
                self.allocate(buffer, "")
                self.statement(body)
            case If(cond, then):
                self.say(f"if ({self.value(cond)}) {{")
                self.facts = facts.given(cond, True)
                self.inside(then)
            case Block():
                self.block(stmt)
            case Store(buffer, indices, value):
                self.store(buffer, indices, value)
            case _:
                raise CompileError(f"{type(stmt).__name__} has no text in OpenCL C", at=f"kernel {self.func.name!r}")
        self.facts = facts

    def inside(self, *body: Stmt) -> None:
        self.depth += 1
        for stmt in body:
            self.statement(stmt)
        self.depth -= 1
        self.say("}")

    def phase(self, phase: Phase) -> None:
        self.say(f"if (thread < {phase.threads}) {{" if phase.threads < self.grid.threads else "{")
        self.depth += 1
        guards: list[str] = []
        for digit in phase.digits:
            self.digit(digit, "thread", phase.digits)
            if digit.is_guarded:
                guards.append(f"{self.named(digit.var.name)} < {self.value(digit.extent)}")
        if guards:
            self.say(f"if ({' && '.join(guards)}) {{")
            self.inside(phase.body)
        else:
            self.statement(phase.body)
        self.depth -= 1
        self.say("}")

    def loop(self, loop: For) -> None:
        name = self.named(loop.var.name)
        outer = self.facts
        most = outer.interval(loop.extent)[1]
        if most > LARGEST_INT:
            raise CompileError("it runs more often than an int can count", at=f"loop {loop.var.name!r}")
        extent = self.value(loop.extent)
        self.facts = outer.inside_loop(loop.var, loop.extent)
        if most <= 1 and loop.extent == Const(1):
            self.say(f"{{ const int {name} = 0;")
            self.inside(loop.body)
        elif most <= GUARDED_AT_MOST and not isinstance(loop.extent, Const):
            # Indices that a compiler knows keep arrays of a thread in registers.
            self.say("#pragma unroll")
            self.say(f"for (int {name} = 0; {name} < {most}; {name}++) if ({name} < {extent}) {{")
            self.inside(loop.body)
        else:
            if loop.kind in ("unroll", "vectorize"):
                self.say("#pragma unroll")
            self.say(f"for (int {name} = 0; {name} < {extent}; {name}++) {{")
            self.inside(loop.body)

    def block(self, block: Block) -> None:
        store = block.body
        if block.init is not None:
            first = " && ".join(f"{self.named(var.name)} == 0" for var in block.reduce_vars) or "1"
            self.say(f"if ({first}) {{")
            self.inside(Store(store.buffer, store.indices, block.init))
        self.store(store.buffer, store.indices, store.value)

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        place, text = self.element(buffer, indices), self.value(value)
        if buffer.dtype in HALVES and buffer.name not in self.private_halves:
            self.say(f"{place} = {self.called(f'bits_{buffer.dtype}')}({text});")
        else:
            self.say(f"{place} = {text};")

    # Expressions

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        memory = self.memory[buffer.name]
        total = Linear()
        for index, stride in zip(indices, memory.strides, strict=True):
            total = total.add(linear_form(index), stride)
        return f"{memory.pointer}[{self.value(total.to_expr())}]"

    def called(self, name: str) -> str:
        """The name of a function that the program will hold."""
        self.functions.add(name)
        return name

    def is_narrow(self, expr: Expr) -> bool:
        """Whether an int64 expression of variables alone can be computed with 32 bits."""
        if any(isinstance(node, Load | Cast | Bits | Select) for node in walk_exprs(expr)):
            return False
        ranges = (self.facts.interval(node) for node in walk_exprs(expr) if node.dtype == "int64")
        return all(low >= -LARGEST_INT and high <= LARGEST_INT for low, high in ranges)

    def value(self, expr: Expr) -> str:
        """The text of a value, which binds tighter than any operator."""
        kind = TYPES[expr.dtype]
        match expr:
            case Const(number, dtype):
                return literal(number, dtype)
            case Var(name):
                return self.named(name)
            case Load(buffer, indices):
                element = self.element(buffer, indices)
                if buffer.dtype in HALVES and buffer.name not in self.private_halves:
                    return f"{self.called(f'from_{buffer.dtype}')}({element})"
                return f"({element} != 0)" if buffer.dtype == "bool" else element
            case Select(cond, a, b):
                chosen = self.value(cond)
                facts = self.facts
                self.facts = facts.given(cond, True)
                left = self.value(a)
                self.facts = facts.given(cond, False)
                right = self.value(b)
                self.facts = facts
                return f"({chosen} ? {left} : {right})"
            case Cast(target, x):
                return self.cast(target, x)
            case Bits(target, x):
                return self.same_bits(target, x)
            case Call(function, args):
                return self.call(function, args, expr.dtype)
            case BinOp(op, a, b) if a.dtype == "int64" and self.is_narrow(expr):
                return self.index(op, a, b)
            case BinOp(op, a, b):
                return self.operator(op, a, b, kind)
        raise CompileError(f"{type(expr).__name__} has no text in OpenCL C", at=f"kernel {self.func.name!r}")

    def index(self, op: str, a: Expr, b: Expr) -> str:
        """Arithmetic on variables, of which it is known that it does not wrap."""
        left, right = self.value(a), self.value(b)
        if op in ("floordiv", "mod"):
            if self.facts.interval(a)[0] >= 0 and self.facts.interval(b)[0] > 0:
                return f"({left} {'/' if op == 'floordiv' else '%'} {right})"
            return f"{self.called(f'{op}_int32')}({left}, {right})"
        if op in ("min", "max"):
            return f"{op}({left}, {right})"
        return f"({left} {SIGNS[op]} {right})"

    def operator(self, op: str, a: Expr, b: Expr, kind: str) -> str:
        dtype, left, right = a.dtype, self.value(a), self.value(b)
        if op in ("floordiv", "mod", "min", "max"):
            return f"{self.called(f'{op}_{dtype}')}({left}, {right})"
        if op in ("lt", "le", "eq", "ne"):
            return f"({left} {SIGNS[op]} {right})"
        if dtype in HALVES:
            return f"{self.called(f'to_{dtype}')}({left} {SIGNS[op]} {right})"
        if dtype in FLOATS or dtype == "bool":
            return f"({left} {SIGNS[op]} {right})"
        if op == "shr":
            return f"(({kind})(({kind}){left} >> {right}))"
        # Unsigned arithmetic wraps; that of signed numbers may not.
        return f"(({kind})(({UNSIGNED[dtype]}){left} {SIGNS[op]} ({UNSIGNED[dtype]}){right}))"

    def cast(self, target: DType, x: Expr) -> str:
        source, text = x.dtype, self.value(x)
        if source == target:
            return text
        if target == "bool":
            return f"({text} != 0)"
        if target in HALVES:
            return f"{self.called(f'to_{target}_of_double' if source == 'float64' else f'to_{target}')}({text})"
        if target in FLOATS:
            return f"(({TYPES[target]}){text})"
        if source in FLOATS:
            return f"{self.called(f'to_{target}_of_{TYPES[source]}')}({text})"
        return f"(({TYPES[target]}){text})"

    def same_bits(self, target: DType, x: Expr) -> str:
        text = self.value(x)
        held = f"{self.called(f'bits_{x.dtype}')}({text})" if x.dtype in HALVES else text
        same = f"as_{MEMORY_TYPES[target]}({held})"
        return f"{self.called(f'from_{target}')}({same})" if target in HALVES else same

    def call(self, function: str, args: tuple[Expr, ...], dtype: DType) -> str:
        texts = ", ".join(map(self.value, args))
        kind = TYPES[dtype]
        own = f"{function}_{kind}"
        name = self.called(own) if own in FUNCTIONS else {"round": "rint"}.get(function, function)
        result = f"{name}({texts})"
        return f"{self.called(f'to_{dtype}')}({result})" if dtype in HALVES else result


def _bodies(stmt: Stmt) -> Iterable[Stmt]:
    """What the phases of a launch do."""
    match stmt:
        case Phase(body=body):
            yield body
        case For(body=body):
            yield from _bodies(body)
        case Seq(body=items):
            for item in items:
                yield from _bodies(item)


def literal(number: Number, dtype: DType) -> str:
    """A constant, to the bit."""
    if dtype == "bool":
        return str(int(number))
    if dtype in FLOATS:
        value = float(wrap(number, dtype))
        suffix = "" if dtype == "float64" else "f"
        if math.isnan(value):
            return f"(({TYPES[dtype]})NAN)"
        if math.isinf(value):
            return f"(({TYPES[dtype]}){'-' * (value < 0)}INFINITY)"
        return f"({value.hex()}{suffix})"
    value = int(number)
    if dtype == "int64" and abs(value) <= LARGEST_INT:  # with an int it stays one, with a long C widens it
        return str(value) if value >= 0 else f"({value})"
    least = INTEGER_RANGES[dtype][0]
    if value == least and value < 0:
        return f"(({TYPES[dtype]})({value + 1}{'l' * (dtype == 'int64')} - 1))"
    suffix = {"int64": "l", "uint64": "ul", "uint32": "u"}.get(dtype, "")
    return f"(({TYPES[dtype]}){value}{suffix})" if value >= 0 else f"(({TYPES[dtype]})({value}{suffix}))"
