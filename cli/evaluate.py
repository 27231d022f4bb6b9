"""``weft quantise`` and ``weft evaluate``: what 8 bits cost a float model, and how good a model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from ..quantise.examples import read_examples
from ..runtime.array_files import arrays_in
from ..runtime.errors import InputError
from ..runtime.module import LoadedModule
from .added_passes import PassOption
from .app import app
from .calibrated import Improvements, quantised_module
from .compile import (
    BiasOption,
    EqualiseOption,
    RangesOption,
    RoundingOption,
)
from .output import (
    CacheOption,
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
    labels: LabelsOption = None,
    ranges: RangesOption = "minmax",
    equalise: EqualiseOption = False,
    correct_bias: BiasOption = False,
    adaround: RoundingOption = False,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a float model in 8 bits, by examples, and print what that costs on them: noise and agreement."""
    path = output or model.with_name(f"{model.stem}-8bit.onnx")
    check_places(path)
    shapes = parse_shapes(shape)
    with progress("reading the model", err) as status:
        floats = read(model).module(shapes, require_quantised=False)
        batches = read_examples(calibrate_with, floats)
        right = None if labels is None else read_labels(labels)
        improvements = Improvements(equalise, correct_bias, adaround)
        made = quantised_module(model, shapes, calibrate_with, ranges, improvements, status.update)
        before = results_of(_on_this_machine(floats), batches, "in floats", status.update)
        after = results_of(_on_this_machine(made), batches, "in 8 bits", status.update)
        figures = [compared(name, before[name], after[name], right) for name in before]
        export_onnx(made, path)
    if as_json:
        print_json({"model": str(path), "examples": len(batches), "outputs": figures})
        return
    rows = [
        [
            each["output"], _decibels(each["noise_db"]), _share(each["agreement"]), _share(each["accuracy_floats"]),
            _share(each["accuracy"]),
        ] for each in figures
    ]  # fmt: skip
    columns = ["output", "noise", "same class", "right in floats", "right in 8 bits"]
    out.print(table(f"{model.name} in 8 bits, on {len(batches)} examples of the calibration", columns, rows))
    out.print(
        "noise is below the signal: 30 dB and more is good; at 15 dB look at --equalise, --correct-bias and --adaround",
        highlight=False,
    )
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False, highlight=False)


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
    added: PassOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Run a model on all examples of a file, on any device, and print how many it reads right."""
    with progress("reading", err) as status:
        right = None if labels is None else read_labels(labels)
        compiled = compiled_source(source, target, shape, added, [], chosen, status, cache=cache)
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
