"""Functions of mathematics without an operator of their own, beside eager PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn
from torch import special as s
from weft.compiler.frontends import ModelError
from weft.compiler.graph import evaluate_function

from tests.compiler.frontends.torch.test_source import results_of


class Of(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


torch.manual_seed(0)
ANY = torch.cat([5 * torch.randn(40), torch.tensor([0.0, -0.0, -1, -2, 1, 2, 1e-30, 1e30, -5.5, np.nan, np.inf])])
LARGE = torch.cat([20 * torch.randn(40), torch.tensor([0.0, 20, -20, 85, -85, 1e-20, np.nan])])
INSIDE = torch.cat([2 * torch.rand(40) - 1, torch.tensor([0.0, 1, -1, 1 - 6e-8, 1e-20, 2, np.nan])])


def meant(module: nn.Module, *args: torch.Tensor) -> list[Any]:
    """The results by the meanings of the graph's operators."""
    graph = weft.from_torch(module, args).module({})
    with np.errstate(all="ignore"):
        results = evaluate_function(graph.main, [arg.numpy() for arg in args])
    return list(results) if isinstance(results, tuple) else [results]


def found(function: Callable[..., Any], *args: torch.Tensor) -> list[Any]:
    return meant(Of(function), *args)


@pytest.mark.parametrize(
    ("functions", "x"),
    [
        ((torch.lgamma, torch.digamma, lambda x: torch.polygamma(1, x.abs() + 0.1)), ANY),
        (tuple(partial(torch.polygamma, order) for order in (2, 5)), ANY[:-1]),  # at infinity PyTorch has no number
        ((torch.i0, s.i0e, s.i1, s.i1e), LARGE),
        ((torch.erfinv,), INSIDE),
    ],
    ids=["gamma", "derivatives", "bessel", "erfinv"],
)
def test_functions(functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...], x: torch.Tensor) -> None:
    def together(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x) for function in functions)

    for kind, tolerance in ((torch.float32, 3e-7), (torch.float64, 1e-9)):
        given = x.to(kind)
        for one, other in zip(found(together, given), together(given.double()), strict=True):
            assert one.dtype == given.numpy().dtype
            np.testing.assert_allclose(one, other.to(kind).numpy(), rtol=tolerance, atol=1e-14)


def test_machine_code_of_a_function() -> None:
    (one,) = results_of(weft.from_torch(Of(torch.digamma), (ANY,)), ANY).values()
    np.testing.assert_allclose(one, torch.digamma(ANY.double()).float().numpy(), rtol=3e-7)


def test_high_derivatives_of_digamma_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"polygamma.*the derivative of order 21"):
        weft.from_torch(Of(lambda x: torch.polygamma(21, x)), (ANY,)).module({})


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16], ids=str)
def test_mantissas_and_exponents(kind: torch.dtype) -> None:
    powers = 2.0 ** torch.arange(-140, 120, 7)
    x = torch.cat([ANY, powers, -powers * (1 - 2**-24), torch.tensor([torch.finfo(kind).max])]).to(kind)
    for one, other in zip(found(torch.frexp, x), torch.frexp(x), strict=True):
        np.testing.assert_array_equal(one[x.isfinite()], other.numpy()[x.isfinite()])
        assert one.dtype == other.numpy().dtype


@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.uint8], ids=str)
def test_divisors_and_multiples(kind: torch.dtype) -> None:
    a, b = (torch.randint(-128, 128, (60,)).to(kind) for _ in range(2))
    a[:2], b[1:3] = 0, 0
    if kind is torch.int64:
        a[3], b[3] = 7540113804746346429, 4660046610375530309  # of Fibonacci, which take the most steps
    for one, other in zip(found(lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), a, b),
                          (torch.gcd(a, b), torch.lcm(a, b)), strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other.numpy())
