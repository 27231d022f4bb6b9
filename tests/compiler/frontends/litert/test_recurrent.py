"""Recurrent layers and control flow of LiteRT files, beside the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.litert.source import LitertSource
from weft.compiler.graph.evaluate import evaluate_function

from benchmarks.zoo.litert_models import ModelWriter, interpreted, options

Array = npt.NDArray[Any]
TANH, RELU = 4, 1


def meaning(model: bytes, *arrays: Array) -> list[Array]:
    found = evaluate_function(LitertSource(model, "model").module().main, arrays)
    return list(found) if isinstance(found, tuple) else [found]


def check(model: bytes, *arrays: Array) -> None:
    for one, other in zip(meaning(model, *arrays), interpreted(model, arrays), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def lstm(
    seed: int, *, steps: int = 6, time_major: bool = False, coupled: bool = False, peepholes: bool = False,
    projection: bool = False, clip: float = 0.0, int8: bool = False,
) -> tuple[bytes, Array]:  # fmt: skip
    """One layer of 5 features, 4 cells, and 3 outputs where they are projected."""
    chance, net = random(seed), ModelWriter()
    features, cells, outputs, batch = 5, 4, 3 if projection else 4, 2

    def weights(*shape: int) -> int:
        values = chance.normal(size=shape) * 0.6
        if int8 and len(shape) == 2:
            scale = float(np.abs(values).max()) / 127
            return net.tensor(shape, "int8", scale, 0, data=np.round(values / scale).astype(np.int8))
        return net.constant(values, "float32")

    shape = (steps, batch, features) if time_major else (batch, steps, features)
    x = net.tensor(shape, "float32", name="x")
    entering = [-1 if coupled and gate == 0 else weights(cells, features) for gate in range(4)]
    recurrent = [-1 if coupled and gate == 0 else weights(cells, outputs) for gate in range(4)]
    peeping = [weights(cells) if peepholes and not (coupled and gate == 0) else -1 for gate in range(3)]
    biases = [-1 if coupled and gate == 0 else weights(cells) for gate in range(4)]
    projected = [weights(outputs, cells), weights(outputs)] if projection else [-1, -1]
    states = [net.tensor((batch, size), "float32", variable=True) for size in (outputs, cells)]
    y = net.tensor((*shape[:2], outputs), "float32")
    operands = [x, *entering, *recurrent, *peeping, *biases, *projected, *states, -1, -1, -1, -1]
    net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options(
        "UnidirectionalSequenceLSTMOptions", fusedActivationFunction=TANH, cellClip=clip, projClip=clip / 2,
        timeMajor=time_major, asymmetricQuantizeInputs=False, diagonalRecurrentTensors=False,
    ))  # fmt: skip
    return net.finish([x], [y]), chance.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
def test_lstm(time_major: bool, coupled: bool, peepholes: bool) -> None:
    for seed, steps in enumerate((1, 3, 9)):
        model, x = lstm(seed, steps=steps, time_major=time_major, coupled=coupled, peepholes=peepholes)
        check(model, x)


def test_lstm_with_a_projection_and_clipping() -> None:
    for clip in (0.0, 0.4):
        model, x = lstm(3, projection=True, clip=clip)
        check(model, x)


def test_lstm_with_weights_in_8_bits() -> None:
    """The interpreter rounds the activations to 8 bits besides."""
    model, x = lstm(4, int8=True)
    (found,), (wanted,) = meaning(model, x), interpreted(model, [x])
    np.testing.assert_allclose(found, wanted, atol=0.03)


@pytest.mark.parametrize("time_major", [False, True])
def test_a_layer_without_gates(time_major: bool) -> None:
    chance, net = random(5), ModelWriter()
    shape = (7, 2, 5) if time_major else (2, 7, 5)
    x = net.tensor(shape, "float32", name="x")
    parts = [net.constant(chance.normal(size=size) * 0.5, "float32") for size in ((4, 5), (4, 4), (4,))]
    y = net.tensor((*shape[:2], 4), "float32")
    state = net.tensor((2, 4), "float32", variable=True)
    net.op("UNIDIRECTIONAL_SEQUENCE_RNN", [x, *parts, state], [y], options(
        "SequenceRNNOptions", timeMajor=time_major, fusedActivationFunction=RELU, asymmetricQuantizeInputs=False,
    ))  # fmt: skip
    check(net.finish([x], [y]), chance.normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("gates", [0, 3, 4])
def test_a_layer_that_runs_in_both_directions(merged: bool, time_major: bool, gates: int) -> None:
    """Without gates, with the forget gate for the input gate as well, with four."""
    chance, net = random(gates + 10), ModelWriter()
    # LiteRT's interpreter gives other numbers in every run for several sequences of merged layers with gates, whose
    # first axis is not the time.
    sequences = 1 if gates and merged and not time_major else 2
    shape = (7, sequences, 5) if time_major else (sequences, 7, 5)
    x = net.tensor(shape, "float32", name="x")

    def weights(*size: int) -> int:
        return net.constant(chance.normal(size=size) * 0.5, "float32")

    def direction(cells: int, outputs: int) -> list[int]:
        if not gates:
            return [weights(cells, 5), weights(cells, cells), weights(cells)]
        none = [-1] * (4 - gates)
        kinds = [(cells, 5)], [(cells, outputs)]
        given = [part for (size,) in kinds for part in (*none, *(weights(*size) for _ in range(gates)))]
        peeping = [*none, *(weights(cells) for _ in range(gates - 1))]
        biases = [*none, *(weights(cells) for _ in range(gates))]
        return [*given, *peeping, *biases, weights(outputs, cells), weights(outputs)]

    def states(*sizes: int) -> list[int]:
        return [net.tensor((sequences, size), "float32", variable=True) for size in sizes]

    widths = (4, 6) if not gates else (3, 3)  # layers with gates are alike
    ahead, back = direction(4, widths[0]), direction(4 if gates else 6, widths[1])
    if gates:
        operands = [x, *ahead, *back, *states(3, 4, 3, 4), *[-1] * 9]
    else:
        operands = [x, *ahead, *states(4), *back, *states(6), -1, -1, -1]
    name = "BidirectionalSequenceLSTM" if gates else "BidirectionalSequenceRNN"
    made = options(f"{name}Options", timeMajor=time_major, fusedActivationFunction=TANH, mergeOutputs=merged)
    if gates:
        made.cellClip, made.projClip = 0.6, 0.5
    results = [net.tensor((*shape[:2], size), "float32") for size in ([sum(widths)] if merged else widths)]
    net.op("BIDIRECTIONAL_SEQUENCE_LSTM" if gates else "BIDIRECTIONAL_SEQUENCE_RNN", operands, results, made)
    check(net.finish([x], results), chance.normal(size=shape).astype(np.float32))


def test_a_second_input_is_refused_by_name() -> None:
    net = ModelWriter()
    x = net.tensor((1, 2, 5), "float32", name="x")
    w, r = net.constant(np.ones((4, 5)), "float32"), net.constant(np.ones((4, 4)), "float32")
    state = net.tensor((1, 4), "float32", variable=True)
    y = net.tensor((1, 2, 8), "float32")
    made = options("BidirectionalSequenceRNNOptions", fusedActivationFunction=TANH, mergeOutputs=True)
    net.op("BIDIRECTIONAL_SEQUENCE_RNN", [x, w, r, -1, state, w, r, -1, state, x, w, w], [y], made)
    with pytest.raises(ModelError, match=r"a second input \(operands 9 to 11\) is not read"):
        LitertSource(net.finish([x], [y]), "model").module()


def test_a_layer_runs_on_targets() -> None:
    model, x = lstm(6, steps=8)
    (found,) = weft.load(weft.compile(model, target="cpu")).run({"x": x}).values()
    np.testing.assert_allclose(found, interpreted(model, [x])[0], rtol=1e-4, atol=1e-5)


def test_a_layer_in_integers_is_refused_by_name() -> None:
    net = ModelWriter()
    x = net.tensor((1, 2, 5), "int8", 0.1, 0, name="x")
    w = net.constant(np.ones((4, 5)), "float32")
    y = net.tensor((1, 2, 4), "int8", 0.1, 0)
    made = options("SequenceRNNOptions", timeMajor=False, fusedActivationFunction=RELU, asymmetricQuantizeInputs=False)
    net.op("UNIDIRECTIONAL_SEQUENCE_RNN", [x, w, w, -1, net.tensor((1, 4), "int8", variable=True)], [y], made)
    with pytest.raises(ModelError, match="it is read in floats alone, not in int8"):
        LitertSource(net.finish([x], [y]), "model").module()


# Control flow


def scalar(net: ModelWriter, value: int, dtype: str = "int32") -> int:
    return net.tensor((), dtype, data=np.array(value, dtype))


def plus(net: ModelWriter, a: int, b: int, shape: tuple[int, ...], dtype: str) -> int:
    result = net.tensor(shape, dtype)
    net.op("ADD", [a, b], [result], options("AddOptions", fusedActivationFunction=0))
    return result


def loop(limit: int, step: int = 1) -> bytes:
    """x + 0 + 1 + ..., as many terms as fit below a limit, each cast from the counter; and how many were added."""
    net = ModelWriter()
    condition = net.body()
    at, total = condition.tensor((), "int32"), condition.tensor((2, 3), "float32")
    goes_on = condition.tensor((), "bool")
    condition.op("LESS", [at, scalar(condition, limit)], [goes_on])
    first = condition.number([at, total], [goes_on])
    body = net.body()
    at, total = body.tensor((), "int32"), body.tensor((2, 3), "float32")
    number = body.tensor((), "float32")
    body.op("CAST", [at], [number])
    after = plus(body, total, number, (2, 3), "float32")
    second = body.number([at, total], [plus(body, at, scalar(body, step), (), "int32"), after])
    x = net.tensor((2, 3), "float32", name="x")
    results = [net.tensor((), "int32"), net.tensor((2, 3), "float32")]
    made = options("WhileOptions", condSubgraphIndex=first, bodySubgraphIndex=second)
    net.op("WHILE", [scalar(net, 0), x], results, made)
    return net.finish([x], results)


@pytest.mark.parametrize("limit", [0, 1, 5, 40])
def test_a_loop_whose_course_is_known(limit: int) -> None:
    check(loop(limit), random(limit).normal(size=(2, 3)).astype(np.float32))


def test_a_loop_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.frontends.litert.control.MOST_STEPS", 30)
    with pytest.raises(ModelError, match="it goes on after 30 steps"):
        LitertSource(loop(5, step=0), "model").module()


def test_a_loop_that_depends_on_a_run_is_refused() -> None:
    net = ModelWriter()
    condition = net.body()
    x, goes_on = condition.tensor((), "float32"), condition.tensor((), "bool")
    condition.op("LESS", [x, condition.constant(3.0, "float32")], [goes_on])
    first = condition.number([x], [goes_on])
    body = net.body()
    x = body.tensor((), "float32")
    second = body.number([x], [plus(body, x, x, (), "float32")])
    x, y = net.tensor((), "float32", name="x"), net.tensor((), "float32")
    net.op("WHILE", [x], [y], options("WhileOptions", condSubgraphIndex=first, bodySubgraphIndex=second))
    with pytest.raises(ModelError, match=r"'WHILE:0': WHILE: whether it goes on must be a constant"):
        LitertSource(net.finish([x], [y]), "model").module()
    net = ModelWriter()
    x, y = net.tensor((), "float32", name="x"), net.tensor((), "float32")
    net.op("WHILE", [x], [y], options("WhileOptions", condSubgraphIndex=3, bodySubgraphIndex=0))
    with pytest.raises(ModelError, match="it runs graph 3 of 1"):
        LitertSource(net.finish([x], [y]), "model").module()


def branches(constant: bool | None) -> bytes:
    """x + 1 or 2 x."""
    net = ModelWriter()
    numbers = []
    for double in (False, True):
        body = net.body()
        x = body.tensor((2, 3), "float32")
        other = x if double else body.constant(1.0, "float32")
        numbers.append(body.number([x], [plus(body, x, other, (2, 3), "float32")]))
    x, y = net.tensor((2, 3), "float32", name="x"), net.tensor((2, 3), "float32")
    given = net.tensor((), "bool", name="c", data=None if constant is None else np.array(constant))
    net.op("IF", [given, x], [y], options("IfOptions", thenSubgraphIndex=numbers[0], elseSubgraphIndex=numbers[1]))
    return net.finish([x] if constant is not None else [given, x], [y])


@pytest.mark.parametrize("value", [False, True])
def test_branches(value: bool) -> None:
    x = random(7).normal(size=(2, 3)).astype(np.float32)
    check(branches(value), x)
    check(branches(None), np.array(value), x)
