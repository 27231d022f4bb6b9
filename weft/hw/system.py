"""Several cores as one module: their registers behind one slave, their buses behind the ports of memory."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .axi import MasterSignature, RegisterSlaveSignature
from .config import CoreConfig
from .core import Core
from .interconnect import Arbiter, port_id_bits
from .register_windows import ADDRESS_BITS, RegisterWindows
from .system_config import SystemConfig


class CoreInstance(wiring.Component):
    """A core that stands elsewhere as the Verilog module ``module``; without its trace."""

    def __init__(self, config: CoreConfig, module: str, *, tells_running: bool) -> None:
        self.module = module
        buses = {"m_axi": Out(MasterSignature(config)), "s_axil": Out(RegisterSlaveSignature())}
        super().__init__({**buses, "interrupt": Out(1), **({"running": Out(1)} if tells_running else {})})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = {
            f"{'i' if member.flow is In else 'o'}_{'_'.join(str(part) for part in path)}": signal
            for path, member, signal in self.signature.flatten(self)
        }
        m.submodules.module = Instance(self.module, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)
        return m


class System(wiring.Component):
    """The cores of a :class:`~weft.hw.system_config.SystemConfig`. ``modules``: names of Verilog modules to stand for
    the cores, one for each.

    m0_axi, m1_axi, ...
        The memory ports. Behind an arbiter, an ID is the core's place on the port above the core's own ID.
    s_axil
        The registers of all cores (:mod:`.register_windows`).
    interrupts
        A bit for each core.
    """

    def __init__(self, config: SystemConfig, modules: Sequence[str] = ()) -> None:
        self.config = config
        self.modules = tuple(modules)
        ports = {
            f"m{port}_axi": Out(MasterSignature(config.cores[0], port_id_bits(len(config.cores_of(port)))))
            for port in range(config.port_count)
        }
        windows = {"s_axil": Out(RegisterSlaveSignature(ADDRESS_BITS)), "interrupts": Out(len(config.cores))}
        super().__init__(ports | windows)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        configs = self.config.cores
        shares = self.config.shared_reads
        cores: list[Core | CoreInstance]
        if self.modules:
            cores = [CoreInstance(*each, tells_running=shares) for each in zip(configs, self.modules, strict=True)]
        else:
            cores = [Core(config, tells_running=shares) for config in configs]
        m.submodules.windows = windows = RegisterWindows(len(cores), shares_reads=shares)
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
            arbiter = Arbiter([configs[number] for number in members], shares_reads=shares)
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
        m.d.comb += self.interrupts.eq(Cat(core.interrupt for core in cores))
        return m
