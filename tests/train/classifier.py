"""A classifier whose losses and gradients are known by hand, and what runs its steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import weft
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, evaluate
from weft.compiler.operators import nn


class InNumpy:
    """Runs a module in NumPy as a loaded one would."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Mapping[str, Array]:
        found = evaluate(self.module, inputs)
        for name, array in (outputs or {}).items():
            array[...] = found[name]
        return found


def module_of(*results: Expr, params: tuple[Var, ...], names: tuple[str, ...]) -> Module:
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


def classifier(dtype: str = "float64") -> tuple[Module, dict[str, Array]]:
    """Scores of 6 rows of 3 numbers in 4 classes, with its weights as inputs, and values for them."""
    generator = np.random.default_rng(0)
    x = Var("x", TensorType((6, 3), dtype))
    w, b = (Constant(generator.normal(size=shape).astype(dtype), name) for shape, name in (((3, 4), "w"), ((4,), "b")))
    return weft.lift_constants(module_of(nn.add(nn.matmul(x, w), b), params=(x,), names=("scores",)))


def batch(dtype: str = "float64", seed: int = 1) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(size=(6, 3)).astype(dtype), "labels": generator.integers(0, 4, 6)}


def loss_and_gradients(state: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[float, dict[str, Array]]:
    """Of the classifier, by hand."""
    scores = given["x"] @ state["w"] + state["b"]
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    rows = np.arange(len(scores))
    loss = -np.log(chances[rows, given["labels"]]).mean()
    chances[rows, given["labels"]] -= 1
    chances /= len(scores)
    return float(loss), {"w": given["x"].T @ chances, "b": chances.sum(0)}
