"""Compilations that the tests look at: the digits example on the core and on a processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import weft
from weft.compiler.model import CompiledModel

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def compiled(config: str) -> CompiledModel:
    model = weft.compile(DIGITS, config)
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture(scope="session")
def digits() -> CompiledModel:
    return compiled("tiny")


@pytest.fixture(scope="session")
def digits_on_pynq() -> CompiledModel:
    return compiled("pynq")


def on_processor(name: str) -> CompiledModel:
    model = weft.compile(DIGITS, target="cpu", processor=name)
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture(scope="session")
def digits_on_v3() -> CompiledModel:
    return on_processor("x86-64-v3")


@pytest.fixture(scope="session")
def digits_on_arm() -> CompiledModel:
    return on_processor("aarch64")
