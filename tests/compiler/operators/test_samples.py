"""Every operator on every element type that it takes: its rules agree, its text reads back, and the manual lists it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Function,
    Module,
    Var,
    constant_table,
    dtypes,
    evaluate_function,
    operators,
    parse,
    to_text,
    topological_order,
)
from weft.compiler.operators.samples import all_samples

EXAMPLES = all_samples()
CALLS = [(name, dtype, node) for name, found in EXAMPLES.items() for dtype, node in found.items()]
SPECIAL = (0, 1, -1, 2, 3, 100, 0.5, -0.25, 1e30, np.inf, -np.inf, np.nan)


def values_of(param: Var, generator: np.random.Generator, special: bool) -> Array:
    """Values of a parameter: of ordinary size, or the awkward ones of its type."""
    dtype = dtypes.numpy_dtype(param.type.dtype)
    shape = param.type.shape
    if param.type.dtype == "bool":
        return generator.random(shape) < 0.5
    if param.type.dtype == dtypes.STRING:  # numbers, which casts can read
        return generator.choice(["0", "12", "-3.5", " 1e2", "NaN"] if special else ["1", "20"], shape).astype(dtype)
    if dtypes.is_float(param.type.dtype):
        wanted = generator.choice(SPECIAL, shape) if special else generator.normal(size=shape)
        with np.errstate(all="ignore"):
            return np.asarray(wanted, np.float32).astype(dtype)
    low, high = dtypes.limits(param.type.dtype)
    if not special:
        low, high = max(low, -3), min(high, 3)
    ends = np.array([low, high, 0, 1], object)
    return np.asarray(generator.choice(ends, shape)).astype(dtype) if special else generator.integers(
        low, high, shape, endpoint=True
    ).astype(dtype)  # fmt: skip


def function_of(node: Call) -> Function:
    params = tuple(item for item in topological_order(node) if isinstance(item, Var))
    return Function(params, node, Attrs({"name": "main"}))


@pytest.mark.parametrize("name", EXAMPLES)
def test_type_and_meaning_agree_for_every_element_type(name: str) -> None:
    generator = np.random.default_rng(0)
    for node in EXAMPLES[name].values():
        function = function_of(node)
        for special in (False, True):
            arguments = [values_of(param, generator, special) for param in function.params]
            result = evaluate_function(function, arguments)  # refuses a value that is not of the node's type
            assert all(isinstance(each, np.ndarray) for each in (result if isinstance(result, tuple) else (result,)))


def test_every_operator_has_a_sample() -> None:
    assert [entry.name for entry in operators()] == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_reads_back(name: str) -> None:
    for node in EXAMPLES[name].values():
        module = Module(function_of(node))
        assert parse(to_text(module), constant_table(module)) == module


def test_half_precision_is_computed_in_float32_and_rounded_once() -> None:
    x = np.array([60000.0], np.float16)
    node = EXAMPLES["nn.sigmoid"]["float16"]
    result = evaluate_function(function_of(node), [np.broadcast_to(x, (2, 3))])
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, np.ones((2, 3), np.float16))


# The manual


def operators_page() -> ModuleType:
    path = Path(__file__).parents[3] / "docs" / "operators.py"
    spec = importlib.util.spec_from_file_location("operators_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manual_lists_every_operator_as_it_is() -> None:
    """A lowering that the manual promises must be there; one that it does not know yet is no error."""
    page: Any = operators_page()
    cells = [line[2:-2].split(" | ") for line in page.PAGE.read_text().splitlines() if line.startswith("| `")]
    shown = {row[0]: row for row in cells}
    problems = []
    for entry in operators():
        row = page.row(entry)
        known = shown.pop(row[0], None)
        if known is None or list(row[:5]) != known[:5]:
            problems.append(f"{entry.name} is not in docs/operators.md as it is")
        elif known[5] == "loops" and row[5] != "loops":
            problems.append(f"{entry.name} has lost its lowering: {row[5]}")
    problems += [f"{name} is in docs/operators.md, but is no operator" for name in shown]
    assert not problems, "\n".join([*problems, "after a change of an operator: python docs/operators.py"])
