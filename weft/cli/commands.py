"""What commands there are, known without their modules: a command is imported when it is called, or asked for help."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import WeftError


class Part(NamedTuple):
    """``modules`` make the command, or those of a group; ``help`` is its first sentence. ``reads``: its first argument
    is a file: a model, or something that weft wrote."""

    modules: tuple[str, ...]
    help: str
    reads: str = ""


MODEL, OWN = "model", "own"

PARTS = {
    "compare": Part(
        ("compare",),
        "Run a model in two places; print the error of each tensor that both make, and the first that "
        "differs.",
    ),
    "compile": Part(
        ("compile",),
        "Compile a model into one artifact file and report where each part of it will run.",
        MODEL,
    ),
    "passes": Part(
        ("compile",),
        "List the passes of a target in their order, and those that installed packages add.",
    ),
    "explore": Part(
        ("explore",),
        "Measure points of a space of cores, memories and compiler knobs; print those that no other one beats.",
    ),
    "hw": Part(("hardware",), "Write the core, or a system of cores, as Verilog, in the form that fits a part."),
    "synth": Part(("hardware",), "Synthesise a core: what each module takes and, for ecp5, its highest clock."),
    "power": Part(("power",), "Say what power a core takes that runs a network, by layer and by module.", MODEL),
    "test-hw": Part(
        ("hardware",),
        "Run the RTL's cocotb tests; a failure is named, repeated with a waveform, and how to look at it is said.",
    ),
    "quantise": Part(
        ("evaluate",),
        "Write a float model in 8 bits, by examples, and print what that costs on them: noise and agreement.",
        MODEL,
    ),
    "evaluate": Part(
        ("evaluate",),
        "Run a model on all examples of a file, on any device, and print how many it reads right.",
        MODEL,
    ),
    "shapes": Part(
        ("inspect",),
        "Print the type of every tensor of a model, for any size of what its inputs leave open.",
        MODEL,
    ),
    "disasm": Part(
        ("inspect",),
        "Print an artifact's instructions with the layer and tile that each belongs to, and the host's "
        "kernels.",
        OWN,
    ),
    "profile": Part(("profile",), "Say why a model is slow.", MODEL),
    "replay": Part(
        ("replay",),
        "Run a recording's programs on a device and name the first difference in each: tensor, layer and "
        "instruction.",
        OWN,
    ),
    "run": Part(
        ("run",),
        "Run an artifact or a model and print its results, with the cycles of each layer and engine on the "
        "core and the time on the host.",
        MODEL,
    ),
    "generate": Part(
        ("generate",),
        "Continue a text with a language model, token by token, and print what a token costs.",
        MODEL,
    ),
    "tune": Part(
        ("tune",),
        "Measure schedules of each kernel, for the accelerator in the timing model, for a processor on this "
        "machine; `weft compile --tuned FILE` uses the best of them.",
        MODEL,
    ),
    "view": Part(
        ("view",),
        "Write a web page of a compilation, from the graph to the wire: each layer's loops, instructions and cycles, "
        "what memories hold, and why it waits; of a processor its kernels' assembly and time under the roof of this "
        "machine. With two, both side by side.",
        MODEL,
    ),
    "verify": Part(("verify",), "Prove that an artifact's programs compute a model for all inputs.", OWN),
    "mcp": Part(
        ("mcp_command",),
        "Serve compile, run, profile, explore and compare as tools of the Model Context Protocol, over standard input "
        "and output: docs/mcp.md.",
    ),
    "doctor": Part(
        ("machine",),
        "Say what of weft works on this machine, and what to install for the rest.",
    ),
    "board": Part(
        ("board", "board_bench", "board_virtual", "doctor"),
        "Boards: what they are, what fits them, building for one, and running on one.",
    ),
    "gpu": Part(("gpu",), "GPUs of this machine, and kernels looked at without one."),
}  # fmt: skip
"""In the order in which ``weft --help`` lists them."""


class CommandsOnDemand(TyperGroup):
    """The group of all commands. A list of them, a completion and an error need no command's module."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        loaded = dict(self.commands)
        self.commands = {name: loaded.get(name) or TyperCommand(name, help=part.help) for name, part in PARTS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or name not in PARTS:
            return name, command, rest
        if PARTS[name].reads and rest and not rest[0].startswith("-"):
            _refuse_missing(rest[0], PARTS[name].reads)
        return name, loaded(name), rest


def loaded(name: str) -> Any:
    """The command itself, with its options."""
    for module in PARTS[name].modules:
        import_module(f"{__package__}.{module}")
    from .app import app

    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _refuse_missing(path: str, what: str) -> None:
    """WeftError for a file that is not there, in the words of who would read it; all else is found out there."""
    try:
        os.stat(path)
    except OSError as error:
        own = what == OWN or path.endswith(".weft")
        said = f"cannot read {path}: {error.strerror}" if own else f"{path!r} cannot be read: {error.strerror}"
        raise WeftError(said) from None
    except ValueError:  # of names that no file can have
        return
