"""Convolutions and poolings over 2 and 3 axes with machine code: any window, padding and step."""

from __future__ import annotations

from typing import Any

import numpy as np
import weft
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Constant, Function, GraphError, Module, TensorType, Var, call, evaluate


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_windows_over_two_and_three_axes(data: st.DataObject) -> None:
    draw = data.draw
    axes = draw(st.sampled_from([2, 3, 3]))

    def several(low: int, high: int, count: int = axes) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, dilations = several(1, 3), draw(st.sampled_from([(1,) * axes, several(1, 2)]))
    attrs: dict[str, Any] = {"strides": several(1, 2), "dilations": dilations, "pads": several(0, 2, 2 * axes)}
    op = draw(st.sampled_from(["conv", "nn.max_pool", "nn.average_pool"]))
    x = Var("x", TensorType((1, 4, *several(3, 6)), "float32"))
    generator = np.random.default_rng(0)
    try:
        if op == "conv":
            groups = draw(st.sampled_from([1, 2, 4]))
            weights = Constant(generator.standard_normal((4, 4 // groups, *kernel), np.float32))
            node = call(f"nn.conv{axes}d", x, weights, groups=groups, **attrs)
        else:
            if op == "nn.average_pool":
                attrs["count_include_pad"] = draw(st.booleans())
            node = call(op, x, kernel=kernel, **attrs)
    except GraphError:
        assume(False)
    module = Module(Function((x,), node, Attrs({"name": "main", "outputs": ("out",)})))
    model = weft.compile(module, target="cpu", strict=True)
    values = {"x": generator.standard_normal(x.type.shape, np.float32)}
    expected, found = evaluate(module, values)["out"], weft.load(model).run(values)["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
