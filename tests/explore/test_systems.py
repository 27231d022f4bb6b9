"""Systems as points: what a space says of them, and rounds whose cycles are those of the exact model."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.tune.database import Database
from weft.explore.energy import energy_pj, point_pj
from weft.explore.errors import ExploreError
from weft.explore.measure import Measure, Network, compiled, measure, measure_key, open_network, used
from weft.explore.outcome import Outcome, design_of, host_cycles, host_of, record_of, with_measures
from weft.explore.page import page_data
from weft.explore.parts import find_part
from weft.explore.rounds import MOST_PLACEMENTS, measure_point, placement
from weft.explore.space import Design, Space, load_space
from weft.explore.study import explore
from weft.explore.validate import validate
from weft.hw.config import PYNQ, TINY
from weft.runtime.pipeline_module import PipelineModule
from weft.runtime.profile_system import profile_system
from weft.sim.dram import DramModel
from weft.sim.dram_kinds import parse_dram_kind
from weft.sim.system_timing import cycles_together, predict_system
from weft.sim.timing import predict
from weft.sim.timing_ports import TimedProgram

from tests.compiler.targets.accel.link.test_stages import bytes_first

from .test_host import two_layers

pytestmark = pytest.mark.usefixtures("groups_stay")

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

UNLIKE = """
base = "tiny"
[core]
queue_depth = [8, 16]
[cores.narrow]
block_in = 8
depthwise = 0
queue_depth = [4, 8]
[memory]
banks = ["flat", "ddr3-1066x16"]
[compiler]
chains = false
[system]
cores = [1, "2 core", "core + narrow"]
ports = ["one", "own"]
shared_reads = [false, true]
split = ["pictures", "networks"]
[search]
objectives = ["throughput", "latency", "area"]
"""


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, Network]:
    return open_network(DIGITS), open_network(two_layers(tmp_path_factory.mktemp("networks") / "two.onnx"))


def space_of(**tables: Any) -> Space:
    return Space.model_validate({"base": "tiny", "compiler": {"chains": False}, **tables})


def point_of(space: Space) -> Outcome:
    (assignment,) = space.assignments()
    return design_of(space, assignment)


def design(system: Mapping[str, Any], **tables: Any) -> Design:
    point = point_of(space_of(system=system, **tables))
    assert point.design is not None, point.reason
    return point.design


def test_a_point_is_a_system(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(UNLIKE)
    space = load_space(path)
    points = [design_of(space, each) for each in space.assignments()]
    designs = [point.design for point in points if point.design is not None]
    shapes = {tuple(core.block_in for core in each.cores) for each in designs}
    assert shapes == {(4,), (4, 4), (4, 8)}
    assert {each.system and each.system.config.ports for each in designs} == {(0,), (0, 0), (0, 1)}
    assert {each.system is not None and each.system.memory.banks is not None for each in designs} == {False, True}
    assert all(each.system and each.system.split == "pictures" for each in designs if len(each.cores) == 1)
    assert not any(each.system and each.system.config.shared_reads and not each.system.alike for each in designs)
    assert len(set(designs)) == len(designs)  # what changes nothing is refused
    reasons = {point.reason.partition(";")[0] for point in points if point.design is None}
    assert any("cores.narrow.queue_depth = 8 changes nothing here" in each for each in reasons)
    assert any("system.ports = 'own' changes nothing here" in each for each in reasons)
    assert any("nobody to share reads with" in each for each in reasons)
    assert any("reads are shared by cores that run one program" in each for each in reasons)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"2 core"', '"9 core"', "must be 1 to 8 cores"),
        ('"2 core"', "9", "must be 1 to 8 cores"),
        ('"2 core"', '"4 core + 5 narrow"', "must be 1 to 8 cores"),
        ('"2 core"', '"0 core"', "must be 1 to 8 cores"),
        ('"2 core"', '"core and core"', "names no cores"),
        ('"2 core"', '"core + big"', "big"),
        ('"core + narrow"', '"core"', "no system has the core 'narrow'"),
        ("[cores.narrow]", "[cores.core]", "'core' is no name of a further core"),
        ("block_in = 8", "blocks = 8", "there is no field 'blocks'"),
        ('"own"', '"both"', "'both' are no ports"),
        ('"ddr3-1066x16"', '"ddr9"', "unknown memory 'ddr9'"),
        ('"networks"', '"rows"', "split"),
        ("[search]", '[search]\njudge = "layers"', "knows one core on a flat memory"),
    ],
)
def test_what_is_no_system_is_refused_with_its_place(old: str, new: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(UNLIKE.replace(old, new, 1))
    with pytest.raises(ExploreError, match=r"s\.toml") as error:
        load_space(path)
    assert text in str(error.value)


def test_systems_that_cannot_be_are_refused_points() -> None:
    wrong = point_of(space_of(system={"cores": 3, "ports": "0 2"}))
    assert (wrong.status, "2 ports for 3 cores" in wrong.reason) == ("refused", True)
    slow = point_of(space_of(memory={"banks": "ddr3-1066x16", "latency": 2}))
    assert "takes" in slow.reason
    assert "longer latency" in slow.reason
    wide = point_of(space_of(cores={"b": {"bus_bits": 128}}, system={"cores": "core + b"}))
    assert "bus_bits" in wide.reason
    batches = point_of(space_of(cores={"b": {"batch": 2}}, system={"cores": "core + b"}))
    assert "different numbers of images" in batches.reason


def test_named_configurations_are_cores(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(replace(TINY, queue_depth=4).to_json())
    mixed = design({"cores": f"core + pynq + {tmp_path / 'own.json'}", "ports": "0 1 0"})
    assert [core.hash64 for core in mixed.cores] == [TINY.hash64, PYNQ.hash64, replace(TINY, queue_depth=4).hash64]
    assert mixed.system is not None
    assert mixed.system.config.ports == (0, 1, 0)


@pytest.mark.parametrize("banks", ["flat", "ddr3-1066x16"])
@pytest.mark.parametrize(("ports", "shares"), [("one", False), ("one", True), ("own", False)])
def test_pictures_take_the_cycles_of_the_system(
    ports: str, shares: bool, banks: str, networks: tuple[Network, Network]
) -> None:
    pair = design({"cores": 2, "ports": ports, "shared_reads": shares}, memory={"banks": banks})
    assert pair.system is not None
    found = measure_point(pair, networks[0])
    model = compiled(replace(pair, system=None), networks[0])
    memory = DramModel(bytes_per_cycle=TINY.bus_bytes, banks=None if banks == "flat" else parse_dram_kind(banks))
    truth = profile_system(model, pair.system.config, memory)
    assert (found.cycles, found.batch) == (truth.cycles, 2)
    alone = measure(replace(pair, system=None), networks[0])
    assert (found.macs, found.host_operations) == (2 * alone.macs, 2 * alone.host_operations)
    assert found.bytes_read == 2 * alone.bytes_read
    assert sum(row[2] for row in found.layers) <= found.cycles
    assert Measure.from_values(json.loads(json.dumps(found.to_values()))) == found
    if ports == "own" and banks == "flat":
        assert found.cycles == alone.cycles
        assert used(pair, found) == used(replace(pair, system=None), alone)
        energy = point_pj(pair.cores, found, host_of(space_of()))
        assert sum(energy.values()) == pytest.approx(2 * sum(energy_pj(TINY, alone, host_of(space_of())).values()))


def test_one_core_without_banks_is_the_core_itself(networks: tuple[Network, Network]) -> None:
    single = design({"cores": 1})
    found, alone = measure_point(single, networks[0]), measure_point(replace(single, system=None), networks[0])
    assert replace(found, parts=()) == alone


def test_pictures_on_unlike_cores_are_done_when_the_slowest_is(networks: tuple[Network, Network]) -> None:
    mixed = design({"cores": "core + narrow", "ports": "own"}, cores={"narrow": {"block_in": 8, "depthwise": 0}})
    found = measure_point(mixed, networks[1])
    each = [measure(replace(mixed, config=core, system=None), networks[1]) for core in mixed.cores]
    assert (found.cycles, found.batch) == (max(one.cycles for one in each), 2)
    assert found.host_macs == sum(one.host_macs for one in each) > 0
    last = max(range(2), key=lambda core: each[core].cycles)
    assert found.layers == each[last].layers
    assert found.parts[0][0] == last


def test_networks_share_a_system(networks: tuple[Network, Network]) -> None:
    cores = {"narrow": {"block_in": 8, "depthwise": 0}}
    apart = design({"cores": "core + narrow", "ports": "own", "split": "networks"}, cores=cores)
    alone = [[measure(replace(apart, config=core, system=None), each) for core in apart.cores] for each in networks]
    processor, mhz = host_of(space_of()), 100
    left = [[processor.seconds(one.host) * mhz * 1e6 for one in row] for row in alone]
    places = placement([[one.cycles for one in row] for row in alone], left)
    assert sorted(places) == [0, 1]  # a core for each is faster than both on one
    for network, row, place in zip(networks, alone, places, strict=True):
        found = measure_point(apart, network, networks)
        assert replace(found, parts=()) == row[place]
        assert [part[0] for part in found.parts] == [place]
    one_port = design({"cores": "core + narrow", "split": "networks"}, cores=cores)
    met = [measure_point(one_port, each, networks).cycles for each in networks]
    assert all(cycles >= row[place].cycles for cycles, row, place in zip(met, alone, places, strict=True))
    assert sum(met) > sum(row[place].cycles for row, place in zip(alone, places, strict=True))


def test_cores_begin_each_program_together(tmp_path: Path) -> None:
    """The narrow core leaves the layer in the middle to the host, so it has two programs; the square one has one."""
    network = open_network(two_layers(tmp_path / "three.onnx", third=True))
    cores = {"narrow": {"block_in": 8, "depthwise": 0}}
    for names in ("2 narrow", "core + narrow"):
        system = design({"cores": names, "ports": "own"}, cores=cores)
        programs = []
        for core in system.cores:
            model = compiled(replace(system, config=core, system=None), network)
            programs.append([predict(core, each.program, offset=each.program_offset).cycles or 0
                             for each in model.programs])  # fmt: skip
        assert [len(each) for each in programs] == ([2, 2] if names == "2 narrow" else [1, 2])
        first, second = max(each[0] for each in programs), programs[1][1]
        assert measure_point(system, network).cycles == max(first + second, sum(programs[0]))


@pytest.mark.parametrize("split", ["pictures", "networks"])
def test_unlike_cores_have_parts_of_one_memory(split: str, networks: tuple[Network, Network]) -> None:
    """Rows and banks follow from where a core's window lies: behind that of the core before it."""
    cores = {"narrow": {"block_in": 8, "depthwise": 0}}
    mixed = design({"cores": "core + narrow", "ports": "own", "split": split}, cores=cores,
                   memory={"banks": "ddr3-1066x16", "bytes_per_cycle": 8})  # fmt: skip
    assert mixed.system is not None
    found = [measure_point(mixed, each, networks) for each in networks]
    chosen = [0, 0] if split == "pictures" else [next(n for n in (0, 1) if found[n].parts[0][0] == c) for c in (0, 1)]
    models = [compiled(replace(mixed, config=core, system=None), networks[number])
              for core, number in zip(mixed.cores, chosen, strict=True)]  # fmt: skip
    starts = [0, -(-models[0].on_core.window_bytes // 4096) * 4096]
    programs = [
        TimedProgram(code=model.programs[0].program, offset=model.programs[0].program_offset, window_start=start)
        for model, start in zip(models, starts, strict=True)
    ]
    truth = predict_system(mixed.system.config, programs, mixed.system.memory)
    ends = [core and core.cycles for core in truth.cores]
    if split == "pictures":
        assert found[0].cycles == truth.cycles
    else:
        assert [found[number].cycles for number in chosen] == ends
    moved = [replace(program, window_start=0) for program in programs]
    assert [
        core and core.cycles for core in predict_system(mixed.system.config, moved, mixed.system.memory).cores
    ] != ends


@pytest.mark.parametrize("names", ["2 core", "core + narrow"])
def test_stages_take_the_cycles_of_a_pipeline(names: str, networks: tuple[Network, Network]) -> None:
    tables = {"cores": {"narrow": {"block_in": 8, "depthwise": 0}}} if "narrow" in names else {}
    axes = {"cores": names, "ports": "own", "split": "stages"}
    pair, space = design(axes, **tables), space_of(system=axes, **tables)
    assert pair.system is not None
    found = measure_point(pair, networks[0])
    on: dict[str, Any] = {"config": TINY, "stages": 2} if names == "2 core" else {"cores": pair.cores}
    model = weft.compile(DIGITS, chains=False, **on)
    assert isinstance(model, weft.CompiledModel)
    module = weft.load(model, replace(pair.system.config, cores=model.on_core.cores or (TINY, TINY)))
    items = [np.zeros(model.inputs[0].shape, np.float32)] * 3
    module.run(items)
    assert isinstance(module, PipelineModule)
    assert (found.cycles, found.batch, found.rounds) == (module.interval, 1, 2)
    assert sorted(part[0] for part in found.parts) == [0, 1]
    assert found.macs == sum(layer.macs for layer in model.layers if layer.device == "core")
    assert {row[0] for row in found.layers} == {layer.name for layer in model.layers if layer.device == "core"}
    assert Measure.from_values(found.to_values()) == found
    point = with_measures(space, point_of(space), {"digits": found})
    host = host_cycles(space, found)
    assert point.figures["throughput"] == pytest.approx(1e9 / (found.cycles + host))
    assert point.figures["latency"] == pytest.approx(2 * found.cycles + host)


def test_stages_are_cut_for_the_ports_that_their_cores_share(tmp_path: Path) -> None:
    source = bytes_first(tmp_path)
    three = design({"cores": 3, "ports": "0 0 1", "split": "stages"}, base="pynq", memory={"bytes_per_cycle": 2})
    model = weft.compile(source, PYNQ, stages=3, ports=(0, 0, 1), dram=three.rate, chains=False)
    assert isinstance(model, weft.CompiledModel)
    programs = [(step.program, step.program_offset) for step in model.programs]
    found = measure_point(three, open_network(source))
    assert found.cycles == max(cycles_together([PYNQ] * 3, (0, 0, 1), three.rate, programs))


def test_a_core_with_two_networks_does_them_in_turn(networks: tuple[Network, Network]) -> None:
    three = (*networks, replace(networks[1], name="again"))
    pair = design({"cores": 2, "ports": "own", "split": "networks"})
    found = [measure_point(pair, each, three) for each in three]
    turns = {each.started for each in found}
    assert len(turns) == 2
    assert min(turns) == 0
    assert max(turns) == max(each.cycles for each in found if not each.started)  # that turn ends with the slower
    space = space_of(system={"cores": 2, "ports": "own", "split": "networks"})
    point = with_measures(space, point_of(space), {each.name: one for each, one in zip(three, found, strict=True)})
    core = max(each.started + each.cycles for each in found)
    assert point.figures["latency"] == pytest.approx(core + 3 * point.figures["host_cycles"], rel=0.5)
    assert point.figures["latency"] > core
    assert point.figures["throughput"] == pytest.approx(3e9 / point.figures["latency"])


def test_networks_go_where_the_round_ends_first() -> None:
    def places(cycles: list[list[int]], host: list[list[float]] | None = None) -> tuple[int, ...]:
        return placement(cycles, host or [[0.0] * len(row) for row in cycles])

    assert places([[10, 30], [30, 10]]) == (0, 1)
    assert places([[30, 10], [10, 30]]) == (1, 0)
    assert places([[10, 90], [10, 90]]) == (0, 0)  # in turn on one core
    assert places([[10, 10], [8, 8], [9, 9]]) == (0, 0, 1)  # turns of 10 and 8, not of 10 and 9
    assert places([[10, 2], [10, 8]], [[1.0, 50.0], [0.0, 0.0]]) == (0, 1)  # what is left to the host counts
    assert places([[5]]) == (0,)
    with pytest.raises(ExploreError, match="placements"):
        places([[1] * 8] * 6)
    assert MOST_PLACEMENTS < 8**6


def test_throughput_is_of_all_images_of_a_round() -> None:
    fake = {
        name: Measure(cycles, 1, 500, 5, 5, 64, 64, (), host_operations=2) for name, cycles in (("a", 100), ("b", 300))
    }
    core = space_of()
    (assignment,) = core.assignments()
    alone = with_measures(core, design_of(core, assignment), fake).figures
    host = 2 * 100 / (650 * 2)  # cycles at 100 MHz of two operations
    assert alone["latency"] == pytest.approx(400 + 2 * host)
    assert alone["throughput"] == pytest.approx(2e9 / alone["latency"])
    space = space_of(system={"cores": 2, "ports": "own"})
    pictures = {name: replace(each, batch=2, host_operations=4) for name, each in fake.items()}
    pair = with_measures(space, point_of(space), pictures).figures
    assert pair["latency"] == pytest.approx(400 + 4 * host)
    assert pair["throughput"] == pytest.approx(4e9 / pair["latency"])
    assert pair["cycles"] == pytest.approx(((50 + host) * (150 + host)) ** 0.5)
    shared = space_of(system={"cores": 2, "ports": "own", "split": "networks"})
    assert with_measures(shared, point_of(shared), fake).figures["latency"] == pytest.approx(300 + 2 * host)


def test_a_system_takes_its_cores_and_its_arbiters() -> None:
    core = point_of(space_of()).area
    assert core is not None
    luts = {}
    for ports in ("own", "one", "0 0 1 1"):
        area = point_of(space_of(system={"cores": 4, "ports": ports})).area
        assert area is not None
        assert (area.DSP, area.BRAM36) == (4 * core.DSP, 4 * core.BRAM36)
        luts[ports] = area.LUT - 4 * core.LUT
    assert luts == {"own": 0, "one": 245, "0 0 1 1": 2 * 226}  # docs/systems.md
    sharing = point_of(space_of(system={"cores": 2, "shared_reads": True})).area
    assert sharing is not None
    assert sharing.LUT - 2 * core.LUT == 436
    ecp5 = find_part("LFE5U-85F")
    system = design({"cores": 2}).system
    assert system is not None
    assert pytest.approx(1.46 * 226, abs=1) == ecp5.system_area(system.config).LUT - 2 * ecp5.area(TINY).LUT


def test_keys_tell_systems_apart(networks: tuple[Network, Network]) -> None:
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"cores": 1}, {}), ({"cores": 2}, {}), ({"cores": 2, "ports": "own"}, {}),
        ({"cores": 2, "shared_reads": True}, {}), ({"cores": 2, "split": "networks"}, {}),
        ({"cores": 2}, {"banks": "ddr3-1066x16"}), ({"cores": 2}, {"banks": "ddr3-1066x16@50"}),
        ({"cores": 2}, {"latency": 90}), ({"cores": "core + tiny", "ports": "own"}, {"bytes_per_cycle": 4}),
    ]  # fmt: skip
    keys = [measure_key(design(system, memory=memory), networks[0], networks=networks) for system, memory in tables]
    assert len(set(keys)) == len(keys)
    shared = design({"cores": 2, "split": "networks"})
    assert measure_key(shared, networks[0], networks=networks[:1]) != measure_key(
        shared, networks[0], networks=networks
    )
    pictures = design({"cores": 2})
    assert measure_key(pictures, networks[0], networks=networks[:1]) == measure_key(
        pictures, networks[0], networks=networks
    )


def test_the_command_shows_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = UNLIKE.replace("[8, 16]", "[8]").replace("[4, 8]", "[8]").replace('["flat", ', "[")
    (tmp_path / "s.toml").write_text(space)
    two = two_layers(tmp_path / "two.onnx")
    files = {name: str(tmp_path / name) for name in ("s.toml", "e.sqlite", "p.html", "r.csv", "r.json")}
    words = ["explore", files["s.toml"], "--networks", str(two), "--networks", str(DIGITS), "--workers", "0",
             "--database", files["e.sqlite"]]  # fmt: skip
    assert run(app, [*words, "--page", files["p.html"], "-o", files["r.csv"]], err) == 0
    assert "Gcycle" in capsys.readouterr().out
    assert run(app, [*words, "-o", files["r.json"]], err) == 0
    assert "0 measured in this run" not in capsys.readouterr().err
    rows = list(csv.DictReader(Path(files["r.csv"]).read_text().splitlines()))
    measured = [row for row in rows if row["status"] == "measured"]
    assert {row["system.cores"] for row in measured} == {"1", "2 core", "core + narrow"}
    assert all(float(row["throughput"]) > 0 and float(row["latency"]) > 0 for row in measured)
    document = json.loads(Path(files["r.json"]).read_text())
    assert (document["measured"], document["reused"]) == (0, 2 * len(measured))
    systems = [point["system"] for point in document["points"] if point["status"] == "measured"]
    assert all(each["memory"].endswith("ddr3-1066x16 beside a core of 100 MHz") for each in systems)
    assert {len(each["cores"]) for each in systems} == {1, 2}


def test_the_page_has_systems(tmp_path: Path, networks: tuple[Network, Network]) -> None:
    space = Space.model_validate(tomllib.loads(UNLIKE.replace("chains = false", "chains = true")))

    def fake(design: Design, network: Network, others: tuple[Network, ...]) -> Measure:
        assert others == networks
        macs = sum(core.macs_per_cycle for core in design.cores)
        parts = tuple((core, 5, 5, 64, 64) for core in reversed(range(len(design.cores))))
        return Measure(10**6 // macs, len(design.cores), 500, 5, 5, 64, 64, (), parts=parts)

    with Database(tmp_path / "e.sqlite") as database:
        study = explore(space, networks, database, workers=0, measurer=fake)
    assert study.count("measured") > 10
    data = page_data(study)
    for shown, point in zip(data["points"], study.points, strict=True):
        if point.status != "measured":
            continue
        assert point.design is not None
        assert point.design.system is not None
        again = Space.model_validate(tomllib.loads(shown["space"]))
        (assignment,) = again.assignments()
        assert design_of(again, assignment).design == point.design
        assert json.loads(shown["config"])["ports"] == list(point.design.system.config.ports)
        assert set(shown["macs_per_cycle"].values()) == {point.design.cores[-1].macs_per_cycle}
        profiles = [each for each in shown["commands"] if "weft profile" in each]
        assert len(profiles) == (2 if point.design.system.alike else 0)
        assert all("--system" in each for each in profiles)
        assert all(("--memory" in each) == (point.design.system.memory.banks is not None) for each in profiles)
    record = record_of(space, study.points[study.front()[0]])
    assert record["system"]["split"] == "pictures"


def test_a_front_of_systems_is_validated_on_the_rtl(networks: tuple[Network, Network]) -> None:
    space = space_of(system={"cores": 2}, memory={"banks": "ddr3-1066x16"})
    (check,) = validate([point_of(space)], networks[0], lambda _: None)
    assert check.good, check
    assert check.core.startswith("2 x 1x4x4")
    unlike = space_of(system={"cores": "core + pynq", "ports": "own"})
    with pytest.raises(ExploreError, match="unlike cores"):
        validate([point_of(unlike)], networks[0], lambda _: None)
