"""Whole models on a board: the results, cycles and counters of the host's way, and errors with a name."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.boards.device import PynqDevice
from weft.boards.hosts import Host
from weft.boards.link.driver import Window
from weft.boards.link.errors import LinkError
from weft.boards.link.frames import PAYLOAD_BYTES
from weft.boards.link.model import BATCH_BYTES, BoardModel, load_library
from weft.boards.link.plan import Call, Check, Copy, CoreStep, HostStep, Place, Plan, plan_text, read_plan
from weft.boards.link.team import Team
from weft.boards.remote import BoardLinkError
from weft.boards.shared_library import PROCESSORS, processor_of, shared_library
from weft.boards.virtual_files import VirtualBoard
from weft.boards.zipapp import zipapp
from weft.compiler.graph import Constant, TensorType, Var, call, evaluate, parse
from weft.compiler.model import CompiledModel, NumpyStep
from weft.compiler.model import CoreStep as ModelCoreStep
from weft.compiler.model import HostStep as ModelHostStep
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.processor import named_target
from weft.hw.config import TINY
from weft.hw.isa import Engine, Finish, Sync
from weft.hw.programs import assemble
from weft.runtime.errors import CoreFaultError, DeviceError, InputError
from weft.runtime.module import Array

from tests.boards.virtual_boards import MODEL, MakeBoard
from tests.boards.whole_models import identity_model, module_of, on_board, packed, run_here
from tests.compiler.targets.cpu.cross import skip_without
from tests.compiler.targets.cpu.programs import compiled, program_of
from tests.effort import few
from tests.forks import status_of_child
from tests.waiting import wait_until


def whole_device(board: VirtualBoard, **changes: object) -> PynqDevice:
    return PynqDevice(TINY, host=replace(board.host(), kernels="board", **changes))  # type: ignore[arg-type]


def test_digits_in_batches_are_those_of_the_rtl(make_board: MakeBoard, digits: CompiledModel, image: Array) -> None:
    module, expected = weft.load(digits, whole_device(make_board("pynq-z2"))), weft.load(digits, "rtl")
    batch = np.stack([image, image * 2, image[..., ::-1]])
    logits = [expected.run(item)["logits"] for item in batch]
    np.testing.assert_array_equal(module.run_batch(batch)["logits"], np.stack(logits))
    assert module.cycles == expected.cycles
    assert module.device.counters() == expected.device.counters()
    assert [run.step for run in module.runs] == [run.step for run in expected.runs]
    np.testing.assert_array_equal(module.run(batch[2], trace=True)["logits"], logits[2])
    assert module.seconds == (0.0,) * len(digits.layers)  # this machine's processor did nothing
    into = np.empty_like(logits[1])
    assert module.run(batch[1], {"logits": into})["logits"] is into
    np.testing.assert_array_equal(into, logits[1])
    kept = module.run(batch[2], keep=True)  # step by step, as the host alone can
    np.testing.assert_array_equal(kept["logits"], logits[2])
    module.close()
    with pytest.raises(DeviceError, match="closed"):
        module.run_batch(batch)


def test_a_lost_link_and_a_fault_end_in_an_error_and_the_next_batch_is_right(
    make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    board = make_board()
    module = weft.load(digits, whole_device(board, watchdog=5000))
    expected = weft.load(digits, "fsim").run(image)["logits"]
    os.killpg(module.device._memory._link._far._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(BoardLinkError, match="closed the link"):
        module.run(image)
    np.testing.assert_array_equal(module.run(image)["logits"], expected)
    step = next(step for step in digits.steps if isinstance(step, ModelCoreStep))
    lost = assemble(TINY, [Sync(wait=1 << Engine.STORE, engine=Engine.LOAD), Finish()])
    whole: Any = module._whole
    module.device.write(step.program_offset, lost)
    with pytest.raises(CoreFaultError, match="WATCHDOG fault, engine 'load', instruction 0"):
        module.run_batch(np.stack([image, image]))
    np.testing.assert_array_equal(module.run(image)["logits"], expected)  # the program was written again
    assert whole is module._whole
    module.close()


@pytest.mark.parametrize(("nbytes", "count"), [(3 * PAYLOAD_BYTES + 5, 3), (PAYLOAD_BYTES, 2), (100, 600), (1, 1)])
def test_batches_of_any_size_arrive_in_order(nbytes: int, count: int, make_board: MakeBoard) -> None:
    """More items than a message takes, and items larger than a message."""
    module = weft.load(identity_model(TINY, nbytes), whole_device(make_board("pynq-z2", idle=True)))
    batch = np.random.default_rng(0).integers(0, 256, (count, nbytes), np.uint8)
    np.testing.assert_array_equal(module.run_batch(batch)["y"], batch)
    module.close()


def test_a_board_that_takes_no_code(make_board: MakeBoard, digits: CompiledModel, tmp_path: Path) -> None:
    program = tmp_path / "link.pyz"
    program.write_bytes(zipapp(takes_code=False))
    with pytest.raises(BoardLinkError, match="takes no machine code") as caught:
        weft.load(digits, whole_device(make_board(), installed=str(program)))
    assert caught.value.kind == "code"


def test_strings_that_are_handed_on_are_refused() -> None:
    with pytest.raises(DeviceError, match="hands on strings"):
        packed(compiled(parse("fn @main(%words: string[2]) { return %words }")))


@pytest.mark.parametrize("first", few([0, 20], 1))
def test_random_graphs_are_those_of_the_host(first: int, tmp_path: Path) -> None:
    runs = 0
    for seed in range(first, first + 20):
        graph = random_graph(seed)
        model = compiled(graph.module)
        if any(isinstance(step, NumpyStep) for step in program_of(model).steps):
            with pytest.raises(DeviceError, match="NumPy runs"):
                packed(model)
            continue
        runs += 1
        expected = weft.load(model).run(graph.inputs)
        for found in run_here(model, [graph.inputs] * 2, tmp_path):
            for name, array in expected.items():
                assert found[name].tobytes() == array.tobytes(), f"seed {seed}, {name}"
    assert runs > 1


DATA, PICKED = Var("data", TensorType((3, 5), "int32")), Var("picked", TensorType((2, 2), "int64"))


def test_indices_are_checked_on_the_board(tmp_path: Path) -> None:
    model = compiled(module_of(call("gather", DATA, PICKED, axis=1), params=(DATA, PICKED)))
    data = np.arange(15, dtype=np.int32).reshape(3, 5)
    good = {"data": data, "picked": np.array([[0, -5], [4, -1]])}
    np.testing.assert_array_equal(run_here(model, [good], tmp_path)[0]["out0"], data[:, good["picked"]])
    for wrong in (5, -6):
        with pytest.raises(LinkError, match=f"index {wrong} is outside of an axis of 5 elements") as caught:
            run_here(model, [good, {**good, "picked": np.array([[0, 1], [wrong, 2]])}], tmp_path)
        assert caught.value.kind == "input"


def test_values_that_are_needed_twice_are_copied(tmp_path: Path) -> None:
    x = Var("x", TensorType((4, 3), "int32"))
    module = module_of(x, call("nn.add", x, Constant(np.int32(3))), x, params=(x,))
    values = {"x": np.arange(12, dtype=np.int32).reshape(4, 3)}
    model = compiled(module)
    assert any(isinstance(each, Copy) for step in packed(model).plan.steps for each in step.actions)  # type: ignore[union-attr]
    expected = evaluate(module, values)
    for name, array in run_here(model, [values], tmp_path)[0].items():
        np.testing.assert_array_equal(array, expected[name])


def several_threads(monkeypatch: pytest.MonkeyPatch) -> CompiledModel:
    """Squares of 16 x 33 numbers, by three threads."""
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
    x = Var("x", TensorType((16, 33), "int32"))
    model = compiled(module_of(call("nn.multiply", x, x), params=(x,)), threads=3)
    assert program_of(model).threads == 3
    return model


def test_kernels_for_several_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their counters are zeroed before each run, and the threads end with the model."""
    model = several_threads(monkeypatch)
    board = on_board(packed(model), tmp_path)
    before = threading.active_count()
    items = [{"x": np.full((16, 33), value, np.int32)} for value in (3, 5)]
    for _ in range(20):
        board.feed(0, b"".join(item["x"].tobytes() for item in items))
        board.run(None, 2, seconds=1, watchdog=0)  # type: ignore[arg-type]
        found = np.frombuffer(board.outputs, np.int32).reshape(2, 16, 33)
        np.testing.assert_array_equal(found, [item["x"] ** 2 for item in items])
    board.close()
    assert threading.active_count() == before - 2


def test_all_threads_of_a_team_take_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(packed(several_threads(monkeypatch)).libraries[0])
    team = Team(load_library(path), 3, np.zeros(1024, np.uint8))
    together, seen = threading.Barrier(3), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    def job(table: int, thread: int) -> None:
        together.wait(30)  # for the others
        seen.append((table, thread))

    counters = np.full(64, 7, np.uint8)
    team.run(ctypes.cast(job, ctypes.c_void_p).value or 0, 1234, counters)
    assert sorted(seen) == [(1234, 0), (1234, 1), (1234, 2)]
    assert not counters.any()
    team.end()


def test_a_fork_leaves_the_threads_to_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also when it happens while one of them holds the team's lock: nobody would give it back in the child."""
    path = tmp_path / "model.so"
    path.write_bytes(packed(several_threads(monkeypatch)).libraries[0])
    memory = np.zeros(1024, np.uint8)
    team = Team(load_library(path), 3, memory)
    sleepers, mutex = (memory[offset : offset + 8].view(np.int64) for offset in (128, 192))
    wait_until(lambda: (sleepers[0], mutex[0]) == (2, 0))
    mutex[0] = 1
    try:
        assert status_of_child(team.end, 10) == 0
    finally:
        mutex[0] = 0
    team.end()


def test_a_library_without_threads(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="has no function 'weft_run'") as caught:
        Team(ctypes.CDLL("libm.so.6"), 2, np.zeros(1024, np.uint8))
    assert caught.value.kind == "code"


def test_a_batch_of_the_wrong_size(tmp_path: Path) -> None:
    x = Var("x", TensorType((4,), "int32"))
    board = on_board(packed(compiled(module_of(call("nn.add", x, x), params=(x,)))), tmp_path)
    board.feed(0, bytes(12))
    board.feed(0, bytes(16))  # begins anew
    for offset, size in ((15, 1), (17, 1), (16, BATCH_BYTES)):
        with pytest.raises(LinkError, match="of inputs come after 16"):
            board.feed(offset, bytes(size))
    with pytest.raises(LinkError, match="16 bytes of inputs came, not 2 x 16"):
        board.run(None, 2, seconds=1, watchdog=0)  # type: ignore[arg-type]


def test_batches_that_do_not_fit() -> None:
    module = weft.load(weft.compile(MODEL, TINY), "null")
    image = np.zeros((1, 1, 8, 8), np.float32)
    assert module.run_batch(np.stack([image] * 2))["logits"].shape == (2, 1, 10)
    for wrong in (np.zeros((0, 1, 1, 8, 8), np.float32), np.float32(0), image):
        with pytest.raises(InputError):
            module.run_batch(wrong)


@pytest.mark.parametrize("machine", PROCESSORS)
def test_object_files_of_another_processor_are_refused(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine made them; before a linker is looked for."""
    monkeypatch.setattr("weft.boards.shared_library.LLVM_LINKER", "no-such-lld")
    wanted = replace(processor_of(machine), linker="no-such-ld")
    x = Var("x", TensorType((1, 8), "float32"))
    program = program_of(compiled(module_of(call("nn.add", x, x), params=(x,))))
    for other, each in PROCESSORS.items():
        objects = build_program(program, named_target(each.name)).objects
        message = "no linker" if other == machine else f"is for {other}, but the board's processor is {machine}"
        with pytest.raises(DeviceError, match=message):
            shared_library(objects, wanted)


@pytest.mark.parametrize("processor", ["cortex-a9", "cortex-a53", "x86-64-v2"])
def test_the_hosts_part_is_arranged_for_the_processor_that_is_named(processor: str, image: Array) -> None:
    """This machine gets the same results of it, with code of its own."""
    model = weft.compile(MODEL, TINY, processor=processor)
    programs = [step.program for step in model.steps if isinstance(step, ModelHostStep)]
    assert programs
    assert {each.processor for each in programs} == {named_target(processor).name}
    expected = weft.load(weft.compile(MODEL, TINY), "fsim").run(image)["logits"]
    np.testing.assert_array_equal(weft.load(model, "fsim").run(image)["logits"], expected)


def test_processors_and_linkers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no machine code for a board with a processor 'mips'"):
        processor_of("mips")
    native = PROCESSORS["x86_64"]
    header = bytearray(20)
    header[:4], header[18] = b"\x7fELF", native.elf
    with pytest.raises(DeviceError, match=r"ld failed: .*file"):
        shared_library([bytes(header)], native)
    with pytest.raises(DeviceError, match="is for no processor: no ELF, but the board's processor is x86_64"):
        shared_library([b"no object"], native)
    absent = replace(native, linker="no-such-ld")
    monkeypatch.setattr("weft.boards.shared_library.LLVM_LINKER", "no-such-lld")
    with pytest.raises(DeviceError, match="no linker for the board's processor: neither no-such-ld"):
        shared_library([], absent)
    library = tmp_path / "x.so"
    library.write_bytes(b"nothing that can be loaded")
    with pytest.raises(LinkError, match="cannot be loaded") as caught:
        load_library(library)
    assert caught.value.kind == "code"


@pytest.mark.parametrize(("machine", "processor", "number"), [("armv7l", "armv7a", 40), ("aarch64", "aarch64", 183)])
def test_libraries_for_boards(machine: str, processor: str, number: int) -> None:
    skip_without(processor)
    (library,) = packed(compiled(MODEL), machine).libraries
    assert library[:4] == b"\x7fELF"
    assert library[4] == (1 if machine == "armv7l" else 2)  # 32 or 64 bits
    assert int.from_bytes(library[16:20], "little") == 3 | number << 16  # a shared object, for this processor


def test_kernels_are_a_setting_of_the_board(digits: CompiledModel) -> None:
    assert PynqDevice(TINY, host=Host("z2")).whole_model(digits, lambda *_: None) is None  # type: ignore[arg-type, return-value]


# Plans


def sample() -> Plan:
    check = Check(Place("input", 0, 8, 16), "int64", (3, 5), "node")
    copy = Copy(Place("constant", 0, 0, 4), Place("output", 1, 4, 4))
    host = HostStep(0, (0,), (1, 2), (8, 4), 64, (Call("f", 64), check, copy))
    return Plan((24, 8, 8), (0,), (2,), (host, CoreStep(64, 3, ((1, 0),), ((2, 120),))))


LIMITS = {"libraries": 1, "constant_bytes": 12, "window_bytes": 128}


def test_a_plan_is_read_as_it_was_written() -> None:
    assert read_plan(plan_text(sample()), **LIMITS) == sample()
    for name, value in LIMITS.items():
        with pytest.raises(LinkError) as caught:
            read_plan(plan_text(sample()), **{**LIMITS, name: value - 1})
        assert caught.value.kind == "range"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": Place("constant", 0, 1, 4)}, "outside of its memory"),
        ({"source": Place("constant", 1, 0, 4)}, "outside of its memory"),
        ({"target": Place("output", 2, 0, 4)}, "outside of its memory"),
        ({"target": Place("output", 1, 5, 4)}, "outside of its memory"),
        ({"target": Place("arena", 0, 61, 4)}, "outside of its memory"),
        ({"source": Place("constant", 0, 0, 3)}, "a copy of unequal sizes"),
        ({"target": Place("constant", 0, 0, 4)}, "constants are not written"),
    ],
)
def test_copies_stay_inside(change: dict[str, Place], message: str) -> None:
    plan = sample()
    host = plan.steps[0]
    assert isinstance(host, HostStep)
    copy = replace(host.actions[2], **change)  # type: ignore[type-var, arg-type]
    wrong = replace(plan, steps=(replace(host, actions=(copy,)),))  # type: ignore[arg-type]
    with pytest.raises(LinkError, match=message):
        read_plan(plan_text(wrong), **LIMITS)


def damaged(value: Any, chance: np.random.Generator) -> Any:
    """A plan's JSON with one thing changed somewhere in it."""
    odd = (-1, 0, 1, 9, 2**31, 2**70, 0.5, None, True, "x", "input", [], [1], {}, {"do": "Call"})
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = str(chance.choice(sorted(value)))
        if chance.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: damaged(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = int(chance.integers(len(value)))
        return [*value[:place], damaged(value[place], chance), *value[place + 1 :]]
    return odd[int(chance.integers(len(odd)))]


def test_damaged_plans_are_refused_or_stay_inside() -> None:
    chance = np.random.default_rng(0)
    whole = json.loads(plan_text(sample()))
    read = 0
    kinds = set()
    for _ in range(3000):
        try:
            plan = read_plan(json.dumps(damaged(whole, chance)).encode(), **LIMITS)
        except LinkError as error:
            kinds.add(error.kind)
            continue
        read += 1
        assert read_plan(plan_text(plan), **LIMITS) == plan
    assert 10 < read < 2500
    assert kinds == {"protocol", "range"}
    for raw in (b"", b"[]", b"null", b"\xff", b"[" * 100_000):
        with pytest.raises(LinkError):
            read_plan(raw, **LIMITS)


def test_a_core_step_copies_what_the_plan_says(tmp_path: Path) -> None:
    """In front of a driver that adds one to every byte of its window."""

    class Buffer(np.ndarray[Any, Any]):
        device_address = 0

    class Adder:
        def run(self, window: Window, offset: int, count: int, **_: object) -> Any:
            assert (offset, count) == (64, 7)
            assert window.dirty
            window.data[:] += 1

            class Done:
                cycles, fault = 5, None

            return Done()

    window = Window(np.zeros(128, np.uint8).view(Buffer))
    window.dirty = False
    plan = Plan((4, 4, 4), (0, 1), (2, 1), (CoreStep(64, 7, ((0, 8), (1, 16)), ((2, 7),)),))
    model = BoardModel(plan, [], b"", window)
    model.feed(0, bytes(range(8)) + bytes(range(100, 108)))
    batch = model.run(Adder(), 2, seconds=1, watchdog=0)  # type: ignore[arg-type]
    assert (batch.done, batch.cycles, len(batch.runs)) == (2, 10, 1)
    assert model.outputs == bytes([1, 1, 2, 3, 4, 5, 6, 7, 2, 101, 102, 103, 104, 105, 106, 107])
