"""Running results along an axis, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import weft
from torch import nn

from tests.compiler.frontends.torch.test_source import results_of


class Running(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = (x.logcumsumexp(self.dim),) if x.is_floating_point() else ()
        return (*x.cummax(self.dim), *x.cummin(self.dim), *sums)


def tensors() -> list[torch.Tensor]:
    torch.manual_seed(0)
    special = torch.tensor([-np.inf, -np.inf, 1.0, np.nan, np.inf, 2.0, -3.0])
    return [
        torch.randn(5, 7), torch.randint(0, 3, (4, 9)), torch.rand(3, 8) > 0.5, torch.stack([special, special.flip(0)]),
        torch.randn(2, 1), torch.randn(3, 5).half(), 40 * torch.randn(2, 6).double(),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(7))
def test_running_results(number: int) -> None:
    x = tensors()[number]
    for dim in (1, -2):
        module = Running(dim)
        found, wanted = results_of(weft.from_torch(module, (x,)), x).values(), module(x)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.numpy().dtype
            tolerance = 2e-3 if one.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(one, other.numpy(), rtol=tolerance, atol=tolerance)


def test_slopes_of_rrelu_are_their_mean() -> None:
    module, x = nn.RReLU(0.1, 0.5).eval(), torch.randn(3, 4)
    (found,) = results_of(weft.from_torch(module, (x,)), x).values()
    np.testing.assert_allclose(found, module(x).numpy(), rtol=1e-6)
