"""Pages of the manual's reference about hardware: the bits of every instruction, and the intrinsics of all targets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import IntEnum
from itertools import product

from drawing import isa
from reference_text import cell, docstring
from weft.compiler.targets.accel.operators.intrinsics import intrinsics as core_intrinsics
from weft.compiler.targets.cpu import intrinsics as cpu
from weft.compiler.targets.gpu import intrinsics as gpu
from weft.compiler.tensor import TensorIntrinsic
from weft.compiler.tensor.errors import IRError
from weft.compiler.tensor.printer import intrinsic_text
from weft.hw.config import NAMED, PYNQ, CoreConfig
from weft.hw.isa import (
    HEADER,
    INSTRUCTION_TYPES,
    Engine,
    Fault,
    Instruction,
    Opcode,
    Scratchpad,
    VectorOp,
    VectorTarget,
    instruction_fields,
)

CODES = (Opcode, Engine, Scratchpad, VectorOp, VectorTarget, Fault)
"""Fields that are numbers with names."""

SAID = {
    "opcode": "which instruction it is", "engine": "whose queue it goes to",
    "reserved": "0", "check": "check bits over all others, which the assembler sets",
}  # fmt: skip
"""What all instructions have, and no dataclass declares."""


def pictures() -> dict[str, str]:
    """A picture of each instruction's bits, by file name."""
    return {f"instruction-{each.name.lower()}.svg": isa.draw_instruction(PYNQ, each) for each in Opcode}


def instructions() -> str:
    """The bits of all instructions, for the cores that have names."""
    names = list(NAMED)
    lines = [
        "# Instructions, to the bit", "",
        "What an assembler, a disassembler or another simulator has to know: where each field of an instruction lies.",
        "[isa.md](../isa.md) says what the instructions mean. A row of a picture has 64 bits; bit 0 is at the right.",
        "The widths follow from the core's configuration: the pictures show `pynq`, the tables all cores with a name.",
        "Here is `LOAD`:", "", "![The bits of LOAD](instruction-load.svg)", "",
        f"An instruction is one word, little endian in DRAM: {_listed(names)} bits.", "",
    ]  # fmt: skip
    for opcode in Opcode:
        kind = INSTRUCTION_TYPES[opcode]
        lines += [
            f"## {opcode.name}",
            "",
            *docstring(kind),
            f"![The bits of {opcode.name}](instruction-{opcode.name.lower()}.svg)",
            "",
        ]
        lines += [
            f"| field | {' | '.join(f'`{name}`' for name in names)} | what it is |",
            f"|---|{'---:|' * len(names)}---|",
        ]
        said = SAID | _comments(Instruction) | _comments(kind)
        places = {name: _places(config, opcode) for name, config in NAMED.items()}
        fields_of = dict.fromkeys(field for each in places.values() for field in each)
        for field in sorted(fields_of, key=("reserved", "check").count):
            bits = " | ".join(places[name].get(field, "") for name in names)
            lines.append(f"| `{field}` | {bits} | {cell(said.get(field, _codes_of(field)))} |")
        lines.append("")
    lines += ["## Numbers with names", ""]
    for kind in CODES:
        lines += [f"### {kind.__name__}", "", *docstring(kind), "| number | name |", "|---:|---|"]
        lines += [f"| {each.value} | `{each.name}` |" for each in kind]
        lines.append("")
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    sizes = {name: NAMED[name].instruction_bits for name in names}
    if len(set(sizes.values())) == 1:
        return str(sizes[names[0]])
    return ", ".join(f"{size} (`{name}`)" for name, size in sizes.items())


def _places(config: CoreConfig, opcode: Opcode) -> dict[str, str]:
    """Where each field lies, ``high:low``, with its sign."""
    places, low = {}, 0
    declared = (*HEADER, *instruction_fields(config, opcode))
    left = config.instruction_bits - config.check_bits - sum(bits for _, bits, _ in declared)
    for name, bits, signed in (*declared, ("reserved", left, False), ("check", config.check_bits, False)):
        if bits:
            places[name] = f"{low + bits - 1}:{low}" + (", signed" if signed else "")
        low += bits
    return places


def _comments(kind: type) -> dict[str, str]:
    """What stands behind each field in the source."""
    return dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), flags=re.M))


def _codes_of(field: str) -> str:
    kinds: dict[str, type[IntEnum]] = {"scratchpad": Scratchpad, "op": VectorOp, "target": VectorTarget}
    return f"a number of {kinds[field].__name__}, below" if field in kinds else ""


def intrinsics() -> str:
    """What `tensorize` puts in place of loops, for each target."""
    lines = [
        "# Intrinsics", "",
        "What `tensorize` may put in place of a loop nest: an instruction of the core, a step of a micro-kernel on a",
        "processor, an instruction of a GPU's warp. Each is declared once, as the loops that it computes; `tensorize`",
        "proves that a nest is these loops. Here is the core's matrix product:", "",
        "```text", intrinsic_text(core_intrinsics(PYNQ)["gemm"]).rstrip(), "```", "",
        "An operand is `name: type[shape] @ memory`. [schedules.md](../schedules.md) shows how they are used,",
        "[extending.md](../extending.md) how one is added.", "",
        "## The core", "",
        f"`{PYNQ.name}` has those without another name behind them.", "",
    ]  # fmt: skip
    of_core = {name: core_intrinsics(config) for name, config in NAMED.items()}
    for name in dict.fromkeys(each for table in of_core.values() for each in table):
        owners = [core for core, table in of_core.items() if name in table]
        shown = of_core[PYNQ.name if PYNQ.name in owners else owners[0]][name]
        only = "" if PYNQ.name in owners else f" ({', '.join(owners)})"
        lines += _intrinsic(f"{name}{only}", shown, f"`{shown.emits}`.")
    lines += ["## Processors", "", "Names end with their numbers; here each with small ones.", ""]
    for make, shown in _of_processors():
        lines += _intrinsic(shown.name, shown, " ".join((inspect.getdoc(make) or "").split()))
    lines += ["## GPUs", "", "Of a whole warp. Names end with their numbers, here too.", ""]
    for make, shown in _of_gpus():
        lines += _intrinsic(shown.name, shown, " ".join((inspect.getdoc(make) or "").split()))
    return "\n".join(lines)


def _intrinsic(title: str, shown: TensorIntrinsic, about: str) -> list[str]:
    about = about.replace("``", "`")
    return [f"### {title}", "", about, "", "```text", intrinsic_text(shown).rstrip(), "```", ""]


def _of_processors() -> Iterator[tuple[object, TensorIntrinsic]]:
    for kind, (make, count) in cpu.KINDS.items():
        yield make, _small(kind, count)


def _small(kind: str, count: int) -> TensorIntrinsic:
    """An intrinsic of a processor with the first numbers that code can be made for: small ones, strides of 64."""
    for numbers in product((2, 4, 8), (8, 4, 16, 64), *((64, 4, 8, 2) for _ in range(count - 2))):
        try:
            return cpu.intrinsic_named("_".join((kind, *map(str, numbers))))
        except IRError:
            continue
    raise ValueError(f"no small numbers fit {kind}")


def _of_gpus() -> Iterator[tuple[object, TensorIntrinsic]]:
    for shape in gpu.MMA_SHAPES:
        yield gpu.mma, gpu.mma(shape, 8)
    yield gpu.ldmatrix, gpu.ldmatrix("float16", 16, 16)
    for op in gpu.REDUCTIONS:
        yield gpu.warp_reduce, gpu.warp_reduce(op, "float32")
