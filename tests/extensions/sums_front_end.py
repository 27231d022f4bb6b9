"""A front end of a user's own: files of lines such as ``a + b``, each a sum of inputs of eight numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.compiler.frontends import ModelError
from weft.compiler.graph import Attrs, Expr, Function, Module, Span, TensorType, Tuple, Var, call
from weft.compiler.graph.symbolic import SymbolicInput, SymbolicTypes, infer_symbolic

Shapes = Mapping[str, Sequence[int]]


class SumsSource:
    """One file. Every line is an output, ``line1``, ``line2``, ..."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        self._lines = [[word.strip() for word in line.split("+")] for line in lines]
        bad = [word for words in self._lines for word in words if not word.isidentifier()]
        if bad or not lines:
            raise ModelError(f"{path.name}: {bad[0]!r} is no name" if bad else f"{path.name} has no lines")
        self.output_names = tuple(f"line{number}" for number in range(1, len(lines) + 1))

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        names = dict.fromkeys(word for words in self._lines for word in words)
        return tuple(SymbolicInput(name, (8,), "float32") for name in names)

    def module(self, shapes: Shapes, *, require_quantised: bool) -> Module:
        params = {each.name: Var(each.name, TensorType((8,), each.dtype)) for each in self.inputs(shapes)}
        terms = [[params[word] for word in words] for words in self._lines]
        results = tuple(self._sum(each, number) for number, each in enumerate(terms, 1))
        return Module(Function(tuple(params.values()), Tuple(results), Attrs({"outputs": self.output_names})))

    def _sum(self, terms: Sequence[Expr], number: int) -> Expr:
        total = terms[0]
        for term in terms[1:]:
            total = call("nn.add", total, term, span=Span((f"line{number}",)))
        return total

    def types(self, shapes: Shapes) -> SymbolicTypes:
        return infer_symbolic(self.inputs(shapes), lambda sizes: {})


def open_model(model: Any) -> SumsSource | None:
    """What the entry point names: None for what is no file of sums."""
    return SumsSource(Path(model)) if isinstance(model, (str, Path)) and Path(model).suffix == ".sums" else None
