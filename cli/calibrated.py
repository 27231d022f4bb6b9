"""A float model of the command line in 8 bits: what ``--calibrate`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..compiler.frontends import Source, read
from ..compiler.graph import Module
from ..quantise.equalise import equalised
from ..quantise.examples import read_examples
from ..quantise.insert import quantised
from ..quantise.plan import Plan, plan
from ..quantise.ranges import Method, Range, calibrate
from ..quantise.refine import refined
from ..runtime.array_files import arrays_in


class Improvements(NamedTuple):
    """What is done beside calibration."""

    equalise: bool
    correct_bias: bool
    adaround: bool


def quantised_module(
    model: Path | Source, shapes: Mapping[str, Sequence[int]], examples: Path, ranges: Method,
    improvements: Improvements, report: Callable[[str], None],
) -> Module:  # fmt: skip
    """A float model in 8 bits, by examples in a file."""
    return quantised(*calibrated_plan(model, shapes, examples, ranges, improvements, report))


def calibrated_plan(
    model: Path | Source, shapes: Mapping[str, Sequence[int]], examples: Path, ranges: Method,
    improvements: Improvements, report: Callable[[str], None],
) -> tuple[Plan, dict[str, Range]]:  # fmt: skip
    """What of a float model becomes 8 bits, and its ranges, by examples in a file."""
    arrays_in(examples)  # a file that is none is told before all else
    report("reading the model")
    module = read(model).module(shapes, require_quantised=False)
    places = plan(module)
    batches = read_examples(examples, module)
    if improvements.equalise:
        places = equalised(places, batches, progress=report)
    found = calibrate(places, batches, method=ranges, progress=report)
    if improvements.correct_bias or improvements.adaround:
        bias, rounding = improvements.correct_bias, improvements.adaround
        places = refined(places, found, batches, bias=bias, rounding=rounding, progress=report)
    return places, found
