"""Who runs what: the calls of a packed module as phases that alternate between the host and the core."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....graph.ir import Call, Expr, Function, GraphError, Module, Var
from ....graph.registry import operator_of
from ....graph.visit import calls, topological_order
from ...errors import CompileError
from ..operators.moves import entries_of, is_renaming


@dataclass(frozen=True)
class StateInPlace:
    """An input of the model with new ``rows`` behind it along ``axis``, as they lie in what the core reads; ``places``
    as in `Resident`."""

    state: Var
    rows: Expr
    axis: int
    places: tuple[tuple[int, ...], ...]


@dataclass
class Phase:
    """Calls that run together: on the host, or on the core as one program. ``state``: what they put together, if that
    is all they do. ``stage``: of a pipeline, whose core runs them."""

    on_core: bool
    calls: list[Call] = field(default_factory=list)
    state: StateInPlace | None = None
    stage: int = 0


def function_of(node: Call) -> Function:
    """The function that a call calls."""
    if not isinstance(node.op, Function):
        raise GraphError(f"{node.op} is no function", at=node.span)
    return node.op


def is_primitive(node: Expr) -> bool:
    """Whether a value is made by the core."""
    return isinstance(node, Call) and isinstance(node.op, Function) and node.op.is_primitive


def is_packed_concat(node: Call) -> bool:
    """Whether a call puts activations side by side, which is a matter of placement."""
    body = function_of(node).body
    return isinstance(body, Call) and body.op == "packed_concat"


def is_packed_renaming(node: Call) -> bool:
    """Whether a call only gives an activation another shape, which is a matter of placement."""
    entries = entries_of(function_of(node))
    return entries is not None and is_renaming(entries, [arg.shape for arg in node.args])


STAGE = "stage"
"""The attribute of a call that says which stage of a pipeline of unlike cores it belongs to."""


def split_phases(module: Module) -> list[Phase]:
    """As few phases as the dataflow allows, the first on the host. CompileError for an operator in no function.

    Where calls say their stages, all phases of a stage come before those of the next one.
    """
    waiting = [node for node in topological_order(module.main.body) if isinstance(node, Call)]
    for node in waiting:
        if not isinstance(node.op, Function):
            raise CompileError(f"{node.op} is in no function", at=str(node.span), hint="run the passes")
    done: set[int] = set()
    return [
        phase
        for stage in sorted(set(map(stage_of, waiting)))
        for phase in _phases_of([node for node in waiting if stage_of(node) == stage], done, stage)
    ]


def stage_of(node: Call) -> int:
    """The stage that a call says it belongs to; 0 if it says none."""
    return int(str(node.attrs.get(STAGE, 0)))


def _phases_of(waiting: list[Call], done: set[int], stage: int) -> list[Phase]:
    """The phases of some calls. ``done``: calls that ran before, by identity; these calls are added."""
    phases: list[Phase] = []
    on_core = False
    while waiting:
        phase = Phase(on_core, stage=stage)
        later = []
        for node in waiting:
            ready = all(id(arg) in done for arg in node.args if isinstance(arg, Call))
            if is_primitive(node) == on_core and ready:
                phase.calls.append(node)
                done.add(id(node))
            else:
                later.append(node)
        waiting = later
        on_core = not on_core
        if phase.calls:
            phases.append(phase)
    return phases


def check_strict(module: Module) -> None:
    """CompileError for the first host function other than quantisation, softmax and layout at the network's ends."""
    order = calls(module.main.body)
    after_core: dict[Expr, bool] = {}
    before_core: dict[Expr, bool] = {}
    for node in order:
        after_core[node] = any(after_core.get(arg, False) or is_primitive(arg) for arg in node.args)
    for node in reversed(order):
        for arg in node.args:
            before_core[arg] = before_core.get(arg, False) or before_core.get(node, False) or is_primitive(node)
    for node in order:
        if not isinstance(node.op, Function) or node.op.is_primitive:
            continue
        entries = list(filter(None, map(operator_of, calls(node.op.body))))
        between = after_core[node] and before_core.get(node, False)
        if between or not all(entry.passive for entry in entries):
            what = node.op.span.node or node.span.node or node.op.name
            names = ", ".join(sorted({entry.name for entry in entries}))
            raise CompileError(
                f"{names} would run on the host: {node.op.host_reason}", at=f"node {what!r}",
                hint="compile without strict, or change the model",
            )  # fmt: skip
