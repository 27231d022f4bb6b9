"""Modes and histograms, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.compiler.frontends.torch.test_special import found


@pytest.mark.parametrize(
    ("x", "dim", "keepdim"),
    [
        (torch.randint(0, 4, (5, 30)), 1, True),
        (torch.randint(0, 9, (6, 4, 9)).float(), 1, False),
        (torch.rand(12, 3) > 0.5, 0, False),
        (torch.tensor([[3, 1, 1, np.nan, np.nan]]), 1, False),
        (torch.randn(4, 1), 1, False),
        (torch.tensor(3.0), 0, False),
    ],
)
def test_mode(x: torch.Tensor, dim: int, keepdim: bool) -> None:
    """PyTorch names any place of the value."""
    value, place = found(lambda x: torch.mode(x, dim, keepdim), x)
    wanted = torch.mode(x, dim, keepdim)
    np.testing.assert_array_equal(value, wanted.values.numpy())
    there = torch.from_numpy(place) if keepdim or not x.ndim else torch.from_numpy(place).unsqueeze(dim)
    picked = (x.gather(dim, there) if keepdim or not x.ndim else x.gather(dim, there).squeeze(dim)).numpy()
    np.testing.assert_array_equal(picked, value)
    assert place.dtype == np.int64


@pytest.mark.parametrize("ends", [(10,), (10, -1, 1), (7, 0, 0), (5, 2, 3)])
def test_histogram(ends: tuple[int, ...]) -> None:
    for x in (torch.randn(20, 15), torch.zeros(4), torch.arange(12.0).double(), torch.tensor([1.0, np.nan])):
        if x.isnan().any() and len(ends) < 3:
            continue  # without ends PyTorch refuses what is no number
        if x.isnan().any() and ends[1] == ends[2]:
            continue
        (counts,) = found(lambda x: torch.histc(x, *ends), x)
        np.testing.assert_array_equal(counts, torch.histc(x, *ends).numpy())


def test_numbers_among_boundaries() -> None:
    def program(b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.bucketize(0.5, b), torch.bucketize(0.5, b, right=True), torch.searchsorted(b, 1),
                torch.searchsorted(b, 0.3, out_int32=True))  # fmt: skip

    bounds = torch.linspace(0, 1, 9)
    for one, other in zip(found(program, bounds), program(bounds), strict=True):
        np.testing.assert_array_equal(one, other.numpy())
