"""A float model of the command line in 8 bits: what ``--calibrate`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..compiler.frontends import ModelError, Source, module_and_tail, read
from ..compiler.graph import Module
from ..quantise.equalise import equalised
from ..quantise.examples import read_examples
from ..quantise.insert import quantised
from ..quantise.plan import Plan, plan
from ..quantise.ranges import Method, Range, calibrate
from ..quantise.refine import refined
from ..runtime.array_files import arrays_in
from .source import Given


class Improvements(NamedTuple):
    """What is done beside calibration."""

    equalise: bool
    correct_bias: bool
    adaround: bool


def quantised_module(
    model: Given | Source, shapes: Mapping[str, Sequence[int]], examples: Path, ranges: Method,
    improvements: Improvements, report: Callable[[str], None],
) -> Module:  # fmt: skip
    """A float model in 8 bits, by examples in a file. ModelError for one with a tail, which no module holds."""
    arrays_in(examples)  # a file that is none is told before all else
    report("reading the model")
    module, tail = module_and_tail(read(model), shapes, require_quantised=False)
    if tail is not None:
        raise ModelError(f"{tail.reason}: such a model is not quantised on the way",
                         hint="weft quantise writes it in 8 bits, whole; give the file that it writes")  # fmt: skip
    return quantised(*calibrated_plan(module, examples, ranges, improvements, report))


def calibrated_plan(
    module: Module, examples: Path, ranges: Method, improvements: Improvements, report: Callable[[str], None],
) -> tuple[Plan, dict[str, Range]]:  # fmt: skip
    """What of a float model becomes 8 bits, and its ranges, by examples in a file."""
    places = plan(module)
    batches = read_examples(examples, module)
    if improvements.equalise:
        places = equalised(places, batches, progress=report)
    found = calibrate(places, batches, method=ranges, progress=report)
    if improvements.correct_bias or improvements.adaround:
        bias, rounding = improvements.correct_bias, improvements.adaround
        places = refined(places, found, batches, bias=bias, rounding=rounding, progress=report)
    return places, found
