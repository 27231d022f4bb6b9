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
