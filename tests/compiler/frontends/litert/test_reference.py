"""Models read as LiteRT's reference kernels compute them, beside these kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import weft
from weft.compiler.frontends.litert import reference
from weft.compiler.frontends.litert.kernels import REFERENCE

from benchmarks.frontends.litert_suite import EVERYTHING, computed
from benchmarks.zoo.litert_cases import Case
from benchmarks.zoo.litert_models import ModelWriter, interpreted, options
from benchmarks.zoo.litert_roundings import roundings
from benchmarks.zoo.litert_sums import sums

OTHERS = {
    "convolutions": ("CONV_2D int8 by", "DEPTHWISE_CONV_2D uint8"), "dense": ("FULLY_CONNECTED int8",),
    "products": ("BATCH_MATMUL int8", "MUL int8"), "reductions": ("MEAN int8", "MEAN uint8"),
    "transposed": ("TRANSPOSE_CONV int8",), "types": ("QUANTIZE int8 to int8", "QUANTIZE uint8 to uint8"),
    "functions": ("LEAKY_RELU int8", "LEAKY_RELU uint8"), "resizes": ("RESIZE_BILINEAR int8",),
}  # fmt: skip
"""By family how names of cases begin. Of each three are tried; the benchmark tries all."""


def beginning(cases: Iterable[Case], begins: str) -> list[Case]:
    return [each for each in cases if each.name.startswith(begins) and "weights" not in each.name][:3]


CASES = [
    *roundings(), *sums(),
    *(case for family, names in OTHERS.items() for name in names for case in beginning(EVERYTHING[family](), name)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_processors_have_the_reference_kernels_integers(case: Case) -> None:
    wanted = interpreted(case.model, case.arrays, REFERENCE)[0]
    np.testing.assert_array_equal(computed(case, "cpu", kernels=REFERENCE)[0], wanted)


def test_these_cases_tell_the_kernels_apart() -> None:
    pairs = [(computed(case, "cpu")[0], interpreted(case.model, case.arrays, REFERENCE)[0]) for case in CASES]
    apart = [np.any(ours != wanted) for ours, wanted in pairs]
    assert sum(apart) > len(CASES) // 3


def test_sums_are_weighted_where_that_is_the_same_and_looked_up_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are taken, so both are tried above."""
    found = []
    plain: Callable[..., object] = reference._weights_of
    monkeypatch.setattr(reference, "_weights_of", lambda *args: found.append(plain(*args)) or found[-1])
    for case in sums():
        weft.from_litert(case.model, kernels=REFERENCE).module({}, require_quantised=False)
    looked_up = [each for each in found if each is None]
    assert 0 < len(looked_up) < len(found)


def test_kernels_that_do_not_exist_and_files_that_are_none_are_refused() -> None:
    with pytest.raises(weft.WeftError, match="no kernels 'fast'; hint: known: default, reference"):
        weft.from_litert(CASES[0].model, kernels="fast")
    with pytest.raises(weft.WeftError, match="the model: no LiteRT file"):
        weft.from_litert(b"nothing of it")


@pytest.mark.parametrize("scale", [0.011, 0.017, 0.023, 0.031])
def test_a_product_of_a_byte_and_its_function_rounds_twice(scale: float) -> None:
    """It is no table of real numbers, although all of it follows from one byte."""
    net = ModelWriter()
    x, y = net.tensor((1, 256), "int8", 0.05, -7), net.tensor((1, 256), "int8", scale, -100)
    sigmoid = net.tensor((1, 256), "int8", 1 / 256, -128)
    net.op("LOGISTIC", [x], [sigmoid])
    net.op("MUL", [x, sigmoid], [y], options("MulOptions"))
    model, arrays = net.finish([x], [y]), [np.arange(-128, 128, dtype=np.int8)[None]]
    module = weft.load(weft.compile(weft.from_litert(model, kernels="reference"), target="cpu"))
    (spec,) = module.model.inputs
    (found,) = module.run({spec.name: arrays[0]}).values()
    np.testing.assert_array_equal(found, interpreted(model, arrays, "reference")[0])
