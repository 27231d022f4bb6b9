"""The page of differences: what it says, and that a browser shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.compiler.graph import parse
from weft.compiler.passes import PassError, PassRecord, cse, graph_pass, simplify
from weft.compiler.passes.diff import Change, diff_page
from weft.compiler.passes.pipeline import PassOptions, run_passes

from tests.browser import shown_by_browser

MODULE = parse("""fn @main(%x: float32[2, 3]) {
  %first = nn.clip(%x, low=0.0)
  %second = nn.clip(%first, high=6.0)
  return nn.add(%second, nn.multiply(%x, float32[3](1.0, 2.0, 3.0)))
}""")


def page_of(folder: Path) -> Path:
    path = folder / "diff.html"
    run_passes(MODULE, [simplify, cse], PassOptions(check=True, diff=path), "a <model>")
    return path


def test_the_page_shows_each_pass_that_changed_something(tmp_path: Path) -> None:
    page = page_of(tmp_path).read_text()
    assert "<h1>a &lt;model&gt;</h1>" in page
    assert page.count('<details class="pass"') == 1  # cse changed nothing: it is in the table only
    assert "<b>simplify</b> <span>1 changed, 1 removed</span>" in page
    assert '<tr class="quiet"><td>cse</td>' in page


def test_lines_that_differ_by_the_numbers_of_values_are_the_same() -> None:
    lines = [f"%{index} = nn.clip(%{index - 1}, low={index}.0)" for index in range(1, 30)]
    before, after = "\n".join(lines), "\n".join(line for line in lines if "low=9.0" not in line).replace("%20", "%19")
    record = PassRecord("drop", 0.0, 29, 28, True, None)
    page = diff_page("drop", [record], [Change(record, before, after)])
    assert "<span>1 removed</span>" in page
    assert page.count("unchanged lines</summary>") == 2


def test_the_page_is_written_when_a_pass_fails(tmp_path: Path) -> None:
    @graph_pass("break")
    def damage(module):  # type: ignore[no-untyped-def]
        return module.with_main(module.main.params[0])

    path = tmp_path / "diff.html"
    with pytest.raises(PassError, match="pass 'break' changed the results"):
        run_passes(MODULE, [simplify, damage], PassOptions(check=True, diff=path))
    assert "<b>simplify</b>" in path.read_text()


def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    # The script folds every section and then reports what is left to see: layout, style and script all have to work.
    probe = """
      const box = document.querySelector("details.pass"), row = document.querySelector(".row.changed");
      const cells = row.children, before = box.offsetHeight, tint = getComputedStyle(cells[0]).backgroundColor;
      const beside = cells[0].offsetTop === cells[1].offsetTop && cells[1].offsetLeft > cells[0].offsetLeft;
      all_sections(false);
      return [beside, tint !== getComputedStyle(document.body).backgroundColor,
              box.offsetHeight < before, row.textContent.includes("nn.clip")];
    """
    assert shown_by_browser(page_of(tmp_path).read_text(), probe) == [True] * 4
