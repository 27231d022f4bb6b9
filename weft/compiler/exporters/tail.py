"""A model that was cut, whole again: its first part as it was written anew, and the tail as it was read."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.compose
import onnx.version_converter
from onnx import helper

from ..frontends.litert.cut import Finish, is_tail
from ..frontends.onnx.litert_tail import DOMAIN, litert_tail
from ..frontends.onnx.types import element_type
from ..graph.tail import Tail
from .errors import ExportError


def with_tail(model: onnx.ModelProto, tail: Tail) -> onnx.ModelProto:
    """``model``, which is the part before a tail in other operators, and the tail. One of a LiteRT file is a node that
    weft alone reads. ExportError where the two have no version of ONNX in common, ModelError for a damaged tail."""
    if is_tail(tail.model):
        return _with_node(model, tail)
    whole, end = _in_one_version(model, onnx.load_from_string(tail.model))
    end = onnx.compose.add_prefix(end, "tail/", rename_inputs=False, rename_outputs=False)
    whole.graph.node.extend(end.graph.node)
    whole.graph.initializer.extend(end.graph.initializer)
    _set_outputs(whole, tail, end.graph.output)
    known = {each.domain for each in whole.opset_import}
    whole.opset_import.extend(each for each in end.opset_import if each.domain not in known)
    whole.functions.extend(end.functions)
    whole.ir_version = max(whole.ir_version, end.ir_version)
    return whole


def _with_node(model: onnx.ModelProto, tail: Tail) -> onnx.ModelProto:
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    made = Finish(tail).element_types()
    whole.graph.node.append(litert_tail(tail, list(made)))
    results = [helper.make_tensor_value_info(name, element_type(dtype), None) for name, dtype in made.items()]
    _set_outputs(whole, tail, results)
    whole.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return whole


def _set_outputs(whole: onnx.ModelProto, tail: Tail, made: Iterable[onnx.ValueInfoProto]) -> None:
    """The outputs become those of the whole model, of which a tail makes some."""
    results = {value.name: value for value in (*whole.graph.output, *made)}
    del whole.graph.output[:]
    whole.graph.output.extend(results[name] for name in tail.outputs)


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
