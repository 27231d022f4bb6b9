"""``weft mcp``, asked by the protocol's own client: in process, and over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import weft
from mcp import Client, StdioServerParameters, stdio_client
from weft.cli.mcp_tools import server, words_of

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")


def asked(tool: str, progress: Callable[..., Any] | None = None, **arguments: object) -> Any:
    """What a tool answers."""

    async def ask() -> Any:
        async with Client(server("1")) as client:
            return await client.call_tool(tool, arguments, progress_callback=progress)

    return anyio.run(ask)


def test_the_tools_say_what_they_take() -> None:
    async def ask() -> Any:
        async with Client(server("1")) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(ask)}
    assert set(tools) == {"compile", "run", "profile", "explore", "compare"}
    assert all(tool.description for tool in tools.values())
    assert tools["compile"].input_schema["required"] == ["model"]
    assert tools["explore"].input_schema["properties"]["networks"]["type"] == "array"


def test_compile_run_and_profile_answer_as_the_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    seen = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    made = asked("compile", progress, model=MODEL, config="tiny", output="digits.weft")
    assert not made.is_error
    assert made.structured_content["artifact"] == "digits.weft"
    assert {layer["on"] for layer in made.structured_content["layers"]} >= {"core"}
    assert "compiling" in seen
    compiled = weft.compile(MODEL, "tiny")
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
    np.save("image.npy", image)
    module = weft.load(compiled)
    expected = module.run(image)
    found = asked("run", model="digits.weft", inputs="image.npy").structured_content
    assert found["cycles"] == module.cycles
    for name, value in expected.items():
        np.testing.assert_array_equal(np.array(found["results"][name], value.dtype), value)
    shown = asked("profile", model="digits.weft", output="profile").structured_content
    assert shown["causes"]
    assert (tmp_path / "profile" / "layers.json").exists()


def test_compare_and_explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    same = asked("compare", first="cpu", second="fsim", model=MODEL, config="tiny").structured_content
    assert same["tensors"]
    assert same["first_difference"] is None
    Path("space.toml").write_text('base = "tiny"\n[core]\nblock_in = [4, 8]\nblock_out = [4, 8]\n')
    found = asked("explore", space="space.toml", networks=[MODEL], trials=2, workers=0).structured_content
    assert sum(found["counts"].values()) >= 2
    assert all(point["status"] == "measured" for point in found["front"])
    assert "points" not in found


def test_a_mistake_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    for arguments, said in (
        ({"model": "none.onnx"}, "'none.onnx' cannot be read: No such file or directory"),
        ({"model": MODEL, "target": "abacus"}, "there is no target 'abacus'; hint: known: accel, cpu"),
        ({"model": "--version"}, "'--version' cannot be read"),
        ({"model": MODEL, "config": "nonesuch"}, "hint: known: pynq, pynq-float32, pynq-reference, pynq-tables"),
    ):
        found = asked("compile", **arguments)
        assert found.is_error
        (content,) = found.content
        assert said in content.text
        assert "\n" not in content.text


def test_options_are_words() -> None:
    given = {"target": "cpu", "config": None, "shape": ["a=1", "b=2"], "seed": 0, "output": "-x"}
    assert words_of(given) == ["--target=cpu", "--shape=a=1", "--shape=b=2", "--seed=0", "--output=-x"]


def test_it_speaks_over_standard_input_and_output() -> None:
    async def ask() -> Any:
        arguments = ["-c", "from weft.cli import main; main()", "mcp"]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            refused = await client.call_tool("compile", {"model": "none.onnx"})
            return refused, await client.list_tools()

    refused, tools = anyio.run(ask)  # what the first call reads is not the client's: it goes on
    assert refused.is_error
    assert "none.onnx" in refused.content[0].text
    assert len(tools.tools) == 5
