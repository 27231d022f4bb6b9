"""Programs with results whose size, or course, the values of a run decide, such as detectors that drop boxes.

PyTorch writes these as ONNX models, whose reader compiles what stands before such a result and leaves the rest to each
run (`onnx/cut.py`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from ..errors import ModelError
from ..onnx.source import OnnxSource

BY_VALUES = {
    **{f"aten.{name}": "the shape of its result depends on values" for name in (
        "nonzero.default", "masked_select.default", "unique.default", "_unique2.default",
        "unique_consecutive.default", "unique_dim.default", "repeat_interleave.Tensor", "bincount.default")},
    **{f"aten.{name}": "a value of a tensor becomes a number of the program" for name in (
        "_local_scalar_dense.default", "item.default")},
    "while_loop": "how often it runs depends on values",
    "torchvision.nms.default": "the shape of its result depends on values",
}  # fmt: skip
"""Operators that need the values of a run, with the reason."""

_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def first_by_values(graph: GraphModule) -> Node | None:
    """The first node whose result has a size that only a run knows."""
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        if str(node.target) in BY_VALUES or any(
            isinstance(each, (torch.Tensor, torch.SymInt)) and free_unbacked_symbols(each)
            for each in pytree.tree_leaves(node.meta.get("val"))
        ):
            return node
    return None


def by_onnx(program: ExportedProgram, name: str, outputs: Sequence[str], reason: str) -> OnnxSource:
    """The source of the ONNX model that PyTorch writes of a program in core operators. ``reason``: why it cannot be
    read itself.

    Raises ModelError for what PyTorch cannot write, and where it lacks the package for that.
    """
    signature = program.graph_signature
    changed = [str(spec.target) for spec in signature.output_specs if spec.kind in _CHANGES]
    if changed:
        raise ModelError(f"{reason}; such a program cannot change what it is given, but this changes {changed[0]!r}",
                         hint="take it as an input, and give its new value as an output")  # fmt: skip
    if importlib.util.find_spec("onnxscript") is None:
        raise ModelError(f"{reason}, which is left to each run through ONNX, but PyTorch lacks onnxscript to write it",
                         hint="pip install onnxscript")  # fmt: skip
    inputs = [spec.arg.name for spec in signature.input_specs
              if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)]  # fmt: skip
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs,
                                     custom_translation_table=_translations())  # fmt: skip
    except Exception as error:  # its translation of an operator raises whatever it meets
        cause: BaseException = error
        while cause.__cause__ is not None:  # the outer ones say in which step it was
            cause = cause.__cause__
        first = (str(cause).strip().splitlines() or [""])[0]
        raise ModelError(f"{reason}, and PyTorch cannot write the program as ONNX: {type(cause).__name__}: {first}",
                         hint="export the part before it, and do the rest in your program") from error  # fmt: skip
    if made is None:
        raise ModelError(f"{reason}, and PyTorch writes no ONNX model of the program")
    source = OnnxSource(made.model_proto, largest_results=False)
    source.name = name
    return source


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Operators that PyTorch has no ONNX form for."""
    from onnxscript import opset18 as op

    def masked_select(x: Any, mask: Any) -> Any:
        whole = op.Expand(x, op.Shape(mask))
        return op.Compress(whole, op.Reshape(op.Expand(mask, op.Shape(whole)), [-1]))

    def unique2(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        values, _, inverse, counts = op.Unique(x, sorted=1)
        return values, op.Reshape(inverse, op.Shape(x)), counts

    return {
        torch.ops.aten.masked_select.default: masked_select,
        torch.ops.aten._unique2.default: unique2,
    }
