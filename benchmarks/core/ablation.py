"""What each constant of the accelerator's choices is worth: whole programs with it changed, in cycles.

A tiling's own cycles are not what counts: its neighbours load and store beside it. So each constant that the compiler
chooses by is taken out, halved and doubled in turn, whole networks are compiled by that, and the exact timing model
gives their cycles. A constant that moves nothing should go; one whose change makes networks faster is wrong.

The exit status is not 0 where a changed constant makes the networks faster by more than `--tolerance` in the mean.

    python benchmarks/core/ablation.py                                             # all constants: hours
    python benchmarks/core/ablation.py --only BUS_CYCLE_WORTH DOUBLINGS --networks resnet50 mobilenet_v2 resnet18:wide
    python benchmarks/core/ablation.py --set INSTRUCTION_OVERHEAD=10 INSTRUCTION_OVERHEAD=4 --json ablation.json
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import weft
from weft.compiler.targets import accel
from weft.hw.config import load_config
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.told import cycles_of, module_of

NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "resnet18:wide", "mobilenet_v2:wide", "resnet18:pynq:4",
    "mobilenet_v2:pynq:4", "vit-block", "unet", "keyword-ds-cnn", "keyword-ds-cnn:tiny",
)  # fmt: skip
FOLDERS = ("cost", "link", "operators", "passes", "schedule", "stream")
FACTORS = (0.0, 0.5, 2.0)


@dataclass(frozen=True)
class Constant:
    """A number that the compiler chooses by."""

    module: str
    name: str
    value: float

    def times(self, factor: float) -> float:
        return int(self.value * factor) if isinstance(self.value, int) else self.value * factor


@dataclass(frozen=True)
class Case:
    """A network on a core, with DRAM that gives so many bytes a cycle (None: as many as the bus takes)."""

    network: str
    core: str = "pynq"
    bytes_per_cycle: int | None = None

    @staticmethod
    def of(text: str) -> Case:
        """Such as ``resnet18``, ``resnet18:wide`` and ``resnet18:pynq:4``."""
        network, *rest = text.split(":")
        return Case(network, *rest[:1], *map(int, rest[1:2]))

    def __str__(self) -> str:
        return ":".join(str(each) for each in (self.network, self.core, self.bytes_per_cycle) if each is not None)


@dataclass(frozen=True)
class Changed:
    """A constant with another value, and what became of the cases: cycles (None: refused) and CPU seconds."""

    name: str
    value: float | None
    cycles: tuple[int | None, ...]
    seconds: float


def modules() -> Iterator[str]:
    for folder in FOLDERS:
        place = f"{accel.__name__}.{folder}"
        for found in pkgutil.iter_modules(importlib.import_module(place).__path__, f"{place}."):
            yield found.name


def constants() -> list[Constant]:
    """Numbers in capitals at the top of the modules that choose."""
    found = []
    for name in modules():
        module = importlib.import_module(name)
        for node in ast.parse(Path(str(module.__file__)).read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id.isupper():
                value = getattr(module, target.id)
                if type(value) in (int, float):
                    found.append(Constant(name, target.id, value))
    return found


def set_constant(constant: Constant, value: float) -> None:
    """In its own module, and in those that have its name from there."""
    for name in modules():
        module = importlib.import_module(name)
        if name == constant.module or constant.name in imported(module.__file__ or "", constant.module):
            setattr(module, constant.name, value)


def imported(file: str, module: str) -> set[str]:
    """Names that a file imports from a module, which is told by the end of its name."""
    nodes = (node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.ImportFrom))
    last = module.rpartition(".")[2]
    return {each.name for node in nodes if (node.module or "").rpartition(".")[2] == last for each in node.names}


def measure(cases: Sequence[Case], constant: Constant | None = None, value: float = 0) -> Changed:
    """In a process of its own: what was compiled with other constants is remembered in many places."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, cases, constant, value).result()


def _measure(cases: Sequence[Case], constant: Constant | None, value: float) -> Changed:
    begin, cycles = time.process_time(), []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = folder
        if constant is not None:
            set_constant(constant, value)
        for case in cases:
            core = load_config(case.core)
            dram = DramModel(bytes_per_cycle=case.bytes_per_cycle or core.bus_bytes)
            try:
                model = weft.compile(module_of(case.network, 224, core), core, dram=dram)
                cycles.append(cycles_of(model, dram))
            except (weft.WeftError, ArithmeticError, ValueError, IndexError):
                cycles.append(None)
    name = constant.name if constant else "as it is"
    return Changed(name, value if constant else None, tuple(cycles), time.process_time() - begin)


def gain(changed: Changed, base: Changed) -> float:
    """The mean change of the cycles; infinite where a network is refused."""
    pairs = list(zip(changed.cycles, base.cycles, strict=True))
    if any(new is None for new, _ in pairs):
        return float("inf")
    return sum(new / old - 1 for new, old in pairs if new and old) / len(pairs)


def table_row(changed: Changed, base: Changed) -> list[str]:
    def text(new: int | None, old: int | None) -> str:
        return "refused" if new is None or old is None else f"{new:,}" if changed is base else f"{new / old - 1:+.2%}"

    cells = [text(*pair) for pair in zip(changed.cycles, base.cycles, strict=True)]
    value = "" if changed.value is None else f"{changed.value:g}"
    return [changed.name, value, *cells, f"{gain(changed, base):+.3%}", f"{changed.seconds:.0f}"]


def variants(arguments: argparse.Namespace) -> Iterator[tuple[Constant, float]]:
    every = constants()
    if arguments.set:
        for text in arguments.set:
            name, _, value = text.partition("=")
            for constant in (each for each in every if each.name == name):
                yield constant, type(constant.value)(float(value))
        return
    for constant in every:
        if not arguments.only or constant.name in arguments.only:
            for value in dict.fromkeys(constant.times(factor) for factor in FACTORS):
                yield constant, value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", type=Case.of, default=[Case.of(each) for each in NETWORKS])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="constants; default: all")
    parser.add_argument("--set", nargs="+", metavar="NAME=VALUE", help="these values instead of 0, half and double")
    parser.add_argument("--tolerance", type=float, default=0.001, help="of the mean change (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the constants alone")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    if arguments.list:
        for constant in constants():
            print(f"{constant.module.removeprefix(accel.__name__ + '.')}.{constant.name} = {constant.value:g}")
        return 0
    asked = [*(arguments.only or ()), *(text.partition("=")[0] for text in arguments.set or ())]
    unknown = sorted(set(asked) - {constant.name for constant in constants()})
    if unknown:
        parser.error(f"no constant is called {', '.join(unknown)}; --list prints those that there are")
    base = measure(arguments.networks)
    done = [base]
    for constant, value in variants(arguments):
        done.append(measure(arguments.networks, constant, value))
        print(*table_row(done[-1], base), sep="  ", file=sys.stderr, flush=True)
    columns = ["constant", "value", *map(str, arguments.networks), "mean", "CPU s"]
    print_table("cycles of whole networks, timing model", columns, [table_row(each, base) for each in done])
    if arguments.json:
        write_json(arguments.json, [
            Record(case.core, str(case), f"cycles, {each.name} = {each.value}", cycles or -1, reference)
            for each in done
            for case, cycles, reference in zip(arguments.networks, each.cycles, base.cycles, strict=True)
        ])  # fmt: skip
    return 1 if any(gain(each, base) < -arguments.tolerance for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())
