"""The table of what is legal at each stage, and the texts of its refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler import tensor as t

from .conv_example import Conv, accelerator_schedule
from .programs import PROGRAMS, matmul_chain

# A target as a target would write it: everything is an instruction.
MACHINE = replace(
    t.SCHEDULED,
    stage="tensorized for the machine",
    statements=(t.For, t.Allocate, t.Seq, t.If, t.IntrinsicCall),
    loop_kinds=("serial", "unroll", "vthread"),
    functions=(),
    scopes=("inp", "wgt", "acc", "out"),
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_compute_gives_is_legal(program: str) -> None:
    t.check_legal(PROGRAMS[program]().func, t.COMPUTED)


def test_a_tensorized_convolution_is_legal_for_its_machine() -> None:
    schedule = accelerator_schedule(Conv())
    t.check_legal(schedule.func, t.SCHEDULED)
    t.check_legal(schedule.func, MACHINE)
    with pytest.raises(t.IRError, match="scope 'acc' is not legal in a function that is computed"):
        t.check_legal(schedule.func, replace(t.COMPUTED, statements=t.SCHEDULED.statements))


def function(body: str, head: str = 'x: int32[4] @ "global", y: float32[4] @ "global"') -> t.PrimFunc:
    return t.parse(f"def f({head}):\n{body}")


BLOCK = '        with block("b", "spatial"):\n            y[i] = '


@pytest.mark.parametrize(
    ("func", "legality", "message"),
    [
        (
            function("    for i in range(4):\n        y[i] = float32(0)\n"),
            t.SCHEDULED,
            "buffer 'y': statement 'Store' is not legal in a function that is scheduled; "
            "hint: legal are For, Allocate, Seq, If, Block, IntrinsicCall",
        ),
        (
            function(f"    for i in parallel(4):\n{BLOCK}x[i].astype(float32)\n"),
            t.COMPUTED,
            "loop 'i': loop kind 'parallel' is not legal in a function that is computed; hint: legal are serial",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}x[i].astype(float32)\n"),
            MACHINE,
            "block 'b': statement 'Block' is not legal in a function that is tensorized for the machine; "
            "hint: legal are For, Allocate, Seq, If, IntrinsicCall",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}exp(x[i].astype(float32))\n"),
            replace(t.SCHEDULED, stage="for integers", functions=()),
            "block 'b': function 'exp' is not legal in a function that is for integers; "
            "hint: no function is legal there",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}x[i].astype(float32) / float32(2)\n"),
            replace(t.SCHEDULED, stage="for integers", operators=("add", "mul")),
            "block 'b': operator 'div' is not legal in a function that is for integers; hint: legal are add, mul",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}x[i].astype(float32)\n"),
            replace(t.SCHEDULED, stage="for bytes", types=("int8", "int32")),
            "parameter 'y': type 'float32' is not legal in a function that is for bytes; "
            "hint: legal are int8, int32",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}x[i]\n", 'x: int32[4] @ "near", y: int32[4] @ "global"'),
            t.SCHEDULED,
            "parameter 'x': scope 'near' is not legal in a function that is scheduled; hint: legal are global",
        ),
        (
            function(f"    for i in range(4):\n{BLOCK}x[j]\n", 'x: int32[4] @ "global", y: int32[4] @ "global"'),
            t.SCHEDULED,
            "store to 'y': variable 'j' is not a loop around it",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_what_is_legal(func: t.PrimFunc, legality: t.Legality, message: str) -> None:
    with pytest.raises(t.IRError) as error:
        t.check_legal(func, legality)
    assert str(error.value) == message


def test_a_block_kind_and_an_intrinsic_can_be_left_out() -> None:
    schedule = matmul_chain()
    schedule.decompose_reduction("product", "k")
    with pytest.raises(t.IRError, match="block kind 'reduce-init' is not legal in a function that is computed"):
        t.check_legal(schedule.func, t.COMPUTED)
    with pytest.raises(t.IRError, match=r"intrinsic '.*' is not legal .* hint: legal are none_such"):
        t.check_legal(accelerator_schedule(Conv()).func, replace(MACHINE, intrinsics=("none_such",)))


def test_the_table_prints() -> None:
    lines = t.legality_table([t.COMPUTED, MACHINE]).splitlines()
    assert lines[0] == "|  | computed | tensorized for the machine |"
    assert "| loop_kinds | serial | serial unroll vthread |" in lines
    assert "| scopes | global | inp wgt acc out |" in lines
