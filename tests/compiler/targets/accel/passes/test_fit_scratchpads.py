"""What scratchpads are too small for in any form runs on the host, with the depth that it needs; then on the core."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, CoreConfig


def global_pool(size: int) -> Module:
    x = Var("x", TensorType((1, 5, size, size), "float32"))
    scales = Constant(np.float32(0.05)), Constant(np.int8(3))
    pooled = call("nn.average_pool", call("dequantise", call("quantise", x, *scales), *scales), kernel=(size, size))
    body = call("dequantise", call("quantise", pooled, *scales), *scales)
    return Module(Function((x,), body, Attrs({"name": "pool"})))


def devices(module: Module, core: CoreConfig) -> tuple[str, str]:
    """Where the layer with the window ran and why, when its result is the reference's."""
    compiled = weft.compile(module, core)
    assert isinstance(compiled, CompiledModel)
    x = np.random.default_rng(1).normal(0, 2, module.main.params[0].type.shape).astype(np.float32)
    result = next(iter(weft.load(compiled).run(x).values()))
    np.testing.assert_allclose(result, evaluate(module, {"x": x})["output0"], rtol=0, atol=0.0501)
    windows = {"nn.average_pool", "sum_pool", "packed_sum_pool", "conv2d", "packed_conv2d", "nn.conv2d"}
    (layer,) = [layer for layer in compiled.layers if windows & set(layer.operators)]
    return layer.device, layer.reason


@pytest.mark.parametrize("size", [16, 40, 44, 60, 130])
def test_a_global_pool_of_any_size_runs_on_the_core(size: int) -> None:
    """A long window is reduced in chunks, so it need not fit the accumulator."""
    assert devices(global_pool(size), PYNQ) == ("core", "")


def test_a_window_that_fits_but_not_in_one_piece_names_the_next_depth() -> None:
    core = replace(PYNQ, name="shallow", acc_depth=256)
    device, reason = devices(global_pool(15), core)
    assert device == "cpu"
    assert re.search("of the 256 entries of scratchpad 'acc', but not in one piece: .*acc_depth=512 could", reason)
    assert devices(global_pool(15), replace(core, acc_depth=512)) == ("core", "")


def test_a_layer_that_has_no_smaller_form_is_refused_with_the_depth_that_it_needs() -> None:
    core = replace(PYNQ, name="shallow", acc_depth=256)
    with pytest.raises(CompileError, match=r"would run on the host: .*a core with acc_depth=512 could run it"):
        weft.compile(global_pool(15), core, strict=True)
