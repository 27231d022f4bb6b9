"""Whole networks as quantised ONNX files, made here from a seed: nothing is downloaded, nothing is trained."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import onnx
import onnxruntime
import typer
from rich.console import Console

from examples.models.batch_norm import Report, folded, measured
from examples.models.images import images
from examples.models.measure import multiply_accumulates
from examples.models.mobilenet import mobilenet_v1, mobilenet_v2
from examples.models.network import ModelRequestError, NetworkBuilder
from examples.models.quantise import quantise
from examples.models.resnet import resnet18, resnet50

FOLDER = Path(__file__).parent
CACHE = FOLDER.parents[1] / "build" / "models"

ARCHITECTURES: dict[str, Callable[[NetworkBuilder], onnx.ModelProto]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
}
FORMS = ("qdq", "qoperator", "float")
ACTIVATIONS = ("int8", "uint8")

STATISTICS_IMAGES, STATISTICS_SEED = 16, 1
CALIBRATION_IMAGES, CALIBRATION_SEED = 16, 2


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; equal requests give the same file.

    ``form``: "qdq", "qoperator" or "float" (with its batch normalisations). ``activations``: "int8" or "uint8".
    ``size``: height and width of the image. ``width`` scales the channel counts (1.0: the published network).
    """

    name: str
    form: str = "qdq"
    activations: str = "int8"
    size: int = 224
    width: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("model", self.name, tuple(ARCHITECTURES)),
            ("form", self.form, FORMS),
            ("activation type", self.activations, ACTIVATIONS),
        ):
            if value not in choices:
                raise ModelRequestError(f"there is no {what} {value!r}; choose from {', '.join(choices)}")

    @property
    def path(self) -> Path:
        """Where the cache keeps it: the name holds a hash of the request, of this folder's sources and of the tools."""
        digest = hashlib.sha256(repr(dataclasses.astuple(self)).encode())
        digest.update(f"onnx {onnx.__version__} onnxruntime {onnxruntime.__version__}".encode())
        for source in sorted(FOLDER.glob("*.py")):
            digest.update(source.read_bytes())
        kind = "float" if self.form == "float" else f"{self.activations}-{self.form}"
        return CACHE / f"{self.name}-{self.size}-{kind}-{digest.hexdigest()[:12]}.onnx"


def build(
    name: str,
    *,
    form: str = "qdq",
    activations: str = "int8",
    size: int = 224,
    width: float = 1.0,
    seed: int = 0,
    report: Report = lambda _: None,
) -> Path:
    """The file of the model, made now or taken from ``build/models``; see `Request` for the arguments.

    ``report`` is called with a line of text at every step. Raises `ModelRequestError` when there is no such model.
    """
    request = Request(name=name, form=form, activations=activations, size=size, width=width, seed=seed)
    path = request.path
    if path.exists():
        report(f"found {path}")
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        unfinished = Path(folder) / path.name
        if form == "float":
            report(f"weights of {name}")
            model = ARCHITECTURES[name](NetworkBuilder(name, size, width, seed))
            onnx.save(measured(model, images(STATISTICS_IMAGES, size, STATISTICS_SEED), report), unfinished)
        else:
            # Every form starts from the same float file, which is cached too.
            float_path = build(name, form="float", size=size, width=width, seed=seed, report=report)
            report("quantising")
            calibration = images(CALIBRATION_IMAGES, size, CALIBRATION_SEED)
            quantise(folded(onnx.load(float_path)), calibration, unfinished, form=form, activations=activations)
        onnx.checker.check_model(unfinished, full_check=True)
        os.replace(unfinished, path)  # at once: another process may be building the same
    return path


def command(
    name: Annotated[str, typer.Argument(help=f"The network: {', '.join(ARCHITECTURES)}.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: build/models/NAME.onnx.")] = None,
    form: Annotated[str, typer.Option(help="qdq, qoperator, or float (not quantised).")] = "qdq",
    activations: Annotated[str, typer.Option(help="Element type of activations: int8 or uint8.")] = "int8",
    size: Annotated[int, typer.Option(help="Height and width of the image: a multiple of 32.")] = 224,
    width: Annotated[float, typer.Option(help="Factor on all channel counts.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
) -> None:
    """Make a network with seeded weights and quantise it (int8 weights per channel)."""
    started = time.monotonic()
    console = Console(stderr=True, highlight=False)
    with console.status(f"building {name}") as status:
        path = build(
            name, form=form, activations=activations, size=size, width=width, seed=seed,
            report=status.update if console.is_terminal else lambda text: console.print(text, soft_wrap=True),
        )  # fmt: skip
    target = output or CACHE / f"{name}.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    seconds = time.monotonic() - started
    print(f"{target}: {target.stat().st_size:,} bytes, {_work(name, size, width)}, {seconds:.1f} s")


def _work(name: str, size: int, width: float) -> str:
    model = ARCHITECTURES[name](NetworkBuilder(name, size, width))
    return f"{sum(multiply_accumulates(model).values()) / 1e6:,.0f} M multiply-accumulates"


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except (ModelRequestError, OSError) as error:
        sys.exit(f"error: {error}")
