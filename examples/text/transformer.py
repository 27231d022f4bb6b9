"""A small causal transformer that learns to continue the docstrings of Python's standard library, trained by weft.

Two layers of attention and of a hidden layer each, behind layer normalisations (Vaswani et al., 2017; Xiong et al.,
2020). One step of training is one call of compiled code; a checkpoint goes on to the bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import weft
from numpy.typing import NDArray
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Var
from weft.compiler.operators import contract, nn
from weft.progress import progress

from examples.text.characters import Text, read_text

SEED = 0


@dataclass(frozen=True)
class Size:
    """``context``: characters that the model sees at most; ``batch``: of sequences in a step."""

    characters: int
    width: int = 64
    heads: int = 4
    layers: int = 2
    context: int = 48
    batch: int = 16


class Builder:
    """Collects layers on rows (batch * context, width). ``missing``: where parameters without a value start."""

    def __init__(self, size: Size, parameters: Mapping[str, Array]) -> None:
        self.size, self.parameters = size, parameters
        self.missing: dict[str, weft.train.Initial | Array] = {}

    def parameter(self, name: str, initial: weft.train.Initial | Array) -> Constant:
        if name in self.parameters:
            return Constant(self.parameters[name], name)
        self.missing[name] = initial
        return Constant(np.zeros(initial.shape, np.float32), name)

    def linear(self, name: str, x: Expr, outputs: int, gain: float = 1.0) -> Expr:
        weight = self.parameter(f"{name}.weight", weft.train.glorot((outputs, x.shape[1]), gain))
        return nn.add(nn.dense(x, weight), self.parameter(f"{name}.bias", np.zeros(outputs, np.float32)))

    def normalised(self, name: str, x: Expr) -> Expr:
        width = x.shape[1]
        centred = nn.subtract(x, nn.reduce_mean(x, axes=(1,), keepdims=True))
        variance = nn.reduce_mean(nn.multiply(centred, centred), axes=(1,), keepdims=True)
        unit = nn.divide(centred, nn.sqrt(nn.add(variance, Constant(np.array(1e-5, np.float32)))))
        factor = self.parameter(f"{name}.factor", np.ones(width, np.float32))
        return nn.add(nn.multiply(unit, factor), self.parameter(f"{name}.offset", np.zeros(width, np.float32)))

    def attention(self, name: str, x: Expr) -> Expr:
        """Each place looks at itself and at those before it."""
        size = self.size
        depth = size.width // size.heads
        split = size.batch, size.context, size.heads, depth

        def heads(what: str) -> Expr:
            rows = self.linear(f"{name}.{what}", x, size.width)
            return contract.transpose(contract.reshape(rows, shape=split), perm=(0, 2, 1, 3))

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = nn.matmul(query, contract.transpose(key, perm=(0, 1, 3, 2)))
        scores = nn.multiply(scores, Constant(np.array(depth**-0.5, np.float32)))
        later = np.triu(np.full((size.context, size.context), -1e9, np.float32), 1)
        seen = nn.matmul(nn.softmax(nn.add(scores, Constant(later)), axis=3), value)
        rows = contract.reshape(contract.transpose(seen, perm=(0, 2, 1, 3)), shape=x.shape)
        return self.linear(f"{name}.out", rows, size.width, 0.5)

    def scores(self, characters: Expr) -> Expr:
        """(batch * context, characters) of what comes next."""
        size = self.size
        table = self.parameter("characters", weft.train.normal((size.characters, size.width), 0.1))
        places = self.parameter("places", weft.train.normal((size.context, size.width), 0.1))
        x = contract.reshape(nn.add(contract.gather(table, characters, axis=0), places),
                             shape=(size.batch * size.context, size.width))  # fmt: skip
        for layer in range(size.layers):
            name = f"layer{layer}"
            x = nn.add(x, self.attention(f"{name}.attention", self.normalised(f"{name}.first", x)))
            hidden = self.linear(f"{name}.hidden", self.normalised(f"{name}.second", x), 4 * size.width)
            x = nn.add(x, self.linear(f"{name}.narrow", nn.clip(hidden, low=0.0), size.width, 0.5))
        return self.linear("next", self.normalised("last", x), size.characters)


def model(size: Size, parameters: Mapping[str, Array]) -> tuple[Module, Mapping[str, weft.train.Initial | Array]]:
    """The network, and where parameters that have no value start."""
    builder = Builder(size, parameters)
    characters = Var("characters_in", TensorType((size.batch, size.context), "int64"))
    body = builder.scores(characters)
    return Module(Function((characters,), body, Attrs({"name": "main", "outputs": ("scores",)}))), builder.missing


def training_of(size: Size, threads: int = 1) -> weft.train.Training:
    """From its initial values."""
    start = weft.train.initialised(model(size, {})[1], seed=SEED)
    module, start = weft.lift_constants(model(size, start)[0], list(start))
    step = weft.train.adamw(weft.train.cross_entropy(module), list(start), clip_norm=1.0)
    return weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu", threads=threads)))


def batch_of(text: Text, size: Size, step: int) -> dict[str, Array]:
    """Sequences and what follows each of their characters: a function of the step, so that a resumed training goes on
    with the same ones."""
    starts = np.random.default_rng((SEED, step)).integers(0, len(text.numbers) - size.context - 1, size.batch)
    rows = text.numbers[starts[:, None] + np.arange(size.context + 1)]
    return {"characters_in": rows[:, :-1].copy(), "labels": rows[:, 1:].reshape(-1).copy()}


def continued(text: Text, size: Size, parameters: Mapping[str, Array], start: str, count: int) -> str:
    """``start`` and what the network draws behind it."""
    module = weft.load(weft.compile(model(size, parameters)[0], target="cpu"))
    generator = np.random.default_rng(SEED)
    numbers: list[int] = [text.alphabet.index(each) for each in start]
    for _ in range(count):
        last = numbers[-size.context :]
        rows: NDArray[np.int64] = np.zeros((size.batch, size.context), np.int64)
        rows[0, : len(last)] = last
        scores = module.run({"characters_in": rows})["scores"][len(last) - 1].astype(np.float64)
        shares = np.exp(scores - scores.max())
        numbers.append(int(generator.choice(len(shares), p=shares / shares.sum())))
    return text.written(np.array(numbers))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="of training in all, those of a checkpoint included")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="go on from this file if it is there; written at the end")
    options = parser.parse_args(arguments)
    text = read_text()
    size = Size(len(text.alphabet))
    losses: list[float] = []
    with progress("compiling the training step") as status:
        training = training_of(size, options.threads)
        if options.checkpoint is not None and options.checkpoint.exists():
            training.restore(options.checkpoint)
        first, started = training.steps, time.perf_counter()
        while training.steps < options.steps:
            rate = options.rate * min(1.0, (training.steps + 1) / 100)
            rate *= 0.5 * (1 + np.cos(np.pi * min(1.0, training.steps / options.steps)))
            losses.append(float(training.step(batch_of(text, size, training.steps), rate)["loss"]))
            speed = (training.steps - first) * size.batch * size.context / (time.perf_counter() - started)
            status.update(f"step {training.steps} of {options.steps}, loss {np.mean(losses[-50:]):.3f}, "
                          f"{speed:,.0f} characters/s")  # fmt: skip
        if options.checkpoint is not None:
            training.save(options.checkpoint)
        status.update("writing on")
        shown = continued(text, size, training.parameters, "return the ", 200)
    print(f"characters of text       {len(text.numbers):,}")
    print(f"entropy of characters    {text.unigram_entropy():.3f} nats")
    if losses:
        print(f"loss, last 50 steps      {np.mean(losses[-50:]):.3f} nats")
    print(f"steps                    {training.steps}")
    print(shown)


if __name__ == "__main__":
    main()
