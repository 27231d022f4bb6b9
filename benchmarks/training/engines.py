"""Steps of training by weft, PyTorch and JAX, each in the form that it is fastest in: forward, backward, SGD.

Whoever imports `jax` here must have said before how many threads it may have (`limit_threads`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import weft
from weft.compiler.frontends import read
from weft.compiler.graph import GraphError
from weft.compiler.model import CompiledModel
from weft.runtime import artifact
from weft.train import Step, Training, cross_entropy, replaced_in_place, sgd, within

from benchmarks.zoo.train_networks import EPSILON, MOMENTUM_OF_STATISTICS, Array, Operators, T, Workload, as_onnx

RATE, MOMENTUM = 1e-3, 0.9
ENGINES = ("weft", "torch", "torch.compile", "jax")
RECOMPUTED = "weft, recomputed"
"""Weft's step in `SHARE` of the memory between kernels, if that can be met: forward values are computed again."""

SHARE = 0.6


Run = Callable[[], float]
"""One step on the same batch; gives the loss before it."""


class NotInstalledError(Exception):
    """An engine that is not there."""


def limit_threads(threads: int) -> None:
    """For engines that are imported later; XLA has one pool, as large as the processors that it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"


def runner(engine: str, workload: Workload, threads: int, compiled: Path | None = None) -> Run:
    """Raises NotInstalledError. ``compiled``: for weft, the artifact of the step."""
    try:
        if engine in ("weft", RECOMPUTED):
            return weft_step(workload, threads, compiled, engine == RECOMPUTED)
        return jax_step(workload) if engine == "jax" else torch_step(workload, threads, engine == "torch.compile")
    except ImportError as error:
        raise NotInstalledError(f"{engine}: {error}") from error


def weft_training(workload: Workload) -> tuple[Step, dict[str, Array]]:
    """The step, and the first values of its parameters."""
    model, start = as_onnx(workload)
    module, lifted = weft.lift_constants(
        read(model.SerializeToString()).module({}, require_quantised=False), list(start)
    )
    main = module.main
    scores = next(name for name in main.output_names if not name.startswith("next_"))
    loss = cross_entropy(module, scores=scores)
    return sgd(loss, list(lifted), momentum=MOMENTUM, check_finite=False), lifted  # no peer looks for NaN either


def compiled_step(workload: Workload, threads: int, recomputed: bool) -> tuple[Step, CompiledModel]:
    """The step as compiled; ``recomputed``: within `SHARE` of its memory, if that can be met."""
    step = weft_training(workload)[0]
    model = weft.compile(step.module, target="cpu", threads=threads)
    if recomputed:
        with contextlib.suppress(GraphError):
            step = within(step, int(SHARE * model.statistics["arena_bytes"]), threads=threads)
            model = weft.compile(step.module, target="cpu", threads=threads)
    return step, model


def weft_step(workload: Workload, threads: int, compiled: Path | None = None, recomputed: bool = False) -> Run:
    """State is replaced in place, as the peers do. ``compiled``: the file that `weft_artifact` has written."""
    step, start = weft_training(workload)
    if compiled is None:
        step, model = compiled_step(workload, threads, recomputed)
    else:
        model = artifact.load(compiled)
    training = Training(step, start, weft.load(model), in_place=replaced_in_place(step, model))
    data, labels = workload.batch()

    def run() -> float:
        return float(training.step({"x": data, "labels": labels}, RATE)["loss"])

    return run


def weft_artifact(workload: Workload, threads: int, path: Path, recomputed: bool = False) -> int:
    """Write the compiled step, and leave its machine code in the cache; the bytes that are planned between kernels."""
    model = compiled_step(workload, threads, recomputed)[1]
    artifact.save(model, path)
    weft.load(path)
    return int(model.statistics["arena_bytes"])


def torch_step(workload: Workload, threads: int, compiled: bool) -> Run:
    """Images have their channels last, which oneDNN likes best; the optimiser is fused."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    values: dict[str, T] = {}
    for name, value in as_onnx(workload)[1].items():
        tensor = torch.tensor(value)
        tensor = tensor.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else tensor
        values[name] = tensor.requires_grad_()
    statistics: dict[str, T] = {}

    class Torch:
        def conv(self, name: str, x: T, filters: int, kernel: int, *, stride: int = 1, groups: int = 1) -> T:
            return functional.conv2d(x, values[f"{name}.weight"], None, stride, kernel // 2, 1, groups)

        def norm(self, name: str, x: T) -> T:
            mean, variance = (statistics.setdefault(f"{name}.{what}", torch.zeros(x.shape[1]))
                              for what in ("mean", "variance"))  # fmt: skip
            return functional.batch_norm(x, mean, variance, values[f"{name}.scale"], values[f"{name}.shift"], True,
                                         1 - MOMENTUM_OF_STATISTICS, EPSILON)  # fmt: skip

        def relu(self, x: T, limit: float | None = None) -> T:
            return functional.relu(x) if limit is None else functional.hardtanh(x, 0.0, limit)

        def add(self, x: T, y: T) -> T:
            return x + y

        def max_pool(self, x: T, kernel: int, stride: int, pad: int) -> T:
            return functional.max_pool2d(x, kernel, stride, pad)

        def mean_pool(self, x: T) -> T:
            return functional.adaptive_avg_pool2d(x, 1).flatten(1)

        def dense(self, name: str, x: T, outputs: int) -> T:
            return functional.linear(x, values[f"{name}.weight"].t(), values[f"{name}.bias"])

        def layer_norm(self, name: str, x: T) -> T:
            return functional.layer_norm(x, x.shape[-1:], values[f"{name}.scale"], values[f"{name}.shift"], EPSILON)

        def gelu(self, x: T) -> T:
            return functional.gelu(x)

        def embedding(self, name: str, indices: T, count: int, width: int) -> T:
            return functional.embedding(indices, values[f"{name}.weight"])

        def offsets(self, name: str, x: T) -> T:
            return x + values[f"{name}.weight"]

        def attention(self, query: T, key: T, value: T, heads: int) -> T:
            q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (query, key, value))
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

        def rows(self, x: T) -> T:
            return x.flatten(0, 1)

    ops: Operators = Torch()
    array, given = workload.batch()
    data, labels = torch.tensor(array), torch.tensor(given)
    data = data.contiguous(memory_format=torch.channels_last) if data.ndim == 4 else data
    optimiser = torch.optim.SGD(list(values.values()), RATE, MOMENTUM, fused=True)
    with torch.no_grad():
        workload.network(ops, data)  # makes the statistics
    for each in statistics.values():
        each.zero_()

    def forward(data: T, labels: T) -> T:
        return functional.cross_entropy(workload.network(ops, data), labels)

    evaluate = torch.compile(forward, dynamic=False) if compiled else forward

    def run() -> float:
        loss = evaluate(data, labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    return run


def jax_step(workload: Workload) -> Run:
    """Images have their channels last; the whole step is one jitted function that gives its state away."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    start = {}
    for name, value in as_onnx(workload)[1].items():
        start[name] = jnp.asarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value)

    class Jax:
        def __init__(self, values: dict[str, T], before: dict[str, T]) -> None:
            self.values, self.before, self.after = values, before, dict[str, T]()

        def conv(self, name: str, x: T, filters: int, kernel: int, *, stride: int = 1, groups: int = 1) -> T:
            return lax.conv_general_dilated(
                x, self.values[f"{name}.weight"], (stride, stride), [(kernel // 2,) * 2] * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
            )  # fmt: skip

        def norm(self, name: str, x: T) -> T:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            for what, value in (("mean", mean), ("variance", variance)):
                old = self.before.get(f"{name}.{what}", jnp.zeros_like(value))
                self.after[f"{name}.{what}"] = MOMENTUM_OF_STATISTICS * old + (1 - MOMENTUM_OF_STATISTICS) * value
            factor = self.values[f"{name}.scale"] * lax.rsqrt(variance + EPSILON)
            return x * factor + (self.values[f"{name}.shift"] - mean * factor)

        def relu(self, x: T, limit: float | None = None) -> T:
            return jax.nn.relu(x) if limit is None else jnp.clip(x, 0, limit)

        def add(self, x: T, y: T) -> T:
            return x + y

        def max_pool(self, x: T, kernel: int, stride: int, pad: int) -> T:
            window, steps = (1, kernel, kernel, 1), (1, stride, stride, 1)
            return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, [(0, 0), (pad, pad), (pad, pad), (0, 0)])

        def mean_pool(self, x: T) -> T:
            return x.mean((1, 2))

        def dense(self, name: str, x: T, outputs: int) -> T:
            return x @ self.values[f"{name}.weight"] + self.values[f"{name}.bias"]

        def layer_norm(self, name: str, x: T) -> T:
            centred = x - x.mean(-1, keepdims=True)
            scaled = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + EPSILON)
            return scaled * self.values[f"{name}.scale"] + self.values[f"{name}.shift"]

        def gelu(self, x: T) -> T:
            return jax.nn.gelu(x, approximate=False)

        def embedding(self, name: str, indices: T, count: int, width: int) -> T:
            return self.values[f"{name}.weight"][indices]

        def offsets(self, name: str, x: T) -> T:
            return x + self.values[f"{name}.weight"]

        def attention(self, query: T, key: T, value: T, heads: int) -> T:
            q, k, v = (each.reshape(*each.shape[:2], heads, -1) for each in (query, key, value))
            return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(query.shape)

        def rows(self, x: T) -> T:
            return x.reshape(-1, x.shape[-1])

    def loss_of(values: dict[str, T], before: dict[str, T], data: T, labels: T) -> tuple[T, dict[str, T]]:
        ops = Jax(values, before)
        scores = workload.network(ops, data)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1)
        return -chosen.mean(), ops.after

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(values: dict[str, T], velocity: dict[str, T], before: dict[str, T], data: T, labels: T) -> T:
        (loss, after), gradients = jax.value_and_grad(loss_of, has_aux=True)(values, before, data, labels)
        velocity = {name: MOMENTUM * velocity[name] + gradients[name] for name in values}
        return loss, {name: values[name] - RATE * velocity[name] for name in values}, velocity, after

    array, given = workload.batch()
    data = jnp.asarray(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array)
    labels = jnp.asarray(given)
    shapes = jax.eval_shape(loss_of, start, {}, data, labels)[1]
    state = [start, {name: jnp.zeros_like(value) for name, value in start.items()},
             {name: jnp.zeros(kind.shape, kind.dtype) for name, kind in shapes.items()}]  # fmt: skip

    def run() -> float:
        loss, *state[:] = step(*state, data, labels)
        jax.block_until_ready(state)
        return float(np.asarray(loss))

    return run
