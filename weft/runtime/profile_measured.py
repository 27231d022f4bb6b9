"""What a core without a trace, such as one on a board, says of a run: cycles and counters of whole programs.

The core counts cycles for each engine and class, not for each layer. So a layer's cycles are known where a program is
that layer alone; beside the others stands what the timing model says of the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ..compiler.model import CompiledModel
from ..hw.cycle_class import CycleClass
from ..hw.isa import Engine
from .errors import DeviceError
from .module import StepRun
from .tables import Record, count, records_table, share, total_of, words


def program_records(model: CompiledModel, measured: Sequence[StepRun], predicted: Sequence[StepRun]) -> list[Record]:
    """For each program: its layers, the cycles that the core counted, those of the timing model, and the share by which
    the core took longer. :class:`DeviceError` if there is no program, or the device counted nothing."""
    if not measured:
        raise DeviceError(f"{model.name} has no program on the core, so there are no cycles to account for")
    records = []
    for number, (run, model_run) in enumerate(zip(measured, predicted, strict=True)):
        cycles, expected = run.result.cycles, model_run.result.cycles
        if cycles is None or expected is None:
            raise DeviceError("the device counts no cycles", hint="choose rtl, model or a board")
        layers = sorted({int(layer) for layer in run.step.layer_of if layer >= 0})
        records.append(
            {
                "program": number,
                "layers": [model.layers[layer].name for layer in layers],
                "measured": cycles,
                "predicted": expected,
                "longer": cycles / expected - 1 if expected else 0.0,
                "bytes_read": run.result.bytes_read,
                "bytes_written": run.result.bytes_written,
            }
        )
    return records


def class_records(measured: Sequence[StepRun], predicted: Sequence[StepRun]) -> list[Record]:
    """For each engine and class of cycles that occurs: those that the core counted, those of the timing model."""
    records = []
    for engine in Engine:
        for kind in CycleClass.__members__.values():
            ours, theirs = (
                sum(run.result.counters.get(engine, {}).get(kind, 0) for run in runs) for runs in (measured, predicted)
            )
            if ours or theirs:
                name = kind.name.lower()
                records.append({"engine": engine.name.lower(), "class": name, "measured": ours, "predicted": theirs})
    return records


def measured_tables(
    programs: Sequence[Record], classes: Sequence[Record], clock_mhz: float | None
) -> list[RenderableType]:
    """Both as tables; ``clock_mhz`` is for the title."""
    clock = f" at {clock_mhz:g} MHz" if clock_mhz else ""
    total = {"program": "total", **total_of(programs, "measured", "predicted", "bytes_read", "bytes_written")}
    columns = [
        words("program"), words("layers", fold=True), count("measured"), count("predicted", "timing model"),
        share("longer"), count("bytes_read", "bytes read"), count("bytes_written", "bytes written"),
    ]  # fmt: skip
    shown = [{**record, "class": record["class"].replace("_", " ")} for record in classes]
    counted = [words("engine"), words("class"), count("measured"), count("predicted", "timing model")]
    return [
        records_table(f"cycles of each program, as the core counted them{clock}", columns, programs, [total]),
        records_table("cycles of each engine by class", counted, shown),
    ]
