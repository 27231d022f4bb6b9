"""``weft quantise`` and ``weft evaluate``: figures against NumPy's, and files that do not fit."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import parser
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
float_net (float[1, 4] x) => (float[1, 3] y)
<float[4, 3] w = {0.5, -1.0, 2.0, 0.25, 1.0, -0.5, -2.0, 0.75, 0.1, 1.5, -0.3, 0.6}>
{ y = MatMul(x, w) }
"""
WEIGHTS = np.array([0.5, -1, 2, 0.25, 1, -0.5, -2, 0.75, 0.1, 1.5, -0.3, 0.6], np.float32).reshape(4, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(parser.parse_model(MODEL), "net.onnx")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez("x.npz", x=x)
    labels = (x @ WEIGHTS).argmax(1)
    labels[:10] = (labels[:10] + 1) % 3  # a quarter of them is wrong
    np.save("labels.npy", labels)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(app, [*words, "--json"], err) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_quantise_writes_a_model_and_says_what_it_costs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantise", "net.onnx", "--calibrate", "x.npz", "--labels", "labels.npy", "-o", "q.onnx"]
    found = printed(capsys, *words)
    assert found["examples"] == 40
    (figures,) = found["outputs"]  # type: ignore[misc]
    x = np.load("x.npz")["x"]
    module = weft.load(weft.compile("q.onnx", target="cpu"))
    integers = np.concatenate([module.run({"x": row[None]})["y"] for row in x])
    floats = x @ WEIGHTS
    noise = 10 * np.log10((floats**2).sum() / ((floats - integers) ** 2).sum())
    assert figures["noise_db"] == pytest.approx(noise, abs=0.01)
    assert 25 < noise < 60
    assert figures["agreement"] == (floats.argmax(1) == integers.argmax(1)).mean()
    assert figures["accuracy_floats"] == 0.75
    assert figures["accuracy"] == (integers.argmax(1) == np.load("labels.npy")).mean()
    assert run(app, words, err) == 0
    text = capsys.readouterr().out
    assert f"-{noise:.1f} dB" in text
    assert "wrote q.onnx" in text


def layers(folder: Path, *depths: int) -> None:
    """``wide.onnx``: products with weights of so many rows, each behind the one before, and examples ``wide.npz``."""
    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.2, pair).astype(np.float32) for pair in pairwise((*depths, 5))]
    nodes = [onnx.helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"])
             for number in range(len(weights))]  # fmt: skip
    kinds = [onnx.helper.make_tensor_value_info(name, 1, [1, size])
             for name, size in (("x0", depths[0]), (f"x{len(weights)}", 5))]  # fmt: skip
    constants = [onnx.numpy_helper.from_array(value, f"w{number}") for number, value in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "wide", kinds[:1], kinds[1:], constants)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "wide.onnx")
    np.savez(folder / "wide.npz", x0=random.normal(size=(8, depths[0])).astype(np.float32))


def test_weights_of_four_bits_and_why_others_have_eight(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers(folder, 128, 192, 72)
    words = ["quantise", "wide.onnx", "--calibrate", "wide.npz", "--weights", "4"]
    found = printed(capsys, *words)
    assert found["model"] == "wide-4bit.onnx"
    assert found["group"] == 64  # 128 fits the first weight alone
    first, second, third = found["weights"]  # type: ignore[misc]
    assert (first["bits"], second["bits"], third["bits"]) == (4, 4, 8)
    assert 15 < second["noise_db"] < 30
    assert third["reason"] == "its depth of 72 is no multiple of 64"
    longer = printed(capsys, *words, "--group", "128")["weights"]
    assert longer[1]["reason"] == "its depth of 192 is no multiple of 128; groups of 64 would do"  # type: ignore[index]
    assert run(app, words, err) == 0
    assert "weight_group 64" in capsys.readouterr().out
    compiled = weft.compile("wide-4bit.onnx", "pynq-w4")
    eight = weft.compile("wide-4bit.onnx", "pynq")
    sizes = [sum(each.data.size for each in model.core.constants) for model in (compiled, eight)]  # type: ignore[union-attr]
    assert sizes[0] < 0.65 * sizes[1]


def test_weights_of_four_bits_where_a_core_waits_for_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers(folder, 128, 1024, 64)
    words = ["quantise", "wide.onnx", "--calibrate", "wide.npz", "--weights", "4", "--core", "pynq-w4"]
    found = printed(capsys, *words)
    first, second, third = found["weights"]  # type: ignore[misc]
    assert (found["group"], first["bits"], second["bits"]) == (64, 4, 4)
    assert third["bits"] == 4 or "4 bits save" in third["reason"]
    assert found["cycles"] < 0.8 * found["cycles_8_bits"]  # type: ignore[operator]
    assert run(app, words, err) == 0
    assert "cycles on pynq-w4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--core", "pynq-w4"], "--core pynq-w4 is for --weights 4"),
        (["--weights", "4", "--core", "pynq-w4", "--group", "64"], "and says the group"),
        (["--weights", "4", "--core", "pynq"], "the core has no weights of 4 bits"),
        (["--weights", "3"], "--weights 3 is no choice"),
        (["--group", "64"], "--weights 8 --group 64 is no choice"),
        (["--weights", "4", "--group", "48"], "groups of 48 exist on no core"),
        (["--weights", "4"], "no weight can have 4 bits in groups of 128: of 'w' its depth of 4 is no multiple"),
    ],
)
def test_bits_that_weights_cannot_have(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert run(app, ["quantise", "net.onnx", "--calibrate", "x.npz", *words], err) == 1
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("words", [["--device", "fsim"], ["--target", "cpu"]])
def test_evaluate_counts_what_is_right(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "quantise", "net.onnx", "--calibrate", "x.npz", "-o", "q.onnx")
    found = printed(capsys, "evaluate", "q.onnx", "x.npz", "--labels", "labels.npy", *words)
    module = weft.load(weft.compile("q.onnx", target="cpu"))
    classes = np.array([module.run({"x": row[None]})["y"].argmax() for row in np.load("x.npz")["x"]])
    assert found["classes"] == classes.tolist()
    assert found["right"] == (classes == np.load("labels.npy")).sum()
    assert (found["cycles"] is not None) == ("fsim" in words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.npz", "--labels", "short.npy"], "there are 3 labels, but 40 examples; hint: labels are one"),
        (["x.npz", "--labels", "floats.npy"], "labels are whole numbers, not float64"),
        (["x.npz", "--labels", "from1.npy"], "of result 1 is none of the 3 classes; hint: classes count from 0"),
        (["x.npz", "--labels", "none-1.npy"], "label -1 of result 2 is none of the 3 classes"),
        (["x.npz", "--labels", "two.npz"], "two.npz has 2 arrays, but labels are one"),
        (["x.npz", "--result", "z"], "the model has no output 'z'; hint: its outputs: y"),
        (["short.npy"], "examples for the input float32[1, 4] are"),
    ],
)
def test_files_that_do_not_fit(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    np.save("short.npy", np.zeros(3, np.int64))
    np.save("floats.npy", np.zeros(40))
    np.save("from1.npy", np.array([0, 3] * 20))
    np.save("none-1.npy", np.array([0, 1, -1, 2] * 10))
    np.savez("two.npz", a=np.zeros(40, np.int64), b=np.zeros(40, np.int64))
    assert run(app, ["evaluate", "net.onnx", *words, "--target", "cpu"], err) == 1
    assert message in " ".join(capsys.readouterr().err.split())


OPEN = """
<ir_version: 8, opset_import: ["" : 17]>
open_net (float[N, 4] a, float[N, T, 4] b) => (float[N, 3] scores, int64[N, 1] class)
<float[4, 3] w = {0.5, -1.0, 2.0, 0.25, 1.0, -0.5, -2.0, 0.75, 0.1, 1.5, -0.3, 0.6}, int64[1] one = {1}>
{ sum = ReduceSum<keepdims = 0>(b, one) both = Add(a, sum) scores = MatMul(both, w) class = ArgMax<axis = 1>(scores) }
"""


@pytest.fixture
def two_inputs(folder: Path) -> np.ndarray:
    """``open.onnx`` and 12 examples of both inputs, ``two.npz``, with labels ``twelve.npy``; the classes it reads."""
    onnx.save(parser.parse_model(OPEN), "open.onnx")
    random = np.random.default_rng(1)
    a, b = random.normal(size=(12, 4)), random.normal(size=(12, 5, 4))
    np.savez("two.npz", a=a.astype(np.float32), b=b)  # float64, as NumPy makes it: rounded
    classes: np.ndarray = ((a + b.sum(1)) @ WEIGHTS).argmax(1)
    np.save("twelve.npy", np.where(np.arange(12) < 9, classes, classes + 1))
    return classes


@pytest.mark.parametrize("words", [[], ["--batch", "4"], ["--batch", "12"], ["--batch", "3", "--result", "class"]])
def test_open_batches_are_cut_as_asked(
    words: list[str], two_inputs: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    found = printed(capsys, "evaluate", "open.onnx", "two.npz", "--labels", "twelve.npy", "--target", "cpu", *words)
    assert found["classes"] == two_inputs.tolist()
    assert (found["examples"], found["right"], found["accuracy"]) == (12, 9, 0.75)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["open.onnx", "two.npz", "--batch", "5"], "the 12 examples of 'a' are no multiple of the batch, 5: the input "
         "is float32[5, 4]; hint: give 10 or 15"),
        (["open.onnx", "two.npz", "--batch", "24"], "no multiple of the batch, 24: the input is float32[24, 4]; hint: "
         "give 24"),
        (["open.onnx", "two.npz", "--result", "z"], "the model has no output 'z'; hint: its outputs: scores, class"),
        (["open.onnx", "x.npz"], "the model has no input 'x'; hint: its inputs: a, b"),
        (["open.onnx", "uneven.npz"], "the inputs have different numbers of examples: a: 12, b: 11"),
        (["open.onnx", "flat.npz"], "flat.npz: input 'b' has 2 dimensions"),
        (["open.onnx", "two.npz", "--labels", "labels.npy"], "there are 40 labels, but 12 examples"),
        (["net.onnx", "x.npz", "--batch", "8"], "--batch 8: the batch of input 'x' is fixed, float32[1, 4]; hint: "),
        (["net.onnx", "x.npz", "--labels", "none.npy"], "there are 0 labels, but 40 examples"),
        (["net.onnx", "long.npz"], "x is [40, 5], but examples for the input float32[1, 4] are [k x 1, 4]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_before_the_work(
    words: list[str], message: str, two_inputs: np.ndarray, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("weft.cli.evaluate.compiled_source", compiled)
    two = np.load("two.npz")
    np.savez("uneven.npz", a=two["a"], b=two["b"][:11])
    np.savez("flat.npz", a=two["a"], b=two["b"][:, 0])
    np.savez("long.npz", x=np.zeros((40, 5), np.float32))
    np.save("none.npy", np.zeros(0, np.int64))
    assert run(app, ["evaluate", *words], err) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_batch_of_an_artifact_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["compile", "net.onnx", "--target", "cpu", "-o", "net.weft"], err) == 0
    capsys.readouterr()
    assert printed(capsys, "evaluate", "net.weft", "x.npz", "--batch", "1")["examples"] == 40
    assert run(app, ["evaluate", "net.weft", "x.npz", "--batch", "2"], err) == 1
    assert "--batch 2: input 'x' is compiled as float32[1, 4]" in " ".join(capsys.readouterr().err.split())


def test_labels_of_every_place_of_a_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a model of words has: several classes for each example. Too many labels are told after the first batch."""
    onnx.save(parser.parse_model(OPEN.replace("float[N, 3] scores, int64[N, 1] class", "float[N, T, 3] each")
              .replace("sum = ReduceSum<keepdims = 0>(b, one) both = Add(a, sum) scores = MatMul(both, w) "
                       "class = ArgMax<axis = 1>(scores)", "u = Unsqueeze(a, one) s = Add(b, u) each = MatMul(s, w)")),
              "words.onnx")  # fmt: skip
    random = np.random.default_rng(2)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in ((6, 4), (6, 5, 4)))
    np.savez("words.npz", a=a, b=b)
    np.save("words.npy", ((a[:, None] + b) @ WEIGHTS).argmax(-1))
    np.save("many.npy", np.zeros(60, np.int64))
    words = ["evaluate", "words.onnx", "words.npz", "--target", "cpu", "--batch", "2", "--labels"]
    assert printed(capsys, *words, "words.npy")["right"] == 30
    assert run(app, [*words, "many.npy"], err) == 1
    assert "there are 60 labels, but 30 results" in " ".join(capsys.readouterr().err.split())
