"""The tools that ``weft mcp`` serves: each is a command of weft with ``--json``, in a process of its own.

A process of its own, since standard output is where the protocol speaks, and so that a client that goes away, or asks
for what takes too much, takes nothing else with it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from subprocess import DEVNULL
from typing import Any

import anyio
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

INSTRUCTIONS = (
    "weft compiles neural networks for tensor accelerators, processors and GPUs, and says what they take. Models are "
    "files: ONNX, LiteRT (.tflite), exported PyTorch (.pt2) or StableHLO (.mlir), or what compile wrote "
    "(.weft). The accelerator takes quantised models; give calibrate, a .npz or .npy file of examples, for "
    "a float one. Paths are of this machine."
)

MOST_NUMBERS = 1000
"""Elements of a result that are handed over; of larger ones the shape."""

ENTRY = "from weft.cli import main; main()"

Words = list[str]
Document = dict[str, Any]


def words_of(options: Mapping[str, Any]) -> Words:
    """Options as the command line has them: those that are set, lists once for each."""
    words: Words = []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                words.append(f"--{name}={each}")
    return words


async def weft(context: Context, command: str, options: Mapping[str, Any], *given: str) -> Document:
    """What a command prints as JSON; its lines of progress go to the client. ToolError with the command's own line."""
    call = [sys.executable, "-c", ENTRY, command, "--json", *words_of(options), "--", *given]
    said: list[str] = []
    printed: list[str] = []
    async with await anyio.open_process(call, stdin=DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors, output = TextReceiveStream(process.stderr), TextReceiveStream(process.stdout)

        async def follow() -> None:
            async for text in errors:
                said.extend(text.splitlines())
                await context.report_progress(len(said), message=said[-1] if said else "")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            async for text in output:
                printed.append(text)
        await process.wait()
    document: Document | None = json.loads("".join(printed)) if "".join(printed).strip() else None
    if process.returncode and document is None:
        lines = [line for line in said if line.startswith("error: ")]
        raise ToolError(lines[-1].removeprefix("error: ") if lines else f"weft {command} ended without a word")
    return document or {}


async def compile_model(
    context: Context, model: str, target: str = "accel", config: str | None = None, output: str | None = None,
    calibrate: str | None = None, shape: list[str] | None = None, signature: str | None = None,
) -> Document:  # fmt: skip
    """Compile a model into an artifact, and say where each layer runs, and why not on the core where it does not.

    target: accel, cpu, opencl or cuda. config: a core, such as pynq, or a JSON file with its fields. output: the
    artifact's path, MODEL.weft by default. calibrate: examples for a float model. shape: NAME=1x3x224x224 for each
    input that leaves sizes open. signature: the one that is meant, of a LiteRT file with several.
    """
    options = {"target": target, "config": config, "output": output, "calibrate": calibrate, "shape": shape,
               "signature": signature}  # fmt: skip
    return await weft(context, "compile", options, model)


async def run(
    context: Context, model: str, target: str | None = None, device: str | None = None, config: str | None = None,
    inputs: str | None = None, output: str | None = None, calibrate: str | None = None, seed: int = 0,
    signature: str | None = None,
) -> Document:  # fmt: skip
    """Run a model or an artifact: its results, and what they cost, on the core in exact cycles by layer.

    device: fsim (the functional simulator) or rtl. inputs: a .npz with an array for each input, or a .npy; random
    without. output: a .npz for all results; those with many numbers come as their shape.
    """
    options = {"target": target, "device": device, "config": config, "input": inputs, "output": output,
               "calibrate": calibrate, "seed": seed, "signature": signature}  # fmt: skip
    document = await weft(context, "run", options, model)
    document["results"] = {name: _short(value) for name, value in document["results"].items()}
    return document


async def profile(
    context: Context, model: str, target: str | None = None, config: str | None = None, output: str | None = None,
    calibrate: str | None = None, latency: int | None = None, bandwidth: int | None = None,
    signature: str | None = None,
) -> Document:  # fmt: skip
    """Say why a model is slow. On the core: cycles by layer and cause, bounds, and what other hardware would take. On a
    processor (cpu): time, traffic and bound of each kernel.

    latency, bandwidth: of the core's DRAM, in cycles and bytes a cycle. output: a folder for tables, pictures, trace.
    """
    options = {"target": target, "config": config, "output": output, "calibrate": calibrate, "latency": latency,
               "bandwidth": bandwidth, "signature": signature}  # fmt: skip
    return await weft(context, "profile", options, model)


async def explore(
    context: Context, space: str, networks: list[str], trials: int | None = None, minutes: float | None = None,
    database: str | None = None, workers: int | None = None,
) -> Document:  # fmt: skip
    """Measure cores, memories and compiler settings together, and give those that no other one beats.

    space: a TOML file with axes and constraints. trials, minutes: when to stop. database: a file of results; the same
    call goes on from there.
    """
    options = {"networks": networks, "trials": trials, "minutes": minutes, "database": database, "workers": workers}
    document = await weft(context, "explore", options, space)
    points = document.pop("points")
    counts = Counter(point["status"] for point in points)
    return {**document, "counts": counts, "front": [{"point": place, **points[place]} for place in document["front"]]}


async def compare(
    context: Context, first: str, second: str, model: str, config: str | None = None, inputs: str | None = None,
    calibrate: str | None = None, signature: str | None = None,
) -> Document:  # fmt: skip
    """Run a model in two places, such as cpu and fsim, and give the error of each tensor that both make.

    first, second: reference, accel, cpu, opencl, cuda, fsim or rtl.
    """
    options = {"config": config, "input": inputs, "calibrate": calibrate, "signature": signature}
    return await weft(context, "compare", options, first, second, model)


def _short(value: Any) -> Any:
    """A result, or the shape of one with many numbers."""
    shape, part = [], value
    while isinstance(part, list):
        shape.append(len(part))
        part = part[0] if part else None
    count = 1
    for size in shape:
        count *= size
    return value if count <= MOST_NUMBERS else {"shape": shape}


def server(version: str) -> MCPServer:
    """The server with all tools."""
    made: MCPServer = MCPServer("weft", version=version, instructions=INSTRUCTIONS)
    made.add_tool(compile_model, name="compile")
    for tool in (run, profile, explore, compare):
        made.add_tool(tool)
    return made
