"""What ``weft evaluate`` does with a loaded model: all batches of a file, and how many are read right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.ir import GraphError
from ..compiler.graph.symbolic import SymbolicInput, bind_sizes
from ..compiler.model import TensorSpec
from ..progress import Updates
from ..runtime.array_files import arrays_in
from ..runtime.errors import InputError
from ..runtime.inputs import named_inputs
from ..runtime.module import LoadedModule

if TYPE_CHECKING:
    from ..compiler.frontends import Source

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Batches = Sequence[Mapping[str, Array]]
Arrays = Array | Mapping[str, Array]


def sizes_from(
    model: Source, shapes: Mapping[str, Sequence[int]], path: Path, arrays: Arrays, batch: int | None
) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs that leave sizes open, with ``batch`` examples at once (1, if None) where the first size is
    open; other open sizes are those of the arrays. InputError where they do not fit, or where the batch is fixed."""
    declared = model.inputs(shapes)
    given = named_inputs(arrays, [each.name for each in declared])
    opened = [each for each in declared if any(isinstance(size, str) for size in each.shape)]
    wanted = {each.name: _one_batch(each, given[each.name], batch) for each in declared}
    try:
        sizes = bind_sizes(opened, wanted)
    except GraphError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from None
    return {each.name: each.at(sizes) for each in opened}


def _one_batch(declared: SymbolicInput, given: Array, batch: int | None) -> tuple[int, ...]:
    if not declared.shape:
        return given.shape
    first = declared.shape[0]
    if isinstance(first, str):
        return (batch or 1, *given.shape[1:])
    if batch not in (None, first):
        raise InputError(f"--batch {batch}: the batch of input {declared.name!r} is fixed, {declared}",
                         hint="leave out --batch, or export the model with an open batch")  # fmt: skip
    return (first, *given.shape[1:])


def check_batch(inputs: Sequence[TensorSpec], batch: int | None) -> None:
    """InputError for another batch than that of a compiled model."""
    for each in inputs:
        if batch is not None and each.shape[:1] != (batch,):
            raise InputError(f"--batch {batch}: input {each.name!r} is compiled as {each.dtype}{list(each.shape)}",
                             hint="leave out --batch")  # fmt: skip


def shape_texts(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """As ``--shape`` takes them."""
    return [f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items()]


@dataclass(frozen=True)
class Found:
    """The class of each result, in order."""

    output: str
    classes: Classes


def classes_of(
    module: LoadedModule, batches: Batches, output: str | None, labels: Classes | None, status: Updates
) -> Found:
    """Run all batches, one after the other; only the classes are kept. InputError for an output that has no scores and,
    after the first batch, for labels that are not as many as the results will be, or name no class of them."""
    name = checked_output(module.model.results, output)
    found: list[Classes] = []
    right = count = 0
    for done, batch in enumerate(batches):
        said = f", {right / count:.1%} right so far" if labels is not None and count else ""
        status.count(f"running{said}", done, len(batches))
        scores = module.run(batch)[name]
        classes = classes_in(scores)
        if labels is not None:
            if not done:
                fitting(labels, classes.size * len(batches), classes_of_scores(scores))
            right += int((classes == labels[count : count + classes.size]).sum())
        count += classes.size
        found.append(classes)
    status.count("running", len(batches), len(batches))
    return Found(name, np.concatenate(found))


def checked_output(names: Sequence[str], output: str | None) -> str:
    """The output that has the scores: by default the first. InputError for one that is not there."""
    if output is not None and output not in names:
        raise InputError(f"the model has no output {output!r}", hint=f"its outputs: {', '.join(names)}")
    return output or names[0]


def read_labels(path: Path) -> Classes:
    """Whole numbers, one for each example. InputError for a file of anything else."""
    given = arrays_in(path)
    if isinstance(given, dict):
        if len(given) != 1:
            raise InputError(f"{path} has {len(given)} arrays, but labels are one", hint="np.save writes one array")
        given = next(iter(given.values()))
    if given.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are whole numbers, not {given.dtype}")
    return given.reshape(-1).astype(np.int64)


def classes_in(scores: Array) -> Classes:
    """The class of each example: the place of its largest score, or what an output of whole numbers, one for each
    example, says."""
    if _are_classes(scores):
        return scores.reshape(-1).astype(np.int64)
    if scores.ndim < 2 or not scores.size:
        raise InputError(f"an output of shape {list(scores.shape)} has no scores of classes in its last axis",
                         hint="--result names another output")  # fmt: skip
    places: Classes = scores.argmax(-1).reshape(-1).astype(np.int64)
    return places


def classes_of_scores(scores: Array) -> int | None:
    """How many classes an output tells apart; None for one that names a class itself."""
    return None if _are_classes(scores) else scores.shape[-1]


def _are_classes(scores: Array) -> bool:
    return scores.dtype in (np.int32, np.int64) and scores.size == len(np.atleast_1d(scores))


def fitting(labels: Classes, results: int, classes: int | None) -> Classes:
    """Labels, if they are as many as results and each is one of so many classes."""
    if labels.size != results:
        raise InputError(f"there are {labels.size:,} labels, but {results:,} results")
    if classes is None:
        return labels
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        first = outside[0]
        raise InputError(f"label {labels[first]} of result {first} is none of the {classes:,} classes",
                         hint="classes count from 0; leave out examples that have none")  # fmt: skip
    return labels


def examples_of(batches: Batches) -> int:
    """How many examples batches have."""
    return sum(len(next(iter(batch.values()))) for batch in batches)


def check_labels(labels: Classes, batches: Batches) -> None:
    """InputError for labels that cannot be as many as the results of these batches, before a model is compiled: there
    are one or several for each example."""
    examples = examples_of(batches)
    if not examples or not labels.size or labels.size % examples:
        raise InputError(f"there are {labels.size:,} labels, but {examples:,} examples",
                         hint="labels are one for each example, in their order")  # fmt: skip
