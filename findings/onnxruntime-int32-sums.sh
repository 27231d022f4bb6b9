#!/usr/bin/env bash
# onnxruntime: int32 wraps in Add, Mul and CumSum, but saturates in ReduceSum and ReduceProd. Accumulators that are summed
# by a reduction and by additions differ as soon as they leave int32, so neither a wrapping nor a saturating model of
# hardware agrees with both.
#
# Seen with onnxruntime 1.32.0 on x86-64. Expected by most: one overflow for one type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2>/dev/null
cat >"$folder/sums.py" <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(name, *operands, **attributes):
    names = [f"x{number}" for number in range(len(operands))]
    node = helper.make_node(name, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(each, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for each, value in zip(names, operands)
    ]
    graph = helper.make_graph([node], name, inputs, [helper.make_tensor_value_info("y", TensorProto.INT32, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    print(name, session.run(None, dict(zip(names, operands)))[0].reshape(-1)[-1])


large, one = np.array([2**30, 2**30, 2**30], np.int32), np.array([1], np.int32)
run("ReduceSum", large)
run("CumSum", large, np.array(0))
run("Add", np.array([2**31 - 1], np.int32), one)
run("ReduceProd", np.array([65536, 65536], np.int32))
run("Mul", np.array([65536], np.int32), np.array([65536], np.int32))
PY
seen=$("$folder/env/bin/python" "$folder/sums.py")
wanted="ReduceSum 2147483647
CumSum -1073741824
Add -2147483648
ReduceProd 2147483647
Mul 0"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
