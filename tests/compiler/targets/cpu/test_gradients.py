"""Gradients as machine code: those of every rule, and of random graphs, are those that NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Module, evaluate, operator
from weft.compiler.graph.dtypes import FLOATS
from weft.compiler.graph.registry import Fusion
from weft.compiler.operators.gradient_cases import (
    Case,
    allowed_error,
    cases,
    moved_off_kinks,
    slope_error,
    values_of,
    widened,
)
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes.gradient import GradientError

CASES = {case.name: case for case in cases("float32", drawn=1)}
IN_NUMPY = ("nn.inverse", "nn.determinant", "nn.deform_conv2d")
"""What has no loops: these operators themselves, and gradients that are made of them."""


def is_usual(case: Case) -> bool:
    """Of an operator whose gradient is more than arithmetic of elements, and as its sample shows it."""
    return case.name == case.op and operator(case.op).fusion in (Fusion.ANCHOR, Fusion.REDUCTION, Fusion.OPAQUE)


def compare(case: Case) -> None:
    gradients = weft.grad(case.module, wrt=case.wrt, seed=True)
    values = values_of(gradients, 0)
    assert values is not None
    model = weft.compile(gradients, target="cpu")
    in_numpy = {name for layer in model.layers if layer.device == "numpy" for name in layer.operators}
    assert in_numpy <= set(IN_NUMPY) or not is_usual(case)
    found = weft.load(model).run(values)
    for name, wanted in evaluate(gradients, values).items():
        largest = max(1.0, float(np.abs(wanted).max(initial=0.0)))
        assert found[name].shape == wanted.shape
        assert float(np.abs(found[name] - wanted).max(initial=0.0)) / largest < 1e-5, name


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if is_usual(case)])
def test_machine_code_computes_gradients(name: str) -> None:
    compare(CASES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not is_usual(case)])
def test_machine_code_computes_gradients_of_every_form(name: str) -> None:
    compare(CASES[name])


def differentiated(module: Module) -> tuple[Module, list[str]] | None:
    """The gradients of a random graph, and the outputs that have some; None without a way from floats to floats."""
    main = module.main
    wrt = [param.name for param in main.params if param.type.dtype in FLOATS]
    of = [name for name, value in zip(main.output_names, main.results, strict=True) if value.dtype in FLOATS]
    if not wrt or not of:
        return None
    try:
        return weft.grad(module, wrt=wrt, of=of, seed=True, values=False), of
    except GradientError:  # an operator without a rule
        return None


@pytest.mark.parametrize("block", range(4))
def test_gradients_of_random_graphs_are_their_slopes(block: int) -> None:
    compared = 0
    for seed in range(block * 15, block * 15 + 15):
        graph = random_graph(seed, nodes=8)
        try:
            module = widened(graph.module)
        except weft.WeftError:  # quantised, or another operator without float64
            continue
        found = differentiated(module)
        if found is None:
            continue
        gradients, _ = found
        generator = np.random.default_rng(seed)
        values = {
            param.name: generator.normal(size=param.type.shape) if given is None else given
            for param in gradients.main.params for given in [graph.inputs.get(param.name)]
        }  # fmt: skip
        values = moved_off_kinks(values, seed)
        assert slope_error(module, gradients, seed, values) <= allowed_error(module), f"graph {seed}"
        compared += 1
    assert compared >= 8
