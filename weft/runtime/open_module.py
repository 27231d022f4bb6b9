"""Running a model whose inputs leave sizes open, or decide on its course: one compiled module for each size, and for
each value that has to be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.ir import GraphError
from ..compiler.model import CompiledModel, OpenModel
from ..imports import IMPORTS
from .errors import InputError
from .inputs import Array, check_kind, named_inputs
from .module import LoadedModule
from .run_lock import PICKLE_THE_MODEL, RunLock, stays_here

SIZES_KEPT = 4
"""Modules that are kept for their next run, by default. Each has its own copy of the packed weights."""


class OpenModule:
    """A model with open sizes, ready to run for any. It is compiled at the first use of a size, with the kernels that
    are on disk already, and kept until ``kept`` other sizes have run; so are the values of inputs on which its course
    depends, such as a sampling rate. Threads may share it."""

    __reduce__ = stays_here(PICKLE_THE_MODEL)

    def __init__(self, model: OpenModel, load: Callable[[CompiledModel], LoadedModule], kept: int = SIZES_KEPT) -> None:
        if kept < 1:
            raise InputError(f"kept is {kept}, but must be at least 1")
        self.model = model
        self._load = load
        self._kept = kept
        self._modules: list[_Sized] = []  # the one used last at the end
        self._symbols = model.types.symbols
        self._lock = RunLock()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.model.inputs))
        return f"<OpenModule {self.model.name!r} for {self.model.target!r}, inputs {inputs}>"

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """The sizes that are compiled at the moment, the one used last at the end."""
        with self._lock:
            return tuple(dict(zip(self._symbols, each.sizes, strict=True)) for each in self._modules)

    def run(
        self, inputs: Mapping[str, Array] | Array, outputs: Mapping[str, Array] | None = None, *, trace: bool = False
    ) -> dict[str, Array]:
        """Run the model once, for the sizes of these inputs; else as :meth:`LoadedModule.run`.

        Raises :class:`InputError` for data that does not fit, also where two inputs disagree about a symbol.
        """
        module, values = self.specialised(inputs)
        return module.run(values, outputs, trace=trace)

    def specialised(self, inputs: Mapping[str, Array] | Array) -> tuple[LoadedModule, dict[str, Array]]:
        """The module for the sizes of these inputs, and for those values that it needs, compiled if it is not there;
        and the inputs that are left for a run of it. InputError as for a run."""
        values = named_inputs(inputs, [each.name for each in self.model.inputs])
        with IMPORTS:
            from ..compiler.graph.symbolic import bind_sizes

        try:
            sizes = bind_sizes(self.model.inputs, {name: value.shape for name, value in values.items()})
        except GraphError as error:
            raise InputError(error.message, hint=error.hint) from None
        for each in self.model.inputs:
            shape, value = each.at(sizes), values[each.name]
            check_kind(each.name, value.shape, value.dtype, shape, numpy_dtype(each.dtype))
        module = self.at(sizes, values)
        return module, {each.name: values[each.name] for each in module.model.inputs}

    def at(self, sizes: Mapping[str, int], values: Mapping[str, Array] = {}) -> LoadedModule:
        """The module for sizes by symbol, and for values of inputs, compiled if it is not there."""
        key = tuple(sizes[symbol] for symbol in self._symbols)
        with self._lock:
            found = next((each for each in self._modules if each.is_for(key, values)), None)
            if found is None:
                module = self._load(self.model.at(sizes, values))
                taken = {each.name for each in module.model.inputs}
                built_in = {name: np.copy(value) for name, value in values.items() if name not in taken}
                found = _Sized(key, built_in, module)
            else:
                self._modules.remove(found)
            self._modules = [*self._modules, found][-self._kept :]
            return found.module


@dataclass(frozen=True, eq=False)
class _Sized:
    """A module for sizes, in the order of the model's symbols, and for the values of inputs that are built in."""

    sizes: tuple[int, ...]
    built_in: Mapping[str, Array]
    module: LoadedModule

    def is_for(self, sizes: tuple[int, ...], values: Mapping[str, Array]) -> bool:
        return sizes == self.sizes and all(
            name in values and np.array_equal(values[name], value) for name, value in self.built_in.items()
        )
