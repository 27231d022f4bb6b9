"""Draws the two pictures of `weft profile` that the manual shows, of runs by the timing model.

    python docs/profile_pictures.py

`docs/pictures/timeline.svg` is of the digits example, `docs/pictures/roofline.svg` of ResNet-18 at 64x64, whose file is
made first if it is not there (extra `demo`). The same code gives the same bytes.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel
from weft.runtime.plots import write_plots
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from examples.models.build import build

FOLDER = Path(__file__).parent / "pictures"
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
BINS = 500
LARGEST_BYTES = 300_000


def picture(model: Path, title: str, name: str) -> str:
    """The picture ``name`` ("roofline" or "timeline") of a model on the core `pynq`, as SVG."""
    compiled = weft.compile(model, "pynq")
    assert isinstance(compiled, CompiledModel)  # its sizes are fixed
    memory = DramModel()
    traced = profile(replace(compiled, name=title), predict_runs(compiled, memory), "timing model", memory)
    with tempfile.TemporaryDirectory() as folder:
        write_plots(traced, Path(folder), formats=("svg",), bins=BINS)
        text = (Path(folder) / f"{name}.svg").read_text()
    text = re.sub(r"([1-9]\d*\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough; scales stay
    if len(text) > LARGEST_BYTES:
        raise SystemExit(f"{name}.svg has {len(text):,} bytes, more than {LARGEST_BYTES:,}: lower BINS")
    return text


def main() -> None:
    """Write both pictures."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "timeline.svg").write_text(picture(DIGITS, "digits", "timeline"))
    resnet = build("resnet18", size=64, report=print)
    (FOLDER / "roofline.svg").write_text(picture(resnet, "ResNet-18 at 64x64", "roofline"))


if __name__ == "__main__":
    main()
