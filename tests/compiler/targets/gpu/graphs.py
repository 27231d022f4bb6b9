"""Small graphs on OpenCL and as PTX, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import weft
from weft.compiler.graph import Attrs, Expr, Function, Module, TensorType, Tuple, Var, dtypes, evaluate
from weft.compiler.targets.loops.prepare import prepare
from weft.runtime.gpu.open import CUDA_VARIABLE, EMULATED

RUN_ON = {"opencl": None, "cuda": os.environ.get(CUDA_VARIABLE, EMULATED)}
"""What runs the code of each target: PTX in the interpreter, unless WEFT_CUDA_DEVICE names a GPU."""


def variable(name: str, dtype: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, dtype))


def module_of(params: Sequence[Var], *results: Expr) -> Module:
    names = tuple(f"y{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(tuple(results))
    return prepare(Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": names}))))


def values_for(module: Module, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    values = {}
    for param in module.main.params:
        dtype, shape = param.type.dtype, param.type.shape
        data = generator.normal(size=shape) if dtypes.is_float(dtype) else generator.integers(-9, 9, shape)
        values[param.name] = np.asarray(data).astype(dtypes.numpy_dtype(dtype))
    return values


def check(module: Module, tolerance: float = 1e-5) -> weft.CompiledModel:
    """Run the module on the devices: integers are equal to the bit, floats within ``tolerance`` of the largest. Gives
    what it is compiled to for OpenCL."""
    values = values_for(module)
    wanted = evaluate(module, values)
    models = [check_on(target, module, values, wanted, tolerance) for target in RUN_ON]
    return models[0]


def check_on(
    target: str, module: Module, values: dict[str, np.ndarray], wanted: dict[str, np.ndarray], tolerance: float
) -> weft.CompiledModel:
    model = weft.compile(module, target=target, strict=True)
    assert isinstance(model, weft.CompiledModel)
    for name, result in weft.load(model, RUN_ON[target]).run(values).items():
        if dtypes.is_float(result.dtype.name):
            scale = np.abs(wanted[name].astype(np.float64)).max(initial=1.0)
            difference = np.abs(result.astype(np.float64) - wanted[name].astype(np.float64)).max(initial=0.0)
            assert difference <= tolerance * scale, name
        else:
            np.testing.assert_array_equal(result, wanted[name], err_msg=name)
    return model
