#!/usr/bin/env bash
# onnxruntime: an LSTM that quantize_dynamic made gives other numbers on another count of threads. Each thread takes a
# part of the batch, and the state of a step is quantised over the range of that part alone. With one thread the results are
# those of one range for the whole batch, as the input of all steps is quantised in either case.
#
# Seen with onnxruntime 1.32.0 on x86-64. Expected by most: threads change the time, at most the last digits. Here the
# largest difference is of the size of the whole error of quantisation. So a golden file of such a model holds for one
# count of threads, and for one batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 sympy==1.14.0 2>/dev/null
cat >"$folder/lstm.py" <<'PY'
import logging
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

logging.disable(logging.WARNING)
HIDDEN, INPUTS, STEPS, BATCH = 12, 10, 3, 3
generator = np.random.default_rng(0)
shapes = {"W": (1, 4 * HIDDEN, INPUTS), "R": (1, 4 * HIDDEN, HIDDEN), "B": (1, 8 * HIDDEN)}
weights = [
    numpy_helper.from_array((0.4 * generator.standard_normal(shape)).astype(np.float32), name)
    for name, shape in shapes.items()
]
node = helper.make_node("LSTM", ["x", *shapes], ["y"], hidden_size=HIDDEN)
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, INPUTS])
graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
floats, made = f"{sys.argv[1]}/float.onnx", f"{sys.argv[1]}/dynamic.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), floats)
quantize_dynamic(floats, made, weight_type=QuantType.QInt8)


def run(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": generator_input})[0]


generator_input = np.random.default_rng(1).standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
one, again, two = run(made, 1), run(made, 1), run(made, 2)
print("operator:", onnx.load(made).graph.node[0].op_type)
print("one thread, twice, equal:", bool((one == again).all()))
print("first step, one and two threads, equal:", bool((one[0] == two[0]).all()))
gap = np.abs(one[1:] - two[1:]).max()
print("later steps apart by more than 0.0005:", bool(gap > 5e-4))
print("floats, one and two threads, apart by more than 0.000001:",
      bool(np.abs(run(floats, 1) - run(floats, 2)).max() > 1e-6))
PY
seen=$("$folder/env/bin/python" "$folder/lstm.py" "$folder" 2>/dev/null)
wanted="operator: DynamicQuantizeLSTM
one thread, twice, equal: True
first step, one and two threads, equal: True
later steps apart by more than 0.0005: True
floats, one and two threads, apart by more than 0.000001: False"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
