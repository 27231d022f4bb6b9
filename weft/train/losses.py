"""Losses: a module with scores becomes one that also computes how wrong they are."""

from __future__ import annotations

import numpy as np

from ..compiler.graph import (
    Attrs,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    require_module,
)
from ..compiler.graph.dtypes import FLOATS
from ..compiler.operators import contract, nn


def cross_entropy(module: Module, *, scores: str | None = None, labels: str = "labels", loss: str = "loss") -> Module:
    """The module with an input ``labels`` (int64, one class a row) and an output ``loss``, the mean over all rows of
    log(sum(exp(scores))) - scores[label]: of PyTorch's ``cross_entropy``, but that no label means "leave this row out":
    one that is no class, below 0 too, is refused when the step runs.

    ``scores``: the output (N, classes) of floats that is meant, without a softmax; the only one by default.
    Raises `GraphError` for an output that there is not or that is no such matrix, and for names that are taken.
    """
    main = require_module(module).main
    outputs = dict(zip(main.output_names, main.results, strict=True))
    name = scores if scores is not None else next(iter(outputs))
    if scores is None and len(outputs) > 1:
        raise GraphError("the model has several outputs", hint=f"say which are the scores: {', '.join(outputs)}")
    if name not in outputs:
        raise GraphError(f"there is no output {name!r}", hint=f"the outputs are: {', '.join(outputs)}")
    x = outputs[name]
    if len(x.shape) != 2 or x.dtype not in FLOATS or 0 in x.shape:
        raise GraphError(f"scores are a matrix of floats, rows times classes, but {name!r} is {x.type}", at=x.span)
    if loss in outputs or labels in {param.name for param in main.params}:
        raise GraphError(f"the model has an output {loss!r} or an input {labels!r} already", hint="choose other names")
    rows = x.shape[0]
    given = Var(labels, TensorType((rows,), "int64"))
    shifted = nn.subtract(x, nn.reduce_max(x, axes=(1,), keepdims=True))
    column = contract.reshape(given, shape=(rows, 1), span=Span((labels,)))
    none, count = (Constant(np.array(value, np.int64)) for value in (0, x.shape[1]))
    column = nn.where(nn.less(column, none), count, column)  # a negative index would count from the last class
    chosen = contract.gather_elements(shifted, column, axis=1, span=Span((labels,)))
    logarithm = nn.log(nn.reduce_sum(nn.exp(shifted), axes=(1,), keepdims=True))
    mean: Expr = nn.reduce_mean(nn.subtract(logarithm, chosen), axes=(0, 1))
    attrs = Attrs(main.attrs).replace(outputs=(*main.output_names, loss))
    return Module(Function((*main.params, given), Tuple((*main.results, mean)), attrs, main.span), module.stage)
