#!/usr/bin/env bash
# onnxruntime: on a processor with AVX2 and no VNNI, session.x64quantprecision does not make every product of bytes exact.
# ConvInteger of int8 data and uint8 weights gives other sums than its definition. It is exact for the three other
# pairs of types, which have the same weights less their zero point; so is MatMulInteger of int8 data and uint8 weights.
#
# Seen with onnxruntime 1.32.0 on an AMD EPYC 7003. Expected by most: the option's documentation tells of x64 without VNNI,
# so a session that has it may judge the integers of others. Here weights of -28 to 31 with a zero point of 128 are enough.
# Nothing is shown on a processor with VNNI, or on other architectures.
set -euo pipefail
if [[ $(uname -m) != x86_64 ]] || grep -qE 'avx512_vnni|avx_vnni' /proc/cpuinfo || ! grep -q avx2 /proc/cpuinfo; then
    echo "this needs a processor with AVX2 and without VNNI" >&2
    exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2>/dev/null
cat >"$folder/products.py" <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int8": (np.int8, TensorProto.INT8, 0), "uint8": (np.uint8, TensorProto.UINT8, 128)}
random = np.random.default_rng(0)
data, weights = random.integers(-128, 128, (1, 36)), random.integers(-28, 32, (36, 6))


def apart(operator, of_data, of_weights):
    """The largest difference from the sum of products, which both operators compute: the window covers all."""
    (kind, proto, zero), (weight_kind, _, weight_zero) = TYPES[of_data], TYPES[of_weights]
    x, w = (data + zero).astype(kind), (weights + weight_zero).astype(weight_kind)
    if operator == "ConvInteger":
        x, w = x.reshape(1, 4, 3, 3), w.T.reshape(6, 4, 3, 3)
    constants = {"w": w, "xz": np.array(zero, kind), "wz": np.array(weight_zero, weight_kind)}
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w", "xz", "wz"], ["y"])], "g",
        [helper.make_tensor_value_info("x", proto, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return int(np.abs(session.run(None, {"x": x})[0].reshape(-1) - (data @ weights).reshape(-1)).max())


for operator, of_data, of_weights in (
    ("ConvInteger", "uint8", "uint8"), ("ConvInteger", "uint8", "int8"), ("ConvInteger", "int8", "int8"),
    ("ConvInteger", "int8", "uint8"), ("MatMulInteger", "int8", "uint8"),
):
    exact = "exact" if apart(operator, of_data, of_weights) == 0 else "not exact"
    print(f"{operator}, {of_data} data, {of_weights} weights: {exact}")
PY
seen=$("$folder/env/bin/python" "$folder/products.py" 2>&1)
wanted="ConvInteger, uint8 data, uint8 weights: exact
ConvInteger, uint8 data, int8 weights: exact
ConvInteger, int8 data, int8 weights: exact
ConvInteger, int8 data, uint8 weights: not exact
MatMulInteger, int8 data, uint8 weights: exact"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
