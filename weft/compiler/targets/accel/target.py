"""The accelerator as a target: quantised networks on a core, and what the core lacks on the host's processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ....hw.config import NAMED, CoreConfig, load_config
from ....hw.dram_rate import DramRate, parse_dram_rate
from ....hw.errors import ConfigError
from ....hw.system_config import MOST_CORES, SystemConfig
from ....imports import IMPORTS
from ...model import CompiledModel, HostCode, HostProgram
from ..cpu.processor import PROCESSORS, check_named
from ..cpu.target import Cpu, CpuOptions, check_threads
from ..errors import CompileError
from ..target import INTEGERS, PLAIN_JOB, Dump, Job, option, scope_of
from .stream.latency_hiding import LatencyHiding

if TYPE_CHECKING:  # loading a model takes no compiler
    from ...graph.ir import Module
    from ...passes.manager import Pass
    from .link.alone import Program


@dataclass(frozen=True)
class AccelOptions:
    """What only the accelerator's compilation asks for."""

    config: CoreConfig | str = option(
        "pynq", f"The core: {', '.join(NAMED)}, or a JSON file with the fields of CoreConfig.", short="-c"
    )
    dram: DramRate | str = option(
        "",
        "The memory to schedule for, which simulators then have: bytes a cycle, or BYTES,LATENCY. Empty: as fast as "
        "the core's bus, 100 cycles.",
    )
    tuned: str = option("", "Database of `weft tune`, whose settings come first. Empty: none.")
    vthreads: int = option(2, "Virtual threads: tiles in flight at once, which hide latency.")
    stages: int = option(1, "Stages of a pipeline: a program for each of so many cores, that take equally long.")
    cores: str | tuple[CoreConfig | str, ...] = option(
        "",
        "The core of each stage, where they are unlike: names or JSON files, commas between. Empty: all alike.",
        instead_of="config",
    )
    split: int = option(1, "Cores that share each layer of an item, for a shorter latency.")
    ports: str | tuple[int, ...] = option(
        "", "The memory port of each core of stages or of shared layers, with commas between. Empty: a port each."
    )
    branches: bool = option(True, "Branches may run side by side on cores that share layers, where that is faster.")
    chains: bool = option(True, "Chains of layers stay on chip where that is faster; slower to compile.")
    hiding: LatencyHiding | str = option(
        "rings", "How latencies are hidden: rings, vthreads (by those alone), or none, where engines wait in turn."
    )
    threads: int = option(1, "Threads of the host that share the work of what the core lacks.")
    processor: str = option(
        "host", f"The processor that does what the core lacks: host (this machine's), {', '.join(PROCESSORS)}."
    )
    integers: str = INTEGERS

    def __post_init__(self) -> None:
        if not isinstance(self.config, (str, CoreConfig)):
            raise CompileError(f"config is {self.config!r:.80}, but must be a CoreConfig or the name of one",
                               hint=f"known: {', '.join(NAMED)}, or the path of a JSON file as a text")  # fmt: skip
        if not isinstance(self.dram, (str, DramRate)):
            raise CompileError(f"dram is {self.dram!r:.80}, but must be a DramRate or a text",
                               hint="bytes a cycle, or BYTES,LATENCY: 4 or 4,120")  # fmt: skip
        _ = self.rate  # a core or a memory that there is not is told before the model is read
        if self.vthreads < 1:
            raise CompileError(f"vthreads is {self.vthreads}, but must be at least 1")
        if self.stages < 1:
            raise CompileError(f"stages is {self.stages}, but must be at least 1")
        self._check_cores()
        if not 1 <= self.split <= MOST_CORES:
            raise CompileError(f"split is {self.split}, but must be 1 to {MOST_CORES}: the cores of a system")
        if self.stages > 1 and self.split > 1:
            raise CompileError(f"{self.stages} stages, each split over {self.split} cores",
                               hint="give stages, for throughput, or split, for latency")  # fmt: skip
        self._check_ports()
        if self.hiding not in list(LatencyHiding):
            raise CompileError(f"hiding is {self.hiding!r}, but must be one of {', '.join(LatencyHiding)}")
        check_threads(self.threads)
        check_named(self.processor)
        scope_of(self.integers)

    def _check_cores(self) -> None:
        cores = self.stage_cores
        if not cores:
            return
        if len(cores) > MOST_CORES:
            raise CompileError(f"cores names {len(cores)}, but a system has at most {MOST_CORES}")
        if self.stages not in (1, len(cores)):
            raise CompileError(f"{self.stages} stages, but cores names {len(cores)}",
                               hint="name the core of each stage, or leave stages out")  # fmt: skip
        if self.split > 1:
            raise CompileError(f"layers that {self.split} cores share want cores that are alike",
                               hint="leave out split, or cores")  # fmt: skip
        if self.tuned:
            raise CompileError("a database of tuning is of one core", hint="leave out tuned, or cores")
        first = cores[0]
        for number, core in enumerate(cores):
            for name in ("batch", "rounding"):
                if getattr(core, name) != getattr(first, name):
                    raise CompileError(
                        f"{name} of {core.name!r} is {getattr(core, name)!r}, but that of {first.name!r} is "
                        f"{getattr(first, name)!r}", at=f"cores[{number}]",
                        hint="stages hand on their results as they are: give cores that agree in it",
                    )  # fmt: skip

    def _check_ports(self) -> None:
        if self.ports and max(self.stages, self.split, len(self.stage_cores)) == 1:
            raise CompileError("ports are of several cores, but the model is for one", at="ports",
                               hint="give stages, cores or split, or leave out ports")  # fmt: skip
        _ = self.shared_ports

    @property
    def shared_ports(self) -> tuple[int, ...]:
        """The port of each core of stages, or of those that share layers; none where each has its own. CompileError for
        what are no ports of so many cores."""
        if not isinstance(self.ports, (str, tuple, list)):
            raise CompileError(f"ports is {self.ports!r:.80}, but must be the port of each core",
                               hint="such as 0,0,1,1")  # fmt: skip
        if not self.ports:
            return ()
        try:
            given = tuple(map(int, self.ports.split(","))) if isinstance(self.ports, str) else tuple(self.ports)
            cores = self.stage_cores or (self.core,) * max(self.stages, self.split)
            ports = SystemConfig(cores=cores, ports=given).ports
        except ValueError as error:
            raise CompileError(f"ports is {self.ports!r:.80}, which are not all numbers",
                               hint="the port of each core, such as 0,0,1,1") from error  # fmt: skip
        except ConfigError as error:
            raise CompileError(error.message, at=error.at, hint="the port of each core, such as 0,0,1,1") from error
        return ports if len(set(ports)) < len(ports) else ()

    @property
    def core(self) -> CoreConfig:
        """The core; of several that of the first stage."""
        if self.cores != "":
            return self.stage_cores[0]
        return load_config(self.config) if isinstance(self.config, str) else self.config

    @property
    def stage_cores(self) -> tuple[CoreConfig, ...]:
        """The core of each stage, where they are named."""
        if not isinstance(self.cores, (str, tuple, list)):
            raise CompileError(f"cores is {self.cores!r:.80}, but must name the core of each stage",
                               hint="such as cores=(weft.PYNQ, weft.TINY)")  # fmt: skip
        if self.cores == "":
            return ()
        named = [name.strip() for name in self.cores.split(",")] if isinstance(self.cores, str) else self.cores
        if not named:
            raise CompileError(f"cores is {self.cores!r}, which names none",
                               hint="name the core of each stage, or leave cores out")  # fmt: skip
        for number, each in enumerate(named):
            if not isinstance(each, (str, CoreConfig)):
                raise CompileError(f"{each!r:.80} is no core", at=f"cores[{number}]",
                                   hint="a CoreConfig, the name of one, or a JSON file")  # fmt: skip
        return tuple(load_config(each) if isinstance(each, str) else each for each in named)

    @property
    def rate(self) -> DramRate:
        """The memory that schedules are chosen for."""
        if isinstance(self.dram, DramRate):
            return self.dram
        return parse_dram_rate(self.dram) if self.dram else DramRate.of(self.core)


def passes_to_integers(core: CoreConfig, integers: str, *others: CoreConfig) -> list[Pass]:
    """From a model as read to the integer graph that programs for a core, or for several, compute."""
    with IMPORTS:
        from ...passes.pipeline import integer_passes
        from ...passes.wide_activations import MULTIPLIERS
        from .operators.packed_layout import Blocks

    cores = (core, *others)
    return integer_passes(
        min(Blocks.of(each).product_block for each in cores), scope_of(integers),
        tables=any(each.tables for each in cores), core=True, rounding=core.rounding,
        wide=min(each.macs_per_cycle for each in cores) >= MULTIPLIERS,
    )  # fmt: skip


class Accel:
    """The accelerator (``docs/compiler.md``)."""

    name = "accel"
    summary = "the accelerator, on the RTL or the functional simulator"
    options = AccelOptions
    require_quantised = True
    takes_open_sizes = False
    tools: ClassVar[Mapping[str, str]] = {
        "tune": "weft.cli.tune_core:tune",
        "profile": "weft.cli.profile_core:profile_on_core",
    }
    _host = Cpu()

    def passes(self, options: AccelOptions, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        if options.cores:
            return self._passes_on_cores(options, job)
        return [*passes_to_integers(options.core, options.integers), *self._passes_on(options.core, options, job)]

    def _passes_on(self, core: CoreConfig, options: AccelOptions, job: Job, *, chains: bool = True) -> list[Pass]:
        """From the integer graph to kernels of a core."""
        with IMPORTS:
            from .operators.packed_layout import Blocks
            from .passes import accel_passes
            from .passes.chain import chains_pass
            from .passes.split_chains import SplitCosts

        rate = options.rate
        takes = options.chains and core.inp_takes_results
        steps = accel_passes(Blocks.of(core), rate.for_bus(core), core, chains=takes)
        if takes and chains and job.measure is not None and not job.keep:
            shared = SplitCosts(core, rate, options.vthreads, options.split, options.shared_ports, job)
            costs = shared if options.split > 1 else None
            steps.append(chains_pass(core, rate, job, threads=options.vthreads, tuned=options.tuned, split=costs))
        return steps

    def _passes_on_cores(self, options: AccelOptions, job: Job) -> list[Pass]:
        """To kernels of a core for each stage."""
        with IMPORTS:
            from .link.link import trial_programs
            from .passes.unlike_cores import StageCore, unlike_cores

        cores = options.stage_cores
        quiet = replace(job, progress=lambda _: None, dump=None)

        def programs_on(core: CoreConfig) -> Callable[[Module], list[Program]]:
            hiding = LatencyHiding(options.hiding)
            return lambda module: trial_programs(
                module, core, options.rate, quiet, vthreads=options.vthreads, hiding=hiding
            )

        before = passes_to_integers(cores[0], options.integers, *cores[1:])
        stages = [
            StageCore(core, self._passes_on(core, options, quiet),
                      self._passes_on(core, options, quiet, chains=False), programs_on(core))
            for core in cores
        ]  # fmt: skip
        names = [each.name for each in before]
        return [*before, unlike_cores(stages, options.rate, options.shared_ports, job, names)]

    def choose(
        self, compiled_by: Callable[[AccelOptions, Job], CompiledModel], options: AccelOptions, job: Job
    ) -> CompiledModel:
        """The fastest of what is made for the named memory and ports, and for the usual ones. A tuning database has
        measured for the named memory, so with it there is no other; neither with unlike cores, whose cuts are
        measured."""
        if options.tuned or options.cores:
            return compiled_by(options, job)
        with IMPORTS:
            from .named_memory import faster_in

        def compiled_for(rate: DramRate, ports: Sequence[int], dump: Dump | None) -> CompiledModel:
            chosen = options if rate == options.rate else replace(options, dram=rate)
            if ports != options.shared_ports:
                chosen = replace(chosen, ports=tuple(ports))
            return compiled_by(chosen, replace(job, dump=dump))

        return faster_in(options.core, options.rate, options.shared_ports, job, compiled_for)

    def link(self, module: Module, options: AccelOptions, job: Job) -> CompiledModel:
        with IMPORTS:
            from .link.kept_kernels import kernels_from

        with kernels_from(job.kept):
            return self._link(module, options, job)

    def _link(self, module: Module, options: AccelOptions, job: Job) -> CompiledModel:
        with IMPORTS:
            from .link.link import link
            from .link.tuned import tuned_settings

        host = CpuOptions(threads=options.threads, processor=options.processor)

        def link_host(functions: Module) -> HostProgram:
            return self._host.link_functions(functions, host, job)

        core, rate = options.core, options.rate
        tuned = tuned_settings(options.tuned, core, rate) if options.tuned else None
        hiding = LatencyHiding(options.hiding)
        made = link(
            module, core, rate, job, link_host, vthreads=options.vthreads, tuned=tuned, hiding=hiding,
            stages=1 if options.cores else options.stages, split=options.split, ports=options.shared_ports,
            branches=options.branches,
            cores=options.stage_cores,
        )  # fmt: skip
        if made.witness is None:
            return made
        return replace(made, witness=replace(made.witness, integers=str(options.integers)))

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> HostCode:
        return self._host.host_code(program, trusted=trusted, processor=processor)
