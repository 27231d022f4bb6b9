"""``weft quantise`` and ``weft evaluate``: what 8 bits cost a float model, and how good a model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..api import compile as compile_model
from ..api import load
from ..compiler.exporters import export_onnx
from ..compiler.frontends import read
from ..compiler.graph import Module, TensorType, Var
from ..compiler.model import CompiledModel, OpenModel
from ..compiler.targets.errors import CompileError
from ..progress import progress
from ..quantise.errors import QuantiseError
from ..quantise.examples import read_examples
from ..quantise.four_bits import FourBits, best_group, four_bits, in_eight_bits
from ..quantise.insert import quantised
from ..quantise.plan import Plan
from ..runtime.array_files import arrays_in
from ..runtime.errors import InputError
from ..runtime.module import LoadedModule
from .added_passes import PassOption
from .app import app
from .calibrated import Improvements, calibrated_plan
from .compile import (
    BiasOption,
    EqualiseOption,
    RangesOption,
    RoundingOption,
)
from .output import (
    CacheOption,
    CalibrateOption,
    JsonOption,
    ShapeOption,
    check_places,
    err,
    out,
    output_file,
    parse_shapes,
    print_json,
    table,
)
from .run import compiled_source
from .target_options import Chosen, with_target_options

Array = npt.NDArray[Any]
Batches = Sequence[Mapping[str, Array]]

LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="Right classes of the examples: whole numbers in a .npy or .npz file.")
]


@app.command()
def quantise(
    model: Annotated[Path, typer.Argument(help="A float model.")],
    calibrate_with: Annotated[
        Path, typer.Option("--calibrate", metavar="FILE", help="Examples: a .npz with an array per input, or a .npy.")
    ],
    output: Annotated[
        Path | None, output_file("--output", "-o", help="The model in 8 bits, as ONNX. Default: MODEL-8bit.onnx.")
    ] = None,
    weights: Annotated[
        int, typer.Option("--weights", help="Bits of a weight: 8, or 4 where groups allow it, for cores that unpack.")
    ] = 8,
    group: Annotated[
        int | None,
        typer.Option(
            "--group",
            help="Weights of 4 bits that share a scale: the core's weight_group. Default: what fits most weights.",
        ),
    ] = None,
    labels: LabelsOption = None,
    ranges: RangesOption = "minmax",
    equalise: EqualiseOption = False,
    correct_bias: BiasOption = False,
    adaround: RoundingOption = False,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a float model in 8 bits, by examples, and print what that costs on them: noise and agreement."""
    if weights not in (4, 8) or (group is not None and weights == 8):
        raise QuantiseError(f"--weights {weights}{'' if group is None else f' --group {group}'} is no choice",
                            hint="--weights 8, or --weights 4 with --group")  # fmt: skip
    path = output or model.with_name(f"{model.stem}-{weights}bit.onnx")
    check_places(path)
    shapes = parse_shapes(shape)
    with progress("reading the model", err) as status:
        floats = read(model).module(shapes, require_quantised=False)
        batches = read_examples(calibrate_with, floats)
        right = None if labels is None else read_labels(labels)
        improvements = Improvements(equalise, correct_bias, adaround)
        places, spans = calibrated_plan(model, shapes, calibrate_with, ranges, improvements, status.update)
        few = FewBits()
        if weights == 4:
            status.update("finding weights of 4 bits")
            few = few_bits(places, group)
        made = quantised(places, spans, few.found)
        before = results_of(_on_this_machine(floats), batches, "in floats", status.update)
        after = results_of(_on_this_machine(made), batches, "in 8 bits", status.update)
        figures = [compared(name, before[name], after[name], right) for name in before]
        export_onnx(made, path)
    if as_json:
        document = {"model": str(path), "examples": len(batches), "outputs": figures}
        print_json(document | ({"group": few.group, "weights": few.records(places)} if weights == 4 else {}))
        return
    rows = [
        [
            each["output"], _decibels(each["noise_db"]), _share(each["agreement"]), _share(each["accuracy_floats"]),
            _share(each["accuracy"]),
        ] for each in figures
    ]  # fmt: skip
    columns = ["output", "noise", "same class", "right in floats", "right in 8 bits"]
    if weights == 4:
        rows4 = [
            [each["weight"], "x".join(map(str, each["shape"])), str(each["bits"]),
             "" if each["noise_db"] is None else _decibels(each["noise_db"]), each["reason"]]
            for each in few.records(places)
        ]  # fmt: skip
        title = f"weights of 4 bits in groups of {few.group}, for cores with weight_group {few.group}"
        out.print(table(title, ["weight", "shape", "bits", "noise", "why 8 bits"], rows4, named=4))
    out.print(table(f"{model.name} in 8 bits, on {len(batches)} examples of the calibration", columns, rows))
    out.print(
        "noise is below the signal: 30 dB and more is good; at 15 dB look at --equalise, --correct-bias and --adaround",
        highlight=False,
    )
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False, highlight=False)


@dataclass(frozen=True)
class FewBits:
    """The weights that have 4 bits, by name, and the group that they were found for."""

    group: int = 0
    found: Mapping[str, FourBits] = field(default_factory=dict)

    def records(self, places: Plan) -> list[dict[str, Any]]:
        """Of every weight: how many bits it has, the noise of 4 below it, and why it has 8."""
        reasons = in_eight_bits(places, self.group)
        return [
            {
                "weight": weight.name,
                "shape": list(weight.value.shape),
                "bits": 4 if weight.name in self.found else 8,
                "noise_db": self.found[weight.name].decibels if weight.name in self.found else None,
                "reason": reasons.get(weight.name, ""),
            }
            for weight in places.weights.values()
        ]


def few_bits(places: Plan, group: int | None) -> FewBits:
    """All weights of a plan in 4 bits that can be. QuantiseError where none can, or for a group that no core has."""
    group = best_group(places) if group is None else group
    found = four_bits(places, group)
    if not found:
        name, reason = next(iter(in_eight_bits(places, group).items()))
        raise QuantiseError(f"no weight can have 4 bits in groups of {group}: of {name!r} {reason}")
    return FewBits(group, found)


@app.command()
@with_target_options
def evaluate(
    source: Annotated[Path, typer.Argument(help="A model, or what 'weft compile' wrote.")],
    data: Annotated[Path, typer.Argument(help="Examples: a .npz with an array per input, or a .npy.")],
    labels: LabelsOption = None,
    device: Annotated[str | None, typer.Option("--device", "-d", help="What runs the core. Default: fsim.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="What to compile a model for. Default: accel.")] = None,
    result: Annotated[str | None, typer.Option("--result", help="The output that has the classes' scores.")] = None,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    added: PassOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Run a model on all examples of a file, on any device, and print how many it reads right."""
    with progress("reading", err) as status:
        right = None if labels is None else read_labels(labels)
        arrays_in(data)  # a file that is none is told before the model is compiled
        compiled = compiled_source(
            source, target, shape, added, [], chosen, status, cache=cache, calibrate=calibrate_with
        )
        if isinstance(compiled, OpenModel):
            raise CompileError("a model with open sizes cannot be evaluated", hint="fix its sizes by --shape")
        batches = read_examples(data, _signature(compiled))
        module = load(compiled, device, progress=status.update)
        assert isinstance(module, LoadedModule)
        found = results_of(module, batches, "running", status.update)
    name = result or next(iter(found))
    if name not in found:
        raise InputError(f"the model has no output {name!r}", hint=f"its outputs: {', '.join(found)}")
    classes = _classes(found[name])
    record: dict[str, Any] = {
        "model": compiled.name,
        "target": compiled.target,
        "examples": len(batches),
        "output": name,
    }
    record["cycles"] = module.cycles
    if right is not None:
        record["right"] = int((classes == _fitting(right, classes)).sum())
        record["accuracy"] = record["right"] / classes.size
    if as_json:
        print_json(record | {"classes": classes.tolist()})
        return
    if right is None:
        values, counts = np.unique(classes, return_counts=True)
        listed = ", ".join(f"{value}: {count}" for value, count in zip(values, counts, strict=True))
        out.print(f"{classes.size:,} results; classes of {name!r}: {listed}", highlight=False, markup=False)
    else:
        share = f"{record['right']:,} of {classes.size:,} right, {record['accuracy']:.2%}"
        out.print(f"{share} (output {name!r})", highlight=False, markup=False)
    if record["cycles"] is not None:
        out.print(f"{record['cycles']:,} cycles a run", highlight=False)


def _on_this_machine(module: Module) -> LoadedModule:
    loaded = load(compile_model(module, target="cpu"))
    assert isinstance(loaded, LoadedModule)
    return loaded


def _signature(model: CompiledModel) -> Module:
    """A module with the inputs of a compiled model, for who reads examples."""
    from ..compiler.graph import Attrs, Function

    params = tuple(Var(each.name, TensorType(each.shape, each.dtype)) for each in model.inputs)
    return Module(Function(params, params[0], Attrs({"name": model.name, "outputs": ("none",)})), "source")


def results_of(
    module: LoadedModule, batches: Batches, what: str, report: Callable[[str], None]
) -> dict[str, Array]:  # fmt: skip
    """All results, by output: batches one behind the other along the first axis."""
    found: dict[str, list[Array]] = {}
    for number, batch in enumerate(batches, start=1):
        report(f"{what}: {number:,} of {len(batches):,} ({number / len(batches):.0%})")
        for name, value in module.run(batch).items():
            found.setdefault(name, []).append(value)
    return {name: np.concatenate([np.atleast_1d(value) for value in values]) for name, values in found.items()}


def read_labels(path: Path) -> npt.NDArray[np.int64]:
    """Whole numbers, one for each example. InputError for a file of anything else."""
    given = arrays_in(path)
    if isinstance(given, dict):
        if len(given) != 1:
            raise InputError(f"{path} has {len(given)} arrays, but labels are one", hint="np.save writes one array")
        given = next(iter(given.values()))
    if given.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are whole numbers, not {given.dtype}")
    return given.reshape(-1).astype(np.int64)


def _classes(scores: Array) -> npt.NDArray[np.int64]:
    """The class of each example: the place of its largest score."""
    if scores.ndim < 2 or not scores.size:
        raise InputError(f"an output of shape {list(scores.shape)} has no scores of classes in its last axis",
                         hint="--result names another output")  # fmt: skip
    places: npt.NDArray[np.int64] = scores.argmax(-1).reshape(-1).astype(np.int64)
    return places


def _fitting(labels: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if labels.size != classes.size:
        raise InputError(f"there are {labels.size:,} labels, but {classes.size:,} results")
    return labels


def compared(name: str, floats: Array, integers: Array, right: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """One output in floats and in 8 bits: noise below the signal in dB (None: equal), share of equal classes, accuracy
    of both (None: no scores, or no labels)."""
    signal, lost = (
        float((floats.astype(np.float64) ** 2).sum()),
        float(((floats - integers).astype(np.float64) ** 2).sum()),
    )
    noise = None if lost == 0 else (10 * float(np.log10(signal / lost)) if signal else float("-inf"))
    figures: dict[str, Any] = {"output": name, "noise_db": noise, "agreement": None, "accuracy_floats": None,
                               "accuracy": None}  # fmt: skip
    if floats.ndim >= 2 and floats.shape[-1] > 1:
        ours, theirs = _classes(integers), _classes(floats)
        figures["agreement"] = float((ours == theirs).mean())
        if right is not None:
            labels = _fitting(right, ours)
            figures |= {"accuracy_floats": float((theirs == labels).mean()), "accuracy": float((ours == labels).mean())}
    return figures


def _decibels(value: float | None) -> str:
    return "none" if value is None else f"-{value:.1f} dB"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
