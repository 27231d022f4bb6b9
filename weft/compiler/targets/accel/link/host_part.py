"""What the host does for the core, as modules of their own that the CPU's kernels and NumPy run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ....graph.ir import Attrs, Call, Constant, Expr, Function, Module, Tuple, Var
from ....graph.scan import SCAN, body_of
from ....graph.visit import calls, substitute
from ....model import HostProgram, Layer
from ..operators.host_moves import layouts_as_moves
from .phases import Phase, function_of


def phase_module(phase: Phase, results: Sequence[Call], names: Mapping[Expr, str]) -> Module:
    """A module that computes ``results`` from what the calls of a phase on the host read from elsewhere."""
    own = set(phase.calls)
    outside = dict.fromkeys(
        arg for node in phase.calls for arg in node.args if arg not in own and not isinstance(arg, Constant)
    )
    params = {value: Var(names[value], value.tensor_type) for value in outside}
    body = layouts_as_moves(substitute(Tuple(tuple(results)), dict(params)))
    attrs = Attrs({"name": "host", "outputs": tuple(names[node] for node in results)})
    return Module(Function(tuple(params.values()), body, attrs), "host")


def copying_module(pairs: Sequence[tuple[str, Expr]], names: Mapping[Expr, str]) -> Module:
    """A module that gives values, which have names, the names in ``pairs``."""
    params = {value: Var(names[value], value.tensor_type) for _, value in pairs if not isinstance(value, Constant)}
    body = Tuple(tuple(params.get(value, value) for _, value in pairs))
    attrs = Attrs({"name": "outputs", "outputs": tuple(name for name, _ in pairs)})
    return Module(Function(tuple(params.values()), body, attrs), "host")


def with_reasons(program: HostProgram, module: Module) -> HostProgram:
    """The program of a module of `phase_module`, with layers that also say why their functions are not on the core."""
    known = _Reasons()
    for node in calls(module.main.body):
        function = function_of(node)
        for inner in _with_loops(function.body):
            known.add(str(inner.op), (*inner.span.nodes, *node.span.nodes), function.host_reason)
    return replace(program, layers=tuple(_with_reason(layer, known) for layer in program.layers))


def _with_loops(body: Expr) -> list[Call]:
    """All calls of a function, also those inside of loops."""
    inside = [node for loop in calls(body) if loop.op == SCAN for node in _with_loops(body_of(loop).body)]
    return [*calls(body), *inside]


class _Reasons:
    """Why operators are on the host, in the order in which they were added."""

    def __init__(self) -> None:
        self._count = 0
        self._by_node: dict[tuple[str, str], dict[str, int]] = {}
        self._anywhere: dict[str, dict[str, int]] = {}

    def add(self, operator: str, nodes: Iterable[str], reason: str) -> None:
        """An operator, the user's nodes that it is of, and why it is there."""
        self._count += 1
        self._anywhere.setdefault(operator, {}).setdefault(reason, self._count)
        for node in nodes:
            self._by_node.setdefault((operator, node), {}).setdefault(reason, self._count)

    def of(self, layer: Layer) -> list[str]:
        """Of the operators in a layer that are of its nodes; of any, if it has none."""
        operators = dict.fromkeys(layer.operators)
        if layer.nodes:
            found = [self._by_node.get((operator, node), {}) for operator in operators for node in layer.nodes]
        else:
            found = [self._anywhere.get(operator, {}) for operator in operators]
        first: dict[str, int] = {}
        for places in found:
            for reason, place in places.items():
                first[reason] = min(place, first.get(reason, place))
        return sorted(first, key=first.__getitem__)


def _with_reason(layer: Layer, known: _Reasons) -> Layer:
    reasons = known.of(layer)
    if layer.device == "numpy" and (own := f"NumPy runs it: {layer.reason}") not in reasons:
        reasons.append(own)
    return replace(layer, reason="; ".join(reasons) or "part of a function on the host")
