"""Factors of matrices and triangular equations, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import weft
from torch import nn

from tests.compiler.frontends.torch.test_source import results_of


class Factors(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x @ x.mT + 2 * torch.eye(x.shape[-1])
        lower, upper = torch.linalg.cholesky(a), torch.linalg.cholesky(a.triu(), upper=True)
        solve = torch.linalg.solve_triangular
        return (
            lower, upper, torch.cholesky_solve(y, lower), torch.cholesky_solve(y, upper, upper=True),
            torch.cholesky_inverse(upper, upper=True), solve(a, y, upper=False), solve(a, y, upper=True),
            solve(a, y.mT, upper=True, left=False), solve(a, y, upper=False, unitriangular=True),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("x", "y"), [((3, 3), (3, 2)), ((2, 5, 5), (5, 3)), ((2, 2, 4, 4), (2, 4, 1)), ((1, 1), (1, 2))], ids=str
)
def test_factors(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    given = torch.randn(x), torch.randn(y)
    module = Factors()
    found, wanted = results_of(weft.from_torch(module, given), *given).values(), module(*given)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-4 * float(other.abs().max()))


class Determinants(nn.Module):
    """And equations by the older operators."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x @ x.mT + 2 * torch.eye(x.shape[-1])
        solve = torch.triangular_solve
        return (
            torch.logdet(a), *torch.linalg.slogdet(x), *torch.linalg.slogdet(x * 0), *solve(y, a),
            solve(y, a, upper=False)[0], solve(y, a, transpose=True)[0], solve(y, a * 1e-5, unitriangular=True)[0],
            torch.cholesky(a), torch.cholesky(a, upper=True), torch.cholesky_inverse(x.new_zeros(0, 0)),
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (60, 60), (0, 2, 2)], ids=str)
def test_determinants(shape: tuple[int, ...]) -> None:
    """Of 60 rows, too, whose determinant no float32 holds."""
    torch.manual_seed(0)
    given = 10 * torch.randn(shape), torch.randn(*shape[:-1], 2)
    module = Determinants()
    found, wanted = results_of(weft.from_torch(module, given), *given).values(), module(*given)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        finite = other[other.isfinite()].abs()
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-3, atol=1e-4 * float(finite.max()) if len(finite) else 0)
