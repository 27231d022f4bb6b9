"""A short form of the soak: modules in threads and processes while cache, disk and processes are spoiled."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.processor import host_target

from benchmarks.campaigns import soak as campaign
from benchmarks.campaigns.soak_worker import LostByLlvmlite

TRIVIAL = "define void @kernel() {\n  ret void\n}\n"
FORMS = ("digits-fsim1", "digits-cpu2", "open-cpu1")


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return campaign


def options(soak: ModuleType, seconds: float, **others: object) -> object:
    few = {"workers": 2, "threads": 3, "forms": FORMS, "mount": False, "disk_gap": 0.5, "process_gap": 3.0}
    return soak.Options(minutes=seconds / 60, sample_seconds=1.0, deadline_seconds=120.0, **{**few, **others})


def test_everything_is_right_while_all_around_is_spoiled(soak: ModuleType, tmp_path: Path) -> None:
    run, records = soak.soak(options(soak, 6), [].append)
    assert not run.failures
    figures = {record.figure: record.value for record in records}
    assert figures["failures"] == 0
    assert figures["runs on cpu"] > 0
    assert run.lives[0].ended
    assert figures["disk filled"] > 0
    assert list(tmp_path.iterdir()) == []


def test_what_llvmlite_loses_is_counted_with_each_compilation(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvm, "create_pass_builder", llvm.create_pass_builder)  # is put back afterwards
    lost = LostByLlvmlite()
    assert 500 < lost.bytes_each < 5_000
    assert lost.kibibytes == 0
    for _ in range(3):
        object_code(TRIVIAL, host_target())
    assert lost.builders == 3
    assert lost.kibibytes == round(3 * lost.bytes_each / 1024) > 0


def test_a_wrong_result_and_what_is_left_are_seen(soak: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(folder: Path, *rest: object) -> None:
        write(folder, *rest)
        path = folder / "open-cpu1.npz"
        arrays = dict(np.load(path))
        np.savez(path, **{name: value + (name[0] == "y") for name, value in arrays.items()})

    write = soak.write_references
    monkeypatch.setattr(soak, "write_references", spoiled)
    monkeypatch.setattr(
        soak, "CLEAN", f"{soak.CLEAN}\nimport os, pathlib\npathlib.Path(os.environ['TMPDIR'], 'left').touch()"
    )
    chosen = options(soak, 6, forms=("open-cpu1",), workers=1, threads=1, disk_gap=100.0, process_gap=100.0)
    run, _ = soak.soak(chosen, [].append)
    assert any("wrong" in failure and "seed 0/0/0, job 0" in failure for failure in run.failures)
    assert "files left: ['tmp/left']" in run.failures


def samples(**figures: float) -> list[dict[str, float]]:
    """For 40 seconds; each figure grows by its amount in each."""
    flat = {"allocated": 4e4, "resident": 1e5, "own": 5e4, "files": 9.0, "threads": 4.0}
    return [
        {"seconds": second} | {name: value + second * figures.get(name, 0) for name, value in flat.items()}
        for second in range(41)
    ]


@pytest.mark.parametrize(
    ("growth", "seen"),
    [({}, []), ({"resident": 90.0}, []), ({"resident": 110.0}, ["resident"]), ({"own": 60.0}, ["own"]),
     ({"allocated": 50.0}, ["allocated"]),
     ({"files": 0.1, "threads": -0.1}, ["files"])],
)  # fmt: skip
def test_growth_above_2_percent_is_a_leak(soak: ModuleType, growth: dict[str, float], seen: list[str]) -> None:
    run = soak.Soak(soak.Options(), Path(), None, [].append)
    run.lives = [SimpleNamespace(immortal=True, number=0, samples=samples(**growth))]
    assert len(run.judge()) == 5
    assert [failure.split()[2] for failure in run.failures] == seen


def test_a_full_disk_refuses_every_byte_and_is_empty_again(soak: ModuleType, tmp_path: Path) -> None:
    program = (
        "import sys\nfor line in sys.stdin:\n try: open('file', 'wb', 0).write(b'x'); print('written', flush=True)\n"
    )
    program += " except OSError: print('refused', flush=True)"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    disk = soak.Disk(tmp_path, tmp_path / "full", tmp_path, mounted=False, pids=lambda: [process.pid])
    answers = []

    def ask() -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        answers.append((process.stdout.readline().strip(), (tmp_path / "full").read_text()))

    ends = threading.Event()
    filling = threading.Thread(target=disk.fill, args=(random.Random(), 60.0, ends))
    ask()
    filling.start()
    while (tmp_path / "full").read_text() == "0":
        os.sched_yield()
    for _ in range(1000):
        if answers[-1][0] == "written":
            ask()
    ends.set()
    filling.join()
    ask()
    process.communicate()
    assert answers[0] == ("written", "0")
    assert answers[-2:] == [("refused", "1"), ("written", "2")]
