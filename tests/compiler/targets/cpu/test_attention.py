"""Attention is one kernel, whatever stands between its parts, and gives what its parts give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from weft.compiler.graph import Constant, Expr, Module, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.attention import CpuAttention
from weft.compiler.targets.cpu.processor import AttentionLimits, host_target

from .programs import compiled
from .test_link import check, floats, kinds, module_of

SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 48, 65, 100, 131])
NOTHING: Callable[[Expr], Expr] = lambda x: x  # noqa: E731


def variables(**shapes: tuple[int, ...]) -> tuple[Var, ...]:
    return tuple(Var(name, TensorType(shape, "float32")) for name, shape in shapes.items())


def attention(
    q: Expr, k: Expr, v: Expr, before: Callable[[Expr], Expr] = NOTHING, behind: Callable[[Expr], Expr] = NOTHING
) -> Expr:
    """Of keys that are rows; ``before`` and ``behind`` the softmax."""
    rank = len(k.shape)
    keys = call("transpose", k, perm=(*range(rank - 2), rank - 1, rank - 2))
    scores = before(call("nn.matmul", q, keys))
    return call("nn.matmul", behind(call("nn.softmax", scores, axis=len(scores.shape) - 1)), v)


def masked(shape: tuple[int, ...]) -> Constant:
    """Where a query may not see a key, as models have it."""
    return Constant(np.where(np.random.default_rng(3).random(shape) < 0.3, np.finfo(np.float32).min, 0).astype("f"))


BEFORE: dict[str, Callable[[Expr], Expr]] = {
    "nothing": NOTHING,
    "scale": lambda x: call("nn.multiply", x, Constant(np.float32(0.3))),
    "bias of each key": lambda x: call("nn.add", x, masked((x.shape[0], 1, 1, x.shape[-1]))),
    "causal": lambda x: call(
        "nn.where", Constant(np.tri(*x.shape[-2:], dtype=bool)), call("nn.divide", x, Constant(np.float32(4))),
        Constant(np.float32(-np.inf)),
    ),
    "soft cap": lambda x: call("nn.multiply", call("nn.tanh", x), Constant(np.float32(3))),
}  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_attention_of_any_size(data: st.DataObject) -> None:
    """With heads and batches that broadcast, and a residual behind it."""
    draw = data.draw
    batch, heads, queries, keys, depth, width = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *(
        draw(SIZES) for _ in range(4)
    ))  # fmt: skip
    shared = draw(st.booleans())
    q, k, v, x = variables(
        q=(batch, heads, queries, depth), k=(batch, 1 if shared else heads, keys, depth),
        v=(1 if shared else batch, heads, keys, width), x=(heads, queries, width),
    )  # fmt: skip
    before = BEFORE[draw(st.sampled_from(sorted(BEFORE)))]
    if draw(st.booleans()):
        value = call("nn.add", x, attention(q, k, v, before))
    else:
        value = call("nn.add", attention(q, k, v, before), x)
    model = check(module_of(value, params=(q, k, v, x)), draw(st.sampled_from([1, 2])))
    assert kinds(model)[-1] == "attention"
    assert "product" not in kinds(model)
    macs = batch * heads * queries * keys * (depth + width)
    assert sum(layer.macs for layer in model.layers) == macs


def test_what_stands_between_softmax_and_the_sum() -> None:
    """Rows without any key are not a number after softmax, which exporters replace."""
    q, k, v = variables(q=(2, 3, 21, 8), k=(2, 3, 19, 8), v=(2, 3, 19, 5))
    mask = np.tri(21, 19, dtype=bool)
    mask[4] = False

    def behind(weights: Expr) -> Expr:
        return call("nn.where", call("nn.is_nan", weights), Constant(np.float32(0)), weights)

    def before(scores: Expr) -> Expr:
        return call("nn.where", Constant(mask), scores, Constant(np.float32(-np.inf)))

    module = module_of(attention(q, k, v, before, behind), params=(q, k, v))
    assert kinds(check(module, threads=2)) == ["plain", "attention"]
    module = module_of(attention(q, k, v, before), params=(q, k, v))
    with np.errstate(invalid="ignore"):
        check(module)


def test_layouts_constants_and_matrices() -> None:
    """Images come in blocks of channels, keys and values may be constants, and there may be no heads."""
    x, w = variables(x=(1, 16, 9, 12))[0], floats(16, 16, 1, 1)
    image = call("nn.conv2d", x, w)
    scores = call("nn.softmax", call("nn.matmul", image, floats(16, 12, 33)), axis=3)
    assert "attention" in kinds(check(module_of(call("nn.matmul", scores, floats(33, 7)), params=(x,))))
    q, k, v = variables(q=(40, 16), k=(50, 16), v=(50, 24))
    assert kinds(check(module_of(attention(q, k, v), params=(q, k, v)))) == ["plain", "attention"]
    keys = call("nn.conv2d", x, w)
    scores = call("nn.softmax", call("nn.matmul", floats(1, 16, 5, 9), keys), axis=3)
    check(module_of(call("nn.matmul", scores, call("transpose", image, perm=(0, 1, 3, 2))), params=(x,)))


def turned(value: Expr, *perm: int) -> Expr:
    return call("transpose", value, perm=perm)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_rows_of_several_heads_are_read_where_they_lie(data: st.DataObject) -> None:
    """Models have the heads of a token side by side; axes before the rows may stand in any order."""
    draw = data.draw
    batch, heads, queries, keys, depth, width = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *(
        draw(SIZES) for _ in range(4)
    ))  # fmt: skip
    perm = (*draw(st.permutations(range(3))), 3)
    places = [perm.index(axis) for axis in range(3)]
    shape = (batch, heads, queries)
    q, k, v = variables(
        q=(*(shape[place] for place in places), depth), k=(batch, heads, keys, depth), v=(batch, keys, heads, width)
    )
    value = attention(turned(q, *perm), k, turned(v, 0, 2, 1, 3), BEFORE[draw(st.sampled_from(sorted(BEFORE)))])
    model = check(module_of(value, params=(q, k, v)), draw(st.sampled_from([1, 2])))
    assert kinds(model) in (["plain", "attention"], ["attention"])  # the keys, unless they lie so already


def test_transpositions_that_attention_does_not_read_through() -> None:
    """Rows that are not whole, or that something else needs; and images, of which the rows are copied."""
    q, k, v = variables(q=(2, 8, 21), k=(2, 19, 8), v=(19, 2, 5))
    rows, values = turned(q, 0, 2, 1), turned(v, 1, 0, 2)
    assert kinds(check(module_of(attention(rows, k, values), params=(q, k, v)))).count("plain") == 2
    both = module_of(attention(rows, k, values), values, params=(q, k, v))
    assert kinds(check(both)).count("plain") == 3
    x = variables(x=(1, 16, 9, 12))[0]
    image = call("nn.conv2d", x, floats(16, 16, 1, 1))
    value = attention(turned(image, 0, 2, 1, 3), floats(1, 9, 33, 12), floats(1, 9, 33, 7))
    check(module_of(value, params=(x,)))
    scores = call("nn.softmax", call("nn.matmul", floats(1, 9, 5, 12), floats(1, 9, 12, 16)), axis=3)
    check(module_of(call("nn.matmul", scores, turned(image, 0, 2, 1, 3)), params=(x,)))


def test_one_operand_as_queries_and_values() -> None:
    x, k = variables(x=(1, 40, 3, 16), k=(1, 3, 40, 16))
    rows = turned(x, 0, 2, 1, 3)
    assert kinds(check(module_of(attention(rows, k, rows), params=(x, k)))) == ["plain", "attention"]


def test_large_scores_do_not_overflow() -> None:
    q, k, v = variables(q=(1, 1, 30, 4), k=(1, 1, 40, 4), v=(1, 1, 40, 3))
    module = module_of(
        attention(q, k, v, lambda x: call("nn.multiply", x, Constant(np.float32(1e4)))), params=(q, k, v)
    )
    check(module)


def test_what_is_no_attention_stays_in_parts() -> None:
    q, k, v = variables(q=(2, 9, 8), k=(2, 11, 8), v=(2, 11, 8))
    scores = call("nn.matmul", q, turned(k, 0, 2, 1))
    weights = call("nn.softmax", scores, axis=2)
    mixed = call("nn.matmul", weights, v)
    for results in ((mixed, weights), (mixed, scores)):  # others want what is between
        assert "attention" not in kinds(check(module_of(*results, params=(q, k, v))))
    across = call("nn.matmul", call("nn.softmax", scores, axis=1), v)
    assert "attention" not in kinds(check(module_of(across, params=(q, k, v))))


def test_weights_for_several_matrices_of_values_are_computed_once() -> None:
    q, k, v = variables(q=(9, 8), k=(11, 8), v=(3, 11, 8))
    assert "attention" not in kinds(check(module_of(attention(q, k, v), params=(q, k, v))))


def test_as_many_keys_as_queries_of_a_tile() -> None:
    rows = CpuAttention(host_target()).tiles((64, 8), 8, 8, True).rows
    q, k, v = variables(q=(64, 8), k=(rows, 8), v=(rows, 8))
    assert kinds(check(module_of(attention(q, k, v), params=(q, k, v)))) == ["plain", "attention"]


def test_more_keys_than_the_limit_are_no_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_target()
    fewer = replace(host, fusion=replace(host.fusion, attention=AttentionLimits(keys=10)))
    monkeypatch.setattr("weft.compiler.targets.cpu.target.named_target", lambda name: fewer)
    for keys, expected in ((10, True), (11, False)):
        q, k, v = variables(q=(5, 8), k=(keys, 8), v=(keys, 8))
        assert ("attention" in kinds(check(module_of(attention(q, k, v), params=(q, k, v))))) == expected


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_processors_with_shorter_registers(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = replace(host_target(), vector_bytes=vector_bytes, registers=16)
    monkeypatch.setattr("weft.compiler.targets.cpu.target.named_target", lambda name: shorter)
    monkeypatch.setenv("WEFT_CACHE", "/dev/null")  # kernels are kept by the processor's name
    q, k, v = variables(q=(2, 3, 19, 30), k=(2, 3, 37, 30), v=(2, 3, 37, 21))
    assert "attention" in kinds(check(module_of(attention(q, k, v, BEFORE["scale"]), params=(q, k, v)), threads=2))


def test_panels_of_many_keys() -> None:
    q, k, v = variables(q=(1, 1, 61, 64), k=(1, 1, 1031, 64), v=(1, 1, 1031, 40))
    tiles = CpuAttention(host_target()).tiles((1, 1, 61, 40), 64, 1031, True)
    assert tiles.packed
    assert kinds(check(module_of(attention(q, k, v), params=(q, k, v)), threads=2)) == ["plain", "attention"]


def test_the_matrix_of_scores_is_not_in_memory() -> None:
    q, k, v = variables(q=(1, 4, 512, 16), k=(1, 4, 512, 16), v=(1, 4, 512, 16))
    model = check(module_of(attention(q, k, v), params=(q, k, v)))
    scores = 4 * 512 * 512 * 4
    assert model.statistics["arena_bytes"] < scores / 4


@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"softcap": 2.0}])
def test_attention_of_onnx_is_one_kernel(attributes: dict[str, Any]) -> None:
    """Its parts, as its definition has them, with a mask."""
    shape = (2, 3, 24, 16)
    values = {name: np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32) for name in "qkv"}
    values["mask"] = np.where(np.tri(24, dtype=bool), 0, -1).astype(np.float32)
    info = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node("Attention", [*values], ["y"], **attributes)], "attention",
        [info(name, shape=array.shape) for name, array in values.items()], [info("y", shape=shape)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    found = compiled(model)
    assert kinds(found).count("attention") == 1
    assert "product" not in kinds(found)
    (expected,) = ReferenceEvaluator(model).run(None, values)
    np.testing.assert_allclose(weft.load(found).run(values)["y"], expected, atol=1e-5)


def test_a_program_from_a_file_is_proved(tmp_path: Path) -> None:
    q, k, v = variables(q=(1, 2, 45, 16), k=(1, 2, 77, 16), v=(1, 2, 77, 24))
    module: Module = module_of(attention(q, k, v, BEFORE["scale"]), params=(q, k, v))
    path = tmp_path / "model.weft"
    weft.save(compiled(module, threads=2), path)
    generator = np.random.default_rng(0)
    values = {each.name: generator.standard_normal(each.shape).astype(np.float32) for each in (q, k, v)}
    (found,) = weft.load(path).run(values).values()
    (expected,) = evaluate(module, values).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)
