"""What the tables about a model on the CPU say, of a graph small enough to count the bytes by hand."""

from __future__ import annotations

import io

import numpy as np
import pytest
import weft
from rich.console import Console
from weft.compiler.graph import Attrs, Constant, Function, Module, Span, TensorType, Tuple, Var, call
from weft.compiler.model import HostProgram, HostStep
from weft.runtime.report import placement_table
from weft.runtime.report_host import fusion_table, memory_text, most_alive, peak_records


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    """A convolution with a swish behind it; a sum over its image is a second output."""
    x = Var("x", TensorType((1, 16, 4, 4), "float32"))  # 1,024 bytes
    weights = Constant(np.ones((16, 16, 1, 1), np.float32))
    product = call("nn.conv2d", x, weights, span=Span(("conv",)))
    swish = call("nn.multiply", product, call("nn.sigmoid", product), span=Span(("swish",)))
    total = call("nn.reduce_sum", swish, axes=(2, 3), keepdims=True, span=Span(("total",)))
    scaled = call("nn.multiply", total, Constant(np.float32(0.5)))
    body = Tuple((swish, scaled))
    return weft.compile(Module(Function((x,), body, Attrs({"name": "main", "outputs": ("a", "b")}))), target="cpu")


def text(table: object) -> str:
    console = Console(width=160, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_statistics_count_what_fusion_saves(model: weft.CompiledModel) -> None:
    swish = 1024 * 3 + 1024 * 2  # the sums: a write and two reads; their sigmoid: a write and a read
    total = 64 * 2
    assert [layer.saved_bytes for layer in model.layers if layer.operators] == [swish, total]
    assert model.statistics["saved_bytes"] == swish + total
    assert model.statistics["fused_groups"] == 2


def test_the_table_of_fusion_names_what_is_fused_and_what_is_not_and_why(model: weft.CompiledModel) -> None:
    lines = [" ".join(line.split()) for line in text(fusion_table(model)).splitlines()]
    assert "conv nn.conv2d + nn.sigmoid + nn.multiply 5,120" in lines
    assert ("total nn.reduce_sum + nn.multiply 128 nn.multiply of swish: nn.reduce_sum stands first in its kernel"
            in lines)  # fmt: skip
    assert "2 of 2 kernels are fused, which saves 5,248 bytes of memory traffic in a run" in lines


def test_the_table_of_placement_has_a_row_for_every_kernel(model: weft.CompiledModel) -> None:
    shown = text(placement_table(model))
    assert all(layer.name in shown for layer in model.layers)
    assert "4,096" in shown


def test_memory_is_told_as_it_is_allocated() -> None:
    x = Var("x", TensorType((2, 4, 4), "float32"))  # 128 bytes
    total = call("nn.inverse", call("nn.exp", call("nn.inverse", x)))
    compiled = weft.compile(Module(Function((x,), call("nn.tanh", total))), target="cpu")
    assert memory_text(compiled) == (
        "memory: 256 bytes between kernels, of which 256 are alive at once; 384 without sharing; "
        "1 of 3 tensors are written over an operand"
    )


def test_the_peak_is_listed_with_who_makes_and_who_reads() -> None:
    """A sum over everything keeps its operand until it is there; what is between is as large, and the last is small."""
    x = Var("x", TensorType((4, 16, 16), "float32"))  # 4,096 bytes
    first = call("nn.inverse", x, span=Span(("first",), "a"))
    second = call("nn.inverse", first, span=Span(("second",), "b"))
    total = call("nn.reduce_sum", call("nn.add", first, second), axes=(0, 1, 2), span=Span(("total",)))
    result = call("nn.inverse", call("reshape", total, shape=(1, 1)))
    compiled = weft.compile(Module(Function((x,), result)), target="cpu")
    (program,) = (step.program for step in compiled.steps if isinstance(step, HostStep))
    assert isinstance(program, HostProgram)
    records = peak_records(program)
    assert [(each["tensor"], each["bytes"], each["made"], each["read"]) for each in records[:2]] == [
        ("a", 4096, "first", "total"), ("b", 4096, "second", "total"),
    ]  # fmt: skip
    assert {each["made"] for each in records[2:]} == {"total"}  # its result, and what it works with
    assert sum(each["bytes"] for each in records) == most_alive(program)
    shown = [" ".join(line.split()) for line in text(fusion_table(compiled)).splitlines()]
    assert any(line.startswith("alive in step") for line in shown)
    assert f"a 4,096 first {records[0]['first']} total {records[0]['last']}" in shown
    assert f"total {most_alive(program):,}" in shown
