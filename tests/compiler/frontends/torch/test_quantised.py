"""Quantisation of PT2E whose ranges are found while the model runs: equal to PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn
from torch.ao.quantization.fx import _decomposed  # registers the operators  # noqa: F401
from weft.compiler.frontends import from_torch

FORMS = {
    "uint8": ("choose_qparams", 0, 255, torch.uint8),
    "seven bits": ("choose_qparams", 0, 127, torch.uint8),
    "int8": ("choose_qparams", -128, 127, torch.int8),
    "symmetric": ("choose_qparams_symmetric", -127, 127, torch.int8),
    "symmetric uint8": ("choose_qparams_symmetric", 0, 255, torch.uint8),
}
EPS = 1.1920928955078125e-07


def results_of(source: Any, x: Any) -> list[Any]:
    model = weft.load(weft.compile(source, target="cpu"))
    (name,) = (each.name for each in source.module({}).main.params)
    return list(model.run({name: np.asarray(x)}).values())


class Quantised(nn.Module):
    """The scale, the zero point and the quantised values of what it gets."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        name, low, high, dtype = FORMS[self.form]
        ops = torch.ops.quantized_decomposed
        scale, zero = getattr(ops, name).tensor(x, low, high, EPS, dtype)
        q = ops.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
        return scale, zero, q, ops.dequantize_per_tensor.tensor(q, scale, zero, low, high, dtype)


INPUTS = {
    "both signs": lambda x: x,
    "positive": lambda x: x.abs() + 0.5,
    "negative": lambda x: -x.abs() - 2,
    "zeros": lambda x: x * 0,
    "smaller than any step": lambda x: x * 1e-9,
    "one large": lambda x: torch.where(x == x.max(), 1e6, x),
}


@pytest.mark.parametrize("form", FORMS)
def test_ranges_of_a_run(form: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(2, 5, 7)
    source = from_torch(Quantised(form), x)
    for name, change in INPUTS.items():
        given = change(x)
        wanted = [each.numpy() for each in Quantised(form)(given)]
        found = results_of(source, given)
        assert [each.dtype for each in found] == [each.dtype for each in wanted]
        np.testing.assert_allclose(found[0], wanted[0], rtol=3e-7, err_msg=name)
        np.testing.assert_array_equal(found[1], wanted[1], err_msg=name)
        steps = np.abs(found[2].astype(int) - wanted[2])  # PyTorch takes the reciprocal of a scale first
        assert steps.max() <= 1, name
        assert steps.mean() <= 0.03, name
        np.testing.assert_allclose(found[3], wanted[3], atol=1.01 * float(wanted[0][0]), err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ranges_of_small_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    x = torch.randn(3, 9).to(dtype)
    source = from_torch(Quantised("int8"), x)
    array = x.view(torch.int16).numpy().view(source.module({}).main.params[0].dtype) if dtype == torch.bfloat16 else x
    scale, zero, *_ = results_of(source, array)
    wanted = Quantised("int8")(x)
    np.testing.assert_allclose(scale, wanted[0].numpy(), rtol=0.004)
    np.testing.assert_allclose(zero, wanted[1].numpy(), atol=1)


def test_a_range_that_is_wider_than_the_type_is_refused() -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, zero = torch.ops.quantized_decomposed.choose_qparams.tensor(x, 0, 127, EPS, torch.int8)
            return torch.ops.quantized_decomposed.quantize_per_tensor.tensor(x, scale, zero, 0, 200, torch.int8)

    with pytest.raises(weft.WeftError, match=r"the range 0..200 is wider than int8"):
        from_torch(Wide(), torch.randn(4)).module({})


def test_products_of_such_ranges_run_on_the_core() -> None:
    """As PT2E writes a linear layer with dynamic quantisation."""

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randint(-127, 128, (20, 32), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(20) * 0.01 + 0.005)
            self.register_buffer("zeros", torch.zeros(20, dtype=torch.int64))
            self.bias = nn.Parameter(torch.randn(20))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            real = Quantised("uint8")(x)[3].float()
            ops = torch.ops.quantized_decomposed
            w = ops.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -127, 127, torch.int8)
            return nn.functional.gelu(nn.functional.linear(real, w, self.bias))

    torch.manual_seed(5)
    x, layer = torch.randn(2, 3, 32) + 0.5, Linear()
    compiled = weft.compile(from_torch(layer, x), target="accel", config="tiny")
    assert sum(each.macs for each in compiled.layers if each.device == "core") == 2 * 3 * 32 * 20
    (found,) = weft.load(compiled, device="fsim").run({"x": x.numpy()}).values()
    np.testing.assert_allclose(found, layer(x).detach().numpy(), atol=0.01)
