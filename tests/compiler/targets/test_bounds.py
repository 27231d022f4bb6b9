"""Every way from a computation to code proves that it stays inside its tensors, or names the access that may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ll
import numpy as np
import pytest
import weft
from weft.compiler import tensor as t
from weft.compiler.graph import Attrs, Call, Expr, Function, Module, TensorType, Var, call, registry
from weft.compiler.graph.registry import Family, Fusion, Operator, register, unsupported
from weft.compiler.operators.samples import sample_of
from weft.compiler.targets.accel.link.function_program import function_program
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.cpu.llvm.emit import emit_kernel
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.errors import CompileError
from weft.compiler.tensor.view import Builder, Index, View
from weft.hw.config import TINY

INDEX = r"index 'i0 \+ 1' of 'x' may be 1\.\.4, but axis 0 has 4 elements"


def shifted_copy(by: int) -> t.Schedule:
    """Each row of four is the one ``by`` behind it, tensorized for ``tiny``."""
    x = t.placeholder((4, 1, 1, 4), "int8", "x")
    wide = t.compute(x.shape, lambda *i: x[(i[0] + by, *i[1:])].astype("int32"), "wide")
    y = t.compute(x.shape, lambda *i: (wide[i] + 0).astype("int8"), "y")
    schedule = t.create_schedule(y, name="shifted")
    schedule.set_scope("wide", "acc")
    store = schedule.cache_write("y", "out")
    for stage, name in {"wide": "load_acc8", "y": "add_to_out_immediate", store: "store_out"}.items():
        schedule.tensorize(schedule.get_loops(stage)[1], intrinsics(TINY)[name])
    return schedule


def emitted(func: t.PrimFunc) -> None:
    Emitter(TINY).emit(func, {"x": DramBuffer(0), "y": DramBuffer(64)})


@pytest.mark.parametrize(
    "make", [emitted, lambda func: function_program(func, TINY), lambda func: weft.build(func, "fsim", config=TINY)]
)
def test_a_core_reads_no_neighbour(make: Callable[[t.PrimFunc], Any]) -> None:
    make(shifted_copy(0).func)
    with pytest.raises(t.BoundsError, match=rf"block 'wide': {INDEX}; hint: guard .* in .*test_bounds\.py:\d+$"):
        make(shifted_copy(1).func)


def test_another_body_has_to_be_proved_again() -> None:
    """That a function was scheduled says nothing of what is put in its place by hand."""
    emitted(shifted_copy(0).func)
    func = shifted_copy(1).func
    with pytest.raises(t.BoundsError, match=r"of 'x' may be 4\.\.19, but axis 0 has 16 elements"):
        emitted(t.PrimFunc(func.name, func.params, func.body))


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_processor_reads_no_neighbour(scheduled: bool) -> None:
    x = t.placeholder((4,), "int32", "x")
    for by in (0, 1):
        schedule = t.create_schedule(t.compute((4,), lambda *i, by=by: x[i[0] + by], "y"))
        if scheduled:
            schedule.vectorize(schedule.split("i0", 2)[1])
        if by:
            with pytest.raises(t.BoundsError, match=INDEX):
                emit_kernel(ll.Module("m"), schedule.func, host_target(), 1)
        else:
            emit_kernel(ll.Module("m"), schedule.func, host_target(), 1)


# Operators from outside


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds is gone behind it."""
    monkeypatch.setattr(registry, "_operators", dict(registry._operators))


def unary(name: str, lower: Callable[..., View]) -> None:
    register(Operator(
        name, "x", family=Family.SOURCE, types=lambda operands, attrs: operands[0], numpy=lambda x: np.asarray(x),
        lower=lower, gradient=unsupported("a test"), fusion=Fusion.LAYOUT,
        sample=sample_of(name, (3, 5)), doc="A test.",
    ))  # fmt: skip


def picking(name: str, place: Callable[[t.Expr], t.Expr], sizes: Callable[[Call], tuple[int, ...]] | None) -> None:
    """``x[place(at)]``, of which the indices may be checked before it runs."""

    def lower(builder: Builder, node: Call, operands: tuple[View, ...]) -> View:
        x, at = operands
        return View(node.shape, x.dtype, lambda index: x[(place(at[index].astype("int64")),)])

    register(Operator(
        name, "x at", family=Family.INDEX, types=lambda operands, attrs: TensorType(operands[1].shape, "float32"),
        numpy=lambda x, at: np.asarray(x[np.clip(at, 0, len(x) - 1)]), lower=lower, gradient=unsupported("a test"),
        fusion=Fusion.LAYOUT, index_sizes=sizes, sample=sample_of(name, (5,), (3,)), doc="A test.",
    ))  # fmt: skip


def module_of(body: Expr, *params: Var) -> Module:
    return Module(Function(params, body, Attrs({"name": "main", "outputs": ("y",)})))


def test_a_lowering_that_reads_beyond_its_operand_is_refused(own_registry: None) -> None:
    def lower(builder: Builder, node: Call, operands: tuple[View, ...]) -> View:
        def read(index: Index) -> t.Expr:
            return operands[0][(index[0], index[1] + 2)]

        return View(node.shape, operands[0].dtype, read)

    unary("my.shift", lower)
    x = Var("x", TensorType((3, 5), "float32"))
    module = module_of(call("nn.abs", call("my.shift", x)), x)
    message = (
        r"what it computes \(my\.shift\) is not known to stay inside of its tensors: block 'out': "
        r"index 'i1 \+ 2' of 'x0' may be 2\.\.6, but axis 1 has 5 elements; "
        r"hint: guard the access: select\(condition, access, other value\)$"
    )
    with pytest.raises(CompileError, match=message):
        weft.compile(module, target="cpu")


@pytest.mark.parametrize(
    ("place", "sizes", "refused"),
    [
        (lambda at: at, None, r"index 'x1\[i0\]\.astype\(int64\)' of 'x0' may be -?\w+\.\.\w+, but axis 0 has 5"),
        (lambda at: t.clamp(at, 0, 4), None, ""),
        (lambda at: t.clamp(at, 0, 5), None, r"may be 0\.\.5, but axis 0 has 5 elements"),
        (lambda at: at + (at < 0).astype("int64") * 5, lambda node: (5,), ""),
        (lambda at: at, lambda node: (5,), r"may be -5\.\.4, but axis 0 has 5 elements"),
        (lambda at: at + (at < 0).astype("int64") * 5, lambda node: (6,), r"may be -1\.\.5, but axis 0 has 5"),
    ],
)  # fmt: skip
def test_indices_that_are_data_are_clamped_or_checked(own_registry: None, place: Any, sizes: Any, refused: str) -> None:
    """Checked are those that the operator says to count in an axis of some size."""
    picking("my.pick", place, sizes)
    x, at = Var("x", TensorType((5,), "float32")), Var("at", TensorType((3,), "int32"))
    module = module_of(call("my.pick", x, at), x, at)
    if refused:
        with pytest.raises(CompileError, match=refused):
            weft.compile(module, target="cpu")
        return
    values = np.arange(5, dtype=np.float32)
    result = weft.load(weft.compile(module, target="cpu")).run({"x": values, "at": np.array([0, 4, 2], np.int32)})
    np.testing.assert_array_equal(result["y"], [0, 4, 2])


def test_constants_that_are_indices_are_looked_at(own_registry: None) -> None:
    picking("my.pick", lambda at: at, None)
    x = Var("x", TensorType((5,), "float32"))
    for last, refused in ((4, False), (5, True)):
        module = module_of(call("my.pick", x, weft.compiler.graph.Constant(np.array([0, last, 2], np.int32))), x)
        if refused:
            with pytest.raises(CompileError, match=r"may be 0\.\.5, but axis 0 has 5 elements"):
                weft.compile(module, target="cpu")
        else:
            weft.compile(module, target="cpu")
