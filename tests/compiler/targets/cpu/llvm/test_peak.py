"""Code that only computes: every round multiplies for every sum, in the form that kernels have; the sums are right."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from weft.compiler.targets.cpu.llvm.peak import SYMBOL, byte_peak, byte_text, float_peak, float_text, sums_of
from weft.compiler.targets.cpu.processor import PROCESSORS, executable_here, named_target
from weft.runtime.machine_code import MachineCode

from ..test_byte_forms import loop_of, loop_of_the_form

ROUNDS = 7


@pytest.mark.parametrize("name", PROCESSORS)
def test_each_round_multiplies_for_every_sum(name: str) -> None:
    processor = named_target(name)
    loop, products = loop_of_the_form(byte_text(processor), processor, paired=True)
    assert products >= sums_of(processor), "\n".join(loop)
    if name == "armv7a-ieee":  # floats one by one
        return
    loop, products = loop_of(float_text(processor), processor.for_floats, r"v?(fmadd\w*|mulps|fmla|mla\.f32|mul\.f32)")
    assert products >= sums_of(processor), "\n".join(loop)


@pytest.mark.parametrize("name", executable_here())
def test_sums_are_those_of_the_factors(name: str) -> None:
    processor, random = named_target(name), np.random.default_rng(0)
    factors = random.integers(-128, 128, sums_of(processor) * processor.vector_bytes).astype(np.int8)
    factors[:4] = 100, -128, 60, 68  # pairs of weights that the products of pairs bear
    values = factors.view(np.uint8).reshape(-1, processor.float_lanes, 4).astype(np.int64)
    wanted = ROUNDS * (values * factors[:4].astype(np.int64)).sum((0, 2))
    np.testing.assert_array_equal(total(byte_peak(processor)[0], factors, np.zeros(wanted.size, np.int32)), wanted)
    halves = (random.integers(-8, 8, factors.size // 4) / 4).astype(np.float32)
    exact = ROUNDS * halves[0] * halves.reshape(-1, processor.float_lanes).sum(0)
    np.testing.assert_array_equal(total(float_peak(processor)[0], halves, np.zeros_like(exact)), exact)


def total(code: bytes, factors: np.ndarray, result: np.ndarray) -> np.ndarray:
    held = MachineCode([code], [SYMBOL])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    kind(held.address(SYMBOL))(ROUNDS, factors.ctypes.data, result.ctypes.data)
    return result
