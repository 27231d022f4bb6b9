"""Functions in double precision, compiled for this machine: a few units in the last place from NumPy's, which has at
most one; infinities, nan and the signs of zero as NumPy has them."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll
import numpy as np
import pytest
from weft.compiler.targets.llvm.double_functions import FUNCTIONS, call_double
from weft.compiler.tensor.expressions import FUNCTIONS as ALL

UNITS = 5
EXACT = {"floor", "ceil", "round", "sqrt"}
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 100.0, 0.25, 1e30, -1e30, math.inf, -math.inf, math.nan, 5e-324,
    1e-310, 709.7, -745.1, 710.0, 1e308, 1e22, math.pi / 2, math.pi, 1 - 1e-10, 1 + 1e-10, 0.75, 0.7,
)  # fmt: skip
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh", "pow": "power"}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ll.Module()
    for kind, letter in ((ll.DoubleType(), "d"), (ll.FloatType(), "f")):
        for name in FUNCTIONS:
            function = ll.Function(module, ll.FunctionType(kind, [kind] * ALL[name]), f"{letter}_{name}")
            builder = ll.IRBuilder(function.append_basic_block())
            builder.ret(call_double(builder, name, function.args))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    made = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    made.finalize_object()
    return made


def arguments(name: str) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    if name == "pow":
        bases, exponents = np.abs(generator.normal(0, 30, 2000)), generator.normal(0, 60, 2000)
        return [np.concatenate([np.repeat(SPECIAL, len(SPECIAL)), bases]),
                np.concatenate([np.tile(SPECIAL, len(SPECIAL)), exponents])]  # fmt: skip
    wide = generator.normal(size=2000) * 10.0 ** generator.integers(-20, 300, 2000)
    turns = np.arange(1, 20000) * (math.pi / 2)  # near them all but the last bits cancel
    return [np.concatenate([SPECIAL, generator.normal(0, 3, 3000), generator.uniform(-1, 1, 2000), wide, turns])]


def wanted(name: str, values: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if name == "erf":
            return np.array([math.erf(each) for each in values[0]])
        return np.asarray(getattr(np, NUMPY.get(name, name))(*values))


def test_every_function_without_an_instruction_is_here() -> None:
    assert set(FUNCTIONS) == set(ALL) - EXACT


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doubles(engine: Any, name: str) -> None:
    values = arguments(name)
    address = engine.get_function_address(f"d_{name}")
    function = ctypes.CFUNCTYPE(*[ctypes.c_double] * (len(values) + 1))(address)
    found, right = np.array([function(*each) for each in zip(*values, strict=True)]), wanted(name, values)
    finite = np.isfinite(right)
    np.testing.assert_array_equal(found[~finite], right[~finite])
    number = ~np.isnan(right)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(right[number]))
    units = np.abs(found[finite] - right[finite]) / np.spacing(np.abs(right[finite]))
    assert units.max() <= UNITS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats_by_way_of_doubles(engine: Any, name: str) -> None:
    with np.errstate(over="ignore"):
        values = [each.astype(np.float32) for each in arguments(name)]
    address = engine.get_function_address(f"f_{name}")
    function = ctypes.CFUNCTYPE(*[ctypes.c_float] * (len(values) + 1))(address)
    found = np.array([function(*map(float, each)) for each in zip(*values, strict=True)], np.float32)
    with np.errstate(over="ignore"):
        right = wanted(name, [each.astype(np.float64) for each in values]).astype(np.float32)
    np.testing.assert_allclose(found, right, rtol=1.2e-7, atol=1e-45)
