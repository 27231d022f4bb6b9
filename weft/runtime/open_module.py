"""Running a model whose inputs leave sizes open: one compiled module for each size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from ..compiler.graph.ir import GraphError
from ..compiler.model import CompiledModel, OpenModel
from ..imports import IMPORTS
from .errors import InputError
from .inputs import Array, named_inputs
from .module import LoadedModule
from .run_lock import RunLock

SIZES_KEPT = 4
"""Modules that are kept for their next run, by default. Each has its own copy of the packed weights."""


class OpenModule:
    """A model with open sizes, ready to run for any. It is compiled at the first use of a size, with the kernels that
    are on disk already, and kept until ``kept`` other sizes have run. Threads may share it."""

    def __init__(self, model: OpenModel, load: Callable[[CompiledModel], LoadedModule], kept: int = SIZES_KEPT) -> None:
        if kept < 1:
            raise InputError(f"kept is {kept}, but must be at least 1")
        self.model = model
        self._load = load
        self._kept = kept
        self._modules: OrderedDict[tuple[int, ...], LoadedModule] = OrderedDict()
        self._symbols = model.types.symbols
        self._lock = RunLock()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.model.inputs))
        return f"<OpenModule {self.model.name!r} for {self.model.target!r}, inputs {inputs}>"

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """The sizes that are compiled at the moment, the one used last at the end."""
        with self._lock:
            return tuple(dict(zip(self._symbols, key, strict=True)) for key in self._modules)

    def run(
        self, inputs: Mapping[str, Array] | Array, outputs: Mapping[str, Array] | None = None, *, trace: bool = False
    ) -> dict[str, Array]:
        """Run the model once, for the sizes of these inputs; else as :meth:`LoadedModule.run`.

        Raises :class:`InputError` for data that does not fit, also where two inputs disagree about a symbol.
        """
        values = named_inputs(inputs, [each.name for each in self.model.inputs])
        return self.specialised(values).run(values, outputs, trace=trace)

    def specialised(self, inputs: Mapping[str, Array]) -> LoadedModule:
        """The module for the sizes of these inputs, compiled if it is not there."""
        with IMPORTS:
            from ..compiler.graph.symbolic import bind_sizes

        try:
            sizes = bind_sizes(self.model.inputs, {name: value.shape for name, value in inputs.items()})
        except GraphError as error:
            raise InputError(error.message, hint=error.hint) from None
        return self.at(sizes)

    def at(self, sizes: Mapping[str, int]) -> LoadedModule:
        """The module for sizes by symbol, compiled if it is not there."""
        key = tuple(sizes[symbol] for symbol in self._symbols)
        with self._lock:
            module = self._modules.pop(key, None) or self._load(self.model.at(sizes))
            self._modules[key] = module
            while len(self._modules) > self._kept:
                self._modules.popitem(last=False)
            return module
