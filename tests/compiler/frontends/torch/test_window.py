"""torchvision's operators that read pictures at computed places, beside the same in PyTorch's own operators.

They are declared here where torchvision is not, or has no code for this build of PyTorch.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from weft.compiler.frontends import from_torch

from tests.compiler.frontends.torch.test_source import results_of

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
SCHEMAS = {
    "deform_conv2d": "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask",
    "roi_align": "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned",
}


def declared(name: str, shape: tuple[int, ...]) -> None:
    """With results of this shape, where a program is captured."""
    if not hasattr(torch.ops.torchvision, name):
        LIBRARY.define(f"{name}({SCHEMAS[name]}) -> Tensor")
    torch.library.register_fake(
        f"torchvision::{name}", lambda x, *_: x.new_empty(shape), lib=LIBRARY, allow_override=True
    )


def sampled(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """x (N, C, H, W) at places (N, H', W'), zero outside."""
    height, width = x.shape[2:]
    grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
    return functional.grid_sample(x, grid, align_corners=True)


def deformed(
    x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor, bias: torch.Tensor, *numbers: int
) -> torch.Tensor:
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask = numbers
    count, channels, kernel_h, kernel_w = len(x), x.shape[1], *w.shape[2:]
    height, width = offset.shape[2:]
    rows = torch.arange(height)[:, None] * stride_h - pad_h
    columns = torch.arange(width)[None] * stride_w - pad_w
    taps = []
    for tap in range(kernel_h * kernel_w):
        parts = []
        for group, part in enumerate(x.split(channels // offset_groups, 1)):
            place = group * kernel_h * kernel_w + tap
            read = sampled(part, rows + tap // kernel_w * dilation_h + offset[:, 2 * place],
                           columns + tap % kernel_w * dilation_w + offset[:, 2 * place + 1])  # fmt: skip
            parts.append(read * mask[:, place, None] if use_mask else read)
        taps.append(torch.cat(parts, 1))
    windows = torch.stack(taps, 2).reshape(count, groups, -1, height * width)
    products = w.reshape(groups, w.shape[0] // groups, -1) @ windows
    return products.reshape(count, -1, height, width) + bias[:, None, None]


class Deformed(nn.Module):
    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.w, self.bias, self.numbers = nn.Parameter(torch.randn(6, 2, 3, 2)), nn.Parameter(torch.randn(6)), numbers

    def forward(self, x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchvision.deform_conv2d(x, self.w, offset, mask, self.bias, *self.numbers)


@pytest.mark.parametrize("use_mask", [True, False])
def test_windows_whose_places_move(use_mask: bool) -> None:
    torch.manual_seed(0)
    numbers = (1, 2, 1, 0, 2, 1, 2, 2, use_mask)
    x, offset = torch.randn(2, 4, 8, 9), 2 * torch.randn(2, 2 * 12, 6, 4)
    mask = torch.rand(2, 12, 6, 4) if use_mask else torch.zeros(2, 0)
    module = Deformed(*numbers)
    declared("deform_conv2d", (2, 6, 6, 4))
    source = from_torch(module, (x, offset, mask))
    (found,) = results_of(source, x, offset, mask).values()
    with torch.no_grad():
        wanted = deformed(x, module.w, offset, mask, module.bias, *numbers)
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-4)


class Regions(nn.Module):
    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        align = torch.ops.torchvision.roi_align
        return align(x, boxes, 0.5, 3, 2, 2, False), align(x, boxes, 0.5, 3, 2, 2, True)


def test_regions() -> None:
    """Two samples a side in each cell, inside of the picture."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16)
    boxes = torch.tensor([[1, 4, 4, 20, 26], [0, 2.5, 6, 9, 14], [1, 8, 8, 30, 12]])
    declared("roi_align", (3, 3, 3, 2))
    found = results_of(from_torch(Regions(), (x, boxes)), x, boxes)
    for result, moved in zip(found.values(), (0.0, 0.5), strict=True):
        for region, (number, left, top, right, bottom) in zip(result, boxes.tolist(), strict=True):
            rows = top / 2 - moved + (torch.arange(6) + 0.5) * (bottom - top) / 12
            columns = left / 2 - moved + (torch.arange(4) + 0.5) * (right - left) / 8
            read = sampled(x[int(number)][None], rows[None, :, None].expand(1, 6, 4), columns.expand(1, 6, 4))
            wanted = functional.avg_pool2d(read, 2)[0]
            torch.testing.assert_close(torch.from_numpy(region), wanted, rtol=1e-4, atol=1e-4)
