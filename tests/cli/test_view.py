"""``weft view``: of artifacts, of models, of two."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.sim import wasm

from tests.browser import shown_by_browser
from tests.cli.test_cli import MODEL, weft
from tests.view.test_page import SETTLED

DETAILS = re.compile(r'id="details">(.*?)</script>', re.DOTALL)


DATA = re.compile(r'id="data">(.*?)</script>', re.DOTALL)


def opened(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def loops_in(page: Path) -> list[str]:
    (details,) = DETAILS.findall(page.read_text())
    return [opened(each)["loops"] for each in json.loads(details)[0]["layers"]]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    assert weft("compile", MODEL, "-o", "digits.weft", folder=folder).returncode == 0
    return folder / "digits.weft"


def test_an_artifact_has_a_page_beside_it(artifact: Path) -> None:
    result = weft("view", artifact.name, folder=artifact.parent)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("wrote digits.html (")
    assert artifact.with_suffix(".html").read_text().startswith("<!doctype html>")


def test_a_model_has_its_loop_nests_and_two_stand_in_one_page(artifact: Path, tmp_path: Path) -> None:
    result = weft("view", MODEL, artifact, "--config", "tiny", "-o", "both.html", folder=tmp_path)
    assert result.returncode == 1
    assert f"{artifact} is compiled already" in result.stderr
    result = weft("view", MODEL, artifact, "-o", "both.html", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    loops = loops_in(tmp_path / "both.html")
    assert sum("gemm" in text for text in loops) >= 3


def test_a_cycle_leads_to_a_waveform_of_the_same_run(tmp_path: Path) -> None:
    result = weft("view", MODEL, "--config", "tiny", "--vthreads", "1", "-o", "page.html", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    (side,) = json.loads(DATA.findall((tmp_path / "page.html").read_text())[0])["sides"]
    words = shlex.split(side["waves"])
    assert words[:3] == ["weft", "run", str(MODEL)]
    assert words[3:9] == ["--config", "tiny", "--vthreads", "1", "--device", "rtl"]
    probe = """
      const before = find("wave").hidden;
      await choose(2, { cycle: 1234 });
      const text = find("wave").querySelector("code").textContent;
      const row = document.querySelector(".code .row"); if (row) row.click();
      return { before, text, picked: state.cycle, then: find("wave").querySelector("code").textContent };
    """
    page = (tmp_path / "page.html").read_text()
    found = shown_by_browser(page, SETTLED + probe)
    assert found["before"]
    assert found["text"] == f"{side['waves']} --from 1134 --to 1434"
    assert f" --from {max(0, found['picked'] - 100)} --to " in found["then"]


def test_kernels_of_a_processor_are_measured_where_they_can_run(tmp_path: Path) -> None:
    for words, said in (((), "(this machine)"), (("--processor", "neoverse-v1"), "cannot run code for neoverse-v1")):
        result = weft("view", MODEL, "--target", "cpu", *words, "-o", "page.html", folder=tmp_path)
        assert result.returncode == 0, result.stderr
        page = (tmp_path / "page.html").read_text()
        (side,) = json.loads(DATA.findall(page)[0])["sides"]
        kernels = json.loads(DETAILS.findall(page)[0])[0]["kernels"]
        assert all(opened(each)["lines"] for each in kernels.values())
        assert said in side["machine"]["processor"] + side["machine"]["why"]
        assert (side["machine"]["roof"] is not None) == (not words)
        assert all((layer["work"].get("seconds", 0) > 0) == (not words) for layer in side["layers"])


def test_what_is_wrong_is_said_first(tmp_path: Path) -> None:
    for words, said in (
        (("view", "none.weft"), "cannot read none.weft"),
        (("view", MODEL, "-o", "no/where.html"), "no/where.html"),
        (("view", MODEL, "--target", "abacus"), "abacus"),
    ):
        result = weft(*words, folder=tmp_path)
        assert result.returncode != 0
        assert said in result.stderr
        assert "Traceback" not in result.stderr


def test_a_missing_compiler_of_a_live_page_is_told_before_the_work(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(wasm.metadata, "version", version)
    assert run(app, ["view", str(artifact), "--live"], err) == 1
    said = re.sub(r"\s+", " ", capsys.readouterr().err).strip()
    assert said.startswith("error: the simulators cannot be compiled to WebAssembly")
    assert said.endswith("hint: pip install 'weft[browser]'")
