"""``torch.compile(model, backend="weft")``: graphs that Dynamo captured run as machine code of the CPU target.

Graph breaks and gradients are PyTorch's (AOTAutograd): weft compiles the forward graph, the backward graph, or the
graph of an inference, each in core ATen operators.

**Weights.** Dynamo does not guard parameters: a second instance of a class, or changed weights, come with the same
graph. For inference, weights are compiled in (so that they are packed once), and every run looks whether they are the
tensors, at the version, that were compiled in; others are compiled in anew, and tensors that keep changing become
inputs. What is written in place through ``parameter.data`` PyTorch does not count, so it is not seen: give
``options={"weights": "inputs"}`` to a model whose weights are changed so. In training all weights are inputs.

**Sizes.** A graph with open sizes is compiled for the sizes that come first; PyTorch runs it for others. Weights are
compiled in for each, as long as that takes no gigabyte.

**What weft cannot read** is run by PyTorch, between parts of the graph that weft compiles.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from ..api import compile, load
from ..compiler.frontends import ModelError
from ..compiler.frontends.site import OperatorSite
from ..compiler.frontends.torch.complex import Complex, constant, of_pairs, pairs
from ..compiler.frontends.torch.reader import GraphReader, refuse_unknown
from ..compiler.frontends.torch.tensors import PARTS, array_of, tensor_of
from ..compiler.graph import Attrs, Expr, Function, Module, Span, TensorType, Tuple, Var
from ..compiler.model import CompiledModel
from ..errors import WeftError
from ..runtime.module import LoadedModule
from .split import dense_order, leave_views, split, unread

LOG = logging.getLogger("weft.pytorch")
"""What PyTorch runs in weft's place, and why."""

BUILDS_KEPT = 8
"""Of one graph: for other sizes, and for other weights."""

OPEN_BYTES = 1 << 30
"""Of weights that are compiled in for other sizes than the first; beyond that they become inputs."""

CHANGES_BORNE = 3
"""How often weights are compiled in anew before they become inputs."""

OPTIONS = {"threads": 1, "weights": "constants", "fallback": True}


@dataclass(frozen=True)
class _Build:
    """A graph that was compiled. ``inputs``: their names, and their places among the graph's. ``results``: for each
    output the name of the model's, or the value that it has. ``complex``: the names of outputs that PyTorch is given
    as complex ones. ``turned``: of outputs whose axes lie in memory in another order, where each axis is."""

    loaded: LoadedModule | None
    inputs: tuple[tuple[str, int], ...]
    results: tuple[tuple[str, Any], ...]
    complex: frozenset[str] = frozenset()
    turned: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        made: Mapping[str, Any] = {}
        if self.loaded is not None:
            made = self.loaded.run_unchecked({name: _numpy(args[place]) for name, place in self.inputs})
        found = [tensor_of(made[name]) if name else value for name, value in self.results]
        if self.complex:
            found = [torch.view_as_complex(value) if name in self.complex else value
                     for value, (name, _) in zip(found, self.results, strict=True)]  # fmt: skip
        if self.turned:
            found = [value.permute(self.turned[name]) if name in self.turned else value
                     for value, (name, _) in zip(found, self.results, strict=True)]  # fmt: skip
        return found


def _numpy(tensor: torch.Tensor) -> Any:
    """The values of a tensor, which lies in order after this. Without a copy where it did before."""
    plain = tensor.detach()
    if plain.dtype in PARTS:
        plain = torch.view_as_real(plain.resolve_conj())
    plain = plain if plain.is_contiguous() else plain.contiguous()
    return plain.numpy() if plain.dtype is not torch.bfloat16 else array_of(plain, "an input")


@dataclass(frozen=True)
class _Held:
    """Weights that were compiled in: the tensors, how often each had been written to, and the memory that it had. While
    that lives, no other has its address; ``parameter.data = values`` changes the memory alone."""

    tensors: tuple[weakref.ref[torch.Tensor], ...]
    versions: tuple[int, ...]
    memories: tuple[weakref.ref[torch.UntypedStorage], ...]
    addresses: tuple[int, ...]

    @staticmethod
    def of(weights: Sequence[torch.Tensor]) -> _Held:
        memories = tuple(weakref.ref(weight.untyped_storage()) for weight in weights)
        addresses = tuple(weight.data_ptr() for weight in weights)
        return _Held(tuple(map(weakref.ref, weights)), tuple(map(_version, weights)), memories, addresses)

    def are(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the tensors, at whatever version."""
        return len(self.tensors) == len(weights) and all(
            tensor() is weight for tensor, weight in zip(self.tensors, weights, strict=True)
        )

    def are_still(self, weights: Sequence[torch.Tensor]) -> bool:
        """Also where none was compiled in. In every run, so without a call for each."""
        for tensor, version, memory, address, weight in zip(  # noqa: B905
            self.tensors, self.versions, self.memories, self.addresses, weights
        ):
            if tensor() is not weight or weight._version != version:  # type: ignore[union-attr]
                return False
            if memory() is None or weight.data_ptr() != address:  # type: ignore[union-attr]
                return False
        return True


def _version(tensor: torch.Tensor) -> int:
    """How often PyTorch says that a tensor was written to."""
    return int(tensor._version)


def _whole(size: Any) -> int:
    """A number of a run. ModelError for what PyTorch has in place of the lengths of a nested tensor."""
    if isinstance(size, torch.SymInt):
        raise ModelError("a nested tensor has rows of several lengths, for which no graph of fixed sizes has a form",
                         hint="pad it: torch.nested.to_padded_tensor(x, 0.0)")  # fmt: skip
    return int(size)


class _Graph:
    """One graph of AOTAutograd's, compiled for the sizes and weights that come.

    ``static``: the numbers of the inputs that are weights. ``as_traced``: results lie in memory as PyTorch's would.
    """

    def __init__(
        self, graph: GraphModule, examples: Sequence[Any], static: Sequence[int], options: Mapping[str, Any], *,
        as_traced: bool,
    ) -> None:  # fmt: skip
        self.graph, self.static, self.options = graph, tuple(static), options
        (output,) = graph.graph.find_nodes(op="output")
        self.orders = [dense_order(each) if as_traced else None for each in output.args[0]]
        self.placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self.symbols = [str(each.node.expr) if isinstance(each, torch.SymInt) else "" for each in examples]
        self.sized = [number for number, each in enumerate(examples) if _is_open(each)]
        self.open = bool(self.sized)
        self.builds: list[tuple[tuple[int, ...], _Held, _Build]] = []  # with the sizes, and the weights compiled in
        self.changes = 0
        self.is_refused = False

    def run(self, *args: Any) -> list[Any]:
        if self.is_refused:
            return self._by_pytorch(args)
        try:
            return self._by_weft(args)
        except WeftError as error:
            if not self.options["fallback"]:
                raise
            LOG.warning("PyTorch runs a graph of %d nodes: %s", len(self.graph.graph.nodes), error)
            self.is_refused = True
            return self._by_pytorch(args)

    def _by_weft(self, args: Sequence[Any]) -> list[Any]:
        sizes, weights = self._open_sizes(args), [args[number] for number in self.static]
        for known, held, build in self.builds:
            if known == sizes and held.are_still(weights):
                return build(args)
        self._drop_changed(weights)
        if self.open and self.options["fallback"] and len(self.builds) == BUILDS_KEPT:
            return self._by_pytorch(args)
        constants: dict[int, Any] = {}
        others = len(self.builds) if self.open else 0
        if self.static and others * sum(weight.nbytes for weight in weights) <= OPEN_BYTES:
            constants = {number: array_of(args[number], "a weight") for number in self.static}
        build = self._build(args, constants)
        held = _Held.of(weights if constants else ())
        self.builds = [*self.builds, (sizes, held, build)][-BUILDS_KEPT:]
        return build(args)

    def _drop_changed(self, weights: Sequence[torch.Tensor]) -> None:
        """Forget what holds these weights as they were before they were written to."""
        there = len(self.builds)
        self.builds = [each for each in self.builds if not each[1].are(weights) or each[1].are_still(weights)]
        self.changes += there != len(self.builds)
        if self.changes > CHANGES_BORNE and self.static:
            self.static, self.builds = (), []

    def _by_pytorch(self, args: Sequence[Any]) -> list[Any]:
        return list(self.graph(*args))

    def _open_sizes(self, args: Sequence[Any]) -> tuple[int, ...]:
        found: list[int] = []
        for number in self.sized:
            arg = args[number]
            found.extend(arg.shape if isinstance(arg, torch.Tensor) else (_whole(arg),))
        return tuple(found)

    def _build(self, args: Sequence[Any], constants: Mapping[int, Any]) -> _Build:
        with unset_fake_temporarily():
            return self._compiled(args, constants)

    def _compiled(self, args: Sequence[Any], constants: Mapping[int, Any]) -> _Build:
        reader = GraphReader(self._sizes(args))
        values: list[Any] = []
        params: list[Var] = []
        places: list[int] = []
        for number, (node, arg) in enumerate(zip(self.placeholders, args, strict=True)):
            if number in constants:
                values.append(constant(constants[number], node.name))
            elif isinstance(arg, torch.Tensor):
                kind = reader.type_of(node.meta["val"], node.name)
                if kind is None or kind.shape != tuple(arg.shape):
                    raise ModelError(f"input {node.name!r} has the shape {tuple(arg.shape)}, but the graph has {kind}")
                is_complex = arg.dtype in PARTS
                kind = TensorType((*kind.shape, 2), kind.dtype) if is_complex else kind
                params.append(Var(node.name, kind, Span((), node.name)))
                values.append(of_pairs(OperatorSite("view_as_complex", params[-1].span), params[-1]) if is_complex
                              else params[-1])  # fmt: skip
                places.append(number)
            else:
                values.append(arg)
        made = reader.run(self.graph, values)
        complex_ones = frozenset(f"output{i}" for i, each in enumerate(made) if isinstance(each, Complex))
        outputs = [pairs(OperatorSite("view_as_real", Span()), each) if isinstance(each, Complex) else each
                   for each in made]  # fmt: skip
        turned: dict[str, list[int]] = {}
        for i, order in enumerate(self.orders):
            if order is not None and isinstance(made[i], Expr):
                outputs[i] = OperatorSite("permute", made[i].span).transpose(made[i], order)
                turned[f"output{i}"] = [order.index(axis) for axis in range(len(order))]
        results = tuple((f"output{i}" if isinstance(each, Expr) else "", each) for i, each in enumerate(outputs))
        named = {name: value for name, value in results if name}
        loaded = None
        if named:
            used = tuple(named.values())
            body = used[0] if len(used) == 1 else Tuple(used)
            module = Module(Function(tuple(params), body, Attrs({"name": "graph", "outputs": tuple(named)})))
            model = compile(module, target="cpu", threads=self.options["threads"])
            assert isinstance(model, CompiledModel)  # a module has no open sizes
            loaded = load(model)
        kept = tuple((name, None if name else value) for name, value in results)
        inputs = tuple((param.name, place) for param, place in zip(params, places, strict=True))
        return _Build(loaded, inputs, kept, complex_ones, turned)

    def _sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """The symbols' sizes: of arguments that are numbers, and of the shapes of tensors."""
        sizes = {symbol: int(arg) for symbol, arg in zip(self.symbols, args, strict=True) if symbol}
        for node, arg in zip(self.placeholders, args, strict=True):
            known = node.meta.get("val")
            if not isinstance(known, torch.Tensor) or not isinstance(arg, torch.Tensor):
                continue
            for size, number in zip(known.shape, arg.shape, strict=True):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    sizes.setdefault(str(size.node.expr), int(number))
        return sizes


def _is_open(example: Any) -> bool:
    """Whether an input is a size that is open, or a tensor with one."""
    if isinstance(example, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in example.shape)
    return isinstance(example, torch.SymInt)


def _is_weight(node: torch.fx.Node, example: Any) -> bool:
    """Whether an input of Dynamo's graph is a parameter or a buffer of the module."""
    kind = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    return isinstance(example, torch.nn.Parameter) or (kind is not None and isinstance(example, torch.Tensor))


class _Part(torch.nn.Module):  # type: ignore[misc]
    """A part of a graph, as a module that the rest can call."""

    def __init__(self, graph: _Graph) -> None:
        super().__init__()
        self.run = graph.run

    def forward(self, *args: Any) -> list[Any]:
        return self.run(*args)


def _in_parts(graph: GraphModule, static: Sequence[int], options: Mapping[str, Any], *, as_traced: bool) -> GraphModule:
    """``graph`` with what weft can read compiled."""
    whole, calls = split(graph)
    placeholders = [node for node in whole.graph.nodes if node.op == "placeholder"]
    weights = {placeholders[number] for number in static}
    for call in calls:
        given = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in call.args]
        known = [number for number, arg in enumerate(call.args) if arg in weights]
        setattr(whole, call.target, _Part(_Graph(whole.get_submodule(call.target), given, known, options,
                                                  as_traced=as_traced)))  # fmt: skip
    return whole


def weft(
    graph: GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend. ``options``: ``threads`` (1) of the machine code; ``weights``: ``"constants"``, or ``"inputs"`` for
    a model whose weights change between runs; ``fallback``: False to be refused what PyTorch would run in weft's place.

    Raises ModelError for options that it does not have and tensors on another device; without fallback, for a graph
    with operators that weft has no rule for: the text names all of them.
    """
    chosen = {**OPTIONS, **(options or {})}
    unknown = sorted(set(chosen) - set(OPTIONS))
    if unknown or chosen["weights"] not in ("constants", "inputs"):
        raise ModelError(f"the backend 'weft' has no option {unknown[0]!r}" if unknown else
                         f"weights is {chosen['weights']!r}, but must be 'constants' or 'inputs'",
                         hint=f"its options are {', '.join(OPTIONS)}")  # fmt: skip
    for device in {each.device for each in examples if isinstance(each, torch.Tensor)}:
        if device.type != "cpu":
            raise ModelError(f"inputs are on the device {str(device)!r}, but weft compiles for this processor",
                             hint="move the module and its inputs with .cpu()")  # fmt: skip
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    weights = [number for number, (node, example) in enumerate(zip(placeholders, examples, strict=True))
               if chosen["weights"] == "constants" and _is_weight(node, example)
               and not example.is_inference()]  # an inference tensor does not count what is written to it  # fmt: skip

    def compiler(static: Sequence[int], *, trained: bool) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compile_graph(aten: GraphModule, inputs: Sequence[Any]) -> Any:
            count = sum(node.op == "placeholder" for node in aten.graph.nodes)
            known = static if count == len(placeholders) else ()  # else AOTAutograd has inputs of its own
            is_open = any(map(_is_open, inputs))
            views = (is_open or trained) and leave_views(aten, open_sizes=is_open)
            if not chosen["fallback"]:
                refuse_unknown(aten)
            elif left := unread(aten):
                LOG.info("PyTorch runs %s", ", ".join(f"{name} ({times})" for name, times in left.items()))
                views = True
            if views:
                return make_boxed_func(_in_parts(aten, known, chosen, as_traced=not trained))
            return make_boxed_func(_Graph(aten, inputs, known, chosen, as_traced=not trained).run)

        return compile_graph

    made = aot_autograd(
        fw_compiler=compiler((), trained=True),
        inference_compiler=compiler(weights, trained=False),
        decompositions=core_aten_decompositions(),
    )
    return made(graph, examples)  # type: ignore[no-any-return]
