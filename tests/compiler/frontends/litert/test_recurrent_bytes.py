"""Recurrent layers of LiteRT files in integers: the interpreter's, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.litert.source import LitertSource
from weft.compiler.graph.evaluate import evaluate_function

from benchmarks.frontends.litert_suite import survived
from benchmarks.zoo.litert_models import ModelWriter, interpreted, options

Array = npt.NDArray[Any]
TANH = 4


def lstm(
    seed: int, *, steps: int = 6, time_major: bool = False, coupled: bool = False, peepholes: bool = False,
    projection: bool = False, clip: float = 0.0, cell: int = -11, wide: float = 1.0, biased: bool = True,
    intermediates: bool = True, ties: bool = False,
) -> tuple[bytes, Array]:  # fmt: skip
    """One layer as the converter writes it: 5 features, 4 cells, and 3 outputs where they are projected. ``wide``: how
    far the weights reach; ``ties``: scales are powers of two."""
    chance, net = np.random.default_rng(seed), ModelWriter()
    features, cells, outputs, batch = 5, 4, 3 if projection else 4, 2

    def near(real: float) -> float:
        found = real * float(chance.uniform(0.7, 1.4))
        return 2.0 ** round(np.log2(found)) if ties else found

    def weights(*shape: int, dtype: str = "int8") -> int:
        most = np.iinfo(dtype).max
        data = chance.integers(-most, most + 1, shape).astype(dtype)
        return net.tensor(shape, dtype, near(wide / most), 0, data=data)

    def bias(size: int, scale: float, reach: float) -> int:
        return net.tensor(
            (size,), "int32", scale, 0, data=np.round(chance.normal(size=size) * reach / scale).astype(np.int32)
        )

    def scale(tensor: int) -> float:
        return float(net._tensors[tensor].quantization.scale[0])

    shape = (steps, batch, features) if time_major else (batch, steps, features)
    x = net.tensor(shape, "int8", near(0.015), int(chance.integers(-30, 30)), name="x")
    inner = {"scale": near(0.007), "zero": int(chance.integers(-20, 20))}
    state = {"scale": near(0.009), "zero": int(chance.integers(-20, 20))} if projection else inner
    used = [gate for gate in range(4) if not (coupled and gate == 0)]
    entering = [weights(cells, features) if gate in used else -1 for gate in range(4)]
    recurrent = [weights(cells, outputs) if gate in used else -1 for gate in range(4)]
    peeping = [weights(cells, dtype="int16") if peepholes and gate in used else -1 for gate in range(3)]
    biases = [
        bias(cells, scale(x) * scale(entering[gate]), 0.5) if gate in used and biased else -1 for gate in range(4)
    ]
    projected = [weights(outputs, cells), -1] if projection else [-1, -1]
    if projection and biased:
        projected[1] = bias(outputs, scale(projected[0]) * inner["scale"], 0.2)
    hidden = net.tensor((batch, outputs), "int8", **state, variable=True)
    kept = net.tensor((batch, cells), "int16", 2.0**cell, 0, variable=True)
    y = net.tensor((*shape[:2], outputs), "int8", **state)
    between = [net.tensor((), "int16", 1.0) for _ in range(4)] + [net.tensor((), "int8", **inner)]
    operands = [x, *entering, *recurrent, *peeping, *biases, *projected, hidden, kept, -1, -1, -1, -1]
    net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options(
        "UnidirectionalSequenceLSTMOptions", fusedActivationFunction=TANH, cellClip=clip, projClip=clip / 4,
        timeMajor=time_major, asymmetricQuantizeInputs=False, diagonalRecurrentTensors=False,
    ), intermediates=between if intermediates else ())  # fmt: skip
    return net.finish([x], [y]), chance.integers(-128, 128, shape).astype(np.int8)


def check(model: bytes, x: Array) -> None:
    found = evaluate_function(LitertSource(model, "model").module().main, [x])
    np.testing.assert_array_equal(found, interpreted(model, [x])[0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_lstm_of_bytes(seed: int, coupled: bool, ties: bool) -> None:
    check(*lstm(seed, steps=(1, 3, 12, 40)[seed], time_major=seed % 2 == 1, coupled=coupled, ties=ties))


@pytest.mark.parametrize("wide", [0.1, 1, 4, 20])
@pytest.mark.parametrize("cell", [-15, -13, -11, -9])
def test_gates_that_are_shut_and_cells_at_their_ends(wide: float, cell: int) -> None:
    check(*lstm(int(wide) - cell, steps=20, wide=wide, cell=cell))


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_peepholes_projections_and_clipping(coupled: bool, clip: float) -> None:
    for seed, (peepholes, projection) in enumerate([(False, False), (True, False), (False, True)]):
        check(*lstm(seed, coupled=coupled, peepholes=peepholes, projection=projection, clip=clip, steps=15))


@pytest.mark.parametrize("target", ["cpu", "accel"])
def test_a_compiled_layer_is_the_interpreters(target: str) -> None:
    model, x = lstm(5, steps=8, peepholes=True)
    (found,) = weft.load(weft.compile(model, target=target)).run({"x": x}).values()
    np.testing.assert_array_equal(found, interpreted(model, [x])[0])


def test_what_has_no_meaning_is_refused_by_name() -> None:
    for model, text in (
        (lstm(1, cell=-8)[0], r"the scale of its cells is 2\*\*-8, but must be a power of 2"),
        (lstm(1, intermediates=False)[0], "intermediate tensor 4 has no scale"),
    ):
        with pytest.raises(ModelError, match=text):
            LitertSource(model, "model").module()


def test_damaged_layers_are_refused_by_one_named_error_each() -> None:
    models = [lstm(1, steps=2)[0], lstm(2, steps=5, peepholes=True, projection=True, clip=0.5)[0]]
    ends, wrong = survived(models, 200, seed=4)
    assert wrong == []
    assert min(ends["refused"], ends["read"]) > 20
