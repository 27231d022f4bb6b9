"""The page of `weft view`, in the browser that people look at it with."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from weft.compiler.model import CompiledModel
from weft.hw.assembly import format_instruction
from weft.hw.programs import disassemble
from weft.runtime.device import memory_of
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.view.page import view_page
from weft.view.side import side

from tests.browser import shown_by_browser

WIDE = "--window-size=1300,1000"
SETTLED = """
      const settle = async () => { let seen; do { seen = shown; await seen; } while (seen !== shown); };
      await settle();
"""


@pytest.fixture(scope="module")
def one(digits: CompiledModel) -> dict[str, Any]:
    return side(digits, memory_of(digits), {})


@pytest.fixture(scope="module")
def two(digits: CompiledModel, digits_on_pynq: CompiledModel) -> str:
    models = (digits, digits_on_pynq)
    return view_page([side(each, memory_of(each), {}) for each in models])


def opened(text: str) -> dict[str, Any]:
    found = json.loads(gzip.decompress(base64.b64decode(text)))
    assert isinstance(found, dict)
    return found


def test_the_page_needs_nothing_else(digits: CompiledModel) -> None:
    odd = replace(digits, name="a </script> of @DATA@ and @DETAILS@")
    page = view_page([side(odd, memory_of(odd), {})])
    assert "<title>a &lt;/script&gt; of @DATA@ and @DETAILS@</title>" in page
    assert page.count("</script>") == 3
    assert "default-src 'none'; connect-src 'none'" in page
    assert not re.search(r"(?<!xmlns=\")https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)|<(img|link|iframe)", page)


def test_cycles_causes_and_instructions_are_those_of_the_profile(one: dict[str, Any], digits: CompiledModel) -> None:
    measured = profile(digits, predict_runs(digits, memory_of(digits)), "model", memory_of(digits))
    shown = [layer for layer in one["layers"] if "end" in layer]
    assert [layer["end"] - layer["start"] for layer in shown] == [item.cycles for item in measured.layers]
    assert [sum(layer["causes"]) for layer in shown] == [item.cycles for item in measured.layers]
    assert one["cycles"] == measured.cycles
    (step,) = digits.programs
    texts = [format_instruction(each) for each in disassemble(digits.config, step.program)]
    seen = {}
    for packed in one["details"]:
        code = opened(packed).get("code")
        if code:
            number = 0
            for by, text in zip(code["number"], code["text"], strict=True):
                number += by
                seen[number] = text
    assert seen == {number: text for number, text in enumerate(texts) if step.layer_of[number] >= 0}


def test_shares_of_a_bin_are_a_whole(one: dict[str, Any]) -> None:
    rows = one["timeline"]["rows"]
    assert len(rows) == 6
    for row in rows:
        assert all(abs(sum(shares) - 250) <= len(shares) for shares in zip(*row.values(), strict=True))


def test_a_click_leads_from_node_to_cycle_and_back(one: dict[str, Any]) -> None:
    probe = (
        SETTLED
        + """
      const text = id => find(id).textContent, heading = () => document.querySelector("#layer-box h2").textContent;
      const found = { nodes: boxes.length, first: heading(), table: find("table").tBodies[0].rows.length };
      const core = layersOf(0).map((layer, place) => layer.end === undefined ? -1 : place).filter(place => place >= 0);
      const last = core.at(-1), node = document.querySelector(`.node[data-layer="${core[1]}"]`);
      node.dispatchEvent(new MouseEvent("click")); await settle();
      found.second = [heading(), shortName(layersOf(0)[core[1]].name), document.querySelectorAll(".node.chosen").length,
        node.classList.contains("chosen")];
      found.panes = [...document.querySelectorAll("#layer-box h3")].map(each => each.textContent);
      found.rows = document.querySelectorAll(".code .row").length;
      const run = views[0].canvas, box = run.getBoundingClientRect(), layer = layersOf(0)[last];
      const middle = (layer.start + layer.end) / 2, x = LEFT + middle * (box.width - LEFT - 8) / sides[0].cycles;
      const click = (canvas, x, y) => { for (const name of ["pointerdown", "pointerup"])
        canvas.dispatchEvent(new PointerEvent(name, { clientX: canvas.getBoundingClientRect().left + x,
          clientY: canvas.getBoundingClientRect().top + y, bubbles: true })); };
      click(run, x, 60); await settle();
      const chosen = document.querySelector(".node.chosen");
      found.back = [heading(), shortName(layer.name), chosen.dataset.layer === String(last)];
      found.at = text("at");
      const row = [...document.querySelectorAll(".code .row")].at(-1);
      row.click(); await settle();
      found.instruction = [state.instruction, Number(row.firstChild.textContent),
        document.querySelectorAll(".code .row.chosen").length, /^instruction \\d+, from cycle/.test(text("at"))];
      const detail = await detailOf(0, last), inside = place => detail.code.start[place] >= layer.start;
      const gemm = detail.code.engine.findIndex((engine, place) => engine === 2 && inside(place));
      const line = views.at(-3), wide = line.canvas.clientWidth, cycle = detail.code.start[gemm] + detail.code.origin;
      const span0 = line.view.to - line.view.from;
      click(line.canvas, LEFT + (cycle + .5 - line.view.from) * (wide - LEFT - 8) / span0, TOP + 2 * (LANE + GAP) + 4);
      await settle();
      const picked = detail.code.place.get(state.instruction);
      found.picked = [detail.code.engine[picked], Math.abs(state.cycle - cycle) * wide < 3 * span0];
      const span = line.view.to - line.view.from;
      line.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
      found.zoomed = (line.view.to - line.view.from) / span;
      find("search").value = layer.nodes[0]; find("search").dispatchEvent(new Event("input"));
      found.faded = document.querySelectorAll(".node.faded").length;
      find("search").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" })); await settle();
      found.searched = layersOf(0)[state.layer].nodes.includes(layer.nodes[0]);
      const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      press("k"); await settle();
      const before = state.layer;
      press("j"); await settle();
      found.keys = state.layer - before;
      const canvas = views[0].canvas, pen = canvas.getContext("2d");
      const bytes = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
      found.drawn = new Set(bytes).size;
      found.overflow = document.documentElement.scrollWidth > document.documentElement.clientWidth;
      return found;
    """
    )
    found = shown_by_browser(view_page([one]), probe, WIDE)
    layers = len(one["layers"])
    assert (found["nodes"], found["table"]) == (layers + 2, layers)
    assert found["first"]
    assert found["second"][0] == found["second"][1]
    assert found["second"][2:] == [1, True]
    assert found["panes"][:3] == ["Why it takes so long", "What it would take at least", "Its cycles"]
    assert "Loops that the engines' registers run" in found["panes"]
    assert found["rows"] > 8
    assert found["back"][0] == found["back"][1]
    assert found["back"][2]
    assert found["at"].startswith("cycle ")
    assert found["instruction"][0] == found["instruction"][1]
    assert found["instruction"][2:] == [1, True]
    assert found["picked"] == [2, True]
    assert found["zoomed"] == pytest.approx(0.6)
    assert 0 < found["faded"] < layers
    assert found["searched"]
    assert found["keys"] == 1
    assert found["drawn"] > 5
    assert not found["overflow"]


def test_a_picture_drawn_again_is_the_same(two: str) -> None:
    probe = (
        SETTLED
        + """
      const pictures = () => [...document.querySelectorAll("canvas")].map(canvas => canvas.toDataURL());
      while (layersOf(0)[state.layer].end === undefined) { step(1); await settle(); }
      const once = pictures();
      views.forEach(view => view.draw());
      return pictures().map((picture, place) => picture === once[place]);
    """
    )
    found = shown_by_browser(two, probe, WIDE)
    assert len(found) > 4
    assert all(found)


def test_names_of_lanes_and_memories_are_drawn_whole(one: dict[str, Any]) -> None:
    probe = (
        SETTLED
        + """
      while (layersOf(0)[state.layer].end === undefined) { step(1); await settle(); }
      const draw = CanvasRenderingContext2D.prototype.fillText, names = {};
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (this.textAlign === "right") names[text] = x - this.measureText(text).width;
        draw.call(this, text, x, y);
      };
      views.forEach(view => view.draw());
      return names;
    """
    )
    found = shown_by_browser(view_page([one]), probe, WIDE)
    assert {"loadw", "why", "DRAM loadw"} <= set(found)
    assert min(found.values()) >= 0


def test_a_label_stands_on_the_part_of_its_layer_that_is_in_view(one: dict[str, Any]) -> None:
    probe = (
        SETTLED
        + """
      const run = views[0], wide = run.canvas.clientWidth, labels = [];
      const draw = CanvasRenderingContext2D.prototype.fillText, halves = { left: 0, start: 0, center: .5, right: 1 };
      const longest = layersOf(0).filter(layer => layer.end < sides[0].cycles)
        .reduce((a, b) => b.end - b.start > a.end - a.start ? b : a);
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const long = this.measureText(text).width, half = halves[this.textAlign] * long;
        if (y === 14) labels.push([x - half, x - half + long]);
        draw.call(this, text, x, y);
      };
      const span = Math.min(longest.end - longest.start, sides[0].cycles - longest.end);
      return [1, .5, .2, .1, .05].map(share => {
        labels.length = 0;
        run.show(longest.end - share * span, span);
        const end = LEFT + share * (wide - LEFT - 8), mine = labels.filter(each => each[0] < end);
        return [mine.length, mine.filter(each => each[0] < LEFT || each[1] > end).length];
      });
    """
    )
    layers = [
        {**layer, "name": "a_layer_with_a_name_that_is_as_long_as_names_of_exported_networks_are"}
        for layer in one["layers"]
    ]
    found = shown_by_browser(view_page([{**one, "layers": layers}]), probe, WIDE)
    assert found[0][0] == 1
    assert [outside for _, outside in found] == [0, 0, 0, 0, 0]


def test_two_compilations_stand_side_by_side(two: str) -> None:
    probe = (
        SETTLED
        + """
      const headings = () => [...document.querySelectorAll("#layer-box h2")].map(each => each.textContent);
      const found = { runs: document.querySelectorAll(".run").length, both: headings() };
      const head = [...find("table").tHead.rows[0].cells].map(cell => cell.textContent);
      const row = find("table").tBodies[0].rows[state.layer];
      found.change = row.cells[head.findIndex(each => each.startsWith("B "))].textContent;
      const [a, b] = [layersOf(0)[state.layerOf[0]], layersOf(1)[state.layerOf[1]]];
      found.names = [a.name, b.name]; found.expected = cyclesOf(b) - cyclesOf(a);
      document.querySelectorAll("#tabs button")[1].click(); await settle();
      found.side = [state.side, document.querySelector("#tabs [aria-pressed=true]").textContent,
        boxes.length === layersOf(1).length + 2];
      return found;
    """
    )
    found = shown_by_browser(two, probe, WIDE)
    assert found["runs"] == 2
    assert [each[:3] for each in found["both"]] == ["A: ", "B: "]
    assert found["names"][0] == found["names"][1]
    assert found["expected"] < 0  # the larger core is faster
    assert found["change"] == f"{found['expected']:,}"
    assert found["side"] == [1, "B", True]


@pytest.mark.parametrize(
    ("flags", "dark"), [((), False), (("--force-dark-mode", "--enable-features=WebUIDarkMode"), True)]
)
def test_a_narrow_screen_and_a_dark_one(two: str, flags: tuple[str, ...], dark: bool) -> None:
    probe = (
        SETTLED
        + """
      const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0];
      return { ground, columns: getComputedStyle(document.querySelector("main")).gridTemplateColumns.split(" ").length,
        overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth };
    """
    )
    found = shown_by_browser(two, probe, "--window-size=500,900", *flags)
    assert (found["ground"] < 60) == dark
    assert found["columns"] == 1
    assert not found["overflow"]
