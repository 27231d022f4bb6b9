#!/usr/bin/env bash
# LiteRT compares int8 tensors after it has rounded both to whole 256ths of their real values: with a scale of 0.001, usual
# for small activations, EQUAL says that 0.001 and 0.002 are equal, and LESS that 0.001 is not below 0.002. Tensors of the
# same scale and zero point, whose integers could be compared as they are, take the same path.
#
# Seen with ai-edge-litert 2.3.0 on x86-64, default kernels. Expected by most: order of the integers where scales are equal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check ai-edge-litert==2.3.0 flatbuffers==25.12.19 2>/dev/null
cat >"$folder/compare.py" <<'PY'
import flatbuffers
import numpy as np
from ai_edge_litert import interpreter, schema_py_generated as schema


def compared(operator, scale, numbers):
    """`operator` of each number and the one behind it, as multiples of a scale."""
    graph = schema.SubGraphT()
    graph.tensors = []
    for name in ("a", "b", "result"):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name.encode(), [len(numbers) - 1], 0
        tensor.type = schema.TensorType.BOOL if name == "result" else schema.TensorType.INT8
        if name != "result":
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [0]
        graph.tensors.append(tensor)
    node = schema.OperatorT()
    node.opcodeIndex, node.inputs, node.outputs = 0, [0, 1], [2]
    graph.operators, graph.inputs, graph.outputs = [node], [0, 1], [2]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, operator)
    code.version = 2
    model = schema.ModelT()
    model.version, model.subgraphs, model.operatorCodes, model.buffers = 3, [graph], [code], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    runner = interpreter.Interpreter(model_content=bytes(builder.Output()))
    runner.allocate_tensors()
    runner.set_tensor(0, np.array(numbers[:-1], np.int8))
    runner.set_tensor(1, np.array(numbers[1:], np.int8))
    runner.invoke()
    return runner.get_tensor(2).astype(int).tolist()


for scale in (0.001, 0.01):
    print(f"scale {scale}: EQUAL", compared("EQUAL", scale, range(9)), "LESS", compared("LESS", scale, range(9)))
PY
seen=$("$folder/env/bin/python" "$folder/compare.py" 2>/dev/null)
wanted="scale 0.001: EQUAL [1, 0, 1, 1, 1, 0, 1, 1] LESS [0, 1, 0, 0, 0, 1, 0, 0]
scale 0.01: EQUAL [0, 0, 0, 0, 0, 0, 0, 0] LESS [1, 1, 1, 1, 1, 1, 1, 1]"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
