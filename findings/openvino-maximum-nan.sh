#!/usr/bin/env bash
# OpenVINO's CPU device: Max(x, 0) takes NaN for 0 and Max(0, x) keeps it; Relu and ReduceMax lose it, Clip keeps it. A net
# that diverged gives finite results, and swapping the operands of a commutative operator changes them. The operand that
# decides is the second one, as in the processor's own instruction.
#
# Seen with openvino 2026.4.1 on x86-64. Expected by most: NaN goes through all of them, as in ONNX, or through none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnx==1.23.2 2>/dev/null
cat >"$folder/maximum.py" <<'PY'
import sys

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper


def run(title, name, *operands, **attributes):
    names = [f"x{number}" for number in range(len(operands))]
    node = helper.make_node(name, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, value.shape) for each, value in zip(names, operands)
    ]
    graph = helper.make_graph([node], name, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
    compiled = openvino.Core().compile_model(sys.argv[1], "CPU")
    (result,) = compiled(dict(zip(names, operands))).values()
    print(title, result.reshape(-1)[0])


x, zeros = np.array([np.nan, 2], np.float32), np.zeros(2, np.float32)
run("Max(x, 0)", "Max", x, zeros)
run("Max(0, x)", "Max", zeros, x)
run("Relu(x)", "Relu", x)
run("Clip(x, 0, 1)", "Clip", x, np.float32(0), np.float32(1))
run("ReduceMax(x)", "ReduceMax", x, keepdims=0)
PY
seen=$("$folder/env/bin/python" "$folder/maximum.py" "$folder/maximum.onnx" 2>/dev/null)
wanted="Max(x, 0) 0.0
Max(0, x) nan
Relu(x) 0.0
Clip(x, 0, 1) nan
ReduceMax(x) 2.0"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
