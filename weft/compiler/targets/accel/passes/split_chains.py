"""What chains, and their layers apart, take where several cores share each: each is measured by its fastest cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph import Call, Function
from ...errors import CompileError
from ...target import Job
from ..cost.chain_tiling import chain_tilings
from ..link.alone import Program, kernel_program, slice_program
from ..link.slices import KernelSlice, slices_of
from ..link.split import cores_measured, cuts_of, cycles_of, slices_of_core
from ..operators.lower import lower_function
from ..operators.share import WHOLE
from ..schedule.tiling import ChainTiling, Problem
from .function_signature import signature

TRIED_OF_EACH_CUT = 2
"""Tilings of a chain that are measured, of each cut."""


@dataclass
class SplitCosts:
    """``cores``: that share each layer. ``ports``: of each, where some share one."""

    config: CoreConfig
    rate: DramRate
    threads: int
    cores: int
    ports: tuple[int, ...]
    job: Job
    _apart: dict[object, int] = field(default_factory=dict)

    def apart(self, node: Call) -> int:
        """Cycles of a layer as a turn of its own. CompileError where it finds no room."""
        key = signature(node.op) if isinstance(node.op, Function) else node
        if key not in self._apart:
            parts = slices_of(node, self.config, self.rate, self.threads)

            def cycles(of_cores: Sequence[list[KernelSlice]]) -> int:
                return sum(
                    self._cycles([slice_program(part, self.config, self.rate, self.threads) for part in of_part])
                    for of_part in zip(*of_cores, strict=True)
                )

            self._apart[key] = self._least(parts, cycles)
        return self._apart[key]

    def fastest(self, forms: Mapping[str, Function]) -> tuple[int, ChainTiling, str] | None:
        """Cycles, tiling and form of a chain that may have these forms; None where none finds room."""
        found = []
        for form, function in forms.items():
            try:
                found.append((*self.together(function), form))
            except CompileError:
                continue
        return min(found, key=lambda each: each[0], default=None)

    def together(self, function: Function) -> tuple[int, ChainTiling]:
        """Cycles of a chain as a turn of its own, and its tiling on a core that has all of it. CompileError where it
        finds no room."""
        kernel = lower_function(function)
        tilings = chain_tilings(Problem(self.config, kernel, 1, rate=self.rate))
        if not tilings:
            raise CompileError("none fits the scratchpads")

        def cycles(of_cores: Sequence[list[KernelSlice]]) -> int:
            kernels = [part.kernel for (part,) in of_cores]
            problem = Problem(self.config, kernels[0], 1, rate=self.rate)
            found = []
            for tiling in islice(chain_tilings(problem), TRIED_OF_EACH_CUT):
                try:
                    found.append(
                        self._cycles([kernel_program(each, self.config, self.rate, tiling) for each in kernels])
                    )
                except CompileError:
                    continue
            if not found:
                raise CompileError("none fits the scratchpads")
            return min(found)

        return self._least([KernelSlice(kernel, kernel.kind, {})], cycles), tilings[0]

    def _least(self, parts: list[KernelSlice], cycles: Callable[[Sequence[list[KernelSlice]]], int]) -> int:
        found = []
        for cut in cuts_of(parts, self.config, self.cores):
            measured = cores_measured(cut, self.cores, self.ports)
            try:
                found.append(cycles([slices_of_core(parts, cut, core) for core in measured]))
            except CompileError:
                if cut is WHOLE and not found:
                    raise
        return min(found)

    def _cycles(self, programs: Sequence[Program]) -> int:
        return cycles_of(programs, self.config, self.ports, self.rate, self.job)
