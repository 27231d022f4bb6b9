"""Programs with complex numbers inside, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn
from weft.compiler.frontends import ModelError

from tests.compiler.frontends.torch.test_source import results_of

torch.manual_seed(0)
X, Y = torch.randn(2, 6, 8), torch.randn(2, 6, 8)


def real(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z.resolve_conj())


class Of(nn.Module):
    """A function of two tensors, with a complex buffer of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.turns: torch.Tensor
        self.register_buffer("turns", torch.polar(torch.ones(8), torch.arange(8.0)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y, self.turns)


def transforms(x: torch.Tensor, y: torch.Tensor, _: torch.Tensor) -> Any:
    f = torch.fft
    return (
        f.fft2(x).real, f.fftn(x, norm="ortho").imag, f.rfft(x, n=11).abs(), f.rfft2(x, norm="forward").real,
        f.irfft2(f.rfft2(x) * 0.5, s=(6, 8)), f.irfft(f.rfft(x, n=9), n=9), f.hfft(torch.complex(x, y), norm="ortho"),
        real(f.ifft(torch.complex(x, y), dim=1)), real(f.ifft2(torch.complex(x, y), norm="ortho")),
        real(f.ifftn(torch.complex(x, y), norm="forward")), f.fftshift(f.fft(x), dim=-1).imag,
        real(torch.stft(x.flatten(1), 16, 4, window=torch.hann_window(16), return_complex=True)),
        real(f.ihfft(x)), f.fft(x.double()).real, f.rfft(x).angle(),
        f.irfft(torch.stack([f.rfft(x)] * 2), norm="ortho"),
    )  # fmt: skip


def arithmetic(x: torch.Tensor, y: torch.Tensor, turns: torch.Tensor) -> Any:
    z, w = torch.complex(x, y), torch.polar(x.abs() + 0.1, y)
    pairs = (
        z + w, z - 2 * w, torch.sub(z, w, alpha=3), z + x, 1 - z, x - z, z * 1j, z * turns, x * z, z / w, z / y, 2 / w,
        z.conj(), -z, w.reciprocal(), z**2, z**3, w**-1.5, z.exp(), w.log(), z.sgn(), z.sum(1), z.mean((0, 2)),
        z.cumsum(1), z @ w.mT, z.to(torch.complex128), x.to(torch.complex64) * z, z + (2 - 1j),
        torch.einsum("bij,bkj->bik", z, turns * w),
    )  # fmt: skip
    return (*map(real, pairs), z.abs(), w.angle(), z == w, z != 2, (z * w.conj()).real, (z * w.conj()).imag)


def moves(x: torch.Tensor, y: torch.Tensor, turns: torch.Tensor) -> Any:
    z = torch.complex(x, y)
    written = z.clone()
    written[:, 1:3] = turns
    written[0, torch.tensor([4, 5])] = z[1, :2]
    return tuple(map(real, (
        z.view(2, 48), z.permute(2, 0, 1), z[:, ::2, 3], z.unsqueeze(1).expand(2, 3, 6, 8),
        torch.cat([z, turns[None, None].repeat(2, 1, 1)], 1), torch.zeros(2, dtype=torch.complex64) + 1j,
        torch.stack([z, z.conj()]), z.roll(2, 1), z.flip(2), z[:, torch.tensor([3, 1])], torch.where(x > 0, z, y),
        torch.where(y > 0, z, 0), nn.functional.pad(z, (1, 2)), written, z.tril(), z.diagonal(0, 1, 2), *z.split(4, 1),
        *z.unbind(0), z.repeat(1, 2, 1), z.unfold(2, 3, 2), torch.view_as_complex(x.view(2, 6, 4, 2)),
    )))  # fmt: skip


@pytest.mark.parametrize("function", [transforms, arithmetic, moves], ids=lambda each: each.__name__)
def test_complex_numbers_inside(function: Callable[..., Any]) -> None:
    module = Of(function)
    wanted = module(X, Y)
    found = list(results_of(weft.from_torch(module, (X, Y)), X, Y).values())
    assert len(found) == len(wanted)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one.dtype == other.numpy().dtype
        scale = max(1.0, float(other.double().abs().max()))
        np.testing.assert_allclose(one / scale, other.numpy() / scale, atol=1e-5, err_msg=str(number))


def test_products_of_large_complex_numbers_do_not_overflow() -> None:
    x, y = torch.tensor([3e30, 1e-30]), torch.tensor([-4e30, 2e-30])
    module = Of(lambda x, y, _: (torch.complex(x, y).abs(), real(torch.complex(y, x) / torch.complex(x, y))))
    for found, wanted in zip(results_of(weft.from_torch(module, (x, y)), x, y).values(), module(x, y), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, y, _: torch.complex(x, y) * 2, "output 'output' is complex.*torch.view_as_real"),
        (lambda x, y, _: torch.complex(x, y).tanh().real, r"aten\.tanh.*it has no rule for complex numbers"),
        (lambda x, y, t: real(torch.complex(x, y) ** t), r"aten\.pow\.Tensor_Tensor.*no rule for complex numbers"),
    ],
)
def test_what_of_complex_numbers_is_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        weft.from_torch(Of(function), (X, Y)).module({}, require_quantised=False)
