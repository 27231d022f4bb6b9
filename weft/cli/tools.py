"""What targets offer beside compiling: ``weft tune`` and ``weft profile`` ask the target for its tool.

A target names them, so that nothing of them is imported before they are used, in its attribute ``tools``:

    tools = {"tune": "my_package.tuning:tune", "profile": "my_package.profiling:profile"}

A tool is a function of a `TuneRequest` or a `ProfileRequest`; it prints what it found.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.model import CompiledModel
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target, target_names
from ..compiler.targets.target import Target
from ..progress import Updates
from .output import parse_shapes
from .source import Given, calibrated_module, check_kernels, compiled_with_fixed_sizes, given_model
from .target_options import Chosen, options_of

if TYPE_CHECKING:  # what is wrong with a command is told before the compiler is imported
    from ..compiler.graph.ir import Module


@dataclass(frozen=True)
class Budget:
    """What the user gives a search."""

    trials: int
    minutes: float | None
    seed: int
    thorough: bool
    prove: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def minutes_left(self) -> float | None:
        """Reading the model and its passes take of the time, too."""
        return None if self.minutes is None else self.minutes - (time.monotonic() - self.started) / 60


@dataclass(frozen=True)
class TuneRequest:
    """Measure schedules of a model's kernels and keep them in ``database``. ``options``: those of the target."""

    model: Given
    target: Target
    options: Any
    database: Path
    budget: Budget
    shape: list[str] | None
    calibrate: Path | None
    as_json: bool

    def prepared(self, status: Updates) -> Module:
        """The model as the target's linker takes it."""
        from ..compiler.compile import prepared
        from ..compiler.frontends import module_and_tail, read

        status.update("reading the model")
        source = read(self.model)
        sizes = parse_shapes(self.shape) or {}
        if any(isinstance(size, str) for each in source.inputs(sizes) for size in each.shape):
            raise CompileError("a model with open sizes cannot be tuned", hint="fix its sizes by --shape")
        if self.calibrate is not None:
            check_kernels(self.model)
            whole = calibrated_module(source, sizes, self.calibrate, status.update)
        else:
            whole, _ = module_and_tail(source, sizes, require_quantised=self.target.require_quantised)
        status.update("running the passes")
        return prepared(whole, self.target, self.options)


@dataclass(frozen=True)
class ProfileRequest:
    """Say why a model, or an artifact, is slow. ``device``: where it runs; ``model`` predicts. ``folder``: for results.
    ``latency``, ``bandwidth``: of a DRAM, in cycles and bytes a cycle. ``others``: predict other hardware, too."""

    source: Given
    target: str
    device: str
    folder: Path
    latency: int
    bandwidth: int | None
    others: bool
    shape: list[str] | None
    calibrate: Path | None
    cache: bool
    as_json: bool
    chosen: Chosen
    opened: CompiledModel | None = None
    """The model in the artifact, if ``source`` is one."""
    system: Path | None = None
    """Several cores on one memory: an item on each."""
    memory: str | None = None
    """A kind of DRAM with banks, and the core's clock."""

    @property
    def is_artifact(self) -> bool:
        return self.opened is not None

    def artifact(self) -> CompiledModel:
        """The model in the artifact."""
        assert self.opened is not None
        return self.opened

    def options(self) -> dict[str, Any]:
        """The target's options that the user set."""
        return options_of(self.target, self.chosen)

    def given(self, status: Updates) -> Given | Module:
        """The model to compile: a file, or what calibration made of it."""
        return given_model(self.source, self.shape, self.calibrate, status.update)

    def compiled(
        self, model: Any, options: Mapping[str, Any], status: Updates, *, measured: bool = False
    ) -> CompiledModel:
        """A model compiled for the target. CompileError if it leaves sizes open."""
        return compiled_with_fixed_sizes(model, self.target, options, self.shape, status.update, measured=measured,
                                         cache=self.cache)  # fmt: skip


def tool_of(name: str, what: str) -> Any:
    """The tool of a target, ``tune`` or ``profile``; None where it has none. CompileError if there is no such target,
    or the tool cannot be loaded."""
    place = getattr(find_target(name), "tools", {}).get(what)
    if place is None:
        return None
    module, _, function = place.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise CompileError(f"the tool {place!r} of target {name!r} cannot be loaded: {error}") from error


def targets_with(what: str) -> str:
    """The names of all targets that have a tool, as a list in words."""
    names = [name for name in target_names() if what in getattr(find_target(name), "tools", {})]
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
