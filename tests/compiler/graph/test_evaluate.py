"""What has no result is refused by the name of its node."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Constant, Function, GraphError, Span, call
from weft.compiler.graph.evaluate import evaluate_function


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_an_index_outside_of_a_constant_names_the_node(dtype: str) -> None:
    """It is met where constants are folded: nothing has looked at the index before."""
    value = call("gather", Constant(np.zeros(3, dtype)), Constant(np.array([0, 8])), axis=0, span=Span(("pick",)))
    with pytest.raises(GraphError, match=r"'pick'.*index 8 is out of bounds"):
        evaluate_function(Function((), value), ())
