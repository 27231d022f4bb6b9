"""The page of `weft view`: how large it is, and in a browser the time to its first picture and the longest click.

    python benchmarks/pages/view.py resnet50 --limits          # exits non-zero where a figure is above its limit
    python benchmarks/pages/view.py resnet18-float --target cpu --limits       # kernels of this machine's processor
    python benchmarks/pages/view.py model.weft --json view.json

A click is on a layer: until all that the page shows of it is drawn. Every layer is clicked in five rounds, each time as
if it was never opened, and the fastest of its clicks counts: a machine that does other work lengthens some. The times
are those of this machine, without a GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import weft
from weft.cli.view_kernels import host_codes
from weft.compiler.model import CompiledModel
from weft.runtime.artifact import load as load_artifact
from weft.runtime.device import memory_of
from weft.view.page import view_page
from weft.view.side import side

from benchmarks.campaigns.in_browser import browser, probed
from benchmarks.common import Record, print_table, processor, write_json
from examples.models.build import ARCHITECTURES, build

LIMITS = {"bytes": 3_000_000, "first paint, ms": 1000.0, "longest click, ms": 100.0}

PROBE = """
  await new Promise(done => setTimeout(done, 1500));
  const paint = performance.getEntriesByName("first-contentful-paint")[0], clicks = layersOf(0).map(() => Infinity);
  for (let round = 0; round < 5; round += 1)
    for (let layer = 0; layer < clicks.length; layer += 1) {
      unpacked[0].clear();
      const started = performance.now();
      await choose(layer);
      document.body.getBoundingClientRect();  // what was changed is laid out
      clicks[layer] = Math.min(clicks[layer], performance.now() - started);
    }
  return { paint: paint ? paint.startTime : null, clicks };
"""


def compiled(name: str, target: str) -> CompiledModel:
    """An artifact, or a network of `examples/models` by its name, on the core `pynq` or for this machine's processor.
    With ``-float`` behind its name a network is not quantised."""
    path = Path(name)
    if path.suffix == ".weft":
        return load_artifact(path)
    network = name.removesuffix("-float")
    if network in ARCHITECTURES:
        path = build(network, form="qdq" if network == name else "float", report=print)
    model = weft.compile(path, "pynq") if target == "accel" else weft.compile(path, target=target)
    if not isinstance(model, CompiledModel):
        sys.exit(f"{name} leaves sizes open")
    return model


def measured(page: str) -> dict[str, float]:
    """Milliseconds in a browser, as `LIMITS` names them."""
    times = probed(page, PROBE, "--window-size=1400,1000")
    return {"first paint, ms": round(times["paint"], 1), "longest click, ms": round(max(times["clicks"]), 1)}


def main() -> int:
    """Measure; the number of figures above their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help=f"artifacts, ONNX files, or {', '.join(ARCHITECTURES)}")
    parser.add_argument("--target", choices=("accel", "cpu"), default="accel", help="what models are compiled for")
    parser.add_argument("--limits", action="store_true", help="fail where a figure is above its limit")
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    options = parser.parse_args()
    browser()  # before a model is compiled
    records, missed = [], 0
    for name in options.models:
        model = compiled(name, options.target)
        codes = host_codes(model, print)
        page = view_page([side(model, memory_of(model) if model.core is not None else None, {}, codes)])
        figures = {"bytes": len(page.encode()), **measured(page)}
        where = "pynq" if model.core is not None else processor()
        records += [Record(where, name, figure, value, LIMITS[figure]) for figure, value in figures.items()]
        missed += sum(value > LIMITS[figure] for figure, value in figures.items())
    rows = [[each.workload, each.figure, f"{each.value:,}", f"{each.reference:,}"] for each in records]
    print_table("weft view", ["model", "figure", "measured", "limit"], rows)
    if options.json is not None:
        write_json(options.json, records)
    return missed if options.limits else 0


if __name__ == "__main__":
    sys.exit(main())
