"""Passes that other packages add: found, inserted, refused. And the one that the manual shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from weft.compiler.graph import parse
from weft.compiler.passes import Pass, PassError, cse, insert_passes, installed_passes, load_pass, simplify
from weft.compiler.targets.accel.passes import fuse

MANUAL = Path(__file__).parents[3] / "docs" / "passes.md"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A function that installs a package with one module and one entry point."""

    def package(name: str, value: str, module: str = "other_passes", code: str = "") -> None:
        information = tmp_path / "other_passes-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other-passes\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[weft.passes]\n{name} = {value}\n")
        (tmp_path / f"{module}.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return package


def test_the_pass_of_the_manual_runs_from_outside(install) -> None:  # type: ignore[no-untyped-def]
    code = re.search(r"```python\n(# my_passes.py.*?)```", MANUAL.read_text(), re.DOTALL)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip() and not line.startswith(("#", "from"))]) <= 15
    install("conv-relu", "my_passes:conv_relu", "my_passes", code[1])
    assert "conv-relu" in installed_passes()
    found = load_pass("conv-relu")
    single = "%a = nn.conv2d(%x, float32[1, 1, 1, 1](2.0))\n %b = nn.clip(%a, low=0.0)\n return "
    model = "fn @main(%x: float32[1, 1, 4, 4]) {{ {} {} }}"
    assert len(found(parse(model.format(single, "%b"))).functions) == 1
    assert len(found(parse(model.format(single, "nn.add(%a, %b)"))).functions) == 0


def test_a_pass_that_is_not_installed() -> None:
    text = r"there is no pass 'nothing'; hint: passes of the entry point group 'weft.passes'"
    with pytest.raises(PassError, match=text):
        load_pass("nothing")


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ("other_passes:item", "raise OSError('disk on fire')", r"cannot be loaded: OSError: disk on fire"),
        ("other_passes:item", "", r"cannot be loaded: AttributeError: .*'item'"),
        ("other_passes:item", "item = 7", r"'mine' \(other_passes:item\) is an int, not a Pass; hint: decorate it"),
    ],
)
def test_a_pass_that_cannot_be_used(install, value: str, code: str, message: str) -> None:  # type: ignore[no-untyped-def]
    install("mine", value, code=code)
    with pytest.raises(PassError, match=message):
        load_pass("mine")


def test_a_pass_runs_right_behind_what_it_needs() -> None:
    steps = [simplify, cse, fuse]
    first, behind = Pass("first", lambda m: m), Pass("behind", lambda m: m, needs=("cse", "simplify"))
    names = [item.name for item in insert_passes(steps, [behind, first])]
    assert names == ["first", "simplify", "cse", "behind", "fuse"]
    with pytest.raises(PassError, match=r"pass 'late' needs 'legalise', which does not run"):
        insert_passes(steps, [Pass("late", lambda m: m, needs=("legalise",))])
