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
from tests.compiler.frontends.torch.test_special import meant

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


FUNCTIONS = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "exp",
             "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "sigmoid")  # fmt: skip


def functions(x: torch.Tensor, y: torch.Tensor, turns: torch.Tensor) -> Any:
    z = torch.complex(3 * x, y)
    powers = (z**turns, z ** (1 - 2j), (2 + 1j) ** z, z.abs() ** turns, z.prod(1), z.flatten()[:5].prod())
    named = [getattr(torch, name)(z) for name in FUNCTIONS]
    return (*map(real, (*named, *powers)), z.isnan(), z.isinf(), torch.isfinite(z))


def test_functions_of_complex_numbers() -> None:
    x, y = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    x[0, 0] = torch.tensor([0.0, 1e-4, -1e-4, 9, -9, 5, -5, 0.5])
    y[0, 0] = torch.tensor([0.7, 1e-4, 2e-4, 3, 1, 2, 0.1, 0])
    module = Of(functions)
    wanted = module(x.double(), y.double())
    found = meant(module, x, y)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.dtype == np.bool_:
            np.testing.assert_array_equal(one, other.numpy())
            continue
        size = np.linalg.norm(other.numpy(), axis=-1, keepdims=True)
        np.testing.assert_allclose(one / size, other.numpy() / size, atol=3e-5, err_msg=str(number))


def test_layers_of_complex_numbers() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.complex(x[0], y[0]), torch.complex(y[1], x[1])
        return (real(nn.functional.linear(a, b, turns[:6])), real(torch.addmm(turns[:6], a, b.mT, beta=2, alpha=1j)),
                real(torch.baddbmm(a[None, :, :6], a[None], b.mT[None], beta=0)))  # fmt: skip

    module = Of(program)
    for one, other in zip(meant(module, X, Y), module(X, Y), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)


def test_zero_to_a_complex_power() -> None:
    x, y = torch.zeros(3), torch.tensor([0.0, 2.0, 0.5])
    module = Of(lambda x, y, _: real(torch.complex(x, x) ** torch.complex(y, x)))
    (found,) = results_of(weft.from_torch(module, (x, y)), x, y).values()
    assert found.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_inputs_and_outputs_have_both_parts_behind_the_other_axes() -> None:
    module = Of(lambda x, y, t: {"turned": x * t, "length": x.abs() + y, "all": x.mT})
    z = torch.complex(X, Y).to(torch.complex128)
    source = weft.from_torch(module, (z, X), dynamic_shapes=({0: torch.export.Dim("n")}, {0: torch.export.Dim("n")}))
    assert [(each.name, each.shape[1:], each.dtype) for each in source.inputs({})] == [
        ("x", (6, 8, 2), "float64"), ("y", (6, 8), "float32")]  # fmt: skip
    z, x = z.repeat(2, 1, 1)[:3], X.repeat(2, 1, 1)[:3]
    found, wanted = results_of(source, torch.view_as_real(z), x), module(z, x)
    for name, value in wanted.items():
        other = real(value).numpy() if value.is_complex() else value.numpy()
        np.testing.assert_allclose(found[name], other, rtol=1e-6)


def test_what_of_complex_numbers_is_refused() -> None:
    with pytest.raises(ModelError, match=r"aten\.linalg_eig.*"):
        weft.from_torch(Of(lambda x, y, _: torch.linalg.eigvals(torch.complex(x, y)[:, :, :6]).real), (X, Y))
