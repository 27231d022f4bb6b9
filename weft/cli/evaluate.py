"""``weft quantise`` and ``weft evaluate``: what 8 bits cost a float model, and how good a model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..api import compile as compile_model
from ..api import load
from ..compiler.model import CompiledModel, OpenModel, TensorSpec
from ..compiler.targets.errors import CompileError
from ..files import write_atomically
from ..hw.config import load_config
from ..progress import Updates, progress
from ..runtime.array_files import arrays_in
from ..runtime.module import LoadedModule
from .added_passes import PassOption
from .app import app
from .compile import (
    BiasOption,
    EqualiseOption,
    RangesOption,
    RoundingOption,
)
from .evaluation import (
    Batches,
    check_batch,
    check_labels,
    checked_output,
    classes_in,
    classes_of,
    classes_of_scores,
    examples_of,
    fitting,
    read_labels,
    shape_texts,
    sizes_from,
)  # fmt: skip
from .output import (
    CacheOption,
    CalibrateOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    check_places,
    err,
    input_file,
    out,
    output_file,
    parse_shapes,
    print_json,
    table,
)
from .run import DEFAULT_TARGET, check_device, compiled_source
from .source import given_file, is_artifact
from .target_options import Chosen, with_target_options

if TYPE_CHECKING:  # what is wrong with a command is told before the compiler is imported
    from ..compiler.graph import Module
    from ..quantise.four_bits import FourBits
    from ..quantise.plan import Plan
    from ..quantise.ranges import Range

Array = npt.NDArray[Any]

LabelsOption = Annotated[
    Path | None, input_file("--labels", help="Right classes of the examples: whole numbers in a .npy or .npz file.")
]


@app.command()
def quantise(
    model: Annotated[Path, typer.Argument(help="A float model.")],
    calibrate_with: Annotated[
        Path, input_file("--calibrate", metavar="FILE", help="Examples: a .npz with an array per input, or a .npy.")
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
    core: Annotated[
        str | None,
        typer.Option(
            "--core",
            help="With --weights 4: only weights whose 4 bits save cycles on this core: a name, or a JSON file.",
        ),
    ] = None,
    labels: LabelsOption = None,
    ranges: RangesOption = "minmax",
    equalise: EqualiseOption = False,
    correct_bias: BiasOption = False,
    adaround: RoundingOption = False,
    shape: ShapeOption = None,
    signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a float model in 8 bits, by examples, and print what that costs on them: noise and agreement."""
    path = output or model.with_name(f"{model.stem}-{weights}bit.onnx")
    check_places(path)
    shapes = parse_shapes(shape)
    right = None if labels is None else read_labels(labels)
    arrays_in(calibrate_with)  # a file that is none is told before the model is read
    from ..compiler.exporters import export_onnx, with_tail
    from ..compiler.frontends import module_and_tail, read
    from ..quantise.errors import QuantiseError
    from ..quantise.examples import read_examples
    from ..quantise.insert import quantised
    from .calibrated import Improvements, calibrated_plan

    if weights not in (4, 8) or (group is not None and weights == 8):
        raise QuantiseError(f"--weights {weights}{'' if group is None else f' --group {group}'} is no choice",
                            hint="--weights 8, or --weights 4 with --group")  # fmt: skip
    if core is not None and (weights == 8 or group is not None):
        raise QuantiseError(f"--core {core} is for --weights 4, and says the group", hint="--weights 4 --core pynq-w4")
    with progress("reading the model", err) as status:
        floats, tail = module_and_tail(read(given_file(model, None, signature)), shapes, require_quantised=False)
        batches = read_examples(calibrate_with, floats)
        improvements = Improvements(equalise, correct_bias, adaround)
        places, spans = calibrated_plan(floats, calibrate_with, ranges, improvements, status.update)
        few = FewBits()
        if weights == 4:
            status.update("finding weights of 4 bits")
            few = few_bits(places, group) if core is None else few_that_pay(places, spans, batches, core, status)
        made = quantised(places, spans, few.found)
        before = results_of(_on_this_machine(floats), batches, "in floats", status)
        after = results_of(_on_this_machine(made), batches, "in 8 bits", status)
        figures = [compared(name, before[name], after[name], right) for name in before]
        written = export_onnx(made)
        write_atomically(path, (written if tail is None else with_tail(written, tail)).SerializeToString())
    if as_json:
        document = {"model": str(path), "examples": len(batches), "outputs": figures}
        document |= {"group": few.group, "weights": few.records(places)} if weights == 4 else {}
        print_json(document | ({"cycles": few.cycles[0], "cycles_8_bits": few.cycles[1]} if few.cycles else {}))
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
    if few.cycles:
        out.print(f"{few.cycles[0]:,} cycles on {core}, {few.cycles[1]:,} with weights of 8 bits", highlight=False)
    out.print(table(f"{model.name} in 8 bits, on {len(batches)} examples of the calibration", columns, rows))
    out.print(
        "noise is below the signal: 30 dB and more is good; at 15 dB look at --equalise, --correct-bias and --adaround",
        highlight=False,
    )
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False, highlight=False)


@dataclass(frozen=True)
class FewBits:
    """The weights that have 4 bits, by name, and the group that they were found for. ``others``: why weights that could
    have 4 bits have 8. ``cycles``: on the core that they were chosen for, with them and with weights of 8 bits."""

    group: int = 0
    found: Mapping[str, FourBits] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    cycles: tuple[int, ...] = ()

    def records(self, places: Plan) -> list[dict[str, Any]]:
        """Of every weight: how many bits it has, the noise of 4 below it, and why it has 8."""
        from ..quantise.four_bits import in_eight_bits

        reasons = {**in_eight_bits(places, self.group), **self.others}
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
    from ..quantise.errors import QuantiseError
    from ..quantise.four_bits import best_group, four_bits, in_eight_bits

    group = best_group(places) if group is None else group
    found = four_bits(places, group)
    if not found:
        name, reason = next(iter(in_eight_bits(places, group).items()))
        raise QuantiseError(f"no weight can have 4 bits in groups of {group}: of {name!r} {reason}")
    return FewBits(group, found)


def few_that_pay(
    places: Plan, spans: Mapping[str, Range], batches: Batches, core: str, status: Updates
) -> FewBits:  # fmt: skip
    """The weights of a plan whose 4 bits save cycles on a core, and what each other one would save."""
    from ..quantise.paying import four_bits_that_pay

    config = load_config(core)
    paying = four_bits_that_pay(
        places, spans, batches, lambda module: compile_model(module, config), progress=status.update
    )
    others = {
        name: f"4 bits save {saved:,} cycles, at {paying.noise[name]:.1f} dB"
        for name, saved in paying.saved.items() if name not in paying.found
    }  # fmt: skip
    return FewBits(config.weight_group, paying.found, others, (paying.cycles, paying.before))


@app.command()
@with_target_options
def evaluate(
    source: Annotated[Path, typer.Argument(help="A model, or what 'weft compile' wrote.")],
    data: Annotated[Path, typer.Argument(help="Examples: a .npz with an array per input, or a .npy.")],
    labels: LabelsOption = None,
    device: Annotated[str | None, typer.Option("--device", "-d", help="What runs the core. Default: fsim.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="What to compile a model for. Default: accel.")] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Examples at once, where the model leaves it open. Default: 1."),
    ] = None,
    result: Annotated[str | None, typer.Option("--result", help="The output that has the classes' scores.")] = None,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    added: PassOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Run a model on all examples of a file, on any device, and print how many it reads right."""
    check_device(device, None if is_artifact(source) else target or DEFAULT_TARGET)
    with progress("reading", err) as status:
        right = None if labels is None else read_labels(labels)
        arrays = arrays_in(data)
        from ..compiler.frontends import read
        from ..quantise.examples import batches_in

        if is_artifact(source):
            compiled = compiled_source(source, target, shape, added, [], chosen, status, calibrate=calibrate_with,
                                       kernels=kernels, signature=signature)  # fmt: skip
            assert isinstance(compiled, CompiledModel)  # artifacts have fixed sizes
            check_batch(compiled.inputs, batch)
        else:  # all that is given is looked at before the model is compiled
            opened = read(given_file(source, kernels, signature))
            checked_output(opened.output_names, result)
            sizes = sizes_from(opened, parse_shapes(shape), data, arrays, batch)
            given = opened.inputs(parse_shapes(shape) | sizes)
            batches = batches_in(data, arrays, [TensorSpec(each.name, each.at({}), each.dtype) for each in given])
            if right is not None:
                check_labels(right, batches)
            compiled = compiled_source(source, target, [*(shape or ()), *shape_texts(sizes)], added, [], chosen, status,
                                       cache=cache, calibrate=calibrate_with, kernels=kernels,
                                       signature=signature)  # fmt: skip
        if isinstance(compiled, OpenModel):
            raise CompileError(f"it cannot be evaluated: {compiled.openness}", hint=compiled.way_out("by --shape"))
        batches = batches_in(data, arrays, compiled.inputs)
        if right is not None:
            check_labels(right, batches)
        status.update("loading")
        module = load(compiled, device, progress=status.update)
        assert isinstance(module, LoadedModule)
        found = classes_of(module, batches, result, right, status)
    record: dict[str, Any] = {
        "model": compiled.name,
        "target": compiled.target,
        "examples": examples_of(batches),
        "output": found.output,
        "cycles": module.cycles,
    }
    if right is not None:
        record["right"] = int((found.classes == right).sum())
        record["accuracy"] = record["right"] / found.classes.size
    if as_json:
        print_json(record | {"classes": found.classes.tolist()})
        return
    count = found.classes.size
    if right is None:
        values, counts = np.unique(found.classes, return_counts=True)
        listed = ", ".join(f"{value}: {count}" for value, count in zip(values, counts, strict=True))
        out.print(f"{count:,} results; classes of {found.output!r}: {listed}", highlight=False, markup=False)
    else:
        share = f"{record['right']:,} of {count:,} right, {record['accuracy']:.2%}"
        out.print(f"{share} (output {found.output!r})", highlight=False, markup=False)
    if record["cycles"] is not None:
        out.print(f"{record['cycles']:,} cycles a run", highlight=False)


def _on_this_machine(module: Module) -> LoadedModule:
    loaded = load(compile_model(module, target="cpu"))
    assert isinstance(loaded, LoadedModule)
    return loaded


def results_of(
    module: LoadedModule, batches: Batches, what: str, status: Updates
) -> dict[str, Array]:  # fmt: skip
    """All results, by output: batches one behind the other along the first axis."""
    found: dict[str, list[Array]] = {}
    for number, batch in enumerate(batches, start=1):
        status.count(what, number, len(batches))
        for name, value in module.run(batch).items():
            found.setdefault(name, []).append(value)
    return {name: np.concatenate([np.atleast_1d(value) for value in values]) for name, values in found.items()}


def compared(name: str, floats: Array, integers: Array, right: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """One output in floats and in 8 bits: noise below the signal in dB (None: equal), share of equal classes, accuracy
    of both (None: no scores, or no labels)."""
    wanted = floats.astype(np.float64)  # also of truth values and of bytes, which have no differences of their own
    signal, lost = float((wanted**2).sum()), float(((wanted - integers.astype(np.float64)) ** 2).sum())
    noise = None if lost == 0 else (10 * float(np.log10(signal / lost)) if signal else float("-inf"))
    figures: dict[str, Any] = {"output": name, "noise_db": noise, "agreement": None, "accuracy_floats": None,
                               "accuracy": None}  # fmt: skip
    if floats.ndim >= 2 and floats.shape[-1] > 1:
        ours, theirs = classes_in(integers), classes_in(floats)
        figures["agreement"] = float((ours == theirs).mean())
        if right is not None:
            labels = fitting(right, ours.size, classes_of_scores(floats))
            figures |= {"accuracy_floats": float((theirs == labels).mean()), "accuracy": float((ours == labels).mean())}
    return figures


def _decibels(value: float | None) -> str:
    return "none" if value is None else f"-{value:.1f} dB"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
