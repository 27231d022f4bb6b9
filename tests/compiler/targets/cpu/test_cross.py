"""Code for ARM boards, run under qemu: the integers of the graph to the bit, its floats but for rounding.

The tests skip without the emulator, linker and C library; ``.ci/run`` installs them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.model import NumpyStep
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.llvm.threads import pool_text
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.loops.prepare import prepare

from examples.models.build import build
from examples.models.images import images

from .cross import WITH_DOT_PRODUCTS, Array, Run, linked, run_on, skip_without
from .programs import compiled, integers_of, program_of

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
FLAGS, HARD_FLOAT = 0x24, 0x400
"""Where an ARM executable has its flags; and the one by which floats are passed in the floating-point unit's registers.
"""


@pytest.fixture(params=["aarch64", "armv7a"])
def processor(request: pytest.FixtureRequest) -> str:
    skip_without(request.param)
    return str(request.param)


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


def module_of(*results: Expr, params: tuple[Var, ...]) -> Module:
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function(params, Tuple(results), Attrs({"name": "main", "outputs": names})))


def constants(dtype: str, *shape: int) -> Constant:
    return Constant(random_array(dtype, shape, np.random.default_rng(0)))


def random_array(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def check(
    module: Module, processor: str, folder: Path, threads: int = 1, tolerance: float = 1e-5
) -> weft.CompiledModel:
    """Compile for ``processor`` and run there; ``tolerance`` is relative to a result's largest element."""
    generator = np.random.default_rng(1)
    runs = [{param.name: random_array(param.dtype, param.shape, generator) for param in module.main.params}
            for _ in range(2)]  # fmt: skip
    model = compiled(module, processor=processor, threads=threads, strict=True)
    for values, found in zip(runs, run_on(model, processor, runs, folder), strict=True):
        for name, array in evaluate(module, values).items():
            if array.dtype.kind == "f":
                largest = float(np.abs(array).max())
                np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance * largest, err_msg=name)
            else:
                np.testing.assert_array_equal(found[name], array, err_msg=name)
    return model


@pytest.mark.parametrize("threads", [1, 3])
def test_digits_are_the_integers_of_the_graph(processor: str, threads: int, tmp_path: Path) -> None:
    source = from_onnx(DIGITS)
    integers = integers_of(source)
    model = compiled(source, processor=processor, threads=threads, strict=True)
    assert program_of(model).threads == threads
    generator = np.random.default_rng(0)
    runs = [{"image": generator.random((1, 1, 8, 8)).astype(np.float32)} for _ in range(20)]
    for values, found in zip(runs, run_on(model, processor, runs, tmp_path), strict=True):
        np.testing.assert_array_equal(found["logits"], evaluate(integers, values)["logits"])


@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_in_floats(processor: str, threads: int, tmp_path: Path) -> None:
    """A dense one, a depthwise one and a pooling in blocks, with an epilogue."""
    x = Var("x", TensorType((1, 10, 9, 11), "float32"))
    dense = call("nn.conv2d", x, constants("float32", 24, 10, 3, 3), pads=(1, 1, 1, 1))
    dense = call("nn.tanh", call("nn.add", dense, constants("float32", 1, 24, 1, 1)))
    depthwise = call("nn.conv2d", dense, constants("float32", 24, 1, 3, 3), strides=(2, 2), groups=24)
    pooled = call("nn.max_pool", depthwise, kernel=(2, 2), strides=(2, 2))
    model = check(module_of(pooled, dense, params=(x,)), processor, tmp_path, threads)
    assert [layer.kind for layer in model.layers if layer.kind != "convert"] == ["convolution", "blocked", "blocked"]
    # Without fused multiply-add, as in a Cortex-A9, it must not become a call for every lane.
    assert not any(b"fmaf" in content for content in build_program(program_of(model), named_target(processor)).objects)


def test_tables_of_bytes(processor: str, tmp_path: Path) -> None:
    """Alone in lanes, and behind a convolution."""
    x = Var("x", TensorType((1, 16, 4, 64), "int8"))
    table = Constant(np.random.default_rng(5).permutation(np.arange(-128, 128)).astype(np.int8))
    sums = call("conv2d", x, constants("int8", 16, 16, 1, 1))
    narrow = call("requantise", sums, *(Constant(np.full(16, number, np.int32)) for number in (77, 3 << 21, 30)))
    check(module_of(call("look_up", x, table), call("look_up", narrow, table), params=(x,)), processor, tmp_path)


def test_volumes_of_bytes(processor: str, tmp_path: Path) -> None:
    """A convolution, a pooling and a convolution of each channel, with what is around them."""
    x = Var("x", TensorType((1, 5, 4, 5, 6), "int8"))
    value: Expr = call("conv3d", x, constants("int8", 16, 5, 2, 3, 3), pads=(1, 1, 1, 0, 1, 2), pad_value=-9)
    parameters = [Constant(np.full(16, number, np.int32)) for number in (77, 3 << 21, 30)]
    value = call("requantise", value, *parameters)
    window = {"kernel": (2, 2, 2), "strides": (1, 2, 1), "dilations": (1, 1, 1), "pads": (0, 1, 1, 1, 0, 0)}
    value = call(
        "conv3d", call("max_pool", value, **window), constants("int8", 16, 1, 3, 1, 2), pads=(1,) * 6, groups=16
    )
    model = check(module_of(call("requantise", value, *parameters), params=(x,)), processor, tmp_path)
    assert [layer.kind for layer in model.layers if layer.kind != "convert"] == ["convolution", "blocked", "blocked"]


@pytest.mark.parametrize("name", ["aarch64", "armv7a", *WITH_DOT_PRODUCTS])
def test_products_of_bytes_at_their_ends(name: str, tmp_path: Path) -> None:
    """Each form of products of bytes, in dense and in grouped layers: -128 and 127 meet each other, and all between."""
    skip_without(name)
    x = Var("x", TensorType((1, 32, 6, 7), "int8"))
    ends = Constant(np.where(np.arange(48 * 32 * 9) % 3, -128, 127).reshape(48, 32, 3, 3).astype(np.int8))
    dense = call("conv2d", x, ends, pads=(1,) * 4, pad_value=-128)
    grouped = call("conv2d", x, constants("int8", 32, 8, 3, 3), pads=(1,) * 4, groups=4)
    narrow = call("conv2d", x, constants("int8", 7, 32, 1, 1))
    check(module_of(dense, grouped, narrow, params=(x,)), name, tmp_path)


def test_what_libraries_compute(processor: str, tmp_path: Path) -> None:
    """On ARM floats go to the C library's functions in registers, and long integers are divided by the compiler's."""
    x, y = (Var(name, TensorType((3, 7), "float32")) for name in "xy")
    n, d = Var("n", TensorType((3, 7), "int64")), Var("d", TensorType((3, 7), "float64"))
    positive = call("nn.add", call("nn.abs", x), Constant(np.float32(0.5)))
    results = (
        call("nn.erf", x),
        call("nn.power", positive, y),
        call("nn.exp", x),
        call("nn.atan", x),
        call("nn.sin", d),
        call("nn.divide", n, Constant(np.int64(-1_234_567_891_011))),
        call("nn.modulo", n, Constant(np.int64(1_000_003))),
        call("nn.cast", n, to="float32"),
    )
    model = check(module_of(*results, params=(x, y, n, d)), processor, tmp_path)
    called = b"".join(build_program(program_of(model), named_target(processor)).objects)
    assert all(name in called for name in (b"atanf", b"sin"))
    assert not any(name in called for name in (b"erff", b"powf", b"expf"))  # polynomials
    assert (b"__aeabi_ldivmod" in called) == (processor == "armv7a")


def test_narrow_floats_are_rounded_to_the_bit(processor: str, tmp_path: Path) -> None:
    h, d = Var("h", TensorType((3, 7), "float16")), Var("d", TensorType((3, 7), "float64"))
    results = [call("nn.multiply", h, h)]
    results += [call("nn.cast", d, to=dtype) for dtype in ("float16", "bfloat16", "float32")]
    check(module_of(*results, params=(h, d)), processor, tmp_path, tolerance=0)


SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-39, -3e-39, 1.1754944e-38, 1e-38, 0.5, 1.5, 2.5, -0.5, 1e30, -1e30, np.inf, -np.inf,
     3.4e38, 127.5, 128.5, -128.5, 2**24 + 1, 1 / 3], np.float32)  # fmt: skip
"""Numbers that processors may treat in their own way; those below 1.18e-38 are denormal."""


@pytest.mark.parametrize("exact", ["aarch64", "armv7a-ieee"])
def test_floats_of_one_operation_are_those_of_the_host_to_the_bit(exact: str, tmp_path: Path) -> None:
    """Also the smallest ones, which NEON of 32-bit processors takes as 0."""
    skip_without(exact)
    generator = np.random.default_rng(5)
    bits = generator.integers(0, 2**32, 1000, np.uint32).view(np.float32)
    tiny = generator.integers(0, 2**24, 200, np.uint32).view(np.float32)
    values = np.concatenate([SPECIAL, bits[np.isfinite(bits)], tiny])
    x, y = (Var(name, TensorType(values.shape, "float32")) for name in "xy")
    results = (
        *(call(f"nn.{name}", x, y) for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum")),
        *(call(f"nn.{name}", x) for name in ("abs", "negative", "floor", "ceil", "round")),
        call("nn.sqrt", call("nn.abs", x)),
        call("nn.cast", call("nn.clip", x, low=-1e5, high=1e5), to="int32"),
    )
    module = module_of(*results, params=(x, y))
    run = {"x": values, "y": generator.permutation(values)}
    with np.errstate(all="ignore"):
        expected = weft.load(compiled(module)).run(run)
    (found,) = run_on(compiled(module, processor=exact, strict=True), exact, [run], tmp_path)
    for name, array in expected.items():
        known = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, bool)  # NaNs have many bits
        np.testing.assert_array_equal(np.isnan(found[name]), ~known, err_msg=name)
        np.testing.assert_array_equal(found[name][known].view(np.int32), array[known].view(np.int32), err_msg=name)


def test_floats_are_passed_in_registers_of_their_own(tmp_path: Path) -> None:
    """A triple of three parts instead of four gives the other convention without a word; the linker tells."""
    skip_without("armv7a")
    x = Var("x", TensorType((3,), "float32"))
    model = compiled(module_of(call("nn.erf", x), params=(x,)), processor="armv7a")
    runs = [{"x": np.ones(3, np.float32)}]
    code = build_program(program_of(model), named_target("armv7a"))
    program = linked(model, code, "armv7a", runs, tmp_path)
    assert int.from_bytes(program.read_bytes()[FLAGS : FLAGS + 4], "little") & HARD_FLOAT
    three = replace(named_target("armv7a"), triple="armv7a-linux-gnueabihf")
    soft = object_code(pool_text(three.triple), three)
    with pytest.raises(AssertionError, match="uses VFP register arguments"):
        linked(model, replace(code, objects=(*code.objects[:-1], soft)), "armv7a", runs, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("network", ["mobilenet_v2", "resnet18"])
def test_a_network_gives_the_integers_of_the_host(processor: str, network: str, tmp_path: Path) -> None:
    path = build(network, size=64, width=0.5)
    host = weft.load(compiled(path))
    runs = [{host.model.inputs[0].name: images(1, 64, seed)} for seed in range(2)]
    found = run_on(compiled(path, processor=processor, threads=2, strict=True), processor, runs, tmp_path)
    for values, outputs in zip(runs, found, strict=True):
        for name, array in host.run(values).items():
            np.testing.assert_array_equal(outputs[name], array)


@pytest.mark.long
def test_random_graphs(processor: str, campaign: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small ones, with all passes and with each left out; those that are machine code throughout are run."""
    runs = 0

    def run_there(module: Module, inputs: Run, *_: object) -> Run:
        nonlocal runs
        model = compiled(prepare(module), processor=processor)
        if any(isinstance(step, NumpyStep) for step in program_of(model).steps):
            return evaluate(module, inputs)
        runs += 1
        return run_on(model, processor, [inputs], tmp_path)[0]

    monkeypatch.setattr(campaign, "compiled", run_there)
    for seed in range(150):
        assert campaign.check(seed, 3, campaign.Tally()) == ""
    assert runs > 100
