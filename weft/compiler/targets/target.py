"""What a target is: how it takes part in compiling a model and in running it.

A target implements `Target`, in a folder of its own, and is registered once: those of this package in `registry`, those
of others through the entry point group ``weft.targets`` or `registry.register_target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ...hw.config import CoreConfig
from ...hw.dram_rate import DramRate
from ...whole import truth, whole
from ..model import CompiledModel, GpuCode, HostCode, HostProgram
from ..scope import Scope
from .errors import CompileError

if TYPE_CHECKING:
    from ..graph.ir import Module
    from ..passes.manager import Pass

Progress = Callable[[str], None]
Dump = Callable[[str, str], None]
"""Takes the name of a kernel and its text."""

Measure = Callable[[CoreConfig, DramRate, npt.NDArray[np.uint8], int], int]
"""Cycles of a program for a core with such memory; the program lies at an offset of the core's window."""

MeasureTogether = Callable[
    [Sequence[CoreConfig], Sequence[int], DramRate, Sequence[tuple[npt.NDArray[np.uint8], int]]], Sequence[int]
]
"""Cycles of each of several cores that begin together: the cores, the port of each, such memory behind each port, and
the program of each with its offset."""


@dataclass(frozen=True)
class Job:
    """What a user wants of one compilation, whatever the target.

    ``strict``: refuse a model of which the target cannot compile every operator. ``keep``: every layer's result can be
    read after a run. ``progress``: called with a line of text at each step. ``dump``: called with each kernel's name
    and loop IR. ``measure``: cycles of a program on a core; without it nothing is decided by them. ``together``: those
    of each core, where each of several has a program. ``kept``: what stands for all that kernels follow from, beside
    what is compiled, so that those of earlier runs can be loaded; None: they are made anew.
    """

    strict: bool = False
    keep: bool = False
    progress: Progress = lambda _: None
    dump: Dump | None = None
    measure: Measure | None = None
    kept: str | None = None
    together: MeasureTogether | None = None


PLAIN_JOB = Job()
"""Of whom nothing was asked: no program is measured."""


def option(default: Any, help_text: str, *, short: str = "", instead_of: str = "") -> Any:
    """A field of a target's options: its default, what it does in one sentence, and a short flag of the command.
    ``instead_of``: another option, which says nothing where this one is given."""
    return field(default=default, metadata={"help": help_text, "short": (short,) if short else (),
                                            "instead_of": instead_of})  # fmt: skip


INTEGERS = option(
    str(Scope.PRODUCTS),
    "What becomes integers: products (and what joins them), or all: softmax and normalisations, too.",
)
"""The option of targets that take quantised models, as `scope_of` reads it."""


def scope_of(integers: str) -> Scope:
    """The scope of that name. Raises CompileError for another."""
    if integers not in list(Scope):
        raise CompileError(f"integers is {integers!r}, but must be one of {', '.join(Scope)}")
    return Scope(integers)


class Target(Protocol):
    """A way to compile and run models.

    ``options``: a frozen dataclass with the target's own options; every field has a default and, in its metadata, a
    ``help`` text. ``require_quantised``: whether it refuses models that are not quantised. ``takes_open_sizes``:
    whether a model with open sizes may be compiled anew for each size. A target may also have ``tools``: what it offers
    to ``weft tune`` and ``weft profile``, as ``module:function`` by the command's name (`cli.tools`); and ``choose``,
    which takes a function that compiles by options and a job, the user's options and job, and returns one of what that
    function made: a target that tries options beside the user's has it.
    """

    name: str
    summary: str
    options: type[Any]
    require_quantised: bool
    takes_open_sizes: bool

    def passes(self, options: Any, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        """All rewrites of the graph, from a model as read to what `link` takes. ``job``: as `link` gets it."""

    def link(self, module: Module, options: Any, job: Job) -> CompiledModel:
        """Compile what the passes left. Raises CompileError that names the node or kernel at fault."""

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> HostCode | GpuCode:
        """Code for a host program of one of this target's models: machine code for the processor that this runs on, or
        for that of a board (a name as `cpu.processor.named_target` takes it); or text for a GPU's driver. A program
        that is not trusted, since it came in a file, is checked first. CompileError if it would reach beyond its
        memory, and for a processor that the target has no code for."""


def true_or_false(name: str, value: Any) -> bool:
    """A truth value that a user chose; CompileError for anything else."""
    chosen = truth(value)
    if chosen is None:
        raise CompileError(f"{name} is {value!r:.80}, but must be True or False")
    return chosen


FOR_ALL = ("config", "target", "shapes", "strict", "keep", "progress", "dump", "passes", "cache")
"""What `weft.compile` takes beside the options of a target."""


def target_options(target: Target, options: Mapping[str, Any]) -> Any:
    """The options of ``target`` with these values; CompileError for one that it does not have."""
    names = [field.name for field in fields(target.options)]
    for name in options:
        if name not in names:
            near = get_close_matches(name, FOR_ALL, 1, 0.8) if name not in FOR_ALL else []
            meant = f"did you mean {near[0]}? Else " if near else ""
            hint = f"{meant}its options: {', '.join(names) or 'none'}"
            raise CompileError(f"target {target.name!r} has no option {name!r}", hint=hint)
    chosen = dict(options)
    for each in fields(target.options):  # else a comparison in the options fails, or one in the middle of a compilation
        if type(each.default) is int and each.name in chosen:
            number = whole(chosen[each.name])
            if number is None:
                raise CompileError(f"{each.name} is {chosen[each.name]!r:.80}, but must be a whole number")
            chosen[each.name] = number
        if type(each.default) is bool and each.name in chosen:
            chosen[each.name] = true_or_false(each.name, chosen[each.name])
        if each.type in (str, "str") and not isinstance(chosen.get(each.name, ""), str):
            raise CompileError(f"{each.name} is {chosen[each.name]!r:.80}, but must be a text")
        other = each.metadata.get("instead_of", "")
        if other in chosen and each.name in chosen and str(chosen[each.name]) != str(each.default):
            raise CompileError(f"{other} and {each.name} are both given, and {other} would say nothing",
                               hint=f"leave out {other}, or {each.name}")  # fmt: skip
    return target.options(**chosen)
