"""Gradients of a module's outputs as a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...whole import require_mapping, require_names
from ..graph import (
    Array,
    Attrs,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Tuple,
    Var,
    require_module,
    topological_order,
)
from ..graph.dtypes import FLOATS, numpy_dtype
from ..graph.gradient import CustomGradient, sweep, zeros
from ..graph.visit import with_children
from .cleanup import cse, dce, fold_constants
from .manager import infer_types
from .scans import unroll_loops
from .simplify import simplify
from .simplify_gradients import simplify_gradients

MOST_ROUNDS = 20
"""Of the clean-up: each makes a graph smaller, so that few are needed."""


class GradientError(GraphError):
    """What was asked for has no gradient."""


def grad(
    module: Module,
    *,
    wrt: str | Sequence[str] | None = None,
    of: str | Sequence[str] | None = None,
    seed: bool | Mapping[str, Array] = False,
    values: bool = True,
    custom: Sequence[CustomGradient] = (),
) -> Module:
    """A module that computes gradients: a pass from graph to graph, whose result any target compiles.

    wrt
        Names of inputs; all inputs of floats by default. A constant must become an input first: `lift_constants`.
    of
        Names of outputs; all by default. Several are summed, each times its seed.
    seed
        Vector-Jacobian products: with True the module gets an input ``seed_<output>`` of the type of each output in
        ``of``; a mapping gives them as constants. Without, each output must have one element, and its seed is 1.
    values
        Whether the module's own outputs stay, in front of the gradients. They share all that is computed.
    custom
        Gradients for subgraphs, instead of their operators' own.

    For each input in ``wrt`` there is an output ``grad_<input>`` of its type (with one more ``grad_`` while that name
    is taken, as in a gradient of a gradient); zeros where no path leads from it to an output.
    Raises `GradientError`: for unknown names, for inputs or outputs that are no floats, for an output of several
    elements without a seed, and with a list of all operators that block a gradient, before anything runs.
    """
    require_module(module, GradientError)
    if module.stage != "source":
        raise GradientError(f"a module at stage {module.stage!r} has no gradient",
                            hint="differentiate the module as it was read, and compile what comes out")  # fmt: skip
    main = unroll_loops(module).main
    inputs = _inputs(main, wrt)
    outputs = _outputs(main, of)
    seeds = _seeds(main, outputs, seed)
    if not isinstance(custom, (list, tuple)) or not all(isinstance(each, CustomGradient) for each in custom):
        raise GradientError(f"custom is {custom!r:.80}, but must be a list of CustomGradient")
    swept = sweep([(outputs[name], each) for name, each in seeds.items()], inputs, custom)
    if swept.blocked:
        raise _missing(swept.blocked)
    found = [zeros(value.type) if each is None else each for value, each in zip(inputs, swept.cotangents, strict=True)]
    results, names = [*found], _free_names(inputs, main.output_names if values else ())
    if values:
        results, names = [*main.results, *found], [*main.output_names, *names]
    params = (*main.params, *(each for each in seeds.values() if isinstance(each, Var)))
    body = results[0] if len(results) == 1 else Tuple(tuple(results))
    attrs = Attrs(main.attrs).replace(outputs=tuple(names))
    return tidied(Module(Function(params, body, attrs, main.span)))


def lift_constants(module: Module, names: Iterable[str] | None = None) -> tuple[Module, dict[str, Array]]:
    """The module with named constants of floats as inputs, and their values: so a model that was read can be trained.

    ``names``: which; all of more than one element by default. Inputs come behind those that there are, in the order in
    which the model uses them.
    Raises `GradientError` for a name that no constant of floats has, that two different constants have, or that an
    input has.
    """
    module = unroll_loops(module)
    nodes = topological_order(module.main.body)
    named: dict[str, Constant] = {}
    for node in nodes:
        if not isinstance(node, Constant) or not node.name or node.dtype not in FLOATS:
            continue
        if named.setdefault(node.name, node) != node:
            raise GradientError(f"two different constants have the name {node.name!r}")
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        raise GradientError(f"names is {names!r:.80}, but must be a list of names")
    wanted = [name for name in named if named[name].value.size > 1] if names is None else list(names)
    taken = {param.name for param in module.main.params}
    for name in wanted:
        if name not in named:
            raise GradientError(f"no constant of floats has the name {name!r}",
                                hint=f"those are: {_listed(named)}")  # fmt: skip
        if name in taken:
            raise GradientError(f"an input has the name {name!r} already")
    chosen = {name: Var(name, named[name].type, named[name].span) for name in wanted}
    # By identity: constants of equal values, such as the zeros of two biases, are equal, but train apart.
    body = _lifted(module.main.body, {id(node): chosen[node.name] for node in nodes
                                      if isinstance(node, Constant) and node.name in chosen})  # fmt: skip
    main = Function((*module.main.params, *chosen.values()), body, module.main.attrs, module.main.span)
    return Module(main, module.stage), {name: np.array(named[name].value) for name in wanted}


def _lifted(body: Expr, places: Mapping[int, Var]) -> Expr:
    memo: dict[int, Expr] = {}
    for node in topological_order(body):
        children = tuple(memo[id(child)] for child in node.children)
        memo[id(node)] = places[id(node)] if id(node) in places else with_children(node, children)
    return memo[id(body)]


def tidied(module: Module) -> Module:
    """The module after folding, algebra, common subexpressions and dead code, again and again until nothing changes."""
    for _ in range(MOST_ROUNDS):
        before = module
        for item in (simplify, simplify_gradients, fold_constants, cse, dce):
            module = item(module)
        if module == before:
            break
    return infer_types(module)


def _inputs(main: Function, wrt: str | Sequence[str] | None) -> list[Var]:
    params = {param.name: param for param in main.params}
    floats = [name for name, param in params.items() if param.type.dtype in FLOATS]
    if wrt is None and not floats:
        raise GradientError("no input is of floats, so there is nothing to differentiate by")
    names = floats if wrt is None else _names(wrt)
    for name in names:
        if name not in params:
            constant = any(isinstance(node, Constant) and node.name == name for node in topological_order(main.body))
            hint = f"{name!r} is a constant: make it an input with weft.lift_constants" if constant else (
                f"the inputs are: {_listed(params)}"
            )  # fmt: skip
            raise GradientError(f"there is no input {name!r}", hint=hint)
        if params[name].type.dtype not in FLOATS:
            raise GradientError(f"input {name!r} is {params[name].type}: only floats have a gradient",
                                hint=f"those are: {_listed(floats)}")  # fmt: skip
    return [params[name] for name in names]


def _outputs(main: Function, of: str | Sequence[str] | None) -> dict[str, Expr]:
    outputs = dict(zip(main.output_names, main.results, strict=True))
    names = list(outputs) if of is None else _names(of)
    for name in names:
        if name not in outputs:
            raise GradientError(f"there is no output {name!r}", hint=f"the outputs are: {_listed(outputs)}")
        if outputs[name].dtype not in FLOATS:
            floats = [each for each, value in outputs.items() if value.dtype in FLOATS]
            raise GradientError(f"output {name!r} is {outputs[name].type}: only floats have a gradient",
                                at=outputs[name].span, hint=f"those are: {_listed(floats)}")  # fmt: skip
    return {name: outputs[name] for name in names}


def _names(names: str | Sequence[str]) -> list[str]:
    if not isinstance(names, str):
        require_names(names, "what is differentiated", GradientError)
    listed = [names] if isinstance(names, str) else list(names)
    if not listed:
        raise GradientError("no name is given", hint="leave it out for all")
    twice = [name for name in listed if listed.count(name) > 1]
    if twice:
        raise GradientError(f"{twice[0]!r} is named twice")
    return listed


def _seeds(main: Function, outputs: Mapping[str, Expr], seed: bool | Mapping[str, Array]) -> dict[str, Expr]:
    if seed is True:
        taken = {param.name for param in main.params}
        clash = [name for name in outputs if f"seed_{name}" in taken]
        if clash:
            raise GradientError(f"an input has the name 'seed_{clash[0]}' already", hint="give the seeds as a mapping")
        return {name: Var(f"seed_{name}", value.tensor_type) for name, value in outputs.items()}
    if seed is False:
        for name, value in outputs.items():
            if value.tensor_type.size != 1:
                raise GradientError(f"output {name!r} is {value.type}, and only one number has a gradient",
                                    at=value.span, hint="seed=True makes the vector of a vector-Jacobian product an "
                                    f"input, seed={{{name!r}: array}} a constant; or reduce it")  # fmt: skip
        return {name: Constant(np.ones(value.shape, numpy_dtype(value.dtype))) for name, value in outputs.items()}
    require_mapping(seed, "seed", GradientError)
    unknown = [name for name in seed if name not in outputs]
    missing = [name for name in outputs if name not in seed]
    if unknown or missing:
        wrong = f"a seed is for {unknown[0]!r}, which" if unknown else f"there is no seed for {missing[0]!r}, which"
        raise GradientError(f"{wrong} is {'not ' if unknown else ''}differentiated",
                            hint=f"seeds are for: {_listed(outputs)}")  # fmt: skip
    given: dict[str, Expr] = {}
    for name, value in outputs.items():
        array = np.asarray(seed[name])
        if array.shape != value.shape or array.dtype.name not in (value.dtype, "float64"):
            raise GradientError(f"the seed of {name!r} is {array.dtype.name}{list(array.shape)}, but the output is "
                                f"{value.type}")  # fmt: skip
        given[name] = Constant(array.astype(numpy_dtype(value.dtype)), f"seed_{name}")
    return given


def _free_names(inputs: Sequence[Var], taken: Iterable[str]) -> list[str]:
    used, names = set(taken), []
    for value in inputs:
        name = f"grad_{value.name}"
        while name in used:
            name = f"grad_{name}"
        used.add(name)
        names.append(name)
    return names


def _missing(blocked: Sequence[object]) -> GradientError:
    count = len(blocked)
    lines = "".join(f"\n  {each}" for each in blocked)
    what = "an operator on the way has" if count == 1 else f"{count} operators on the way have"
    return GradientError(f"{what} no gradient:{lines}\n", hint="give a custom gradient for it (docs/gradients.md), or "
                         "choose outputs and inputs between which it does not stand")  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
