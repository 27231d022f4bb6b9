"""Stages of a pipeline on unlike cores: each is brought to packed kernels by the passes of its own core.

What cores can do differs, and so does what becomes one kernel, a chain, or work of the host. So the integer graph is
cut first: before a layer, where nothing but bytes goes on. Each stage then is a graph of its own, and the packed stages
are put together again. Where two cores store activations alike, a later stage reads them where an earlier one has left
them; else the host gives them the other layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph.host import renumber
from ....graph.ir import Call, Expr, Function, Module, Tuple, Var
from ....graph.registry import call, operator_of
from ....graph.visit import calls, substitute, topological_order, uniquely_named, with_children
from ....passes.manager import Pass
from ....passes.pipeline import PassOptions, run_passes
from ...errors import CompileError
from ...target import Job
from ..link.alone import Program
from ..link.phases import STAGE, is_primitive
from ..link.split import cycles_of_stages
from ..link.stages import Cost, of_stages, shortest
from ..operators.packed_layout import is_packable


@dataclass(frozen=True)
class StageCore:
    """How a stage is compiled for a core. ``passes``: from the integer graph to packed kernels; ``quick``: the same
    without chains; ``programs``: of a packed module, to be measured."""

    config: CoreConfig
    passes: Sequence[Pass]
    quick: Sequence[Pass]
    programs: Callable[[Module], Sequence[Program]]


@dataclass(frozen=True)
class Piece:
    """A run of the integer graph's calls as a module: the values that it takes, by the names of its parameters, and
    those that it gives, in the order of its results."""

    module: Module
    takes: dict[str, Expr]
    gives: tuple[Expr, ...]


def unlike_cores(
    cores: Sequence[StageCore], rate: DramRate, ports: Sequence[int], job: Job, ran: Sequence[str]
) -> Pass:
    """The pass: from the integer graph to packed kernels, a stage for each of ``cores``, in their order; the longest is
    as short as measured cuts make it. ``rate``: of the memory behind each port. ``ports``: that of each core, where
    some share one and wait for each other there; else none. ``ran``: names of the passes before it."""

    def run(module: Module) -> Module:
        return _Stages(module, cores, rate, tuple(ports), job, tuple(ran)).run()

    return Pass("unlike-cores", run, stage="chained", about=__doc__ or "")


@dataclass
class _Stages:
    module: Module
    cores: Sequence[StageCore]
    rate: DramRate
    ports: tuple[int, ...]
    job: Job
    ran: tuple[str, ...]
    order: list[Call] = field(default_factory=list)
    places: dict[Expr, int] = field(default_factory=dict)
    readers: dict[Expr, int] = field(default_factory=dict)
    packed: dict[tuple[int, int, int, bool], Module] = field(default_factory=dict)
    programs: dict[tuple[int, int, int, bool], Sequence[Program]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Number the calls; of each value the call that makes it, and the last one that reads it."""
        for node in topological_order(self.module.main.body):
            if node in self.places:
                continue
            if isinstance(node, Call) and not node.static:
                self.places[node] = len(self.order)
                self.readers |= dict.fromkeys(node.args, len(self.order))
                self.order.append(node)
            else:
                self.places[node] = max((self.places[child] for child in node.children), default=-1)

    def run(self) -> Module:
        if self.job.measure is None:
            raise CompileError("what cores share is cut by measured cycles, but nothing measures them",
                               hint="compile with weft.compile")  # fmt: skip
        edges = [0, *filter(self._may_be_cut, range(1, len(self.order))), len(self.order)]
        items = len(edges) - 1
        if items < len(self.cores):
            raise CompileError(f"the network can be cut into {items} parts, which are no {len(self.cores)} stages",
                               hint="name fewer cores")  # fmt: skip
        alone = [self._costs(number, edges) for number in range(len(self.cores))]
        least = [min(left for left, _ in each) for each in zip(*alone, strict=True)]
        costs: list[list[Cost]] = [
            [(left - few, cycles) for (left, cycles), few in zip(own, least, strict=True)] for own in alone
        ]

        def taken(stages: Sequence[tuple[int, int]], ports: Sequence[int]) -> list[Cost]:
            places = [(edges[first], edges[stop]) for first, stop in stages]
            more = [
                max(0, self._left(number, *place, quick=False) - sum(least[first:stop]))
                for number, (place, (first, stop)) in enumerate(zip(places, stages, strict=True))
            ]
            return list(zip(more, self._cycles(places, ports), strict=True))

        def cut(ports: Sequence[int]) -> tuple[int, ...]:
            known: dict[int, list[Cost]] = {}  # like cores have one list, but not where each waits for others
            own = [[*costs[place]] if ports else known.setdefault(self._like(place), [*costs[place]])
                   for place in range(len(self.cores))]  # fmt: skip
            return shortest(own, lambda stages: taken(stages, ports))

        def whole(cuts: tuple[int, ...]) -> Cost:
            return of_stages(taken(list(pairwise((0, *cuts, items))), self.ports))

        cuts = min((cut(self.ports), cut(())), key=whole) if self.ports else cut(())
        places = [edges[item] for item in (0, *cuts, items)]
        return self._joined(list(pairwise(places)))

    def _like(self, number: int) -> int:
        """The first core that is like a core."""
        wanted = self.cores[number].config.hash64
        return next(place for place, core in enumerate(self.cores) if core.config.hash64 == wanted)

    def _may_be_cut(self, place: int) -> bool:
        """Whether a layer begins with a call, and only bytes with an activation's layout go on there."""
        entry = operator_of(self.order[place])
        if entry is None or entry.anchor is None:
            return False
        return all(
            is_packable(value.tensor_type)
            for value, last in self.readers.items()
            if 0 <= self.places[value] < place <= last
        )

    def _costs(self, number: int, edges: Sequence[int]) -> list[tuple[int, int]]:
        """Of each part between edges by itself: the layers that are left to the host, and cycles."""
        if self._like(number) == number:
            self.job.progress(f"measuring layers on {self.cores[number].config.name}")
        core, found = [self.cores[number].config], []
        for place in pairwise(edges):
            programs = self._programs(number, *place, quick=True)
            (cycles,) = cycles_of_stages([programs], core, (), self.rate, self.job)
            found.append((self._left(number, *place, quick=True), cycles))
        return found

    def _left(self, number: int, first: int, stop: int, *, quick: bool) -> int:
        """Layers that a core leaves to the host."""
        packed = self._packed(number, first, stop, quick=quick)
        return len([node for node in calls(packed.main.body) if not is_primitive(node) and not _is_passive(node)])

    def _cycles(self, stages: Sequence[tuple[int, int]], ports: Sequence[int]) -> list[int]:
        """Of each stage on its core; of all at once where cores share some of these ports."""
        programs = [self._programs(number, *place, quick=False) for number, place in enumerate(stages)]
        return cycles_of_stages(programs, [core.config for core in self.cores], ports, self.rate, self.job)

    def _programs(self, number: int, first: int, stop: int, *, quick: bool) -> Sequence[Program]:
        key = self._like(number), first, stop, quick
        if key not in self.programs:
            self.programs[key] = self.cores[number].programs(self._packed(number, first, stop, quick=quick))
        return self.programs[key]

    def _packed(self, number: int, first: int, stop: int, *, quick: bool) -> Module:
        """Some calls as kernels of a core."""
        key = self._like(number), first, stop, quick
        if key not in self.packed:
            core = self.cores[number]
            module = self._piece(first, stop).module
            self.packed[key] = run_passes(module, core.quick if quick else core.passes, PassOptions(), ran=self.ran)
        return self.packed[key]

    def _piece(self, first: int, stop: int) -> Piece:
        """The calls from number ``first`` to the one before ``stop``."""
        wanted = dict.fromkeys(
            [
                *(value for value, last in self.readers.items() if first <= self.places[value] < stop <= last),
                *(value for value in self.module.main.results if first <= self.places[value] < stop),
            ]
        )
        taken = dict.fromkeys(
            value for node in self.order[first:stop] for value in node.args
            if not value.static and self.places[value] < first
        )  # fmt: skip
        names = [value.name if isinstance(value, Var) else f"{self.places[value]} of stages" for value in taken]
        params = [Var(name, value.tensor_type, value.span) for name, value in zip(names, taken, strict=True)]
        body = substitute(Tuple(tuple(wanted)), dict(zip(taken, params, strict=True)))
        outputs = tuple(map(str, range(len(wanted))))
        main = Function(tuple(params), body, self.module.main.attrs.replace(outputs=outputs))
        return Piece(Module(main, self.module.stage), dict(zip(names, taken, strict=True)), tuple(wanted))

    def _joined(self, stages: Sequence[tuple[int, int]]) -> Module:
        """The packed stages as one module, whose calls say their stage."""
        made: dict[Expr, Expr] = {}
        for number, (first, stop) in enumerate(stages):
            piece, packed = self._piece(first, stop), self._packed(number, first, stop, quick=False)
            values: dict[int, Expr] = {}
            for node in topological_order(packed.main.body):
                if isinstance(node, Var):
                    value = piece.takes[node.name]
                    values[id(node)] = made.get(value, value)
                    continue
                new = with_children(node, tuple(values[id(child)] for child in node.children))
                values[id(node)] = _where_it_lies(new) or _of_stage(new, number)
            results = zip(piece.gives, packed.main.results, strict=True)
            made |= {value: values[id(result)] for value, result in results}
        found = [made.get(value, value) for value in self.module.main.results]
        whole = isinstance(self.module.main.body, Tuple)
        body = Tuple(tuple(found), self.module.main.body.span) if whole else found[0]
        return uniquely_named(self.module.with_main(renumber(body)))


def _of_stage(node: Expr, stage: int) -> Expr:
    """A value as one of a stage, if it is a call."""
    return call(node.op, *node.args, span=node.span, **{**node.attrs, STAGE: stage}) if isinstance(node, Call) else node


def _where_it_lies(node: Expr) -> Expr | None:
    """The packed value that a call packs, if it was unpacked for that alone and has the same layout."""
    plain = node.args[0] if isinstance(node, Call) and _host_operator(node) == "pack" else None
    if not isinstance(plain, Call) or _host_operator(plain) != "unpack":
        return None
    return plain.args[0] if plain.args[0].type == node.type else None


def _host_operator(node: Call) -> str:
    """The one operator of a function of the host; empty for other calls."""
    inner = node.op.body if isinstance(node.op, Function) and node.op.host_reason else None
    return inner.op if isinstance(inner, Call) and isinstance(inner.op, str) else ""


def _is_passive(node: Call) -> bool:
    """Whether a function of the host is none of a model's layers."""
    entries = [operator_of(each) for each in calls(node.op.body)] if isinstance(node.op, Function) else []
    return all(entry is not None and entry.passive for entry in entries)
