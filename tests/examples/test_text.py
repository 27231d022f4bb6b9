"""The transformer on text: its text, its mask, a resumed training, and that it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import evaluate

from examples.text.characters import CHARACTERS, Text, read_text
from examples.text.transformer import Size, batch_of, main, model, training_of

SMALL = Size(characters=12, width=8, heads=2, layers=1, context=6, batch=2)


@pytest.fixture(scope="module")
def text() -> Text:
    return read_text()


@pytest.mark.long
def test_the_text_is_long_and_its_entropy_is_that_of_its_characters(text: Text) -> None:
    assert len(text.numbers) > 100_000
    assert len(text.alphabet) == CHARACTERS
    assert "return" in text.written(text.numbers)
    assert Text(np.array([0, 1, 2, 3] * 5), "abcd").unigram_entropy() == pytest.approx(np.log(4))
    assert 2.5 < text.unigram_entropy() < 3.5


def test_no_place_sees_what_is_behind_it() -> None:
    start = weft.train.initialised(model(SMALL, {})[1], seed=3)
    module = model(SMALL, start)[0]
    rows = np.random.default_rng(0).integers(0, 12, (2, 6))
    changed = rows.copy()
    changed[:, 4] = (changed[:, 4] + 1) % 12
    one, other = (evaluate(module, {"characters_in": each})["scores"].reshape(2, 6, 12) for each in (rows, changed))
    np.testing.assert_array_equal(one[:, :4], other[:, :4])
    assert (one[:, 4:] != other[:, 4:]).any(axis=2).all()


def test_a_resumed_training_goes_on_to_the_bit(tmp_path: Path) -> None:
    text = Text(np.random.default_rng(1).integers(0, 12, 500), "abcdefghijkl")
    whole = training_of(SMALL)
    for _ in range(2):
        whole.step(batch_of(text, SMALL, whole.steps), 1e-2)
    whole.save(tmp_path / "state.npz")
    again = training_of(SMALL)
    again.restore(tmp_path / "state.npz")
    for training in (whole, again):
        for _ in range(2):
            training.step(batch_of(text, SMALL, training.steps), 1e-2)
    assert again.steps == 4
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(value, again.parameters[name])


@pytest.mark.long
def test_it_learns_more_than_how_frequent_characters_are(
    tmp_path: Path, text: Text, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two parts, the second from a checkpoint."""
    state = str(tmp_path / "state.npz")
    losses = []
    for steps in ("150", "250"):
        main(["--steps", steps, "--checkpoint", state])
        shown = capsys.readouterr().out
        assert f"steps                    {steps}" in shown
        losses.append(float(shown.split("last 50 steps")[1].split()[0]))
    assert losses[1] < losses[0]
    assert losses[1] < text.unigram_entropy() - 0.4
