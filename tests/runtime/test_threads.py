"""Loaded modules from several threads, after a fork, after errors and while they are closed: right or a named error."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY
from weft.runtime.device import FsimDevice
from weft.runtime.errors import DeviceError
from weft.runtime.module import LoadedModule
from weft.runtime.run_lock import RunLock

from tests.forks import status_of_child
from tests.threads import in_threads

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGES = 8


@pytest.fixture(scope="module")
def digits() -> CompiledModel:
    return weft.compile(MODEL, "tiny")


def images(model: CompiledModel) -> list[np.ndarray]:
    return list(np.random.default_rng(1).random((IMAGES, *model.inputs[0].shape), np.float32))


def only(results: dict[str, np.ndarray]) -> bytes:
    (value,) = results.values()
    return value.tobytes()


def test_one_module_from_four_threads_gives_the_serial_results(digits: CompiledModel) -> None:
    module = weft.load(digits, "fsim")
    inputs = images(digits)
    serial = [only(module.run(image)) for image in inputs]
    assert len(set(serial)) > IMAGES // 2  # results of others would be noticed

    def work(number: int) -> None:
        for turn in range(12):
            place = (turn * 3 + number) % IMAGES
            assert only(module.run(inputs[place])) == serial[place]

    in_threads(work)


def test_modules_of_one_model_run_in_parallel(digits: CompiledModel) -> None:
    modules = [weft.load(digits, "fsim") for _ in range(2)]
    inputs = images(digits)
    serial = [only(modules[0].run(image)) for image in inputs]
    # Each run waits inside for the other: it would not get there if modules waited for one another.
    meeting = threading.Barrier(2, timeout=60)
    for module in modules:
        launch = module.device.launch

        def meet(*arguments: int, launch: Callable[..., object] = launch, trace: bool = False) -> object:
            meeting.wait()
            return launch(*arguments, trace=trace)

        module.device.launch = meet  # type: ignore[method-assign, assignment]

    def work(number: int) -> None:
        for place in range(IMAGES):
            assert only(modules[number].run(inputs[place])) == serial[place]

    in_threads(work, 2)


def test_cpu_modules_from_four_threads_give_the_serial_results() -> None:
    model = weft.compile(MODEL, target="cpu", threads=2)
    module = weft.load(model)
    inputs = list(np.random.default_rng(1).random((IMAGES, *model.inputs[0].shape), np.float32))
    serial = [only(module.run(image)) for image in inputs]

    def work(number: int) -> None:
        for turn in range(200):
            place = (turn * 3 + number) % IMAGES
            assert only(module.run(inputs[place])) == serial[place]

    in_threads(work)


# Fork


def test_a_module_works_in_a_forked_process(digits: CompiledModel) -> None:
    module = weft.load(digits, "fsim")
    image = images(digits)[0]
    expected = only(module.run(image))

    def work() -> None:
        assert only(module.run(image)) == expected

    assert status_of_child(work) == 0
    work()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cpu_module_works_in_a_forked_process(threads: int) -> None:
    model = weft.compile(MODEL, target="cpu", threads=threads)
    module = weft.load(model)
    image = np.random.default_rng(1).random(model.inputs[0].shape, np.float32)
    expected = only(module.run(image))

    def work() -> None:
        for _ in range(3):
            assert only(module.run(image)) == expected

    assert status_of_child(work) == 0
    work()


@pytest.mark.parametrize("target", ["fsim", "rtl", "cpu", "opencl"])
def test_a_forked_process_can_drop_what_its_parent_loaded(target: str, digits: CompiledModel) -> None:
    """Threads do not outlive a fork: whoever waits for one when a module ends, waits for ever. The collector ends
    modules whenever it likes, in any process that was forked."""
    match target:
        case "cpu":
            module = weft.load(weft.compile(MODEL, target="cpu", threads=2))
        case "opencl":
            module = weft.load(weft.compile(MODEL, target="opencl"))
        case device:
            module = weft.load(digits, device)
    image = images(digits)[0]
    expected = only(module.run(image))
    kept = [module]
    del module
    assert status_of_child(lambda: (kept.clear(), gc.collect())) == 0
    assert only(kept[0].run(image)) == expected


@contextmanager
def running_elsewhere(module: LoadedModule, image: np.ndarray) -> Iterator[threading.Event]:
    """Another thread is inside ``module.run`` until the event is set, at the latest at the end."""
    inside, leave = threading.Event(), threading.Event()
    launch = module.device.launch

    def wait(*arguments: int, trace: bool = False) -> object:
        inside.set()
        assert leave.wait(60)
        return launch(*arguments, trace=trace)

    module.device.launch = wait  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=module.run, args=(image,))
    thread.start()
    assert inside.wait(60)
    try:
        yield leave
    finally:
        leave.set()
        thread.join()
        module.device.launch = launch  # type: ignore[method-assign]


def test_a_module_that_ran_elsewhere_during_the_fork_says_so(digits: CompiledModel) -> None:
    module = weft.load(digits, "fsim")
    image = images(digits)[0]
    expected = only(module.run(image))

    def work() -> None:
        with pytest.raises(DeviceError, match=r"running in another thread when this process was forked; hint: load"):
            module.run(image)
        assert only(weft.load(digits, "fsim").run(image)) == expected

    with running_elsewhere(module, image):
        assert status_of_child(work) == 0
    assert only(module.run(image)) == expected


def test_the_thread_that_forks_inside_a_run_goes_on() -> None:
    lock = RunLock()

    def work() -> None:
        lock.__exit__()
        with lock:
            pass

    with lock:
        assert status_of_child(work) == 0
    with lock, pytest.raises(DeviceError, match="in a run of the module already; hint: load the model once more"), lock:
        pytest.fail("a run inside a run")


# Closed, taken over, spoiled


def test_closing_waits_for_the_run_and_refuses_the_next(digits: CompiledModel) -> None:
    module = weft.load(digits, "fsim")
    image = images(digits)[0]
    closing = threading.Thread(target=module.close)
    with running_elsewhere(module, image):
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
    closing.join()
    assert len(module.runs) == 1  # the run was done
    with pytest.raises(DeviceError, match=r"^the module is closed; hint: load the model again$"):
        module.run(image)
    module.close()
    assert module.device.memory().size == 0


def test_closing_in_the_midst_of_many_runs(digits: CompiledModel) -> None:
    module = weft.load(digits, "fsim")
    image = images(digits)[0]
    expected = only(module.run(image))
    refusals: list[str] = []

    def work(number: int) -> None:
        try:
            for turn in range(1000):
                assert only(module.run(image)) == expected
                if number == 0 and turn == 3:
                    module.close()
        except DeviceError as error:
            refusals.append(str(error))

    in_threads(work)
    assert refusals == ["the module is closed; hint: load the model again"] * 4


def test_a_module_whose_device_was_given_to_another_says_so(digits: CompiledModel) -> None:
    device = FsimDevice(TINY)
    first = weft.load(digits, device)
    image = images(digits)[0]
    expected = only(first.run(image))
    second = weft.load(digits, device)
    with pytest.raises(DeviceError, match="another model was loaded onto this device 'fsim'; hint: open a device for"):
        first.run(image)
    first.close()  # not the second's window
    assert only(second.run(image)) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_after_any_error_in_the_middle_of_a_run_the_next_is_right(
    digits: CompiledModel, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = weft.load(digits, "fsim")
    image = images(digits)[0]
    expected = only(module.run(image))

    def spoil(*_: object, **__: object) -> None:
        module.device.memory()[:] = 0x55
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module.device, "launch", spoil)
        with pytest.raises(error):
            module.run(image)
    assert only(module.run(image)) == expected
