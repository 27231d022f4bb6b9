#!/usr/bin/env bash
# ONNX's own reference evaluator, which tools are judged by, ignores what LSTM and GRU are told: other activations, the
# lengths of sequences and LSTM's input_forget change nothing in its results, and no error says so. An implementation
# that follows the standard's text looks wrong beside it; onnxruntime takes all three.
#
# Seen with onnx 1.23.2 and onnxruntime 1.32.0 on x86-64. Expected by most: a result that follows the attributes, or a
# refusal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2>/dev/null
cat >"$folder/recurrent.py" <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

GATES = {"LSTM": 4, "GRU": 3}
FUNCTIONS = {"LSTM": ["HardSigmoid", "Relu", "Softsign"], "GRU": ["HardSigmoid", "Softsign"]}
STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
random = np.random.default_rng(0)


def results(kind, lengths=None, **attributes):
    """What the reference and onnxruntime make of the same model."""
    values = dict(VALUES[kind])
    names = ["x", "w", "r"]
    if lengths is not None:
        values["lengths"] = np.array(lengths, np.int32)
        names += ["", "lengths"]
    node = helper.make_node(kind, names, ["y"], hidden_size=HIDDEN, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
    ]
    graph = helper.make_graph([node], kind, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return ReferenceEvaluator(model).run(None, values)[0], session.run(None, values)[0]


VALUES = {
    kind: {
        "x": random.normal(size=(STEPS, BATCH, INPUTS)).astype(np.float32),
        "w": random.normal(size=(1, gates * HIDDEN, INPUTS)).astype(np.float32),
        "r": random.normal(size=(1, gates * HIDDEN, HIDDEN)).astype(np.float32),
    }
    for kind, gates in GATES.items()
}
for kind in GATES:
    plain = results(kind)
    assert np.allclose(*plain, atol=1e-5)
    changes = {"activations": {"activations": FUNCTIONS[kind]}, "lengths": {"lengths": [4, 2]}}
    if kind == "LSTM":
        changes["input_forget"] = {"input_forget": 1}
    for name, change in changes.items():
        found = [
            "ignored" if np.allclose(one, other, atol=1e-6) else "taken"
            for one, other in zip(results(kind, **change), plain)
        ]
        print(kind, name, *found)
PY
seen=$("$folder/env/bin/python" "$folder/recurrent.py" 2>/dev/null)
wanted="LSTM activations ignored taken
LSTM lengths ignored taken
LSTM input_forget ignored taken
GRU activations ignored taken
GRU lengths ignored taken"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
