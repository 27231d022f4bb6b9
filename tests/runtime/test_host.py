"""Host programs run from several threads, after errors, and with the time of each layer."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.llvm.threads import SLEEPERS
from weft.compiler.targets.loops.prepare import prepare
from weft.runtime.errors import InputError
from weft.runtime.host import HostExecutor, _address

from tests.forks import status_of_child
from tests.threads import in_threads
from tests.waiting import wait_until

X = Var("x", TensorType((64, 48), "float32"))
AT = Var("at", TensorType((5,), "int64"))
WEIGHTS = Constant(np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32))
PRODUCT = call("nn.matmul", X, WEIGHTS)
FIRST, ROW = Constant(np.zeros((1, 1), np.int64)), Constant(np.ones((1, 32), np.float32))
PICKED = call("gather", call("nn.tanh", PRODUCT), AT, axis=0)
MODULE = Module(Function(
    (X, AT), Tuple((PICKED, call("scatter_nd", PRODUCT, FIRST, ROW))), Attrs({"outputs": ("picked", "scattered")})
))  # fmt: skip
VALUE = np.random.default_rng(1).standard_normal((64, 48)).astype(np.float32)
PLACES = np.array([0, -1, 63, 7, -64])


@pytest.fixture(params=[1, 2])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HostExecutor:
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
    program = weft.compile(prepare(MODULE), target="cpu", threads=request.param).steps[0].program
    assert program.threads == request.param
    return HostExecutor(program, build_program(program))


def results() -> list[np.ndarray]:
    return [np.empty((5, 32), np.float32), np.empty((64, 32), np.float32)]


def check(found: list[np.ndarray], value: np.ndarray = VALUE) -> None:
    wanted = evaluate(MODULE, {"x": value, "at": PLACES})
    np.testing.assert_allclose(found[0], wanted["picked"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], wanted["scattered"], rtol=1e-4, atol=1e-5)


def test_runs_from_several_threads_do_not_meet(executor: HostExecutor) -> None:
    def work(number: int) -> None:
        value = VALUE * np.float32((1, 0.5, -1)[number])
        for _ in range(20):
            found = results()
            executor.run([value, PLACES], found)
            check(found, value)

    in_threads(work, 3)


def test_a_fork_leaves_the_threads_to_its_parent(executor: HostExecutor) -> None:
    """The child has none of them, though it finds them in the team's memory, asleep."""
    executor.run([VALUE, PLACES], results())
    sleepers = executor._team._memory[SLEEPERS : SLEEPERS + 8].view(np.int64)
    wait_until(lambda: bool(sleepers[0] == executor.program.threads - 1))

    def work() -> None:
        found = results()
        executor.run([VALUE, PLACES], found)  # with threads of its own
        check(found)

    assert status_of_child(work, 10) == 0


def test_a_run_after_an_error_is_right(executor: HostExecutor) -> None:
    wrong = np.array([0, 1, 64, 3, 4])
    for run in (executor.run, executor.run_timed):
        with pytest.raises(InputError, match=r"index 64 is outside of an axis of 64 elements"):
            run([VALUE, wrong], results())
        found = results()
        run([VALUE, PLACES], found)
        check(found)


def test_a_timed_run_gives_the_same_and_the_seconds_of_each_layer(executor: HostExecutor) -> None:
    for _ in range(2):
        found = results()
        seconds = executor.run_timed([VALUE, PLACES], found)
        check(found)
        assert len(seconds) == len(executor.program.layers)
        assert all(each > 0 for each in seconds)
    found = results()
    executor.run([VALUE, PLACES], found)
    check(found)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([VALUE], "takes 2 inputs and 2 outputs, not 1 and 2"),
        ([VALUE.astype(np.float64), PLACES], r"input 'x' must be float32\[64, 48\], not float64\[64, 48\]"),
        ([VALUE[:, ::2], PLACES], r"input 'x' must be contiguous float32\[64, 48\]"),
        ([np.asfortranarray(VALUE), PLACES], "must be contiguous"),
        ([VALUE, PLACES[:4]], r"input 'at' must be int64\[5\], not int64\[4\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(executor: HostExecutor, inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        executor.run(inputs, results())


def test_an_output_must_be_writable(executor: HostExecutor) -> None:
    outputs = results()
    outputs[1].flags.writeable = False
    with pytest.raises(InputError, match="output 'scattered' must be contiguous"):
        executor.run([VALUE, PLACES], outputs)


def test_arrays_of_all_kinds_have_their_address() -> None:
    locked = np.arange(6.0)
    locked.flags.writeable = False
    for array in (np.arange(6.0), locked, np.zeros((3, 0)), np.ones(5, numpy_dtype("bfloat16")), np.arange(9)[3:]):
        assert _address(array) == array.ctypes.data
