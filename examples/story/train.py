"""Trains the decoder in floats, by weft, on Python's own language reference: one step is one call of compiled code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import weft
from weft.compiler.graph import Array
from weft.progress import Updates

from examples.story.network import Size, training_module
from examples.story.text import Bytes

SEED = 0
WARM_UP = 100
"""Steps in which the rate rises."""


@dataclass(frozen=True)
class Plan:
    """``length``: bytes of a sequence; ``batch``: sequences in a step; ``rate``: the highest."""

    steps: int = 3000
    length: int = 128
    batch: int = 16
    rate: float = 2e-3
    threads: int = 1


def training_of(size: Size, plan: Plan) -> weft.train.Training:
    """From its initial values."""
    start = weft.train.initialised(training_module(size, {}, plan.batch, plan.length)[1], seed=SEED)
    module, start = weft.lift_constants(training_module(size, start, plan.batch, plan.length)[0], list(start))
    step = weft.train.adamw(weft.train.cross_entropy(module), list(start), clip_norm=1.0)
    compiled = weft.compile(step.module, target="cpu", threads=plan.threads)
    return weft.train.Training(step, start, weft.load(compiled))


def batch_of(text: Bytes, plan: Plan, step: int) -> dict[str, Array]:
    """Sequences and what follows each of their bytes: a function of the step, so that a resumed training goes on with
    the same ones."""
    starts = np.random.default_rng((SEED, step)).integers(0, len(text) - plan.length - 1, plan.batch)
    rows = text[starts[:, None] + np.arange(plan.length + 1)].astype(np.int64)
    return {"input_ids": rows[:, :-1].copy(), "labels": rows[:, 1:].reshape(-1).copy()}


def rate_of(plan: Plan, step: int) -> float:
    """It rises, and falls along half a cosine."""
    warm = min(1.0, (step + 1) / WARM_UP)
    return float(plan.rate * warm * 0.5 * (1 + np.cos(np.pi * min(1.0, step / plan.steps))))


def trained(size: Size, plan: Plan, text: Bytes, checkpoint: Path | None, status: Updates) -> dict[str, Array]:
    """Parameters by name. ``checkpoint``: goes on from this file if it is there, and is written every 200 steps."""
    status.update("compiling the training step")
    training = training_of(size, plan)
    if checkpoint is not None and checkpoint.exists():
        training.restore(checkpoint)
    losses: list[float] = []
    first, started = training.steps, time.perf_counter()
    while training.steps < plan.steps:
        rate = rate_of(plan, training.steps)
        losses.append(float(training.step(batch_of(text, plan, training.steps), rate)["loss"]))
        speed = (training.steps - first) * plan.batch * plan.length / (time.perf_counter() - started)
        bits = np.mean(losses[-50:]) / np.log(2)
        status.update(f"step {training.steps} of {plan.steps}, {bits:.3f} bits a byte, {speed:,.0f} bytes/s")
        if checkpoint is not None and (training.steps % 200 == 0 or training.steps == plan.steps):
            training.save(checkpoint)
    return training.parameters
