"""PTX of launches: for each architecture, what is in it, and what it does in the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest
import weft
from weft.compiler.graph import call
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import NVIDIA
from weft.compiler.targets.gpu.nvptx import joined
from weft.compiler.targets.registry import find_target
from weft.runtime.artifact import save
from weft.runtime.errors import DeviceError
from weft.runtime.gpu.cuda_driver import DRIVER_VARIABLE
from weft.runtime.gpu.open import CUDA_VARIABLE
from weft.sim.ptx import parse

from .graphs import RUN_ON, module_of, values_for, variable

A, B = variable("a", "float32", 24, 40), variable("b", "float32", 40, 24)
PRODUCT = module_of([A, B], call("nn.matmul", A, B))
EXPONENTIALS = module_of([A], call("nn.sin", A), call("nn.log", A))


def code(module: weft.compiler.graph.Module, **options: object) -> tuple[weft.CompiledModel, str]:
    model = weft.compile(module, target="cuda", strict=True, **options)
    assert isinstance(model, weft.CompiledModel)
    (step,) = model.steps
    return model, find_target("cuda").host_code(step.program, trusted=True).text


@pytest.mark.parametrize("gpu", NVIDIA)
def test_every_architecture_gets_its_own_text(gpu: str) -> None:
    _, text = code(PRODUCT, gpu=gpu)
    assert re.findall(r"^\.target (\w+)", text, re.MULTILINE) == [gpu]
    kernels = parse(text)
    assert len(kernels) == 1
    (kernel,) = kernels.values()
    assert kernel.threads is not None
    assert "bar.sync" in text
    assert "fma.rn.f32" in text


def test_what_a_thread_holds_is_in_registers() -> None:
    _, text = code(PRODUCT)
    assert ".local" not in text


def test_kernels_of_several_texts_share_their_table() -> None:
    model, text = code(EXPONENTIALS)
    assert text.count("weft_two_over_pi[22]") <= 1
    one = ".version 7.0\n.target sm_80\n.address_size 64\n.global .b32 t[1] = {1};\n.visible .entry {}() {{ ret; }}\n"
    whole = joined(one.replace("{}", name).replace("{{", "{").replace("}}", "}") for name in ("a", "b"))
    assert whole.count(".version") == whole.count("t[1]") == 1
    assert set(parse(whole)) == {"a", "b"}
    values = values_for(EXPONENTIALS)
    with np.errstate(invalid="ignore"):
        wanted = [np.sin(values["a"]), np.log(values["a"])]
    for found, right in zip(weft.load(model, RUN_ON["cuda"]).run(values).values(), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)


def test_an_artifact_runs_in_the_interpreter(tmp_path: object) -> None:
    model, _ = code(PRODUCT)
    path = f"{tmp_path}/product.weft"
    save(model, path)
    values = values_for(PRODUCT)
    (found,) = weft.load(path, RUN_ON["cuda"]).run(values).values()
    np.testing.assert_allclose(found, values["a"] @ values["b"], rtol=1e-5, atol=1e-5)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="no description of an NVIDIA GPU 'generic'; hint: choose sm_75, sm_80"):
        code(PRODUCT, gpu="generic")
    model, _ = code(PRODUCT)
    monkeypatch.delenv(CUDA_VARIABLE, raising=False)
    monkeypatch.setenv(DRIVER_VARIABLE, "libnone.so")
    with pytest.raises(DeviceError, match=r"NVIDIA's driver cannot be used: libnone\.so.*choose device 'emulated'"):
        weft.load(model)
    monkeypatch.setenv(CUDA_VARIABLE, "emulated")
    assert weft.load(model) is not None
    other = weft.compile(PRODUCT, target="opencl")
    with pytest.raises(DeviceError, match="no device for OpenCL is emulated; hint: compile the model"):
        weft.load(other, "emulated")
    with pytest.raises(DeviceError, match=r"nothing of .* runs on a GPU, so device 'emulated' has nothing to do"):
        weft.load(weft.compile(PRODUCT, target="cpu"), "emulated")


def test_a_second_run_gives_the_same() -> None:
    model, _ = code(PRODUCT)
    loaded = weft.load(model, "emulated")
    values = values_for(PRODUCT)
    first, second = (next(iter(loaded.run(values).values())) for _ in range(2))
    np.testing.assert_array_equal(first, second)
