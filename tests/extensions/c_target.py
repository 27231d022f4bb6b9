"""A target from outside of weft: elementwise kernels as C, through the system's compiler; NumPy runs the rest."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from weft.compiler.graph import Call, Module, operator
from weft.compiler.graph.registry import Fusion
from weft.compiler.model import CompiledModel, HostCode, HostProgram, KernelCode
from weft.compiler.passes import Pass
from weft.compiler.targets.cpu.build import build_program, check_host_program
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.loops.nests import tidy
from weft.compiler.targets.loops.plain import PlainKernels
from weft.compiler.targets.loops.prepare import host_passes
from weft.compiler.targets.loops.target import LoopTarget
from weft.compiler.targets.target import PLAIN_JOB, Job, option
from weft.compiler.tensor import ir, parse

TYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{name: f"{name}_t" for name in ir.INTEGER_RANGES if name != "bool"},
}  # fmt: skip
COMPILERS = ("gcc", "g++", "cc", "c++", "clang")
FLAGS = ("-x", "c", "-c", "-O3", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno")
SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "shl": "<<", "shr": ">>", "lt": "<",
    "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
KINDS = (Fusion.ELEMENTWISE, Fusion.LAYOUT)


@dataclass(frozen=True)
class COptions:
    """What only this target asks for."""

    compiler: str = option("gcc", f"The compiler of C: {', '.join(COMPILERS)}.")

    def __post_init__(self) -> None:
        if self.compiler not in COMPILERS:  # it may come from a file: never run what is not in the list
            raise CompileError(f"{self.compiler!r} is no compiler of C", hint=f"choose {', '.join(COMPILERS)}")


class CTarget:
    """What weft asks of a target (`weft.Target`)."""

    name = "c"
    summary = "C for elementwise operators, through this machine's compiler"
    options = COptions
    require_quantised = False
    takes_open_sizes = True
    prelude = ""  # of a target with instructions of its own: their C, and themselves by name
    intrinsics: ClassVar[Mapping[str, ir.TensorIntrinsic]] = {}

    def passes(self, options: COptions, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        return host_passes(quantised=quantised)

    def link(self, module: Module, options: COptions, job: Job) -> CompiledModel:
        target = LoopTarget(options.compiler, kinds=(PlainKernels(tidy),), refuses=why_not)
        return link_model(module, self.name, target, 1, job)

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> HostCode:
        if not trusted:
            check_host_program(program, self.intrinsics.__getitem__)
        if processor != "host":
            raise CompileError(f"target 'c' has no compiler for {processor}")
        if program.threads != 1:
            raise CompileError(f"target 'c' runs on one thread, not on {program.threads}")
        options = COptions(program.processor)
        kernels = (c_text(code, self.intrinsics) for code in program.kernels)
        text = "\n".join([PRELUDE, self.prelude, *kernels])
        return build_program(program, kernels=[object_file(text, options.compiler)])


def why_not(node: Call) -> str:
    """Why NumPy has to run an operator."""
    if operator(str(node.op)).fusion not in KINDS:
        return f"target 'c' has elementwise kernels only, and {node.op} is none"
    foreign = [value.dtype for value in (*node.args, node) if value.dtype not in TYPES]
    return f"C has no type {foreign[0]}" if foreign else ""


def object_file(text: str, compiler: str) -> bytes:
    """The object file of a text in C."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.o")
        try:
            done = subprocess.run([compiler, *FLAGS, "-o", path, "-"], input=text, capture_output=True, text=True)
        except OSError as error:
            raise CompileError(f"{compiler} cannot be run: {error.strerror}", hint="choose another compiler") from error
        if done.returncode:
            raise CompileError(f"{compiler} refuses the kernels: {done.stderr}")
        return path.read_bytes()


# From loop IR to C


def c_text(code: KernelCode, intrinsics: Mapping[str, ir.TensorIntrinsic]) -> str:
    """A kernel as a function in C: of a pointer to each parameter, workspace, thread and counters."""
    func = parse(code.text, intrinsics)
    strides = {buffer.name: code.windows.get(buffer.name, buffer.strides) for buffer in func.params}
    params = ", ".join(f"{TYPES[buffer.dtype]} *{named(buffer.name)}" for buffer in func.params)
    body = "\n".join(statement(func.body, strides))
    return f"void {code.symbol}({params}, void *workspace, int64_t thread, void *counters) {{\n{body}\n}}\n"


def statement(stmt: ir.Stmt, strides: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """The lines of a statement. ``strides``: of each buffer, in elements."""

    def element(buffer: ir.Buffer, indices: Sequence[ir.Expr]) -> str:
        steps = (f"{value(index)} * {stride}" for index, stride in zip(indices, strides[buffer.name], strict=True))
        return f"{named(buffer.name)}[{' + '.join(steps) or '0'}]"

    def value(expr: ir.Expr) -> str:
        kind = TYPES[expr.dtype]
        match expr:
            case ir.Const(number, dtype):
                return literal(number, dtype)
            case ir.Var(name):
                return named(name)
            case ir.Load(buffer, indices):
                return f"({element(buffer, indices)} != 0)" if expr.dtype == "bool" else element(buffer, indices)
            case ir.Select(condition, a, b):
                return f"({value(condition)} ? {value(a)} : {value(b)})"
            case ir.Cast("bool", x):
                return f"({value(x)} != 0)"
            case ir.Cast(_, x) if x.dtype in ir.FLOATS and expr.dtype not in ir.FLOATS:
                return f"to_{expr.dtype}({value(x)})"
            case ir.Cast(_, x):
                return f"(({kind}){value(x)})"
            case ir.Bits(_, x):
                return f"(((union {{ {TYPES[x.dtype]} from; {kind} to; }}){{ .from = {value(x)} }}).to)"
            case ir.Call(function, args):
                name = "rint" if function == "round" else function
                return f"{name}{'f' * (expr.dtype == 'float32')}({', '.join(map(value, args))})"
            case ir.BinOp(op, a, b) if op in SIGNS:
                return f"(({kind})({value(a)} {SIGNS[op]} {value(b)}))"
            case ir.BinOp(op, a, b):
                return f"{op}_{expr.dtype}({value(a)}, {value(b)})"
        raise CompileError(f"{type(expr).__name__} has no C")

    match stmt:
        case ir.For(var, extent, body=body):
            name = named(var.name)
            yield f"for (int64_t {name} = 0; {name} < {value(extent)}; {name}++) {{"
            yield from statement(body, strides)
            yield "}"
        case ir.Allocate(buffer, body=body):  # one thread runs a kernel, one kernel at a time
            yield f"static {TYPES[buffer.dtype]} {named(buffer.name)}[{buffer.size}];"
            yield from statement(body, {**strides, buffer.name: buffer.strides})
        case ir.Seq(items):
            for item in items:
                yield from statement(item, strides)
        case ir.Block(body=ir.Store(buffer, indices, result), init=None) | ir.Store(buffer, indices, result):
            yield f"{element(buffer, indices)} = {value(result)};"
        case ir.IntrinsicCall(
            intrinsic, operands, init=None
        ):  # a pointer to each tile, and steps that are not declared
            tiles = zip(operands, intrinsic.operands, strict=True)
            args = [str(arg) for region, each in tiles for arg in (
                f"&{element(region.buffer, region.indices)}",
                *(step for step, own in zip(region.strides, each.strides, strict=True) if own is None),
            )]  # fmt: skip
            yield f"{intrinsic.name}({', '.join(args)});"
        case _:
            raise CompileError(f"{type(stmt).__name__} has no C")


def named(name: str) -> str:
    """A name of the loop IR as one of C that is no keyword."""
    return f"v_{name.replace('.', '_')}"


def literal(number: ir.Number, dtype: ir.DType) -> str:
    """A constant, to the bit."""
    if dtype not in ir.FLOATS:
        return f"(({TYPES[dtype]}){int(number) % 2**64}ull)"
    if math.isfinite(number):
        return f"(({TYPES[dtype]}){float(number).hex()})"
    return "NAN" if math.isnan(number) else f"({TYPES[dtype]}){'-' * (number < 0)}INFINITY"


def functions(name: str, kind: str) -> Iterator[str]:
    """What C has no sign for: of two numbers the smaller, of which one may be nan; division that rounds down; floats
    as the nearest integer that fits."""
    for op, sign in (("min", "<"), ("max", ">")):
        yield f"static {kind} {op}_{name}({kind} a, {kind} b) {{ return a != a || a {sign} b ? a : b; }}"
    if name in ir.INTEGER_RANGES:
        low, high = (literal(end, name) for end in ir.INTEGER_RANGES[name])
        negates = "b == -1" if ir.INTEGER_RANGES[name][0] else "0"  # the quotient of the least number does not fit
        yield f"""static {kind} mod_{name}({kind} a, {kind} b) {{
  {kind} rest = {negates} ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}
static {kind} floordiv_{name}({kind} a, {kind} b) {{
  return {negates} ? -a : a / b - (mod_{name}(a, b) != a % b);
}}
static {kind} to_{name}(double x) {{ return x != x ? 0 : x <= {low} ? {low} : x >= {high} ? {high} : ({kind})x; }}"""


PRELUDE = "\n".join(
    ["#include <math.h>", "#include <stdint.h>", *(line for item in TYPES.items() for line in functions(*item))]
)
