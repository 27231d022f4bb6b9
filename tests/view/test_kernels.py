"""Kernels of a processor in the page: each once, with its code; time and roof where they were measured."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from weft.compiler.model import CompiledModel, HostStep
from weft.compiler.targets.cpu.build import assemblies
from weft.compiler.targets.cpu.processor import named_target
from weft.runtime.machine_roof import MachineRoof
from weft.runtime.profile_host import kernels_of
from weft.view.assembly import KINDS
from weft.view.kernels import HostCodes
from weft.view.page import view_page
from weft.view.side import side

from tests.browser import shown_by_browser

from .test_page import SETTLED, WIDE

PROBE = (
    SETTLED
    + """
      const all = (what, within = document) => [...within.querySelectorAll(what)];
      const head = () => [...find("table").tHead.rows[0].cells].map(cell => cell.textContent);
      const overflow = () => document.documentElement.scrollWidth > document.documentElement.clientWidth;
"""
)

ROOF = MachineRoof("a processor", 1, 100.0, 400.0, ((1 << 14, 200.0), (1 << 20, 100.0), (1 << 26, 20.0)))


def codes_of(model: CompiledModel, processor: str) -> HostCodes:
    """As the command makes them, without a measurement."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    texts = assemblies(step.program, named_target(processor))
    return HostCodes("assembly", processor, texts, kernels_of(model), why="there is no such processor here")


def measured(codes: HostCodes, scale: float = 1.0) -> HostCodes:
    """Each layer with a time of its own: microseconds by its place, the third one longest."""
    profiles = [replace(each, seconds=scale * (20 if place == 2 else 1 + place) * 1e-6)
                for place, each in enumerate(codes.profiles)]  # fmt: skip
    return replace(codes, profiles=profiles, roof=ROOF, why="")


@pytest.fixture(scope="module")
def v3(digits_on_v3: CompiledModel) -> HostCodes:
    return codes_of(digits_on_v3, "x86-64-v3")


def opened(text: str) -> dict[str, Any]:
    found = json.loads(gzip.decompress(base64.b64decode(text)))
    assert isinstance(found, dict)
    return found


def test_each_kernel_is_there_once_with_its_loops_and_its_code(digits_on_v3: CompiledModel, v3: HostCodes) -> None:
    shown = side(digits_on_v3, None, {}, measured(v3))
    (step,) = digits_on_v3.steps
    assert isinstance(step, HostStep)
    assert set(shown["kernels"]) == {kernel.symbol for kernel in step.program.kernels}
    used = [opened(each)["kernels"] for each in shown["details"]]
    assert all(used)
    assert {symbol for each in used for symbol in each} == set(shown["kernels"])
    for symbol, packed in shown["kernels"].items():
        kernel = opened(packed)
        assert kernel["loops"] in [each.text for each in step.program.kernels if each.symbol == symbol]
        hot, whole = kernel["counts"]
        assert sum(whole) == sum(kind >= 0 for kind in kernel["kinds"]) > 0
        assert all(one <= other for one, other in zip(hot, whole, strict=True))
    assert shown["timeline"] is None


def test_work_is_that_of_the_profile(digits_on_v3: CompiledModel, v3: HostCodes) -> None:
    found = measured(v3)
    layers = side(digits_on_v3, None, {}, found)["layers"]
    for layer, kernel in zip(layers, found.profiles, strict=True):
        work, told = layer["work"], (kernel.seconds, kernel.nbytes, kernel.operations)
        assert (work["seconds"], work["bytes"], work["operations"]) == told
        assert work["bound"] == kernel.bound(ROOF)
    counted = side(digits_on_v3, None, {}, v3)
    assert counted["machine"]["roof"] is None
    assert all("seconds" not in layer["work"] for layer in counted["layers"])
    assert [layer["work"]["bytes"] for layer in counted["layers"]] == [layer["work"]["bytes"] for layer in layers]


def test_a_click_leads_to_the_hottest_loop(digits_on_v3: CompiledModel, v3: HostCodes) -> None:
    probe = (
        PROBE
        + """
      const heading = () => document.querySelector("#layer-box h2").textContent;
      const found = { first: state.layer, head: find("run-head").textContent, spots: all(".spot").length };
      const place = layersOf(0).findIndex(layer => layer.name === "conv3");
      document.querySelector(`.spot[data-layer="${place}"]`).dispatchEvent(new MouseEvent("click")); await settle();
      found.spot = [heading(), all(".spot.chosen").length];
      found.panes = all("#layer-box h3").map(each => each.textContent);
      found.counts = all("#layer-box .causes").find(each => each.textContent.includes("accumulate")).textContent;
      found.forms = all("#layer-box p code").map(each => each.textContent);
      const detail = await detailOf(0, place), kernel = await opened(0, "kernels", detail.kernels[0]);
      const code = document.querySelector(".code.asm");
      found.hot = all(".row.hot span:first-child", code).every(each => kernel.hottest.includes(each.textContent - 1));
      found.atLoop = Math.abs(code.scrollTop - kernel.hottest[0] * ROW) < 1;
      found.marked = all(".row.hot", code).length;
      code.scrollTop = 0; code.dispatchEvent(new Event("scroll"));
      found.top = code.querySelector(".row span").textContent;
      document.querySelector("#layer-box button").click(); code.dispatchEvent(new Event("scroll"));
      found.jumped = code.scrollTop === kernel.hottest[0] * ROW;
      const strip = views[0].canvas, box = strip.getBoundingClientRect();
      const times = layersOf(0).map(layer => layer.work.seconds), whole = times.reduce((a, b) => a + b);
      const clientX = box.left + 8 + (times[0] + times[1] + times[2] / 2) * (box.width - 16) / whole;
      strip.dispatchEvent(new MouseEvent("click", { clientX, clientY: box.top + 9 })); await settle();
      found.third = state.layer;
      strip.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); await settle();
      found.next = state.layer;
      found.share = document.querySelector("#layer-box .head .quiet").textContent;
      found.time = find("table").tBodies[0].rows[2].cells[head().indexOf("time")].textContent;
      const pen = strip.getContext("2d");
      found.drawn = new Set(new Uint32Array(pen.getImageData(0, 0, strip.width, strip.height).data.buffer)).size;
      found.overflow = overflow();
      return found;
    """
    )
    found = shown_by_browser(view_page([side(digits_on_v3, None, {}, measured(v3))]), probe, WIDE)
    computing = [each for each in v3.profiles if each.operations]
    assert found["first"] == 2  # the one that takes longest
    assert found["head"] == "Time by node"
    assert found["spots"] == len(computing)
    assert found["spot"] == ["conv3", 1]
    assert "Its instructions" in found["panes"]
    assert "Loop nest" in found["panes"]
    assert any(each.startswith("Assembly for x86-64-v3: ") for each in found["panes"])
    assert "hottest loop" in found["counts"]
    assert any(each.startswith("vpmadd") for each in found["forms"])
    assert found["hot"]
    assert found["atLoop"]
    assert found["marked"] > 8
    assert found["top"] == "1"
    assert found["jumped"]
    assert (found["third"], found["next"]) == (2, 3)
    whole = sum(each.seconds for each in measured(v3).profiles)
    assert found["share"] == f"4 µs, {400e-6 / whole:.1f} % of the run"
    assert found["time"] == "20 µs"
    assert found["drawn"] > 3
    assert not found["overflow"]


def test_two_processors_stand_side_by_side(
    digits_on_v3: CompiledModel, digits_on_arm: CompiledModel, v3: HostCodes
) -> None:
    faster = side(digits_on_v3, None, {}, measured(v3, 0.5))
    both = view_page([side(digits_on_v3, None, {}, measured(v3)), faster])
    probe = (
        PROBE
        + """
      const row = find("table").tBodies[0].rows[2], ratio = row.cells[head().indexOf("B ÷ A")].textContent;
      const pictures = () => all("canvas").map(canvas => canvas.toDataURL()).join(), once = pictures();
      views.forEach(view => view.draw());
      return { ratio: parseFloat(ratio), plots: all(".roof").length, panes: all(".code.asm").length,
        overflow: overflow(), again: pictures() === once };
    """
    )
    kernels = len(opened(faster["details"][2])["kernels"])
    found = {"ratio": 0.5, "plots": 2, "panes": 2 * kernels, "overflow": False, "again": True}
    assert shown_by_browser(both, probe, WIDE) == found
    assert not shown_by_browser(both, probe, "--window-size=500,900")["overflow"]
    counted = side(digits_on_arm, None, {}, codes_of(digits_on_arm, "aarch64"))
    probe = (
        PROBE
        + """
      return { said: find("runs").textContent, plots: all(".roof").length, head: head().slice(3, 5),
        hidden: find("run-box").hidden, forms: all("#layer-box p code").map(each => each.textContent) };
    """
    )
    found = shown_by_browser(view_page([side(digits_on_v3, None, {}, measured(v3)), counted]), probe, WIDE)
    assert "B: Static counts only, nothing was measured: there is no such processor here." in found["said"]
    assert (found["plots"], found["hidden"]) == (1, False)
    assert found["head"] == ["MACs A", "MACs B"]
    assert any(each.startswith("sml") for each in found["forms"])


def test_without_code_the_loops_are_there(digits_on_v3: CompiledModel) -> None:
    probe = (
        PROBE
        + """
      choose(layersOf(0).findIndex(layer => layer.device === "cpu")); await settle();
      return [find("run-box").hidden, document.querySelector("#layer-box pre").textContent.slice(0, 4)];
    """
    )
    page = view_page([side(digits_on_v3, None, {})])
    assert shown_by_browser(page, probe, WIDE) == [True, "def "]


def test_names_of_kinds_fit_the_page() -> None:
    script = (Path(__file__).parents[2] / "weft" / "view" / "kernels.js").read_text()
    tones = script.split("const KIND_TONES = [")[1].split("]")[0].split(",")
    assert len(tones) == len(KINDS)
