"""Draws the pictures of `weft profile` that the manual shows, of runs by the timing model.

    python docs/profile_pictures.py

`docs/pictures/timeline.svg` is of the digits example, `docs/pictures/system-stages.svg` of the same in stages on four
cores, `docs/pictures/roofline.svg` of ResNet-18 at 64x64, whose file is made first if it is not there (extra `demo`).
The same code gives the same bytes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY
from weft.hw.system_config import SystemConfig
from weft.runtime.plots import write_plots, write_shared_plot
from weft.runtime.profile import profile
from weft.runtime.profile_shared import profile_shared
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
    return drawn(name, lambda folder: write_plots(traced, folder, formats=("svg",), bins=BINS))


def stages_picture() -> str:
    """The digits in stages on four `tiny`, which start each other, as SVG."""
    system = SystemConfig(name="four tiny cores", cores=(TINY,) * 4, ports=(0, 1, 2, 3), relay=True)
    compiled = weft.compile(DIGITS, TINY, stages=4)
    assert isinstance(compiled, CompiledModel)
    measured = profile_shared(replace(compiled, name="digits in stages"), system, DramModel.of(TINY))
    return drawn("timeline", lambda folder: write_shared_plot(measured, folder, formats=("svg",)))


def drawn(name: str, write: Callable[[Path], object]) -> str:
    """The picture of that name which ``write`` puts into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        text = (Path(folder) / f"{name}.svg").read_text()
    text = re.sub(r"([1-9]\d*\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough; scales stay
    if len(text) > LARGEST_BYTES:
        raise SystemExit(f"{name}.svg has {len(text):,} bytes, more than {LARGEST_BYTES:,}: lower BINS")
    return text


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "timeline.svg").write_text(picture(DIGITS, "digits", "timeline"))
    (FOLDER / "system-stages.svg").write_text(stages_picture())
    resnet = build("resnet18", size=64, report=print)
    (FOLDER / "roofline.svg").write_text(picture(resnet, "ResNet-18 at 64x64", "roofline"))


if __name__ == "__main__":
    main()
