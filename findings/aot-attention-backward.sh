#!/usr/bin/env bash
# AOTAutograd with PyTorch's core ATen decompositions: the forward graph of an attention is decomposed to core operators,
# its backward graph is not. It calls one fused operator that is not core, so a backend that has every core operator
# compiles a transformer's inference and fails in its first training step.
#
# Seen with torch 2.13.0 on a CPU. Expected by most: a decomposition table holds for both graphs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 2>/dev/null
cat >"$folder/attention.py" <<'PY'
import torch
from functorch.compile import make_boxed_func
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd


def compiler(kind):
    def compile_graph(graph, inputs):
        calls = {n.target for n in graph.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
        rest = sorted(str(call) for call in calls if torch.Tag.core not in call.tags)
        print(f"{kind}: {rest or 'core operators only'}")
        return make_boxed_func(graph.forward)

    return compile_graph


backend = aot_autograd(
    fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), decompositions=core_aten_decompositions()
)
attention = torch.compile(torch.nn.functional.scaled_dot_product_attention, backend=backend)
operands = [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]
attention(*operands).sum().backward()
PY
seen=$("$folder/env/bin/python" "$folder/attention.py" 2>/dev/null)
wanted="forward: core operators only
backward: ['aten._scaled_dot_product_flash_attention_for_cpu_backward.default']"
printf '%s\n' "$seen"
[[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
