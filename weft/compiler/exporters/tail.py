"""A model that was cut, whole again: its first part as it was written anew, and the tail as it was read."""

from __future__ import annotations

import onnx
import onnx.compose
import onnx.version_converter

from ..frontends.litert.cut import is_tail
from ..graph.tail import Tail
from .errors import ExportError


def with_tail(model: onnx.ModelProto, tail: Tail) -> onnx.ModelProto:
    """``model``, which is the part before a tail in other operators, and the tail. ExportError where the two have no
    version of ONNX in common, and for a tail of another format."""
    if is_tail(tail.model):
        raise ExportError(f"a LiteRT model is not written as ONNX as a whole: {tail.reason}",
                          hint="give a model that ends before it")  # fmt: skip
    whole, end = _in_one_version(model, onnx.load_from_string(tail.model))
    end = onnx.compose.add_prefix(end, "tail/", rename_inputs=False, rename_outputs=False)
    results = {value.name: value for value in (*whole.graph.output, *end.graph.output)}
    whole.graph.node.extend(end.graph.node)
    whole.graph.initializer.extend(end.graph.initializer)
    del whole.graph.output[:]
    whole.graph.output.extend(results[name] for name in tail.outputs)
    known = {each.domain for each in whole.opset_import}
    whole.opset_import.extend(each for each in end.opset_import if each.domain not in known)
    whole.functions.extend(end.functions)
    whole.ir_version = max(whole.ir_version, end.ir_version)
    return whole


def _in_one_version(*models: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The models with the newest opset among them."""
    opsets = [
        next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1) for model in models
    ]
    try:
        return [
            model if opset == max(opsets) else onnx.version_converter.convert_version(model, max(opsets))
            for model, opset in zip(models, opsets, strict=True)
        ]
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise ExportError(f"the model is of opset {min(opsets)}, and ONNX does not bring it to {max(opsets)}: {error}",
                          hint=f"export it anew with opset {max(opsets)}") from None  # fmt: skip
