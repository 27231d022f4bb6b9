"""What the compiler hands over for a CPU and a model whose inputs leave sizes open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .compiled_cpu import CpuModel
from .graph.symbolic import SymbolicInput, SymbolicTypes


@dataclass(frozen=True)
class SymbolicCpuModel:
    """A model that is compiled for each size of its symbols when that is first needed; ``runtime`` runs it.

    ``types``: of every tensor, for any size. ``at``: compiles it for sizes by symbol.
    """

    name: str
    inputs: tuple[SymbolicInput, ...]
    outputs: tuple[str, ...]
    types: SymbolicTypes = field(repr=False)
    at: Callable[[Mapping[str, int]], CpuModel] = field(repr=False, compare=False)
