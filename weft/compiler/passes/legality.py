"""What may stand in a module at each stage of compilation."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Call, Family, Function, GraphError, Module, TensorType, Tuple, calls, operator
from ..graph.registry import AS_READ


@dataclass(frozen=True)
class Stage:
    """What is legal: operators in ``main`` outside functions, operators in primitive functions, kinds of functions."""

    name: str
    families: frozenset[Family]
    primitive_families: frozenset[Family]
    host_functions: bool
    chains: bool = False  # primitive functions that call primitive functions


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("source", AS_READ, frozenset(), False),
        Stage("integer", frozenset({Family.INTEGER, Family.MOVE}), frozenset(), True),
        Stage("fused", frozenset({Family.MOVE}), frozenset({Family.INTEGER}), True),
        Stage("packed", frozenset(), frozenset({Family.PACKED}), True, chains=True),
        Stage("chained", frozenset(), frozenset({Family.PACKED}), True, chains=True),
        Stage("host", frozenset(), frozenset(), True),
        Stage("operators", frozenset(Family) - {Family.PACKED}, frozenset(), False),
    )
}


def check_stage(module: Module, stage: str = "") -> None:
    """Raise `GraphError` when something in ``module`` is not legal at its stage, or at ``stage``."""
    stage = stage or module.stage
    if stage not in STAGES:
        raise GraphError(f"there is no stage {stage!r}; the stages are {', '.join(STAGES)}")
    table = STAGES[stage]
    for node in calls(module.main.body):
        if isinstance(node.op, Function):
            _check_function(node, node.op, table)
        elif operator(node.op, node.span).family not in table.families:
            raise GraphError(f"{node.op} is not legal at stage {stage!r}", at=node.span)


def _check_function(node: Call, function: Function, table: Stage) -> None:
    if function.is_primitive:
        for inner in calls(function.body):
            if isinstance(inner.op, Function) and inner.op.is_primitive and table.chains:
                _check_function(inner, inner.op, table)
            elif isinstance(inner.op, Function) or operator(inner.op).family not in table.primitive_families:
                raise GraphError(
                    f"{inner.op} is not legal in the primitive function {function.name!r} at stage {table.name!r}",
                    at=inner.span,
                )
        results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
        if not all(isinstance(result.type, TensorType) and result.type.dtype == "int8" for result in results):
            raise GraphError(f"primitive function {function.name!r} must return int8", at=node.span)
    elif not (function.host_reason and table.host_functions):
        raise GraphError(f"function {function.name!r} is neither primitive nor placed on the host", at=node.span)
