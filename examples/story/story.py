"""A small language model from nothing to the accelerator: trained, quantised to 8 and to 4 bits, and telling its story.

The bits that it needs for a byte of text it has not seen are printed at every station. The last ones run on the
simulated core, whose scores are compared with those of the same model on this machine's processor: integers are the
same to the bit. Normalisations and rotary positions are floats on the host, fused otherwise there, and their rounding
may turn a step of 8 bits; how many scores are the same is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import weft
from numpy.typing import NDArray
from weft.compiler.graph import Array, Module
from weft.progress import Updates, progress
from weft.runtime.sampling import Sampling, generate

from examples.story.network import Parameters, Size, cached_module, parameters_count
from examples.story.text import parts, windows
from examples.story.train import Plan, trained

GROUP = 64
"""Weights that share a scale and a zero point: those of the core ``pynq-w4``."""

FAR = 0.05
"""Of the largest score: what turned steps of 8 bits do not reach."""

Examples = list[dict[str, Array]]


@dataclass(frozen=True)
class Station:
    """``module``: the decoder with a cache, as `weft.compile` takes it. ``bits``: for a byte of the text held out."""

    name: str
    module: Module
    bits: float


@dataclass(frozen=True)
class Amounts:
    """Windows of ``length`` bytes: so many to calibrate with, and so many to evaluate on."""

    length: int = 192
    calibrated: int = 6
    evaluated: int = 8


def on_processor(module: Module) -> weft.LoadedModule:
    loaded = weft.load(weft.compile(module, target="cpu"))
    assert isinstance(loaded, weft.LoadedModule)
    return loaded


def bits_a_byte(module: Module, rows: NDArray[np.int64]) -> float:
    """What the model needs for each byte of some pieces of text, behind those before it in the piece."""
    loaded = on_processor(module)
    lost = []
    for row in rows:
        session = loaded.session()
        for token, following in pairwise(row):
            scores = session.step(int(token)).astype(np.float64)
            scores -= scores.max()
            lost.append(np.log2(np.exp(scores).sum()) - scores[following] / np.log(2))
    return float(np.mean(lost))


def inputs_of(module: Module, rows: NDArray[np.int64]) -> Examples:
    """What the model is given while it reads: token, place and cache, at every fifth byte."""
    loaded = on_processor(module)
    seen: Examples = []
    for row in rows:
        session = loaded.session()
        for place, token in enumerate(row):
            if place % 5 == 0:
                given = {"input_ids": np.array([[token]]), "position_ids": np.array([[place]])}
                seen.append({**given, **session.cache().states})
            session.step(int(token))
    return seen


def stations(size: Size, parameters: Parameters, amounts: Amounts, status: Updates) -> Iterator[Station]:
    """The model in floats, with weights of 8 bits, and with weights of 4; activations and the cache of the last two
    have 8."""
    read, kept = parts()
    evaluated = windows(kept, amounts.evaluated, amounts.length)
    floats = cached_module(size, parameters)
    status.update("evaluating floats")
    yield Station("floats", floats, bits_a_byte(floats, evaluated))
    plan = weft.quantise.plan(floats)
    status.update("calibrating")
    examples = inputs_of(floats, windows(read, amounts.calibrated, amounts.length))
    ranges = weft.quantise.calibrate(plan, examples, symmetric_products=True)
    status.update("finding weights of 4 bits")
    four = weft.quantise.four_bits(plan, GROUP)
    for name, weights in (("weights of 8 bits", {}), (f"weights of 4 bits, groups of {GROUP}", four)):
        status.update(f"evaluating {name}")
        module = weft.quantise.eight_bit_states(weft.quantise.quantised(plan, ranges, weights))
        yield Station(name, module, bits_a_byte(module, evaluated))


@dataclass(frozen=True)
class Told:
    """``cycles``: of the core for each token. ``same``: of ``compared`` scores of tokens, how many were those of the
    processor to the bit; ``apart``: the largest difference of the others, as a part of the largest score."""

    text: str
    cycles: tuple[int, ...]
    programs: int
    compared: int
    same: int
    apart: float


def told(module: Module, core: str, device: str, prompt: str, count: int, sampling: Sampling) -> Told:
    """A text on the core, and the same tokens on the processor."""
    loaded = weft.load(weft.compile(module, core), device)
    assert isinstance(loaded, weft.LoadedModule)
    session, beside = loaded.session(), on_processor(module).session()
    seen: list[Array] = []

    class Watched:
        """The session of the core, whose scores are kept."""

        def __getattr__(self, name: str) -> object:
            return getattr(session, name)

        def prefill(self, tokens: Sequence[int]) -> Array:
            seen.append(session.prefill(tokens))
            return seen[-1]

        def step(self, token: int) -> Array:
            return self.prefill((token,))

    tokens = list(prompt.encode())
    made = list(generate(Watched(), tokens, count, sampling))  # type: ignore[arg-type]
    wanted = [beside.prefill(tokens), *(beside.step(each.token) for each in made[:-1])]
    same = sum(map(np.array_equal, seen, wanted))
    apart = float(np.abs(np.array(seen) - np.array(wanted)).max() / np.abs(wanted).max())
    cycles = tuple(each.cycles for each in made[1:] if each.cycles is not None)
    text = bytes([*tokens, *(each.token for each in made)]).decode(errors="replace")
    return Told(text, cycles, len(loaded.runs), len(wanted), same, apart)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=Plan.steps, help="of training in all, those of a checkpoint too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="go on from this file if it is there; written on the way")
    parser.add_argument("--output", type=Path, help="a folder for the models as ONNX, for weft generate")
    parser.add_argument("--device", default="fsim", help="of the core: fsim or rtl")
    parser.add_argument("--prompt", default="The value of ")
    parser.add_argument("--count", type=int, default=200, help="bytes to write")
    parser.add_argument("--temperature", type=float, default=0.5)
    options = parser.parse_args(arguments)
    size, plan = Size(), Plan(steps=options.steps, threads=options.threads)
    with progress("training") as status:
        parameters = trained(size, plan, parts()[0], options.checkpoint, status)
        found = list(stations(size, parameters, Amounts(), status))
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            for name, station in zip(("story", "story-w8", "story-w4"), found, strict=True):
                weft.export_onnx(station.module, options.output / f"{name}.onnx")
        status.update("telling it on the core")
        sampling = Sampling(options.temperature)
        core = [told(found[number].module, name, options.device, options.prompt, options.count, sampling)
                for number, name in ((1, "pynq"), (2, "pynq-w4"))]  # fmt: skip
    print(f"{parameters_count(parameters):,} parameters, {plan.steps} steps")
    for station in found:
        print(f"{station.name:32} {station.bits:.3f} bits a byte")
    for each, name in zip(core, ("pynq", "pynq-w4"), strict=True):
        print(f"on {name:29} {np.mean(each.cycles):,.0f} cycles a token in {each.programs} programs of the core")
        print(f"{'':32} {each.same} of {each.compared} scores as on the processor, {each.apart:.1%} apart at most")
    print(core[-1].text)
    if any(each.apart > FAR for each in core):
        raise SystemExit("the core computes other scores")


if __name__ == "__main__":
    main()
