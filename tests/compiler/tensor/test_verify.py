"""What is no function of the loop IR: names twice, variables and buffers used where they do not exist."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler import tensor as t
from weft.compiler.tensor.ir import Allocate, Seq
from weft.compiler.tensor.verify import verify
from weft.compiler.tensor.visitor import replace_buffer

HEAD = 'def f(x: int32[4] @ "global", y: int32[4] @ "global"):\n'
LOOP = "    for {} in range(4):\n        y[{}] = x[{}]\n"
BLOCK = '    for {0} in range(4):\n        with block("{1}", "spatial"):\n            y[{0}] = x[{0}]\n'


def parsed(body: str) -> t.PrimFunc:
    return t.parse(HEAD + body)


WRONG = {
    "variable of a loop that has ended": (
        LOOP.format("i", "i", "i") + LOOP.format("j", "j", "i"),
        "variable 'i' is not",
    ),
    "variable of a loop that comes": (LOOP.format("i", "i", "j") + LOOP.format("j", "j", "j"), "variable 'j' is not"),
    "variable in an extent": ("    for i in range(n):\n        y[i] = x[i]\n", "variable 'n' is not"),
    "loop twice": (LOOP.format("i", "i", "i") * 2, "loop 'i' is declared twice"),
    "loop with the name of a buffer": (LOOP.format("x", "x", "x"), "loop 'x' is declared twice"),
    "block twice": (BLOCK.format("i", "b") + BLOCK.format("j", "b"), "block 'b' occurs twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_rule_is_watched(case: str) -> None:
    body, message = WRONG[case]
    with pytest.raises(t.IRError, match=message):
        verify(parsed(body))


COPIES = """
    with allocate(int32[4] @ "global") as copy:
        for i in range(4):
            copy[i] = x[i]
        for j in range(4):
            y[j] = copy[j]
"""


def test_a_buffer_exists_inside_of_its_allocation_and_in_its_shape() -> None:
    func = parsed(COPIES)
    verify(func)
    assert isinstance(func.body, Allocate)
    assert isinstance(func.body.body, Seq)
    first, second = func.body.body.body
    with pytest.raises(t.IRError, match="buffer 'copy' does not exist there in that shape"):
        verify(replace(func, body=Seq((Allocate(func.body.buffer, first), second))))
    larger = replace_buffer(second, func.body.buffer, replace(func.body.buffer, shape=(5,)))
    with pytest.raises(t.IRError, match="buffer 'copy' does not exist there in that shape"):
        verify(replace(func, body=Allocate(func.body.buffer, Seq((first, larger)))))
    with pytest.raises(t.IRError, match="a Seq must hold at least two statements, none of them a Seq"):
        verify(replace(func, body=Allocate(func.body.buffer, Seq((first, Seq((second, second)))))))


SUM = """    for {0} in range(4):
        with block("b", "reduce", over=[k], init=int32(0)):
            y[0] = y[0] + x[{0}]
"""


def test_a_block_reduces_over_loops_around_it() -> None:
    verify(parsed(SUM.format("k")))
    with pytest.raises(t.IRError, match="block 'b' reduces over 'k', which is not a loop around it"):
        verify(parsed(SUM.format("i")))
