"""The page of `weft view --live`: in a browser it computes and counts what the native simulators do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from typer.testing import CliRunner
from weft.cli import app
from weft.cli.view_live import hosts_in_page
from weft.compiler.model import CompiledModel, HostStep
from weft.runtime.device import memory_of
from weft.sim.timing import predict
from weft.view.live import StepRecorder, live_model, live_page, packed

from tests.browser import shown_by_browser

from .conftest import DIGITS

IMAGES = np.random.default_rng(1).random((3, 1, 1, 8, 8), np.float32)

DARK_PHONE = ("--window-size=420,800", "--force-dark-mode", "--enable-features=WebUIDarkMode")

PROBE = """
  await shown;
  const found = [[state.cycles, state.equal, state.top]];
  for (const place of [1, 2]) {
    document.querySelectorAll("#examples button")[place].click(); await shown;
    found.push([state.cycles, state.equal, state.top]);
  }
  const turn = (name, value) => { find(name).value = value; find(name).dispatchEvent(new Event("input")); };
  turn("latency", 300); turn("rate", 2);
  const shares = [...find("table").tBodies[0].rows].map(row =>
    [...row.cells].slice(1).reduce((sum, cell) => sum + Number(cell.textContent.replaceAll(",", "")), 0));
  const slow = state.cycles, text = find("cycles").textContent;
  const canvas = find("timeline"), pen = canvas.getContext("2d");
  const drawn = new Set(new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
  find("reset").click();
  const scale = devicePixelRatio || 1, gemm = Math.round((2 * 26 + 11) * scale), left = Math.round(60 * scale);
  const line = pen.getImageData(left, gemm, canvas.width - left, 1).data, wide = line.length / 4;
  let blue = 0;
  for (let at = 0; at < line.length; at += 4)
    blue += line[at] === 0x2f && line[at + 1] === 0x66 && line[at + 2] === 0x90;
  const busy = [...find("table").tHead.rows[0].cells].findIndex(cell => cell.textContent === "busy");
  const worked = Number(find("table").tBodies[0].rows[2].cells[busy].textContent.replaceAll(",", ""));
  return { drawnBusy: blue / wide, busy: worked / state.cycles,
    found, slow, text, shares, drawn, again: state.cycles, verdict: find("verdict").textContent,
    overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    ground: getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] };
"""


DRAW = """
  await shown;
  const pad = find("pad"), places = pad.getBoundingClientRect();
  const send = (type, x, y) => pad.dispatchEvent(new PointerEvent(type, { bubbles: true, buttons: 1,
    clientX: places.x + x * places.width, clientY: places.y + y * places.height }));
  const found = [];
  const angles = Array.from({ length: 33 }, (_, at) => Math.PI * at / 16);
  const ring = angles.map(at => [0.5 + 0.2 * Math.cos(at), 0.5 + 0.3 * Math.sin(at)]);
  for (const lines of [[[[0.5, 0.1], [0.5, 0.9]]], [ring]]) {
    find("clear").click();
    for (const [start, ...rest] of lines) {
      send("pointerdown", ...start);
      for (const each of rest) send("pointermove", ...each);
    }
    for (const fit of [true, false]) {
      find("fit").checked = fit; find("fit").dispatchEvent(new Event("change"));
      found.push({ drawn: [...state.drawn], scores: state.scores, top: state.top, text: find("verdict").textContent });
    }
  }
  find("clear").click();
  const empty = [find("verdict").textContent, state.scores];
  document.querySelector("#examples button").click(); await shown;
  return { found, empty, again: [state.equal, state.top] };
"""


def described(model: CompiledModel, *, whole: bool = True) -> dict[str, Any]:
    device = StepRecorder(model)
    (name,) = (each.name for each in model.inputs)
    hosts, why = hosts_in_page(model) if whole else ((), "no reason")
    assert whole == bool(hosts), why
    return live_model(model, [{name: image} for image in IMAGES], (weft.load(model, device), device), hosts, why)


def cycles(model: CompiledModel, **dram: int) -> int:
    memory = replace(memory_of(model), **dram)
    runs = [predict(model.config, step.program, memory, offset=step.program_offset) for step in model.programs]
    return sum(each.cycles or 0 for each in runs)


@pytest.mark.parametrize(
    ("flags", "whole"), [((), True), (DARK_PHONE, True), ((), False)], ids=["wide", "narrow and dark", "core alone"]
)
def test_the_page_says_what_native_runs_say(digits_on_pynq: CompiledModel, flags: tuple[str, ...], whole: bool) -> None:
    page = live_page([described(digits_on_pynq, whole=whole)])
    assert len(page) < 5_000_000
    found = shown_by_browser(page, PROBE, *flags)
    module = weft.load(digits_on_pynq, "fsim")
    classes = [int(np.argmax(next(iter(module.run(image).values())))) for image in IMAGES]
    fast, slow = cycles(digits_on_pynq), cycles(digits_on_pynq, latency=300, bytes_per_cycle=2)
    assert found["found"] == [[fast, True, top] for top in classes]
    assert (found["slow"], found["text"], found["again"]) == (slow, f"{slow:,}", fast)
    assert slow > fast
    assert len(set(found["shares"])) == 1  # every engine has every cycle in some class
    assert found["drawn"] > 3
    assert found["drawnBusy"] == pytest.approx(found["busy"], abs=0.1)
    assert not found["overflow"]
    assert (found["ground"] < 60) == bool(flags)
    assert ("ran before: no reason" in found["verdict"]) != whole


def test_what_is_drawn_is_read_as_a_native_run_reads_it(digits_on_pynq: CompiledModel) -> None:
    found = shown_by_browser(live_page([described(digits_on_pynq)]), DRAW)
    module = weft.load(digits_on_pynq, "fsim")
    pictures = [np.asarray(each["drawn"], np.float32).reshape(1, 1, 8, 8) for each in found["found"]]
    for picture, each in zip(pictures, found["found"], strict=True):
        (logits,) = module.run({"image": picture}).values()
        np.testing.assert_array_equal(np.float32(each["scores"]), logits[0])  # to the bit
        assert each["top"] == int(np.argmax(logits))
        assert "The answer for what is drawn" in each["text"]
    assert [each["top"] for each in found["found"][::2]] == [1, 0]  # strokes that fill the picture are read right
    low, high = float(IMAGES[0].min()), float(IMAGES[0].max())
    assert all(np.float32(low) <= picture.min() and picture.max() <= high + 1e-6 for picture in pictures)
    filled, plain = (
        [np.flatnonzero((picture[0, 0] > low + 0.1).any(1)) for picture in pictures[at::2]] for at in (0, 1)
    )
    assert [(rows[0], rows[-1]) for rows in filled] == [(0, 7), (0, 7)]
    assert all(rows[-1] - rows[0] <= 7 for rows in plain)
    assert found["empty"] == ["Nothing is drawn yet.", None]
    assert found["again"] == [True, int(np.argmax(next(iter(module.run(IMAGES[0]).values()))))]


def test_why_the_host_is_not_in_the_page(digits: CompiledModel) -> None:
    step = digits.steps[0]
    assert isinstance(step, HostStep)
    shared = replace(digits, steps=(replace(step, program=replace(step.program, threads=2)), *digits.steps[1:]))
    assert hosts_in_page(shared) == ((), "its host's part is compiled for 2 threads")


def test_without_examples_a_digit_can_be_drawn(digits: CompiledModel) -> None:
    hosts, _ = hosts_in_page(digits)
    found = shown_by_browser(live_page([live_model(digits, hosts=hosts)]), DRAW.replace(
        'document.querySelector("#examples button").click(); await shown;', ""))  # fmt: skip
    module = weft.load(digits, "fsim")
    for each in found["found"]:
        (logits,) = module.run({"image": np.asarray(each["drawn"], np.float32).reshape(1, 1, 8, 8)}).values()
        np.testing.assert_array_equal(np.float32(each["scores"]), logits[0])


def test_a_result_of_the_host_that_differs_is_told(digits: CompiledModel) -> None:
    told = described(digits)
    ((name, _),) = told["examples"][0]["outputs"].items()
    told["examples"][0]["outputs"][name] = packed(bytes(40))
    found = shown_by_browser(live_page([told]), PROBE)
    assert [each[1] for each in found["found"]] == [False, True, True]


def test_a_byte_that_differs_is_told(digits: CompiledModel) -> None:
    told = described(digits)
    offset, _ = told["examples"][0]["steps"][-1]["outputs"][0]
    told["examples"][0]["steps"][-1]["outputs"][0] = (offset, packed(bytes([77])))
    found = shown_by_browser(live_page([told]), PROBE)
    assert [each[1] for each in found["found"]] == [False, True, True]


def test_without_examples_it_counts(digits: CompiledModel, digits_on_pynq: CompiledModel) -> None:
    probe = """
      await shown;
      const found = [state.cycles, find("run-box").hidden, find("model-box").hidden];
      find("model").value = 1; find("model").dispatchEvent(new Event("change")); await shown;
      return [...found, state.cycles];
    """
    found = shown_by_browser(live_page([live_model(digits), live_model(digits_on_pynq)]), probe)
    assert found == [cycles(digits), True, False, cycles(digits_on_pynq)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", str(DIGITS)], "--input is for pages that run a model"),
        (["--live", "--target", "cpu"], "--live runs programs of the core"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["view", str(DIGITS), "-o", str(tmp_path / "page.html"), *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception or "") + done.output
    assert not (tmp_path / "page.html").exists()
