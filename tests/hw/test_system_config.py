"""Systems as data: what JSON says, and what is refused with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from weft.hw.config import PYNQ, TINY, WIDE, load_config
from weft.hw.errors import ConfigError
from weft.hw.system_config import SystemConfig, load_system


def test_json_comes_back_and_has_defaults() -> None:
    system = SystemConfig(name="mixed", cores=(PYNQ, replace(PYNQ, name="other", wgt_depth=512), PYNQ), ports=(0, 1, 0))
    assert SystemConfig.from_json(system.to_json()) == system
    assert (system.port_count, system.cores_of(0), system.cores_of(1)) == (2, (0, 2), (1,))
    assert SystemConfig.from_json('{"cores": ["pynq", {"wgt_depth": 512}]}') == SystemConfig(
        cores=(PYNQ, replace(PYNQ, name="custom", wgt_depth=512, depthwise=0)), ports=(0, 0)
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[]", "expected an object"), ("{", "not a system in JSON: .*; hint: fields: cores, name"),
     ("{}", "cores: a system needs a list"),
     ('{"cores": []}', "cores: a system has 1 to 8 cores, not 0"),
     ('{"cores": "pynq"}', "cores: a system needs a list"),
     ('{"cores": ["tiny", "huge"]}', r"cores\[1\]: unknown configuration 'huge'"),
     ('{"cores": ["tiny", {"bock": 3}]}', r"cores\[1\]: unknown configuration field 'bock'"),
     ('{"cores": [3]}', r"cores\[0\]: 3 is neither"),
     ('{"cores": ["tiny"], "prts": []}', "unknown system field 'prts'"),
     ('{"cores": ["tiny", "wide"]}', r"cores\[1\]: bus_bits is 128, but core 0 has 64"),
     ('{"cores": ["tiny", "tiny"], "ports": [0]}', "ports: 1 ports for 2 cores"),
     ('{"cores": ["tiny", "tiny"], "ports": [0, 2]}', "ports: no core has port 1"),
     ('{"cores": ["tiny"], "ports": [-1]}', "ports: .* are not all numbers of ports"),
     ('{"cores": ["tiny"], "ports": [true]}', "ports: .* are not all numbers of ports"),
     ('{"cores": ["tiny"], "ports": "0"}', "ports must be a list"),
     ('{"cores": ["tiny", "tiny"], "weights": 2}', "weights must be a list"),
     ('{"cores": ["tiny", "tiny"], "weights": [2]}', "weights: 1 weights for 2 cores"),
     ('{"cores": ["tiny", "tiny"], "weights": [1, 0]}', r"weights\[1\]: a weight must be 1 to 15 bursts, not 0"),
     ('{"cores": ["tiny", "tiny"], "weights": [16, 1]}', r"weights\[0\]: a weight must be 1 to 15 bursts, not 16"),
     ('{"cores": ["tiny", "tiny"], "weights": [1, 1.5]}', r"weights\[1\]: a weight must be 1 to 15 bursts, not 1.5"),
     ('{"cores": ["tiny", "tiny"], "ports": [0, 1], "weights": [1, 2]}',
      r"weights\[1\]: core 1 has port 1 alone, so it waits for no turn"),
     ('{"cores": ["tiny"], "name": 3}', "name must be a text")],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        SystemConfig.from_json(text)
    (tmp_path / "system.json").write_text(text)
    with pytest.raises(ConfigError, match=r"system\.json: "):
        load_system(tmp_path / "system.json")


def test_weights_are_of_each_core_and_come_back() -> None:
    plain = SystemConfig(cores=(TINY, TINY))
    assert plain == SystemConfig(cores=(TINY, TINY), weights=(1, 1))
    assert [plain.weight_of(core) for core in range(2)] == [1, 1]
    assert replace(plain, cores=(TINY,) * 3, ports=()).weights == ()
    assert SystemConfig(cores=(TINY, TINY), weights=(1, 15)).weight_of(1) == 15
    system = SystemConfig(cores=(TINY, TINY, TINY), ports=(0, 1, 0), weights=(4, 1, 2))
    assert [system.weight_of(core) for core in range(3)] == [4, 1, 2]
    assert SystemConfig.from_json(system.to_json()) == system


def test_only_cores_on_one_port_share_reads() -> None:
    system = SystemConfig.from_json('{"cores": ["tiny", "tiny"], "shared_reads": true}')
    assert system.shared_reads
    assert SystemConfig.from_json(system.to_json()) == system
    assert not SystemConfig(cores=(TINY, TINY)).shared_reads
    for text, problem in (
        ('{"cores": ["tiny", "tiny"], "ports": [0, 1], "shared_reads": true}', "shared_reads: no two cores have one"),
        ('{"cores": ["tiny"], "shared_reads": true}', "shared_reads: no two cores have one port"),
        ('{"cores": ["tiny", "tiny"], "shared_reads": 1}', "shared_reads must be true or false, not 1"),
        ('{"cores": ["tiny"], "relay": 1}', "relay must be true or false, not 1"),
    ):
        with pytest.raises(ConfigError, match=problem):
            SystemConfig.from_json(text)


def test_python_meets_the_same_rules() -> None:
    for cores in ((), (TINY,) * 9, (TINY, WIDE), "tiny", (TINY, "tiny")):
        with pytest.raises(ConfigError, match="cores"):
            SystemConfig(cores=cores)  # type: ignore[arg-type]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_bytes(b"{\xff")
    with pytest.raises(ConfigError, match=r"system.json: not a configuration: byte 1 is no text$"):
        load_system(path)
    with pytest.raises(ConfigError, match=r"system.json: not a configuration: byte 1 is no text$"):
        load_config(str(path))
    path.write_text('{"cores": ["pynq", "pinq"]}')
    with pytest.raises(ConfigError, match=r"system.json: cores\[1\]: unknown configuration 'pinq'"):
        load_system(path)
