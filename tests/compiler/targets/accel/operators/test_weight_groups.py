"""Weights that have the form of 4-bit groups are stored so, and what the core computes stays the same to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, call
from weft.compiler.targets.accel.operators.weight_groups import groups_of, pairs_of, records_of
from weft.hw.config import PYNQ_W4, TINY, WIDE, CoreConfig
from weft.hw.isa import Load, Scratchpad
from weft.hw.load_counts import takes_records
from weft.hw.programs import disassemble
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dma import unpack_records
from weft.sim.dram import DramModel
from weft.verify import verify

from tests.compiler.targets.accel.quantised_layers import compiled, module_of, quantised, variable

SMALL = replace(TINY, weight_group=32)
OTHER_BLOCKS = replace(TINY, block_in=8, block_out=4, weight_group=64)


def weights(filters: int, depth: int, group: int, seed: int = 0) -> np.ndarray:
    """Random int8 ``(filters, depth)`` of groups of 4 bits along the depth."""
    random = np.random.default_rng(seed)
    count = -(-depth // group)
    codes = random.integers(0, 16, (filters, count, group))
    scales, zeros = (random.integers(low, high, (filters, count, 1)) for low, high in ((1, 8), (0, 16)))
    return ((codes - zeros) * scales).astype(np.int8).reshape(filters, -1)[:, :depth]


def layer(x: Expr, values: np.ndarray) -> Call:
    """A convolution of one pixel with these weights, or with those of ``(filters, depth)``."""
    kernel = values if values.ndim == 4 else values[:, :, None, None]
    floats = call("dequantise", Constant(kernel), Constant(np.float32(0.003)), Constant(np.int8(0)))
    return quantised(call("nn.conv2d", x, floats), 1.0)


def loads_of(model: weft.CompiledModel) -> tuple[list[Load], list[Load]]:
    """LOADs of weights: those of 4 bits, and the others."""
    assert model.core is not None
    config = model.core.config
    programs = [step.program for step in model.steps if isinstance(step, weft.compiler.model.CoreStep)]
    found = [
        each for program in programs for each in disassemble(config, program)
        if isinstance(each, Load) and each.scratchpad is Scratchpad.WGT
    ]  # fmt: skip
    return [each for each in found if takes_records(config, each)], [
        each for each in found if not takes_records(config, each)
    ]


@given(
    codes=st.lists(st.integers(0, 15), min_size=16, max_size=16), scale=st.integers(0, 8), zero=st.integers(0, 15),
)  # fmt: skip
def test_every_group_of_the_form_is_found_and_unpacks_to_itself(codes: list[int], scale: int, zero: int) -> None:
    core = replace(SMALL, block_in=8, block_out=2)
    values = ((np.array(codes) - zero) * scale).astype(np.int8)
    packed = np.tile(values.reshape(1, 2, 1, 1, 1, 8), (3, 2, 1, 1, 2, 1))
    packed[1] = 0
    unpacked = unpack_records(core, records_of(packed, core))
    np.testing.assert_array_equal(unpacked.reshape(packed.shape), packed)


@given(values=st.lists(st.integers(-128, 127), min_size=2, max_size=4) | st.lists(st.integers(-9, 9), min_size=3))
def test_what_has_no_such_form_is_refused(values: list[int]) -> None:
    group = np.array(values, np.int8).reshape(1, 1, 1, -1)
    possible = any(
        all(any((code - zero) * scale == value for code in range(16)) for value in values)
        for scale, zero in product(range(16), range(16))
    )
    assert (pairs_of(group) is not None) == possible


def test_one_group_among_many_is_enough() -> None:
    groups = groups_of(weights(64, 2048, 64).reshape(4, 16, 128, 1, 1, 16).transpose(0, 2, 3, 4, 1, 5), 4)
    assert pairs_of(groups) is not None
    spoiled = groups.copy()
    spoiled[-1, -1, -1, -1] += 1
    assert pairs_of(spoiled) is None


CASES: dict[str, tuple[CoreConfig, int, int, int, int]] = {
    # rows, depth, filters, pixels of a row
    "one row": (PYNQ_W4, 1, 256, 48, 1),
    "rows of a matrix": (PYNQ_W4, 5, 192, 96, 1),
    "depth filled up with zeros": (PYNQ_W4, 1, 250, 33, 1),
    "pixels": (PYNQ_W4, 1, 128, 64, 5),
    "many tiles": (replace(PYNQ_W4, wgt_depth=64, inp_depth=128), 2, 512, 160, 1),
    "groups of 128": (replace(PYNQ_W4, weight_group=128), 1, 256, 32, 1),
    "blocks of 32": (replace(WIDE, weight_group=64), 2, 128, 64, 1),
    "blocks of 4": (SMALL, 2, 96, 24, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_layer_equals_the_contract(name: str) -> None:
    core, rows, depth, filters, pixels = CASES[name]
    x = variable(rows, depth, pixels, pixels)
    values = weights(filters, depth, core.weight_group)
    model = compiled(x, layer(quantised(x), values), core)
    records, others = loads_of(model)
    assert records
    assert not others
    assert model.core is not None
    bytes_of_codes = sum(load.rows * load.columns for load in records) * core.weight_record_bytes
    assert bytes_of_codes < 0.6 * (filters + 31) * (depth + core.weight_group) * rows


SPOILED = weights(48, 256, 64)
SPOILED[40, 200] = SPOILED[40, 201] + 1 if SPOILED[40, 201] < 127 else 0
SPOILED[40, 202] = -128


@pytest.mark.parametrize(
    ("core", "values"),
    [
        (replace(PYNQ_W4, weight_group=0), weights(48, 256, 64)),
        (PYNQ_W4, SPOILED),
        (PYNQ_W4, weights(48, 224, 64)),  # 3.5 groups
        (replace(PYNQ_W4, weight_group=128), weights(48, 192, 64)),
        (PYNQ_W4, weights(16, 64 * 9, 64).reshape(16, 64, 3, 3)),
        (OTHER_BLOCKS, weights(8, 60, 64)),
    ],
    ids=["no such core", "another number", "half a group", "half a group of 128", "3 x 3", "blocks that differ"],
)
def test_what_has_no_groups_stays_in_8_bits(core: CoreConfig, values: np.ndarray) -> None:
    pixels = values.shape[2] if values.ndim == 4 else 1
    x = variable(1, values.shape[1], pixels, pixels)
    records, others = loads_of(compiled(x, layer(quantised(x), values), core))
    if core is OTHER_BLOCKS:
        assert records  # the depth, filled up with zeros, is a whole group
    else:
        assert not records
        assert others


def test_a_network_with_both_forms_is_the_same_on_other_targets_and_takes_the_predicted_cycles() -> None:
    x = variable(1, 64, 1, 1)
    random = np.random.default_rng(3)
    plain = random.integers(-127, 128, (32, 48)).astype(np.int8)
    body = layer(layer(layer(quantised(x), weights(48, 64, 32)), plain), weights(20, 32, 32, 1))
    model = compiled(x, body, SMALL)
    records, others = loads_of(model)
    assert records
    assert others
    inputs = {"x": random.normal(0, 3, (1, 64, 1, 1)).astype(np.float32)}
    wanted = weft.load(weft.compile(module_of(x, body), target="cpu")).run(inputs)["y"]
    dram = DramModel(latency=30)
    rtl: Any = weft.load(model, weft.RtlDevice(SMALL, dram=dram))
    np.testing.assert_array_equal(rtl.run(inputs)["y"], wanted)
    assert rtl.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, dram))


def test_a_certificate_covers_4_bit_weights_and_a_wrong_scale_is_found() -> None:
    x = variable(1, 64, 1, 1)
    model = compiled(x, layer(quantised(x), weights(48, 64, 32)), SMALL)
    assert loads_of(model)[0]
    assert model.core is not None
    assert verify(model).proved
    size = 48 // 4 * 2 * SMALL.weight_record_bytes
    (segment,) = [each for each in model.core.constants if each.data.nbytes == size]
    for place, change in ((1, 0x01), (SMALL.weight_record_bytes + 2, 0x10), (SMALL.weight_head_bytes, 0x20)):
        data = segment.data.copy()
        data[place] ^= change  # a scale, a zero point, a code
        constants = tuple(replace(each, data=data) if each is segment else each for each in model.core.constants)
        assert not verify(replace(model, core=replace(model.core, constants=constants))).proved
