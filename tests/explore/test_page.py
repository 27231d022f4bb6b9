"""The page of an exploration: what it holds, and that a browser shows it, filters, compares and stays fluid."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.compiler.tune.database import Database
from weft.explore.live import LivePage
from weft.explore.measure import Measure, Network
from weft.explore.page import explore_page, page_data
from weft.explore.space import Design, Space
from weft.explore.study import Study, explore

from benchmarks.campaigns.in_browser import HEADLESS
from tests.browser import browser, shown_by_browser
from tests.waiting import wait_until

NETWORK = Network("net", "</script>.onnx", "1" * 32)
AXES = {"block_in": [8, 16, 32], "block_out": [8, 16], "bus_bits": [64, 128], "queue_depth": [8, 16, 32, 64]}


def fake(design: Design, network: Network) -> Measure:
    config = design.config
    cycles = 10**9 // config.macs_per_cycle + 10**7 // config.bus_bits + 10**6 // config.queue_depth
    layers = tuple(
        (f"conv{number}", "conv2d", cycles // 4, cycles * number, cycles // 5, 10, 20 * number, 3000, "array-bound")
        for number in range(4)
    )
    return Measure(cycles, config.batch, cycles * 6, cycles // 2, 10, 10**6, 10**5, layers)


def study_of(folder: Path, name: str = "a <study> of </script> tags", **core: Any) -> Study:
    space = Space.model_validate({"name": name, "core": {"depthwise": [0], **(core or AXES)}})
    with Database(folder / "e.sqlite") as database:
        return explore(space, [NETWORK], database, workers=0, measurer=fake)


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = explore_page(study_of(tmp_path))
    assert "<title>a &lt;study&gt; of &lt;/script&gt; tags</title>" in page
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", page)
    assert page.count("</script>") == 2
    assert not re.search(r"@[A-Z]+@", page)


def test_every_point_can_be_reproduced(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    data = page_data(study)
    assert len(data["points"]) == len(study.points)
    for place, (shown, point) in enumerate(zip(data["points"], study.points, strict=True)):
        space = Space.model_validate(tomllib.loads(shown["space"]))
        (assignment,) = space.assignments()
        assert assignment == point.assignment
        assert space.design(assignment) == point.design
        assert weft.CoreConfig.from_json(shown["config"]) == space.design(assignment).config
        again, profile = shown["commands"]
        assert again == f"weft explore point-{place}.toml --networks '</script>.onnx'"
        assert profile.startswith(f"weft profile '</script>.onnx' --config point-{place}.json --bandwidth ")
        assert shown["figures"]["cycles"] == pytest.approx(point.figures["cycles"], rel=1e-11)
    assert set(data["layers"]) == set(range(len(study.points)))


def test_a_large_page_holds_the_layers_of_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.explore.page.LAYER_ROWS", 40)
    study = study_of(tmp_path)
    kept = set(page_data(study)["layers"])
    assert set(study.front()) <= kept
    assert len(kept) == 10


def test_a_study_without_a_measured_point_has_a_page(tmp_path: Path) -> None:
    data = page_data(study_of(tmp_path, block_in=[12]))
    assert data["summary"].startswith("1 of 1 points: 0 measured, 1 refused")
    assert data["points"][0]["reason"].startswith("block_in must be a power of two")


def test_convergence_ends_at_the_whole(tmp_path: Path) -> None:
    found = page_data(study_of(tmp_path))["convergence"]
    assert found["counts"] == list(range(1, 49))
    for name in ("measured", "shuffled"):
        assert found[name] == sorted(found[name])
        assert found[name][-1] == pytest.approx(1)
    assert found["shuffled"][0] != found["measured"][0]
    assert page_data(study_of(tmp_path, block_in=[12]))["convergence"]["counts"] == []


def only_block_in(study: Study) -> Study:
    """The study as if figures depended on ``block_in`` alone."""
    return replace(study, outcomes={
        key: replace(each, figures=dict.fromkeys(each.figures, 5.0 + each.assignment["core.block_in"]))
        for key, each in study.outcomes.items()
    })  # fmt: skip


def test_knobs_without_effect_are_named(tmp_path: Path) -> None:
    study = study_of(tmp_path, block_in=[8, 16], queue_depth=[8, 16])
    assert page_data(study)["without_effect"] == []
    assert page_data(only_block_in(study))["without_effect"] == ["core.queue_depth"]
    diagonal = [each for each in study.outcomes.items() if each[1].assignment["core.block_in"] == 2 * 8]
    few = replace(study, outcomes=dict(diagonal[:1]))  # nothing was compared
    assert page_data(few)["without_effect"] == []


def test_ticks_are_round_axes_have_titles_and_twins_are_told(tmp_path: Path) -> None:
    study = study_of(tmp_path, block_in=[8, 16], queue_depth=[8, 16])
    probe = """
      const ticks = [[3, 97, false], [0.0012, 0.0019, false], [0, 1, false], [3, 7000, true], [1234567, 1300000, false]]
        .map(each => roundTicks(...each));
      const texts = [], pen = find("scatter").getContext("2d"), write = pen.fillText.bind(pen);
      pen.fillText = (text, ...rest) => { texts.push(text); write(text, ...rest); };
      drawScatter();
      const canvas = find("scatter"), press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
      press("ArrowRight");
      return { ticks, titles: texts.filter(text => text === label(state.x) || text === label(state.y)).length,
        hovered: find("hovered").textContent, effect: find("effect").textContent, twins: twins.size };
    """
    found = shown_by_browser(explore_page(only_block_in(study)), probe, "--window-size=1300,1000")
    assert found["ticks"][0] == [20, 40, 60, 80]
    assert found["ticks"][1] == pytest.approx([0.0012, 0.0014, 0.0016, 0.0018])
    assert found["ticks"][2] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert found["ticks"][3] == [10, 100, 1000]
    assert found["ticks"][4] == [1240000, 1260000, 1280000, 1300000]
    assert found["titles"] >= 2
    assert re.search(r"; at the same place: point \d$", found["hovered"])
    assert found["effect"] == "Without effect on any figure of these points: core.queue_depth."
    assert found["twins"] == 4


DRAWN = """
  const drawn = id => {
    const canvas = document.getElementById(id), pen = canvas.getContext("2d");
    const bytes = pen.getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let place = 3; place < bytes.length; place += 4) count += bytes[place] > 0;
    return count;
  };
"""


def test_a_browser_shows_filters_and_compares(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    front = study.front()
    probe = (
        DRAWN
        + """
      const rows = () => [...document.querySelectorAll("#table tbody tr")], count = () => find("count").textContent;
      const found = { all: count(), rows: rows().length, scatter: drawn("scatter"), parallel: drawn("parallel") };
      const groups = [...document.querySelectorAll("#axes fieldset")];
      const bus = groups.find(box => box.textContent.startsWith("core.bus_bits"));
      bus.querySelector("input").click();
      found.without64 = count(); found.buses = [...new Set(rows().map(row => row.cells[3].textContent))];
      find("reset").click();
      found.reset = count();
      find("only-front").click();
      found.front = rows().map(row => Number(row.dataset.point));
      find("only-front").click();
      const limit = document.querySelector("#limits input[name=cycles]");
      limit.value = 3000000; limit.dispatchEvent(new Event("input"));
      found.cycles = rows().map(row => points[row.dataset.point].figures.cycles);
      find("reset").click();
      document.querySelectorAll("#table th")[5].click();
      found.sorted = rows().map(row => points[row.dataset.point].figures[figures[0]]);
      const canvas = find("scatter"), press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
      press("ArrowRight"); press("Enter");
      const heading = () => document.querySelector("#detail h2").textContent;
      const layerRows = () => [...[...document.querySelectorAll("#detail table")].at(-1).rows];
      found.a = state.a; found.hovered = find("hovered").textContent; found.heading = heading();
      found.layers = layerRows().length;
      press("ArrowRight"); press("ArrowRight"); press("b");
      found.b = state.b; found.compared = heading();
      found.head = [...layerRows()[0].cells].map(cell => cell.textContent);
      found.difference = layerRows().at(-1).cells[4].textContent;
      found.expected = number(data.layers[state.b].net[3][2] - data.layers[state.a].net[3][2]);
      const widths = line => [...line.children].map(each => each.clientWidth);
      found.timelines = [...document.querySelectorAll(".timeline")].map(widths);
      found.lanes = [...document.querySelectorAll(".timeline div")[1].children].map(lane => Number(lane.style.opacity));
      found.convergence = drawn("convergence");
      found.config = JSON.parse(document.querySelector("#detail pre").textContent).block_in;
      found.title = document.title;
      found.wide = getComputedStyle(document.querySelector("main")).gridTemplateColumns.split(" ").length;
      found.overflow = document.documentElement.scrollWidth > document.documentElement.clientWidth;
      return found;
    """
    )
    found = shown_by_browser(explore_page(study), probe, "--window-size=1300,1000")
    assert found["all"] == found["reset"] == "48 of 48 points"
    assert found["rows"] == 48
    assert min(found["scatter"], found["parallel"]) > 2000
    assert (found["without64"], found["buses"]) == ("24 of 48 points", ["128"])
    assert sorted(found["front"]) == front
    assert 0 < len(found["cycles"]) < 48
    assert max(found["cycles"]) <= 3_000_000
    assert found["sorted"] in (sorted(found["sorted"]), sorted(found["sorted"], reverse=True))
    assert found["a"] in range(48)
    assert found["hovered"].startswith("point ")
    assert (found["heading"], found["layers"]) == ("Point", 5)
    assert found["b"] not in (None, found["a"])
    assert found["compared"] == "Two points"
    assert found["head"][2:6] == ["cycles A", "cycles B", "B - A", "B / A"]
    assert found["difference"] == found["expected"]
    lengths = [study.points[found[side]].figures["cycles"] for side in "ab"]
    for widths, cycles in zip(found["timelines"], lengths, strict=True):
        assert max(widths) - min(widths) <= 1  # four layers of the same length
        assert sum(widths) / sum(found["timelines"][0]) == pytest.approx(cycles / lengths[0], rel=0.02)
    assert found["lanes"] == [0.8, 0, 0]  # of the second layer: the array works for four fifths of it
    assert found["convergence"] > 500
    assert found["config"] == study.points[found["a"]].assignment["core.block_in"]
    assert found["title"] == "a <study> of </script> tags"
    assert (found["wide"], found["overflow"]) == (2, False)


def test_a_page_that_follows_a_run_looks_as_it_did(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    probe = """
      document.querySelector("#axes input[name='core.bus_bits=64']").click();
      const limit = document.querySelector("#limits input[name=cycles]");
      limit.value = 9000000; limit.dispatchEvent(new Event("input"));
      find("y").value = "DSP"; find("y").dispatchEvent(new Event("change"));
      document.querySelectorAll("#table th")[5].click();
      choose(7, false); choose(5, true);
      const look = () =>
        [find("count").textContent, state.shown.join(), state.x, state.y, state.sort, state.down, state.a, state.b];
      const before = look();
      remember();
      find("reset").click();
      Object.assign(state, { sort: "LUT", down: false, a: null, b: null, y: "cycles" });
      recall();
      await new Promise(done => setTimeout(done, 500));
      return [before, look(), find("live").textContent];
    """
    before, after, text = shown_by_browser(explore_page(study, version=3), probe)
    assert before == after
    assert before[0] == f"{len(before[1].split(','))} of 48 points"
    assert text == "The run has ended; this is the last that was seen of it."  # no server answers


def test_a_browser_follows_a_run(tmp_path: Path) -> None:
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    with LivePage(0) as live:
        live.update(study_of(tmp_path, block_in=[8]))
        command = [browser(), *HEADLESS, profile, "--remote-debugging-port=0", live.url]  # the port keeps it running
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                for version in (1, 2, 3):
                    wait_until(lambda version=version: live.fetched == version)
                    live.update(study_of(tmp_path))
            finally:
                running.kill()


def test_a_range_is_dragged_on_an_axis(tmp_path: Path) -> None:
    probe = """
      const canvas = find("parallel"), box = canvas.getBoundingClientRect();
      canvas.setPointerCapture = () => {};
      const level = share => box.top + box.height - 12 - share * (box.height - 46);
      const at = share => ({ clientX: box.left + across(0, box.width), clientY: level(share), pointerId: 1 });
      const drag = (from, to) => {
        canvas.dispatchEvent(new PointerEvent("pointerdown", at(from)));
        canvas.dispatchEvent(new PointerEvent("pointerup", at(to)));
      };
      drag(.8, 1);
      const kept = [...new Set(state.shown.map(index => points[index].assignment[0]))];
      drag(.5, .5);
      return [kept, state.shown.length];
    """
    assert shown_by_browser(explore_page(study_of(tmp_path)), probe, "--window-size=1300,1000") == [[32], 48]


@pytest.mark.parametrize(
    ("flags", "dark"), [((), False), (("--force-dark-mode", "--enable-features=WebUIDarkMode"), True)]
)
def test_a_narrow_screen_and_a_dark_one(flags: tuple[str, ...], dark: bool, tmp_path: Path) -> None:
    probe = (
        DRAWN
        + """
      choose(state.shown[0], false); choose(state.shown[1], true);
      const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0];
      return { dark: matchMedia("(prefers-color-scheme: dark)").matches, ground, drawn: drawn("scatter") > 1000,
        columns: getComputedStyle(document.querySelector("main")).gridTemplateColumns.split(" ").length,
        overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth, width: innerWidth };
    """
    )
    found = shown_by_browser(explore_page(study_of(tmp_path)), probe, "--window-size=500,900", *flags)
    assert found["dark"] == dark
    assert (found["ground"] < 60) == dark
    assert found["columns"] == 1
    assert not found["overflow"]
    assert found["drawn"]


def test_ten_thousand_points_stay_fluid(tmp_path: Path) -> None:
    study = study_of(tmp_path, **AXES)
    data = json.loads(json.dumps(page_data(study)))
    data["points"] = [data["points"][place % 48] for place in range(10_000)]
    page = explore_page(study)
    before, mark, rest = page.partition('id="data">')
    text = json.dumps(data).replace("<", "\\u003c")
    page = before + mark + text + rest[rest.index("</script>") :]
    probe = """
      const started = performance.now();
      update();
      const drawn = performance.now();
      for (let step = 0; step < 20; step += 1) hover(step);
      return [state.shown.length, drawn - started, (performance.now() - drawn) / 20];
    """
    shown, update, hover = shown_by_browser(page, probe, "--window-size=1300,1000")
    assert shown == 10_000
    assert update < 3000  # on a shared machine without a GPU: tens of milliseconds on a desk
    assert hover < 300
