"""Products of bfloat16 by twos: what float64 allows, to the bit where sums are exact, and with or without the
processor's instruction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import llvmlite.ir as ll
import ml_dtypes
import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, Module, TensorType, Var, call
from weft.compiler.model import CompiledModel, HostProgram
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.llvm.emit import emit_kernel
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.processor import Processor, host_target, named_target
from weft.compiler.tensor.parser import parse
from weft.runtime.host import HostExecutor

from .programs import compiled, program_of
from .test_link import kinds, module_of

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HOST = host_target()
WITHOUT = replace(HOST, cpu="x86-64-v4", features=HOST.features.replace("+avx512bf16", "-avx512bf16"))
SMALLEST = 2.0**-126
"""The smallest number that the instruction does not take as 0."""

SIZES = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 48, 65, 100])
DEPTHS = st.sampled_from([2, 3, 4, 7, 16, 31, 40, 65, 130])
FORMS = st.sampled_from(["matmul", "dense", "weights", "dense weights"])
LEADS = st.sampled_from([((), ()), ((3,), ()), ((2, 1), (3,)), ((1,), (2,)), ((2, 3), (2, 3))])

needs_pairs = pytest.mark.skipif(not HOST.pairs, reason="this processor has no products of bfloat16 by twos")


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


@pytest.fixture
def by_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are made as for a processor with the instruction; code is made for the one that runs them."""
    monkeypatch.setattr("weft.compiler.targets.cpu.products.CpuProducts.pairs", True)


def whole_numbers(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """So small that sums of their products are exact in float32."""
    return random.integers(-16, 17, shape).astype(BFLOAT16)


def normal(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    return random.standard_normal(shape).astype(BFLOAT16)


def product(form: str, left: Array, right: Array) -> tuple[Expr, tuple[Var, ...], dict[str, Array]]:
    """(..., rows, depth) times (..., depth, columns), the second as the form has it."""
    a = Var("a", TensorType(left.shape, "bfloat16"))
    turned = np.ascontiguousarray(right.T) if form.startswith("dense") else right
    b: Expr = Constant(turned) if "weights" in form else Var("b", TensorType(turned.shape, "bfloat16"))
    value = call("nn.dense" if form.startswith("dense") else "nn.matmul", a, b)
    if isinstance(b, Var):
        return value, (a, b), {"a": left, "b": turned}
    return value, (a,), {"a": left}


def run(module: Module, values: dict[str, Array], threads: int = 1) -> tuple[Array, CompiledModel]:
    model = compiled(module, threads=threads)
    return weft.load(model).run(values)["out0"], model


def exact(left: Array, right: Array) -> Array:
    return np.matmul(left.astype(np.float64), right.astype(np.float64))


def allowed(left: Array, right: Array) -> Array:
    """Docs say so: each addition is rounded to 24 bits, numbers below `SMALLEST` count as 0, the end has 8 bits."""
    a, b = np.abs(left.astype(np.float64)), np.abs(right.astype(np.float64))
    depth = left.shape[-1]
    small = np.matmul(np.where(a < SMALLEST, a, 0), b) + np.matmul(a, np.where(b < SMALLEST, b, 0))
    sums = np.matmul(a, b) * (depth + 1) * 2.0**-24 + small + (depth + 1) * SMALLEST
    return (np.abs(exact(left, right)) + sums) * 2.0**-8 + sums


@settings(max_examples=40, deadline=None)
@given(SIZES, DEPTHS, SIZES, FORMS, LEADS, st.sampled_from([1, 2]), st.integers(0, 99))
@pytest.mark.usefixtures("by_twos")
def test_exact_sums_are_rounded_once(
    rows: int, depth: int, columns: int, form: str, leads: tuple[tuple[int, ...], tuple[int, ...]], threads: int,
    seed: int,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    lead = leads if form == "matmul" else ((), ())
    left = whole_numbers((*lead[0], rows, depth), random)
    right = whole_numbers((*lead[1], depth, columns), random)
    value, params, values = product(form, left, right)
    found, model = run(module_of(value, params=params), values, threads)
    assert kinds(model) == ["product"]
    assert all("pair_product" in kernel.text for kernel in program_of(model).kernels)
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


@settings(max_examples=25, deadline=None)
@given(SIZES, DEPTHS, SIZES, FORMS, st.sampled_from([0, -60, -120, -130, 60]), st.integers(0, 99))
@pytest.mark.usefixtures("by_twos")
def test_sums_stay_within_the_bound(rows: int, depth: int, columns: int, form: str, power: int, seed: int) -> None:
    """Also of operands of which some are below the smallest number of full precision."""
    random = np.random.default_rng(seed)
    left = (random.standard_normal((rows, depth)) * 2.0**power).astype(BFLOAT16)
    right = normal((depth, columns), random)
    value, params, values = product(form, left, right)
    found, _ = run(module_of(value, params=params), values)
    assert np.all(np.abs(found.astype(np.float64) - exact(left, right)) <= allowed(left, right))


@settings(max_examples=15, deadline=None)
@given(SIZES, DEPTHS, SIZES, FORMS, st.integers(0, 99))
@pytest.mark.usefixtures("by_twos")
def test_what_is_behind_a_product_is_computed_with_it(
    rows: int, depth: int, columns: int, form: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    left, right = whole_numbers((rows, depth), random), whole_numbers((depth, columns), random)
    bias = random.integers(-99, 99, columns).astype(np.float32)
    value, params, values = product(form, left, right)
    wide = call("nn.add", call("nn.cast", value, to="float32"), Constant(bias))
    found, model = run(module_of(call("nn.clip", wide, low=0.0), params=params), values)
    assert kinds(model) == ["product"]
    rounded = exact(left, right).astype(np.float32).astype(BFLOAT16).astype(np.float32)
    np.testing.assert_array_equal(found, np.maximum(rounded + bias, 0))


@pytest.mark.usefixtures("by_twos")
def test_weights_that_are_several_matrices() -> None:
    random = np.random.default_rng(0)
    left, right = whole_numbers((3, 19, 33), random), whole_numbers((3, 33, 40), random)
    a = Var("a", TensorType(left.shape, "bfloat16"))
    found, model = run(module_of(call("nn.matmul", a, Constant(right)), params=(a,)), {"a": left})
    assert "pair_product" in program_of(model).kernels[0].text
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


@pytest.mark.parametrize("depth", [100, 101])
@pytest.mark.usefixtures("by_twos")
def test_an_operand_in_blocks_is_copied_into_rows(depth: int) -> None:
    """A pooling makes its result in blocks of channels."""
    random = np.random.default_rng(0)
    image, right = whole_numbers((1, 16, 40, 2 * depth), random), whole_numbers((depth, 48), random)
    x = Var("x", TensorType(image.shape, "bfloat16"))
    pooled = call("nn.max_pool", x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))
    rows = call("nn.matmul", pooled, Constant(right))
    found, model = run(module_of(rows, params=(x,)), {"x": image})
    left = image.astype(np.float32).reshape(1, 16, 20, 2, depth, 2).max((3, 5))
    assert "product" in kinds(model)
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("images", "channels", "taps"), [(16, 32, 9), (23, 32, 9), (31, 17, 9), (5, 3, 3)])
@pytest.mark.usefixtures("by_twos")
def test_rows_that_are_gathered_a_block_at_a_time(images: int, channels: int, taps: int, threads: int) -> None:
    random = np.random.default_rng(0)
    image, right = whole_numbers((images, 100, channels), random), whole_numbers((taps * channels, 40), random)
    x, w = Var("x", TensorType(image.shape, "bfloat16")), Var("w", TensorType(right.shape, "bfloat16"))
    table = random.integers(-100, 100, (64, taps))
    met = call("gather", x, Constant(table), axis=1)
    rows = call("reshape", met, shape=(images * 64, taps * channels))
    found, model = run(module_of(call("nn.matmul", rows, w), params=(x, w)), {"x": image, "w": right}, threads)
    assert len(model.layers) == 1
    assert "pair_product" in program_of(model).kernels[0].text
    left = image.astype(np.float32)[:, table].reshape(images * 64, taps * channels)
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


def executed(program: HostProgram, values: list[Array], shape: tuple[int, ...], target: Processor) -> Array:
    result = np.empty(shape, BFLOAT16)
    HostExecutor(program, build_program(program, target)).run(values, [result])
    return result


@pytest.mark.parametrize("form", ["matmul", "dense", "weights"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(37, 64, 75), (20, 33, 64), (1, 40, 17)])
@needs_pairs
def test_a_program_runs_on_a_processor_without_the_instruction(
    form: str, rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same bits, as both add up in the same order."""
    monkeypatch.setenv("WEFT_CACHE", "/dev/null")
    random = np.random.default_rng(0)
    left, right = normal((rows, depth), random), normal((depth, columns), random)
    value, params, values = product(form, left, right)
    program = program_of(compiled(module_of(value, params=params)))
    own, other = (executed(program, list(values.values()), (rows, columns), each) for each in (HOST, WITHOUT))
    np.testing.assert_array_equal(own, other)


@needs_pairs
def test_the_second_of_two_is_added_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """2**30 + 1 is 2**30, so that nothing stays of the one; in the other order it would."""
    monkeypatch.setenv("WEFT_CACHE", "/dev/null")
    left, right = np.array([[2.0**30, 0, -(2.0**30), 1]], BFLOAT16), np.ones((4, 16), BFLOAT16)
    value, params, values = product("matmul", left, right)
    program = program_of(compiled(module_of(value, params=params)))
    for target in (HOST, WITHOUT):
        assert not np.any(executed(program, list(values.values()), (1, 16), target))


def llvm_text(program: HostProgram, target: Processor) -> str:
    module = ll.Module("kernel")
    (code,) = program.kernels
    emit_kernel(module, parse(code.text, intrinsic_named), target, 1, code.windows)
    assert object_code(str(module), target)
    return str(module)


@needs_pairs
def test_the_instruction_is_only_for_processors_that_have_it() -> None:
    random = np.random.default_rng(0)
    value, params, _ = product("matmul", normal((30, 64), random), normal((64, 48), random))
    program = program_of(compiled(module_of(value, params=params)))
    assert "llvm.x86.avx512bf16.dpbf16ps.512" in llvm_text(program, HOST)
    for other in (WITHOUT, named_target("aarch64"), named_target("armv7a")):
        assert not other.pairs
        assert "bf16" not in llvm_text(program, other)


@pytest.mark.parametrize("processor", ["aarch64", "armv7a"])
def test_processors_without_it_widen_as_before(processor: str) -> None:
    random = np.random.default_rng(0)
    value, params, _ = product("matmul", normal((30, 64), random), normal((64, 48), random))
    model = compiled(module_of(value, params=params), processor=processor)
    (kernel,) = program_of(model).kernels
    assert "pair_product" not in kernel.text
    assert "outer_product" in kernel.text


@pytest.mark.parametrize("vector_bytes", [16, 32])
@pytest.mark.usefixtures("by_twos")
def test_shorter_registers(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = replace(HOST, vector_bytes=vector_bytes, registers=16)
    monkeypatch.setattr("weft.compiler.targets.cpu.target.named_target", lambda name: shorter)
    monkeypatch.setenv("WEFT_CACHE", "/dev/null")  # kernels are kept by the processor's name
    random = np.random.default_rng(0)
    for form in ("matmul", "dense", "weights"):
        left, right = whole_numbers((19, 30), random), whole_numbers((30, 45), random)
        value, params, values = product(form, left, right)
        found, _ = run(module_of(value, params=params), values)
        np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


@pytest.mark.parametrize(("form", "step"), [("matmul", "interleaved_halves"), ("dense", "transposed_pairs")])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(211, 700, 250), (300, 513, 64), (120, 300, 41)])
@pytest.mark.usefixtures("by_twos")
def test_panels_are_copied_in_registers(form: str, step: str, rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    left, right = whole_numbers((rows, depth), random), whole_numbers((depth, columns), random)
    value, params, values = product(form, left, right)
    found, model = run(module_of(value, params=params), values, threads=2)
    assert step in program_of(model).kernels[0].text
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


def test_a_depth_of_one_is_widened() -> None:
    random = np.random.default_rng(0)
    left, right = normal((9, 1), random), normal((1, 20), random)
    value, params, values = product("matmul", left, right)
    found, model = run(module_of(value, params=params), values)
    assert "pair_product" not in program_of(model).kernels[0].text
    np.testing.assert_array_equal(found, exact(left, right).astype(np.float32).astype(BFLOAT16))


@needs_pairs
def test_numbers_below_the_smallest_are_taken_as_zero() -> None:
    """As the documentation of the instruction says."""
    left, right = np.full((1, 2), SMALLEST / 2, BFLOAT16), np.full((2, 16), 1.0, BFLOAT16)
    value, params, values = product("matmul", left, right)
    found, _ = run(module_of(value, params=params), values)
    assert not np.any(found)
