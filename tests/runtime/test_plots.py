"""Pictures of a profile: both formats, one colour for one thing, the same bytes again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import weft
from weft.hw.config import PYNQ
from weft.runtime.colours import CLASS_OF_CAUSE, CLASS_OF_KIND, COLOURS, WORDS
from weft.runtime.errors import DeviceError
from weft.runtime.plots import write_plots
from weft.runtime.profile import Profile, profile
from weft.runtime.profile_cycles import KINDS, Cause
from weft.runtime.profile_timeline import timeline
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> Profile:
    compiled = weft.compile(DIGITS, PYNQ)
    return profile(compiled, predict_runs(compiled, DramModel()), "model")


def test_every_class_of_cycle_has_words_and_a_colour_of_its_own() -> None:
    assert list(COLOURS) == list(WORDS)
    assert len(set(COLOURS.values())) == len(COLOURS) == len(set(WORDS.values()))
    assert set(CLASS_OF_CAUSE) == set(Cause)
    assert {*CLASS_OF_CAUSE.values(), *CLASS_OF_KIND.values()} == set(COLOURS)
    assert set(CLASS_OF_KIND) == set(KINDS.values())


def test_pictures_are_written_in_both_formats(digits: Profile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = write_plots(digits, tmp_path)
    assert [path.name for path in paths] == ["roofline.png", "roofline.svg", "timeline.png", "timeline.svg"]
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_the_timeline_is_filled_with_the_colours_of_the_classes_that_occur(digits: Profile, tmp_path: Path) -> None:
    """And nothing else is: neither a gap nor a colour that the legend does not explain."""
    pytest.importorskip("matplotlib")
    _, path = write_plots(digits, tmp_path, formats=("svg",), bins=60)
    filled = set(re.findall(r"fill: (#[0-9a-f]{6})", path.read_text())) & set(COLOURS.values())
    binned = timeline(digits, 60)
    kinds = {CLASS_OF_KIND[kind] for counts in binned.kinds.values() for kind in counts.sum(axis=0).nonzero()[0]}
    causes = {CLASS_OF_CAUSE[Cause(cause)] for cause in binned.causes.sum(axis=0).nonzero()[0]}
    assert filled == {COLOURS[name] for name in kinds | causes}


def test_the_same_profile_gives_the_same_bytes(digits: Profile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        write_plots(digits, folder, formats=("svg",))
    for name in ("roofline.svg", "timeline.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "page"), [("roofline", "profile"), ("timeline", "profile"), ("system-stages", "systems")]
)
def test_the_pictures_of_the_manual_are_there_and_small(name: str, page: str) -> None:
    """``python docs/profile_pictures.py`` makes them."""
    path = ROOT / "docs" / "pictures" / f"{name}.svg"
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert path.stat().st_size <= 300_000
    assert f"pictures/{name}.svg" in (ROOT / "docs" / f"{page}.md").read_text()


def test_without_matplotlib_the_error_says_what_to_install(
    digits: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DeviceError, match=r"the pictures need matplotlib; hint: pip install 'weft\[plot\]'"):
        write_plots(digits, tmp_path)
