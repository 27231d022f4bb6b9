"""Compile the digits network for the core ``pynq``, run it on the RTL, compare with onnxruntime."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import weft
from rich.console import Console
from rich.progress import track
from weft.runtime.report import engine_table, layer_table, placement_table

from data import split_digits
from examples.precise import precise_session

HERE = Path(__file__).parent
MODEL = HERE / "digits.onnx"
TRACE = Path("digits.perfetto.json")
RTL_IMAGES = 50


def main() -> None:
    """Print where each layer runs, what it costs, how many digits are read correctly, and the agreement."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    console = Console()
    _, test = split_digits()
    started = time.perf_counter()

    with console.status("compiling digits.onnx for pynq") as status:
        model = weft.compile(MODEL, "pynq", progress=status.update)
    console.print(placement_table(model))

    with console.status("building the core") as status:
        rtl = weft.load(model, "rtl", progress=status.update)
    rtl.run(test.images[:1], trace=True)
    slices = weft.write_trace(rtl, TRACE)
    console.print(layer_table(rtl))
    console.print(engine_table(rtl))
    console.print(f"one image: {rtl.cycles:,} cycles on the RTL, {rtl.cycles / 1e5:.2f} ms at 100 MHz")

    on_rtl = [next(iter(rtl.run(image[None]).values())) for image in track(test.images[:RTL_IMAGES], "on rtl ")]
    fsim = weft.load(model, "fsim")
    on_fsim = [next(iter(fsim.run(image[None]).values())) for image in track(test.images, "on fsim")]
    session = precise_session(MODEL)
    name = session.get_inputs()[0].name
    reference = [session.run(None, {name: image[None]})[0] for image in test.images]

    print_agreement(console, np.concatenate(on_rtl), np.concatenate(on_fsim), np.concatenate(reference), test.labels)
    console.print(f"wrote {TRACE} ({slices:,} slices): open it at https://ui.perfetto.dev")
    console.print(f"{time.perf_counter() - started:.0f} s, set-up not included")


def print_agreement(
    console: Console, on_rtl: np.ndarray, on_fsim: np.ndarray, reference: np.ndarray, labels: np.ndarray
) -> None:
    """Accuracy of each, and how far they are apart. Scores are (N, 10)."""
    console.print(f"accuracy: {np.mean(on_fsim.argmax(1) == labels):.2%} of {len(labels)} test images on fsim")
    first = len(on_rtl)
    console.print(f"          {np.mean(on_rtl.argmax(1) == labels[:first]):.2%} of the first {first} on rtl")
    console.print(f"          {np.mean(reference.argmax(1) == labels):.2%} of {len(labels)} in onnxruntime")
    console.print(f"rtl equal to fsim: {np.array_equal(on_rtl, on_fsim[:first])}")
    step = np.min(np.abs(np.diff(np.unique(reference))))
    apart = np.rint(np.abs(on_fsim - reference) / step).astype(int)
    console.print(f"scores equal to onnxruntime: {np.mean(apart == 0):.2%}; at most {apart.max()} LSB apart")


if __name__ == "__main__":
    main()
