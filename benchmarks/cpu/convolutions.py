"""Single convolutions of other kinds than plain ones on the CPU beside onnxruntime, as in ``cpu/matmul.py``.

They are in float32, of one image, with data in and out as the user has them.

    pip install -e .[bench]
    python benchmarks/cpu/convolutions.py                   # all, 1 thread
    python benchmarks/cpu/convolutions.py grouped volume --threads 2
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.cpu.matmul import Measured, compared, report


@dataclass(frozen=True)
class Convolution:
    """``size`` and ``kernel`` along each axis; ``transposed``: ONNX's ConvTranspose."""

    kind: str
    size: tuple[int, ...]
    channels: int
    made: int
    kernel: tuple[int, ...]
    groups: int = 1
    stride: int = 1
    transposed: bool = False

    def __str__(self) -> str:
        size, kernel = ("x".join(map(str, each)) for each in (self.size, self.kernel))
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"{self.kind} {size}, {self.channels} to {self.made}, {kernel}/{self.stride}{groups}"


CASES = (
    *(Convolution("grouped", (size, size), channels, channels, (3, 3), 32)
      for channels, size in ((128, 56), (256, 28), (512, 14), (1024, 7))),  # ResNeXt-50's 32x4d
    *(Convolution("odd row", (size, size), channels, channels, kernel)
      for size, channels, kernel in ((31, 64, (3, 3)), (149, 32, (3, 3)), (17, 128, (1, 7)))),  # as in Inception
    Convolution("1-D", (1000,), 64, 64, (3,)),
    Convolution("1-D", (4000,), 16, 32, (9,), stride=2),
    Convolution("1-D", (257,), 128, 128, (5,), 4),
    Convolution("transposed", (56, 56), 64, 32, (2, 2), stride=2, transposed=True),
    Convolution("transposed", (28, 28), 64, 32, (3, 3), stride=2, transposed=True),
    Convolution("transposed", (28, 28), 64, 64, (4, 4), stride=2, transposed=True),
    Convolution("volume", (16, 28, 28), 32, 32, (3, 3, 3)),
    Convolution("volume", (8, 14, 14), 64, 64, (3, 3, 3), stride=2),
    Convolution("volume", (8, 14, 14), 64, 64, (1, 1, 1)),
    Convolution("spectrum", (16000,), 1, 257, (512,), stride=160),  # real and imaginary parts of a Fourier transform
    Convolution("spectrum", (16000,), 1, 402, (400,), stride=160),
    Convolution("spectrum", (16000,), 1, 64, (400,), stride=160),
    Convolution("spectrum", (16000,), 2, 40, (251,), stride=4),
    Convolution("spectrum", (100,), 257, 1, (512,), stride=160, transposed=True),  # and back
    Convolution("odd channels", (28, 28), 64, 21, (1, 1)),  # classes of pixels
    Convolution("odd channels", (13, 13), 512, 255, (1, 1)),  # boxes
    Convolution("odd channels", (28, 28), 64, 67, (3, 3)),
    Convolution("odd channels", (28, 28), 67, 64, (3, 3)),
    Convolution("odd channels", (56, 56), 32, 1, (3, 3)),  # a mask
    Convolution("odd channels", (56, 56), 32, 3, (9, 9)),  # an image
    Convolution("odd channels", (500,), 32, 1, (7,)),  # a wave
)  # fmt: skip


def model_of(case: Convolution) -> tuple[onnx.ModelProto, float]:
    """The model, and its floating-point operations (of a transposed one: without those on zeros)."""
    generator = np.random.default_rng(0)
    inside = (case.channels, case.made // case.groups) if case.transposed else (case.made, case.channels // case.groups)
    weights = generator.standard_normal((*inside, *case.kernel)).astype(np.float32)
    pads = [(size - 1) // 2 for size in case.kernel]
    if case.transposed:
        ends = [(n - 1) * case.stride + k - 2 * p for n, k, p in zip(case.size, case.kernel, pads, strict=True)]
    else:
        ends = [(n + 2 * p - k) // case.stride + 1 for n, k, p in zip(case.size, case.kernel, pads, strict=True)]
    count = prod(case.size) * case.channels if case.transposed else prod(ends) * case.made
    node = helper.make_node(
        "ConvTranspose" if case.transposed else "Conv", ["x", "w"], ["y"], pads=pads * 2, group=case.groups,
        strides=[case.stride] * len(pads),
    )  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node], case.kind.replace(" ", "_"), [helper.make_tensor_value_info("x", kind, (1, case.channels, *case.size))],
        [helper.make_tensor_value_info("y", kind, (1, case.made, *ends))], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, 2.0 * count * prod(weights.shape[1:])


def measure(case: Convolution, threads: int, rounds: int) -> Measured:
    """Run one convolution on both engines."""
    model, flops = model_of(case)
    x = np.random.default_rng(1).standard_normal((1, case.channels, *case.size)).astype(np.float32)
    return compared(str(case), model, {"x": x}, flops, threads, rounds)


def main() -> int:
    kinds = list(dict.fromkeys(case.kind for case in CASES))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=kinds, help=f"of {', '.join(map(repr, kinds))}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in kinds]
    if unknown:
        parser.error(f"there is no kind {unknown[0]!r}; choose from {', '.join(map(repr, kinds))}")
    chosen = [case for case in CASES if case.kind in arguments.kinds]
    return report("convolutions", [measure(case, arguments.threads, arguments.rounds) for case in chosen])


if __name__ == "__main__":
    sys.exit(main())
