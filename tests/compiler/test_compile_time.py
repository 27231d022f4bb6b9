"""How compiling grows with the network: calls in Python are counted, so that neither machine nor load matters."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call

WEIGHTS = Constant(np.ones((4, 4, 1, 1), np.float32))


def chain(kind: str, count: int) -> Module:
    """So many operators behind each other: convolutions with sums across them, or elementwise ones."""
    x = Var("x", TensorType((1, 4, 4, 4), "float32"))
    before: Expr = x
    value: Expr = x
    for number in range(count):
        if kind == "elementwise":
            value = call("nn.tanh" if number % 2 else "nn.negative", value)
        elif kind == "residual" and number % 2:
            value = call("nn.add", value, before)
        else:
            before, value = value, call("nn.conv2d", value, WEIGHTS)
    return Module(Function((x,), value, Attrs({"name": "main", "outputs": ("y",)})))


def calls_to_compile(kind: str, count: int) -> int:
    module = chain(kind, count)
    profile = cProfile.Profile()
    profile.runcall(weft.compile, module, target="cpu")
    return sum(entry[1] for entry in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "count"), [("residual", 32), ("elementwise", 128)])
def test_twice_as_many_operators_take_twice_as_many_calls(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    calls_to_compile(kind, 8)  # what is loaded and remembered once
    small, middle, large = (calls_to_compile(kind, count * times) for times in (1, 2, 4))
    assert (large - middle) / (middle - small) < 2.02
