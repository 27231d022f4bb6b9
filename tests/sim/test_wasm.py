"""The simulators as WebAssembly say what the native ones say, to the bit and to the cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import wasmtime
import weft
from weft.hw.config import NAMED, PROGRAM_ALIGNMENT, TINY, CoreConfig
from weft.hw.isa import (
    Engine,
    Fault,
    Finish,
    Load,
    Loop,
    Scratchpad,
    Store,
    Vector,
    VectorOp,
    VectorTarget,
    engine_mask,
)
from weft.hw.programs import assemble
from weft.sim import wasm
from weft.sim.dram import DramModel
from weft.sim.errors import BuildError
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES, random_case, seeded
from weft.sim.fuzz_compare import compare, fill
from weft.sim.fuzz_illegal import illegal_case
from weft.sim.result import RunResult
from weft.sim.timing import predict

from .rounding_operands import OPERANDS
from .wasm_host import ENGINE, Instance, WasmSimulator, compiled, wasm_predict

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

FOUND = (Fault.INDEX, Fault.WINDOW, Fault.ALIGNMENT, Fault.WATCHDOG, Fault.NO_FINISH)
"""Faults that depend on memories and tokens."""


def assert_same(found: RunResult | None, expected: RunResult) -> None:
    """All of it is equal, the trace as well."""
    assert found is not None
    assert found.trace is not None
    assert expected.trace is not None
    np.testing.assert_array_equal(found.trace.events, expected.trace.events)
    np.testing.assert_array_equal(found.trace.activity, expected.trace.activity)
    assert (found.cycles, found.counters) == (expected.cycles, expected.counters)
    assert (found.bytes_read, found.bytes_written) == (expected.bytes_read, expected.bytes_written)


def test_the_module_asks_its_host_for_nothing() -> None:
    assert not compiled().imports
    assert {each.name for each in compiled().exports} == {"memory", *wasm.EXPORTS}


@pytest.mark.parametrize("dram", [DramModel(), DramModel(latency=200, bytes_per_cycle=2)], ids=["near", "far"])
def test_a_network_takes_the_same_cycles(dram: DramModel) -> None:
    model = weft.compile(DIGITS, TINY)
    for step in model.programs:
        found = wasm_predict(TINY, step.program, dram, offset=step.program_offset, trace=True)
        assert_same(found, predict(TINY, step.program, dram, offset=step.program_offset, trace=True))


@pytest.mark.parametrize("config", NAMED.values(), ids=list(NAMED))
def test_random_programs_take_the_same_cycles(config: CoreConfig) -> None:
    for seed in range(8):
        case = random_case(config, seeded(seed))
        code = assemble(config, case.instructions)
        found = wasm_predict(config, code, case.dram, offset=case.program_offset, trace=True)
        assert_same(found, predict(config, code, case.dram, offset=case.program_offset, trace=True))


def test_a_program_that_waits_for_ever_has_no_cycles() -> None:
    from .programs import parse

    code = assemble(TINY, parse("sync gemm wait=vector\nfinish"))
    assert wasm_predict(TINY, code, DramModel()) is None


@pytest.mark.parametrize("config", NAMED.values(), ids=list(NAMED))
def test_random_programs_leave_the_same_bytes(config: CoreConfig) -> None:
    for seed in range(8):
        case = random_case(config, seeded(seed))
        reference = FunctionalSimulator(config, MEMORY_BYTES)
        found = compare(case, reference, WasmSimulator(config, MEMORY_BYTES))
        assert not found.difference, f"seed {seed}: {found.difference}\n{case}"
        assert found.subject.bytes_read == found.reference.bytes_read
        assert found.subject.bytes_written == found.reference.bytes_written


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rounding", [0, 1])
@pytest.mark.parametrize(("mode", "operands"), OPERANDS.items(), ids=list(OPERANDS))
def test_requantises_round_alike(
    mode: str, operands: Callable[..., tuple[np.ndarray, ...]], rounding: int, seed: int
) -> None:
    """Random programs hardly ever meet a half."""
    config, count = replace(TINY, rounding=mode), 60
    values, *parameters = operands(np.random.default_rng(seed), (count, config.lanes))
    entries = np.concatenate([values, np.stack(parameters, axis=1).reshape(3 * count, -1)])
    load, vector, store = (engine_mask([each]) for each in (Engine.LOAD, Engine.VECTOR, Engine.STORE))
    at, target = PROGRAM_ALIGNMENT * 64, PROGRAM_ALIGNMENT * 128
    code = assemble(config, [
        Load(scratchpad=Scratchpad.ACC, index=0, offset=at // config.granule_bytes, rows=1, columns=4 * count,
             send=vector),
        Loop(engine=Engine.VECTOR, level=0, extent=count, dst_stride=1, a_stride=1, b_stride=3),
        Vector(op=VectorOp.REQUANTISE, target=VectorTarget.OUT, dst=0, a=0, b=count, levels=1, low=-128, high=127,
               zero_point=seed - 3, rounding=rounding, wait=load, send=store),
        Store(index=0, offset=target // config.granule_bytes, rows=1, columns=count, stride=0, wait=vector),
        Finish(),
    ])  # fmt: skip
    results = []
    for simulator in (FunctionalSimulator(config, MEMORY_BYTES), WasmSimulator(config, MEMORY_BYTES)):
        simulator.dram[: len(code)] = code
        simulator.dram[at : at + entries.nbytes] = entries.reshape(-1).view(np.uint8)
        assert simulator.run(0, len(code) // config.instruction_bytes).fault is None
        results.append(simulator.dram[target : target + count * config.lanes].copy())
    assert len(np.unique(results[0])) > 20
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("config", NAMED.values(), ids=list(NAMED))
def test_faults_of_memories_and_tokens_are_the_same(config: CoreConfig) -> None:
    seen = set()
    for seed in range(40):
        case = illegal_case(config, seeded(seed))
        results = []
        for simulator in (
            FunctionalSimulator(config, MEMORY_BYTES, check_races=False),
            WasmSimulator(config, MEMORY_BYTES),
        ):
            offset, count = fill(case, simulator)
            where = {"window_start": case.window_start, "window_bytes": case.window_bytes}
            results.append(simulator.run(offset, count, **where).fault)
            if results[0] is None or results[0].cause not in FOUND:  # found where a program is decoded, or by a bus
                break
        else:
            assert results[0] == results[1], f"seed {seed}\n{case}"
            seen.add(results[0].cause)
    assert len(seen) >= 4


def rounded_once(exact: Fraction) -> float:
    """The float32 next to a value; of two that are as near, the even one."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)]
    return float(min((near, *around), key=lambda each: (abs(Fraction(float(each)) - exact), each.view(np.int32) & 1)))


def test_products_are_added_with_one_rounding() -> None:
    """What kernels call for LLVM's fma, which WebAssembly has no instruction for."""
    instance = Instance(wasmtime.Module(ENGINE, wasm.linked_module([], ["fmaf"])))
    random, twice = np.random.default_rng(0), 0
    for case in range(2000):
        a, b, c = (np.float32(x) for x in random.standard_normal(3))
        if case % 2:  # a sum that lies a hair beside the middle of two floats
            scale, side = 2.0 ** int(random.integers(-20, 40)), int(random.choice([-1, 1]))
            c = np.float32(side * scale * (1 + int(random.integers(0, 9)) * 2.0**-23))
            a, b = np.float32(scale * 2.0**-24 * (1 + 2.0**-23)), np.float32(side * (1 - 2.0**-23))
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        assert instance.call("fmaf", float(a), float(b), float(c)) == rounded_once(exact), (a, b, c)
        twice += float(np.float32(float(a) * float(b) + float(c))) != rounded_once(exact)
    assert twice  # rounding the sum first would be seen


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(BuildError, match="no_such_function"):
        wasm.linked_module([], ["no_such_function"])


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(wasm.metadata, "version", version)
    with pytest.raises(BuildError, match="ziglang is missing") as caught:
        wasm.wasm_module()
    assert "pip install 'weft[browser]'" in str(caught.value)
