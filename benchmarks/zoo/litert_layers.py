"""The operators of a LiteRT file one by one, each with the operands that it has in a run of the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flatbuffers
import numpy as np

from benchmarks.zoo.litert_cases import Case
from benchmarks.zoo.litert_models import interpreted, schema

NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
CODES = {code: name.lower() for name, code in vars(schema.TensorType).items() if isinstance(code, int)}
BYTES = ("int8", "uint8")


def layers(case: Case) -> Iterator[Case]:
    """Of a file's first graph: those that make one tensor of bytes of bytes and constants. All tensors between them are
    made outputs."""
    model = _read(case)
    graph = model.subgraphs[0]
    inputs = [int(each) for each in graph.inputs]
    made = {int(each) for operator in graph.operators for each in operator.outputs}
    single = [
        each
        for each in graph.operators
        if len(each.outputs) == 1
        and all(_type(graph, tensor) in BYTES for tensor in [*each.outputs, *made.intersection(map(int, each.inputs))])
    ]
    between = sorted({int(each) for operator in single for each in operator.inputs} & made)
    values = dict(zip(between, interpreted(_written(model, inputs, between), case.arrays), strict=True))
    values |= dict(zip(inputs, case.arrays, strict=True))
    for place, operator in enumerate(graph.operators):
        if operator not in single:
            continue
        given = [int(each) for each in dict.fromkeys(operator.inputs.tolist()) if int(each) in values]
        alone = _read(case)
        alone.subgraphs[0].operators = [alone.subgraphs[0].operators[place]]
        code = model.operatorCodes[operator.opcodeIndex]
        op = NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        data = _written(alone, given, [int(operator.outputs[0])])
        yield Case(f"{op} layer {place} of {case.name}", data, tuple(values[each] for each in given))


def _read(case: Case) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(case.model, 0))


def _type(graph: Any, tensor: int) -> str:
    return CODES[graph.tensors[tensor].type]


def _written(model: Any, inputs: list[int], outputs: list[int]) -> bytes:
    """The file with other inputs and outputs."""
    model.signatureDefs = None
    model.subgraphs[0].inputs = np.array(inputs, np.int32)
    model.subgraphs[0].outputs = np.array(outputs, np.int32)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
