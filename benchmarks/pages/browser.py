"""The page of `weft view --live`: its size, the time to its first result, and how fast it counts a network's cycles.

    python benchmarks/pages/browser.py                 # exits non-zero where a figure misses its limit
    python benchmarks/pages/browser.py --json browser.json

The digits page runs the network on three random pictures, and on a line that is drawn; of ResNet-18 the page counts
cycles only. Both figures of cycles have to be the native timing model's, and scores of the line those of a native run.
Times are those of this machine, without a GPU, from the page's start.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import weft
from weft.cli.view_live import hosts_in_page
from weft.compiler.model import CompiledModel
from weft.runtime.device import memory_of
from weft.sim.timing import predict
from weft.view.live import StepRecorder, live_model, live_page

from benchmarks.campaigns.in_browser import probed
from benchmarks.common import Record, print_table, processor, write_json
from examples.models.build import build

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

LIMITS = {"page, bytes": 5_000_000, "first result, ms": 3000.0, "cycles counted in, ms": 1000.0}

ANSWER, ANSWER_LIMIT = "answer to what is drawn, ms", 100.0

PROBE = """
  await shown;
  const first = state.first, times = [];
  for (let turn = 0; turn < 3; turn += 1) { showTime(); times.push(state.took); }
  const found = { first, took: Math.min(...times), cycles: state.cycles, equal: state.equal };
  if (!DATA.models[0].pad) return found;
  strokes.push([[0.3, 0.2], [0.6, 0.5], [0.4, 0.9]]);
  const drawing = performance.now();
  showDrawn();
  return { ...found, answer: performance.now() - drawing, drawn: [...state.drawn], scores: state.scores };
"""


def compiled(path: Path) -> CompiledModel:
    """A network for `pynq`, with measured schedules."""
    model = weft.compile(path, "pynq")
    assert isinstance(model, CompiledModel)
    return model


def main() -> int:
    """Measure; the number of figures that miss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    options = parser.parse_args()
    records, missed = [], 0
    for name, path in (("digits", DIGITS), ("resnet18", build("resnet18", form="qdq", report=print))):
        model = compiled(path)
        if name == "digits":
            device = StepRecorder(model)
            images = np.random.default_rng(0).random((3, *model.inputs[0].shape), np.float32)
            examples = [{model.inputs[0].name: image} for image in images]
            page = live_page([live_model(model, examples, (weft.load(model, device), device), *hosts_in_page(model))])
        else:
            page = live_page([live_model(model)])
        found = probed(page, PROBE, "--window-size=1400,1000")
        runs = [
            predict(model.config, each.program, memory_of(model), offset=each.program_offset) for each in model.programs
        ]
        native = sum(each.cycles or 0 for each in runs)
        missed += found["cycles"] != native or found["equal"] is False
        figures = {
            "page, bytes": len(page.encode()),
            "first result, ms": round(found["first"], 1),
            "cycles counted in, ms": round(found["took"], 1),
        }
        if "answer" in found:
            figures[ANSWER] = round(found["answer"], 1)
            picture = np.float32(found["drawn"]).reshape(model.inputs[0].shape)
            (scores,) = weft.load(model, "fsim").run(picture).values()
            missed += not np.array_equal(scores.reshape(-1), np.float32(found["scores"]))
        limits = {**LIMITS, ANSWER: ANSWER_LIMIT}
        missed += sum(value > limits[figure] for figure, value in figures.items())
        where = processor()
        records += [Record(where, name, figure, value, limits[figure]) for figure, value in figures.items()]
        records.append(Record(where, name, "cycles", found["cycles"], native))
    rows = [[each.workload, each.figure, f"{each.value:,}", f"{each.reference:,}"] for each in records]
    print_table("weft view --live", ["model", "figure", "measured", "limit, or native"], rows)
    if options.json is not None:
        write_json(options.json, records)
    return missed


if __name__ == "__main__":
    sys.exit(main())
