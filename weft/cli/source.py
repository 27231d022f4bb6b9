"""What a command is given: an artifact, or a model that it compiles first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.model import CompiledModel, OpenModel
from ..compiler.targets.errors import CompileError
from ..files import ONNX_START, LitertFile, is_exported_program
from ..kept_models import Wish, compile_kept
from .output import parse_shapes
from .target_options import Chosen, refuse_options

if TYPE_CHECKING:
    from ..compiler.frontends import Source
    from ..compiler.graph import Module
    from ..compiler.targets.target import Dump


Given = Path | LitertFile
"""A model in a file, as a command is given it."""


def is_artifact(path: Path) -> bool:
    """Whether a file is what ``weft compile`` writes, and no model. Exported programs of PyTorch are zips, too.

    What is named as an artifact and begins as neither is meant as one: an empty file, one that is not there."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError:
        begin = b""
    if begin.startswith(b"PK\x03\x04"):
        return not is_exported_program(path)
    return path.suffix == ".weft" and not begin.startswith(ONNX_START)


def opened_artifact(source: Path, chosen: Chosen, **arguments: object) -> CompiledModel:
    """The compiled model in an artifact. CompileError if the user set an option of a target, or one of ``arguments``
    (by the name of its flag), which say how a model is compiled."""
    why = f"{source} is compiled already"
    refuse_options(chosen, why)
    flags = [f"--{name}" for name, value in arguments.items() if value]
    if flags:
        listed = " and ".join([", ".join(flags[:-1]), flags[-1]] if flags[1:] else flags)
        raise CompileError(f"{listed} {'are' if flags[1:] else 'is'} for models: {why}")
    from ..runtime.artifact import load

    return load(source)


def given_model(
    source: Given, shape: list[str] | None, examples: Path | None, report: Callable[[str], None]
) -> Given | Module:
    """What a command compiles of a file: the file itself or, with ``examples``, its float model in 8 bits. CompileError
    for such a model of chosen kernels, which differ in 8 bits alone."""
    if examples is None:
        return source
    check_kernels(source)
    return calibrated_module(source, parse_shapes(shape), examples, report)


def given_file(path: Path, kernels: str | None, signature: str | None) -> Given:
    """The file, with what of LiteRT's is chosen of it."""
    return path if kernels is None and signature is None else LitertFile(path, kernels, signature)


def path_of(given: Given) -> Path:
    return given.path if isinstance(given, LitertFile) else given


def check_kernels(given: Given) -> None:
    """CompileError if kernels are asked for where a float model becomes one in 8 bits."""
    if isinstance(given, LitertFile) and given.kernels is not None:
        raise CompileError("--kernels is for LiteRT files that are in 8 bits already", hint="leave out --calibrate")


def calibrated_module(
    model: Given | Source, shapes: Mapping[str, Sequence[int]], examples: Path, report: Callable[[str], None]
) -> Module:
    """A float model, a file or what was read of one, in 8 bits, by examples in a file."""
    from .calibrated import Improvements, quantised_module

    plain = Improvements(equalise=False, correct_bias=False, adaround=False)
    return quantised_module(model, shapes, examples, "minmax", plain, report)


def compiled_with_fixed_sizes(
    source: Given | Module, target: str, options: Mapping[str, Any], shape: list[str] | None,
    report: Callable[[str], None], *, measured: bool = False, cache: bool = True, dump: Dump | None = None,
) -> CompiledModel:  # fmt: skip
    """What `given_model` gives, compiled for a look at it. CompileError if it leaves sizes open. With a ``dump`` it is
    compiled anew."""
    shapes = parse_shapes(shape) if isinstance(source, Given) else None  # a module has its sizes
    model = compile_kept(
        source, target, options, shapes=shapes, wish=Wish(measured=measured), progress=report, cache=cache,
        dump=dump,
    )  # fmt: skip
    if isinstance(model, OpenModel):
        raise CompileError(f"it cannot be followed: {model.openness}", hint=model.way_out("by --shape"))
    return model
