"""Predicted times: what counts make of them, and the command that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import weft
from typer.testing import CliRunner
from weft.cli import app
from weft.compiler.graph import Attrs, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.model import CompiledModel, GpuCode, GridCall, HostStep
from weft.compiler.targets.gpu.devices import NVIDIA
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.registry import find_target
from weft.runtime.errors import DeviceError
from weft.runtime.gpu.predicted import LAUNCH_SECONDS, PEAKS, counted_launches, predicted_seconds
from weft.sim.ptx import Counts

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
A100 = PEAKS["sm_80"]


def grid(groups: int) -> GridCall:
    return GridCall("k_0", (groups, 1, 1), 128, (), uses_workspace=False)


def counts(**instructions: int) -> Counts:
    made = Counts()
    made.instructions.update(instructions)
    return made


def test_every_architecture_has_peaks() -> None:
    assert set(PEAKS) == set(NVIDIA)


def test_the_slowest_part_counts() -> None:
    assert predicted_seconds(counts(add=4), grid(1), A100) == (LAUNCH_SECONDS, "launch")
    seconds, bound = predicted_seconds(counts(add=4_000_000 * 108), grid(108), A100)
    assert bound == "instructions"
    assert seconds == pytest.approx(LAUNCH_SECONDS + 1_000_000 / A100.hertz)
    seconds, bound = predicted_seconds(counts(mma=10_000_000), grid(108), A100)
    assert bound == "tensor cores"
    assert seconds == pytest.approx(LAUNCH_SECONDS + 10_000_000 * A100.mma_cycles / 108 / A100.hertz)


def test_groups_go_in_turns() -> None:
    """One group more than there are multiprocessors takes twice as long for each of them."""
    one, _ = predicted_seconds(counts(add=108_000_000), grid(108), A100)
    two, _ = predicted_seconds(counts(add=109_000_000), grid(109), A100)
    assert (two - LAUNCH_SECONDS) / (one - LAUNCH_SECONDS) == pytest.approx(2)


def program(*results: Expr, params: tuple[Var, ...], target: str = "cuda") -> tuple[HostStep, GpuCode]:
    names = tuple(f"y{number}" for number in range(len(results)))
    module = prepare(Module(Function(params, Tuple(results), Attrs({"name": "main", "outputs": names}))))
    model = weft.compile(module, target=target, strict=True)
    assert isinstance(model, CompiledModel)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    code = find_target(target).host_code(step.program, trusted=True)
    assert isinstance(code, GpuCode)
    return step, code


def test_a_function_that_runs_twice_is_counted_for_each() -> None:
    a, b = (Var(name, TensorType((64, 64), "float32")) for name in "ab")
    once = counted_launches(*_of(program(call("nn.softmax", a), params=(a,))))
    twice = counted_launches(*_of(program(call("nn.softmax", a), call("nn.softmax", b), params=(a, b))))
    assert len(twice) == 2 * len(once)
    for launch in twice:
        assert launch.counts.warp_instructions == once[0].counts.warp_instructions


def _of(made: tuple[HostStep, GpuCode]) -> tuple[object, GpuCode]:
    return made[0].program, made[1]


def test_only_ptx_is_counted() -> None:
    a = Var("a", TensorType((8, 8), "float32"))
    step, code = program(call("nn.abs", a), params=(a,), target="opencl")
    with pytest.raises(DeviceError, match="only PTX is counted; hint: compile it with target 'cuda'"):
        counted_launches(step.program, code)


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["profile", str(DIGITS), "--target", "cuda", "--gpu", "sm_75", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert "for T4" in found["note"]
    assert sum(each["share"] for each in found["launches"]) == pytest.approx(1)
    assert not any(each["measured"] for each in found["launches"])
    assert {each["kind"] for each in found["launches"]} >= {"tensor cores", "channels last"}
    assert np.all([each["seconds"] >= LAUNCH_SECONDS for each in found["launches"]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "cuda", "--device", "emulated"], "leave --device out for a prediction"),
        (["--target", "opencl"], "there is no profile for target 'opencl'; hint: --target accel, cpu or cuda"),
    ],
)
def test_what_the_command_refuses(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["profile", str(DIGITS), *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)
