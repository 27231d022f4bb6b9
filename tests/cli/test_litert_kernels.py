"""LiteRT files as one of LiteRT's sets of kernels computes them, by the command: --kernels."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner
from weft.cli import app
from weft.cli.output import Kernels
from weft.compiler.frontends.litert.kernels import KERNELS
from weft.hw.config import TINY

from benchmarks.zoo.litert_networks import Network

from .litert_commands import results, said

REFERENCE = ("--kernels", "reference")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    net = Network("layer", "int8")
    (folder / "layer.tflite").write_bytes(net.finish(net.conv(net.input(1, 24, 24, 16), 32, 1)).model)
    os.utime(folder / "layer.tflite", (1e9, 1e9))
    (folder / "core.json").write_text(json.dumps(asdict(replace(TINY, name="core", rounding="two_roundings"))))
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)


def test_models_for_each_set_of_kernels_are_kept_apart() -> None:
    for words, again in (((), False), (REFERENCE, False), ((), True), (REFERENCE, True)):
        found, made = results("layer.tflite", "--target", "cpu", *words)
        assert made is not again
        np.testing.assert_array_equal(found, results("layer.tflite", "--target", "cpu", "--no-cache", *words)[0])
    default = results("layer.tflite", "--target", "cpu")[0]
    assert np.any(results("layer.tflite", "--target", "cpu", *REFERENCE)[0] != default)
    np.testing.assert_array_equal(results("layer.tflite", "--target", "cpu", "--kernels", "default")[0], default)


def test_all_sets_of_kernels_can_be_named() -> None:
    assert get_args(Kernels) == KERNELS


def test_a_core_that_rounds_so_is_equal_and_proved() -> None:
    found = said("compare", "cpu", "accel", "layer.tflite", "--config", "core.json", *REFERENCE)
    assert (found["rounded_apart"], found["first_difference"]) == (0, None)
    said("compile", "layer.tflite", "--config", "core.json", "--output", "core.weft", "--certify", *REFERENCE)
    assert said("verify", "core.weft", "--model", "layer.tflite", *REFERENCE)["proved"]
    wrong = CliRunner().invoke(app, ["verify", "core.weft", "--model", "layer.tflite", "--json"])
    assert not json.loads(wrong.stdout)["proved"]
