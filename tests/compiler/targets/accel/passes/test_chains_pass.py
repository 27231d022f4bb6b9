"""Chains as a pass: listed, checked, shown, written as text and read back; nothing is compiled a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.compile import compile_model, passes_left, prepared
from weft.compiler.graph import Call, Function, GraphError, Module, call, constant_table, parse, to_text
from weft.compiler.graph.visit import calls, uniquely_named
from weft.compiler.model import CompiledModel, CoreStep
from weft.compiler.passes import Pass, PassError, PassRecord
from weft.compiler.passes.pipeline import PassOptions
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.link.chain_plan import ChainPlan, plan_of
from weft.compiler.targets.accel.passes import chain
from weft.compiler.targets.accel.schedule.tiling import ChainTiling
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.targets.target import Job, Measure
from weft.hw.config import TINY
from weft.hw.dram_rate import DramRate
from weft.sim.timing import program_cycles

from ..chains import ChainCase, LayerCase, apart

LAYERS = (
    LayerCase("dense", 12),
    LayerCase("depthwise", 12, (3, 3), pads=(1, 1, 1, 1)),
    LayerCase("dense", 8, residual=True),
)
ROOMY = replace(TINY, name="tiny-sixteens", block_in=16, block_out=16, inp_depth=1024, acc_depth=1024, wgt_depth=512)
BLOCK = ChainCase((1, 8, 12, 12), LAYERS, seed=4)


def compiled(
    module: Module, passes: PassOptions | None = None, measure: Measure | None = program_cycles
) -> CompiledModel:
    model = compile_model(module, "accel", {"config": ROOMY}, passes=passes, job=Job(measure=measure))
    assert isinstance(model, CompiledModel)
    return model


def program(model: CompiledModel) -> npt.NDArray[np.uint8]:
    """The bytes of the only program for the core."""
    (step,) = (each for each in model.steps if isinstance(each, CoreStep))
    return step.program


def chained() -> Module:
    return prepared(apart(BLOCK, ROOMY), Accel(), AccelOptions(ROOMY), job=Job(measure=program_cycles))


def test_the_pass_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*words: str) -> str:
        assert run(app, ["passes", "--json", *words], err) == 0
        return capsys.readouterr().out

    assert '"chains"' in listed()
    assert '"chains"' not in listed("--no-chains")


def test_the_pass_counts_its_chains_and_is_checked() -> None:
    records: list[PassRecord] = []
    compiled(apart(BLOCK, ROOMY), PassOptions(check=True, report=records.append))
    (record,) = records
    assert (record.name, record.matches, record.calls_before, record.calls_after) == ("chains", 1, 3, 1)
    assert record.error == 0.0


def test_a_chain_that_computes_something_else_is_found_by_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_another_order(part: Sequence[Call], *rest: Any) -> Function:
        first, second = part
        one = call(second.op, *first.args)
        return right([one, call(first.op, one)], *rest)

    right, cycles = chain.merged, iter([1, 10**6, 10**6])
    monkeypatch.setattr(chain, "merged", in_another_order)
    module = apart(replace(BLOCK, layers=(LayerCase("dense", 8), LayerCase("dense", 8))), ROOMY)
    with pytest.raises(PassError, match=r"pass 'chains' changed the results .* the first tensor that differs is"):
        compiled(module, PassOptions(check=True), lambda *_: next(cycles))


def test_the_page_shows_the_plan_of_a_chain(tmp_path: Path) -> None:
    page = tmp_path / "passes.html"
    compiled(apart(BLOCK, ROOMY), PassOptions(diff=page))
    text = page.read_text()
    assert "<b>chains</b>" in text
    assert "ChainPlan" in text
    assert "ChainTiling" in text


def test_what_is_read_back_compiles_to_the_same_program() -> None:
    """The decision travels in the text: nothing is measured again."""
    module = chained()
    shown = uniquely_named(module)
    read = parse(to_text(shown), constant_table(shown))
    assert (read, read.stage) == (shown, "chained")
    first, second = compiled(module), compiled(read, measure=lambda *_: pytest.fail("measured"))
    assert program(first).tobytes() == program(second).tobytes()


def test_another_tiling_in_the_text_is_the_one_that_is_compiled() -> None:
    module = chained()
    (node,) = calls(module.main.body)
    assert isinstance(node.op, Function)
    plan = plan_of(node.op)
    assert plan is not None
    other = replace(plan, tiling=replace(plan.tiling, columns=3))
    text = to_text(uniquely_named(module)).replace(f"columns={plan.tiling.columns},", "columns=3,")
    read = parse(text, constant_table(uniquely_named(module)))
    (again,) = calls(read.main.body)
    assert isinstance(again.op, Function)
    assert plan_of(again.op) == other
    assert compiled(read).layers[0].schedule != compiled(module).layers[0].schedule


@pytest.mark.parametrize(
    ("values", "message"),
    [({"columns": 0}, "columns 0"), ({"threads": -1}, "threads -1"), ({"order": "cyx"}, "order 'cyx'")],
)
def test_a_plan_that_no_chain_can_have_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=f"a chain's tiling has {message}"):
        ChainPlan(replace(ChainTiling(1, 1, 1, 1, "yxc", 1, 1, 1), **values), "", 1, 2, 3)
    with pytest.raises(GraphError, match="form is 'shared', but must be one of"):
        ChainPlan(ChainTiling(1, 1, 1, 1, "yxc", 1, 1, 1), "shared", 1, 2, 3)


class Compilations:
    """Counts how often each kernel is scheduled with a tiling, with no memory but what passes hand to the linker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        schedule = compile_kernel.schedule_kernel

        def counted(kernel: Any, config: Any, tiling: Any) -> Any:
            self.counts[kernel.text, repr(tiling)] += 1
            return schedule(kernel, config, tiling)

        monkeypatch.setattr(compile_kernel, "schedule_kernel", counted)
        monkeypatch.setattr(compile_kernel, "_schedule_once", compile_kernel._schedule_once.__wrapped__)


def test_the_linker_does_not_compile_a_chain_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Compilations(monkeypatch)
    module = chained()
    before = found.counts.total()
    assert before > 1
    assert [layer.kind for layer in compiled(module).layers] == ["chain"]
    assert found.counts.total() == before


def test_no_candidate_is_compiled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven layers some become chains, others are measured apart and stay alone. A depthwise layer that several
    candidates have is lowered in its forms for each; that it is scheduled once is the cache's, which is off here."""
    wide = LayerCase("dense", 16)
    layers = (wide, LAYERS[1], LayerCase("dense", 8, (3, 3)), wide, replace(LAYERS[1], strides=(2, 2)), wide, LAYERS[2])
    found = Compilations(monkeypatch)
    module = apart(replace(BLOCK, layers=tuple(replace(each, residual=False) for each in layers)), ROOMY)
    kinds = [layer.kind for layer in compiled(module).layers]
    assert "chain" in kinds
    assert found.counts.total() > 2 * len(kinds)
    assert {count for (_, tiling), count in found.counts.items() if "reduction=0" not in tiling} == {1}


def of_stages(*stages: str) -> Iterator[Pass]:
    return (Pass(f"{number}", lambda module: module, stage=stage) for number, stage in enumerate(stages))


@pytest.mark.parametrize(
    ("stage", "left"),
    [("source", "01234"), ("integer", "1234"), ("packed", "4"), ("chained", ""), ("host", "")],
)
def test_a_module_gets_the_passes_that_it_has_not_been_through(stage: str, left: str) -> None:
    passes = list(of_stages("integer", "", "fused", "packed", "chained"))
    assert "".join(each.name for each in passes_left(stage, passes)) == left


Costs = dict[tuple[int, ...], tuple[float, int | None]]
MOVED = {(0, 1): -40, (2, 3): -40, (1, 2): -90, (1, 2, 3): -79}
"""Bytes beyond those of the layers apart."""


def cut(
    monkeypatch: pytest.MonkeyPatch, costs: Costs, key: Callable[[Sequence[int]], object] = tuple
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The parts of four layers in a row, each of which takes 100 cycles, and which parts were measured. ``costs``: of a
    part, what the estimate hopes for, and what is measured; None where it is refused. ``key``: of parts that are
    compiled alike."""
    tried: list[tuple[int, ...]] = []
    tiling = ChainTiling(1, 1, 1, 1, "yxc", 1, 1, 1)

    def candidates(self: object, part: Sequence[int]) -> list[tuple[str, ChainTiling, float]]:
        return [("", tiling, costs[tuple(part)][0])] if tuple(part) in costs else []

    def decided(self: object, part: Sequence[int]) -> chain.Decision | str:
        tried.append(tuple(part))
        cycles = costs[tuple(part)][1]
        # alone, a part's layers take 300 cycles more: nothing runs before them
        apart = chain.Taken(300 + 100 * len(part), 1000)
        taken = chain.Taken(cycles or 0, 1000 + MOVED.get(tuple(part), 0))
        return "refused" if cycles is None else chain.Decision(tiling, "", taken, apart)

    monkeypatch.setattr(chain, "_key", key)
    monkeypatch.setattr(chain, "_windows", lambda part: 0)
    monkeypatch.setattr(chain._Chainer, "_apart", lambda self, node: 100.0)
    monkeypatch.setattr(chain._Chainer, "_candidates", candidates)
    monkeypatch.setattr(chain._Chainer, "_decided", decided)
    chainer = chain._Chainer(apart(BLOCK, ROOMY), ROOMY, DramRate(), 2, measure=lambda *_: 0)
    path: Any = [0, 1, 2, 3]
    return [tuple(part) for part in chainer._measured_parts(path)], tried


def test_a_row_is_cut_anew_where_a_chain_is_slower_than_hoped(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: Costs = {(0, 1): (120, 490), (2, 3): (120, 480), (1, 2): (140, 340)}
    assert cut(monkeypatch, costs) == ([(1, 2)], [(0, 1), (2, 3), (1, 2)])


def test_a_row_is_cut_anew_where_a_chain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: Costs = {(0, 1, 2): (150, None), (1, 2, 3): (160, 440), (0, 1): (170, 450)}
    assert cut(monkeypatch, costs) == ([(1, 2, 3)], [(0, 1, 2), (1, 2, 3)])


def test_what_is_as_fast_as_hoped_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: Costs = {(0, 1): (120, 420), (2, 3): (120, 420), (1, 2): (50, 350)}
    assert cut(monkeypatch, costs) == ([(0, 1), (2, 3)], [(0, 1), (2, 3)])


def test_of_parts_that_are_compiled_alike_one_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: Costs = {(0, 1): (120, 420), (2, 3): (120, 420)}
    parts, tried = cut(monkeypatch, costs, lambda part: tuple(number % 2 for number in part))
    assert parts == [(0, 1), (2, 3)]
    assert len(tried) == 1


def test_another_cut_that_moves_more_bytes_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: Costs = {(0, 1): (110, 490), (2, 3): (110, 490), (1, 2, 3): (135, 437)}
    assert cut(monkeypatch, costs) == ([(0, 1), (2, 3)], [(0, 1), (2, 3), (1, 2, 3)])
