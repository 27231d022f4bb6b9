"""``weft generate``: the text is the one that a session gives, on a processor and on the core."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import parser
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.graph import Array

from examples.story.network import Size, cached_module, training_module

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

SIZE = Size(width=16, heads=2, layers=1, hidden=16, positions=12)


@cache
def parameters() -> dict[str, Array]:
    start = weft.train.initialised(training_module(SIZE, {}, 1, 1)[1], seed=3)
    return start | {"head": np.float32(4) * np.random.default_rng(0).normal(size=(256, 16)).astype(np.float32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    weft.export_onnx(cached_module(SIZE, parameters()), folder / "d.onnx")
    weft.export_onnx(cached_module(SIZE, parameters(), 4), folder / "wide.onnx")
    return folder


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, object]:
    assert run(app, ["generate", *map(str, words), "--json"], err) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert run(app, ["generate", *map(str, words)], err) == 1
    return " ".join(capsys.readouterr().err.split())


def greedy(prompt: bytes, count: int) -> list[int]:
    session = weft.load(weft.compile(cached_module(SIZE, parameters()), target="cpu")).session()
    scores, found = session.prefill(list(prompt)), []
    for _ in range(count):
        found.append(int(scores.argmax()))
        scores = session.step(found[-1])
    return found


def test_the_best_tokens_of_a_session_with_a_prompt_in_pieces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = greedy(b"weft", 5)
    for wide in ((), ("--prefill", folder / "wide.onnx")):
        words = [folder / "d.onnx", "-p", "weft", "--target", "cpu", "-n", "5", *wide]
        found = printed(capsys, *words)
        assert found["tokens"] == wanted
        assert str(found["text"]).startswith("weft")
        assert found["cycles_a_token"] is None
        assert found["prompt_tokens"] == 4


def test_text_goes_to_standard_output_and_figures_behind_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(folder / "d.onnx"), "-p", "abc", "--target", "cpu", "--temperature", "0.7", "--seed", "1"]
    assert run(app, words, err) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("abc")
    assert "3 tokens of the prompt, 10 written; the model's 12 positions are full" in shown.err
    assert "ms on this machine" in shown.err
    assert run(app, [*words, "--seed", "2"], err) == 0
    assert capsys.readouterr().out != shown.out


def test_the_core_says_cycles_a_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [recurrent(folder), "-p", "\x01", "-n", "3"]
    found = printed(capsys, *words, "--config", "tiny", "--clock", "50")
    assert found["tokens"] == printed(capsys, *words, "--target", "cpu")["tokens"]
    cycles = found["cycles_a_token"]
    assert isinstance(cycles, float)
    assert found["prompt_cycles"] == cycles
    assert found["tokens_a_second_of_the_core"] == pytest.approx(50e6 / cycles)
    assert found["programs_a_token"] == 1
    assert run(app, ["generate", *map(str, words), "--config", "tiny"], err) == 0
    assert "cycles of the core in 1 programs" in " ".join(capsys.readouterr().err.split())


def with_constants(text: str, **constants: Array) -> onnx.ModelProto:
    model = parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def recurrent(folder: Path) -> Path:
    """Of eight tokens; the head alone is quantised, so that little has to be compiled."""
    random = np.random.default_rng(0)
    table, w = random.normal(0, 0.6, (8, 4)).astype(np.float32), random.integers(-99, 99, (4, 8), np.int8)
    onnx.save(with_constants(ON_THE_CORE, table=table, w=w), folder / "core.onnx")
    return folder / "core.onnx"


ON_THE_CORE = """
<ir_version: 8, opset_import: ["" : 17]>
counting (int64[1, 1] input_ids, float[1, 4] state_in) => (float[1, 8] logits, float[1, 4] state_out)
<float half = {0.5}, float ws = {0.02}, int8 zero = {0}, float s = {0.02}, int64[1] one = {1}>
{
  row = Gather (table, input_ids)
  flat = Flatten (row)
  kept = Mul (state_in, half)
  state_out = Add (flat, kept)
  q = QuantizeLinear (state_out, s, zero)
  x = DequantizeLinear (q, s, zero)
  wd = DequantizeLinear (w, ws, zero)
  y = MatMul (x, wd)
  yq = QuantizeLinear (y, s, zero)
  logits = DequantizeLinear (yq, s, zero)
}
"""


def test_a_token_that_ends_the_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (recurrent(folder), "-p", "\x01", "--target", "cpu", "-n", "6", "--temperature", "1")
    whole = printed(capsys, *words)["tokens"]
    assert isinstance(whole, list)
    end = next(token for token in whole if token != whole[0])
    found = printed(capsys, *words, "--stop", chr(end))
    assert found["tokens"] == whole[: whole.index(end) + 1]
    assert found["text"] == "\x01" + bytes(whole[: whole.index(end)]).decode()


GROWING = """
<ir_version: 8, opset_import: ["" : 17]>
growing (int64[batch, length] input_ids, int64[batch, all] attention_mask, float[batch, past, 8] past_key_0)
  => (float[batch, length, 8] logits, float[batch, all, 8] present_key_0)
<int64[1] last = {2}, int64[1] middle = {1}>
{
  row = Gather (table, input_ids)
  present_key_0 = Concat <axis = 1> (past_key_0, row)
  seen = Cast <to = 1> (attention_mask)
  wide = Unsqueeze (seen, last)
  shares = Mul (present_key_0, wide)
  logits = ReduceSum <keepdims = 1> (shares, middle)
}
"""


def test_sizes_that_an_exporter_left_open(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores are the sum of the rows of all tokens."""
    table = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    onnx.save(with_constants(GROWING, table=table), folder / "open.onnx")
    words = (folder / "open.onnx", "-p", "\x03\x01", "--target", "cpu", "-n", "4")
    seen, wanted = table[3] + table[1], []
    for _ in range(4):
        wanted.append(int(seen.argmax()))
        seen = seen + table[wanted[-1]]
    assert printed(capsys, *words, "--positions", "16")["tokens"] == wanted
    assert "room for positions has to be fixed" in refused(capsys, *words)


def test_places_that_follow_from_the_size_of_the_cache_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As decoders count that are exported without places: there is room for all positions here, from the beginning."""
    counted = GROWING.replace(
        "row = Gather (table, input_ids)",
        """
  sizes = Shape (past_key_0)
  place = Gather (sizes, middle)
  at = Gather (places, place)
  word = Gather (table, input_ids)
  row = Add (word, at)""",
    )
    random = np.random.default_rng(0)
    table, places = (random.normal(size=(count, 8)).astype(np.float32) for count in (8, 64))
    onnx.save(with_constants(counted, table=table, places=places), folder / "counted.onnx")
    onnx.save(with_constants(GROWING, table=table), folder / "uncounted.onnx")
    for name, told in (("counted.onnx", True), ("uncounted.onnx", False)):
        words = ("generate", folder / name, "-p", "\x03", "--target", "cpu", "-n", "1", "--positions", "16")
        assert run(app, [*map(str, words)], err) == 0
        assert ("export it with position_ids" in " ".join(capsys.readouterr().err.split())) == told


WINDOW = """
  sizes = Shape (attention_mask)
  count = Gather <axis = 0> (sizes, one)
  places = Range (zero, count, one)
  start = Sub (count, window)
  inside = GreaterOrEqual (places, start)
  given = Cast <to = 9> (attention_mask)
  looked = And (given, inside)
  seen = Cast <to = 1> (looked)"""
"""The last tokens of the cache, by its size: with room behind what is written these are others."""


def test_a_window_that_is_counted_from_the_end_of_the_cache_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the model has places; a window as wide as the cache hides nothing."""
    table = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    for window, told in ((4, True), (99, False)):
        text = GROWING.replace("  seen = Cast <to = 1> (attention_mask)", WINDOW)
        text = text.replace(
            "int64[1] middle = {1}",
            f"int64[1] middle = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 window = {{{window}}}",
        )
        onnx.save(with_constants(text, table=table), folder / "window.onnx")
        words = ("generate", folder / "window.onnx", "-p", "\x03", "--target", "cpu", "-n", "1", "--positions", "16")
        assert run(app, [*map(str, words)], err) == 0
        assert ("hides positions by the size of its cache" in " ".join(capsys.readouterr().err.split())) == told


def test_what_does_not_fit_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "d.onnx"
    assert "13 tokens do not fit" in refused(capsys, model, "-p", "x" * 13, "--target", "cpu")
    assert "the prompt has no token" in refused(capsys, model, "-p", "", "--target", "cpu")
    assert "--stop 'ab' is no token of bytes" in refused(capsys, model, "-p", "x", "--target", "cpu", "--stop", "ab")
    assert "cannot be read" in refused(capsys, folder / "none.onnx", "-p", "x")
    said = refused(capsys, DIGITS, "-p", "x")
    assert "no input of tokens, which are whole numbers: 'image' is float32[1, 1, 8, 8]" in said
    assert "compiling" not in said
    larger = Size(width=16, heads=2, layers=1, hidden=16, positions=12, tokens=300)
    start = weft.train.initialised(training_module(larger, {}, 1, 1)[1], seed=3)
    weft.export_onnx(cached_module(larger, start), folder / "large.onnx")
    assert "scores for 300 tokens, which are no bytes" in refused(
        capsys, folder / "large.onnx", "-p", "x", "--target", "cpu"
    )
