"""Points on the RTL: equal to the graph and the model, and an error where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.explore import validate as validation
from weft.explore.measure import open_network
from weft.explore.outcome import Outcome, design_of
from weft.explore.space import Space
from weft.explore.validate import Check, validate

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def point_of(tables: Mapping[str, Any]) -> Outcome:
    space = Space.model_validate({"base": "tiny", **tables})
    (assignment,) = space.assignments()
    return design_of(space, assignment)


def test_digits_on_the_rtl_take_the_predicted_cycles() -> None:
    slow = {"bytes_per_cycle": 4, "latency": 150}
    points = [point_of({}), point_of({"memory": slow}), point_of({"compiler": {"vthreads": 1, "chains": False}})]
    lines: list[str] = []
    checks = validate(points, open_network(DIGITS), lines.append)
    assert [check.good for check in checks] == [True] * 3
    assert len({check.cycles for check in checks}) == 3
    assert all("on the RTL, as predicted; outputs equal" in str(check) for check in checks)
    assert lines[2].startswith("point 3 of 3: 1x4x4-")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (Check("c", "n", 1000, 999, True), "takes 1,000 cycles on the RTL, 999 predicted; outputs equal"),
        (Check("c", "n", 1000, 1000, False), "as predicted; outputs differ from the graph's"),
    ],
)
def test_what_differs_is_said(check: Check, text: str) -> None:
    assert not check.good
    assert text in str(check)


def test_a_point_that_differs_is_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text('base = "tiny"')
    digits, files = str(DIGITS), [str(tmp_path / name) for name in ("s.toml", "e.sqlite")]
    words = ["explore", files[0], "--networks", digits, "--validate", digits, "--workers", "0", "--database", files[1]]
    assert run(app, words, err) == 0
    assert "cycles on the RTL, as predicted; outputs equal" in capsys.readouterr().out
    true_runs = validation.predict_runs

    def wrong(*arguments: Any) -> Any:
        runs = true_runs(*arguments)
        for each in runs:
            object.__setattr__(each.result, "cycles", (each.result.cycles or 0) + 1)
        return runs

    monkeypatch.setattr(validation, "predict_runs", wrong)
    assert run(app, words, err) == 1
    captured = capsys.readouterr()
    assert "1 of 1 points of the front differ on the RTL" in captured.err
