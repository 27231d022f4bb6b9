"""Chains: layers that become one function, because tile by tile they are faster than one after another.

Results of a chain's layers stay in the scratchpads; only the last goes to DRAM. A layer joins the one that reads its
result if nothing else does. Which of the layers in a row become chains an estimate proposes; programs decide: that of a
chain must be faster than that of its layers apart, by ``Measure``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from math import prod
from typing import NamedTuple

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.load_counts import bytes_of
from .....hw.programs import Code, disassemble
from ....graph import Attrs, Call, Constant, Expr, Function, Module, Span, Var, call, calls
from ....graph.registry import Anchor, operator_of
from ....graph.visit import topological_order, use_counts, with_children
from ....passes.manager import Counted, Pass
from ...errors import CompileError
from ...memory_plan import aligned
from ...target import Job, Measure
from ..cost.chain_tiling import chain_estimates, chain_tilings
from ..link.alone import kernel_program
from ..link.chain_plan import PLAN, ChainPlan
from ..link.compile_kernel import generate_slice
from ..link.depthwise_split import estimate_apart, on_array
from ..link.forms import ARRAY, MODE, VECTOR
from ..link.function_program import unchecked_program
from ..link.kept_kernels import kept_result, kernels_from
from ..link.slices import KernelSlice, slices_of
from ..link.tuned import Lookup, Tuned, chain_text, layer_text, tuned_settings
from ..operators.depthwise_mode import in_depthwise_mode
from ..operators.filled_parameters import fills_pay
from ..operators.lower import lower_function
from ..operators.operators import AS_PIXEL, is_requantised, packed_form
from ..schedule.tiling import ChainTiling, Problem
from ..walk.emit import Emitter
from ..walk.emit_nest import DramBuffer
from .function_signature import signature
from .split_chains import SplitCosts

MOST_LAYERS = 3
"""Layers in a chain."""

TILINGS_TRIED = 3
"""Tilings of which programs are made until one finds room: for each form of a chain, the best by the estimate."""

TILINGS_TRIED_IN_MODE = 6
"""In the depthwise mode, which fills the scratchpads more: until two find room."""

SECOND_TILING_TIMES = 1.05
"""The second of these is tried where its estimate is at most so many times that of the first."""

WINDOWED_LAYERS = 2
"""Layers of a chain whose windows overlap. The bounds of what tiles need become long with each."""

MEASURED_TIMES_IN_MODE = 0.95
"""Chains in the depthwise mode are measured whose estimate is at most so many times that of their layers: it leaves out
what makes engines wait for each other. Of the others all are measured that are not estimated to be slower."""

GAIN_SHARE = 0.02
"""A chain must save this share of its layers' cycles: what stands beside it in the program may cost as much."""

GAIN_SHARE_OF_LONG = 0.01
"""Or this share, where it is more than an answer of the memory takes, which is what it costs those beside it."""

SLOWER_SHARE = 0.15
"""Where a chain takes this share more than the estimate of its layers, no program of these is made."""

Form = Callable[[Function], Function | None]
"""From a depthwise function to what computes it."""


def on_vector_engine(function: Function) -> Function:
    """The form that depthwise functions have from the start."""
    return function


Candidate = tuple[str, ChainTiling, float]
"""A form of a chain's depthwise layers, a tiling, and the estimate."""


@dataclass(frozen=True)
class Promising:
    """Layers in a row that may become a chain, and how."""

    part: tuple[Call, ...]
    candidates: Sequence[Candidate]


class Taken(NamedTuple):
    """Cycles of a program, and bytes of DRAM that it moves."""

    cycles: int
    moved: int


@dataclass(frozen=True)
class Decision:
    """How a chain is compiled, what it takes and what its layers apart take; the record that says so, if one does."""

    tiling: ChainTiling
    form: str
    together: Taken
    apart: Taken
    tuned: Tuned | None = None

    def plan(self, part: Sequence[Call]) -> ChainPlan:
        """For the linker; ``part``: the chain's layers, whose results but the last stay on the core."""
        saved = 2 * sum(prod(node.shape) for node in part[:-1])
        record = self.tuned.record if self.tuned is not None else 0
        return ChainPlan(self.tiling, self.form, self.together.cycles, self.apart.cycles, saved, record)


def chain(
    module: Module, config: CoreConfig, rate: DramRate, measure: Measure, *, threads: int, tuned: Lookup | None = None
) -> Module:
    """The packed module with its chains. Functions that were considered and stay alone say why (``not_chained``).

    ``threads``, ``tuned``: how layers apart are compiled.
    """
    return _Chainer(module, config, rate, threads, tuned, measure=measure).run().module


def chains_pass(core: CoreConfig, rate: DramRate, job: Job, threads: int, tuned: str, split: SplitCosts | None) -> Pass:
    """The pass that makes chains where the job's measure says that they are faster; it counts them. ``tuned``: the path
    of a tuning database, or nothing. ``split``: what layers take that cores share."""

    def run(module: Module) -> Counted:
        if job.measure is None:
            return Counted(module, 0)
        job.progress("choosing chains")
        lookup = tuned_settings(tuned, core, rate) if tuned else None
        with kernels_from(job.kept):
            return _Chainer(module, core, rate, threads, lookup, measure=job.measure, split=split).run()

    return Pass("chains", run, needs=("pack-layout",), stage="chained", about=__doc__ or "")


def promising_chains(module: Module, config: CoreConfig, rate: DramRate, threads: int) -> list[Promising]:
    """The layers in a row of a packed module that may be faster as chains, whatever else they are part of."""
    return list(_Proposer(module, config, rate, threads).promising())


def chainable(module: Module, config: CoreConfig) -> frozenset[Call]:
    """The layers of a packed module whose results a chain may keep on the core, whether that pays or not."""
    rows, _ = _rows(module) if config.inp_takes_results else ((), {})
    return frozenset(node for row in rows for node in row[:-1])


def _rows(module: Module) -> tuple[Sequence[Sequence[Call]], Mapping[Expr, str]]:
    """Layers in a row, each of which alone reads the result of the one before; and of others why theirs does not stay
    on the core."""
    body = module.main.body
    uses = use_counts(body)
    layers = [node for node in calls(body) if isinstance(node.op, Function) and node.op.is_primitive]
    before: dict[Call, Call] = {}
    reasons: dict[Expr, str] = {}
    for node in layers:
        for place, arg in enumerate(node.args):
            if isinstance(arg, Call) and isinstance(arg.op, Function) and arg.op.is_primitive:
                reason = why_not(arg, node, place, uses[arg])
                if reason:
                    reasons.setdefault(arg, reason)
                else:
                    before[node] = arg
    after = {first: second for second, first in before.items()}
    rows = []
    for node in layers:
        if node not in before and node in after:
            rows.append([node])
            while rows[-1][-1] in after:
                rows[-1].append(after[rows[-1][-1]])
    return rows, reasons


@dataclass
class _Proposer:
    """Which layers of a module may become chains, by estimates, or by what a database has measured of them."""

    module: Module
    config: CoreConfig
    rate: DramRate
    threads: int
    tuned: Lookup | None = None
    _estimates: dict[object, float] = field(default_factory=dict)
    _candidates_of: dict[object, list[Candidate]] = field(default_factory=dict)
    _merged: dict[object, Function] = field(default_factory=dict)
    _records: dict[object, Tuned | None] = field(default_factory=dict)
    _reasons: dict[Expr, str] = field(default_factory=dict)

    def promising(self) -> Iterator[Promising]:
        """Parts of which the estimate says that a chain might be faster, with the cheapest tilings of each form."""
        for path in self._paths() if self.config.inp_takes_results else ():
            for part in _parts_of(path):
                if _windows(part) > WINDOWED_LAYERS:
                    continue
                candidates = self._candidates(part)
                apart = sum(map(self._apart, part))
                if min((cost for *_, cost in candidates), default=float("inf")) <= apart:
                    yield Promising(tuple(part), candidates)

    def _paths(self) -> Sequence[Sequence[Call]]:
        rows, reasons = _rows(self.module)
        self._reasons = {**reasons, **self._reasons}
        return rows

    def _apart(self, node: Call) -> float:
        function = _function(node)
        key = ("apart", signature(function))
        if key not in self._estimates:
            kernel = lower_function(function)
            text = layer_text(kernel) if is_depthwise(function) else kernel.signature
            found = self.tuned(text) if self.tuned is not None else None
            self._estimates[key] = float(found.cycles) if found is not None else self._estimated(function)
        return self._estimates[key]

    def _estimated(self, function: Function) -> float:
        def estimate() -> float:
            return estimate_apart(self.config, self.rate, function, lower_function(function), self.threads)

        return kept_result(estimate, self.config, "layer apart", signature(function), self.rate, self.threads)

    def _candidates(self, part: Sequence[Call]) -> list[Candidate]:
        """How depthwise layers are computed, and how the chain is tiled; its estimate."""
        key = _key(part)
        if key not in self._candidates_of:
            self._candidates_of[key] = kept_result(
                lambda: self._tried(part), self.config, "chain's tilings", key, _wiring(part), self.rate
            )
        return self._candidates_of[key]

    def _tried(self, part: Sequence[Call]) -> list[Candidate]:
        found: list[Candidate] = []
        forms = forms_of(self.config, part)
        for name in (MODE,) if MODE in forms else forms:
            problem = Problem(self.config, lower_function(self._whole(part, name)), 1, rate=self.rate)
            tilings = chain_tilings(problem)[: TILINGS_TRIED_IN_MODE if name == MODE else TILINGS_TRIED]
            costs = chain_estimates(problem, tilings).tolist()
            found += [(name, tiling, cost) for tiling, cost in zip(tilings, costs, strict=True)]
        return found

    def _whole(self, part: Sequence[Call], form: str) -> Function:
        """The function of a chain, its tiling open."""
        key = form, *part
        if key not in self._merged:
            self._merged[key] = merged(part, forms_of(self.config, part)[form])
        return self._merged[key]

    def _record(self, part: Sequence[Call]) -> Tuned | None:
        """What a database says of a chain, if that is a form that the core has."""
        key = _key(part)
        if self.tuned is not None and key not in self._records:
            found = self.tuned(chain_text(lower_function(merged(part))))
            legal = found is not None and found.setting.form in forms_of(self.config, part)
            self._records[key] = found if legal else None
        return self._records.get(key)


@dataclass
class _Chainer(_Proposer):
    """Makes programs of what is proposed, and of these the chains."""

    measure: Measure = field(kw_only=True)
    split: SplitCosts | None = None
    _measured: dict[object, Decision | str] = field(default_factory=dict)
    _made_of: dict[tuple[Call, ...], Function] = field(default_factory=dict)

    def run(self) -> Counted:
        if not self.config.inp_takes_results:
            return Counted(self.module, 0)
        made_of: dict[Call, tuple[Function, Sequence[Call]]] = {}
        for path in self._paths():
            parts = self._measured_parts(path)
            chained = {node for part in parts for node in part}
            alone = {node: None for node in path if node not in chained}
            self._reasons |= dict.fromkeys(alone, "by the estimate a chain would not be faster")
            for part in _parts_of(path):
                decided = self._measured.get(_key(part))
                if isinstance(decided, str):
                    self._reasons |= {node: decided for node in part if node in alone}
            for part in parts:
                made_of[part[-1]] = self._made(part), part
        return Counted(self._rewritten(made_of) if made_of or self._reasons else self.module, len(made_of))

    def _measured_parts(self, path: Sequence[Call]) -> list[Sequence[Call]]:
        """The best cut of a row of layers, all of whose chains are measured: as was hoped, or by what they then took,
        if no more bytes are moved. Beside others in a program a chain does not have the bus for itself."""
        hoped, known = self._cut(path, self._hoped), self._cut(path, self._together)
        return known if self._moved(known) <= self._moved(hoped) else hoped

    def _moved(self, parts: Sequence[Sequence[Call]]) -> int:
        """Bytes of chains, beyond those of their layers apart."""
        found = [self._measured[_key(part)] for part in parts]
        return sum(each.together.moved - each.apart.moved for each in found if isinstance(each, Decision))

    def _cut(self, path: Sequence[Call], cost: Callable[[Sequence[Call]], float]) -> list[Sequence[Call]]:
        """By ``cost`` of chains. Those that are measured on the way may be refused, or slower than was hoped."""
        while unknown := {key: part for part in self._parts(path, cost) if (key := _key(part)) not in self._measured}:
            self._measured |= {key: self._decided(part) for key, part in unknown.items()}
        return self._parts(path, cost)

    def _parts(self, path: Sequence[Call], cost: Callable[[Sequence[Call]], float]) -> list[Sequence[Call]]:
        """The cheapest cut; single layers are left out."""
        best: list[tuple[float, list[Sequence[Call]]]] = [(0.0, [])]
        for stop in range(1, len(path) + 1):
            options = []
            for length in range(1, min(MOST_LAYERS, stop) + 1):
                part = path[stop - length : stop]
                before, parts = best[stop - length]
                if length == 1:
                    options.append((before + self._apart(part[0]), parts))
                else:
                    options.append((before + cost(part), [*parts, part]))
            best.append(min(options, key=lambda option: option[0]))
        return best[-1][1]

    def _together(self, part: Sequence[Call]) -> float:
        """What was hoped, until the chain was measured: then its layers' estimate less what it saves."""
        decided = self._measured.get(_key(part))
        if not isinstance(decided, Decision):
            return self._hoped(part)
        apart = sum(map(self._apart, part))
        saved = decided.apart.cycles - decided.together.cycles
        return apart - saved if apart < float("inf") else decided.together.cycles

    def _hoped(self, part: Sequence[Call]) -> float:
        """By the estimate, or as a database says; infinite for what is refused."""
        if isinstance(self._measured.get(_key(part)), str) or _windows(part) > WINDOWED_LAYERS:
            return float("inf")
        key = "together", _key(part)
        if key not in self._estimates:
            costs = [cost / (MEASURED_TIMES_IN_MODE if form == MODE else 1) for form, _, cost in self._candidates(part)]
            found = self._record(part)
            self._estimates[key] = min(costs, default=float("inf")) if found is None else float(found.cycles)
        return self._estimates[key]

    def _rewritten(self, made_of: Mapping[Call, tuple[Function, Sequence[Call]]]) -> Module:
        body = self.module.main.body
        values: dict[Expr, Expr] = {}
        for node in topological_order(body):
            if isinstance(node, Call) and node in made_of:
                made, part = made_of[node]
                first, *others = part
                span = Span(first.span.merged(*(each.span for each in others)).nodes, node.span.tensor)
                values[node] = call(made, *(values[arg] for arg in outside(part)), span=span)
                continue
            new = with_children(node, tuple(values[child] for child in node.children))
            if isinstance(new, Call) and isinstance(new.op, Function) and node in self._reasons:
                function = replace(new.op, attrs=new.op.attrs.replace(not_chained=self._reasons[node]))
                new = call(function, *new.args, span=new.span, **new.attrs)
            values[node] = new
        return self.module.with_main(values[body])

    def _made(self, part: Sequence[Call]) -> Function:
        """The chain of these layers, with its plan."""
        layers, decided = tuple(part), self._measured[_key(part)]
        if not isinstance(decided, Decision):
            raise TypeError(f"no chain: {decided}")
        if layers not in self._made_of:
            self._made_of[layers] = planned(self._whole(part, decided.form), decided.plan(part))
        return self._made_of[layers]

    def _decided(self, part: Sequence[Call]) -> Decision | str:
        """What `_decide` says; what it says by a database is not kept."""
        if self.tuned is not None:
            return self._decide(part)
        key = _key(part), _wiring(part), self.rate, self.threads, self.split and (self.split.cores, self.split.ports)
        return kept_result(lambda: self._decide(part), self.config, "chain", *key)

    def _decide(self, part: Sequence[Call]) -> Decision | str:
        """The fastest of what is tried: the setting that a database has, and candidates of each form."""
        if self.split is not None:
            return self._decide_split(part, self.split)
        best: tuple[Taken, ChainTiling, str, Tuned | None] | None = None
        refusals: list[str] = []
        found = self._record(part)
        if found is not None and isinstance(found.setting.tiling, ChainTiling):
            tiling, form = found.setting.tiling, found.setting.form
            try:
                best = self._taken_together(self._whole(part, form), tiling), tiling, form, found
            except CompileError as error:
                refusals.append(error.message)
        candidates = self._candidates(part)
        for form in dict.fromkeys(name for name, _, _ in candidates):
            left, near = (2, SECOND_TILING_TIMES) if form == MODE else (1, float("inf"))
            best_estimate = float("inf")
            for tiling, cost in ((tiling, cost) for of, tiling, cost in candidates if of == form):
                if cost > near * best_estimate:
                    break
                try:
                    taken = self._taken_together(self._whole(part, form), tiling)
                except CompileError as error:
                    refusals.append(error.message)
                    continue
                best_estimate = min(cost, best_estimate)
                if best is None or taken < best[0]:
                    best = taken, tiling, form, None
                left -= 1
                if not left:
                    break
        if best is None:
            return f"no tile of all layers is compiled: {refusals[0] if refusals else 'none fits the scratchpads'}"
        taken, tiling, form, tuned = best
        cycles = taken.cycles
        estimated = sum(map(self._apart, part))  # infinite, where only parts of a layer have a tile that fits
        apart = self._taken_apart(part) if cycles < (1 + SLOWER_SHARE) * estimated else Taken(round(estimated), 0)
        least = min(GAIN_SHARE * apart.cycles, max(GAIN_SHARE_OF_LONG * apart.cycles, self.rate.latency))
        if cycles > apart.cycles - least:
            return f"a chain would take {cycles:,} cycles, its layers apart take {apart.cycles:,}"
        return Decision(tiling, form, taken, apart, tuned)

    def _decide_split(self, part: Sequence[Call], costs: SplitCosts) -> Decision | str:
        """As `_decide`, where several cores share a chain, or its layers, each of which they begin together."""
        wholes = {form: self._whole(part, form) for form in forms_of(self.config, part)}
        found = costs.fastest(wholes)
        if found is None:
            return "no tile of all layers is compiled: none fits the scratchpads"
        cycles, tiling, form = found
        apart = sum(map(costs.apart, part))
        if cycles > apart:
            return f"a chain would take {cycles:,} cycles, its layers apart take {apart:,}"
        return Decision(tiling, form, Taken(cycles, 0), Taken(apart, 0))

    def _taken_together(self, function: Function, tiling: ChainTiling) -> Taken:
        return self._taken(*kernel_program(lower_function(function), self.config, self.rate, tiling))

    def _taken_apart(self, part: Sequence[Call]) -> Taken:
        emitter = Emitter(self.config)
        places = _Places(filled=fills_pay(self.config, self.rate))
        for number, node in enumerate(part):
            at = partial(places.of_slice, node)
            for each in slices_of(node, self.config, self.rate, self.threads, self.tuned):
                generate_slice(emitter, each, at, threads=self.threads, rate=self.rate, layer=number, dump=None)
        _, code = unchecked_program(self.config, self.rate, emitter.rows)
        return self._taken(code, places.end)

    def _taken(self, code: Code, end: int) -> Taken:
        moved = sum(bytes_of(self.config, each) for each in disassemble(self.config, code))
        return Taken(self.measure(self.config, self.rate, code, end), moved)


class _Places:
    """Somewhere for every tensor of layers that are measured. ``filled``: loads fill in entries of parameters."""

    def __init__(self, *, filled: bool) -> None:
        self.end = 0
        self.filled = filled
        self._known: dict[object, int] = {}

    def of_slice(self, node: Call, part: KernelSlice) -> dict[str, DramBuffer]:
        """Of a part of a call."""
        places = {}
        for tensor, value in part.kernel.constants:
            pitch = part.kernel.pitch_of(tensor.name)
            offset = self._at((node, tensor.name, part.output_shift), value.nbytes * pitch)
            kept, records = part.kernel.kept_of(tensor.name), part.kernel.records_of(tensor.name)
            filled = part.kernel.filled_of(tensor.name) if self.filled else None
            places[tensor.name] = DramBuffer(offset, True, kept, pitch, records, filled)
        for name, (operand, shift) in part.inputs.items():
            arg = node.args[operand]
            places[name] = DramBuffer(self._at(arg, prod(arg.shape)) + shift, constant=isinstance(arg, Constant))
        return {**places, part.kernel.output.name: DramBuffer(self._at(node, prod(node.shape)) + part.output_shift)}

    def _at(self, key: object, nbytes: int) -> int:
        if key not in self._known:
            self._known[key] = self.end
            self.end += aligned(nbytes)
        return self._known[key]


def why_not(value: Call, reader: Call, place: int, uses: int) -> str:
    """Why the result of a layer cannot stay on the core for the layer that reads it as its operand ``place``; empty if
    it can."""
    made, reads = _function(value), _function(reader)
    if uses != 1:
        return f"{uses} layers or outputs read its result"
    if not is_requantised(made):
        return "its result is not requantised"
    anchor, other = _anchor(made), _anchor(reads)
    if anchor is None or other is None:
        return "only convolutions and poolings are chained"
    if any(node.op == AS_PIXEL for node in calls(made.body)):
        return "it reads its input as one pixel, as it lies in memory"
    param = reads.params[place]
    if other.args[0] != param or use_counts(reads.body)[param] != 1:
        return "the layer that reads it adds it to its own result"
    if any(isinstance(arg, Constant) for node in (value, reader) for arg in node.args):
        return "a constant is among its inputs"
    return ""


def outside(part: Sequence[Call]) -> list[Expr]:
    """What layers of a chain read that none of them makes."""
    return list(dict.fromkeys(arg for node in part for arg in node.args if arg not in part))


def merged(part: Sequence[Call], form: Form = on_vector_engine) -> Function:
    """The function of a chain whose depthwise layers have this form; its tiling is open."""
    values: dict[Expr, Expr] = {}
    params = []
    for number, arg in enumerate(outside(part)):
        params.append(Var(f"x{number}", arg.tensor_type))
        values[arg] = params[-1]
    for node in part:
        function = _function(node)
        if is_depthwise(function):
            function = form(function) or function
        values[node] = call(function, *(values[arg] for arg in node.args), span=node.span)
    functions = [_function(node) for node in part]
    own = {
        "name": "+".join(function.name for function in functions),
        "primitive": True,
        "anchor": "chain",
        "shape": functions[-1].attrs.get("shape", part[-1].shape),
        "macs": sum(int(str(function.attrs.get("macs", 0))) for function in functions),
    }
    return Function(tuple(params), values[part[-1]], Attrs(own))


def planned(chain: Function, plan: ChainPlan) -> Function:
    """A chain with its plan. It has the body of the one whose tiling was open, and so the kernel that was lowered and
    scheduled for that one."""
    return replace(chain, attrs=chain.attrs.replace(**{PLAN: plan}))


def forms_of(config: CoreConfig, part: Sequence[Call]) -> Mapping[str, Form]:
    """How depthwise layers of a chain can be computed, by name: on either engine, or in the mode that the array may
    have for them. Without such layers one that is called ""."""
    depthwise = [_function(node) for node in part if is_depthwise(_function(node))]
    if not depthwise:
        return {"": on_vector_engine}
    in_mode = partial(in_depthwise_mode, config)
    mode: dict[str, Form] = {MODE: in_mode} if all(map(in_mode, depthwise)) else {}
    return {VECTOR: on_vector_engine, ARRAY: on_array, **mode}


def _parts_of(path: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Layers in a row of which a chain may consist."""
    for start, stop in combinations(range(len(path) + 1), 2):
        if 1 < stop - start <= MOST_LAYERS:
            yield path[start:stop]


def _key(part: Sequence[Call]) -> tuple[object, ...]:
    """Parts that are compiled alike have the same."""
    return tuple(signature(_function(node)) for node in part)


def _wiring(part: Sequence[Call]) -> list[object]:
    """For each operand of each layer which layer, or which value from outside, it is."""
    numbers: dict[Expr, int] = {}
    lines: list[object] = []
    for node in part:
        for arg in node.args:
            lines.append((numbers.setdefault(arg, len(numbers)), isinstance(arg, Constant), arg.type))
        lines.append(numbers.setdefault(node, len(numbers)))
    return lines


def is_depthwise(function: Function) -> bool:
    anchor = _anchor(function)
    return anchor is not None and anchor.op == packed_form("depthwise_conv2d")


def _windows(part: Sequence[Call]) -> int:
    return sum(_has_window(_function(node)) for node in part)


def _has_window(function: Function) -> bool:
    anchor = _anchor(function)
    if anchor is None:
        return False
    if len(anchor.args) == 1:
        return tuple(anchor.attr("kernel")) != (1, 1)
    start = 2 if anchor.op == packed_form("conv2d") else 1
    return anchor.args[1].shape[start : start + 2] != (1, 1)


def _anchor(function: Function) -> Call | None:
    """What computes windows of one operand; both operands of a product are activations."""
    for node in calls(function.body):
        entry = operator_of(node)
        windows = entry is not None and entry.anchor in (Anchor.CONVOLUTION, Anchor.POOL)
        if windows and all(isinstance(arg, Constant) for arg in node.args[1:]):
            return node
    return None


def _function(node: Call) -> Function:
    if not isinstance(node.op, Function):
        raise TypeError(f"{node.op} is no function")
    return node.op
