"""Programs of PyTorch in which the values of a run decide sizes: compiled up to there, the rest is left to each run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn
from weft.compiler.frontends import ModelError, from_torch
from weft.compiler.model import CutModel

pytest.importorskip("onnxscript")


class Detector(nn.Module):
    """Keeps the boxes whose score is high enough."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 3)

    def forward(self, picture: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = self.convolution(picture).flatten(2)[0].t()
        scores = rows[:, 4].sigmoid()
        keep = scores > 0.5
        places = torch.nonzero(keep).squeeze(1)
        return {"all": scores, "boxes": rows[keep, :4], "scores": scores[keep], "places": places}


def assert_equal(made: dict[str, Any], wanted: dict[str, torch.Tensor]) -> None:
    assert list(made) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(made[name], value.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_detector_runs_whole_and_from_its_file(tmp_path: Path) -> None:
    module = Detector().eval()
    example = torch.randn(1, 3, 8, 8)
    torch.export.save(torch.export.export(module, (example,)), tmp_path / "detector.pt2")
    for source in (from_torch(module, (example,)), str(tmp_path / "detector.pt2")):
        model = weft.compile(source, target="cpu")
        assert isinstance(model, CutModel)
        assert "convolution" in str([layer.nodes for layer in model.layers if layer.kind != "host_tail"])
        loaded = weft.load(model)
        for seed in range(3):
            torch.manual_seed(seed)
            picture = torch.randn(1, 3, 8, 8)
            assert_equal(loaded.run({"picture": picture.numpy()}), module(picture))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.masked_select(x, x > 0.2) * 2,
        lambda x: x[: x[0, 0].abs().long().item() + 1] * 2,
        lambda x: torch.unique(x.round()),
        lambda x: torch.cat([x[x > 0], x[x < -1]]).sum(),
    ],
)
def test_results_of_many_sizes(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    class Whole(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return program(x.sin() * 3)

    loaded = weft.load(weft.compile(from_torch(Whole(), (torch.randn(5, 4),)), target="cpu"))
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(5, 4)
        assert_equal(loaded.run({"x": x.numpy()}), {"output": Whole()(x)})


def test_a_loop_runs_as_long_as_values_say() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            grown: torch.Tensor = torch.while_loop(
                lambda y: y.abs().max() < 100, lambda y: (y * 1.5,), (self.layer(x),)
            )[0]
            return grown

    module, x = Grows().eval(), torch.randn(2, 4)
    loaded = weft.load(weft.compile(from_torch(module, (x,)), target="cpu"))
    for scale in (0.01, 1.0, 30.0):
        assert_equal(loaded.run({"x": (x * scale).numpy()}), {"output": module(x * scale)})


def test_suppressed_boxes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's operator, whose results have as many rows as boxes are kept. It is declared here, so PyTorch's
    exporter, which asks whether torchvision is installed, is told that it is."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: find("torch" if name == "torchvision" else name, *more)
    )
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def suppressed(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
        return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    torch.library.register_fake("torchvision::nms", suppressed, lib=library, allow_override=True)

    class Kept(nn.Module):
        def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            kept = torch.ops.torchvision.nms(boxes * 2, scores.sigmoid(), 0.5)
            return boxes[kept]

    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 5], [9, 9, 12, 12], [0, 1, 4, 4]], np.float32)
    source = from_torch(Kept(), (torch.from_numpy(boxes), torch.zeros(4)))
    loaded = weft.load(weft.compile(source, target="cpu"))
    for scores, kept in (([1, 2, 3, 4], [3, 2]), ([4, 3, 2, 1], [0, 2]), ([1, 5, 2, 4], [1, 2])):
        made = loaded.run({"boxes": boxes, "scores": np.array(scores, np.float32)})["output"]
        np.testing.assert_array_equal(made, boxes[kept])


def test_what_cannot_be_left_to_a_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("runs", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.runs += 1
            return x[x > 0]

    class Random(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand_like(x)[x > 0]

    x = torch.randn(4)
    with pytest.raises(ModelError, match=r"index.Tensor at test_values.*changes 'runs'"):
        from_torch(Counts(), (x,))
    with pytest.raises(ModelError, match=r"1 operator of PyTorch cannot be read: aten.rand_like.default"):
        from_torch(Random(), (x,))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else found(name))
    with pytest.raises(ModelError, match="lacks onnxscript") as caught:
        from_torch(Detector(), (torch.randn(1, 3, 8, 8),))
    assert caught.value.hint == "pip install onnxscript"
