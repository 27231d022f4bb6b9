"""One model on two targets: every tensor that both make, in the order of execution, and how far they are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .compiler.compile import compile_model
from .compiler.compile_cpu import is_source, passes_for
from .compiler.compiled_cpu import CpuTensor
from .compiler.graph import Attrs, Call, Expr, Function, GraphError, Module, TensorType, Tuple, evaluate
from .compiler.passes import PassManager
from .compiler.targets.accel.packed_layout import unpack
from .compiler.targets.cpu.link import link
from .compiler.targets.cpu.processor import host_target
from .compiler.targets.loops.fusion import group_calls
from .compiler.targets.loops.prepare import prepare
from .hw.config import CoreConfig
from .runtime.cpu import CpuModule
from .runtime.module import load

Array = npt.NDArray[Any]
Tensors = dict[str, Array]

COMPARED = ("reference", "cpu", "fsim", "rtl")
"""What can be compared: the graph in NumPy, the CPU, and the accelerator in simulation."""


@dataclass(frozen=True)
class Difference:
    """A tensor on both targets. ``largest``: the largest difference of an element; ``relative``: as a part of the
    largest magnitude on the first target; ``differing``: elements that are further apart than the tolerance."""

    tensor: str
    shape: tuple[int, ...]
    dtype: str
    largest: float
    relative: float
    differing: int

    @property
    def is_same(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a module."""

    inputs: tuple[CpuTensor, ...]


def model_inputs(module: Module) -> ModelInputs:
    """Names, shapes and types of a module's inputs."""
    return ModelInputs(tuple(CpuTensor(each.name, each.type.shape, each.type.dtype) for each in module.main.params))


def compare(
    module: Module, first: str, second: str, inputs: Mapping[str, Array], *, config: CoreConfig | str = "pynq",
    threads: int = 1, tolerance: float = 1e-4,
) -> list[Difference]:  # fmt: skip
    """Run a model, as it was read, on two targets and compare what both make.

    Integers must be equal; floats must agree within ``tolerance`` of the tensor's largest magnitude.
    Raises GraphError for a target that cannot be compared.
    """
    flat = prepare(PassManager(passes_for(module)).run(module) if is_source(module) else module)
    found = [tensors_on(target, module, flat, inputs, config, threads) for target in (first, second)]
    return [
        difference(name, array, found[1][name], tolerance)
        for name, array in found[0].items() if name in found[1] and found[1][name].shape == array.shape
    ]  # fmt: skip


def difference(name: str, a: Array, b: Array, tolerance: float) -> Difference:
    """How far two arrays of one shape are apart."""
    if a.dtype.kind not in "fc":
        apart = np.abs(a.astype(np.int64) - b.astype(np.int64))
        allowed = 0.0
    else:
        both = np.isnan(a) & np.isnan(b) | (a == b)
        with np.errstate(invalid="ignore"):
            apart = np.where(both, 0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
        apart = np.where(np.isnan(apart), np.inf, apart)
        allowed = tolerance * float(np.abs(a[np.isfinite(a)]).max(initial=0))
    largest = float(apart.max(initial=0))
    scale = float(np.abs(a.astype(np.float64)).max(initial=0)) or 1.0
    return Difference(name, a.shape, a.dtype.name, largest, largest / scale, int((apart > allowed).sum()))


def tensors_on(
    target: str, module: Module, flat: Module, inputs: Mapping[str, Array], config: CoreConfig | str,
    threads: int,
) -> Tensors:  # fmt: skip
    """Tensors by the user's names. ``flat`` is ``module`` after the passes, as the CPU gets it."""
    if target == "reference":
        return _on_reference(flat, inputs)
    if target == "cpu":
        return _on_cpu(flat, inputs, threads)
    if target in ("fsim", "rtl"):
        return _on_core(target, module, inputs, config)
    raise GraphError(f"there is no target {target!r} to compare; choose from {', '.join(COMPARED)}")


def _on_reference(module: Module, inputs: Mapping[str, Array]) -> Tensors:
    found: Tensors = {}

    def observe(node: Expr, value: object) -> None:
        if isinstance(node, Call) and isinstance(value, np.ndarray) and node.span.tensor:
            found[node.span.tensor] = value  # the last of a node's operators has the tensor's value

    outputs = evaluate(module, inputs, observe)
    return {**found, **outputs}


def _on_cpu(module: Module, inputs: Mapping[str, Array], threads: int) -> Tensors:
    """Every kernel's result is made an output, which changes no kernel."""
    target = host_target()
    groups = group_calls(module.main.body, target.fusion)
    roots = [group.root for group in groups if isinstance(group.root.type, TensorType)]
    named = {root.span.tensor: root for root in roots if root.span.tensor}
    results = (*named.values(), *module.main.results)
    labels = tuple(f"{number}" for number in range(len(results)))
    main = Function(module.main.params, Tuple(results), Attrs({"name": "main", "outputs": labels}))
    values = CpuModule(link(Module(main), target, threads)).run(inputs)
    names = (*named, *module.main.output_names)
    return {name: values[label] for name, label in zip(names, labels, strict=True)}


def _on_core(device: str, module: Module, inputs: Mapping[str, Array], config: CoreConfig | str) -> Tensors:
    compiled = compile_model(module, config, reuse_memory=False)
    values = load(compiled, device).run(inputs, keep=True)
    found: Tensors = {}
    for layer in compiled.layers:
        value = values.get(layer.output)
        if value is None or len(layer.shape) > 4:  # made on the host for the core: padded and in blocks
            continue
        packed = layer.output in compiled.slots and value.ndim == 7
        found[layer.output] = unpack(value, layer.shape) if packed else value
    return {**found, **{slot.name: values[slot.name] for slot in compiled.outputs}}

