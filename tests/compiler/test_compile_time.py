"""How compiling grows with the network: calls in Python are counted, so that neither machine nor load matters."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, ir
from weft.compiler.model import Layer
from weft.compiler.targets.accel.link.host_part import _Reasons
from weft.compiler.targets.loops import fusion
from weft.compiler.targets.loops.fusion import FusionLimits
from weft.compiler.targets.memory_plan import Lifetime, place_owners

from benchmarks.zoo.chains import KINDS
from benchmarks.zoo.chains import chain as chain_network
from tests.calls import calls_of

WEIGHTS = Constant(np.ones((4, 4, 1, 1), np.float32))


def chain(kind: str, count: int) -> Module:
    """So many operators behind each other: convolutions with sums across them, or elementwise ones."""
    x = Var("x", TensorType((1, 4, 4, 4), "float32"))
    before: Expr = x
    value: Expr = x
    for number in range(count):
        if kind == "elementwise":
            value = call("nn.tanh" if number % 2 else "nn.negative", value)
        elif kind == "residual" and number % 2:
            value = call("nn.add", value, before)
        else:
            before, value = value, call("nn.conv2d", value, WEIGHTS)
    return Module(Function((x,), value, Attrs({"name": "main", "outputs": ("y",)})))


def calls_to_compile(kind: str, count: int) -> int:
    module = chain(kind, count)
    return calls_of(lambda: weft.compile(module, target="cpu"))


IN_A_PROCESS = """
import sys
from tests.compiler.test_compile_time import calls_to_compile
kind, count = sys.argv[1], int(sys.argv[2])
calls_to_compile(kind, 8)  # what is loaded and remembered once
print(*(calls_to_compile(kind, count * times) for times in (1, 2, 4)))
"""
"""Of its own: what earlier tests have filled memories with decides what is remembered, and what is forgotten early."""


@pytest.mark.parametrize(("kind", "count"), [("residual", 32), ("elementwise", 128)])
def test_twice_as_many_operators_take_twice_as_many_calls(kind: str, count: int, tmp_path: Path) -> None:
    def growth(folder: Path) -> float:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, kind, str(count)], check=True, capture_output=True, text=True,
            cwd=Path(__file__).parents[2], env=os.environ | {"WEFT_CACHE": str(folder)},
        )  # fmt: skip
        small, middle, large = map(int, done.stdout.split())
        return (large - middle) / (middle - small)

    # One process was seen to count thousands of calls more, at all three sizes; none of 60 like it did.
    assert any(growth(tmp_path / attempt) < 2.02 for attempt in ("first", "second"))


def nodes_walked_for_the_core(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Nodes in all orders that passes ask for."""
    walked = 0

    def counted(root: Expr) -> list[Expr]:
        nonlocal walked
        order = ordered(root)
        walked += len(order)
        return order

    ordered = ir._ordered
    model = chain_network(kind, count, quantised=True)
    with monkeypatch.context() as patched:
        patched.setattr(ir, "_ordered", counted)
        weft.compile(model, target="accel", config="tiny", cache=False)
    return walked


@pytest.mark.parametrize("kind", KINDS)
def test_no_pass_for_the_core_walks_the_graph_for_each_layer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (nodes_walked_for_the_core(kind, count, monkeypatch) for count in (40, 160))
    assert large < 4 * small


def test_reasons_on_the_host_are_those_of_the_layers_own_nodes() -> None:
    known = _Reasons()
    known.add("nn.add", ("a", "b"), "first")
    known.add("nn.mul", ("b",), "second")
    known.add("nn.add", ("c",), "third")
    known.add("nn.add", ("b",), "second")
    layer = Layer("l", ("b", "a"), "plain", "cpu", "", (1,), 0, "", ("nn.mul", "nn.add"))
    assert known.of(layer) == ["first", "second"]
    assert known.of(replace(layer, operators=("nn.mul",))) == ["second"]
    assert known.of(replace(layer, nodes=())) == ["first", "second", "third"]
    assert known.of(replace(layer, nodes=("elsewhere",))) == []


def walks_to_compile(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a graph of so many operators is walked from its end to its inputs."""
    walked = 0

    def counted(root: Expr) -> list[Expr]:
        nonlocal walked
        order = ordered(root)
        walked += len(order) >= count
        return order

    ordered = ir._ordered
    module = chain("residual", count)
    monkeypatch.setattr(ir, "_ordered", counted)
    weft.compile(module, target="cpu")
    monkeypatch.setattr(ir, "_ordered", ordered)
    return walked


def test_a_graph_that_no_pass_changes_is_walked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass, and each check behind a pass, asks for its order."""
    assert 1 <= walks_to_compile(128, monkeypatch) <= 4


def test_the_owners_of_a_long_line_of_tensors_are_found_in_one_walk() -> None:
    """Each is written over the one before it."""

    def lines_run(count: int) -> int:
        run = 0

        def trace(frame: FrameType, event: str, _: object) -> Callable[..., object]:
            nonlocal run
            run += event == "line"
            return trace

        tensors = [Lifetime(str(number), 64, number, number + 1, str(number - 1) if number else "")
                   for number in range(count)]  # fmt: skip
        for order in (tensors, tensors[::-1]):
            sys.settrace(trace)
            try:
                owners = place_owners(order)
            finally:
                sys.settrace(None)
            assert set(owners.values()) == {"0"}
        return run

    assert lines_run(800) <= 2 * lines_run(400)


def test_operators_that_are_alike_are_lowered_once_to_see_whether_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried anew are those that differ in an attribute, a type or a known operand."""

    def tried(node: Call) -> str:
        nodes.append(node)
        return ""

    nodes: list[Call] = []
    monkeypatch.setattr(fusion, "why_not_compiled", tried)
    x = Var("x", TensorType((4, 4), "float32"))
    value: Expr = x
    for number in range(12):
        value = call("nn.clip", value, low=float(number % 3))
        value = call("nn.add", value, Constant(np.full((1, 4), number % 2, np.float32)))
    fusion.group_calls(value, FusionLimits())
    assert len(nodes) == 3 + 2


def left_to_the_collector(count: int) -> int:
    """Objects of a compilation that are in cycles, so that only the collector frees them."""
    module = chain("residual", count)
    gc.collect()
    gc.disable()
    try:
        weft.compile(module, target="cpu")
        return gc.collect()
    finally:
        gc.enable()


def test_what_a_kernel_is_made_of_is_freed_without_the_collector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The collector waits for a compilation: what is left to it stays until the end."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    left_to_the_collector(4)
    assert left_to_the_collector(96) <= left_to_the_collector(32) + 100


def test_the_collector_waits_for_a_compilation() -> None:
    waits = []
    weft.compile(chain("residual", 4), target="cpu", progress=lambda _: waits.append(not gc.isenabled()))
    assert waits.count(True) >= 2
    assert gc.isenabled()
