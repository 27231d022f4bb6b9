"""exp by the instruction for powers of two."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call

from .graphs import RUN_ON


def found(op: str, x: np.ndarray, gpu: str, **attrs: float) -> np.ndarray:
    variable = Var("x", TensorType(x.shape, "float32"))
    module = Module(Function((variable,), call(op, variable, **attrs), Attrs({"name": "main", "outputs": ("y",)})))
    (result,) = (
        weft.load(weft.compile(module, target="cuda", gpu=gpu, strict=True), RUN_ON["cuda"]).run({"x": x}).values()
    )
    return result


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
def test_exact_to_the_last_places_over_the_whole_range(gpu: str) -> None:
    """Against NumPy in double precision; below the smallest normal number the distance is that of its neighbours."""
    x = np.linspace(-104, 88.7, 20001).astype(np.float32)
    wanted = np.exp(x.astype(np.float64))
    apart = np.abs(found("nn.exp", x, gpu) - wanted) / np.maximum(wanted, 2.0**-126)
    assert apart.max() < 3e-7


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
def test_beyond_the_range(gpu: str) -> None:
    limit = np.float32(88.72283935546875)  # of single precision
    x = np.array([np.inf, -np.inf, np.nan, limit, np.nextafter(limit, np.float32(99)), 88.72285, 89, 1e10, 3e38, -105,
                  -1e10, -3e38, 0, -0.0], np.float32)  # fmt: skip
    with np.errstate(over="ignore"):
        wanted = np.exp(x)
    np.testing.assert_array_equal(found("nn.exp", x, gpu), wanted)
    np.testing.assert_allclose(found("nn.tanh", x, gpu), np.tanh(x), rtol=1e-6)


def test_extremes_of_what_is_no_number() -> None:
    x = np.array([np.nan, -1, 2, np.inf, -np.inf, -0.0], np.float32)
    assert np.array_equal(found("nn.clip", x, "sm_80", low=0.0), np.array([np.nan, 0, 2, np.inf, 0, 0]), equal_nan=True)
