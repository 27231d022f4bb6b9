"""The tables of 16-bit functions, all 65,536 values: an LSTM with a cell for each, whose cells are read afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert.interpreter import Interpreter
from weft.compiler.frontends.litert.gates import logistic_table, tangent_table
from weft.compiler.frontends.litert.recurrent_bytes import _multiplied
from weft.compiler.frontends.site import OperatorSite
from weft.compiler.graph import Constant, Function, Span, evaluate_function

from benchmarks.zoo.litert_models import ModelWriter, options

Array = npt.NDArray[Any]
EVERY = np.arange(-(1 << 15), 1 << 15)


def cells(entering: Array, fresh: Array) -> Array:
    """What a step makes of cells that were 0, for these sums of the input gate and of the new values."""
    net, count = ModelWriter(), len(entering)
    x = net.tensor((1, 1, 1), "int8", 2.0**-6, 0, name="x")

    def zeros(*shape: int) -> int:
        return net.tensor(shape, "int8", 2.0**-6, 0, data=np.zeros(shape, np.int8))

    sums = [entering, np.zeros(count), fresh, np.zeros(count)]
    biases = [net.tensor((count,), "int32", 2.0**-12, 0, data=each.astype(np.int32)) for each in sums]
    weights = [zeros(count, 1) for _ in range(8)]
    hidden = net.tensor((1, 1), "int8", 0.01, 0, variable=True)
    kept = net.tensor((1, count), "int16", 2.0**-15, 0, variable=True)
    y = net.tensor((1, 1, 1), "int8", 0.01, 0)
    between = [net.tensor((), "int16", 1.0) for _ in range(4)] + [net.tensor((), "int8", 0.01, 0)]
    operands = [x, *weights, -1, -1, -1, *biases, zeros(1, count), -1, hidden, kept, -1, -1, -1, -1]
    made = options("UnidirectionalSequenceLSTMOptions", fusedActivationFunction=4)
    net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], made, intermediates=between)
    interpreter = Interpreter(model_content=net.finish([x], [y]), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.zeros((1, 1, 1), np.int8))
    interpreter.invoke()
    return np.array(interpreter.get_tensor(kept)).reshape(-1)


@pytest.mark.parametrize(
    ("entering", "fresh"), [(None, 32767), (None, -32768), (None, 700), (32767, None), (0, None), (-9000, None)]
)
def test_tables_and_products_are_the_interpreters(entering: int | None, fresh: int | None) -> None:
    """A gate of 0 is a half, which makes halves of every other value."""
    sums = [EVERY if each is None else np.full(EVERY.shape, each) for each in (entering, fresh)]
    gates = [table[each + (1 << 15)].astype(np.int32)
             for table, each in zip((logistic_table(), tangent_table(3)), sums, strict=True)]  # fmt: skip
    site = OperatorSite("LSTM", Span((), "lstm"))
    np.testing.assert_array_equal(
        evaluate_function(Function((), _multiplied(site, *(Constant(each) for each in gates), 15)), ()), cells(*sums)
    )
