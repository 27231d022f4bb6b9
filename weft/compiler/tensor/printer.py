"""The text form of the loop IR. It is valid Python to look at; ``parser.parse`` reads it back to an equal object."""

from __future__ import annotations

from .ir import (
    Allocate,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    TensorIntrinsic,
    Var,
)

SYMBOLS = {
    "or": "|",
    "and": "&",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "shl": "<<",
    "shr": ">>",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
}
# As in Python: a comparison binds looser than |, which binds looser than &, then shifts, sums, products.
_BINDING = {"lt": 1, "le": 1, "eq": 1, "ne": 1, "or": 2, "and": 3, "shl": 4, "shr": 4, "add": 5, "sub": 5}
_BINDING |= {"mul": 6, "div": 6, "floordiv": 6, "mod": 6}
_ATOM = 9


def expr_text(expr: Expr) -> str:
    """The expression as text."""
    return _expr(expr)[0]


def _expr(expr: Expr) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    match expr:
        case Var(name):
            return name, _ATOM
        case Const(value, "int64"):
            return str(value), _ATOM if value >= 0 else 7
        case Const(value, "bool"):
            return str(value), _ATOM
        case Const(value, dtype):
            literal = f'"{value}"' if isinstance(value, float) and not abs(value) < float("inf") else str(value)
            return f"{dtype}({literal})", _ATOM
        case BinOp("min" | "max" as op, a, b):
            return f"{op}({expr_text(a)}, {expr_text(b)})", _ATOM
        case BinOp(op, a, b):
            binding = _BINDING[op]
            # A comparison of comparisons needs parentheses on both sides: Python would chain them.
            left = _at_least(a, binding + (binding == 1))
            return f"{left} {SYMBOLS[op]} {_at_least(b, binding + 1)}", binding
        case Select(cond, a, b):
            return f"select({expr_text(cond)}, {expr_text(a)}, {expr_text(b)})", _ATOM
        case Cast(dtype, x):
            return f"{_at_least(x, _ATOM)}.astype({dtype})", _ATOM
        case Bits(dtype, x):
            return f"{_at_least(x, _ATOM)}.bits({dtype})", _ATOM
        case Call(function, args):
            return f"{function}({', '.join(map(expr_text, args))})", _ATOM
        case Load(buffer, indices):
            return f"{buffer.name}[{_indices(indices)}]", _ATOM
    return repr(expr), _ATOM


def _at_least(expr: Expr, binding: int) -> str:
    text, own = _expr(expr)
    if isinstance(expr, Const) and binding == _ATOM and expr.type == "int64":
        return f"({text})"
    return text if own >= binding else f"({text})"


def _indices(indices: tuple[Expr, ...]) -> str:
    return ", ".join(map(expr_text, indices)) or "()"


def _allocation(buffer: Buffer) -> str:
    aligned = [(item.axis, item.factor, item.offset) for item in buffer.alignments]
    return f"allocate({buffer_type(buffer)}{f', align={aligned}' if aligned else ''})"


def buffer_type(buffer: Buffer) -> str:
    """Type, shape and scope of a buffer: ``int8[4, 16] @ "inp"``."""
    return f'{buffer.dtype}[{", ".join(map(str, buffer.shape)) or "()"}] @ "{buffer.scope}"'


def function_text(func: PrimFunc) -> str:
    """The function as text."""
    params = ",\n".join(f"    {buffer.name}: {buffer_type(buffer)}" for buffer in func.params)
    return f"def {func.name}(\n{params},\n):\n" + "\n".join(_lines(func.body, 1)) + "\n"


def stmt_text(stmt: Stmt) -> str:
    """A statement as text."""
    return "\n".join(_lines(stmt, 0)) + "\n"


def _lines(stmt: Stmt, depth: int) -> list[str]:
    pad = "    " * depth
    match stmt:
        case For(var=var, body=body):
            return [f"{pad}for {var.name} in {_range(stmt)}:", *_lines(body, depth + 1)]
        case Allocate(buffer, body):
            return [f"{pad}with {_allocation(buffer)} as {buffer.name}:", *_lines(body, depth + 1)]
        case If(cond, then):
            return [f"{pad}if {expr_text(cond)}:", *_lines(then, depth + 1)]
        case Seq(body):
            return [line for child in body for line in _lines(child, depth)]
        case Store(buffer, indices, value):
            return [f"{pad}{buffer.name}[{_indices(indices)}] = {expr_text(value)}"]
        case Block(body=store):
            return [f"{pad}with {_block(stmt)}:", *_lines(store, depth + 1)]
        case IntrinsicCall():
            return _call_lines(stmt, depth)
    return [pad + repr(stmt)]


def _range(loop: For) -> str:
    notes = "".join(f", {key}={value!r}" for key, value in loop.annotations)
    extent = expr_text(loop.extent)
    if loop.kind.startswith("bind:"):
        return f"bind({extent}, {loop.kind.removeprefix('bind:')!r}{notes})"
    return f"{'range' if loop.kind == 'serial' else loop.kind}({extent}{notes})"


def _names(variables: tuple[Var, ...]) -> str:
    return "[" + ", ".join(var.name for var in variables) + "]"


def _block(block: Block) -> str:
    parts = [f'block("{block.name}", "{block.kind}"']
    if block.reduce_vars:
        parts.append(f"over={_names(block.reduce_vars)}")
    if block.init is not None:
        parts.append(f"init={expr_text(block.init)}")
    return ", ".join(parts) + ")"


def _call_lines(call: IntrinsicCall, depth: int) -> list[str]:
    pad = "    " * depth
    lines = [f'{pad}{call.intrinsic.name}("{call.block}",']
    for declared, region in zip(call.intrinsic.operands, call.operands, strict=True):
        lines.append(f"{pad}    {declared.name}={_region(region)},")
    lines += [f"{pad}    {name}={expr_text(value)}," for name, value in call.scalars]
    if call.reduce_vars:
        lines.append(f"{pad}    over={_names(call.reduce_vars)},")
    if call.init is not None and call.init_value is not None:
        lines.append(f"{pad}    init={_names(call.init)}, init_value={expr_text(call.init_value)},")
    lines[-1] = lines[-1].removesuffix(",") + ")"
    return lines


def _region(region: Region) -> str:
    shape, strides = list(region.shape), list(region.strides)
    return f"tile({region.buffer.name}[{_indices(region.indices)}], {shape}, {strides})"


def intrinsic_text(intrinsic: TensorIntrinsic) -> str:
    """What an intrinsic computes, as text."""
    operands = [f"    {item.name}: {item.mode} {buffer_type(item.tile)}" for item in intrinsic.operands]
    scalars = [f"    {param.name}: {param.dtype}" for param in intrinsic.scalars]
    head = f"def {intrinsic.name}(\n" + ",\n".join([*operands, *scalars]) + ",\n):\n"
    return head + "\n".join(_lines(intrinsic.body, 1)) + "\n"
