"""The road of the residual and the depthwise network: all stations, in a short form, and the images."""

from __future__ import annotations

import numpy as np
import pytest

from examples.stations.depthwise import SETTINGS
from examples.stations.networks import depthwise, inference_form, initial_parameters, residual, training_form
from examples.stations.shapes import CLASSES, SIZE, shapes
from examples.stations.stations import Settings, main


def test_images_follow_from_seed_and_number() -> None:
    some, more, others = shapes(20, 7), shapes(300, 7), shapes(20, 8)
    np.testing.assert_array_equal(some.images, more.images[:20])
    assert not np.array_equal(some.images, others.images)
    assert some.images.shape == (20, 3, SIZE, SIZE)
    assert set(more.labels) == set(range(CLASSES))
    assert np.isfinite(more.images).all()


@pytest.mark.parametrize("body", [residual, depthwise])
def test_networks_train_on_the_batch_and_are_used_with_what_was_measured(body) -> None:  # type: ignore[no-untyped-def]
    parameters = initial_parameters(body, 0, SETTINGS.spread)
    trained = training_form(body, parameters, 2)
    names = [name for name in trained.main.output_names if name != "logits"]
    statistics = {name: np.ones(result.shape, np.float32)
                  for name, result in zip(trained.main.output_names, trained.main.results, strict=True)}  # fmt: skip
    used = inference_form(body, parameters, statistics, 1)
    assert used.main.output_names == ("logits",)
    assert used.main.body.shape == (1, CLASSES)
    assert len(names) == 2 * sum(name.endswith(".gamma") for name in parameters)
    ratio = [value.max() / value.min() for name, value in parameters.items() if name.endswith(".gamma")]
    assert 8 < min(ratio) < max(ratio) <= 64


@pytest.mark.long
@pytest.mark.parametrize("body", [residual, depthwise])
def test_all_stations(body, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    """It ends with an error where the core's scores differ from the CPU's."""
    main(
        body, "", Settings(), ["--epochs", "1", "--more", "1", "--images", "20", "--epoch-images", "128", "--rtl", "1"]
    )
    shown = capsys.readouterr().out
    assert "the core's scores are those of the CPU, to the bit" in shown
    for station in ("floats", "8 bits, calibrated", "+ equalised", "+ offsets, AdaRound", "trained in 8 bits",
                    "on the core, fsim", "on the core, rtl"):  # fmt: skip
        assert station in shown


def test_numbers_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(residual, "", Settings(), ["--images", "3", "--rtl", "4"])
    assert "no more on the RTL than in the test" in capsys.readouterr().err
