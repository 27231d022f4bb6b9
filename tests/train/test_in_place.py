"""State that is replaced where it lies: the same bits from half the memory, and what is lost when a step goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.compile import replaceable
from weft.compiler.graph import Array, Constant, Expr, Module, TensorType, Var, call
from weft.compiler.model import CompiledModel
from weft.compiler.operators import contract, nn
from weft.errors import WeftError
from weft.train import Step, Training, TrainingError, adam, cross_entropy, lamb, replaced_in_place, sgd

from .classifier import InNumpy, batch, classifier, module_of


def compiled(module: Module, threads: int = 1) -> CompiledModel:
    found = weft.compile(module, target="cpu", threads=threads)
    assert isinstance(found, CompiledModel)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda module, names: sgd(module, names, momentum=0.9, weight_decay=1e-3),
        lambda module, names: adam(module, names, clip_norm=0.5),
        lambda module, names: lamb(module, names, weight_decay=0.1),
    ],
    ids=["sgd", "adam, clipped", "lamb"],
)
def test_a_training_in_place_has_the_same_bits(make: Callable[[Module, list[str]], Step], threads: int) -> None:
    module, start = classifier("float32")
    step = make(cross_entropy(module), ["w", "b"])
    model = compiled(step.module, threads)
    names = replaced_in_place(step, model)
    assert {"w", "b"} <= names
    usual, in_place = Training(step, start, weft.load(model)), Training(step, start, weft.load(model), in_place=names)
    for seed in range(8):
        losses = [each.step(batch("float32", seed), 0.1)["loss"] for each in (usual, in_place)]
        assert losses[0].tobytes() == losses[1].tobytes()
    for name, value in usual._state.items():
        assert in_place._state[name].tobytes() == value.tobytes()
    assert all(in_place._state[name] is in_place._next[name] for name in names)


STATE = Var("s", TensorType((6, 6), "float32"))


TABLE = Var("t", TensorType((6, 6), "float32"))
INDICES = Var("i", TensorType((6,), "int64"))


def doubled(x: Expr) -> Expr:
    return nn.multiply(x, Constant(np.float32(2)))


@pytest.mark.parametrize(
    ("following", "others", "replaced"),
    [
        (doubled(STATE), (), True),
        (contract.transpose(STATE, perm=(1, 0)), (), False),
        (nn.add(STATE, nn.reduce_sum(STATE, axes=(0,), keepdims=True)), (), None),
        (nn.matmul(STATE, STATE), (), None),
        (doubled(STATE), (nn.matmul(STATE, STATE),), False),
        (doubled(call("gather", STATE, INDICES, axis=0)), (), None),
        (call("nn.inverse", STATE), (), None),
        (doubled(STATE), (call("gather", TABLE, INDICES, axis=0),), False),
        (doubled(STATE), (call("nn.inverse", TABLE),), False),
        (nn.add(doubled(STATE), call("gather", TABLE, INDICES, axis=0)),
         (call("gather", TABLE, call("reshape", INDICES, shape=(2, 3)), axis=0),), True),
        (nn.add(doubled(STATE), call("gather", Constant(np.ones((9, 6), np.float32)), INDICES, axis=0)),
         (call("gather", TABLE, INDICES, axis=0),), False),
    ],
    ids=["elements", "transposed", "sums of columns", "a product", "read later", "rows at indices", "by NumPy",
         "indices checked later", "NumPy later", "indices checked before in another shape",
         "indices checked before for more rows"],
)  # fmt: skip
def test_state_is_replaced_only_where_nothing_reads_it_later(
    following: Expr, others: tuple[Expr, ...], replaced: bool | None
) -> None:
    """And then the results are those of two arrays. None: either is right."""
    params = (STATE, INDICES, TABLE)
    module = module_of(following, *others, params=params, names=("next_s", *(f"y{i}" for i, _ in enumerate(others))))
    model = compiled(module)
    found = replaceable(model, {"s": "next_s"})
    assert replaced is None or bool(found) == replaced
    given: dict[str, Array] = {"s": np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32),
                               "i": np.array([5, 0, 1, 2, 3, 3]), "t": np.eye(6, dtype=np.float32)}  # fmt: skip
    wanted = weft.load(model).run(given)
    if found:
        shared = given["s"].copy()
        results = weft.load(model).run({**given, "s": shared}, {"next_s": shared})
        for name, value in wanted.items():
            np.testing.assert_array_equal(results[name], value)


def test_a_state_of_another_type_is_not_replaced() -> None:
    wide = nn.cast(doubled(STATE), to="float64")
    assert not replaceable(compiled(module_of(wide, params=(STATE,), names=("next_s",))), {"s": "next_s"})


def test_a_bad_batch_leaves_the_state_and_a_bad_step_loses_it(tmp_path: Path) -> None:
    module, start = classifier("float32")
    step = sgd(cross_entropy(module), ["w", "b"], momentum=0.9)
    model = compiled(step.module)
    training = Training(step, start, weft.load(model), in_place=replaced_in_place(step, model))
    good = batch("float32")
    training.step(good, 0.1)
    training.save(tmp_path / "state.npz")
    before = {name: value.tobytes() for name, value in training._state.items()}
    for wrong in ({**good, "labels": good["labels"] + 4}, {**good, "x": good["x"][:5]}):
        with pytest.raises(WeftError):
            training.step(wrong, 0.1)
    assert {name: value.tobytes() for name, value in training._state.items()} == before
    following = training.step(good, 0.1)["loss"]
    with pytest.raises(TrainingError, match=r"at step 2, and the state was replaced in place; hint: restore a check"):
        training.step({**good, "x": good["x"] * np.float32(np.inf)}, 0.1)
    for lost in (lambda: training.step(good, 0.1), lambda: training.save(tmp_path / "x"), lambda: training.parameters):
        with pytest.raises(TrainingError, match=r"the state was lost in step 2; hint: restore a checkpoint"):
            lost()
    training.restore(tmp_path / "state.npz")
    assert {name: value.tobytes() for name, value in training._state.items()} == before
    assert training.step(good, 0.1)["loss"] == following


def test_only_state_has_a_place() -> None:
    module, start = classifier()
    step = sgd(cross_entropy(module), ["w", "b"])
    with pytest.raises(TrainingError, match="'x' is not kept from step to step"):
        Training(step, start, InNumpy(step.module), in_place=["x"])
