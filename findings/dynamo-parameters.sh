#!/usr/bin/env bash
# Dynamo does not guard parameters. A backend of torch.compile gets a module's weights among the example inputs, as
# nn.Parameter; one that bakes them into its code, as ahead-of-time packing wants it, gives a second instance of the class
# the first one's results: no guard fails, nothing is compiled again, and nothing is said. In-place changes of a weight
# pass as well. inline_inbuilt_nn_modules, the older way of handling modules, does not change it.
#
# Seen with torch 2.13.0 on a CPU. Expected by most: what a backend was given as a parameter is guarded, as shapes are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 2>/dev/null
cat >"$folder/parameters.py" <<'PY'
import torch

torch._dynamo.config.inline_inbuilt_nn_modules = INLINE
compilations = 0


def baking(graph, examples):
    """A backend that keeps the values of the parameters that it is given."""
    global compilations
    compilations += 1
    kept = {i: x.detach().clone() for i, x in enumerate(examples) if isinstance(x, torch.nn.Parameter)}
    return lambda *args: graph.forward(*(kept.get(i, x) for i, x in enumerate(args)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


torch.manual_seed(0)
x = torch.randn(2, 4)
with torch.no_grad():
    first, second = Net(), Net()
    run, run_second = (torch.compile(net, backend=baking) for net in (first, second))
    print("first instance right:", torch.equal(run(x), first(x)))
    before = compilations
    made = run_second(x)
    print("compilations for the second instance:", compilations - before)
    print("it has the second one's results:", torch.equal(made, second(x)))
    print("it has the first one's results:", torch.equal(made, first(x)))
    old = first(x).clone()
    first.layer.weight.mul_(2)
    print("a changed weight is seen:", not torch.equal(run(x), old))
PY
wanted="first instance right: True
compilations for the second instance: 0
it has the second one's results: False
it has the first one's results: True
a changed weight is seen: False"
for inline in True False; do
    sed "s/INLINE/$inline/" "$folder/parameters.py" >"$folder/run.py"
    seen=$("$folder/env/bin/python" "$folder/run.py" 2>/dev/null)
    printf 'inline_inbuilt_nn_modules = %s\n%s\n' "$inline" "$seen"
    [[ "$seen" == "$wanted" ]] || { echo "this has changed; it was:"; printf '%s\n' "$wanted"; exit 1; }
done
