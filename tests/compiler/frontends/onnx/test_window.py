"""Windows whose places move, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from .one_node import check


@pytest.mark.parametrize("groups", [1, 2])
def test_windows_whose_places_move(groups: int) -> None:
    random = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    x, weights, places = floats(2, 4, 7, 8), floats(6, 4 // groups, 3, 2), {"group": groups, "offset_group": groups}
    check("DeformConv", [x, weights, 2 * floats(2, 12 * groups, 5, 7)], domain="", **places)
    operands = [x, weights, 2 * floats(2, 12 * groups, 4, 5), floats(6), floats(2, 6 * groups, 4, 5)]
    check("DeformConv", operands, domain="", strides=[2, 2], pads=[1, 1, 2, 2], dilations=[1, 2], **places)
