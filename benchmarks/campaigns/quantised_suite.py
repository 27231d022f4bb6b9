"""The models of ONNX's suite as float models to be quantised, and the list of those that are not."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from benchmarks.zoo.quantised_forms import LEFT_ALONE, Form, Inputs

Tests = dict[str, tuple[onnx.ModelProto, Inputs]]

LIST = Path(__file__).parents[2] / "tests" / "onnx" / "quantised_suite.txt"
MODERN = 17
"""Opset to which models of kinds that are files, of 2017 and 2018, are converted."""

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Of the suite's tests: all but the nine whole networks, whose weights are random or one number."""

FORMS = tuple(
    Form("QDQ", activation, "QInt8", per_channel=per_channel)
    for activation in ("QUInt8", "QInt8") for per_channel in (False, True)
)  # fmt: skip
"""In which every model is tried."""

NO_MODELS = {
    r"^test_dynamicquantizelinear": "is a quantiser itself: its scale is computed while it runs",
    r"_training_mode": "trains",
    r"^test_resize_downsample_\w*_linear_align_corners": "onnxruntime rounds the size before it places the corners",
}
"""Tests that are no quantised model of anything, or in which onnxruntime differs from ONNX, and why."""


def suite_tests() -> Tests:
    """Tests of ONNX's suite with operators that onnxruntime's quantiser knows, all of whose inputs are tensors."""
    from onnx.backend.test.loader import load_model_tests
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    known = {*QDQRegistry, *QLinearOpsRegistry}
    tests = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [test for kind in KINDS for test in load_model_tests(kind=kind)]
    for test in cases:
        if any(re.search(pattern, test.name) for pattern in NO_MODELS):
            continue
        model = test.model or _modern(onnx.load(Path(test.model_dir) / "model.onnx"))
        if not known & {node.op_type for node in model.graph.node}:
            continue
        arrays = _inputs_of(test)
        fixed = {each.name for each in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in fixed]
        plain = len(arrays) == len(names) and all(isinstance(array, np.ndarray) for array in arrays)
        if plain and any(array.dtype == np.float32 for array in arrays):
            tests[test.name] = (model, dict(zip(names, arrays, strict=True)))
    return tests


def _modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that has scales by channel, where onnx can convert it."""
    with contextlib.suppress(Exception):  # it raises errors of its C++ part
        return version_converter.convert_version(model, MODERN)
    return model


def _inputs_of(test: Any) -> list[Any]:
    """The inputs of a test's first data set; None in place of what is no tensor."""
    if test.model is not None:
        return list(test.data_sets[0][0]) if test.data_sets else []
    files = sorted(Path(test.model_dir, "test_data_set_0").glob("input_*.pb"), key=lambda path: int(path.stem[6:]))
    return [_tensor(path) for path in files]


def _tensor(path: Path) -> Any:
    try:
        return numpy_helper.to_array(onnx.load_tensor(path))
    except Exception:  # a sequence, an optional: protobuf and onnx raise whatever they find
        return None


def with_weights(model: onnx.ModelProto, inputs: Inputs, *, all_operands: bool) -> tuple[onnx.ModelProto, Inputs]:
    """The model with operands as initialisers: those of whole numbers, which are shapes and axes, or ``all_operands``.
    The first input stays one."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    first = next(value.name for value in changed.graph.input if value.name in inputs)
    fixed = [
        name
        for name, value in inputs.items()
        if name != first and (all_operands or value.dtype in (np.int32, np.int64))
    ]
    changed.graph.initializer.extend(numpy_helper.from_array(inputs[name], name) for name in fixed)
    kept = [value for value in changed.graph.input if value.name not in fixed]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    return changed, {name: value for name, value in inputs.items() if name not in fixed}


# The list: what is not quantised, or refused, and why

Found = tuple[str, str, str]
"""Test, state and message of a case."""

LISTED = ("not quantised", "refused")
"""States that the list may name."""


def entry(found: Found) -> str:
    """The list's line for a case that is not equal: its reason without names and numbers."""
    name, state, message = found
    reason = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+|\d[\d,.]*", "_", message)
    return f"{name}: {state}: {' '.join(reason.split())[:110].rstrip()}"


def _is_fine(found: Found) -> bool:
    """Whether integers are equal, or there are none: that is no refusal."""
    return found[1] == "equal" or found[2] == LEFT_ALONE


def listed() -> set[str]:
    """The list's lines."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return {line for line in lines if not line.startswith("#")}


def write_list(found: Iterable[Found]) -> None:
    """Replace the list by what is not quantised and what is refused; nothing else belongs there."""
    head = (
        "# Tests of ONNX's suite that in some form onnxruntime cannot quantise, or then not run, or weft refuses.\n"
        "# Written by: benchmarks/campaigns/quantised_graphs.py suite --update\n"
    )
    lines = sorted({entry(each) for each in found if each[1] in LISTED and not _is_fine(each)})
    LIST.write_text(head + "".join(f"{line}\n" for line in lines))


def surprises(found: Iterable[Found], *, every: bool) -> list[str]:
    """What is not as the list says, one line each. ``every``: the cases are all that there are, so that a line of the
    list without one is a surprise, too."""
    known = listed()
    entries = {entry(each): each for each in found if not _is_fine(each)}
    unlisted = [f"not on the list: {': '.join(each)}" for line, each in entries.items() if line not in known]
    return unlisted + [f"only on the list: {line}" for line in sorted(known - entries.keys()) if every]
