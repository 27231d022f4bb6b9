"""Products of matrices."""

from __future__ import annotations

import math

from ...graph import Constant, Expr
from ..forms import matrix_product
from .site import Held, Result, Site, rule
from .window import bias_of


@rule("FULLY_CONNECTED")
def _fully_connected(site: Site) -> Result:
    """x, flattened to rows of as many elements as a row of the weights (O, C) has."""
    if site.option("weights_format"):
        raise site.error("its weights are shuffled for one kind of processor", hint="convert the model without that")
    x, w = site.ordered(site.real(0)), site.weights(1, (0, 1))
    depth = w.shape[1]
    if not depth or math.prod(x.shape) % depth:
        raise site.error(f"an operand of shape {list(x.shape)} has no whole rows of {depth}")
    rows = site.reshape(x, (math.prod(x.shape) // depth, depth))
    result: Expr = site.call("nn.dense", rows, w)
    bias = bias_of(site, 2, 0, 1)
    if bias is not None:
        if math.prod(bias.shape) != w.shape[0]:
            raise site.error(f"{math.prod(bias.shape)} biases do not fit {w.shape[0]} results")
        result = site("add", result, site.reshape(bias, (w.shape[0],)))
    result = site.activated(result)
    if site.option("keep_num_dims"):
        if not x.shape or x.shape[-1] != depth:
            raise site.error(f"an operand of shape {list(x.shape)} has no rows of {depth}")
        return site.reshape(result, (*x.shape[:-1], w.shape[0]))
    return result


@rule("BATCH_MATMUL")
def _batch_product(site: Site) -> Result:
    operands = []
    for index, flag in enumerate(("adj_x", "adj_y")):
        held = site.real(index)
        rank = len(held.order)
        if rank < 2:
            raise site.error_of_rank(index, "a matrix")
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        operands.append(site.ordered(held, swapped if site.option(flag) else None))
    return matrix_product(site.node, operands[0], operands[1])


@rule("EMBEDDING_LOOKUP")
def _embedding(site: Site) -> Result:
    places = site.cast(site.raw(0), "int64")
    table = site.real(1) if site.results[0].dtype == "float32" else site.held(1)
    rows = table.shape[0] if table.order else 0
    if not rows:
        raise site.error("its table has no rows")
    safe = site.call("nn.minimum", site.call("nn.maximum", places, site.like(0, places)), site.like(rows - 1, places))
    picked = places if isinstance(places, Constant) else safe
    return Held.plain(site.call("gather", site.ordered(table), picked, axis=0))
