"""Models on a GPU of NVIDIA's, whose driver is a stand-in that gives PTX to the interpreter."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.model import GpuCode, GridCall, HostStep
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.registry import find_target
from weft.runtime.errors import DeviceError, InputError
from weft.runtime.gpu import cuda, cuda_driver, programs
from weft.runtime.gpu.emulated import EmulatedGpu
from weft.runtime.gpu.executor import GpuExecutor
from weft.runtime.gpu.gpu import Launch, Memory
from weft.runtime.gpu.open import CUDA_VARIABLE
from weft.sim.ptx import KernelFaultError, Program

from tests.threads import in_threads

from .cuda_standin import ILLEGAL_ADDRESS, StandIn, build

X = Var("x", TensorType((6, 40), "float32"))
WEIGHTS = np.random.default_rng(3).normal(size=(40, 24)).astype(np.float32)


DOUBLED = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry doubled(.param .u64 x)
{
    .reg .b64 %rd<2>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f1, [%rd1];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd1], %f2;
    ret;
}
"""
CALL = GridCall("doubled", (1, 1, 1), 1, (0,), False)
Opened = Callable[..., StandIn]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def opened(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Puts a stand-in of its own in the driver's place."""
    monkeypatch.setenv(cuda_driver.DRIVER_VARIABLE, str(library))
    monkeypatch.delenv(CUDA_VARIABLE, raising=False)
    monkeypatch.setattr(cuda, "_contexts", {})
    cuda_driver._opened.cache_clear()
    kept = []  # the library calls what is in it

    def stand_in(**options: Any) -> StandIn:
        kept.append(StandIn(library, **options))
        return kept[-1]

    yield stand_in
    cuda_driver._opened.cache_clear()
    for each in kept:
        each.close()


def module_of(body: Expr, *params: Var) -> Module:
    return prepare(Module(Function(params, body, Attrs({"name": "main", "outputs": ("y",)}))))


PRODUCT = module_of(call("nn.softmax", call("nn.matmul", X, Constant(WEIGHTS, "w")), axis=1), X)


def compiled(module: Module = PRODUCT, **options: Any) -> weft.CompiledModel:
    model = weft.compile(module, target="cuda", **options)
    assert isinstance(model, weft.CompiledModel)
    return model


def numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 40)).astype(np.float32)


def test_a_model_runs_through_the_driver(opened: Opened) -> None:
    driver = opened()
    loaded = weft.load(compiled())
    for seed in range(3):
        (found,) = loaded.run({"x": numbers(seed)}).values()
        np.testing.assert_allclose(found, evaluate(PRODUCT, {"x": numbers(seed)})["y"], rtol=1e-5, atol=1e-6)
    assert driver.calls.count("cuModuleLoadDataEx") == 1
    del loaded
    gc.collect()
    assert not driver.sizes, "memory is given back"
    assert not driver.left(), "so are streams and graphs"


def test_many_kernels_are_started_by_one_call(opened: Opened) -> None:
    driver = opened()
    loaded = weft.load(compiled())
    driver.calls.clear()
    loaded.run({"x": numbers()})
    assert driver.calls.count("cuGraphLaunch") == 1
    assert "cuLaunchKernel" not in driver.calls


def test_the_kernels_of_a_text_are_compiled_once(opened: Opened) -> None:
    driver = opened()
    first, second = (weft.load(compiled()) for _ in range(2))
    np.testing.assert_array_equal(first.run(numbers())["y"], second.run(numbers())["y"])
    assert driver.calls.count("cuModuleLoadDataEx") == 1


def test_modules_of_models_that_are_gone_are_given_back(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "KEPT", 1)
    driver = opened()
    kept = weft.load(compiled())
    for factor in range(1, 5):
        module = module_of(call("nn.multiply", X, Constant(np.float32(factor).reshape(1, 1), "factor")), X)
        found = weft.load(compiled(module)).run({"x": numbers()})["y"]
        np.testing.assert_array_equal(found, numbers() * np.float32(factor))
    gc.collect()
    assert driver.calls.count("cuModuleLoadDataEx") - driver.calls.count("cuModuleUnload") <= 2
    np.testing.assert_allclose(kept.run(numbers())["y"], evaluate(PRODUCT, {"x": numbers()})["y"], rtol=1e-5, atol=1e-6)


def test_what_has_no_kernel_runs_in_numpy_between_kernels(opened: Opened) -> None:
    opened()
    matrix = Var("x", TensorType((2, 3, 3), "float32"))
    module = module_of(call("nn.exp", call("nn.inverse", call("nn.abs", matrix))), matrix)
    x = np.random.default_rng(1).normal(size=(2, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
    found = weft.load(compiled(module)).run({"x": x})["y"]
    np.testing.assert_allclose(found, evaluate(module, {"x": x})["y"], rtol=1e-4)


def test_runs_from_several_threads_do_not_meet(opened: Opened) -> None:
    opened()
    modules = [weft.load(compiled()) for _ in range(2)]
    wanted = [evaluate(PRODUCT, {"x": numbers(seed)})["y"] for seed in range(4)]

    def work(seed: int) -> None:
        for turn in range(4):
            np.testing.assert_allclose(modules[turn % 2].run({"x": numbers(seed)})["y"], wanted[seed], atol=1e-6)

    in_threads(work)


def test_bytes_of_memories_are_written_copied_and_read(opened: Opened) -> None:
    opened()
    gpu = cuda.open_cuda()
    first, second = gpu.allocate(64), gpu.allocate(64)
    data = np.arange(8, dtype=np.float32)
    gpu.write(first, 16, data)
    wanted = data.copy()
    data[...] = -1
    gpu.copy(first, 20, second, 8, 12)
    found = np.zeros(3, np.float32)
    gpu.read(second, 8, found)
    np.testing.assert_array_equal(found, wanted[1:4])


def test_layers_have_the_times_of_their_kernels(opened: Opened) -> None:
    driver = opened()
    model = compiled()
    (step,) = model.steps
    assert isinstance(step, HostStep)
    executor = GpuExecutor(step.program, find_target("cuda").host_code(step.program, trusted=True), cuda.open_cuda())
    x, y = numbers(), np.zeros((6, 24), np.float32)
    started = time.perf_counter()
    seconds = executor.execute_timed([x], [y])
    assert 0 < sum(seconds) < time.perf_counter() - started
    np.testing.assert_allclose(y, evaluate(PRODUCT, {"x": x})["y"], rtol=1e-5, atol=1e-6)
    assert dict not in driver.left(), "events are given back"


def test_a_gpu_is_chosen_by_its_number(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(devices=3)
    assert [each.name for each in cuda.cuda_devices()] == ["Stand-in 0", "Stand-in 1", "Stand-in 2"]
    assert str(cuda.open_cuda("2").device) == "Stand-in 2 (sm_80, 1,024 MiB)"
    assert cuda.open_cuda().device.number == 0
    with pytest.raises(DeviceError, match="there is no GPU '3'; hint: the GPUs: 0: Stand-in 0"):
        weft.load(compiled(), "3")
    monkeypatch.setenv(CUDA_VARIABLE, "many")
    with pytest.raises(DeviceError, match="there is no GPU 'many'"):
        weft.load(compiled())


def test_what_is_missing_is_said(
    library: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened(devices=0)
    with pytest.raises(DeviceError, match="there is no GPU of NVIDIA's; hint: install NVIDIA's driver, or choose"):
        weft.load(compiled())
    monkeypatch.setenv(cuda_driver.DRIVER_VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(DeviceError, match=r"driver cannot be used: .*none\.so.*hint: install NVIDIA's driver"):
        weft.load(compiled())
    monkeypatch.setenv(cuda_driver.DRIVER_VARIABLE, "libm.so.6")
    with pytest.raises(DeviceError, match="has no cuInit; hint: it is too old"):
        weft.load(compiled())


def test_a_gpu_that_is_too_old_for_the_model(opened: Opened) -> None:
    opened(capability=75)
    with pytest.raises(DeviceError, match=r"for sm_80, but this is Stand-in 0 \(sm_75.*hint: .* --gpu sm_75"):
        weft.load(compiled())
    (found,) = weft.load(compiled(gpu="sm_75")).run({"x": numbers()}).values()
    np.testing.assert_allclose(found, evaluate(PRODUCT, {"x": numbers()})["y"], rtol=1e-5, atol=1e-6)


def test_a_launch_keeps_its_memory_and_fits_the_device(opened: Opened) -> None:
    driver = opened(block_threads=64)
    gpu, memory = cuda.open_cuda(), cuda.open_cuda().allocate(4)
    program = gpu.load(GpuCode("ptx", DOUBLED, {"doubled": (CALL,)}))
    launch = gpu.prepare(program, CALL, [(memory, 0)])
    gpu.write(memory, 0, np.array([1.5], np.float32))
    found, address = np.zeros(1, np.float32), next(iter(driver.sizes))
    gpu.launch(launch)
    gpu.read(memory, 0, found)
    assert found == 3.0
    del memory
    gc.collect()
    assert address in driver.sizes
    with pytest.raises(DeviceError, match=r"a block has 65 threads, but .* takes 64 at most"):
        gpu.prepare(program, replace(CALL, threads=65), [])


def test_a_launch_asks_for_the_memory_that_its_groups_share(opened: Opened) -> None:
    shared = ".extern .shared .align 16 .b8 open[];\n.visible"
    text = DOUBLED.replace(".visible", shared).replace(
        "add.f32 %f2, %f1, %f1;", "st.shared.f32 [open+65532], %f1; ld.shared.f32 %f2, [open+65532];"
    )
    opened(block_shared=64 << 10)
    gpu = cuda.open_cuda()
    memory, call = gpu.allocate(4), replace(CALL, shared=64 << 10)
    program = gpu.load(GpuCode("ptx", text, {"doubled": (call,)}))
    gpu.write(memory, 0, np.array([1.5], np.float32))
    launch = gpu.prepare(program, call, [(memory, 0)])
    for each in (launch, gpu.joined([launch])):
        gpu.launch(each)
        found = np.zeros(1, np.float32)
        gpu.read(memory, 0, found)
        assert found == 1.5
    with pytest.raises(DeviceError, match=r"a block shares 65,552 bytes, but .* has 65,536 for one; hint: compile it"):
        gpu.prepare(program, replace(call, shared=(64 << 10) + 16), [(memory, 0)])


def doubling(gpu: cuda.CudaGpu, **changed: Any) -> tuple[Memory, Launch]:
    """A number, 1, on a GPU, and what doubles it."""
    memory, call = gpu.allocate(4), replace(CALL, **changed)
    gpu.write(memory, 0, np.ones(1, np.float32))
    return memory, gpu.prepare(gpu.load(GpuCode("ptx", DOUBLED, {"doubled": (call,)})), call, [(memory, 0)])


def number_in(gpu: cuda.CudaGpu, memory: Memory) -> float:
    found = np.zeros(1, np.float32)
    gpu.read(memory, 0, found)
    return float(found[0])


def test_a_launch_is_right_in_any_thread_whatever_context_is_current_there(opened: Opened) -> None:
    opened(devices=2)
    gpus = [cuda.open_cuda(str(number)) for number in range(2)]
    doubled = [doubling(gpu) for gpu in gpus]
    joined = [gpu.joined([launch]) for gpu, (_, launch) in zip(gpus, doubled, strict=True)]

    def work(_: int) -> None:  # a new thread has no context, and then the other GPU's
        for gpu, (_, launch), both in zip(gpus, doubled, joined, strict=True):
            gpu.launch(launch)
            gpu.launch(both)

    in_threads(work, 1)
    work(0)
    assert [number_in(gpu, memory) for gpu, (memory, _) in zip(gpus, doubled, strict=True)] == [16, 16]


def test_a_launch_runs_in_the_stream_of_whoever_launches_it(opened: Opened) -> None:
    opened()
    maker, other = cuda.open_cuda(), cuda.open_cuda()
    memory, launch = doubling(maker)
    for each in (launch, maker.joined([launch]), other.joined([launch])):
        other.launch(each)
    assert number_in(other, memory) == 8, "all are done before what other asks for next"
    maker.launch(launch)
    maker.launch(other.joined([launch]))
    assert number_in(maker, memory) == 32


def test_what_fails_in_a_launch_is_said(opened: Opened) -> None:
    driver = opened()
    gpu = cuda.open_cuda()
    with pytest.raises(DeviceError, match=r"^launching doubled fails: CUDA_ERROR_INVALID_VALUE \("):
        gpu.launch(doubling(gpu, groups=(0, 1, 1))[1])
    _, launch = doubling(gpu)
    joined = gpu.joined([launch])
    with pytest.raises(DeviceError, match=r"^_Bytes is not of NVIDIA's driver"):
        gpu.launch(Launch(gpu.allocate(4)))
    driver.things.update({number: None for number, each in driver.things.items() if type(each) is tuple})
    with pytest.raises(DeviceError, match=r"^launching fails: CUDA_ERROR_INVALID_HANDLE \("):
        gpu.launch(joined)
    driver._fault = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match=r"^cuCtxSetCurrent: CUDA_ERROR_ILLEGAL_ADDRESS .*please report this"):
        gpu.launch(launch)


def test_memory_of_another_device_is_refused(opened: Opened) -> None:
    opened()
    gpu, other = cuda.open_cuda(), EmulatedGpu()
    data = np.zeros(1, np.float32)
    with pytest.raises(DeviceError, match="_Bytes is not of NVIDIA's driver"):
        gpu.write(other.allocate(4), 0, data)
    with pytest.raises(DeviceError, match="_Bytes is not of the emulated device"):
        other.write(gpu.allocate(4), 0, data)


def test_too_little_memory(opened: Opened) -> None:
    driver = opened(room=1000)
    with pytest.raises(DeviceError, match=r"3,840 bytes cannot be allocated.*CUDA_ERROR_OUT_OF_MEMORY.*nvidia-smi"):
        weft.load(compiled())
    assert not driver.sizes


def test_what_the_compiler_of_the_driver_says_is_shown(opened: Opened) -> None:
    opened()
    gpu = cuda.open_cuda()
    with pytest.raises(DeviceError, match=r"refuses the kernels: CUDA_ERROR_INVALID_PTX .*; ptxas : "):
        gpu._context.module(".version 7.0\n.target sm_80\nnonsense;")


def test_a_fault_comes_with_the_wait_and_stays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened()
    loaded = weft.load(compiled())

    def fail(*_: object, **__: object) -> None:
        raise KernelFaultError("nothing is there")

    monkeypatch.setattr(Program, "launch", fail)
    for _ in range(2):  # the driver's context is of no use any more
        with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS.*please report this.*proved to stay"):
            loaded.run({"x": numbers()})


def test_wrong_inputs_leave_the_module_usable(opened: Opened) -> None:
    opened()
    loaded = weft.load(compiled())
    with pytest.raises(InputError):
        loaded.run({"x": numbers()[:2]})
    assert loaded.run({"x": numbers()})["y"].shape == (6, 24)


def test_a_forked_process_is_refused(opened: Opened) -> None:
    opened()
    loaded = weft.load(compiled())
    context = multiprocessing.get_context("fork")
    said = context.Queue()

    def child() -> None:
        for use in (lambda: loaded.run({"x": numbers()}), lambda: weft.load(compiled())):
            try:
                use()
                said.put("ran")
            except weft.WeftError as error:
                said.put(str(error))

    process = context.Process(target=child)
    process.start()
    texts = [said.get(timeout=60) for _ in range(2)]
    process.join()
    assert "loaded before this process was forked" in texts[0]
    assert "forked from one that used a GPU" in texts[1]
