"""Points of a front on the RTL: a network's result and its cycles there, against the graph and the timing model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..api import load
from ..compiler.graph import evaluate
from ..compiler.passes.manager import random_inputs
from ..runtime.device import RtlDevice
from ..runtime.profile_whatif import predict_runs
from ..sim.dram import DramModel
from .errors import ExploreError
from .measure import Network, compiled, integers_on_host
from .outcome import Outcome
from .rounds import measure_point
from .space import Design
from .system_space import SystemDesign


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
    """Run a network on the RTL of each point, with its memory. The first use of a core compiles it, for a minute. On a
    system every core has an image of its own. ExploreError for cores that are not alike."""
    found = []
    for point in points:
        if point.design is not None and point.design.system is not None and not point.design.system.alike:
            raise ExploreError("a front with systems of unlike cores cannot be validated on the RTL",
                               hint="validate a space of alike cores")  # fmt: skip
    for number, point in enumerate(points, 1):
        assert point.design is not None  # what has figures is a design
        design = point.design
        report(f"point {number} of {len(points)}: {design.config.name}")
        if design.system is not None:
            found.append(_on_system(design, design.system, network))
            continue
        model = compiled(design, network)
        dram = DramModel(latency=design.rate.latency, bytes_per_cycle=design.rate.bytes_per_cycle)
        predicted = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
        module = integers_on_host(design, network)
        inputs = random_inputs(module, 0)
        loaded = load(model, RtlDevice(design.config, dram=dram))
        results = loaded.run(inputs)
        expected = evaluate(module, inputs)
        equal = all(np.array_equal(results[name], value) for name, value in expected.items())
        found.append(Check(design.config.name, network.name, loaded.cycles or 0, predicted, equal))
    return found


def _on_system(design: Design, system: SystemDesign, network: Network) -> Check:
    """An image on every core of a system at once."""
    pictures = replace(system, split="pictures")
    predicted = measure_point(replace(design, system=pictures), network).cycles
    module = integers_on_host(design, network)
    items = [random_inputs(module, seed) for seed in range(len(design.cores))]
    model = compiled(replace(design, system=None), network)
    loaded = load(model, "rtl", system=system.config, dram=system.memory)
    results = loaded.run(items)
    equal = all(
        np.array_equal(result[name], value)
        for item, result in zip(items, results, strict=True) for name, value in evaluate(module, item).items()
    )  # fmt: skip
    return Check(f"{len(items)} x {design.config.name}", network.name, loaded.cycles or 0, predicted, equal)
