"""Damaged inputs are refused by name or work; those that once did something else are run again."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.campaigns import fuzz_inputs as campaign

HERE = Path(__file__).parent
OF_EACH = 2
MANY = 10_000
REGRESSIONS = sorted((HERE / "fuzz_inputs").iterdir())


@pytest.fixture(scope="module")
def fuzz_inputs() -> ModuleType:
    campaign.prepare()
    return campaign


def test_damaged_inputs_of_every_kind(fuzz_inputs: ModuleType) -> None:
    bad: list[str] = []
    counts = fuzz_inputs.run(OF_EACH * len(fuzz_inputs.KINDS), seed=7, tell=bad.append)
    assert not bad, "\n".join(bad)
    assert {kind: sum(states.values()) for kind, states in counts.items()} == dict.fromkeys(fuzz_inputs.KINDS, OF_EACH)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["onnx", "litert"])
def test_damaged_models(kind: str, fuzz_inputs: ModuleType) -> None:
    """Small ones of many kinds, each with up to four edits; those that can be read are compiled and run."""
    bad: list[str] = []
    counts = fuzz_inputs.run(MANY, seed=57, kinds=(kind,), tell=bad.append)
    assert not bad, "\n".join(bad)
    assert counts[kind]["named error"] > MANY // 2
    assert counts[kind]["ok"] > MANY // 20


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.name for path in REGRESSIONS])
def test_what_once_failed(fuzz_inputs: ModuleType, path: Path) -> None:
    state, text = fuzz_inputs.outcome(path.name.split("-")[0], path.read_bytes())
    assert state not in fuzz_inputs.BAD, text


def test_undamaged_inputs_work(fuzz_inputs: ModuleType) -> None:
    for name, kind in fuzz_inputs.KINDS.items():
        base = kind.bases()[-1]
        state, text = fuzz_inputs.outcome(name, base)
        assert state == "ok", f"{name}: {text}"


def test_models_whose_texts_are_damaged_are_damaged_further(fuzz_inputs: ModuleType) -> None:
    """The campaign ended there."""
    kind = fuzz_inputs.KINDS["onnx"]
    data = next(base for base in kind.bases() if b"Relu" in base).replace(b"Relu", b"Rel\xff")
    made = {kind.edit(data, random.Random(seed)) for seed in range(60)}
    assert len(made) > 20


def test_every_bad_end_is_seen(fuzz_inputs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {
        b"traceback": "raise KeyError", b"crash": "import os; os.abort()", b"wait": "import time; time.sleep(60)",
        b"loop": "while True: pass", b"wrong": "raise WrongResultError", b"memory": "bytearray(5 << 30)",
    }  # fmt: skip

    def use(data: bytes) -> None:
        exec(ends[data], {"WrongResultError": fuzz_inputs.WrongResultError})

    monkeypatch.setattr(fuzz_inputs, "SECONDS", 1)
    monkeypatch.setattr(fuzz_inputs, "WALL_SECONDS", 4.0)
    kind = type(fuzz_inputs.KINDS["onnx"])
    monkeypatch.setitem(fuzz_inputs.KINDS, "bad", kind(list, lambda data, chance: data, use))
    states = {data: fuzz_inputs.outcome("bad", data)[0] for data in ends}
    assert states == {
        b"traceback": "traceback", b"crash": "crash", b"wait": "hang", b"loop": "hang", b"wrong": "wrong",
        b"memory": "named error",
    }  # fmt: skip
