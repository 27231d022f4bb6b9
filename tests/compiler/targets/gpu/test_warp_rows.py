"""Rows that a warp holds: reduced by exchanges between lanes."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Module, evaluate
from weft.compiler.model import HostStep
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.digits import BLOCK_AXES, THREAD, WARP
from weft.compiler.targets.gpu.intrinsics import REDUCED, REDUCTIONS, intrinsic_named, warp_reduce
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.nvptx import ptx_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.registry import find_target
from weft.compiler.tensor.errors import IRError
from weft.compiler.tensor.parser import parse
from weft.sim.ptx import DeviceMemory, Program

from .graphs import RUN_ON, check_on, values_for
from .test_rows import over

SM_80 = DEVICES["sm_80"]


def launches(module: Module, tolerance: float = 1e-5) -> tuple[list[Grid], str]:
    """Check the module in the interpreter of PTX; its launches, and their text."""
    values = values_for(module)
    model = check_on("cuda", module, values, evaluate(module, values), tolerance)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    text = find_target("cuda").host_code(step.program, trusted=False).text  # type: ignore[union-attr]
    return [grid for code in step.program.kernels
            for grid in grids_of(parse(code.text, intrinsic_named), SM_80)], text  # fmt: skip


@pytest.mark.parametrize(
    ("module", "rows", "exchanges"),
    [
        (over("nn.softmax", (6, 128), axis=1), 3, 10),
        (over("nn.softmax", (2, 5, 64), axis=2), 1, 10),
        (over("nn.softmax", (4, 1024), axis=1), 4, 10),
        (over("nn.reduce_max", (7, 96), axes=(1,), keepdims=False), 1, 5),
        (over("nn.reduce_min", (3, 2, 64), "int32", axes=(2,), keepdims=True), 1, 5),
        (over("nn.reduce_mean", (4, 3, 16, 16), axes=(2, 3), keepdims=False), 1, 5),
    ],
    ids=["softmax", "few", "long", "max", "min", "mean"],
)  # fmt: skip
def test_a_warp_reduces_a_row_in_registers(module: Module, rows: int, exchanges: int) -> None:
    (grid,), text = launches(module)
    assert grid.threads == 32 * rows
    assert not grid.shared
    assert not grid.workspace
    assert text.count("shfl.sync.bfly") == exchanges
    assert ".local" not in text


@settings(max_examples=5)
@given(st.integers(1, 9), st.integers(2, 8), st.sampled_from(["sum", "max", "min"]),
       st.sampled_from(["float32", "int32", "uint32"]))  # fmt: skip
def test_any_rows_of_whole_warps(rows: int, each: int, op: str, dtype: str) -> None:
    (grid,), text = launches(over(f"nn.reduce_{op}", (rows, 32 * each), dtype, axes=(1,), keepdims=False))
    assert not grid.shared
    assert text.count("shfl.sync.bfly") == 5


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9), st.integers(65, 1024), st.sampled_from(["nn.softmax", "nn.reduce_mean", "nn.reduce_min"]))
def test_any_rows_of_some_length(rows: int, length: int, op: str) -> None:
    """The last lanes of a warp have nothing to do."""
    kept = {} if op == "nn.softmax" else {"keepdims": True}
    (grid,), text = launches(over(op, (rows, length), **{"axis": 1} if op == "nn.softmax" else {"axes": (1,)}, **kept))
    assert not grid.shared
    assert "shfl" in text


@pytest.mark.parametrize(("op", "sign"), [("nn.reduce_max", -1), ("nn.reduce_min", 1)])
def test_the_last_lanes_are_in_no_extreme(op: str, sign: int) -> None:
    x = sign * (1 + np.random.default_rng(0).random((3, 77), np.float32))
    module = over(op, x.shape, axes=(1,), keepdims=False)
    (found,) = weft.load(weft.compile(module, target="cuda", strict=True), RUN_ON["cuda"]).run({"x": x}).values()
    (wanted,) = evaluate(module, {"x": x}).values()
    np.testing.assert_array_equal(found, wanted)


def test_few_instructions_for_a_softmax() -> None:
    """Vectors of four, one instruction for each exponential and each larger one."""
    _, text = launches(over("nn.softmax", (4, 256), axis=1))
    kinds = Counter(re.findall(r"^\t(\w+\.[\w.]+)", text, re.MULTILINE))
    assert kinds["ld.global.v4.b32"] == kinds["st.global.v4.b32"] == 2
    assert kinds["ex2.approx.f32"] == 8
    assert not any(kind.startswith(("setp", "selp", "ld.global.b32")) for kind in kinds)
    assert kinds["rcp.rn.f32"] == 1


@pytest.mark.parametrize("length", [64, 77])
def test_awkward_rows_mean_the_same(length: int) -> None:
    x = np.random.default_rng(0).normal(size=(6, length)).astype(np.float32)
    x[1, 40], x[2, 3], x[3, 63], x[4], x[5, ::7] = np.nan, np.inf, -np.inf, -np.inf, 1e30
    module = over("nn.softmax", x.shape, axis=1)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(module, {"x": x}).values()
    (found,) = weft.load(weft.compile(module, target="cuda", strict=True), RUN_ON["cuda"]).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "module",
    [
        over("nn.softmax", (4, 33), axis=1),
        over("nn.softmax", (2, 2048), axis=1),
        over("nn.reduce_product", (3, 64), axes=(1,), keepdims=False),
        over("nn.reduce_max", (3, 64), "int8", axes=(1,), keepdims=False),
    ],
    ids=["half a warp too long", "too long", "product", "bytes"],
)
def test_other_rows_are_reduced_without(module: Module) -> None:
    assert "shfl" not in launches(module)[1]


def test_names_of_exchanges() -> None:
    for op in REDUCTIONS:
        for dtype in REDUCED:
            assert intrinsic_named(f"warp_{op}_{dtype}") == warp_reduce(op, dtype)
    for name in ("warp_sub_float32", "warp_add_float16", "warp_add"):
        with pytest.raises(IRError, match=f"a GPU has no intrinsic '{name}'"):
            intrinsic_named(name)


@pytest.mark.parametrize("filled", [True, False])
def test_a_call_begins_with_its_value_or_goes_on(filled: bool) -> None:
    """A text says with what it begins; without that it adds to what the call before it left."""
    (layer,) = weft.compile(over("nn.reduce_sum", (1, 64), axes=(1,), keepdims=False), target="cuda").steps
    assert isinstance(layer, HostStep)
    (code,) = layer.program.kernels
    head, call_text, rest = re.split(
        r"( *warp_add_float32.*?init_value=float32\(0.0\)\)\n)", code.text, flags=re.DOTALL
    )
    first = call_text.replace("float32(0.0)", "float32(2.5)")
    again = call_text if filled else re.sub(r",\s*init=.*", ")\n", call_text)
    func = parse(head + first + again.replace('"reduced"', '"again"') + rest, intrinsic_named)
    (grid,) = grids_of(func, SM_80)
    memory, x = DeviceMemory(), np.arange(64, dtype=np.float32)
    found = np.zeros(1, np.float32)
    addresses = [memory.put(x), memory.put(found)]
    Program(ptx_text("k", func, [grid], {}, SM_80), memory).launch("k_0", grid.groups, (grid.threads,), addresses)
    memory.read(addresses[1], found)
    assert found[0] == (x.sum() if filled else 2.5 + 2 * x.sum())


def test_what_a_warp_has_is_not_read_by_another() -> None:
    """Each of two warps has a sum; then 64 threads want both."""
    x = te.placeholder((2, 32), "float32", "x")
    k = te.reduce_axis(32, "k")
    held = te.compute((2, 32), lambda i, j: x[i, j], "held")
    total = te.compute((2,), lambda i: te.sum(held[i, k], [k]), "total")
    out = te.compute((1, 2, 64), lambda b, i, j: total[i] + te.Const(0.0, "float32"), "out")
    schedule = te.create_schedule(out, [x])
    block, _, thread = schedule.get_loops("out")
    for name in ("total", "held"):
        schedule.set_scope(name, "register")
        schedule.compute_at(name, block)
    for loop in schedule.get_loops("held")[1:]:
        schedule.bind(loop, THREAD)
    _, row, lane = schedule.get_loops("total")
    schedule.bind(row, WARP)
    schedule.tensorize(lane, warp_reduce("add", "float32"))
    schedule.bind(block, BLOCK_AXES[0])
    schedule.bind(thread, THREAD)
    with pytest.raises(CompileError, match="buffer 'total': it cannot be split among threads"):
        grids_of(schedule.func, SM_80)
