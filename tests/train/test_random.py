"""Random numbers: the published generator, the same on all targets, and dropout that trains and goes on to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Constant, GraphError, Module, Span, TensorType, Var, call, evaluate
from weft.compiler.operators import nn
from weft.train import Training, cross_entropy, dropout, random_bits, sgd
from weft.train.random import key_of

from .classifier import module_of

MASK = (1 << 64) - 1


def squares32(counter: int, key: int) -> int:
    """Figure 1 of arXiv:2004.06278, in whole numbers."""
    x = y = counter * key & MASK
    z = (y + key) & MASK
    x = (x * x + y) & MASK
    x = (x >> 32 | x << 32) & MASK
    x = (x * x + z) & MASK
    x = (x >> 32 | x << 32) & MASK
    x = (x * x + y) & MASK
    x = (x >> 32 | x << 32) & MASK
    return ((x * x + z) & MASK) >> 32


def bits_module(shape: tuple[int, ...], seed: int = 0, stream: int = 0) -> Module:
    draws = Var("draws", TensorType((), "uint64"))
    return module_of(random_bits(draws, shape, seed=seed, stream=stream), params=(draws,), names=("bits",))


@pytest.mark.parametrize("target", ["numpy", "cpu", "cpu, 2 threads", "opencl"])
def test_the_numbers_are_those_of_the_published_generator(target: str) -> None:
    module = bits_module((3, 5, 7), seed=9, stream=3)
    given = {"draws": np.array(41, np.uint64)}
    if target == "numpy":
        found = evaluate(module, given)["bits"]
    else:
        name, _, threads = target.partition(", ")
        options = {"threads": 2} if threads else {}
        found = weft.load(weft.compile(module, target=name, **options)).run(given)["bits"]
    expected = [squares32(41 << 44 | 3 << 32 | place, key_of(9)) for place in range(105)]
    assert found.dtype == np.uint32
    assert found.reshape(-1).tolist() == expected


def test_numbers_are_even_and_differ_by_step_seed_and_stream() -> None:
    def draw(step: int, seed: int, stream: int) -> Array:
        return np.asarray(evaluate(bits_module((1 << 16,), seed, stream), {"draws": np.array(step, np.uint64)})["bits"])

    found = {at: draw(*at) for at in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]}
    for numbers in found.values():
        for shift in (0, 8, 16, 24):  # every byte: chi-square of 255 degrees, 22.6 its deviation
            counts = np.bincount(numbers >> np.uint32(shift) & np.uint32(255), minlength=256)
            assert abs(((counts - 256.0) ** 2 / 256).sum() - 255) < 6 * 22.6
    bits = {at: np.unpackbits(numbers.view(np.uint8)) for at, numbers in found.items()}
    for one in bits:
        for other in bits:
            if one < other:  # two million pairs of bits, half of them equal
                assert abs((bits[one] == bits[other]).mean() - 0.5) < 0.002


def test_keys_have_the_digits_that_the_generator_wants() -> None:
    keys = {key_of(seed) for seed in range(200)}
    assert len(keys) == 200
    for key in keys:
        text = f"{key:016x}"
        assert key % 2
        assert "0" not in text
        assert len(set(text[:8])) == len(set(text[8:])) == 8


def network() -> tuple[Module, dict[str, Array]]:
    generator = np.random.default_rng(0)
    x = Var("x", TensorType((64, 20), "float32"))
    w, v = (Constant(generator.normal(size=shape).astype("float32") / 4, name) for shape, name in
            (((20, 32), "w"), ((32, 4), "v")))  # fmt: skip
    hidden = call("nn.tanh", nn.matmul(x, w), span=Span(("hidden",), "h"))
    return weft.lift_constants(module_of(nn.matmul(hidden, v), params=(x,), names=("scores",)))


def batch(seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(64, 20)).astype("float32")
    return {"x": x, "labels": (x[:, 0] > 0) + 2 * (x[:, 1] > 0).astype(np.int64)}


@pytest.mark.parametrize("name", ["hidden", "h"])
def test_what_is_dropped_is_dropped_in_the_gradient_too(name: str) -> None:
    module, start = network()
    seen = dropout(module, {name: 0.25}, seed=3)
    step = weft.grad(cross_entropy(seen, scores="scores"), wrt="v", of="loss")
    given = {**batch(0), **start, "draws": np.array(5, np.uint64)}
    found = evaluate(step, given)
    bits = np.array([squares32(5 << 44 | place, key_of(3)) for place in range(64 * 32)]).reshape(64, 32)
    mask = (bits >= 0.25 * 2**32) / np.float32(0.75)
    hidden = np.tanh(given["x"] @ start["w"]) * mask
    np.testing.assert_allclose(found["scores"], hidden @ start["v"], rtol=1e-5, atol=1e-5)
    chances = np.exp(found["scores"]) / np.exp(found["scores"]).sum(1, keepdims=True)
    chances[np.arange(64), given["labels"]] -= 1
    np.testing.assert_allclose(found["grad_v"], hidden.T @ chances / 64, rtol=1e-4, atol=1e-6)
    assert found["next_draws"] == 6


def test_a_training_with_dropout_goes_on_to_the_bit(tmp_path: Path) -> None:
    module, start = network()
    seen = cross_entropy(dropout(module, {"hidden": 0.3}), scores="scores")
    step = sgd(seen, ["w", "v"], momentum=0.9)
    assert step.state["draws"] == "next_draws"
    losses = []
    for threads in (1, 2):
        loaded = weft.load(weft.compile(step.module, target="cpu", threads=threads))
        training = Training(step, start, loaded)
        losses.append([float(training.step(batch(number), 0.1)["loss"]) for number in range(40)])
        if threads == 1:
            training.save(tmp_path / "state.npz")
            after = [float(training.step(batch(number), 0.1)["loss"]) for number in range(3)]
            other = Training(step, start, loaded)
            other.restore(tmp_path / "state.npz")
            assert [float(other.step(batch(number), 0.1)["loss"]) for number in range(3)] == after
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert np.mean(losses[0][-5:]) < 0.7 * losses[0][0]
    same = [float(Training(step, start, loaded).step(batch(0), 0.0)["loss"]) for _ in range(2)]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("rates", "message"),
    [({"hidden": 1.0}, "rate for 'hidden' is 1.0"), ({"nowhere": 0.5}, "no value of floats has the name 'nowhere'"),
     ({"x": 0.5}, "no value of floats has the name 'x'"),
     ({"hidden": 0.1, "h": 0.5}, "'hidden' and 'h' are names of the same value")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(rates: dict[str, float], message: str) -> None:
    module, _ = network()
    with pytest.raises(GraphError, match=message):
        dropout(module, rates)


def test_twice_is_refused() -> None:
    module, _ = network()
    with pytest.raises(GraphError, match="'draws' already; hint: give all rates in one call"):
        dropout(dropout(module, {"h": 0.1}), {"h": 0.1})
    with pytest.raises(GraphError, match="stream 4096 is not in 0"):
        bits_module((2,), stream=4096)
