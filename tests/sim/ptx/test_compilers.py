"""PTX of NVIDIA's own compiler runs right, and what is damaged in it is noticed.

The texts are in ``golden``, with the program that made them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from weft.sim.ptx import Counts, DeviceMemory, Program, PtxError

TEXT = Path(__file__).with_name("golden").joinpath("kernels.ptx").read_text()


LIMIT = 5000
"""Instructions within which all end; a damaged loop may not."""


@dataclass(frozen=True)
class Case:
    """A launch. ``arrays`` come first among the arguments; the last of ``given`` arrays is the result."""

    grid: Sequence[int]
    block: Sequence[int]
    arrays: tuple[np.ndarray, ...]
    numbers: tuple[int, ...]
    wanted: np.ndarray
    tolerance: float = 0.0


def softmax() -> Case:
    x = np.random.default_rng(0).normal(0, 5, (64, 256)).astype(np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return Case((16,), (128,), (x,), (), (wide / wide.sum(1, keepdims=True)).astype(np.float32), 1e-6)


def transpose() -> Case:
    x = np.random.default_rng(0).normal(size=(70, 45)).astype(np.float32)
    return Case((2, 3), (32, 8), (x,), (70, 45), np.ascontiguousarray(x.T))


def product(depth: int = 50) -> Case:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(35, depth)).astype(np.float32), generator.normal(size=(depth, 40)).astype(np.float32)
    return Case((3, 3), (16, 16), (a, b), (35, 40, depth), (a.astype(np.float64) @ b).astype(np.float32), 1e-5)


def functions() -> Case:
    x = np.random.default_rng(0).normal(0, 2, 500).astype(np.float32)
    i, v = np.arange(500) % 3, x.astype(np.float64)
    erf = np.vectorize(math.erf)(v)
    first, third = np.tanh(v) + erf, np.log(np.abs(v) + np.float32(1e-3)) * np.abs(v) ** 1.7
    second = np.sin((x * np.float32(1e6)).astype(np.float64))
    return Case((4,), (128,), (x,), (500,), np.choose(i, [first, second, third]).astype(np.float32), 2e-6)


def requantise() -> Case:
    x = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 300).astype(np.int32)
    wide = [int(each) * 1_398_101 + (1 << 43) >> 44 for each in x]
    return Case((3,), (128,), (x,), (1_398_101, 44, 300), np.clip(wide, -128, 127).astype(np.int8))


def tensor_cores(depth: int = 160) -> Case:
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-128, 128, (128, depth)).astype(np.int8) for _ in "ab")
    return Case((2, 2), (128,), (a, b), (128, depth), a.astype(np.int32) @ b.astype(np.int32).T)


CASES: dict[str, Callable[[], Case]] = {
    "softmax": softmax, "transpose": transpose, "product": product, "functions": functions, "requantise": requantise,
    "bytes": tensor_cores,
}  # fmt: skip


def run(name: str, case: Case, text: str) -> tuple[np.ndarray, Counts]:
    memory = DeviceMemory()
    result = np.full_like(case.wanted, 77)
    addresses = [memory.put(each) for each in (*case.arrays, result)]
    counts = Program(text, memory).launch(name, case.grid, case.block, [*addresses, *case.numbers], limit=LIMIT)
    memory.read(addresses[-1], result)
    return result, counts


def is_right(case: Case, result: np.ndarray) -> bool:
    if not case.tolerance:
        return np.array_equal(result, case.wanted)
    return np.allclose(result, case.wanted, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_another_compiler_run_right(name: str) -> None:
    case = CASES[name]()
    result, counts = run(name, case, TEXT)
    assert is_right(case, result)
    assert counts.warp_instructions > 0
    if name in ("softmax", "bytes", "transpose"):
        assert counts.conflicts == 0
    if name == "bytes":
        blocks, steps, warps = 4, 5, 4
        assert counts.instructions["mma"] == blocks * warps * steps * 8
        assert counts.barriers == blocks * steps
        assert counts.coalescing == 1.0
    if name == "softmax":
        assert counts.instructions["shfl"] == 64 * 10


# Damage

DAMAGED: dict[str, Sequence[Callable[[], Case]]] = {
    "softmax": [softmax], "transpose": [transpose], "requantise": [requantise],
    "product": [product, lambda: product(1)], "bytes": [tensor_cores, *(partial(tensor_cores, k) for k in (0, 32, 64))],
}  # fmt: skip
"""Launches for each kernel, with sizes at which its guards matter."""

HARMLESS = {
    "softmax": {"@%p1 bra \t$L__BB0_1; -> nothing"},  # any number may be taken away from all
    "transpose": {  # no thread has a y above 31
        "setp.gt.s32 \t%p1, %r4, 31; -> setp.ge.s32 \t%p1, %r4, 31;", "@%p1 bra \t$L__BB1_5; -> nothing",
        "@%p1 bra \t$L__BB1_10; -> nothing",
    },
    "product": {  # without a step of depth nothing is added, and a step too much adds zeros
        "@%p1 bra \t$L__BB2_7; -> nothing", "setp.lt.s32 \t%p8, %r32, %r21; -> setp.le.s32 \t%p8, %r32, %r21;",
    },
    "bytes": {"setp.gt.s32 \t%p3, %r105, 31; -> setp.ge.s32 \t%p3, %r105, 31;"},  # depths are multiples of 32
}  # fmt: skip
"""Damage that changes no result."""


TURNED = ((".lt", ".le"), (".gt", ".ge"), (".le", ".lt"), (".ge", ".gt"), (".eq", ".ne"), (".ne", ".eq"))


def damages(body: str) -> list[tuple[str, str]]:
    """The texts in which one barrier, wait, commit, copy, store or guard is damaged, with what was done."""
    found = []
    for match in re.finditer(r"^\t(@!?%p\d+ )?([a-z][\w.]*)([^\n]*;)", body, re.MULTILINE):
        guard, operation, rest = match.groups()
        whole = match.group()
        others: list[str] = []
        if operation.startswith(("bar", "cp.async", "st.", "ldmatrix")):
            others.append("")
        if operation.startswith("cp.async.wait_group"):
            others.append(whole.replace("group 1", "group 2").replace("group \t1", "group \t2"))
        if operation.startswith("setp"):
            for one, other in TURNED:
                if one in operation:
                    others.append(whole.replace(one, other, 1))
                    break
        if guard and operation == "bra":
            others += [f"\tbra{rest}", ""]
        for other in others:
            if other != whole:
                changed = body[: match.start()] + other + body[match.end() :]
                found.append((f"{whole.strip()} -> {other.strip() or 'nothing'}", changed))
    return found


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_noticed(name: str) -> None:
    cases = [make() for make in DAMAGED[name]]
    start = TEXT.index(f".visible .entry {name}(")
    end = TEXT.find(".visible .entry", start + 1)
    head, tail = TEXT[:start], TEXT[end:] if end >= 0 else ""
    body = TEXT[start : end if end >= 0 else len(TEXT)]
    assert outcome_of(name, cases, TEXT) == "as before"
    outcomes: Counter[str] = Counter()
    survivors = []
    for what, changed in damages(body):
        outcome = outcome_of(name, cases, head + changed + tail)
        outcomes[outcome] += 1
        if outcome == "as before" and what not in HARMLESS.get(name, ()):
            survivors.append(what)
    assert outcomes.total() > 3
    assert not survivors, f"{outcomes}\n" + "\n".join(survivors)


def outcome_of(name: str, cases: Sequence[Case], text: str) -> str:
    for case in cases:
        try:
            result, _ = run(name, case, text)
        except PtxError:
            return "refused"
        if not is_right(case, result):
            return "wrong"
    return "as before"
