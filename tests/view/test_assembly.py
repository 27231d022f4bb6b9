"""Assembly of kernels: loops as LLVM tells them, instructions by kind."""

from __future__ import annotations

import pytest
from weft.compiler.model import HostProgram
from weft.compiler.targets.cpu.build import assemblies
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import prepare
from weft.view.assembly import KINDS, Listing, form_of, kind_of, listing, mnemonic_of

from tests.compiler.targets.cpu.test_build import MODULE
from tests.compiler.targets.cpu.test_byte_forms import convolution, loop_of_products

MULTIPLY = KINDS.index("multiply-accumulate")


def program(name: str, *, floats: bool) -> HostProgram:
    target = named_target(name)
    module = MODULE if floats else convolution(127)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 0.0)  # as `loop_of_products` has it
        return link_host(prepare(module, dot_products=target.dot_product), loop_target(target), 1)


def longest(name: str, *, floats: bool = False) -> Listing:
    """The kernel with the most products in its hottest loop."""
    found = assemblies(program(name, floats=floats), named_target(name))
    return max((listing(text, symbol) for symbol, text in found.items()),
               key=lambda each: each.counts(each.hottest)[MULTIPLY])  # fmt: skip


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "alderlake", "znver4", "aarch64", "cortex-a76", "armv7a"])
def test_the_hottest_loop_is_that_of_the_products(name: str) -> None:
    found = longest(name)
    block, _ = loop_of_products(name)  # found by labels and branches alone
    hot = [mnemonic_of(found.lines[line]) for line in found.hottest if found.kinds[line] >= 0]
    hot = [mnemonic for mnemonic in hot if not mnemonic.startswith("prefetch")]  # which the other leaves out
    assert hot == [next(word for word in line.split() if word[0] != "{") for line in block]
    forms = found.forms(found.hottest)
    assert all(how for _, _, how in forms)
    assert sum(count for _, count, _ in forms) == found.counts(found.hottest)[MULTIPLY] >= 8
    assert found.hottest in [loop.lines for loop in found.loops if loop.inner]


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "znver4", "aarch64"])
def test_floats_are_multiplied_and_added_in_one_where_the_processor_can(name: str) -> None:
    found = longest(name, floats=True)
    (mnemonic, _, how), *_ = found.forms(found.hottest)
    assert mnemonic[:5] in ("mulps", "vfmad", "fmla")
    assert ("in one" in how) == (name != "x86-64-v2")


def test_loops_are_nested_and_every_line_has_a_kind() -> None:
    found = longest("x86-64-v3")
    assert sum(found.counts(range(len(found.lines)))) == sum(kind >= 0 for kind in found.kinds)
    for loop in found.loops:
        around = [other for other in found.loops if set(loop.lines) < set(other.lines)]
        assert sorted(other.depth for other in around) == list(range(1, loop.depth))
        assert loop.inner != any(set(other.lines) < set(loop.lines) for other in found.loops)
    assert listing("", "kernel").lines == ()


KINDS_OF = {
    "vmovups     (%rdi), %ymm0": "load",
    "vmovups     %ymm0, 32(%rsi)": "store",
    "vpmovdb     %zmm3, 8(%rsi)": "store",
    "vextractf128 $1, %ymm2, 16(%rsi,%rax)": "store",
    "vbroadcastss .LCPI0_0(%rip), %ymm1": "load",
    "movaps      %xmm14, 1008(%rsp)  # 16-byte Spill": "kept in memory",
    "ldp         q20, q19, [sp, #768]  # 32-byte Folded Reload": "kept in memory",
    "paddd       32(%rsp), %xmm0  # 16-byte Folded Reload": "other arithmetic",
    "vmovaps     %ymm3, %ymm4": "move",
    "vpmaddwd    (%rax), %ymm3, %ymm4": "multiply-accumulate",
    "vfmadd231ps (%rax){1to16}, %zmm3, %zmm4": "multiply-accumulate",
    "imulq       $40, %rcx, %rdx": "address and branch",
    "mul         x8, x9, x10": "address and branch",
    "madd        w8, w9, w10, w11": "address and branch",
    "mul         v8.4s, v9.4s, v10.4s": "multiply-accumulate",
    "fmla        v0.4s, v1.4s, v2.s[0]": "multiply-accumulate",
    "movzbl      (%rdi,%rax,8), %ecx": "load",
    "movb        %cl, -3(%rsi)": "store",
    "addq        $40, %r11": "address and branch",
    "vst1.32     {d16, d17}, [r1]!": "store",
    "vld1.32     {d16[0]}, [r0]": "load",
    "vmla.f32    q8, q9, d0[0]": "multiply-accumulate",
    "bl          roundf": "call",
    "callq       memset@PLT": "call",
}


@pytest.mark.parametrize("line", KINDS_OF)
def test_kinds(line: str) -> None:
    assert kind_of(line) == KINDS_OF[line]


def test_how_bytes_are_multiplied() -> None:
    mnemonics = ("vpdpbusd", "sdot", "vpdpwssd", "pmaddubsw", "vpmaddwd", "smlal2", "vmlal.s16")
    told = {each: form_of(each) for each in mnemonics}
    assert all(told.values())
    assert told["vpdpbusd"] == told["sdot"] != told["vpdpwssd"]
    assert told["smlal2"] == told["vmlal.s16"]
    assert form_of("addq") == form_of("vmovups") == ""
