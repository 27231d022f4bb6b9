"""Damaged inputs are refused by name or work; those that once did something else are run again."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.campaigns import fuzz_inputs as campaign

HERE = Path(__file__).parent
OF_EACH = 2
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


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.name for path in REGRESSIONS])
def test_what_once_failed(fuzz_inputs: ModuleType, path: Path) -> None:
    state, text = fuzz_inputs.outcome(path.name.split("-")[0], path.read_bytes())
    assert state not in fuzz_inputs.BAD, text


def test_undamaged_inputs_work(fuzz_inputs: ModuleType) -> None:
    for name, kind in fuzz_inputs.KINDS.items():
        base = kind.bases()[-1]
        state, text = fuzz_inputs.outcome(name, base)
        assert state == "ok", f"{name}: {text}"


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
