"""The text of a loop nest read back while other threads do the same."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from weft.compiler import tensor as te
from weft.compiler.tensor.parser import parse
from weft.compiler.tensor.printer import function_text


class Finalised:
    """Garbage that runs Python code when it is collected, and so lets other threads go on."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that change all the time, garbage that is collected all the time."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def _turned(x: te.Tensor, name: str) -> te.Tensor:
    return te.compute((8, 8), lambda i, j: x[i, j] + x[j, i] * 3.0, name)


@pytest.mark.usefixtures("restless")
def test_threads_parse_at_the_same_time() -> None:
    """CPython's parser then raises SystemError once in about twenty times."""
    a = te.placeholder((8, 8), "float32", "a")
    x = te.compute((8, 8), lambda i, j: a[i, j] * 2.0 + a[j, i], "x")
    for n in range(12):
        x = _turned(x, f"x{n}")
    text = function_text(te.create_schedule(x, [a]).func)

    def again(_: int) -> str:
        for _ in range(40):
            Finalised()
        return function_text(parse(text))

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(again, range(60))) == {text}
