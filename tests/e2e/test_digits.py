"""The digits network on every level of the stack: onnxruntime, graph in NumPy, functional simulator, RTL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import evaluate
from weft.compiler.model import CompiledModel

from examples.digits.data import split_digits
from examples.precise import precise_session

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return split_digits()[1].images


@pytest.mark.parametrize("config", ["tiny", "pynq", "wide"])
def test_fsim_gives_the_scores_of_onnxruntime(config: str, images: np.ndarray) -> None:
    module = weft.load(weft.compile(MODEL, config), "fsim")
    session = precise_session(MODEL)
    for image in images[:20, None]:
        np.testing.assert_array_equal(module.run(image)["logits"], session.run(None, {"image": image})[0])


@pytest.fixture(scope="module")
def pynq() -> CompiledModel:
    return weft.compile(MODEL, "pynq")


def test_rtl_equals_fsim_and_the_graph(pynq: CompiledModel, images: np.ndarray) -> None:
    rtl, fsim, graph = weft.load(pynq, "rtl"), weft.load(pynq, "fsim"), from_onnx(MODEL)
    for image in images[20:24, None]:
        scores = rtl.run(image)["logits"]
        np.testing.assert_array_equal(scores, fsim.run(image)["logits"])
        np.testing.assert_allclose(scores, evaluate(graph, {"image": image})["logits"], atol=0.16)  # one LSB


def test_the_whole_network_is_one_program(pynq: CompiledModel) -> None:
    kinds = [type(step).__name__ for step in pynq.steps]
    assert kinds.count("CoreStep") == 1
    assert all(layer.reason for layer in pynq.layers if layer.device != "core")


@pytest.mark.parametrize("vthreads", [1, 3])
def test_virtual_threads_do_not_change_integers(vthreads: int, pynq: CompiledModel, images: np.ndarray) -> None:
    other = weft.load(weft.compile(MODEL, "pynq", vthreads=vthreads), weft.FsimDevice(weft.PYNQ, check_races=True))
    expected = weft.load(pynq, "fsim")
    for image in images[30:33, None]:
        np.testing.assert_array_equal(other.run(image)["logits"], expected.run(image)["logits"])
