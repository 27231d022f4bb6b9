"""Kernels that a network repeats are scheduled once; each keeps its own name, its own constants and its own limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler.graph import Function
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.link.compile_kernel import generate
from weft.compiler.targets.accel.operators.lower import Kernel, lower_function
from weft.compiler.targets.accel.schedule.tiling import Tiling
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.memories import Memory

from ..kernels import Build


def convolution(name: str, seed: int = 0, zero_point: int = 3, pad_value: int = 0) -> Kernel:
    build = Build(PYNQ, seed)
    acc = build.conv(build.input(1, 32, 9, 9), 32, 32, (3, 3), pads=(1, 1, 1, 1), pad_value=pad_value)
    function: Function = build.function(build.requantise(acc, 32, 70_000, zero_point=zero_point), name)
    return lower_function(function)


def scheduled(kernel: Kernel) -> compile_kernel.Generated:
    places = {tensor.name: DramBuffer(0) for tensor in (*kernel.inputs, kernel.output)}
    return generate(Emitter(PYNQ), kernel, places, USUAL_RATE, threads=2)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are scheduled, not found."""
    compile_kernel._schedule_once.cache_clear()
    compile_kernel._WALKS.clear()
    done: list[str] = []
    schedule = compile_kernel.schedule_kernel

    def noted(kernel: Kernel, config: CoreConfig, tiling: Tiling) -> object:
        done.append(kernel.name)
        return schedule(kernel, config, tiling)

    monkeypatch.setattr(compile_kernel, "schedule_kernel", noted)
    return done


def test_equal_kernels_are_scheduled_once_and_keep_their_names(proofs: list[str]) -> None:
    first, second = scheduled(convolution("first")), scheduled(convolution("second", seed=5))
    assert len(proofs) == 1
    assert [each.function.name for each in (first, second)] == ["first", "second"]
    assert str(second.schedule) == str(first.schedule).replace("def first(", "def second(")
    assert second.schedule.trace == first.schedule.trace


@pytest.mark.parametrize("change", [{"zero_point": -9}, {"pad_value": 7}])
def test_other_immediates_make_another_schedule(proofs: list[str], change: dict[str, int]) -> None:
    first, second = scheduled(convolution("kernel")), scheduled(convolution("kernel", **change))
    assert len(proofs) == 2
    assert str(first.schedule) != str(second.schedule)


def test_alike_problems_share_their_tilings_and_others_do_not() -> None:
    kernel, other = convolution("a"), convolution("b", seed=9, zero_point=-20)
    problem = compile_kernel.Problem(PYNQ, kernel, 2)
    assert tilings(problem) is tilings(replace(problem, kernel=other, config=replace(PYNQ, name="x")))
    assert tilings(problem) is not tilings(replace(problem, threads=1))
    assert tilings(problem) is not tilings(replace(problem, rate=replace(USUAL_RATE, bytes_per_cycle=2)))
    assert tilings(problem) is not tilings(replace(problem, config=replace(PYNQ, inp_depth=1024)))
    assert tilings(problem) is not tilings(replace(problem, beside=True))


def test_an_error_names_the_kernel_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_kernel._schedule_once.cache_clear()
    compile_kernel._WALKS.clear()

    def fails(kernel: Kernel, *_: object) -> None:
        raise CompileError("no instruction", at=f"function {kernel.name!r}")

    monkeypatch.setattr(compile_kernel, "schedule_kernel", fails)
    for name in ("one", "two"):
        with pytest.raises(CompileError, match=f"function '{name}': no instruction"):
            scheduled(convolution(name))


def test_what_finds_no_room_behind_other_layers_finds_it_where_scratchpads_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads have weights of 50 entries of 128: not if the first ones begin at 40."""
    core = replace(PYNQ, name="few-weights", wgt_depth=128)
    build = Build(core)
    acc = build.conv(build.input(1, 32, 6, 6), 32, 32, (5, 5), pads=(2, 2, 2, 2))
    kernel = lower_function(build.function(build.requantise(acc, 32, 70_000)))
    only = Tiling(1, 6, 6, 2, "cyx", 1, 6, 2)
    monkeypatch.setattr(compile_kernel, "_tilings", lambda problem, chosen, first: iter([only]))
    emitter = Emitter(core)
    before = emitter.rings[Memory.WGT]
    before.release(before.take(40, "of a layer before"))
    places = {tensor.name: DramBuffer(0) for tensor in (*kernel.inputs, kernel.output)}
    assert generate(emitter, kernel, places, USUAL_RATE, threads=2).tiling == only
