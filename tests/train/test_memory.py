"""Bounds of memory: kept, monotone, and refused where they cannot be met."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Constant, GraphError, Module, TensorType, Var
from weft.compiler.operators import nn
from weft.train import Step, Training, cross_entropy, sgd, within
from weft.train.memory import bytes_of

from .classifier import module_of

LAYERS, WIDTH, BATCH = 16, 32, 256


def deep(*, keep_all: bool = False) -> tuple[Step, dict[str, Array]]:
    generator = np.random.default_rng(0)
    value: object = Var("x", TensorType((BATCH, WIDTH), "float32"))
    x = value
    for number in range(LAYERS):
        weights = (generator.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype("float32")
        value = nn.add(value, nn.tanh(nn.matmul(value, Constant(weights, f"w{number}"))))
    module, start = weft.lift_constants(module_of(value, params=(x,), names=("scores",)))
    return sgd(cross_entropy(module), list(start), momentum=0.9, keep_all=keep_all), start


def arena(module: Module) -> int:
    return int(weft.compile(module, target="cpu").statistics["arena_bytes"])


def batch_of(seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        "x": generator.normal(size=(BATCH, WIDTH)).astype("float32"),
        "labels": generator.integers(0, WIDTH, BATCH),
    }


def test_a_step_that_keeps_all_takes_more_memory_and_does_the_same() -> None:
    peaks, losses = [], []
    for keep_all in (True, False):
        step, start = deep(keep_all=keep_all)
        model = weft.compile(step.module, target="cpu")
        peaks.append(model.statistics["arena_bytes"])
        training = Training(step, start, weft.load(model))
        losses.append([float(training.step(batch_of(2), 0.05)["loss"]) for _ in range(3)])
    assert peaks[1] < peaks[0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_bound_is_kept_and_memory_falls_with_it() -> None:
    step, start = deep()
    whole = arena(step.module)
    batch = batch_of(1)
    losses, planned = [], []
    for share in (1.0, 0.8, 0.6):
        lines: list[str] = []
        bounded = within(step, int(share * whole), progress=lines.append)
        assert (len(lines) == 1) == (share == 1.0)
        planned.append(arena(bounded.module))
        assert planned[-1] <= share * whole
        training = Training(bounded, start, weft.load(weft.compile(bounded.module, target="cpu")))
        losses.append([float(training.step(batch, 0.05)["loss"]) for _ in range(5)])
    assert planned == sorted(planned, reverse=True)
    assert losses[0][-1] < losses[0][0]
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-4)


def test_a_bound_that_cannot_be_met_says_what_can() -> None:
    step, _ = deep()
    with pytest.raises(
        GraphError, match=r"1,024 bytes are too few: the least that was found is [\d,]+; hint"
    ) as raised:
        within(step, "1KiB")
    least = int(str(raised.value).split("found is ")[1].split(";")[0].replace(",", ""))
    assert arena(within(step, least).module) == least


@pytest.mark.parametrize(
    ("text", "expected"), [(7, 7), ("12", 12), ("1.5 KiB", 1536), ("2MB", 2_000_000), ("1gib", 1 << 30)]
)
def test_sizes(text: int | str, expected: int) -> None:
    assert bytes_of(text) == expected


@pytest.mark.parametrize("text", ["", "much", "-5", 0, "0", "3 apples", "1e9"])
def test_what_is_no_size(text: int | str) -> None:
    with pytest.raises(GraphError, match="is no size of memory; hint: give bytes"):
        bytes_of(text)
