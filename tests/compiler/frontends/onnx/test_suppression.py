"""NonMaxSuppression, however many boxes are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from .one_node import check

CORNERS = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 20, 1, 21]]], np.float32)
SCORES = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)


@pytest.mark.parametrize("most", [1, 2, 100, (1 << 62) + 1, (1 << 63) - 1])
def test_any_number_may_be_asked_for(most: int) -> None:
    operands = [CORNERS, SCORES, np.array([most]), np.array([0.5], np.float32)]
    check("NonMaxSuppression", operands, domain="", known=(0, 1, 2, 3), kinds=(TensorProto.INT64,))
