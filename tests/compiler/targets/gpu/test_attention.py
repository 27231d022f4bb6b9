"""Attention as one launch of a GPU: of any size and type, with what models have between its parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, Module, Var, call, dtypes, evaluate
from weft.compiler.graph.visit import topological_order
from weft.compiler.model import HostStep
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.attention import GpuAttention, shared_bytes_of
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.kernels import loop_target
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.nvptx import asks_for, ptx_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.loops.layouts import PLAIN
from weft.compiler.targets.registry import find_target
from weft.compiler.tensor.ir import DType
from weft.sim.ptx import DeviceMemory, Program, PtxError

from tests.effort import few

from ....sim.ptx.test_compilers import damages
from .counting import counted, sectors
from .graphs import RUN_ON, module_of, values_for, variable

TOLERANCE = {"float32": 1e-5, "float16": 2**-6, "bfloat16": 2**-3}
"""Of the largest result. Scores are below 32 here, and rounded to the graph's type: one that lies between two of its
numbers goes up or down by the order in which products are added, which changes its weight by as much."""


@pytest.fixture
def whenever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is one launch even where three would take less time."""
    monkeypatch.setattr(GpuAttention, "_cycles_apart", lambda *_: inf)


def kernels(module: Module, gpu: str = "sm_80", tolerances: Mapping[str, float] = TOLERANCE) -> list[str]:
    """The kinds of the module's kernels for a device, the code of which is proved as that of a stranger's file is; it
    gives what the graph means, but for a part of the largest result that its type allows."""
    model = weft.compile(module, target="cuda", gpu=gpu, strict=True)
    assert isinstance(model, weft.CompiledModel)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    find_target("cuda").host_code(step.program, trusted=False)
    values = values_for(module)
    with np.errstate(invalid="ignore"):
        wanted = evaluate(module, values)
    for name, result in weft.load(model, RUN_ON["cuda"]).run(values).items():
        expected = wanted[name].astype(np.float64)
        tolerance = tolerances[result.dtype.name] * max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=tolerance)
    return [layer.kind for layer in step.program.layers]


def attention(
    q: Expr, k: Expr, v: Expr, between: Callable[[Expr], Expr] = lambda scores: scores,
    behind: Callable[[Expr], Expr] = lambda weights: weights,
) -> Expr:  # fmt: skip
    """With keys as rows."""
    rank = len(k.shape)
    scores = between(call("nn.matmul", q, call("transpose", k, perm=(*range(rank - 2), rank - 1, rank - 2))))
    return call("nn.matmul", behind(call("nn.softmax", scores, axis=len(scores.shape) - 1)), v)


def number(value: float, like: Expr) -> Constant:
    return Constant(np.asarray(value, dtypes.numpy_dtype(like.dtype)))


BETWEEN: dict[str, Callable[[Expr], Expr]] = {
    "nothing": lambda x: x,
    "scale": lambda x: call("nn.multiply", x, number(0.3, x)),
    "mask of each query": lambda x: call("nn.add", x, masked((x.shape[0], 1, *x.shape[-2:]), x)),
    "causal": lambda x: call("nn.where", Constant(np.tri(*x.shape[-2:], dtype=bool)), x, number(-np.inf, x)),
    "soft cap": lambda x: call("nn.multiply", call("nn.tanh", x), number(3, x)),
}


def masked(shape: tuple[int, ...], like: Expr) -> Constant:
    mask = np.where(np.random.default_rng(3).random(shape) < 0.3, -1e4, 0)
    return Constant(mask.astype(dtypes.numpy_dtype(like.dtype)))


SIZES = st.sampled_from([8, 9, 16, 17, 31, 48, 64, 65, 100])


@pytest.mark.usefixtures("whenever_possible")
@pytest.mark.parametrize(
    ("gpu", "dtype"), [("sm_75", "float16"), ("sm_80", "float32"), ("sm_80", "float16"), ("sm_90", "bfloat16")]
)
@settings(max_examples=4)
@given(data=st.data())
def test_attention_of_any_size(gpu: str, dtype: DType, data: st.DataObject) -> None:
    """With heads and batches that broadcast, and heads of a token side by side."""
    draw = data.draw
    batch, heads, queries, keys, depth, width = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *(
        draw(SIZES) for _ in range(4)
    ))  # fmt: skip
    q = variable("q", dtype, batch, queries, heads, depth)
    k = variable("k", dtype, batch, 1 if draw(st.booleans()) else heads, keys, depth)
    v = variable("v", dtype, 1 if draw(st.booleans()) else batch, heads, keys, width)
    between = BETWEEN[draw(st.sampled_from(sorted(BETWEEN)))]
    value = attention(call("transpose", q, perm=(0, 2, 1, 3)), k, v, between)
    assert kernels(module_of((q, k, v), call("nn.abs", value)), gpu) == ["attention"]


def products_of(module: Module) -> tuple[Call, Call]:
    nodes = topological_order(module.main.body)
    first, second = (node for node in nodes if isinstance(node, Call) and node.op == "nn.matmul")
    return first, second


def kind_for(gpu: str) -> GpuAttention:
    kind = loop_target(DEVICES[gpu]).kinds[0]
    assert isinstance(kind, GpuAttention)
    return kind


def plain_attention(gpu: str, dtype: DType, queries: int, keys: int, depth: int, width: int) -> Module:
    q, k, v = variable("q", dtype, queries, depth), variable("k", dtype, keys, depth), variable("v", dtype, keys, width)
    return module_of((q, k, v), attention(q, k, v, BETWEEN["scale"]))


@pytest.mark.usefixtures("whenever_possible")
@pytest.mark.parametrize("dtype", few(["float16", "float32"], 1))
def test_all_tiles(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several panels of keys and of columns, and an edge of each."""
    module = plain_attention("sm_80", dtype, 70, 150, 40, 70)
    plans = kind_for("sm_80").plans(*products_of(module))
    assert {plan.first.rows for plan in plans} >= {16, 32, 64}
    for plan in plans[::5]:
        monkeypatch.setattr(GpuAttention, "plan", lambda *_, plan=plan: plan)
        assert kernels(module) == ["attention"], plan


@pytest.mark.parametrize("sizes", [(70, 150, 40, 70), (20, 500, 300, 40), (130, 1000, 64, 64)])
@pytest.mark.parametrize(("gpu", "dtype"), [("sm_75", "float16"), ("sm_80", "float16"), ("sm_90", "float32")])
def test_a_launch_takes_no_more_memory_than_its_plan_says(
    gpu: str, dtype: DType, sizes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuAttention, "_cycles_apart", lambda *_: inf)
    queries, keys, depth, width = sizes
    module = plain_attention(gpu, dtype, queries, keys, depth, width)
    kind, device = kind_for(gpu), DEVICES[gpu]
    plans = kind.plans(*products_of(module))
    if plans:
        (group,) = loop_target(device).groups(module.main.body)
    for plan in plans[::3]:
        monkeypatch.setattr(GpuAttention, "plan", lambda *_, plan=plan: plan)
        kernel = kind.build(group, dict.fromkeys(group.inputs, PLAIN), PLAIN, "k")
        (grid,) = grids_of(kernel.schedule().func, device)
        assert grid.shared_bytes <= shared_bytes_of(plan, depth, keys, width, device), plan


def test_it_is_left_apart_where_that_takes_less_time() -> None:
    """Few queries, many keys for little memory, types that differ; and a group that is none."""
    for gpu, dtype, sizes, expected in (
        ("sm_80", "float16", (128, 128, 64, 64), True), ("sm_80", "float16", (7, 128, 64, 64), False),
        ("sm_80", "float16", (2048, 1025, 64, 64), False), ("sm_75", "float32", (512, 1000, 64, 64), False),
    ):  # fmt: skip
        product, anchor = products_of(plain_attention(gpu, dtype, *sizes))
        assert kind_for(gpu).makes(product, anchor) == expected, (gpu, dtype, sizes)
    kind = kind_for("sm_80")
    x = variable("x", "float32", 4, 4)
    (group,) = loop_target(DEVICES["sm_80"]).groups(call("nn.matmul", x, x))
    with pytest.raises(CompileError, match="it has no attention"):
        kind.build(group, {x: PLAIN}, PLAIN, "k")


def test_the_fewest_queries_and_the_most_keys() -> None:
    for queries, keys, possible in ((8, 1024, True), (7, 1024, False), (8, 1025, False)):
        products = products_of(plain_attention("sm_80", "float16", queries, keys, 64, 64))
        assert bool(kind_for("sm_80").plans(*products)) == possible, (queries, keys)


def test_rows_that_see_nothing_and_scores_without_bounds() -> None:
    """They are no numbers, as in the graph; large scores do not overflow. The last bit of a score of 16,384 is 2**-9,
    by which a weight changes where two scores are the largest."""
    q, k, v = (variable(name, "float32", 2, 40, 16) for name in "qkv")
    mask = np.zeros((40, 40), np.float32)
    mask[3], mask[5, 7:] = -np.inf, -np.inf
    seen = lambda x: call("nn.add", call("nn.multiply", x, number(1e3, x)), Constant(mask))  # noqa: E731
    module = module_of((q, k, v), attention(q, k, v, seen))
    assert kernels(module, tolerances={"float32": 2**-9}) == ["attention"]


def test_what_stands_between_softmax_and_the_second_product() -> None:
    q, k, v = (variable(name, "float32", 2, 40, 16) for name in "qkv")
    factor = Constant(np.random.default_rng(0).random((40, 40)).astype("f"))
    dropped = attention(q, k, v, BETWEEN["scale"], lambda x: call("nn.multiply", x, factor))
    assert kernels(module_of((q, k, v), dropped)) == ["attention"]


def test_one_launch_moves_no_scores() -> None:
    """Only operands and the result, each once for each group; and no two threads meet in a bank."""
    module = plain_attention("sm_80", "float16", 128, 197, 64, 64)
    (launch,) = counted(module)
    assert launch.counts.conflicts == 0
    moved, fewest = sectors(launch.counts)
    assert moved <= 1.01 * fewest
    rows = 128 // launch.call.groups[0]
    assert moved <= (128 * 64 * 2 * 2 + 128 // rows * 197 * 64 * 2 * 2) // 32 * 1.06


def outcome(text: str, grid: Grid, arrays: Sequence[np.ndarray], wanted: np.ndarray) -> str:
    """What a text of the kernel does: it is refused, or its results are right, or wrong."""
    memory, found = DeviceMemory(), np.full(wanted.shape, 77, arrays[0].dtype)
    addresses = [memory.put(each) for each in (*arrays, found)]
    try:
        Program(text, memory).launch("k_0", grid.groups, (grid.threads,), [addresses[n] for n in grid.params],
                                     dynamic_shared=asks_for(grid), limit=1 << 14)  # fmt: skip
    except PtxError:
        return "refused"
    memory.read(addresses[-1], found)
    near = np.allclose(found.astype(np.float64), wanted, rtol=0, atol=4e-3 * np.abs(wanted).max())
    return "right" if near else "wrong"


@pytest.mark.usefixtures("whenever_possible")
@pytest.mark.parametrize(("gpu", "dtype"), few([("sm_80", "float16"), ("sm_75", "float16")], 1))
def test_damage_is_noticed(gpu: str, dtype: DType) -> None:
    """Of a kernel without edges, whose rings go round: there each barrier, wait, copy and store is needed."""
    queries, keys, depth, width = 16, 320, 64, 64
    module = plain_attention(gpu, dtype, queries, keys, depth, width)
    device = DEVICES[gpu]
    (group,) = loop_target(device).groups(module.main.body)
    kernel = kind_for(gpu).build(group, dict.fromkeys(group.inputs, PLAIN), PLAIN, "k")
    schedule = kernel.schedule()
    (grid,) = grids_of(schedule.func, device)
    generator = np.random.default_rng(0)
    values = {name: generator.normal(size=shape).astype(dtypes.numpy_dtype(dtype)) for name, shape in
              (("q", (queries, depth)), ("k", (keys, depth)), ("v", (keys, width)))}  # fmt: skip
    arrays = [values[each.name] for each in group.inputs if isinstance(each, Var)]
    q, k, v = (values[name].astype(np.float64) for name in "qkv")
    powers = np.exp(0.3 * q @ k.T)
    wanted = powers / powers.sum(1, keepdims=True) @ v
    text = ptx_text("k", schedule.func, [grid], {}, device, (16,) * 4)
    assert outcome(text, grid, arrays, wanted) == "right"
    tried: Counter[str] = Counter()
    survivors = []
    for what, changed in damages(text):
        tried[what.split()[0].split(".")[0]] += 1
        of_extremes = re.match(r"setp\.gt\.f", what)  # of two equal numbers it does not matter which is the larger
        if not of_extremes and outcome(changed, grid, arrays, wanted) == "right":
            survivors.append(what)
    assert tried["bar"] >= 4
    assert tried["cp" if device.asynchronous else "st"] > 8
    assert not survivors
