"""``weft gpu``: the devices that there are, and kernels of PTX files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from weft.cli import app
from weft.errors import WeftError
from weft.runtime.gpu.cuda_driver import DRIVER_VARIABLE

GOLDEN = Path(__file__).parents[1] / "sim" / "ptx" / "golden" / "kernels.ptx"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["gpu", "check", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_devices_are_listed_and_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, "libnone.so")
    text = CliRunner().invoke(app, ["gpu", "devices"]).output
    assert "cuda: NVIDIA's driver cannot be used: libnone.so" in text
    assert [line.split(":")[1] for line in text.splitlines() if line.startswith("opencl 0: ")]
    facts = json.loads(CliRunner().invoke(app, ["gpu", "devices", "--json"]).output)
    assert facts["cuda"] == []
    assert len(facts["opencl"]) >= 1


def test_kernels_are_listed() -> None:
    text = run(str(GOLDEN))
    assert "product(u64 product_param_0" in text
    facts = {each["name"]: each for each in json.loads(run(str(GOLDEN), "--json"))["kernels"]}
    assert facts["product"]["shared_bytes"] == 2048
    assert len(facts["transpose"]["parameters"]) == 4


def test_a_kernel_is_run_and_counted(tmp_path: Path) -> None:
    x = np.arange(64 * 32, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out"
    text = run(str(GOLDEN), "--kernel", "transpose", "--grid", "1,2", "--block", "32,8", "--argument",
               str(tmp_path / "x.npy"), "--argument", "float32:2048", "--argument", "64", "--argument", "32",
               "--write", str(out), "--json")  # fmt: skip
    facts = json.loads(text)
    assert facts["bank_conflicts"] == 0
    assert facts["coalescing"] == 1.0
    assert facts["barriers"] == 2
    assert facts["bytes_read"] == facts["bytes_written"] == x.nbytes
    np.testing.assert_array_equal(np.load(out / "1.npy").reshape(32, 64), x.reshape(64, 32).T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "1"], "there are 6 kernels; hint: choose one with --kernel"),
        (["--kernel", "softmax", "--grid", "0"], "'0' are no sizes"),
        (["--kernel", "softmax", "--grid", "1", "--argument", "what"], "'what' is no argument"),
        (["--kernel", "softmax", "--grid", "1", "--argument", "no.npy"], "no.npy: it cannot be read"),
        (["--kernel", "softmax", "--grid", "1"], "0 arguments, but it takes 2"),
        (["--kernel", "softmax", "--grid", "1", "--argument", "float32:9", "--argument", "float32:256"],
         "outside of every allocation"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(WeftError) as error:
        run(str(GOLDEN), *arguments)
    assert message in str(error.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(WeftError, match="it cannot be read"):
        run("missing.ptx")
