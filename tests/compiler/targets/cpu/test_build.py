"""Machine code of host programs: made from text alone, once."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any

import numpy as np
import pytest
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.model import HostProgram, LaunchStep, Loop
from weft.compiler.targets.cpu import emit_code
from weft.compiler.targets.cpu.build import _in_two_threads, build_program, check_host_program
from weft.compiler.targets.cpu.intrinsics import (
    dot_product,
    grouped_dot,
    grouped_product,
    interleaved,
    interleaved_bytes,
    interleaved_halves,
    intrinsic_named,
    outer_product,
    pair_product,
    paired_dot_product,
    transposed_pairs,
    transposed_tile,
)
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import Processor, host_target
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops import kept_proofs
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.tensor.errors import IRError
from weft.compiler.tensor.ir import TensorIntrinsic
from weft.runtime.host import HostExecutor

X = Var("x", TensorType((1, 16, 9, 9), "float32"))
WEIGHTS = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)
MODULE = Module(Function(
    (X,), call("nn.tanh", call("nn.conv2d", X, Constant(WEIGHTS), pads=(1,) * 4)), Attrs({"outputs": ("y",)})
))  # fmt: skip


def linked(processor: Processor | None = None) -> HostProgram:
    return link_host(prepare(MODULE), loop_target(processor or host_target()), 1)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))


def refuse(*_: object, **__: object) -> Any:
    raise AssertionError("this was in the cache")


def test_the_second_load_neither_parses_nor_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    program = linked()
    first = build_program(program)
    check_host_program(program)
    for name in ("parse", "emit_kernel", "object_code"):
        monkeypatch.setattr(emit_code, name, refuse)
    monkeypatch.setattr(kept_proofs, "check_kernel", refuse)
    monkeypatch.setattr("weft.compiler.targets.cpu.llvm.object_code.optimise", refuse)
    assert build_program(program) == first
    check_host_program(program)


def test_two_kernels_are_made_at_a_time_and_come_in_order() -> None:
    both = Barrier(2)
    started: list[int] = []

    def maker(number: int) -> bytes:
        started.append(number)
        both.wait(10)  # only another thread lets it go on
        return bytes([number])

    assert _in_two_threads([partial(maker, number) for number in range(6)]) == [bytes([number]) for number in range(6)]
    assert sorted(started) == [*range(6)]
    assert _in_two_threads([lambda: b"alone"]) == [b"alone"]


def test_after_a_kernel_that_fails_no_other_is_begun() -> None:
    begun: list[int] = []

    def fails() -> bytes:
        raise CompileError("it has no machine code", at="kernel 'first'")

    def other(number: int) -> bytes:
        begun.append(number)
        sleep(0.01)
        return b""

    with pytest.raises(CompileError, match="first"):
        _in_two_threads([fails, *(partial(other, number) for number in range(1000))])
    assert len(begun) < 500


def test_code_is_kept_by_content_and_by_all_that_it_depends_on(tmp_path: Path) -> None:
    program = linked()

    def added(**changes: Any) -> int:
        before = len(list(tmp_path.rglob("*.o")))
        target = replace(host_target(), **changes.pop("target", {}))
        build_program(replace(program, **changes), target)
        return len(list(tmp_path.rglob("*.o"))) - before

    assert added() == len(program.kernels) + 2
    assert added() == 0
    # With more threads only the kernels change; for other registers, all is kept apart.
    assert added(threads=2, kernels=tuple(replace(code, parts=1) for code in program.kernels)) >= len(program.kernels)
    assert added(target={"registers": host_target().registers - 1}) == len(program.kernels) + 2


@pytest.mark.parametrize("changed", [
    {"kind": "constant"}, {"number": 1}, {"offset": 64}, {"stride": 64}, {"period": 3}, {"workspace": 128},
    {"count": 2}, {"parts": 2},
])  # fmt: skip
def test_calls_of_kernels_are_kept_by_all_that_they_are_made_of(changed: dict[str, Any], tmp_path: Path) -> None:
    """Machine code of other calls in the place of a program's own would read and write elsewhere."""
    program = linked()
    number = next(at for at, step in enumerate(program.steps) if isinstance(step, LaunchStep))
    step = program.steps[number]
    assert isinstance(step, LaunchStep)
    place = step.arguments[0]
    build_program(program)
    before = len(list(tmp_path.rglob("*.o")))
    if "count" in changed:
        other = replace(program, loops=(Loop(number, number, 2),))
    elif "parts" in changed:
        kernels = tuple(replace(each, parts=2) for each in program.kernels)
        other = replace(program, kernels=kernels)
    else:
        moved = replace(step, **changed) if "workspace" in changed else replace(
            step, arguments=(replace(place, **changed), *step.arguments[1:])
        )  # fmt: skip
        other = replace(program, steps=(*program.steps[:number], moved, *program.steps[number + 1 :]))
    build_program(other)
    assert len(list(tmp_path.rglob("*.o"))) == before + 1


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_a_program_made_for_another_processor_runs_here(vector_bytes: int) -> None:
    other = replace(host_target(), vector_bytes=vector_bytes, registers=16, cpu="other", dot_product=False)
    program = linked(other)
    assert "other" in program.processor
    value, result = np.ones(X.shape, np.float32), np.empty((1, 32, 9, 9), np.float32)
    HostExecutor(program, build_program(program)).run([value], [result])
    np.testing.assert_allclose(result, evaluate(MODULE, {"x": value})["y"], rtol=1e-4, atol=1e-5)


def test_a_workspace_that_does_not_follow_from_the_text_is_refused() -> None:
    program = linked()
    kernels = tuple(replace(code, workspace_bytes=code.workspace_bytes + 64) for code in program.kernels)
    with pytest.raises(CompileError, match=r"kernel 'weft_.*': its code needs 0 bytes of workspace, not 64"):
        build_program(replace(program, kernels=kernels))


@pytest.mark.parametrize(
    "intrinsic",
    [outer_product(6, 32, 16), dot_product(3, 16, 8), paired_dot_product(3, 8, 8, 16), grouped_product(2, 16, 4, 16),
     grouped_dot(2, 16, 8, 16),
     pair_product(3, 16, 8), interleaved(8, 49), interleaved_bytes(16, 49), interleaved_halves(32, 49),
     transposed_tile(8, 64, 49), transposed_pairs(8, 64, 50)],
)  # fmt: skip
def test_an_intrinsic_is_made_again_from_its_name(intrinsic: TensorIntrinsic) -> None:
    again = intrinsic_named(intrinsic.name)
    assert again == intrinsic
    assert again.emits == intrinsic.emits


@pytest.mark.parametrize(
    "name",
    ["system", "outer_product", "outer_product_6_32", "outer_product_6_32_16_1", "outer_product_0_32_16",
     "outer_product_100000_100000_1", "transposed_tile_3_4_4", "grouped_product_2_16_3_16", "grouped_dot_2_16_2_16",
     "interleaved_100000_8", "interleaved_halves_100000_8", "transposed_pairs_3_4_4", "pair_product_100000_100000_1",
     "paired_dot_product_2_16_8_8", "paired_dot_product_100_8_8_1000"],
)  # fmt: skip
def test_no_other_name_is_an_intrinsic(name: str) -> None:
    with pytest.raises(IRError, match=re.escape(repr(name))):
        intrinsic_named(name)
