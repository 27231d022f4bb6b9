#!/usr/bin/env bash
# onnx's reference evaluator normalises in LRN as many channels as the batch has images; the others pass unchanged. One
# image of four channels gets one channel normalised, two images two. More images than channels raise IndexError. The
# loop over channels runs over the first axis; the standard's own test has five images of five channels, where it is right.
#
# Seen with onnx 1.23.2; onnxruntime 1.32.0 beside it follows the standard. Whoever judges AlexNet or GoogLeNet at batch 1
# by the reference blames the other side.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 2>/dev/null
cat >"$folder/lrn.py" <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def show(images, channels):
    x = np.ones((images, channels, 1, 1), np.float32)
    node = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=1.0, beta=1.0, bias=1.0)
    value, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy")
    graph = helper.make_graph([node], "lrn", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    try:
        (seen,) = ReferenceEvaluator(model).run(None, {"x": x})
        shown = " ".join(f"{number:.1f}" for number in seen[0].reshape(-1))
    except IndexError:
        shown = "IndexError"
    print(f"{images} x {channels}: reference {shown}, onnxruntime", *(f"{number:.1f}" for number in wanted[0].reshape(-1)))


for size in ((1, 4), (2, 4), (4, 4), (8, 4)):
    show(*size)
PY
seen=$("$folder/env/bin/python" "$folder/lrn.py" 2>/dev/null)
wanted="1 x 4: reference 0.6 1.0 1.0 1.0, onnxruntime 0.6 0.5 0.5 0.6
2 x 4: reference 0.6 0.5 1.0 1.0, onnxruntime 0.6 0.5 0.5 0.6
4 x 4: reference 0.6 0.5 0.5 0.6, onnxruntime 0.6 0.5 0.5 0.6
8 x 4: reference IndexError, onnxruntime 0.6 0.5 0.5 0.6"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
