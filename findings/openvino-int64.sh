#!/usr/bin/env bash
# OpenVINO's CPU device computes int64 in 32 bits: an ONNX model whose inputs and outputs are int64 keeps these types at
# its borders, and everything between loses the upper half, with no warning. float64 becomes float32 in the same way.
# An accumulator that a reference holds in int64 is therefore wrong there, while the result says int64.
#
# Seen with openvino 2026.4.1 on x86-64. Expected by most: either 64 bits, or a refusal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnx==1.23.2 2>/dev/null
cat >"$folder/sums.py" <<'PY'
import sys

import numpy as np
import onnx
import openvino
from onnx import helper


def sum_of(first, second):
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    values = [helper.make_tensor_value_info(name, kind, [1]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", values[:2], values[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
    compiled = openvino.Core().compile_model(sys.argv[1], "CPU")
    (result,) = compiled({"a": first, "b": second}).values()
    print(result.dtype, result[0])


sum_of(np.array([2**40]), np.array([5]))
sum_of(np.array([3_000_000_000]), np.array([0]))
sum_of(np.array([1.0]), np.array([1e-12]))
PY
seen=$("$folder/env/bin/python" "$folder/sums.py" "$folder/sum.onnx" 2>/dev/null)
wanted="int64 5
int64 -1294967296
float64 1.0"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
