"""Space files: what they mean, and what is wrong with one that means nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from weft.explore.errors import ExploreError
from weft.explore.space import Space, assignment_text, load_space
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.errors import ConfigError
from weft.hw.memories import SCRATCHPADS

FILE = """
name = "a study"
base = "pynq"
[core]
block_in = [8, 16]
block_out = 16
bus_bits = [64, 128]
depthwise = [0]
wgt_kib = [128, 256]
[memory]
bytes_per_cycle = ["bus", 4]
latency = 120
[compiler]
vthreads = [1, 2]
chains = false
[constraints]
part = "xc7z020"
LUT = 40000
[search]
algorithm = "random"
trials = 12
seed = 3
objectives = ["cycles", "energy"]
"""


def space_of(text: str, folder: Path) -> Space:
    path = folder / "space.toml"
    path.write_text(text)
    return load_space(path)


def test_axes_assignments_and_designs(tmp_path: Path) -> None:
    space = space_of(FILE, tmp_path)
    assert space.size == 2 * 2 * 2 * 2 * 2
    assignments = list(space.assignments())
    assert len({assignment_text(each) for each in assignments}) == space.size
    for assignment in assignments:
        design = space.design(assignment)
        config = design.config
        assert (config.block_in, config.bus_bits) == (assignment["core.block_in"], assignment["core.bus_bits"])
        assert config.wgt_depth * config.wgt_bytes == assignment["core.wgt_kib"] * 1024
        assert config.inp_depth == PYNQ.inp_depth
        slow = assignment["memory.bytes_per_cycle"] == 4
        assert design.rate.bytes_per_cycle == (4 if slow else config.bus_bytes)
        assert design.rate.latency == 120
        assert design.knobs == {"chains": False, "vthreads": assignment["compiler.vthreads"]}


def test_a_space_of_nothing_is_the_base_core() -> None:
    (assignment,) = Space().assignments()
    design = Space().design(assignment)
    assert design.config.hash64 == PYNQ.hash64
    assert design.rate.bytes_per_cycle == PYNQ.bus_bytes


def test_equal_cores_have_equal_names_and_others_do_not(tmp_path: Path) -> None:
    space = space_of(FILE, tmp_path)
    names = {}
    for assignment in space.assignments():
        config = space.design(assignment).config
        assert names.setdefault(config.name, config.hash64) == config.hash64
    assert len(names) == 8


@pytest.mark.parametrize("memory", SCRATCHPADS)
def test_sizes_in_kib_follow_the_entries(memory: str) -> None:
    space = Space.model_validate({"core": {f"{memory}_kib": [64], "block_in": [8], "depthwise": [0]}})
    (assignment,) = space.assignments()
    config = space.design(assignment).config
    assert config.depth(memory) * config.entry_bytes(memory) == 64 * 1024  # type: ignore[arg-type]


def test_a_size_that_holds_no_whole_entries_is_no_core() -> None:
    space = Space.model_validate({"base": "wide", "core": {"wgt_kib": [7, 1]}})
    first, _ = space.assignments()
    with pytest.raises(ConfigError, match="wgt_depth must be a power of two"):
        space.design(first)
    wide = Space.model_validate({"core": {"block_in": [64], "block_out": [64], "wgt_kib": [2], "depthwise": [0]}})
    (assignment,) = wide.assignments()
    with pytest.raises(ConfigError, match="wgt_kib = 2 holds no whole number of entries of 4096 bytes"):
        wide.design(assignment)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("[core]\nblock = [8]", "core", "there is no field 'block'; known: batch, block_in"),
        ("[core]\nblock_in = [8, 8]", "core", "has a value twice"),
        ("[core]\nblock_in = ['8']", "core.block_in", "valid integer"),
        ("[core]\nblock_in = []", "core.block_in", "at least 1 item"),
        ("[core]\ninp_kib = 32\ninp_depth = 8", "core", "inp_kib and inp_depth say the same"),
        ("[memory]\nbytes_per_cycle = [0]", "memory.bytes_per_cycle", "greater than or equal to 1"),
        ("[compiler]\nthreads = 2", "compiler.threads", "known: vthreads, chains"),
        ("[constraint]\nLUT = 1", "constraint", "known: name, base, core"),
        ("[constraints]\nLUT = 0", "constraints.LUT", "greater than 0"),
        ("[constraints]\nmilliseconds = 3", "constraints", "milliseconds need a clock: give mhz, or a part"),
        ("[constraints]\non_core = 2", "constraints.on_core", "less than or equal to 1"),
        ("[host]\nprocessor = 'z80'", "host.processor", "there is no processor 'z80'; known: cortex-a9, cortex-a53"),
        ("[host]\nmhz = 0", "host.mhz", "greater than 0"),
        ("[constraints]\nmilliseconds = 0\nmhz = 1", "constraints.milliseconds", "greater than 0"),
        ("[search]\nalgorithm = 'best'", "search.algorithm", "'grid', 'random', 'tpe' or 'nsga2'"),
        ("[search]\nobjectives = ['speed']", "search.objectives.0", "'cycles'"),
        ("base = 'huge'", "base", "unknown configuration 'huge'"),
        ("a = ", "", "not TOML"),
        ("# to come\n", "", "nothing is in it"),
    ],
)
def test_errors_name_place_and_remedy(text: str, place: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExploreError) as caught:
        space_of(text, tmp_path)
    assert f"space.toml{': ' if place else ''}{place}" in str(caught.value)
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExploreError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_space(tmp_path / "nowhere.toml")


def test_every_number_of_a_core_can_be_an_axis() -> None:
    for name, value in asdict(CoreConfig()).items():
        if name not in ("name", "rounding"):
            (assignment,) = Space.model_validate({"core": {name: [value], "depthwise": [0]}}).assignments()
            assert assignment[f"core.{name}"] == value
