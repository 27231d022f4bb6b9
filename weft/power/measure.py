"""The power of a core that runs a network: values of its registers from the RTL, energies from cells of a library.

The RTL runs the network once, and tells what all registers and memories hold in a sample of each layer's cycles. From
these follow the values of every net of the core's cells in these cycles, so which changed, and what that took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..api import load
from ..compiler.model import CompiledModel
from ..hw.verilog import TOP, emit_verilog
from ..runtime.device import RtlDevice
from ..runtime.profile import LayerProfile, profile
from ..runtime.profile_whatif import predict_runs
from ..sim.dram import DramModel
from ..sim.states import StateRecording
from ..sim.verilated_names import member_name
from .activity import Evaluator
from .cell_modules import mapped_modules
from .errors import PowerError
from .estimate import WIRES, Energies, ModuleEnergies, added
from .flat import FlatNetlist, flatten
from .liberty import read_library

Progress = Callable[[str], None]
Path_ = tuple[str, ...]

WINDOW = 256
"""Consecutive cycles of a sample. Values are words of 64 cycles; the last cycle of a window only ends a change."""

SAMPLES = 2048
"""Cycles of a layer that are looked at, if it has more."""


@dataclass(frozen=True)
class LayerPower:
    """A layer with what it took, in picojoules by module, scaled from ``sampled`` of its cycles to all of them.

    ``deviation``: the standard error of its energy, a part of 1, from how much the windows of the sample differ; 0
    where all cycles were looked at."""

    layer: LayerProfile
    energies: ModuleEnergies
    sampled: int
    deviation: float

    @property
    def picojoules(self) -> float:
        return float(self.energies.total.sum())


@dataclass(frozen=True)
class Power:
    """A run of a model. ``wrong``: bits of registers that the cells gave another value than the RTL did, of
    ``compared``; 0 says that the netlist is the RTL as far as it was seen."""

    model: CompiledModel
    library: str
    volts: float
    scale: float
    """Energies of the library, of those that were published for 45 nm."""
    layers: tuple[LayerPower, ...]
    modules: tuple[Path_, ...]
    cells: npt.NDArray[np.int64]
    registers: npt.NDArray[np.int64]
    leakage_w: npt.NDArray[np.float64]
    wrong: int
    compared: int

    @property
    def cycles(self) -> int:
        return sum(each.layer.cycles for each in self.layers)

    @property
    def energies(self) -> ModuleEnergies:
        return added([each.energies for each in self.layers])


def measure_power(
    model: CompiledModel,
    inputs: Mapping[str, npt.NDArray[np.generic]],
    liberty: Path,
    *,
    dram: DramModel | None = None,
    samples: int = SAMPLES,
    wires: float = WIRES,
    progress: Progress | None = None,
) -> Power:
    """Run a model on the RTL of its core and tell what its cells take.

    ``liberty``: cells with power tables. ``dram``: the memory behind the core, as fast as its bus by default.
    ``samples``: cycles looked at of each layer. :class:`PowerError` says what is missing.
    """
    if model.core is None:
        raise PowerError(f"nothing of {model.name!r} runs on a core", hint="compile it for target 'accel'")
    report = progress or (lambda message: None)
    library = read_library(liberty)
    memory = dram or DramModel.of(model.config)
    runs = predict_runs(model, memory)
    layers = profile(model, runs, "model", memory).layers
    windows = [list(windows_of(each.start, each.end, samples)) for each in layers]
    report("writing Verilog")
    verilog = emit_verilog(model.config)
    netlist = flatten(mapped_modules(verilog, liberty, library, progress=report), library)
    energies = Energies(netlist, library, wires)
    recording = _recorded(model, inputs, memory, [each for layer in windows for each in layer], report)
    names = _names(netlist, recording)
    evaluator = Evaluator(netlist, library, names)
    found, place, wrong, compared = [], 0, 0, 0
    registers = sum(len(each.value) for each in evaluator.registers)
    for number, (layer, own) in enumerate(zip(layers, windows, strict=True), 1):
        report(f"cells of layer {number} of {len(layers)}")
        parts: list[tuple[int, ModuleEnergies]] = []
        for first, stop in own:
            start, place = place, place + stop - first
            changes = evaluator.changes(lambda path: recording.bits(names[path], start, place), stop - first)  # noqa: B023
            parts.append((changes.pairs, energies.of(changes, evaluator.register_groups)))
            wrong, compared = wrong + changes.wrong, compared + changes.pairs * registers
        found.append(scaled_power(layer, own, parts, len(netlist.modules)))
    return Power(model, library.name, library.volts, library.scale, tuple(found), netlist.modules, energies.cells,
                 energies.registers, energies.leakage_w, wrong, compared)  # fmt: skip


def windows_of(first: int, stop: int, samples: int) -> Iterator[tuple[int, int]]:
    """Windows of :data:`WINDOW` cycles, evenly over a layer: all of it, if it has no more cycles than ``samples``."""
    count = max(1, min(-(-(stop - first) // WINDOW), samples // WINDOW))
    whole = stop - first <= count * WINDOW
    for number in range(count):
        begin = first + (number * WINDOW if whole else round(number * (stop - first - WINDOW) / max(1, count - 1)))
        end = min(begin + WINDOW, stop)
        if end - begin > 1:
            yield begin, end


def _recorded(
    model: CompiledModel, inputs: Mapping[str, npt.NDArray[np.generic]], dram: DramModel,
    windows: Sequence[tuple[int, int]], report: Progress,
) -> StateRecording:  # fmt: skip
    recording = StateRecording(windows)
    device = RtlDevice(model.config, dram=dram, progress=report)
    device.record_states(recording)
    report("running on the RTL")
    with load(model, device) as module:
        module.run(dict(inputs))
    return recording


def _names(netlist: FlatNetlist, recording: StateRecording) -> dict[Path_, str]:
    """Of the netlist's known nets those that were recorded, with the name of each in the recording."""
    names = {}
    for path in netlist.known:
        *above, name = path
        # An array of one entry is a register.
        own = member_name((TOP, *above, name.removesuffix("[0]"))) if above or name not in recording.places else name
        if own in recording.places:
            names[path] = own
    return names


def scaled_power(
    layer: LayerProfile,
    windows: Sequence[tuple[int, int]],
    parts: Sequence[tuple[int, ModuleEnergies]],
    modules: int,
) -> LayerPower:
    """A layer's power from ``parts``: of each window its pairs of cycles and what they took."""
    pairs = sum(count for count, _ in parts)
    if not pairs:  # of a cycle or none: nothing changes inside it
        return LayerPower(layer, ModuleEnergies(*np.zeros((4, modules))), 0, 0.0)
    scaled = added([energies for _, energies in parts], layer.cycles / pairs)
    sampled = sum(stop - first for first, stop in windows)
    deviation = 0.0
    if sampled < layer.cycles and len(parts) > 1:
        rates = np.array([energies.total.sum() / count for count, energies in parts])
        deviation = float(rates.std(ddof=1) / np.sqrt(len(rates)) / rates.mean())
    return LayerPower(layer, scaled, sampled, deviation)
