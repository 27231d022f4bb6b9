"""LiteRT files of one operator each, and whole networks, through the LiteRT front end, beside LiteRT's own interpreter.

    python benchmarks/frontends/litert_suite.py                       # what the graph means, in NumPy: all cases
    python benchmarks/frontends/litert_suite.py --target cpu    # compiled, networks too; or accel: functional simulator
    python benchmarks/frontends/litert_suite.py --target accel --config pynq-float32    # a core that rounds in float32
    python benchmarks/frontends/litert_suite.py --target cpu --kernels reference    # judged by the reference kernels
    python benchmarks/frontends/litert_suite.py --family pools --verbose
    python benchmarks/frontends/litert_suite.py --mutations 10000  # damaged files: one named error each, or a graph
    python benchmarks/frontends/litert_suite.py --target cpu --file a.tflite b.tflite    # any files, with random inputs
    python benchmarks/frontends/litert_suite.py --target cpu --layers --file a.tflite  # their operators, each by itself

Needs LiteRT: pip install ai-edge-litert. Integers must equal the interpreter's kernels to the bit (the default ones,
unless others are asked for), floats within 1e-5 of the largest. What does not is listed by the reason in `APART`; the
exit status is 1 if anything else differs, or by more than the reason allows, or is refused. What the interpreter itself
refuses does not count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import weft
from weft.compiler.frontends.litert.kernels import DEFAULT, KERNELS, REFERENCE
from weft.compiler.frontends.litert.source import LitertSource
from weft.compiler.graph import evaluate_function
from weft.hw.config import load_config

from benchmarks.zoo.litert_cases import FAMILIES, Case
from benchmarks.zoo.litert_layers import layers
from benchmarks.zoo.litert_models import Array, interpreted
from benchmarks.zoo.litert_networks import networks
from benchmarks.zoo.litert_roundings import roundings
from benchmarks.zoo.litert_sums import sums

TOLERANCE = 1e-5
TARGETS = ("graph", "cpu", "accel")
EVERYTHING: dict[str, Callable[[], Iterable[Case]]] = {
    **FAMILIES,
    "roundings": roundings,
    "sums": sums,
    "networks": networks,
}


@dataclass(frozen=True)
class Reason:
    """Why results may differ: of cases whose names begin so, by so many steps at most, in so large a share."""

    begins: tuple[str, ...]
    dtype: str
    steps: float
    why: str
    share: float = 1.0
    exact: bool = False  # where exact sums are rounded alone
    kernels: str = ""  # of the interpreter; without, all

    def fits(self, name: str, exact_sums: bool, kernels: str) -> bool:
        words = name.split()
        fits = words[0] in self.begins and (not self.dtype or self.dtype in words)
        return fits and (exact_sums or not self.exact) and self.kernels in ("", kernels)


PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "MUL", "MEAN")
REFERENCE_SUMS = "the interpreter's reference kernels give the zero point for int8, and round twice for uint8"
EXACT = "exact sums are rounded, halves up; the interpreter rounds in float32, halves to even"

APART = (
    *(
        Reason(PRODUCTS, text, 1, EXACT, share, exact=True)
        for text, share in (("layer", 0.01), ("halves", 0.5), ("wide", 0.5))
    ),
    Reason(("QUANTIZE",), "int16", 1, "two roundings"),
    Reason(("RESIZE_BILINEAR",), "int16", 1 << 16, "the interpreter's weights have 10 bits, and its products overflow"),
    Reason(("SUM",), "int8", 255, REFERENCE_SUMS, kernels=REFERENCE),
    Reason(("SUM",), "uint8", 1, REFERENCE_SUMS, kernels=REFERENCE),
    Reason(("RESIZE_BILINEAR",), "uint8", 1, "sums of floats near halves", 0.02, kernels=REFERENCE),
    Reason(("LOCAL_RESPONSE_NORMALIZATION",), "float32", 1, "another formula", kernels=REFERENCE),
    Reason(("REDUCE_PROD",), "int8", 16, "the interpreter rounds after each factor"),
    Reason(("SQUARED_DIFFERENCE",), "int8", 1, "on the core, a function of a difference is a table of it in 8 bits"),
    Reason(("SQRT",), "int8", 1, "fixed-point functions"),
    Reason(("L2_NORMALIZATION",), "uint8", 1, "fixed-point functions"),
    Reason(("LEAKY_RELU",), "int16", 1, "two roundings"),
    Reason(("NEG",), "int8", 255, "the interpreter negates the stored integers, whatever their scales"),
    Reason(("FULLY_CONNECTED", "CONV_2D"), "weights", 0.05, "the interpreter rounds activations to 8 bits, too"),
    Reason(
        ("SOFTMAX", "LOGISTIC", "TANH", "GELU", "EXP", "LOG"),
        "int16",
        64,
        "tables of 513 entries between which it interpolates",
    ),
    Reason(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "MEAN", "DIV"),
        "int16",
        1,
        "two roundings in 64 bits",
    ),
)


@dataclass(frozen=True)
class Outcome:
    family: str
    case: str
    result: str  # equal, close, apart, different, refused, unjudged; floats: not for the core
    steps: float = 0.0
    share: float = 0.0
    reason: str = ""
    size: int = 0  # results, and with `share` how many of them differ


def computed(case: Case, target: str, config: str = "pynq", kernels: str = "default") -> list[Array]:
    """What weft computes: by the graph's meaning in NumPy, or compiled for a target. Raises WeftError."""
    source = LitertSource(case.model, case.name, kernels=kernels)
    given = {each.name: array for each, array in zip(source.inputs({}), case.arrays, strict=True)}
    shapes = {name: array.shape for name, array in given.items()}
    if target == "graph":
        found = evaluate_function(source.module(shapes).main, case.arrays)
        return list(found) if isinstance(found, tuple) else [found]
    core = config if target == "accel" else None
    return list(weft.load(weft.compile(source, core, target=target, shapes=shapes)).run(given).values())


def rounds_exact_sums(target: str, config: str) -> bool:
    return target == "graph" or (target == "accel" and load_config(config).rounding == "half_up")


def compared(got: Array, wanted: Array) -> tuple[str, float, float]:
    """The result, the largest difference (in steps of integers), the share that differs."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return "different", float("inf"), 1.0
    if np.issubdtype(wanted.dtype, np.floating):
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        off = np.abs(got.astype(np.float64) - wanted)
        off = np.where(np.isnan(got) & np.isnan(wanted), 0, off)
        worst = float(off.max(initial=0))
        return (
            "equal" if not worst else "close" if worst <= TOLERANCE * scale else "different",
            worst,
            float((off > 0).mean()),
        )
    off = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
    return (
        ("different" if off.any() else "equal"),
        float(off.max(initial=0)),
        float((off > 0).mean()) if off.size else 0.0,
    )


def tried(family: str, case: Case, target: str, config: str = "pynq", kernels: str = "default") -> Outcome:
    try:
        wanted = interpreted(case.model, case.arrays, kernels)
    except (RuntimeError, ValueError) as error:
        return Outcome(family, case.name, "unjudged", reason=" ".join(str(error).split())[:120])
    try:
        results = [compared(*pair) for pair in zip(computed(case, target, config, kernels), wanted, strict=True)]
    except weft.WeftError as error:
        floats = target == "accel" and "is not quantised" in error.message
        return Outcome(family, case.name, "floats" if floats else "refused", reason=str(error))
    result, steps, share = max(results, key=lambda each: (each[0] == "different", each[1]))
    size = sum(each.size for each in wanted)
    if result != "different":
        return Outcome(family, case.name, result, steps, share, size=size)
    exact = rounds_exact_sums(target, config)
    reason = next((each for each in APART if each.fits(case.name, exact, kernels)), None)
    apart = reason is not None and steps <= reason.steps and share <= reason.share
    kind, why = "apart" if apart else "different", reason.why if reason else ""
    return Outcome(family, case.name, kind, steps, share, why, size)


def outcomes(
    families: Mapping[str, Callable[[], Iterable[Case]]], target: str, config: str, text: str, kernels: str = "default"
) -> Iterator[Outcome]:
    for family, cases in families.items():
        for case in cases():
            if text.lower() in case.name.lower():
                yield tried(family, case, target, config, kernels)


def case_of_file(path: str) -> Case:
    """A file with random inputs: bytes of the whole range, floats around zero. Sizes that it leaves open are 1."""
    data, rng = Path(path).read_bytes(), np.random.default_rng(0)
    arrays = []
    for each in LitertSource(data, path).inputs({}):
        shape = tuple(size if isinstance(size, int) else 1 for size in each.shape)
        arrays.append(drawn(shape, each.dtype, rng))
    return Case(Path(path).name, data, tuple(arrays))


def drawn(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.normal(size=shape).astype(kind)
    least, most = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return rng.integers(least, most, shape, endpoint=True).astype(kind)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A file that is cut off, or in which some bytes or a number are others; small changes reach furthest."""
    changed = bytearray(data)
    kind = rng.integers(0, 10)
    if kind == 0:
        return bytes(changed[: rng.integers(0, len(data))])
    for _ in range(1 if kind < 7 else int(rng.integers(2, 6))):
        place = int(rng.integers(0, len(data)))
        if kind in (1, 2, 7):
            changed[place] = int(rng.integers(0, 256))
        elif kind in (3, 4, 8):
            changed[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 5:
            changed[place] = (changed[place] + int(rng.choice([-4, -1, 1, 4]))) % 256
        else:
            number = int(rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data), 0xFFFF]))
            changed[place : place + 4] = number.to_bytes(4, "little")
    return bytes(changed[: len(data)])


def survived(
    models: Sequence[bytes], count: int, seed: int = 0, seconds: float = 10.0
) -> tuple[Counter[str], list[str]]:
    """How damaged files end, and what is wrong: an exception that is no `WeftError`, or a long time."""
    rng = np.random.default_rng(seed)
    ends: Counter[str] = Counter()
    wrong = []
    for number in range(count):
        data = mutated(models[number % len(models)], rng)
        begun = time.process_time()
        try:
            LitertSource(data, "the model").module()
            ends["read"] += 1
        except weft.WeftError as error:
            ends["refused"] += 1
            if not error.message:
                wrong.append(f"{number}: an error without a text")
        except Exception as error:  # what this looks for
            wrong.append(f"{number}: {type(error).__name__}: {error}")
        if time.process_time() - begun > seconds:
            wrong.append(f"{number}: {time.process_time() - begun:.1f} s")
    return ends, wrong


@cache
def seeds() -> list[bytes]:
    """Files to damage: one of each operator."""
    found: dict[str, bytes] = {}
    for cases in FAMILIES.values():
        for case in cases():
            found.setdefault(" ".join(case.name.split()[:2]), case.model)
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, default="graph")
    parser.add_argument("--config", default="pynq", help="the core of --target accel")
    parser.add_argument("--kernels", default=DEFAULT, choices=KERNELS, help="LiteRT's, which are the judge")
    parser.add_argument("--family", action="append", choices=sorted(EVERYTHING))
    parser.add_argument("--file", nargs="+", default=[], metavar="FILE", help="these files, instead")
    parser.add_argument("--layers", action="store_true", help="of the files: each operator by itself")
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument("--mutations", type=int, default=0, metavar="COUNT")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    core = f", core {args.config}" if args.target == "accel" else ""
    print(f"{platform.processor() or platform.machine()}, target {args.target}{core}")
    if args.mutations:
        ends, wrong = survived(seeds(), args.mutations)
        print(*wrong, sep="\n")
        print(f"{args.mutations} damaged files: {dict(ends)}, {len(wrong)} wrong")
        return 1 if wrong else 0
    found = []
    families = FAMILIES if args.target == "graph" else EVERYTHING
    if args.family:
        families = {name: EVERYTHING[name] for name in args.family}
    if args.file:
        cases = map(case_of_file, args.file)
        families = {"files": lambda: itertools.chain.from_iterable(map(layers, cases)) if args.layers else cases}
    for each in outcomes(families, args.target, args.config, args.only, args.kernels):
        found.append(each)
        if each.result in ("different", "refused") or (args.verbose and each.result in ("apart", "unjudged")):
            print(f"{each.result}: {each.case}: {each.share:.1%} by up to {each.steps:g} {each.reason}")
    counts = Counter(each.result for each in found)
    judged = len(found) - counts["unjudged"] - counts["floats"]
    print(f"\n{judged} cases: {counts['equal']} equal to the bit ({counts['equal'] / max(judged, 1):.1%}), "
          f"{counts['close']} floats within {TOLERANCE:g}, {counts['apart']} apart by a known reason, "
          f"{counts['different']} different, {counts['refused']} refused; the interpreter refuses "
          f"{counts['unjudged']}")  # fmt: skip
    for why, count in Counter(each.reason for each in found if each.result == "apart").most_common():
        worst = max((each for each in found if each.reason == why and each.result == "apart"), key=lambda e: e.steps)
        print(f"  {count:4d}  {why}: up to {worst.steps:g} steps ({worst.case})")
    if args.layers:
        differing = sum(round(each.share * each.size) for each in found)
        print(f"  {differing} of {sum(each.size for each in found):,} results differ")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump([{"target": args.target, **asdict(each)} for each in found], file, indent=1)
    return 1 if counts["different"] or counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
