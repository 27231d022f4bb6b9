"""TFLite_Detection_PostProcess, beside LiteRT's interpreter, and the maps in which its options stand."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from flatbuffers import flexbuffers
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.litert.flexbuffer import numbers_of_map
from weft.compiler.frontends.litert.source import LitertSource
from weft.compiler.graph.evaluate import evaluate_function

from benchmarks.zoo.litert_models import ModelWriter, interpreted

Array = npt.NDArray[Any]

OPTIONS: dict[str, Any] = {
    "max_detections": 5, "max_classes_per_detection": 1, "detections_per_class": 3, "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.4, "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    "use_regular_nms": False,
}  # fmt: skip


def detector(count: int, columns: int, options: dict[str, Any], dtype: str = "float32") -> tuple[bytes, list[Array]]:
    generator = np.random.default_rng(count)
    net = ModelWriter()
    quantised = {"scale": 1 / 256, "zero": 3} if dtype == "uint8" else {}
    codes = net.tensor([1, count, 4], dtype, name="codes", **({"scale": 1 / 32, "zero": 120} if quantised else {}))
    scores = net.tensor([1, count, columns], dtype, name="scores", **quantised)
    around = np.concatenate([generator.random((count, 2)), 0.1 + 0.3 * generator.random((count, 2))], axis=1)
    rows = options["max_detections"] * options["max_classes_per_detection"]
    results = [net.tensor(shape, "float32") for shape in ([1, rows, 4], [1, rows], [1, rows], [1])]
    anchors = net.tensor(around.shape, dtype, data=(around * 200).astype(dtype) if quantised else around.astype(dtype),
                         **({"scale": 1 / 200, "zero": 0} if quantised else {}))  # fmt: skip
    net.op("TFLite_Detection_PostProcess", [codes, scores, anchors], results, options)
    if quantised:
        arrays = [generator.integers(0, 256, (1, count, size)).astype(np.uint8) for size in (4, columns)]
    else:
        arrays = [generator.normal(size=(1, count, 4)).astype(np.float32),
                  generator.random((1, count, columns)).astype(np.float32)]  # fmt: skip
    return net.finish([codes, scores], results), arrays


def check(found: list[Array], wanted: list[Array], options: dict[str, Any]) -> int:
    """Rows that hold something are compared: the interpreter leaves the others unset, here they are 0."""
    count = int(wanted[3][0])
    each = 1 if options["use_regular_nms"] else options["max_classes_per_detection"]
    held = min(each, options["num_classes"])
    places = [row * each + column for row in range(count) for column in range(held)]
    rest = sorted(set(range(wanted[1].shape[1])) - set(places))
    assert int(found[3][0]) == count
    for one, other in zip(found[:3], wanted[:3], strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one[:, places], other[:, places], rtol=1e-5, atol=1e-6)
        assert not one[:, rest].any()
    return count


def meaning(model: bytes, arrays: list[Array]) -> list[Array]:
    results = evaluate_function(LitertSource(model, "detector").module().main, arrays)
    assert isinstance(results, tuple)
    return list(results)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize(("classes", "background"), [(3, 1), (3, 0), (1, 1)])
@pytest.mark.parametrize("count", [12, 60])
def test_detections_are_the_interpreters(regular: bool, classes: int, background: int, count: int) -> None:
    counts = set()
    for few, least, overlap, most in itertools.product((1, 2), (0.1, 0.6, 0.97), (0.2, 0.6), (5, 30)):
        options = {**OPTIONS, "max_classes_per_detection": few, "use_regular_nms": regular, "num_classes": classes,
                   "nms_score_threshold": least, "nms_iou_threshold": overlap, "max_detections": most}  # fmt: skip
        model, arrays = detector(count, classes + background, options)
        counts.add(check(meaning(model, arrays), interpreted(model, arrays), options))
    assert len(counts) > 1


@pytest.mark.parametrize("regular", [False, True])
def test_a_score_at_the_threshold_is_kept(regular: bool) -> None:
    options = {**OPTIONS, "nms_score_threshold": 0.5, "use_regular_nms": regular, "nms_iou_threshold": 1.0}
    model, (codes, scores) = detector(4, 4, options)
    level = np.array([0.5, 0.25, 0.5, 0.125], np.float32)
    arrays = [codes, np.zeros_like(scores) + np.eye(4, dtype=np.float32)[1] * level[:, None]]
    assert check(meaning(model, arrays), interpreted(model, arrays), options) == 2


def test_operands_may_be_quantised_and_all_targets_run_it() -> None:
    model, arrays = detector(20, 4, OPTIONS, "uint8")
    wanted = interpreted(model, arrays)
    assert check(meaning(model, arrays), wanted, OPTIONS) > 1
    loaded = weft.load(weft.compile(model, target="cpu"))
    inputs = dict(zip(("codes", "scores"), arrays, strict=True))
    check(list(loaded.run(inputs).values()), wanted, OPTIONS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_classes": 9}, "9 classes do not fit scores of 4"),
        ({"y_scale": 0.0}, "must be above 0"),
        ({"max_detections": None}, "option 'max_detections' must be a whole number of 1 or more, not None"),
        ({"nms_iou_threshold": float("nan")}, "option 'nms_iou_threshold' must be a number, not nan"),
    ],
)
def test_options_that_mean_nothing_are_named(changed: dict[str, Any], message: str) -> None:
    net = ModelWriter()
    codes, scores = net.tensor([1, 6, 4], "float32"), net.tensor([1, 6, 4], "float32")
    results = [net.tensor(shape, "float32") for shape in ([1, 5, 4], [1, 5], [1, 5], [1])]
    options = {name: value for name, value in {**OPTIONS, **changed}.items() if value is not None}
    anchors = net.constant(np.ones((6, 4)), "float32")
    net.op("TFLite_Detection_PostProcess", [codes, scores, anchors], results, options)
    with pytest.raises(ModelError, match=message):
        LitertSource(net.finish([codes, scores], results), "detector").module()


# Maps of options


@pytest.mark.parametrize("seed", range(40))
def test_a_map_is_read_as_it_was_written(seed: int) -> None:
    chance = random.Random(seed)
    made: dict[str, Any] = {}
    for number in range(chance.randrange(1, 30)):
        made[f"key{number}" * chance.randrange(1, 20)] = chance.choice([
            chance.randrange(-(1 << chance.randrange(1, 63)), 1 << chance.randrange(1, 63)), chance.random() < 0.5,
            chance.random() * 10.0 ** chance.randrange(-30, 30), "text", [1, 2],
        ])  # fmt: skip
    found = numbers_of_map(memoryview(bytes(flexbuffers.Dumps(made))))
    assert found == {name: value for name, value in made.items() if not isinstance(value, (str, list))}


def test_damaged_maps_are_refused_or_read() -> None:
    whole = bytes(flexbuffers.Dumps(OPTIONS))
    assert numbers_of_map(memoryview(whole)) == OPTIONS
    chance = random.Random(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.2 else whole)
        for _ in range(chance.randrange(1, 4) if damaged else 0):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            numbers_of_map(memoryview(bytes(damaged)))
        except ValueError:
            refused += 1
    assert refused > 500
