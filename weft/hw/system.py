"""Several cores as one module: their registers behind one slave, their buses behind the ports of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .axi import MasterSignature, RegisterSlaveSignature
from .bus import port_id_bits
from .config import CoreConfig
from .core import Core, page_bits, system_members
from .interconnect import Arbiter
from .register_windows import ADDRESS_BITS, RegisterWindows
from .relay import READ_ONLY, Relay, relay_ports
from .system_config import SystemConfig


class CoreInstance(wiring.Component):
    """A core that stands elsewhere as the Verilog module ``module``; without its trace."""

    def __init__(self, config: CoreConfig, module: str, *, tells_running: bool, in_relay: bool) -> None:
        self.module = module
        buses = {"m_axi": Out(MasterSignature(config)), "s_axil": Out(RegisterSlaveSignature())}
        more = system_members(config, tells_running=tells_running, in_relay=in_relay)
        super().__init__({**buses, "interrupt": Out(1), **more})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = {
            f"{'i' if member.flow is In else 'o'}_{'_'.join(str(part) for part in path)}": signal
            for path, member, signal in self.signature.flatten(self)
        }
        m.submodules.module = Instance(self.module, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)
        return m


class _Ports(TypedDict):
    tells_running: bool
    in_relay: bool


def system_ports(config: SystemConfig) -> _Ports:
    """Which ports its cores have that a core alone lacks: options of :class:`~weft.hw.core.Core`."""
    return {"tells_running": config.shared_reads or config.relay, "in_relay": config.relay}


class System(wiring.Component):
    """The cores of a :class:`~weft.hw.system_config.SystemConfig`. ``modules``: names of Verilog modules to stand for
    the cores, one for each.

    m0_axi, m1_axi, ...
        The memory ports. Behind an arbiter, an ID is the core's place on the port above the core's own ID.
    s_axil
        The registers of all cores (:mod:`.register_windows`).
    interrupts
        A bit for each core; above them, with ``relay``, one for all.
    running
        With ``relay``: the cores whose programs run, to see what waits for what.
    """

    def __init__(self, config: SystemConfig, modules: Sequence[str] = ()) -> None:
        self.config = config
        self.modules = tuple(modules)
        ports = {
            f"m{port}_axi": Out(MasterSignature(config.cores[0], port_id_bits(len(config.cores_of(port)))))
            for port in range(config.port_count)
        }
        count = len(config.cores)
        windows = {"s_axil": Out(RegisterSlaveSignature(ADDRESS_BITS)), "interrupts": Out(count + config.relay)}
        super().__init__(ports | windows | ({"running": Out(count)} if config.relay else {}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        configs = self.config.cores
        shares = self.config.shared_reads
        cores: list[Core | CoreInstance]
        ports = system_ports(self.config)
        if self.modules:
            each = zip(configs, self.modules, strict=True)
            cores = [CoreInstance(core, module, **ports) for core, module in each]
        else:
            cores = [Core(config, **ports) for config in configs]
        m.submodules.windows = windows = RegisterWindows(len(cores), shares_reads=shares, relay=self.config.relay)
        connect(m, windows.outside, flipped(self.s_axil))
        for number, core in enumerate(cores):
            m.submodules[f"core_{number}"] = core
            connect(m, core.s_axil, getattr(windows, f"core_{number}"))
        for port in range(self.config.port_count):
            outside = getattr(self, f"m{port}_axi")
            members = self.config.cores_of(port)
            if len(members) == 1:
                connect(m, cores[members[0]].m_axi, flipped(outside))
                continue
            weights = [self.config.weight_of(number) for number in members]
            arbiter = Arbiter([configs[number] for number in members], weights=weights, shares_reads=shares)
            m.submodules[f"arbiter_{port}"] = arbiter
            connect(m, arbiter.port, flipped(outside))
            for place, number in enumerate(members):
                connect(m, cores[number].m_axi, getattr(arbiter, f"core_{place}"))
            if shares:
                m.d.comb += [
                    arbiter.running.eq(Cat(cores[number].running for number in members)),
                    arbiter.shared_start.eq(windows.shared_start),
                    arbiter.shared_stop.eq(windows.shared_stop),
                ]
        interrupts = Cat(core.interrupt for core in cores)
        if self.config.relay:
            interrupts = Cat(interrupts, self._relay(m, windows, cores))
        m.d.comb += self.interrupts.eq(interrupts)
        return m

    def _relay(self, m: Module, windows: RegisterWindows, cores: Sequence[Core | CoreInstance]) -> Signal:
        """What lets the cores start each other; returns its interrupt."""
        count = len(cores)
        m.submodules.relay = relay = Relay(count, page_bits(self.config.cores[0]))
        for name, (_, register) in relay_ports(count).items():
            inside, outside = getattr(relay, name), getattr(windows, f"relay_{name}")
            m.d.comb += outside.eq(inside) if register.kind in READ_ONLY else inside.eq(outside)
        m.d.comb += [
            self.running.eq(Cat(core.running for core in cores)),
            relay.counting.eq(self.running),
            relay.members.eq(windows.members),
        ]
        for number, core in enumerate(cores):
            m.d.comb += [
                getattr(relay, f"status_{number}").eq(core.status),
                core.start.eq(relay.start[number]),
                core.shift.eq(getattr(relay, f"shift_{number}")),
                core.in_turn.eq(relay.in_turn[number]),
                core.turn_offset.eq(getattr(relay, f"program_{number}").offset),
                core.turn_count.eq(getattr(relay, f"program_{number}").count),
            ]
        interrupt: Signal = relay.interrupt
        return interrupt
