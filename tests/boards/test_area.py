"""The area model against cores that were synthesised: exact in DSP and block RAM, close in LUT when held out."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from weft.boards.area import (
    LutModel,
    MeasuredModules,
    area_of,
    block_rams,
    bram36_of,
    distributed_luts,
    dsp_of,
    ecp5_area,
    ecp5_shallow,
    lut_model,
    lutrams,
    measured_modules,
)
from weft.boards.fit import measurements
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig

HELD_OUT, FITTED = 0.06, 0.03
"""Largest errors of LUT that there are: `tiny` is smaller than all others, so held out it is extrapolated to."""

WITHOUT_THE_MODE = [each for each in measured_modules() if not each.core.depthwise]


@pytest.mark.parametrize("measured", measured_modules(), ids=lambda each: each.core.name)
def test_dsp_and_block_ram_are_exact(measured: MeasuredModules) -> None:
    assert dsp_of(measured.core) == measured.total["DSP"]
    assert bram36_of(measured.core) == measured.total["BRAM36"]


def test_dsp_and_block_ram_are_exact_for_the_cores_of_boards() -> None:
    for each in measurements():
        assert dsp_of(each.core) == each.figures["DSP"], each.core.name
        assert bram36_of(each.core) == each.figures["BRAM36"], each.core.name


@pytest.mark.parametrize("measured", WITHOUT_THE_MODE, ids=lambda each: each.core.name)
def test_luts_of_a_core_held_out(measured: MeasuredModules) -> None:
    model = LutModel([each for each in measured_modules() if each is not measured])
    assert model.luts(measured.core) == pytest.approx(measured.total["LUT"], rel=HELD_OUT)


@pytest.mark.parametrize("measured", measured_modules(), ids=lambda each: each.core.name)
def test_luts_of_a_core_that_was_fitted(measured: MeasuredModules) -> None:
    assert lut_model().luts(measured.core) == pytest.approx(measured.total["LUT"], rel=FITTED)


@pytest.mark.parametrize("core", [TINY, replace(PYNQ, depthwise=0), WIDE], ids=lambda core: core.name)
@pytest.mark.parametrize("field", ["batch", "block_in", "block_out", "acc_banks", "bus_bits"])
def test_more_of_anything_takes_more(core: CoreConfig, field: str) -> None:
    more = replace(core, **{field: 2 * getattr(core, field)})
    before, after = area_of(core), area_of(more)
    assert after.LUT > before.LUT
    assert after.DSP >= before.DSP
    if field != "bus_bits":  # wider chunks of a scratchpad's words may fit block RAM better
        assert after.BRAM36 >= before.BRAM36


@pytest.mark.parametrize(
    ("words", "bits", "chunk", "expected"),
    [
        (512, 72, 72, 1), (512, 36, 36, 0.5), (513, 36, 36, 1), (1024, 18, 18, 0.5), (2048, 9, 9, 0.5),
        (512, 64, 8, 1),  # eight enables of a byte each
        (512, 512, 64, 8), (64, 512, 64, 0), (65, 8, 8, 0.5), (4096, 128, 64, 16),
    ],
)  # fmt: skip
def test_block_rams_of_a_memory(words: int, bits: int, chunk: int, expected: float) -> None:
    assert block_rams(words, bits, chunk) == expected


MEASURED_SCRATCHPADS = [
    (64, 512, 64, 712), (32, 512, 64, 360), (16, 512, 64, 360), (64, 2048, 64, 2848), (64, 1024, 128, 1384),
    (32, 256, 64, 180), (128, 512, 64, 8),
]  # fmt: skip
"""Words, bits and bits of a write enable of ``hw.scratchpad.Scratchpad``, and its LUT from Yosys, synthesised alone."""


@pytest.mark.parametrize(("words", "bits", "chunk", "measured"), MEASURED_SCRATCHPADS)
def test_luts_of_a_scratchpad_as_synthesised(words: int, bits: int, chunk: int, measured: int) -> None:
    enables = bits // chunk  # a LUT each; of block RAM, too, so that the parts of a core have them
    assert lutrams(words, bits, chunk) + enables == measured
    assert (lutrams(words, bits, chunk) > 0) == (block_rams(words, bits, chunk) == 0)


@pytest.mark.parametrize(
    ("words", "others", "luts", "rams"), [(64, 138, 138, 2), (32, 4, 516, 0), (16, 2, 194, 0), (128, 135, 135, 0)]
)
def test_a_scratchpad_as_synthesised_for_ecp5(words: int, others: int, luts: int, rams: float) -> None:
    """128 bits in chunks of 64; ``others`` are LUT beside the memory. Of 128 words all is in the closed form."""
    taken, blocks = ecp5_shallow(words, 128, 64)
    assert (taken + others, blocks) == (luts, rams)


def test_weights_in_luts_are_counted() -> None:
    """128 KiB of a 64x32 array are 64 entries: they take no block RAM, but they are not free."""
    large = replace(PYNQ, depthwise=0, block_in=64, block_out=32, wgt_depth=64, bus_bits=128)
    deeper = replace(large, wgt_depth=128)
    assert bram36_of(large) < bram36_of(deeper)
    assert distributed_luts(large) == 22_016
    assert distributed_luts(deeper) == 0
    assert area_of(large).LUT - area_of(deeper).LUT > 20_000
    assert ecp5_area(large).LUT < ecp5_area(deeper).LUT + 1_000  # there block RAM holds 64 words
    assert ecp5_area(large).BRAM36 > area_of(large).BRAM36 + 200
    for each in measured_modules():
        assert distributed_luts(each.core) == 0


MEASURED_TABLES = [
    (PYNQ, 1, 1427, 0), (PYNQ, 2, 542, 8), (TINY, 1, 375, 0), (TINY, 2, 131, 2),
]  # fmt: skip
"""A core, its tables, and LUT and BRAM36 that it takes more than without them: its own modules from Yosys, for xc7
(``benchmarks/hardware/synthesis_difference.py``)."""


@pytest.mark.parametrize(("core", "tables", "luts", "rams"), MEASURED_TABLES)
def test_tables_as_synthesised(core: CoreConfig, tables: int, luts: int, rams: float) -> None:
    before, after = asdict(area_of(core)), asdict(area_of(replace(core, tables=tables)))
    assert after["LUT"] - before["LUT"] == pytest.approx(luts, rel=0.05)
    assert after["BRAM36"] - before["BRAM36"] == rams


@pytest.mark.parametrize(
    ("core", "rounding", "luts", "multipliers"),
    [(PYNQ, "float32", 4017, 0), (TINY, "float32", 1306, 0), (TINY, "two_roundings", 858, 8)],
)
def test_roundings_as_synthesised(core: CoreConfig, rounding: str, luts: int, multipliers: int) -> None:
    """LUT and DSP that they take more than half up alone: their own modules from Yosys, for xc7."""
    before, after = asdict(area_of(core)), asdict(area_of(replace(core, rounding=rounding)))
    assert after["LUT"] - before["LUT"] == pytest.approx(luts, rel=0.03)
    assert after["DSP"] - before["DSP"] == multipliers
    assert after["BRAM36"] == before["BRAM36"]


MEASURED_WEIGHTS = [(PYNQ, 64, 887), (TINY, 32, 907)]
"""A core, its group of 4-bit weights, and LUT that it takes more than without: its own modules from Yosys, for xc7."""


@pytest.mark.parametrize(("core", "group", "luts"), MEASURED_WEIGHTS)
def test_4_bit_weights_as_synthesised(core: CoreConfig, group: int, luts: int) -> None:
    before, after = asdict(area_of(core)), asdict(area_of(replace(core, weight_group=group)))
    assert after["LUT"] - before["LUT"] == pytest.approx(luts, rel=0.03)
    assert (after["DSP"], after["BRAM36"]) == (before["DSP"], before["BRAM36"])


@pytest.mark.parametrize(("tables", "rams"), [(1, 8), (2, 8), (8, 8), (16, 16)])
def test_tables_of_ecp5_are_in_block_ram(tables: int, rams: float) -> None:
    """16 lanes, a block RAM of 18 Kibit for up to eight tables of each, as Yosys says for 1, 2 and 8."""
    before, after = (asdict(ecp5_area(core)) for core in (PYNQ, replace(PYNQ, tables=tables)))
    assert after["BRAM36"] - before["BRAM36"] == rams


def test_the_mode_is_known_from_the_core_that_has_it() -> None:
    assert any(each.core.depthwise for each in measured_modules())
    assert 1500 < area_of(PYNQ).LUT - area_of(replace(PYNQ, depthwise=0)).LUT < 5000


def test_ecp5_is_as_the_core_that_was_synthesised_for_it() -> None:
    """8x8 when the model was measured: 29,664 LUT, 99 multipliers, 46 block RAMs of 18 Kibit."""
    (core,) = (each.core for each in measured_modules() if each.core.name == "8x8")
    found = ecp5_area(core)
    assert (found.DSP, 2 * found.BRAM36) == (99, 46)
    assert abs(found.LUT / 29_664 - 1) < 0.01
