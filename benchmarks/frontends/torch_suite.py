"""PyTorch's own database of operators (`torch.testing`) through the PyTorch front end, beside eager PyTorch.

    python benchmarks/frontends/torch_suite.py             # samples of float32, int64 and bool
    python benchmarks/frontends/torch_suite.py --only softmax --verbose
    python benchmarks/frontends/torch_suite.py --compiled  # machine code of the CPU target, not NumPy's meanings
    python benchmarks/frontends/torch_suite.py --kept all.jsonl    # go on where a run was stopped

Needs PyTorch and what its test suite is made with: pip install 'weft[torch]' expecttest. Each sample is captured,
decomposed to core ATen operators, read into the graph IR, run, and compared. A sample counts where its graph has core
operators only; random and complex ones have no meaning here and are listed apart. Operators run in a process that is
replaced when it crashes or takes too long, which counts as a failed sample. The exit status is 1 where fewer than 90 %
of what counts is equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import weft
from torch._decomp import core_aten_decompositions
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from weft.compiler.frontends.torch.reader import GraphReader, refuse_unknown
from weft.compiler.frontends.torch.site import REFUSED
from weft.compiler.frontends.torch.tensors import array_of, dtype_name
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, Span, TensorType, Tuple, Var, evaluate_function
from weft.progress import progress

from benchmarks.campaigns.isolated import Broken, Isolated

WANTED = 0.90
SECONDS = 900.0
"""Of the processor, for all samples of one operator."""

TOLERANCE = 1e-4
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
ORDER_OF_TIES = ("sort", "topk", "kthvalue", "msort", "mode")
"""Operators that may name either of two equal elements: their values are compared, not the places."""


def dtype_of(node: Any) -> Any:
    return getattr(node.meta.get("val"), "dtype", None)


@dataclass(frozen=True)
class Outcome:
    operator: str
    dtype: str
    sample: int
    result: str  # equal, different, refused, failed, apart
    reason: str = ""


def tensors_of(sample: Any) -> tuple[list[torch.Tensor], Any]:
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], (leaves, spec)


def traced(entry: Any, sample: Any, tensors: list[torch.Tensor], shape: Any) -> tuple[Any, list[torch.Tensor]]:
    """The graph of one sample in core operators, and eager PyTorch's results."""
    leaves, spec = shape

    def call(*given: torch.Tensor) -> list[torch.Tensor]:
        flow = iter(given)
        filled = [next(flow) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        defined = sample.output_process_fn_grad(entry.op(first, *args, **kwargs))  # such as vectors without their sign
        return [leaf for leaf in pytree.tree_leaves(defined) if isinstance(leaf, torch.Tensor)]

    with torch.no_grad():
        wanted = call(*(tensor.clone() for tensor in tensors))
        functional = functionalize(call, remove="mutations")  # as torch.export has it
        graph = make_fx(functional, decomposition_table=core_aten_decompositions())(*tensors)
        if any(is_write(node) for node in graph.graph.nodes):  # decompositions write to what they made
            functional = functionalize(graph, remove="mutations_and_views")
            graph = make_fx(functional, decomposition_table=core_aten_decompositions())(*tensors)
    return graph, wanted


def is_write(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def module_of(graph: Any, tensors: list[torch.Tensor]) -> Module:
    refuse_unknown(graph)
    params = [Var(f"x{i}", TensorType(tuple(t.shape), dtype_name(t.dtype, "an input")), Span()) for i, t in
              enumerate(tensors)]  # fmt: skip
    results = GraphReader({}).run(graph, params)
    values = tuple(value if isinstance(value, Expr) else Constant(np.asarray(value)) for value in results)
    names = tuple(f"y{i}" for i in range(len(values)))
    return Module(Function(tuple(params), Tuple(values), Attrs({"name": "main", "outputs": names})))


def run(module: Module, arrays: list[Any], compiled: bool) -> list[Any]:
    if compiled:
        given = {f"x{i}": array for i, array in enumerate(arrays)}
        results = weft.load(weft.compile(module, target="cpu")).run(given)
        return [results[name] for name in module.main.output_names]
    results = evaluate_function(module.main, arrays)
    return list(results) if isinstance(results, tuple) else [results]


def is_core(graph: Any) -> bool:
    return all(torch.Tag.core in node.target.tags for node in graph.graph.nodes
               if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload))  # fmt: skip


def equal(made: Any, wanted: torch.Tensor) -> bool:
    target = array_of(wanted, "a result")
    if made.shape != target.shape or made.dtype != target.dtype:
        return False
    if made.dtype.kind in "biu":
        return bool((made == target).all())
    scale = max(1.0, float(np.abs(target[np.isfinite(target)]).max(initial=0.0)))
    return bool(np.allclose(made, target, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True))


def name_of(entry: Any) -> str:
    return str(entry.name) + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def tried(entry: Any, dtype: torch.dtype, number: int, sample: Any, compiled: bool) -> Outcome:
    facts = (name_of(entry), str(dtype).removeprefix("torch."), number)
    tensors, shape = tensors_of(sample)
    try:
        graph, wanted = traced(entry, sample, tensors, shape)
        arrays = [array_of(tensor, "an input") for tensor in tensors]
    except Exception as error:
        return Outcome(*facts, "apart", f"not traced: {type(error).__name__}")
    targets = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    chance = sorted(targets & set(REFUSED))
    if chance:
        return Outcome(*facts, "apart", f"{chance[0]}: {REFUSED[chance[0]]}")
    if "empty" in entry.name:
        return Outcome(*facts, "apart", "its values are whatever the memory held")
    if entry.name == "argsort":
        return Outcome(*facts, "apart", "either of two equal elements may come first")
    if any(dtype_of(node) in COMPLEX for node in graph.graph.nodes):
        return Outcome(*facts, "apart", "complex numbers")
    if entry.name in ORDER_OF_TIES:
        wanted = wanted[:1]
    counts = is_core(graph)
    try:
        made = run(module_of(graph, tensors), arrays, compiled)
    except weft.WeftError as error:
        return Outcome(*facts, "refused" if counts else "apart", str(error)[:160])
    except Exception as error:
        return Outcome(*facts, "failed", f"{type(error).__name__}: {error}"[:160])
    made = made[: len(wanted)] if entry.name in ORDER_OF_TIES else made
    good = len(made) == len(wanted) and all(map(equal, made, wanted))
    return Outcome(*facts, "equal" if good else "different", "" if good else " ".join(sorted(targets))[:160])


def operators(only: str) -> dict[str, Any]:
    """PyTorch's entries of those whose name contains ``only``, by their names with the variants."""
    return {name_of(entry): entry for entry in op_db if only in entry.name}


def all_of(entry: Any, samples: int, compiled: bool) -> list[Outcome]:
    """The outcomes of one operator."""
    outcomes = []
    for dtype in (torch.float32, torch.int64, torch.bool):
        if not entry.supports_dtype(dtype, "cpu"):
            continue
        torch.manual_seed(0)
        try:
            drawn = list(entry.sample_inputs("cpu", dtype, requires_grad=False))[:samples]
        except Exception:
            continue
        outcomes += [tried(entry, dtype, number, sample, compiled) for number, sample in enumerate(drawn)]
    return outcomes


def campaign(only: str, samples: int, compiled: bool, kept: Path | None) -> Iterator[Outcome]:
    """The outcomes of all operators whose name contains ``only``, those that stand in ``kept`` included."""
    entries = operators(only)
    known = read_kept(kept)
    for name in entries.keys() & known.keys():
        yield from known[name]
    waiting = [name for name in entries if name not in known]
    work = Isolated(lambda name: all_of(entries[name], samples, compiled), SECONDS)
    with progress(f"{len(waiting)} operators") as shown:
        for number, (name, found) in enumerate(work.run(waiting), 1):
            shown.count(name, number, len(waiting))
            outcomes = [Outcome(name, "", 0, "failed", found.state)] if isinstance(found, Broken) else found
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps([name, [asdict(outcome) for outcome in outcomes]]) + "\n")
            yield from outcomes


def read_kept(kept: Path | None) -> dict[str, list[Outcome]]:
    if kept is None or not kept.exists():
        return {}
    lines = (json.loads(line) for line in kept.read_text().splitlines())
    return {name: [Outcome(**outcome) for outcome in outcomes] for name, outcomes in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--samples", type=int, default=12, help="of each operator and type, at most (default 12)")
    parser.add_argument("--compiled", action="store_true", help="run machine code of the CPU target")
    parser.add_argument("--verbose", action="store_true", help="print every sample that is not equal")
    parser.add_argument(
        "--kept",
        type=Path,
        help="a file of outcomes, to which new ones are added: what stands in it is not run",
    )
    parser.add_argument("--json", type=Path, help="write a record for each sample")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.errstate(all="ignore"):
        outcomes = list(campaign(args.only, args.samples, args.compiled, args.kept))
    kinds = Counter(outcome.result for outcome in outcomes)
    counted = len(outcomes) - kinds["apart"]
    share = kinds["equal"] / max(counted, 1)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if outcome.result != "equal":
            reasons[outcome.result][f"{outcome.operator}: {outcome.reason}" if args.verbose else outcome.operator] += 1
    for kind, names in reasons.items():
        print(
            f"{kind}: "
            + ("\n  " if args.verbose else "")
            + ("\n  " if args.verbose else ", ").join(f"{name} {count}" for name, count in names.most_common())
        )
    print(
        f"torch {torch.__version__}, {'machine code' if args.compiled else 'NumPy meanings'}: "
        f"{kinds['equal']:,} of {counted:,} samples equal ({share:.1%}; {WANTED:.0%} wanted), "
        f"{kinds['apart']:,} apart"
    )
    if args.json:
        args.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
