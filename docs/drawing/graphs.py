"""Graphs of the graph IR as pictures: a box for each call, an arrow for each value."""

from __future__ import annotations

from collections.abc import Mapping

from weft.compiler.graph import Call, Constant, Expr, Function, Module, Var, topological_order

from .svg import COLOURS, SOFT, Sheet

BOX, ROW, COLUMN = (200, 34), 62, 240


def side_by_side(title: str, modules: Mapping[str, Module]) -> str:
    """Several modules, each under what it is called, from inputs above to results below."""
    placed = {name: _placed(module) for name, module in modules.items()}
    widths = [1 + max(column for _, column in each.values()) for each in placed.values()]
    height = 100 + ROW * (1 + max(row for each in placed.values() for row, _ in each.values()))
    sheet = Sheet(40 + COLUMN * sum(widths), height, title)
    sheet.text(24, 32, title, size=16, bold=True)
    left = 24
    for (name, each), width in zip(placed.items(), widths, strict=True):
        sheet.text(left, 60, name, colour=SOFT)
        for node, (row, column) in each.items():
            x, y = left + COLUMN * column, 78 + ROW * row
            for number, operand in enumerate(operands := [arg for arg in node.children if arg in each]):
                above, beside = each[operand]
                end = x + BOX[0] * (number + 1) / (len(operands) + 1)
                start = left + COLUMN * beside + BOX[0] / 2
                sheet.line([(start, 78 + ROW * above + BOX[1]), (start, y - 12), (end, y - 12), (end, y)], arrow=True)
        for node, (row, column) in each.items():
            x, y = left + COLUMN * column, 78 + ROW * row
            fill, edge = COLOURS["memory" if isinstance(node, Var) else "engine"]
            sheet.box(x, y, *BOX, fill, edge)
            sheet.text(x + BOX[0] / 2, y + 22, _name(node), anchor="middle", mono=True, size=12)
        left += COLUMN * width
    return sheet.svg()


def _placed(module: Module) -> dict[Expr, tuple[int, int]]:
    """Row and column of each value that is no constant: below all that it reads."""
    places: dict[Expr, tuple[int, int]] = {}
    taken: dict[int, int] = {}
    for node in topological_order(module.main.body):
        if isinstance(node, (Constant, Function)):
            continue
        row = 1 + max((places[each][0] for each in node.children if each in places), default=-1)
        places[node] = (row, taken.get(row, 0))
        taken[row] = taken.get(row, 0) + 1
    return places


def _name(node: Expr) -> str:
    """An operator with its constants that are one number, or the name of an input."""
    if not isinstance(node, Call):
        return node.name if isinstance(node, Var) else type(node).__name__.lower()
    name = node.op.name if isinstance(node.op, Function) else str(node.op)
    numbers = [f"{float(arg.value):.4g}" for arg in node.args if isinstance(arg, Constant) and not arg.value.shape]
    return " ".join([str(name), *numbers])
