"""Registers at the ends of every engine: which outputs depend on which inputs in the same cycle, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from amaranth.hdl import Cat, Fragment, Module, ValueCastable
from amaranth.hdl._ir import PortDirection, build_netlist
from amaranth.hdl._nir import Net, Netlist
from amaranth.lib.wiring import Component, In, Out
from weft.hw.config import TINY
from weft.hw.core import Core
from weft.hw.fetch import Fetch
from weft.hw.gemm import GemmEngine
from weft.hw.isa import Engine
from weft.hw.load import LoadEngine
from weft.hw.read_dma import ReadMaster
from weft.hw.store import StoreEngine
from weft.hw.vector import VectorEngine
from weft.hw.write_dma import WriteMaster

Paths = Mapping[str, frozenset[str]]

START: dict[str, set[str]] = {"commands_ready": {"tokens", "stop"}, "take": {"tokens", "stop"}, "idle": {"stop"}}
"""What all engines but fetch have. An instruction starts in the cycle in which its last token is there, and takes it;
``stop`` is a register of the core."""

COMPONENTS: dict[str, tuple[Callable[[], Component], dict[str, set[str]]]] = {
    "load": (lambda: LoadEngine(TINY, Engine.LOAD), START),
    "loadw": (lambda: LoadEngine(TINY, Engine.LOADW), START),
    "gemm": (lambda: GemmEngine(TINY), START),
    "vector": (lambda: VectorEngine(TINY), START),
    "store": (lambda: StoreEngine(TINY), START),
    # AXI masters: the ready of a burst's address, or of a word, is handed on to the client whose burst or word it is.
    "read": (
        lambda: ReadMaster(TINY),
        {
            f"clients_{client}_bursts_ready": {
                "axi_arready", "stop", *(f"clients_{other}_bursts_valid" for other in range(3) if other != client),
            }
            for client in range(3)
        },
    ),
    "write": (
        lambda: WriteMaster(TINY),
        {
            "client_bursts_ready": {"axi_awready", "client_bursts_payload", "client_bursts_valid", "stop"},
            "beat": {"axi_wready"},
        },
    ),
    "core": (lambda: Core(TINY), {}),
}  # fmt: skip
"""Every component, and its only paths from inputs to outputs: handshakes, no data."""


def combinational_paths(component: Component) -> Paths:
    """For each output, the inputs that it depends on in the same cycle."""
    ports = []
    for path, member, value in component.signature.flatten(component):
        signal = value.as_value() if isinstance(value, ValueCastable) else value
        direction = PortDirection.Input if member.flow is In else PortDirection.Output
        ports.append(("_".join(str(part) for part in path), signal, direction))
    netlist = build_netlist(Fragment.get(component, None), ports=ports)
    inputs = {
        Net.from_cell(0, bit): name
        for name, (start, width) in netlist.top.ports_i.items()
        for bit in range(start, start + width)
        if name not in ("clk", "rst")
    }
    known: dict[Net, frozenset[str]] = {}
    return {
        name: found
        for name, value in netlist.top.ports_o.items()
        if (found := frozenset().union(*(_inputs_of(netlist, net, inputs, known) for net in value)))
    }


def _inputs_of(
    netlist: Netlist, end: Net, inputs: Mapping[Net, str], known: dict[Net, frozenset[str]]
) -> frozenset[str]:
    """Inputs from which there is a path to ``end`` without a register in between."""
    waiting = [end]
    while waiting:
        net = waiting[-1]
        sources: list[Net] = []
        if not net.is_const and net.cell != 0:
            sources = [source for source, _ in netlist.cells[net.cell].comb_edges_to(net.bit)]
        if unknown := [source for source in sources if source not in known]:
            waiting += unknown
            continue
        waiting.pop()
        own = frozenset({inputs[net]}) if net in inputs else frozenset[str]()
        known[net] = own.union(*(known[source] for source in sources))
    return known[end]


@pytest.mark.parametrize("name", COMPONENTS)
def test_only_handshakes_pass_without_a_register(name: str) -> None:
    build, allowed = COMPONENTS[name]
    assert combinational_paths(build()) == allowed


def test_fetch_passes_only_what_depends_on_settings_and_queues() -> None:
    paths = combinational_paths(Fetch(TINY))
    settings = {"count", "offset", "window_size", "stop"}  # registers that do not change while a program runs
    assert paths["progress"] - settings == {f"commands_{engine}_ready" for engine in range(len(Engine))}
    for name in paths.keys() - {"progress"}:
        assert paths[name] <= settings, name


class _Example(Component):
    """``sum`` shows its operands at once, ``late`` a cycle later, ``low`` only the lowest bits."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(4), "sum": Out(5), "late": Out(5), "low": Out(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.sum.eq(self.a + self.b), self.low.eq(Cat(self.a[0], self.b[0]))]
        m.d.sync += self.late.eq(self.sum)
        return m


def test_paths_end_at_registers() -> None:
    assert combinational_paths(_Example()) == {"sum": {"a", "b"}, "low": {"a", "b"}}
