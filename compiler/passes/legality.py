"""What may stand in a module at each stage of compilation."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Call, Function, GraphError, Module, TensorType, Tuple, calls, operators

_ALL = frozenset(entry.name for entry in operators())
_FLOAT = frozenset(name for name in _ALL if name.startswith("nn."))
_PACKED = frozenset(name for name in _ALL if name.startswith("packed_")) | {"pack", "unpack"}
_MOVES = frozenset({"reshape", "transpose", "concat", "pad"})
_SOURCE_MOVES = _MOVES | {
    "slice", "expand", "dilate", "gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "top_k",
}
_INTEGER = frozenset({
    "conv2d", "max_pool", "sum_pool", "requantise", "multiply", "multiply_immediate", "subtract_immediate",
    "multiply_accumulate",
})  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """What is legal: operators in ``main`` outside functions, operators in primitive functions, kinds of functions."""

    name: str
    operators: frozenset[str]
    primitive_operators: frozenset[str]
    host_functions: bool


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("source", _FLOAT | _SOURCE_MOVES | {"quantise", "dequantise"}, frozenset(), False),
        Stage("integer", _INTEGER | _MOVES, frozenset(), True),
        Stage("fused", _MOVES, _INTEGER, True),
        Stage("loops", _ALL, frozenset(), False),  # each operator becomes part of a kernel, or NumPy runs it
        Stage("packed", frozenset(), _PACKED - {"pack", "unpack"}, True),
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
        elif node.op not in table.operators:
            raise GraphError(f"{node.op} is not legal at stage {stage!r}", at=node.span)


def _check_function(node: Call, function: Function, table: Stage) -> None:
    if function.is_primitive:
        for inner in calls(function.body):
            if isinstance(inner.op, Function) or inner.op not in table.primitive_operators:
                raise GraphError(
                    f"{inner.op} is not legal in the primitive function {function.name!r} at stage {table.name!r}",
                    at=inner.span,
                )
        results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
        if not all(isinstance(result.type, TensorType) and result.type.dtype == "int8" for result in results):
            raise GraphError(f"primitive function {function.name!r} must return int8", at=node.span)
    elif not (function.host_reason and table.host_functions):
        raise GraphError(f"function {function.name!r} is neither primitive nor placed on the host", at=node.span)
