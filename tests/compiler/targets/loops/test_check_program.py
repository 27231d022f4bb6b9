"""Host programs from a file are refused unless every launch, copy and NumPy step stays inside of the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.compile import is_quantised
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.model import CheckStep, CopyStep, HostProgram, KernelCode, LaunchStep, NumpyStep, Place
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes import PassManager
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.cpu.target import Cpu
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.check_kernel import CheckedKernel, Elements, check_kernel
from weft.compiler.targets.loops.check_program import check_program
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import prepare

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
DATA = Var("data", TensorType((3, 5, 4), "float32"))
PICKED = Var("picked", TensorType((6,), "int64"))


def prove(code: KernelCode, threads: int, elements: Elements) -> CheckedKernel:
    return check_kernel(code, threads, intrinsic_named, elements)


def linked(module: Module, processor: str = "host", threads: int = 2) -> HostProgram:
    return link_host(prepare(module), loop_target(named_target(processor)), threads)


def program_of(*results: Expr, params: tuple[Var, ...]) -> HostProgram:
    names = tuple(f"out{number}" for number in range(len(results)))
    return linked(Module(Function(params, Tuple(results), Attrs({"name": "main", "outputs": names}))))


@pytest.mark.parametrize("processor", ["host", "armv7a", "aarch64"])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_our_programs_pass_and_their_text_reads_back_equal(processor: str, seed: int) -> None:
    program = linked(random_graph(seed, 8).module, processor)
    check_program(program, prove)
    for code in program.kernels:
        assert t.function_text(t.parse(code.text, intrinsic_named)) == code.text


def test_a_network_in_integers_passes() -> None:
    source = from_onnx(DIGITS)
    check_program(linked(PassManager(Cpu().passes(Cpu.options(), quantised=is_quantised(source))).run(source)), prove)


PAIRS = Var("pairs", TensorType((6, 2), "int32"))


@pytest.mark.parametrize(
    "node",
    [
        call("gather", DATA, PICKED, axis=0),
        call("gather", DATA, Var("inner", TensorType((7,), "int32")), axis=2),
        call("gather_elements", DATA, Var("elements", TensorType((2, 6, 4), "int64")), axis=1),
        call("gather_nd", DATA, PAIRS, batch_dims=0),
        call("gather", DATA, Constant(np.array([0, -1, 2])), axis=1),
    ],
)
def test_gathers_pass_with_their_check_alone(node: Call) -> None:
    program = program_of(node, params=(DATA, *(arg for arg in node.args[1:] if isinstance(arg, Var))))
    check_program(program, prove)
    steps = tuple(step for step in program.steps if not isinstance(step, CheckStep))
    if len(steps) < len(program.steps):
        with pytest.raises(CompileError, match=r"kernel 'weft_.*, buffer 'x0': an index may be outside"):
            check_program(replace(program, steps=steps), prove)


def test_indices_that_are_written_again_count_no_more() -> None:
    program = program_of(call("gather", DATA, call("nn.add", PICKED, PICKED), axis=0), params=(DATA, PICKED))
    number, check = next((n, step) for n, step in enumerate(program.steps) if isinstance(step, CheckStep))
    again = CopyStep(Place("input", 1, 0, (6,), "int64"), check.indices)
    for place in (check.indices, replace(check.indices, shape=(1,))):
        step = replace(again, target=place, source=replace(again.source, shape=place.shape))
        steps = (*program.steps[: number + 1], step, *program.steps[number + 1 :])
        with pytest.raises(CompileError, match="buffer 'x0'"):
            check_program(replace(program, steps=steps), prove)


def test_constants_that_are_indices_must_fit() -> None:
    program = program_of(call("gather", DATA, Constant(np.array([0, -1, 2, 1])), axis=1), params=(DATA,))
    wrong = program.constants.copy()
    wrong[:8].view(np.int64)[0] = 5
    with pytest.raises(CompileError, match="buffer 'x0': an index may be outside"):
        check_program(replace(program, constants=wrong), prove)


def mixed() -> HostProgram:
    """A convolution with a halo in the arena, a softmax with workspace, an operator of NumPy, and a copy."""
    x = Var("x", TensorType((1, 8, 6, 6), "float32"))
    weights = Constant(np.ones((8, 8, 3, 3), np.float32))
    value = call("nn.conv2d", call("nn.tanh", x), weights, pads=(1,) * 4)
    flat = call("nn.softmax", call("reshape", value, shape=(8, 36)), axis=0)
    summed = call("nn.modulo", flat, flat)
    return program_of(flat, summed, flat, call("nn.negative", summed), params=(x,))


def change_launch(change: Callable[[LaunchStep], LaunchStep]) -> Callable[[HostProgram], HostProgram]:
    """The last launch changed."""

    def apply(program: HostProgram) -> HostProgram:
        number = max(n for n, step in enumerate(program.steps) if isinstance(step, LaunchStep))
        step = program.steps[number]
        assert isinstance(step, LaunchStep)
        return replace(program, steps=(*program.steps[:number], change(step), *program.steps[number + 1 :]))

    return apply


def with_last(step: LaunchStep, **changes: object) -> LaunchStep:
    last = replace(step.arguments[-1], **changes)  # type: ignore[arg-type]
    return replace(step, arguments=(*step.arguments[:-1], last))


CHANGES: dict[str, tuple[Callable[[HostProgram], HostProgram], str]] = {
    "arena": (lambda program: replace(program, arena_bytes=program.arena_bytes - 64), "are not inside of arena 0"),
    "constants": (lambda program: replace(program, constants=program.constants[:-64]), "not inside of constant 0"),
    "input": (lambda program: replace(program, inputs=(replace(program.inputs[0], shape=(1, 8, 6, 5)),)),
              "are not inside of input 0"),
    "no output": (lambda program: replace(program, outputs=program.outputs[:1]), "there is no output [123]"),
    "two kernels": (lambda program: replace(program, kernels=program.kernels * 2), "two of its kernels have one name"),
    "no kernel": (lambda program: replace(program, kernels=()), "there is no kernel 'weft_"),
    "no layer": (change_launch(lambda step: replace(step, layer=99)), "there is no layer 99"),
    "arguments": (change_launch(lambda step: replace(step, arguments=step.arguments[1:])), "takes [0-9] tensors"),
    "offset": (change_launch(lambda step: with_last(step, offset=-4)), "are not inside of"),
    "alignment": (change_launch(lambda step: with_last(step, kind="arena", number=0, offset=2)), "at byte 2"),
    "shape": (change_launch(lambda step: with_last(step, shape=(1,))), "is another tensor"),
    "written input": (change_launch(lambda step: with_last(step, kind="input", number=0, offset=0)),
                      "writes to input 0"),
    "written constant": (change_launch(lambda step: with_last(step, kind="constant", number=0, offset=0)),
                         "writes to constant 0|are not inside of constant 0"),
    "threads": (lambda program: replace(program, threads=1000), "it has 1000 threads"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_program_is_refused_with_the_reason(name: str) -> None:
    change, message = CHANGES[name]
    program = mixed()
    check_program(program, prove)
    with pytest.raises(CompileError, match=message):
        check_program(change(program), prove)


def test_workspace_lies_in_the_arena() -> None:
    program = mixed()
    check_program(program, prove)
    steps = [step for step in program.steps if isinstance(step, LaunchStep) and step.workspace is not None]
    assert steps
    for space in (None, 4, program.arena_bytes):
        changed = tuple(
            replace(step, workspace=space) if step in steps else step  # type: ignore[arg-type]
            for step in program.steps
        )
        with pytest.raises(CompileError, match=r"has no aligned workspace|not inside of arena"):
            check_program(replace(program, steps=changed), prove)


def test_strings_are_there_before_they_are_read_and_in_no_memory() -> None:
    x = Var("x", TensorType((2,), "string"))
    twice = call("nn.string_concat", x, x)
    program = program_of(call("nn.find", twice, Constant(np.array(["aa"]))), twice, x, params=(x,))
    check_program(program, prove)
    first, second = (number for number, step in enumerate(program.steps) if isinstance(step, NumpyStep))
    for number, change, message in (
        (first, {"inputs": {"kind": "strings", "number": 5}}, "no strings strings 5"),
        (first, {"inputs": {"kind": "constant", "number": 0}}, "no strings constant 0"),
        (first, {"inputs": {"offset": 16}}, "no strings input 0"),
        (first, {"outputs": {"kind": "input", "number": 0}}, "writes to input 0"),
        (first, {"outputs": {"kind": "output", "number": 0}}, "no strings output 0"),
        (first, {"outputs": {"number": 7}}, "no strings strings 0"),
        (second, {"outputs": {"kind": "output", "number": 1}}, "there is no output 1"),
        (second, {"outputs": {"kind": "strings", "number": 0}}, "there is no strings 0"),
    ):
        step = program.steps[number]
        assert isinstance(step, NumpyStep)
        changed = replace(step, **{
            field: tuple(replace(place, **values) for place in getattr(step, field))  # type: ignore[arg-type]
            for field, values in change.items()
        })  # fmt: skip
        steps = (*program.steps[:number], changed, *program.steps[number + 1 :])
        with pytest.raises(CompileError, match=message):
            check_program(replace(program, steps=steps), prove)
    seen = CheckStep(Place("input", 0, 0, (2,), "string"), (3,), "node")
    read = CopyStep(Place("input", 0, 0, (4,), "int64"), Place("arena", 0, 0, (4,), "int64"))
    for step in (seen, read):
        with pytest.raises(CompileError, match="there is no input 0"):
            check_program(replace(program, steps=(step, *program.steps)), prove)


def test_tensors_of_numpy_steps_and_copies_have_their_types() -> None:
    program = mixed()
    step = next(step for step in program.steps if isinstance(step, NumpyStep))
    copy = next(step for step in program.steps if isinstance(step, CopyStep))
    wrong = (
        (step, replace(step, inputs=(replace(step.inputs[0], shape=(36, 8)),))),
        (step, replace(step, outputs=(replace(step.outputs[0], kind="input", number=0),))),
        (copy, replace(copy, target=replace(copy.target, dtype="int32"))),
    )
    for old, new in wrong:
        steps = tuple(new if each is old else each for each in program.steps)
        with pytest.raises(CompileError, match=r"its tensors have other types|writes to input 0"):
            check_program(replace(program, steps=steps), prove)


def paired_program() -> HostProgram:
    """One convolution of bytes by pairs, of a processor that has no dot product."""
    weights = np.random.default_rng(0).integers(-70, 70, (32, 32, 3, 3), np.int8)
    weights[5, 4:6, 1, 1] = 127
    x = Var("x", TensorType((1, 32, 9, 9), "int8"))
    names = ("y",)
    y = call("conv2d", x, Constant(weights), strides=(2, 2))  # by ones it would take fewer products, as words
    module = Module(Function((x,), y, Attrs({"name": "main", "outputs": names})))
    program = linked(module, "x86-64-v3")
    assert any("paired_dot_product" in code.text for code in program.kernels)
    return program


def test_weights_that_are_multiplied_by_pairs_must_bear_it() -> None:
    program = paired_program()
    check_program(program, prove)
    for number, changed in ((0, "constants"), (1, "constants"), (0, "kind")):
        symbol = next(code.symbol for code in program.kernels if "paired_dot_product" in code.text)
        step = next(each for each in program.steps if isinstance(each, LaunchStep) and each.symbol == symbol)
        place = [each for each in step.arguments if each.dtype == "int8" and each.shape[-1:] == (4,)][number]
        if changed == "constants":
            content = program.constants.copy()
            content[place.offset : place.offset + 2] = 65  # one more than 128 in a pair
            other = replace(program, constants=content)
        else:
            moved = replace(place, kind="arena", offset=0)
            arguments = tuple(moved if each == place else each for each in step.arguments)
            steps = tuple(replace(each, arguments=arguments) if each is step else each for each in program.steps)
            other = replace(program, steps=steps, arena_bytes=program.arena_bytes + place.nbytes)
        with pytest.raises(CompileError, match="are not such that sums of two products have 16 bits"):
            check_program(other, prove)
