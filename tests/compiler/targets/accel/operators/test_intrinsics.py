"""Every vector intrinsic's declared meaning is what its instruction does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.compiler.targets.accel.operators.intrinsics import EmitVector, acc_entry, intrinsics
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.errors import CompileError
from weft.compiler.tensor import Const, IntrinsicCall, PrimFunc, Region, TensorIntrinsic, interpret
from weft.compiler.tensor.ir import Allocate, Buffer, Stmt, row_major_strides
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Finish, Vector, VectorOp
from weft.hw.memories import Memory
from weft.hw.programs import assemble
from weft.sim.fsim import FunctionalSimulator

CONFIG = replace(TINY, batch=2, block_in=2, block_out=8)
SQUARE = replace(TINY, name="tiny-batch2", batch=2)
"""A core whose results can become inputs."""

VECTOR = [
    (config, name, inside)
    for config in (CONFIG, SQUARE)
    for name, intrinsic in intrinsics(config).items() if isinstance(intrinsic.emits, EmitVector)
    for inside in ((True, False) if intrinsic.emits.padded else (True,))
]  # fmt: skip

SCALARS = {"immediate": -77, "low": -100, "high": 90, "zero_point": -5, "left_shift": 3, "pad": -19}


def call(intrinsic: TensorIntrinsic, inside: bool = True) -> tuple[IntrinsicCall, dict[str, Buffer]]:
    """The intrinsic on buffers of one tile each."""
    buffers = {item.name: Buffer(item.name, item.shape, item.dtype, item.scope) for item in intrinsic.operands}
    regions = tuple(
        Region(buffers[item.name], (Const(0),) * len(item.shape), item.shape, row_major_strides(item.shape))
        for item in intrinsic.operands
    )
    scalars = []
    for param in intrinsic.scalars:
        value = 9 if param.name == "immediate" and param.high == 31 else {**SCALARS, "inside": inside}[param.name]
        scalars.append((param.name, Const(value, param.dtype)))
    return IntrinsicCall(intrinsic, regions, tuple(scalars), "stage"), buffers


def run_instruction(config: CoreConfig, name: str, inside: bool, values: dict[str, np.ndarray]) -> np.ndarray:
    """Emit the one call, put the operands into the accumulator memory, run, and read the result."""
    intrinsic = intrinsics(config)[name]
    node, buffers = call(intrinsic, inside)
    body: Stmt = node
    for buffer in buffers.values():
        body = Allocate(buffer, body)
    emitter = Emitter(config)
    emitter.emit(PrimFunc("one", (), body), {})
    (issue,) = emitter.issues
    instruction = issue.instruction
    assert isinstance(instruction, Vector)
    simulator = FunctionalSimulator(config, 64)
    acc = simulator.read_scratchpad(Memory.ACC)
    places = {"d": instruction.dst, "a": instruction.a, "b": instruction.b}
    for operand in intrinsic.operands:
        if operand.mode != "out" and operand.scope == "acc":
            rows = values[operand.name].reshape(-1, config.lanes)
            acc[places[operand.name] : places[operand.name] + len(rows)] = rows
    simulator.write_scratchpad(Memory.ACC, acc)
    code = assemble(config, [instruction, Finish()])
    simulator.dram[: len(code)] = code
    result = simulator.run(0, 2)
    assert result.fault is None, str(result.fault)
    memory = simulator.read_scratchpad(instruction.target.memory)
    return memory[instruction.dst].reshape(acc_entry(config))


@pytest.mark.parametrize(("config", "name", "inside"), VECTOR, ids=str)
def test_a_vector_instruction_computes_its_meaning(config: CoreConfig, name: str, inside: bool) -> None:
    random = np.random.default_rng(sum(map(ord, name)))
    intrinsic = intrinsics(config)[name]
    node, buffers = call(intrinsic, inside)
    values = {}
    for operand in intrinsic.operands:
        numbers = random.integers(-(2**31), 2**31, operand.shape)
        if operand.name == "b":  # 25 bits, as compute rules have it
            numbers = random.integers(-(2**24), 2**24, operand.shape)
            if operand.shape[0] == 3:
                numbers[2] = random.integers(1, 57, operand.shape[1:])
        values[operand.name] = numbers.astype(np.dtype(operand.dtype))
    function = PrimFunc("meaning", tuple(buffers.values()), node)
    expected = interpret(function, {key: value.copy() for key, value in values.items()})["d"]
    np.testing.assert_array_equal(run_instruction(config, name, inside, values), expected)


def test_results_become_inputs_only_where_entries_are_alike() -> None:
    written = {config.name: {each.operands[0].scope for each in intrinsics(config).values()
                             if isinstance(each.emits, EmitVector)} for config in (CONFIG, SQUARE)}  # fmt: skip
    assert written == {CONFIG.name: {"acc", "out"}, SQUARE.name: {"acc", "out", "inp"}}


def test_every_vector_operation_of_the_instruction_set_is_declared() -> None:
    emitted = [intrinsic.emits for intrinsic in intrinsics(CONFIG).values()]
    assert {emits.op for emits in emitted if isinstance(emits, EmitVector)} == set(VectorOp)


def test_dram_buffers_are_named_when_they_have_no_place() -> None:
    node, _ = call(intrinsics(CONFIG)["add"])
    missing = Buffer("weights", (4,), "int8")
    with pytest.raises(CompileError, match="function 'one': parameter 'weights' has no place in the window"):
        Emitter(CONFIG).emit(PrimFunc("one", (missing,), node), {"other": DramBuffer(0)})
