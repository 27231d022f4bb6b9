"""What a proof is made of: a real module of the core, free inputs, assumptions, ghost state and properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth.asserts import AnyConst
from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Const,
    Elaboratable,
    Fragment,
    MemoryInstance,
    Module,
    ResetInserter,
    Signal,
    Value,
    ValueCastable,
)
from amaranth.lib.wiring import Component, In
from amaranth.utils import ceil_log2


class Harness:
    """Top level of a proof. Everything that is not driven is free: it may have any value in any cycle."""

    def __init__(self) -> None:
        self.m = Module()
        # No reset from outside: a trace begins in the state after power-up, or (induction) in any state.
        self.m.domains.sync = domain = ClockDomain("sync", reset_less=True)
        self._ports: list[Value] = [domain.clk]
        self.properties = 0

    def free(self, name: str, shape: Any = 1) -> Any:
        """A value that may change in every cycle."""
        signal = Signal(shape, name=name)
        self._ports.append(Value.cast(signal))
        return signal

    def constant(self, name: str, shape: Any = 1) -> Any:
        """Any value, but the same in all cycles."""
        signal = Signal(shape, name=name)
        self.m.d.comb += Value.cast(signal).eq(AnyConst(Value.cast(signal).shape()))
        return signal

    def add(self, name: str, component: Component, *, driven: tuple[str, ...] = (), clear: Any = None) -> Inside:
        """Put a module of the core under proof; its inputs are free, except for the members in ``driven``."""
        for path, member, value in component.signature.flatten(component):
            if member.flow is In and path[0] not in driven:
                self._ports.append(value.as_value() if isinstance(value, ValueCastable) else value)
        return self.add_elaboratable(name, component, clear=clear)

    def add_elaboratable(self, name: str, design: Elaboratable, *, clear: Any = None) -> Inside:
        """Like :meth:`add`, with all inputs connected by the caller."""
        fragment = Fragment.get(design, None)
        if clear is not None:
            fragment = ResetInserter(clear)(fragment)
        self.m.submodules[name] = fragment
        return Inside(fragment)

    def assume(self, condition: Any) -> None:
        """The module's surroundings keep this in every cycle."""
        self.m.d.comb += Assume(condition)

    def prove(self, condition: Any, name: str) -> None:
        """This holds in every cycle; ``name`` is what the report of a counterexample says."""
        holds = Signal(name=f"holds_{self.properties}_{name}")
        self.properties += 1
        self.m.d.comb += [holds.eq(Value.cast(condition).bool()), Assert(holds)]

    def rtlil(self) -> str:
        return str(rtlil.convert(self.m, name="proof", ports=self._ports, emit_src=False))


class Inside:
    """Registers and memories of an elaborated module, by the names that its source gives them."""

    def __init__(self, fragment: Fragment) -> None:
        self._signals: dict[str, Signal] = {}
        self._memories: dict[str, MemoryInstance] = {}
        for path, part in _walk(fragment, ""):
            if isinstance(part, MemoryInstance):
                self._memories[path.removesuffix(".")] = part
                continue
            for statements in part.statements.values():
                for signal in statements._lhs_signals():
                    self._signals.setdefault(path + signal.name, signal)

    def __getitem__(self, path: str) -> Signal:
        """The signal called ``path``: names of submodules and the signal's own, with dots between."""
        if path not in self._signals:
            raise KeyError(f"no signal {path!r}; there are: {', '.join(sorted(self._signals))}")
        return self._signals[path]

    def rows(self, path: str) -> list[Signal]:
        """Every row of the memory in submodule ``path``, as it stands in this cycle."""
        if path not in self._memories:
            raise KeyError(f"no memory {path!r}; there are: {', '.join(sorted(self._memories))}")
        memory = self._memories[path]
        rows = []
        for number in range(memory._data.depth):
            row = Signal(Value.cast(memory._write_ports[0]._data).shape(), name=f"{path.replace('.', '_')}_{number}")
            address = Const(number, ceil_log2(memory._data.depth))
            memory.read_port(domain="comb", addr=address, data=row, en=Const(1), transparent_for=())
            rows.append(row)
        return rows


def _walk(fragment: Fragment, path: str) -> Iterator[tuple[str, Fragment]]:
    yield path, fragment
    for position, (part, name, _) in enumerate(fragment.subfragments):
        yield from _walk(part, f"{path}{name or position}.")
