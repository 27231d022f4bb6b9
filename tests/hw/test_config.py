"""The configuration refuses what cannot be built, and identifies what can."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from weft.hw.config import NAMED, ONCE_CONSTANT, PYNQ, CoreConfig, load_config, named_config
from weft.hw.errors import ConfigError
from weft.hw.memories import SCRATCHPADS, Memory
from weft.hw.system_config import SystemConfig, load_system


def test_pynq_has_the_buffer_sizes_of_vta() -> None:
    assert PYNQ.inp_depth * PYNQ.inp_bytes == 32 * 1024
    assert PYNQ.wgt_depth * PYNQ.wgt_bytes == 256 * 1024
    assert PYNQ.acc_depth * PYNQ.acc_bytes == 128 * 1024
    assert PYNQ.bus_bits == 64
    assert PYNQ.macs_per_cycle == 256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_in": 12}, r"block_in must be a power of two in 2\.\.128, not 12"),
        ({"batch": 0}, r"batch must be a power of two in 1\.\.16, not 0"),
        ({"bus_bits": 32}, r"bus_bits must be a power of two in 64\.\.512, not 32"),
        ({"burst_beats": 24}, r"burst_beats must be a power of two in 1\.\.256, not 24"),
        ({"burst_beats": 512}, r"burst_beats must be a power of two in 1\.\.256, not 512"),
        ({"bus_bits": 1024}, r"bus_bits must be a power of two in 64\.\.512, not 1024"),
        (
            {"acc_depth": 16, "acc_banks": 8},
            "acc_banks=8 leaves 2 entries a bank, but a bank needs 4; hint: use fewer",
        ),
        ({"token_depth": 256}, r"token_depth must be in 1\.\.255, not 256"),
        ({"address_bits": 20}, r"address_bits must be in 32\.\.64, not 20"),
        ({"inp_depth": 2048.0}, r"inp_depth must be an integer, not 2048\.0"),
        ({"name": {}}, r"name must be a text, not \{\}"),
        ({"block_in": 128, "block_out": 128}, r"one wgt entry would be 131072 bits wide"),
        ({"rounding": "up"}, "rounding must be one of half_up, float32, two_roundings, half_away, half_even, not 'up'"),
        ({"tables": 3}, r"tables must be 0 or a power of two in 1\.\.16, not 3"),
        ({"tables": 32}, r"tables must be 0 or a power of two in 1\.\.16, not 32"),
        ({"tables": -1}, r"tables must be 0 or a power of two in 1\.\.16, not -1"),
        ({"depthwise": 2}, "depthwise must be 0 or 1, not 2"),
        ({"batch": 2}, "depthwise=1 needs batch=1 .* not batch=2, .*; hint: a core of this shape has depthwise=0"),
        ({"block_in": 32}, "depthwise=1 needs .* block_in = block_out >= 16, not .*, block_in=32, block_out=16"),
        ({"block_in": 8, "block_out": 8}, "depthwise=1 needs .* block_in=8, block_out=8"),
        ({"weight_group": 16}, "weight_group must be 0 or one of 32, 64, 128, not 16"),
        ({"weight_group": -64}, "weight_group must be 0 or one of 32, 64, 128, not -64"),
        (
            {"depthwise": 0, "block_in": 64, "weight_group": 32},
            "weight_group=32 is less than block_in=64: .*; hint: use weight_group=64 or more",
        ),
        (
            {"depthwise": 0, "block_in": 8, "wgt_depth": 8, "weight_group": 128},
            "weight_group=128 takes 16 wgt entries, but wgt_depth=8; hint: use a smaller group or a deeper wgt",
        ),
        (
            {"depthwise": 0, "block_in": 4, "block_out": 16, "bus_bits": 512, "weight_group": 32},
            "weight_group=32 needs wgt entries of two bus words or more, but an entry has 64 bytes and a word 64",
        ),
    ],
)
def test_an_illegal_combination_is_refused_with_its_reason(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(PYNQ, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", NAMED.values(), ids=NAMED)
def test_json_reads_back(config: CoreConfig) -> None:
    assert CoreConfig.from_json(config.to_json()) == config


def test_json_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown configuration field 'colour'"):
        CoreConfig.from_json(PYNQ.to_json().replace('"batch"', '"colour"'))


@pytest.mark.parametrize("field", [field for field in json.loads(PYNQ.to_json()) if field not in ONCE_CONSTANT])
def test_json_may_leave_a_field_at_its_default(field: str) -> None:
    values = json.loads(PYNQ.to_json())
    del values[field]
    assert CoreConfig.from_json(json.dumps(values)) == replace(PYNQ, **{field: getattr(CoreConfig(), field)})


def test_json_may_say_only_what_differs() -> None:
    assert CoreConfig.from_json('{"block_in": 8}') == CoreConfig(block_in=8)
    assert CoreConfig.from_json("{}") == CoreConfig()


def test_a_configuration_of_before_bursts_had_a_field_is_the_same_core() -> None:
    core = replace(PYNQ, depthwise=0)
    text = core.to_json().replace('"burst_beats":64,', "")
    assert "burst_beats" not in text
    assert CoreConfig.from_json(text) == core


def test_a_configuration_of_before_the_depthwise_mode_is_a_core_without_it() -> None:
    text = PYNQ.to_json().replace('"depthwise":1,', "")
    assert "depthwise" not in text
    core = CoreConfig.from_json(text)
    assert core == replace(PYNQ, depthwise=0)
    assert core.hash64 != PYNQ.hash64


def test_a_configuration_of_before_tables_is_a_core_without_them() -> None:
    text = PYNQ.to_json().replace(',"tables":0', "")
    assert "tables" not in text
    assert CoreConfig.from_json(text) == PYNQ
    assert PYNQ.scratchpads == SCRATCHPADS


def test_a_core_that_does_not_round_in_float32_is_the_core_of_before() -> None:
    assert "rounding" not in PYNQ.to_json()
    assert PYNQ.hash64 == 0x89C05567F96309B8
    rounds = replace(PYNQ, rounding="float32")
    assert CoreConfig.from_json(rounds.to_json()) == rounds
    assert rounds.hash64 != PYNQ.hash64


def test_a_core_with_tables_has_a_memory_for_them_with_a_column_a_lane() -> None:
    core = replace(PYNQ, depthwise=0, batch=2, block_out=32, tables=16)
    assert CoreConfig.from_json(core.to_json()) == core
    assert core.scratchpads == (*SCRATCHPADS, Memory.TAB)
    assert core.depth(Memory.TAB) == 16 * 256
    assert core.entry_elements(Memory.TAB) == core.lanes == 64
    assert core.index_bits == 12
    assert core.hash64 != replace(core, tables=8).hash64


def test_a_core_without_4_bit_weights_is_the_core_of_before_there_were_any() -> None:
    assert "weight_group" not in PYNQ.to_json()
    assert PYNQ.hash64 == 0x89C05567F96309B8
    with_them = replace(PYNQ, weight_group=128)
    assert CoreConfig.from_json(with_them.to_json()) == with_them
    assert len({PYNQ.hash64, with_them.hash64, replace(PYNQ, weight_group=64).hash64}) == 3


@pytest.mark.parametrize(
    ("core", "head", "entries", "size"),
    [
        (replace(PYNQ, weight_group=32), 16, 2, 272),
        (replace(PYNQ, weight_group=64), 16, 4, 528),
        (replace(PYNQ, weight_group=128), 16, 8, 1040),
        (CoreConfig(block_in=64, block_out=64, bus_bits=512, weight_group=64), 64, 1, 2112),
        (CoreConfig(block_in=8, block_out=16, bus_bits=256, weight_group=64), 32, 8, 544),
    ],
)
def test_a_record_of_weights_is_a_head_and_half_a_byte_a_weight(
    core: CoreConfig, head: int, entries: int, size: int
) -> None:
    assert (core.weight_head_bytes, core.weight_record_entries, core.weight_record_bytes) == (head, entries, size)
    assert size % core.granule_bytes == size % core.bus_bytes == 0


CORES = {"depthwise": PYNQ, "plain": replace(PYNQ, depthwise=0), "tables": replace(PYNQ, tables=2)}


@pytest.mark.parametrize("config", CORES.values(), ids=CORES)
def test_the_banks_of_a_scratchpad_hold_each_entry_once(config: CoreConfig) -> None:
    for memory in config.scratchpads:
        entries = range(config.depth(memory))
        held = [entries[config.bank_entries(memory, bank)] for bank in range(config.banks(memory))]
        assert sorted(entry for bank in held for entry in bank) == list(entries)
        assert len({len(bank) for bank in held}) == 1


def test_the_hash_follows_every_field_but_the_name() -> None:
    assert replace(PYNQ, name="other").hash64 == PYNQ.hash64
    assert replace(PYNQ, queue_depth=64).hash64 != PYNQ.hash64
    assert replace(PYNQ, burst_beats=16).hash64 != PYNQ.hash64
    assert len({config.hash64 for config in NAMED.values()}) == len(NAMED)


def test_deep_scratchpads_get_wider_instructions() -> None:
    assert PYNQ.instruction_bits == 128
    assert replace(PYNQ, inp_depth=4096).instruction_bits == 256
    assert replace(PYNQ, inp_depth=65536).instruction_bits == 256


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError,
        match="unknown configuration 'zynq'; hint: known: pynq, pynq-float32, pynq-reference, pynq-tables",
    ):
        named_config("zynq")


def test_a_file_with_a_wrong_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "core.json"
    path.write_text('{"block_on": 8}')
    with pytest.raises(ConfigError, match=r"^.*core\.json: unknown configuration field 'block_on'"):
        load_config(str(path))


@pytest.mark.parametrize("read", [CoreConfig.from_json, SystemConfig.from_json])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "a", "name": "b"}', "name: 'name' is given twice; hint: leave one of them out"),
        ('{"name": ' + "9" * 5000 + "}", "in JSON: "),
        ('{"name": ' + "[" * 100_000, "in JSON: "),
    ],
    ids=["twice", "digits", "depth"],
)
def test_json_that_python_reads_in_its_own_way_or_not_at_all_is_refused(
    read: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(text)


@pytest.mark.parametrize("read", [load_config, load_system])
def test_a_file_that_is_not_there_is_named(read: Callable[[str], object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: No such file or directory"):
        read(str(tmp_path / "none.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ConfigError, match=r"folder\.json: Is a directory"):
        read(str(tmp_path / "folder.json"))
