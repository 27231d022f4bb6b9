"""Layers whose sums are rounded as they ask for, compiled, and values for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import weft
from weft.compiler.graph import Call, Expr, Module
from weft.hw.config import CoreConfig

from tests.compiler.targets.accel.quantised_layers import module_of, variable


def made(body: Callable[[Expr], Call], config: CoreConfig) -> tuple[Module, weft.CompiledModel]:
    x = variable(2, 8, 9, 7)
    module = module_of(x, body(x))
    model = weft.compile(module, config)
    assert isinstance(model, weft.CompiledModel)
    return module, model


def values() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).normal(0, 20, (2, 8, 9, 7)).astype(np.float32)}
