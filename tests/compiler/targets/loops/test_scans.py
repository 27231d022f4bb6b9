"""Loops of kernels: which become one, what moves where, and which programs with loops are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.graph.scan import scan
from weft.compiler.model import CheckStep, HostProgram, HostStep, LaunchStep, Loop, Place
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.check_kernel import check_kernel
from weft.compiler.targets.loops.check_program import check_program
from weft.runtime import artifact

STATE, ITEM = Var("state", TensorType((4,), "float32")), Var("item", TensorType((4,), "float32"))
START, ITEMS = Var("start", TensorType((4,), "float32")), Var("items", TensorType((6, 4), "float32"))
PLACES = Var("places", TensorType((6, 4), "int64"))


def module_of(
    body: tuple[Expr, ...], params: tuple[Var, ...] = (STATE, ITEM), sequences: tuple[Var, ...] = (ITEMS,)
) -> Module:
    results = scan(Function(params, Tuple(body), Attrs({"name": "step"})), [START], sequences, steps=6)
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function((START, *sequences), Tuple(results), Attrs({"name": "main", "outputs": names})))


def program_of(module: Module, threads: int = 1) -> HostProgram:
    (step,) = weft.compile(module, target="cpu", threads=threads).steps
    assert isinstance(step, HostStep)
    return step.program


MORE = call("nn.tanh", call("nn.add", STATE, ITEM))
TWICE = call("nn.multiply", STATE, ITEM)


def test_what_is_carried_has_two_places_that_take_turns_and_what_is_stacked_is_read_where_it_is() -> None:
    carried = [step for step in program_of(module_of((MORE,))).steps if isinstance(step, LaunchStep)]
    assert [(place.stride, place.period) for place in carried[0].arguments] == [(16, 2), (16, 0), (-16, 2)]
    stacked = [step for step in program_of(module_of((MORE, MORE))).steps if isinstance(step, LaunchStep)]
    assert [(place.stride, place.period) for place in stacked[0].arguments] == [(16, 0), (16, 0), (16, 0)]
    assert len(carried) == len(stacked) == 1  # nothing is copied in the loop


def values_of(module: Module) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        param.name: random.integers(0, 4, param.type.shape) if param.dtype == "int64"
        else random.normal(size=param.type.shape).astype(np.float32) for param in module.main.params
    }  # fmt: skip


def test_bodies_that_are_no_kernels_alone_are_unrolled_and_mean_the_same() -> None:
    index = Var("index", TensorType((4,), "int64"))
    picked = call("gather", call("nn.add", STATE, ITEM), index, axis=0)  # indices that only a run knows
    rest = call("nn.modulo", MORE, ITEM)  # NumPy's
    for module in (module_of((picked,), (STATE, ITEM, index), (ITEMS, PLACES)), module_of((rest, TWICE))):
        program = program_of(module)
        assert not program.loops
        inputs = values_of(module)
        found = weft.load(weft.compile(module, target="cpu")).run(inputs)
        for name, value in evaluate(module, inputs).items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_program_with_loops_reads_back_and_passes_its_proof(tmp_path: Path) -> None:
    compiled = weft.compile(module_of((MORE, TWICE)), target="cpu", threads=2)
    artifact.save(compiled, tmp_path / "loops.weft")
    again = artifact.load(tmp_path / "loops.weft")
    (first,), (second,) = compiled.steps, again.steps
    assert isinstance(first, HostStep)
    assert isinstance(second, HostStep)
    assert second.program.loops == first.program.loops != ()
    assert second.program.steps == first.program.steps
    check_program(second.program, lambda code, threads, known: check_kernel(code, threads, intrinsic_named, known))


def moved(program: HostProgram, change: Callable[[Place], Place]) -> HostProgram:
    """The program with the last tensor of the loop's first kernel elsewhere."""
    number = program.loops[0].first
    step = program.steps[number]
    assert isinstance(step, LaunchStep)
    wrong = replace(step, arguments=(*step.arguments[:-1], change(step.arguments[-1])))
    return replace(program, steps=(*program.steps[:number], wrong, *program.steps[number + 1 :]))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda p: moved(p, lambda place: replace(place, stride=1 << 20)), "are not inside of arena"),
        (lambda p: moved(p, lambda place: replace(place, stride=-64, period=0)), "are not inside of arena"),
        (lambda p: moved(p, lambda place: replace(place, stride=2)), "moves by 2 bytes"),
        (lambda p: moved(p, lambda place: replace(place, period=-1)), "back after -1 rounds"),
        (lambda p: replace(p, loops=(replace(p.loops[0], count=1 << 19),)), "are not inside of"),
        (lambda p: replace(p, loops=(replace(p.loops[0], count=0),)), "no loop of 0 rounds"),
        (lambda p: replace(p, loops=(replace(p.loops[0], first=0),)), "only kernels run in loops"),
        (lambda p: replace(p, loops=p.loops * 2), "are no loop of"),
        (lambda p: replace(p, loops=(Loop(p.loops[0].first, 99, 2),)), "are no loop of"),
        (lambda p: replace(p, loops=()), "it is in no loop"),
    ],
)
def test_programs_whose_loops_lie_are_refused(fault: Callable[[HostProgram], HostProgram], message: str) -> None:
    program = program_of(module_of((MORE, TWICE)))
    check = lambda each: check_program(each, lambda code, n, known: check_kernel(code, n, intrinsic_named, known))  # noqa: E731
    check(program)
    with pytest.raises(CompileError, match=message):
        check(fault(program))


def test_indices_that_were_checked_before_a_loop_are_not_trusted_in_it() -> None:
    """A round might write over them."""
    data, places = Var("data", TensorType((4, 4), "float32")), Var("where", TensorType((4,), "int64"))
    value = call("gather", data, places, axis=0)
    program = program_of(Module(Function((data, places), value, Attrs({"name": "main"}))))
    number = next(n for n, step in enumerate(program.steps) if isinstance(step, LaunchStep))
    assert any(isinstance(step, CheckStep) for step in program.steps[:number])
    with pytest.raises(CompileError):
        check_program(replace(program, loops=(Loop(number, number, 2),)),
                      lambda code, n, known: check_kernel(code, n, intrinsic_named, known))  # fmt: skip


def test_weights_that_stay_the_same_are_constants_of_the_body() -> None:
    w = Var("w", TensorType((4, 4), "float32"))
    weights = Constant(np.eye(4, dtype=np.float32)[::-1])
    row = call("nn.dense", call("reshape", STATE, shape=(1, 4)), w)
    after = call("nn.add", call("reshape", row, shape=(4,)), ITEM)
    body = Function((STATE, ITEM, w), Tuple((after,)), Attrs({"name": "step"}))
    (last,) = scan(body, [START], [ITEMS], [weights], steps=6)
    module = Module(Function((START, ITEMS), last, Attrs({"name": "main"})))
    compiled = weft.compile(module, target="cpu")
    assert compiled.statistics["constant_bytes"] >= weights.value.nbytes
    assert compiled.layers[0].kind == "product"
    inputs = values_of(module)
    (found,), (wanted,) = weft.load(compiled).run(inputs).values(), evaluate(module, inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_a_loop_reads_lives_until_its_end() -> None:
    """Else a kernel at the end of a round could write over what the next round begins with."""
    made = call("nn.tanh", ITEMS)  # lies in the arena, and is read by the first kernel of the body alone
    weights = Constant(np.eye(4, dtype=np.float32))
    row = call("reshape", call("nn.add", STATE, ITEM), shape=(1, 4))
    one = call("nn.softmax", call("nn.dense", row, weights), axis=1)
    twice = call("nn.softmax", call("nn.dense", one, weights), axis=1)
    body = Function((STATE, ITEM), Tuple((call("reshape", twice, shape=(4,)),)), Attrs({"name": "step"}))
    (last,) = scan(body, [START], [made], steps=6)
    program = program_of(Module(Function((START, ITEMS), last, Attrs({"name": "main"}))))
    (loop,) = program.loops
    inside = [step for step in program.steps[loop.first : loop.last + 1] if isinstance(step, LaunchStep)]
    moving = {place.offset for step in inside for place in step.arguments if place.kind == "arena" and place.stride}
    held = [each for each in program.memory if each.first < loop.first and each.last >= loop.first]
    assert len(inside) > 1
    assert moving
    assert held
    assert all(each.last >= loop.last for each in held)
