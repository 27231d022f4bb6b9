"""Products of 8-bit integers and of groups of rows, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import weft
from torch import nn
from torch.nn import functional

from tests.compiler.frontends.torch.test_source import results_of


class Bytes(nn.Module):
    """As quantised networks of language have them: weights of 8 bits, activations of 8 bits or floats."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-128, 128, (24, 24), dtype=torch.int8))

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = torch._int_mm(x, self.w)
        return (
            sums,
            torch._int_mm(x, y),
            sums.to(torch.float32) * 0.5,
            torch._weight_int8pack_mm(z, y.mT.contiguous(), z[0, :8]),
        )


class Groups(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor | None = None) -> torch.Tensor:
        return functional.grouped_mm(a.bfloat16(), b.bfloat16(), offs=ends).float()


def test_products_of_bytes_are_exact() -> None:
    torch.manual_seed(0)
    x, y = torch.randint(-128, 128, (32, 24), dtype=torch.int8), torch.randint(-128, 128, (24, 8), dtype=torch.int8)
    x[0], y[:, 0] = -128, -128
    given, module = (x, y, torch.randn(20, 24)), Bytes()
    found, wanted = list(results_of(weft.from_torch(module, given), *given).values()), module(*given)
    for one, other in zip(found[:3], wanted, strict=False):
        assert one.dtype == other.numpy().dtype
        assert (one == other.numpy()).all()
    np.testing.assert_allclose(found[3], wanted[3].numpy(), atol=1e-4 * float(wanted[3].abs().max()))


@pytest.mark.parametrize(
    ("a", "b", "ends"),
    [((12, 16), (4, 16, 8), (3, 3, 7, 12)), ((2, 16), (8, 16, 24), (0, 0, 1, 1, 1, 2, 2, 2)),
     ((4, 5, 16), (16, 24), (8, 8, 16, 24)), ((5, 24), (24, 16), (8, 8, 16, 24)), ((3, 5, 16), (3, 16, 8), None)],
    ids=["rows", "few rows", "columns", "sums", "stacks"],
)  # fmt: skip
def test_products_of_groups(a: tuple[int, ...], b: tuple[int, ...], ends: tuple[int, ...] | None) -> None:
    torch.manual_seed(0)
    offs = () if ends is None else (torch.tensor(ends, dtype=torch.int32),)
    given, module = (torch.randn(a), torch.randn(b), *offs), Groups()
    (found,), wanted = results_of(weft.from_torch(module, given), *given).values(), module(*given).numpy()
    assert abs(wanted).max() > 1
    assert abs(found - wanted).max() <= 2**-7 * abs(wanted).max()
    assert (found == wanted).mean() > 0.95  # each is rounded to 8 digits once


def test_rows_of_other_groups_and_beyond_the_last_end_do_not_count() -> None:
    a, b = torch.ones(12, 16), torch.ones(3, 16, 8)
    a[7:], b[1] = torch.inf, torch.nan
    source = weft.from_torch(Groups(), (a, b, torch.tensor([4, 6, 7], dtype=torch.int32)))
    for ends, wanted in (((4, 4, 7), [16] * 7 + [0] * 5), ((2, 2, 2), [16] * 2 + [0] * 10)):
        (found,) = results_of(source, a, b, torch.tensor(ends, dtype=torch.int32)).values()
        assert (found == np.array(wanted)[:, None]).all()


class Scaled(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one, other, bias, *result = scales
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).mT
        product = torch._scaled_mm
        plain = product(a8, b8, one, other, out_dtype=torch.bfloat16)
        biased = product(a8, b8, one, other, bias=bias.bfloat16(), out_dtype=torch.bfloat16)
        more = product(a8, b8, one, other, scale_result=result[0], out_dtype=torch.bfloat16) if result else plain
        return plain.float(), biased.float(), more.float()


@pytest.mark.parametrize("scales", [((), ()), ((16, 1), (1, 48))], ids=["one", "of rows and columns"])
def test_products_of_scaled_floats_of_8_bits(scales: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    given = torch.randn(16, 32), torch.randn(48, 32), torch.rand(scales[0]) + 1, torch.rand(scales[1]), torch.randn(48)
    module = Scaled()
    found, wanted = results_of(weft.from_torch(module, given), *given).values(), module(*given)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=2**-7, atol=1e-5)


def test_scales_of_results_are_refused() -> None:
    given = torch.randn(16, 32), torch.randn(48, 32), torch.tensor(1.0), torch.tensor(1.0), torch.randn(48)
    with pytest.raises(weft.WeftError, match="scales of the result"):
        weft.compile(weft.from_torch(Scaled(), (*given, torch.tensor(1.0))), target="cpu")
