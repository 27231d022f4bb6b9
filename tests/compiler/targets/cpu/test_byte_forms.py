"""What each named processor multiplies bytes with, counted in the code of a convolution's innermost loop: a form that
falls back to widening is seen on any machine."""

from __future__ import annotations

import io
import re

import llvmlite.ir as ll
import numpy as np
import pytest
from rich.console import Console
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call
from weft.compiler.model import CompiledModel, KernelCode
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.llvm.byte_products import byte_form, byte_forms
from weft.compiler.targets.cpu.llvm.emit import emit_kernel
from weft.compiler.targets.cpu.llvm.object_code import machine, optimise
from weft.compiler.targets.cpu.processor import PROCESSORS, Processor, named_target
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.target import Job
from weft.compiler.tensor.parser import parse
from weft.runtime.report import placement_table

from .programs import program_of

FORMS = {
    "x86-64-v2": ("pmaddwd", 2.0),
    "x86-64-v3": ("pmaddwd", 5.5),
    "x86-64-v4": ("pmaddwd", 12.0),
    "alderlake": ("vpdpbusd", 16.0),
    "znver4": ("vpdpbusd", 38.0),
    "armv7a": ("vmlal", 2.2),
    "armv7a-ieee": ("vmlal", 2.2),
    "cortex-a9": ("vmlal", 2.2),
    "aarch64": ("smlal", 3.1),
    "cortex-a53": ("smlal", 3.1),
    "cortex-a76": ("sdot", 5.4),
    "neoverse-v1": ("usdot", 9.5),
}
"""For each processor its form, and products of bytes for each instruction of the loop, at least."""

PAIRED_FORMS = {"x86-64-v2": ("pmaddubsw", 3.1), "x86-64-v3": ("pmaddubsw", 8.3), "x86-64-v4": ("pmaddubsw", 16.5)}
"""The same for weights that bear sums of pairs, where it is another form."""

MNEMONICS = {
    "vpdpbusd": r"(\{vex\}\s+)?vpdpbusd",
    "pmaddwd": "v?pmaddwd",
    "pmaddubsw": "v?pmaddubsw",
    "smlal": "sm(ul|lal)2?",
    "vmlal": "vm(ul|la)l",
}
"""How a form's instruction is written, where that is not its name."""

BRANCH = re.compile(r"(j[a-z]+|b|b[a-z]{2}|b\.[a-z]+|cbn?z|tbn?z)\s")


def convolution(largest: int) -> Module:
    random = np.random.default_rng(0)
    x = Var("x", TensorType((1, 64, 14, 14), "int8"))
    weights = random.integers(-largest, largest, (64, 64, 3, 3), np.int8, endpoint=True)
    sums = call("conv2d", x, Constant(weights), pads=(1,) * 4)
    multipliers = random.integers(1 << 22, 1 << 23, 64, np.int32)
    parameters = [Constant(each) for each in (np.full(64, 77, np.int32), multipliers, np.full(64, 33, np.int32))]
    body = call("requantise", sums, *parameters, zero_point=3)
    return Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))


def model_of(largest: int, processor: Processor, *, fewer: bool = False) -> CompiledModel:
    """A convolution, with all of its products or, where there are words, with ``fewer``."""
    module = prepare(convolution(largest), dot_products=processor.dot_product)
    with pytest.MonkeyPatch.context() as patch:
        if not fewer:
            patch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 0.0)
        return link_model(module, "cpu", loop_target(processor), 1, Job())


def kernel_of(name: str, *, paired: bool = False, fewer: bool = False) -> tuple[KernelCode, Processor]:
    """The kernel of a convolution."""
    processor = named_target(name)
    model = model_of(64 if paired else 127, processor, fewer=fewer)
    (code,) = (each for each in program_of(model).kernels if "_product_" in each.text)
    return code, processor


def text_of(code: KernelCode, processor: Processor) -> str:
    """A kernel's LLVM IR."""
    unit = ll.Module("kernel")
    emit_kernel(unit, parse(code.text, intrinsic_named), processor, 1, code.windows, proved=True)
    return str(unit)


def code_of(code: KernelCode, processor: Processor) -> list[str]:
    """A kernel's lines of assembly."""
    return str(machine(processor).emit_assembly(optimise(text_of(code, processor), processor))).splitlines()


def loop_of_products(name: str, *, paired: bool = False) -> tuple[list[str], int]:
    """The instructions of the loop of a convolution with the most products, and the products of bytes that it makes."""
    code, processor = kernel_of(name, paired=paired)
    loop, found = loop_of_the_form(text_of(code, processor), processor, paired=paired)
    return loop, found * processor.float_lanes * 4


def loop_of_the_form(text: str, processor: Processor, *, paired: bool) -> tuple[list[str], int]:
    """The instructions of the loop of this LLVM IR with the most instructions of the processor's form, and how many
    times these multiply a register's four bytes for each lane."""
    form = byte_form(processor, processor.float_lanes, paired=paired)
    loop, found = loop_of(text, processor, MNEMONICS.get(form.name, form.name))
    return loop, found // {"pmaddwd": 2, "smlal": 4, "vmlal": 4}.get(form.name, 1)


def loop_of(text: str, processor: Processor, mnemonic: str) -> tuple[list[str], int]:
    """The loop with the most instructions that are written so (a regular expression), and how many these are. What only
    brings weights nearer is no part of a form, and left out."""
    found: list[list[str]] = [[]]
    for line in map(str.strip, machine(processor).emit_assembly(optimise(text, processor)).splitlines()):
        if line.endswith(":") or re.match(r"\.?L\w+:", line):
            found.append([])
        elif line and line[0] not in ".#@/;" and not line.startswith("prefetch"):
            found[-1].append(line)
            if BRANCH.match(line):
                found.append([])
    written = re.compile(mnemonic + r"[.\s]")

    def count(block: list[str]) -> int:
        return sum(bool(written.match(line)) for line in block)

    loop = max(found, key=count)
    return loop, count(loop)


def test_every_processor_has_a_form() -> None:
    assert set(FORMS) == set(PROCESSORS)
    for name in PROCESSORS:
        assert byte_forms(named_target(name))[-1].name == "mul"  # for registers that others are not for


@pytest.mark.parametrize("name", FORMS)
def test_products_of_weights_that_bear_pairs(name: str) -> None:
    processor = named_target(name)
    form, least = PAIRED_FORMS.get(name, FORMS[name])
    assert byte_form(processor, processor.float_lanes, paired=True).name == form
    loop, products = loop_of_products(name, paired=True)
    assert products / len(loop) >= least, "\n".join(loop)
    assert (name in PAIRED_FORMS) == any("pmaddubsw" in line for line in loop)


@pytest.mark.parametrize("name", FORMS)
def test_products_of_bytes_for_each_instruction(name: str) -> None:
    processor = named_target(name)
    form, least = FORMS[name]
    assert byte_form(processor, processor.float_lanes).name == form
    loop, products = loop_of_products(name)
    assert products / len(loop) >= least, "\n".join(loop)


@pytest.mark.parametrize("name", FORMS)
def test_windows_of_three_take_fewer_products_of_words(name: str) -> None:
    """The loop over channels is that of all products, which it has 16 of in place of 36; dot products need none of
    that."""
    code, processor = kernel_of(name, fewer=True)
    words = byte_form(processor, processor.float_lanes).words
    assert ("transformed" in code.text) == bool(words)
    told = [layer.form for layer in model_of(127, processor, fewer=True).layers if layer.form]
    assert told == ["words in Winograd's form; 16 products for 36"] * bool(words)
    if words:
        loop, found = loop_of_the_form(text_of(code, processor), processor, paired=False)
        assert found * processor.float_lanes * 4 / len(loop) >= 0.95 * FORMS[name][1], "\n".join(loop)


def test_sums_become_bytes_in_few_instructions() -> None:
    """Of AVX2, for two registers of sums: four multiplications, and one of each step that packs; what depends on the
    channel alone is computed once for all pixels of a tile."""
    code, processor = kernel_of("x86-64-v3")
    lines = [line.split()[0] for line in map(str.strip, code_of(code, processor)) if line and line[0] not in ".#"]
    pairs = lines.count("vpmuldq") // 4
    rows, lanes = map(int, re.search(r"word_product_(\d+)_(\d+)_", code.text).groups())  # type: ignore[union-attr]
    assert pairs == rows * lanes // (2 * processor.float_lanes)
    assert lines.count("vpackssdw") == lines.count("vpackuswb") == lines.count("vextracti128") == pairs
    assert lines.count("vpxor") <= rows * lanes // processor.float_lanes  # sums that begin with 0, and no 128 added
    assert lines.count("vpshufd") <= 5 * pairs + lanes // processor.float_lanes


@pytest.mark.parametrize("name", FORMS)
def test_a_layer_says_by_what_its_bytes_are_multiplied_and_why(name: str) -> None:
    processor = named_target(name)
    for largest, told in (
        (64, "pairs in 16 bits; 0 of 144 fours of weights once more"),
        (127, f"words; by pairs in 16 bits {135 if name == 'x86-64-v2' else 144} of 144 fours of weights once more"),
    ):
        model = model_of(largest, processor)
        assert [layer.form for layer in model.layers if layer.form] == ([told] if name in PAIRED_FORMS else [])
        shown = Console(width=200, file=io.StringIO())
        for verbose in (False, True):
            with shown.capture() as captured:
                shown.print(placement_table(model, verbose=verbose))
            short = f"bytes are multiplied by {told.partition(';')[0]} in 1 layer"
            assert (f"multiplies bytes by {told}" if verbose else short) in captured.get() or name not in PAIRED_FORMS
            assert ("bytes" in captured.get()) == (name in PAIRED_FORMS)


def test_a_table_is_read_by_registers() -> None:
    """Of AVX2 and of 64-bit ARM: no load for each lane."""
    table = Constant(np.random.default_rng(5).permutation(np.arange(-128, 128)).astype(np.int8))
    x = Var("x", TensorType((1, 32, 4, 64), "int8"))
    module = Module(Function((x,), call("look_up", x, table), Attrs({"name": "main", "outputs": ("y",)})))
    for name, shortest, picking in (("x86-64-v3", r"vpshufb", 16), ("x86-64-v4", r"vpshufb", 16),
                                    ("znver4", r"v?vpermi2b|vpermt2b", 2), ("aarch64", r"tb[lx]", 4)):  # fmt: skip
        processor = named_target(name)
        (code,) = program_of(link_model(prepare(module), "cpu", loop_target(processor), 1, Job())).kernels
        loop, found = loop_of(text_of(code, processor), processor, shortest)
        registers = found // picking
        assert registers, "\n".join(loop)
        assert found % picking == 0, name
        assert len(loop) <= registers * 3.5 * picking + 20, "\n".join(loop)
