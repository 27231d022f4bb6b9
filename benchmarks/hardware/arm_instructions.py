"""Instructions that the processors of boards execute for a network of bytes, counted under qemu.

They are counted with the form in which the processor multiplies bytes, and with every product widened to int32. Each
network is compiled for the CPU target, as a board runs what is not on its core, on one thread. qemu names each block
of instructions that it executes. A program with one run and one with two are counted: their difference is a run
without the start of the program. What the core leaves to the host of the same networks has no products of bytes: then
both forms are the same code.

    python benchmarks/hardware/arm_instructions.py                # digits, the mixed network and MobileNetV2
    python benchmarks/hardware/arm_instructions.py digits --processor aarch64

It needs what tests/compiler/targets/cpu/test_cross.py needs: qemu-user, linkers and C libraries (docs/cpu.md).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import weft
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.llvm import byte_products
from weft.compiler.targets.cpu.processor import Processor, named_target

from benchmarks.common import Record, print_table, write_json
from benchmarks.zoo.mixed_network import mixed_model
from examples.models.build import build
from tests.compiler.targets.cpu.cross import BOARDS, linked
from tests.compiler.targets.cpu.programs import compiled, program_of

RATIO_ALLOWED = 0.35
SIZE = 64
"""Of MobileNetV2's and the mixed network's images: all of a layer's loops run, in a minute."""

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
EXECUTED = re.compile(r"Trace \d+: \S+ \[\w+/(\w+)/")


@dataclass(frozen=True)
class Counted:
    """Instructions of a run."""

    network: str
    processor: str
    widened: int
    own: int

    @property
    def ratio(self) -> float:
        return self.own / self.widened


def network(name: str, folder: Path) -> Path:
    if name == "digits":
        return DIGITS
    if name == "mobilenet_v2":
        return build(name, form="qdq", activations="int8", size=SIZE)
    path = folder / "mixed.onnx"
    mixed_model(path, SIZE, sampled=False)
    return path


NETWORKS = ("digits", "mixed", "mobilenet_v2")


def widened_only(target: Processor) -> tuple[byte_products.ByteForm, ...]:
    """The form for registers of any size: products in int32."""
    return _FORMS(target)[-1:]


_FORMS: Callable[[Processor], tuple[byte_products.ByteForm, ...]] = byte_products.byte_forms


def instructions(source: Path, processor: str, folder: Path, *, widened: bool) -> int:
    """Of one run."""
    with patch.object(byte_products, "byte_forms", widened_only) if widened else nullcontext():
        model = compiled(source, processor=processor, strict=True, threads=1)
        code = build_program(program_of(model), named_target(processor))
    random = np.random.default_rng(0)
    inputs = {each.name: random.random(each.shape).astype(np.float32) for each in model.inputs}
    counts = []
    for runs in (1, 2):
        board = BOARDS[processor]
        program = linked(model, code, processor, [inputs] * runs, folder)
        command = [board.emulator, "-L", str(board.root), "-d", "in_asm,exec,nochain", str(program)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as done:
            assert done.stderr is not None
            counts.append(executed(done.stderr))
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}")
    return counts[1] - counts[0]


def executed(log: Iterable[str]) -> int:
    """Instructions in a log of blocks as they are translated (``IN:``, a line each) and executed (``Trace``)."""
    lengths: dict[str, int] = {}
    total, block = 0, ""
    for line in log:
        if line.startswith("IN:"):
            block = ""
        elif line.startswith("0x"):
            address = line[2 : line.index(":")].zfill(16)
            block = block or address
            lengths[block] = 1 if address == block else lengths[block] + 1
        elif match := EXECUTED.match(line):
            total += lengths[match[1].zfill(16)]
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--processor", choices=BOARDS, action="append", help="default: armv7a and aarch64")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"there is no network {unknown[0]!r}; choose from {', '.join(NETWORKS)}")
    processors = arguments.processor or ["armv7a", "aarch64"]
    missing = sorted({package for name in processors for package in BOARDS[name].missing()})
    if missing:
        parser.error(f"programs cannot be run here: apt-get install {' '.join(missing)}")
    os.environ["WEFT_CACHE_LIMIT"] = "0"  # code that is kept does not know that a form was taken away
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks:
            source = network(name, Path(folder))
            for processor in processors:
                widened, own = (instructions(source, processor, Path(folder), widened=each) for each in (True, False))
                found.append(Counted(name, processor, widened, own))
    rows = [[each.network, each.processor, f"{each.widened:,}", f"{each.own:,}", f"{each.ratio:.2f}"] for each in found]
    print_table("instructions of a run", ["network", "processor", "widened to int32", "as compiled", "ratio"], rows)
    if arguments.json:
        write_json(arguments.json, [
            record for each in found for record in (
                Record(each.processor, each.network, "instructions", each.own, each.widened),
                Record(each.processor, each.network, "instructions / widened", each.ratio, RATIO_ALLOWED),
            )
        ])  # fmt: skip
    missed = [each for each in found if each.ratio > RATIO_ALLOWED]
    for each in missed:
        print(f"missed: {each.network} on {each.processor}: {each.ratio:.2f} x the widened form, not {RATIO_ALLOWED}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
