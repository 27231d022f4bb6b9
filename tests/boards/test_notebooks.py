"""The notebooks for boards: they run from the first cell to the last, and git has no results of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft import boards

NOTEBOOKS = sorted((Path(boards.__file__).parent / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    return list(notebook["cells"])


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_holds_no_results(path: Path) -> None:
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert code
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_on_a_virtual_board(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the parameters of a small core in place of its own."""
    names: dict[str, Any] = {"__name__": "__main__"}
    replaced = 0
    for cell in cells_of(path):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", []):
            exec(compile(source, f"{path.name}: {cell['id']}", "exec"), names)
            assert names["BOARD"] is None
            names |= {"CORE": "tiny", "IMAGES": 2}
            replaced += 1
            continue
        exec(compile(source, f"{path.name}: {cell['id']}", "exec"), names)
    assert replaced == 1
    assert names["equal"] is True
    assert names["board"].cycles == names["simulator"].cycles
    assert "results equal: True" in capsys.readouterr().out
