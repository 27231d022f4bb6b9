"""Elementwise operators where PyTorch differs from other tools, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import weft
from torch import nn

from tests.compiler.frontends.torch.test_source import results_of

FLOATS = [0.0, 1.5, -1.5, 127.9, 128.0, -129.0, 255.5, 256.0, -300.0, -0.5, 32768.0, 1e5, -1e5, 2e9, -2e9, 7.0]


class Narrowed(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x[:-1].to(kind) for kind in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool))


class Angles(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.angle(x), torch.angle(x[:5].int()), torch.angle(x > 1)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("module", [Narrowed(), Angles()], ids=["narrowed", "angles"])
def test_floats_wrap_in_small_integers_and_angles_are_those_of_real_numbers(
    module: nn.Module, kind: torch.dtype
) -> None:
    x = torch.tensor([*FLOATS, np.nan]).to(kind)
    x = torch.where(x.isinf(), 7.0, x)  # what float16 has no number for
    found, wanted = results_of(weft.from_torch(module, (x,)), x).values(), module(x)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other.numpy())
        assert one.dtype == other.numpy().dtype
