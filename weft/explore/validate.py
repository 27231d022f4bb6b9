"""Points of a front on the RTL: a network's result and its cycles there, against the graph and the timing model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..api import load
from ..compiler.graph import evaluate
from ..compiler.passes.manager import random_inputs
from ..runtime.device import RtlDevice
from ..runtime.profile_whatif import predict_runs
from ..sim.dram import DramModel
from .measure import Network, compiled, integer_module
from .outcome import Outcome


@dataclass(frozen=True)
class Check:
    """A design on the RTL. ``equal``: the network's outputs are those of the graph."""

    core: str
    network: str
    cycles: int
    predicted: int
    equal: bool

    @property
    def good(self) -> bool:
        return self.equal and self.cycles == self.predicted

    def __str__(self) -> str:
        outputs = "outputs equal" if self.equal else "outputs differ from the graph's"
        predicted = "as" if self.cycles == self.predicted else f"{self.predicted:,}"
        return f"{self.core}: {self.network} takes {self.cycles:,} cycles on the RTL, {predicted} predicted; {outputs}"


def validate(points: Sequence[Outcome], network: Network, report: Callable[[str], None]) -> list[Check]:
    """Run a network on the RTL of each point, with its memory. The first use of a core compiles it, for a minute."""
    found = []
    for number, point in enumerate(points, 1):
        assert point.design is not None  # what has figures is a design
        design = point.design
        report(f"point {number} of {len(points)}: {design.config.name}")
        model = compiled(design, network)
        dram = DramModel(latency=design.rate.latency, bytes_per_cycle=design.rate.bytes_per_cycle)
        predicted = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
        module = integer_module(network.path, network.digest, design.config.batch, 0)
        inputs = random_inputs(module, 0)
        loaded = load(model, RtlDevice(design.config, dram=dram))
        results = loaded.run(inputs)
        expected = evaluate(module, inputs)
        equal = all(np.array_equal(results[name], value) for name, value in expected.items())
        found.append(Check(design.config.name, network.name, loaded.cycles or 0, predicted, equal))
    return found
