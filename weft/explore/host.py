"""What of a network is left to the host, counted from its graph.

Operations: a multiply-accumulate is two, an element of another operator what its entry says. Bytes: of the tensors that
each function of the host reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..compiler.graph import Fusion, Module, TensorType, Type
from ..compiler.graph.registry import operator_of
from ..compiler.graph.visit import calls
from ..compiler.model import tensor_bytes
from ..compiler.targets.accel.link.phases import function_of, split_phases
from .processors import HostWork


def host_work(module: Module) -> HostWork:
    """What the functions of a packed module that run on the host do."""
    macs = operations = nbytes = 0
    for node in (call for phase in split_phases(module) if not phase.on_core for call in phase.calls):
        tensors = [each for value in (node, *node.args) for each in _tensors(value.type)]
        nbytes += sum(tensor_bytes(each.shape, each.dtype) for each in tensors)
        for inner in calls(function_of(node).body):
            entry = operator_of(inner)
            if entry is None or entry.fusion is Fusion.LAYOUT:
                continue  # what only moves is counted by its bytes
            if entry.anchor is None:
                operations += entry.cost * sum(each.size for each in _tensors(inner.type))
            else:
                macs += entry.macs(inner)
    return HostWork(macs, operations + 2 * macs, nbytes)


def _tensors(kind: Type) -> Iterator[TensorType]:
    return iter((kind,) if isinstance(kind, TensorType) else kind.fields)
