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


@pytest.fixture(scope="session")
def digits_on_cpu() -> CompiledModel:
    model = weft.compile(DIGITS, target="cpu")
    assert isinstance(model, CompiledModel)
    return model
