"""What the packed convolutions refuse."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Call, Constant, GraphError, call, operator

CONVOLUTIONS = ("packed_conv2d", "packed_depthwise_conv2d", "packed_grouped_conv2d")


def _sample(name: str) -> Call:
    sample = operator(name).sample
    assert sample is not None
    return sample("int8")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_padding_is_an_int8(name: str) -> None:
    made = _sample(name)
    for value in (-128, 127):
        again = call(name, *made.args, **{**made.attrs, "pad_value": value})
        assert again.type == made.type
    for value in (-129, 128):
        with pytest.raises(GraphError, match="pad_value"):
            call(name, *made.args, **{**made.attrs, "pad_value": value})


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_weights_are_int8_and_fit_the_blocks(name: str) -> None:
    made = _sample(name)
    x, w = made.args
    assert isinstance(w, Constant)
    with pytest.raises(GraphError, match="the weights"):
        call(name, x, Constant(w.value.astype(np.int32)), **made.attrs)
    with pytest.raises(GraphError, match="do not fit"):
        call(name, x, Constant(w.value[..., :1]), **made.attrs)
