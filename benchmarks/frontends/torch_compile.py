"""`torch.compile(model, backend="weft")` beside Inductor and Inductor with frozen weights, one thread, in turns.

    python benchmarks/frontends/torch_compile.py                             # 20 networks
    python benchmarks/frontends/torch_compile.py timm/deit_tiny_patch16_224 --rounds 20 --json compile.json

Needs a C++ compiler for Inductor, and what `torch_models.py` needs; its weights are stirred as there. In every round
each engine runs for a while; a ratio is the median over the rounds of the ratio within a round. Time is that of the
processor, so what else the machine does is left out. Compiling is the first call, with the
processes that it starts, without anything that is kept on disk; what Inductor prepares once for all is left out. The
exit status is 1 where a result is more than 1e-4 of the largest away from eager PyTorch's, or a target is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor
from torch._inductor.compile_fx import compile_fx
from torch._inductor.utils import fresh_cache
from weft.pytorch import backend

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.frontends.torch_models import TOLERANCE, Logits, image_network, stir, text_network

ENGINES = ("weft", "inductor", "frozen")
PEERS = ENGINES[1:]
TIME_ALLOWED, COMPILING_ALLOWED = 0.7, 0.5
"""Geometric means of weft's times to those of the better peer."""

SECONDS = 3000.0
"""Of the processor, for one network."""

NETWORKS = (
    "torchvision/resnet18", "torchvision/mobilenet_v2", "torchvision/squeezenet1_1", "torchvision/shufflenet_v2_x0_5",
    "timm/deit_tiny_patch16_224", "timm/gmixer_12_224", "timm/resmlp_12_224", "timm/pit_ti_224", "timm/convnextv2_atto",
    "timm/mobilenetv3_small_050", "timm/regnety_002", "timm/repvgg_a0", "timm/starnet_s050", "timm/fasternet_t0",
    "timm/efficientvit_m0", "timm/resnetv2_18",
    "transformers/Bert", "transformers/GPT2", "transformers/Llama", "transformers/Qwen3",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """By engine: ``milliseconds`` of a call, ``compiling`` in CPU seconds, ``difference`` to eager PyTorch.
    ``ratio``: of weft's time to that of the better peer."""

    milliseconds: dict[str, float]
    compiling: dict[str, float]
    difference: dict[str, float]
    ratio: float

    def compiling_ratio(self) -> float:
        return self.compiling["weft"] / min(self.compiling[peer] for peer in PEERS)


def compiled(engine: str, network: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Each engine is a function of its own: Dynamo shares what it captured among models of the same backend."""
    if engine == "weft":
        return torch.compile(network, backend=backend.weft)
    return torch.compile(network, backend=lambda graph, examples: compile_fx(graph, examples))


def first_call(
    engine: str, run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, folder: str
) -> tuple[torch.Tensor, float]:
    """Its result and the CPU seconds that it took, with those of its processes. Inductor finds nothing in memory or in
    files of what an engine before it compiled: most kernels of both of its forms are the same."""
    if engine == "weft":
        return _timed(run, x)
    with fresh_cache(dir=folder, delete=False), inductor.patch(freezing=engine == "frozen"):
        torch.compile(lambda a: a + 1, backend=lambda graph, examples: compile_fx(graph, examples))(torch.ones(8))
        return _timed(run, x)


def _timed(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, float]:
    started = _seconds()
    result = run(x)
    return result, _seconds() - started


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def of_a_call(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, seconds: float) -> float:
    """Seconds of a call, over as many as last ``seconds``: some systems count the processor's time in steps."""
    started, calls = time.process_time(), 0
    while (passed := time.process_time() - started) < seconds:
        run(x)
        calls += 1
    return passed / calls


def measured(name: str, rounds: int, seconds: float) -> Measured:
    library, _, kind = name.partition("/")
    torch._dynamo.reset()  # all networks are captured in the same method, which is compiled a few times only
    torch.manual_seed(0)
    network, x = text_network(kind) if library == "transformers" else image_network(library, kind)
    stir(network)
    network = Logits(network).eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), inductor.patch(compile_threads=1):
        os.environ["WEFT_CACHE"] = f"{folder}/weft"
        wanted = network(x)
        runs, compiling, difference = {}, {}, {}
        for engine in ENGINES:
            runs[engine] = compiled(engine, network)
            found, compiling[engine] = first_call(engine, runs[engine], x, folder)
            difference[engine] = float((found - wanted).abs().max() / wanted.abs().max())
        times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for number in range(rounds):
            for place in range(len(ENGINES)):
                engine = ENGINES[(place + number) % len(ENGINES)]
                times[engine].append(of_a_call(runs[engine], x, seconds))
    ratio = statistics.median(a / min(b) for a, *b in zip(*(times[engine] for engine in ENGINES), strict=True))
    return Measured({name: statistics.median(each) * 1e3 for name, each in times.items()}, compiling, difference, ratio)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="as LIBRARY/NAME")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of an engine in a round")
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def work(name: str) -> Measured | str:
        try:
            return measured(name, arguments.rounds, arguments.seconds)
        except Exception as error:  # the others go on
            return f"{type(error).__name__}: {error}".splitlines()[0]

    found: dict[str, Measured] = {}
    broken: dict[str, str] = {}
    for name, each in Isolated(work, SECONDS).run(list(arguments.networks)):
        if isinstance(each, Measured):
            found[name] = each
            print(f"{name}: {each.ratio:.2f} x, compiling {each.compiling_ratio():.2f} x", flush=True)
        else:
            broken[name] = each.state if isinstance(each, Broken) else each
            print(f"{name}: {broken[name]}", flush=True)
    return report(found, broken, arguments.json)


def report(found: dict[str, Measured], broken: dict[str, str], file: Path | None) -> int:
    rows = [(name, *(f"{each.milliseconds[engine]:.3f}" for engine in ENGINES), f"{each.ratio:.2f}",
             *(f"{each.compiling[engine]:.1f}" for engine in ENGINES), f"{each.compiling_ratio():.2f}",
             f"{each.difference['weft']:.0e}") for name, each in found.items()]  # fmt: skip
    columns = ("network", *(f"{engine}, ms" for engine in ENGINES), "ratio",
               *(f"{engine}, CPU s" for engine in ENGINES), "ratio", "difference")  # fmt: skip
    print_table(f"torch.compile ({processor()}, torch {torch.__version__}, one thread)", columns, rows)
    records: list[Any] = []
    for name, each in found.items():
        for engine in ENGINES:
            records.append(Record(engine, name, "milliseconds", round(each.milliseconds[engine], 4)))
            records.append(Record(engine, name, "compiling, CPU s", round(each.compiling[engine], 2)))
    good = bool(found) and not broken
    if found:
        running = geometric_mean([each.ratio for each in found.values()])
        compiling = geometric_mean([each.compiling_ratio() for each in found.values()])
        print(f"geometric means over {len(found)}: {running:.2f} x the better peer's time ({TIME_ALLOWED} wanted), "
              f"{compiling:.2f} x its compiling ({COMPILING_ALLOWED} wanted)")  # fmt: skip
        records.append(Record("weft", "all", "ratio", round(running, 3), TIME_ALLOWED))
        records.append(Record("weft", "all", "ratio of compiling", round(compiling, 3), COMPILING_ALLOWED))
        equal = all(each.difference["weft"] <= TOLERANCE for each in found.values())
        good = good and equal and running <= TIME_ALLOWED and compiling <= COMPILING_ALLOWED
    if file:
        write_json(file, records)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
