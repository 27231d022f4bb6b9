"""The story in short: it learns, its 8 and 4 bits come close to its floats, and the core tells it to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, evaluate
from weft.runtime.sampling import Sampling

from examples.story.network import Size, cached_module, parameters_count, training_module
from examples.story.story import Amounts, Station, stations, told
from examples.story.text import parts, reference, windows
from examples.story.train import Plan, trained

SIZE = Size(width=64, heads=2, layers=1, hidden=64, positions=24)
PLAN = Plan(steps=60, length=24, batch=8, rate=1e-2)


class Silent:
    def update(self, text: str) -> None:
        """Nobody looks."""


@pytest.fixture(scope="module")
def parameters() -> dict[str, Array]:
    return trained(SIZE, PLAN, parts()[0], None, Silent())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(parameters: dict[str, Array]) -> list[Station]:
    return list(stations(SIZE, parameters, Amounts(24, 3, 3), Silent()))  # type: ignore[arg-type]


def test_the_text_is_one_that_python_has_and_a_part_of_it_is_held_out() -> None:
    read, kept = parts()
    np.testing.assert_array_equal(np.concatenate([read, kept]), reference())
    assert len(kept) > 10_000
    assert b"expression" in reference().tobytes()
    assert windows(kept, 3, 10).shape == (3, 10)


def test_the_model_is_of_a_million_parameters() -> None:
    start = weft.train.initialised(training_module(Size(), {}, 1, 1)[1], seed=0)
    assert 850_000 < parameters_count(start) < 1_000_000


def test_no_byte_is_seen_before_it_comes(parameters: dict[str, Array]) -> None:
    module = training_module(SIZE, parameters, 1, 6)[0]
    rows = np.arange(6)[None] + 97
    changed = rows.copy()
    changed[0, 4] += 5
    one, other = (evaluate(module, {"input_ids": each})["logits"] for each in (rows, changed))
    np.testing.assert_array_equal(one[:4], other[:4])
    assert (one[4:] != other[4:]).any(axis=1).all()


def test_heads_that_share_keys_compute_as_with_keys_of_their_own() -> None:
    size = replace(SIZE, width=32, heads=4, key_heads=2, tokens=16)
    start = weft.train.initialised(training_module(size, {}, 1, 1)[1], seed=1)
    own = dict(start)
    for name in ("layer0.key", "layer0.value"):
        heads = start[name].reshape(2, size.depth, size.width)
        own[name] = np.repeat(heads, 2, axis=0).reshape(size.width, size.width)
    inputs = {"input_ids": np.array([[3, 1, 4, 1, 5]])}
    wanted = evaluate(training_module(replace(size, key_heads=None), own, 1, 5)[0], inputs)["logits"]
    np.testing.assert_allclose(evaluate(training_module(size, start, 1, 5)[0], inputs)["logits"], wanted, atol=1e-5)
    session = weft.load(weft.compile(cached_module(size, start, 2), target="cpu")).session()
    np.testing.assert_allclose(session.prefill((3, 1, 4, 1, 5)), wanted[-1], atol=1e-5)


def test_what_is_not_written_yet_has_no_influence(parameters: dict[str, Array]) -> None:
    module = cached_module(SIZE, parameters)
    past = {param.name: np.zeros(param.shape, np.float32) for param in module.main.params if "past" in param.name}
    inputs = {"input_ids": np.array([[97]]), "position_ids": np.array([[2]])}
    one = evaluate(module, inputs | past)["logits"]
    for value in past.values():
        value[:, :, 2:] = 7
    np.testing.assert_array_equal(evaluate(module, inputs | past)["logits"], one)
    for value in past.values():
        value[:, :, 1] = 7
    assert (evaluate(module, inputs | past)["logits"] != one).any()


def test_it_learns_and_few_bits_come_close(found: list[Station]) -> None:
    floats, eight, four = (station.bits for station in found)
    assert floats < 5.5  # 8 at the start
    assert abs(eight - floats) < 0.1
    assert abs(four - floats) < 0.3
    assert {param.dtype for param in found[2].module.main.params} == {"int64", "int8"}


def test_the_core_tells_it_to_the_bit(found: list[Station]) -> None:
    story = told(found[2].module, "pynq-w4", "fsim", "The ", 6, Sampling(0.8))
    assert story.same == story.compared == 6
    assert story.apart == 0
    assert len(set(story.cycles)) == 1
    assert story.programs > 3


def test_the_models_are_files_for_weft_generate(found: list[Station], tmp_path: Path) -> None:
    weft.export_onnx(found[2].module, tmp_path / "story.onnx")
    session = weft.load(weft.compile(tmp_path / "story.onnx", target="cpu")).session()
    again = weft.load(weft.compile(found[2].module, target="cpu")).session()
    for token in b"The value":
        np.testing.assert_array_equal(session.step(token), again.step(token))
