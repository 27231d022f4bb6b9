"""Models of one node of onnxruntime's own domain, read and beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import evaluate

from ...onnx_models import run_onnxruntime

Array = npt.NDArray[Any]


def model(
    op: str, operands: list[Array | None], outputs: int | tuple[int, ...] = 1, *, domain: str = "com.microsoft",
    known: tuple[int, ...] = (), kinds: tuple[int, ...] = (), **attrs: Any,
) -> tuple[Any, dict[str, Array]]:  # fmt: skip
    """A model of one node, and its inputs. ``known``: operands that are constants; ``outputs``: how many, or which;
    ``kinds``: their element types, floats where none are given."""
    names = ["" if value is None else f"x{number}" for number, value in enumerate(operands)]
    wanted = tuple(range(outputs)) if isinstance(outputs, int) else outputs
    results = [f"y{number}" if number in wanted else "" for number in range(max(wanted) + 1)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    given = {name: value for name, value in zip(names, operands, strict=True) if value is not None}
    constants = {name: value for name, value in given.items() if int(name[1:]) in known}
    inputs = {name: value for name, value in given.items() if name not in constants}
    ins = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in inputs.items()]  # fmt: skip
    types = kinds or (TensorProto.FLOAT,) * len(wanted)
    outs = [helper.make_tensor_value_info(f"y{at}", kind, None) for at, kind in zip(wanted, types, strict=True)]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "g", ins, outs, held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), inputs


def check(
    op: str, operands: list[Array | None], outputs: int | tuple[int, ...] = 1, written: int | None = None, **attrs: Any
) -> None:  # fmt: skip
    """``written``: positions of a cache that are compared. What lies behind them is anything."""
    made, inputs = model(op, operands, outputs, **attrs)
    wanted = run_onnxruntime(made, inputs)
    found = evaluate(from_onnx(made, require_quantised=False), inputs)
    assert len(found) == len(wanted)
    for one, other in zip(found.values(), wanted, strict=True):
        assert one.shape == other.shape
        if written is not None and one.ndim == 4:
            one, other = one[:, :, :written], other[:, :, :written]
        largest = max(1.0, float(np.abs(other).max(initial=0)))  # sums that nearly vanish have its last digits
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6 * largest)
