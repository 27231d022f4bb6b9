"""The commands compile as ``weft.compile`` does: the timing model judges where the compiler asks for cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler import compile as compiling
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.target import Job
from weft.sim import timing

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize("command", ["compile", "run", "profile"])
def test_cycles_can_be_asked_for(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(*_: object, job: Job, **__: object) -> None:
        asked.append(job.measure)
        raise CompileError("enough is seen")

    monkeypatch.setattr(compiling, "compile_model", noted)
    assert run(app, [command, str(DIGITS), "--no-cache"], err) == 1
    (measure,) = asked
    monkeypatch.setattr(timing, "program_cycles", lambda *given: given)
    assert measure("core", "rate", "program", 3) == ("core", "rate", "program", 3)
