"""Fusion for loop nests: which operators of a graph become one kernel.

A kernel has at most one operator that reads elements more than once (a convolution, a pooling, a product, a reduction),
which stands first, and elementwise operators behind it; attention has three such, and a normalisation of rows the
reductions that it needs. A value joins the kernel of its
consumers when they are all in that kernel, it has the same shape, and the target's limits allow it; all other values
are written to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ... import tensor as te
from ...graph.dtypes import HALVES, numpy_dtype
from ...graph.ir import Call, Constant, Expr, Function, Span, TensorType, TupleType, Var
from ...graph.registry import Anchor, Fusion, Role, operator, role_of
from ...graph.visit import topological_order, use_counts
from ...operators.lowering import lower_call
from ...tensor import ir as tir
from ...tensor.view import Builder, NotLoweredError, View, element_type
from .columns import columns_of
from .fusion_limits import FusionLimits
from .members import ordered_members, outside
from .phases import joins_phases
from .quantised_weights import is_weight_only
from .small_moves import combines_rows, is_move, joined_by_moves, moved_rows, moves_behind_rows, reduces_rows, starts
from .widening_reads import widened_by

COST_OF_ROWS = 16
"""Arithmetic of a value of a row, at most, that stands where elements are computed. Loops hand such values out of
themselves, but not calls of the C library."""


@dataclass(frozen=True, eq=False)
class FusedGroup:
    """One kernel: ``members`` in order of execution, the last of which makes the result.

    ``inputs``: values from outside that are not constant. ``anchor``: the member that is not elementwise, if any.
    ``reason``: why NumPy has to run it; empty where it is compiled. ``boundaries``: for each input that an operator
    makes, why that operator is not a member. ``moved_rows``: members whose results are stored, a row at a time.
    """

    members: tuple[Call, ...]
    inputs: tuple[Expr, ...]
    anchor: Call | None
    reason: str = ""
    boundaries: tuple[str, ...] = ()
    moved_rows: frozenset[Call] = frozenset()

    @property
    def root(self) -> Call:
        return self.members[-1]

    @property
    def name(self) -> str:
        return self.span.node or str((self.anchor or self.root).op)

    @property
    def span(self) -> Span:
        """The user's nodes, the anchor's first; the tensor of the result."""
        first = (self.anchor or self.members[0]).span
        return Span(first.merged(*(node.span for node in self.members)).nodes, self.root.span.tensor)

    @property
    def is_alias(self) -> bool:
        """Whether the result has the elements of the first input in the same order."""
        alone = len(self.members) == 1 and not self.reason
        return alone and (self.root.op == "barrier" or (self.root.op == "reshape" and len(self.inputs) == 1))

    @cached_property
    def saved_bytes(self) -> int:
        """Memory traffic that there would be if each member were a kernel of its own: its result is written once, and
        read by each member that uses it."""
        readers = {node: sum(node in other.args for other in self.members) for node in self.members[:-1]}
        return sum(nbytes(node) * (1 + count) for node, count in readers.items())

    def behind(self, member: Call) -> FusedGroup:
        """The same with an operator in front, whose result it reads."""
        members = (member, *self.members)
        return replace(self, members=members, inputs=outside(members))

    def __str__(self) -> str:
        stops = "".join(f"\n    not joined: {reason}" for reason in self.boundaries)
        return f"{self.name}: {' + '.join(str(node.op) for node in self.members)}{stops}"


def nbytes(value: Expr) -> int:
    """Bytes of a tensor, or of the tensors of a tuple, without padding."""
    if isinstance(value.type, TupleType):
        return sum(kind.size * numpy_dtype(kind.dtype).itemsize for kind in value.type.fields)
    return value.tensor_type.size * numpy_dtype(value.dtype).itemsize


Refuses = Callable[[Call], str]
"""Why a target has no kernel for an operator that has loops; empty where it has one."""


def accepts_all(node: Call) -> str:
    """A target with kernels for all operators refuses none."""
    return ""


def group_calls(body: Expr, limits: FusionLimits, refuses: Refuses = accepts_all) -> list[FusedGroup]:
    """The kernels of a graph of operators (no functions), producers first. Equal operators are computed once. What
    ``refuses`` names a reason for is a group of its own, which NumPy runs."""

    reasons: dict[object, str] = {}  # networks repeat their operators

    def why_not(node: Call) -> str:
        key = _lowered_by(node)
        if key not in reasons:
            reasons[key] = why_not_compiled(node)
        return reasons[key] or refuses(node)

    uses = use_counts(body)
    members: set[Expr] = set()  # of the kernels so far
    order = [node for node in topological_order(body) if isinstance(node, Call)]
    groups: list[FusedGroup] = []
    for node in reversed(order):  # consumers first: a value knows whether it joined one before it starts another
        if node in members:
            continue
        reason = why_not(node)
        group = _on_its_own(node, reason) if reason else _Fuser(node, uses, members, limits, why_not).fused()
        members.update(group.members)
        groups.append(group)
    return groups[::-1]


def roots_of(value: Expr) -> list[Expr]:
    """The calls behind a value that may be the field of a tuple."""
    while not isinstance(value, Call) and value.children:
        value = value.children[0]
    return [value]


def _kind(node: Call) -> Fusion:
    return Fusion.HOST if isinstance(node.op, Function) else operator(node.op).fusion


def _on_its_own(node: Call, reason: str) -> FusedGroup:
    """An operator that NumPy runs."""
    inputs = outside((node,))
    stops = tuple(_boundary(value, f"NumPy runs {node.op}") for value in inputs if not isinstance(value, Var))
    return FusedGroup((node,), inputs, None, reason, stops)


def _boundary(value: Expr, why: str) -> str:
    root = roots_of(value)[0]
    return f"{root.op if isinstance(root, Call) else 'value'} of {root.span.node or 'unknown place'}: {why}"


def _multiplies_floats(node: Call) -> bool:
    return role_of(node) is Role.MATRIX_PRODUCT and not is_weight_only(node)


@dataclass
class _Fuser:
    """A group that grows from its root towards its operands.

    ``elsewhere``: members of other kernels. ``times``: how often the expression of each member stands in that of the
    result. ``refused``: why a value did not join when it was last asked for. ``cut``: those of them that may be in the
    kernel of their consumer, but not here.
    """

    root: Call
    uses: Mapping[Expr, int]
    elsewhere: set[Expr]
    limits: FusionLimits
    why_not_compiled: Refuses
    anchor: Call | None = None
    members: list[Call] = field(default_factory=list)
    times: dict[Expr, int] = field(default_factory=dict)
    refused: dict[Expr, str] = field(default_factory=dict)
    cut: dict[Call, None] = field(default_factory=dict)
    moved_rows: frozenset[Call] = frozenset()

    def fused(self) -> FusedGroup:
        waiting: list[Call] = []
        self._join(self.root, 1, waiting)
        while waiting:
            node = waiting.pop()
            operands = dict.fromkeys(arg for arg in node.args if isinstance(arg, Call))
            for arg in sorted(operands, key=starts, reverse=True):
                if arg in self.times:
                    continue
                never = self._why_not(arg)
                self.refused[arg] = never or self._why_not_here(arg)
                if not self.refused[arg]:
                    self._join(arg, self._repeats(arg), waiting)
                elif not never:
                    self.cut[arg] = None
        for arg in self.cut:
            self._move_cut(arg)
        self._join_before_reduction()
        self._join_gathered()
        self._join_slices()
        self._join_attention()
        self._join_moves()
        self._join_columns()
        self._join_casts()
        self._join_convolution()
        self._join_row_statistics()
        self._join_by_moves()
        ordered = ordered_members(self.root, self.times)
        inputs = outside(ordered)
        stops = tuple(_boundary(value, self._reason(value)) for value in inputs if not isinstance(value, Var))
        return FusedGroup(ordered, inputs, self.anchor, "", stops, self.moved_rows)

    def _join(self, node: Call, times: int, waiting: list[Call]) -> None:
        self.members.append(node)
        self.times[node] = times
        if _kind(node) is Fusion.ELEMENTWISE:
            waiting.append(node)
        else:
            self.anchor = node
            self._join_weights(node)

    def _join_weights(self, anchor: Call) -> None:
        """Let a product widen its weights of 8 bits or fewer."""
        if self.limits.weight_only and is_weight_only(anchor) and isinstance(anchor.args[1], Call):
            self._takes(anchor.args[1])

    def _move_cut(self, value: Call) -> None:
        """Move operators fed only by ``value`` into its kernel until the tensor between the two kernels is smallest."""
        node, behind, moved = value, [], 0
        smallest = nbytes(value)
        while True:
            readers = [member for member in self.members if node in member.args]
            if len(readers) != 1 or readers[0] == self.root or outside((readers[0],)) != (node,):
                break
            node = readers[0]
            behind.append(node)
            if nbytes(node) < smallest:
                smallest, moved = nbytes(node), len(behind)
        for node in behind[:moved]:
            self.members.remove(node)
            del self.times[node]
            self.refused[node] = f"{self.refused[value]}; cut where the fewest bytes cross"

    def _join_before_reduction(self) -> None:
        """Let a reduction, which reads each element once, compute its operand: what nothing else uses, unless it can
        stand behind the operator that makes it. A softmax, which reads it twice, only widens it."""
        anchor = self.anchor
        if anchor is None or not self.limits.before_reductions:
            return
        if operator(str(anchor.op)).anchor is not Anchor.REDUCTION:
            if role_of(anchor) is Role.SOFTMAX and widened_by(anchor.args[0], self.uses):
                self._takes(anchor.args[0])
            return
        shape, times, waiting = anchor.args[0].shape, {anchor: 1}, [anchor]
        while waiting:
            node = waiting.pop()
            for arg in dict.fromkeys(arg for arg in node.args if isinstance(arg, Call)):
                if arg in self.times or arg in self.elsewhere or _kind(arg) is not Fusion.ELEMENTWISE:
                    continue
                inside = {user: user.args.count(arg) for user in times if arg in user.args}
                made = [each for each in arg.args if isinstance(each, Call) and each.shape == shape]
                behind = any(starts(each) and self.uses[each] == 1 for each in made)
                repeats = sum(times[user] * count for user, count in inside.items())
                if (
                    arg.shape != shape or behind or sum(inside.values()) != self.uses[arg] or self._why_not_here(arg)
                    or self._intensity(arg, repeats) > self.limits.recompute_intensity or self.why_not_compiled(arg)
                ):  # fmt: skip
                    continue
                times[arg] = self.times[arg] = repeats
                self.members.append(arg)
                waiting.append(arg)

    def _join_gathered(self) -> None:
        """Let a reduction gather what it reduces, at known places, if nothing else needs that; and from among zeros."""
        anchor = self.anchor
        if anchor is None or not self.limits.columns or operator(str(anchor.op)).anchor is not Anchor.REDUCTION:
            return
        gathered = anchor.args[0]
        if not isinstance(gathered, Call) or gathered.op != "gather" or not isinstance(gathered.args[1], Constant):
            return
        if self._takes(gathered) and isinstance(gathered.args[0], Call) and gathered.args[0].op == "pad":
            self._takes(gathered.args[0])

    def _takes(self, value: Call) -> bool:
        """Make a value a member if nothing else needs it, and say whether it is one now."""
        room = len(self.members) < self.limits.depth
        if self._is_taken(value) or self.uses[value] > 1 or not room or self.why_not_compiled(value):
            return False
        self.members.append(value)
        self.times[value] = 1
        return True

    def _join_slices(self) -> None:
        """Let elementwise operators, also those of which a reduction is made, read a part of a tensor where it lies, if
        nothing else needs the part by itself.

        Images are left out: their kernels may read blocks of channels, which a part does not begin with.
        """
        if len(self.root.shape) == 4 or (self.anchor is not None and _kind(self.anchor) is not Fusion.REDUCTION):
            return
        readers = [member for member in self.members if _kind(member) is Fusion.ELEMENTWISE]
        for arg in dict.fromkeys(arg for member in readers for arg in member.args):
            if not isinstance(arg, Call) or arg.op != "slice" or arg in self.elsewhere or arg in self.times:
                continue
            if len(arg.shape) == 4:
                continue
            inside = sum(member.args.count(arg) for member in readers)
            one_run = bool(arg.shape) and arg.attr("steps")[-1] == 1
            room = len(self.members) < self.limits.depth and nbytes(arg.args[0]) <= self.limits.input_bytes
            if inside == self.uses[arg] and one_run and room and not self.why_not_compiled(arg):
                self.members.append(arg)
                self.times[arg] = 1

    def _join_attention(self) -> None:
        """Let a product compute the weights by which it sums, if they are a softmax along the rows of a product, with
        elementwise operators behind either, and nothing else needs what is between."""
        anchor = self.anchor
        if anchor is None or self.limits.attention is None or not _multiplies_floats(anchor):
            return
        if anchor.args[0].shape[:-2] != anchor.shape[:-2]:  # weights would be computed for each matrix of values
            return
        weights = self._before(anchor, anchor.args[0])
        softmax = weights.anchor if weights is not None else None
        if weights is None or softmax is None or role_of(softmax) is not Role.SOFTMAX:
            return
        scores = self._before(softmax, softmax.args[0])
        if softmax.attr("axis") != len(softmax.shape) - 1 or scores is None:
            return
        product = scores.anchor
        if product is None or not _multiplies_floats(product) or not self.limits.attention.makes(product, anchor):
            return
        joined = (*scores.members, *weights.members)
        if len(self.members) + len(joined) <= self.limits.depth and not set(joined) & set(self.times):
            self.members += joined
            self.times |= dict.fromkeys(joined, 1)
            for rows in dict.fromkeys((product.args[0], anchor.args[1])):
                self._join_rows_elsewhere(rows)

    def _join_rows_elsewhere(self, value: Expr) -> None:
        """Let attention read rows where they lie before a transposition, if nothing else needs its result."""
        if not isinstance(value, Call) or value.op != "transpose" or value in self.elsewhere or value in self.times:
            return
        inside = sum(member.args.count(value) for member in self.members)
        whole = value.attr("perm")[-1] == len(value.shape) - 1
        room = len(self.members) < self.limits.depth
        if whole and room and inside == self.uses[value] and not self.why_not_compiled(value):
            self.members.append(value)
            self.times[value] = 1

    def _join_convolution(self) -> None:
        """Let a convolution write its phases side by side, if nothing else needs them as they are."""
        root = self.root
        if not self.limits.phases or not joins_phases(root):
            return
        made = self._before(root, root.args[0])
        anchor = made.anchor if made is not None else None
        if made is None or anchor is None or operator(str(anchor.op)).anchor is not Anchor.CONVOLUTION:
            return
        known = isinstance(anchor.args[1], Constant) and anchor.attr("groups") == 1 and len(anchor.shape) == 4
        if known and len(made.members) < self.limits.depth:
            self.members += made.members
            self.times |= dict.fromkeys(made.members, 1)
            self.anchor = anchor

    def _join_moves(self) -> None:
        """Let products that copy their operands read them through moves, if nothing else needs these."""
        products = [member for member in self.members if operator(str(member.op)).anchor is Anchor.PRODUCT
                    and (self.limits.moves or member.op == "product")]  # fmt: skip
        for value in dict.fromkeys(arg for product in products for arg in product.args):
            while isinstance(value, Call) and _kind(value) is Fusion.LAYOUT and len(value.args) == 1:
                inside = sum(member.args.count(value) for member in self.members)
                room = len(self.members) < self.limits.depth
                if value in self.elsewhere or value in self.times or inside != self.uses[value] or not room:
                    break
                if self.why_not_compiled(value):
                    break
                self.members.append(value)
                self.times[value] = 1
                value = value.args[0]

    def _join_columns(self) -> None:
        """Let a product gather its rows: they take several times the memory of what they are gathered from."""
        anchor = self.anchor
        columns = columns_of(anchor) if self.limits.columns and anchor is not None else None
        if anchor is None or columns is None:
            return
        met = columns.met
        moves = (anchor.args[0], met)
        alone = all(isinstance(each, Call) and self.uses[each] == 1 and each not in self.elsewhere for each in moves)
        room = len(self.members) + len(moves) <= self.limits.depth
        if alone and room and met not in self.times and not self.why_not_compiled(met):
            self.members += [each for each in moves if isinstance(each, Call)]
            self.times |= dict.fromkeys(moves, 1)

    def _join_by_moves(self) -> None:
        """Let a kernel compute what it reads through moves; a reshape alone costs nothing."""
        if not self.limits.moved_bytes:
            return
        members = tuple(self.members)
        if FusedGroup(members, outside(members), self.anchor).is_alias:
            return
        joined = joined_by_moves(self.members, self.uses, self.elsewhere, self.limits, self.why_not_compiled)
        self.moved_rows = moved_rows(members, joined)
        self.members += joined
        self.times |= dict.fromkeys(joined, 1)
        self._join_rows_behind_moves()

    def _join_rows_behind_moves(self) -> None:
        """Let a kernel of rows write them where moves want them, if nothing else needs them as they are."""
        if not all(map(is_move, self.members)):
            return
        chain, value = moves_behind_rows(self.root, self.uses, self.elsewhere, self.why_not_compiled)
        made = self._before(chain[-1], value) if value is not None else None
        if made is None or not combines_rows(made.members) or len(chain) + len(made.members) > self.limits.depth:
            return
        self.members = [*chain, *made.members]
        self.times = dict.fromkeys(self.members, 1)
        self.anchor, self.moved_rows = made.anchor, made.moved_rows

    def _join_casts(self) -> None:
        """Let a product, which copies operands of 16 bits, cast them as it does, if nothing else needs that. What it
        turns around in registers is left out."""
        anchor = self.anchor
        if anchor is None or not self.limits.columns or role_of(anchor) is not Role.MATRIX_PRODUCT:
            return
        if self._is_taken(anchor.args[0]) and columns_of(anchor) is None:  # attention
            return
        for value in anchor.args:
            while isinstance(value, Call) and role_of(value) is Role.CAST:
                floats = {"float32", *HALVES} >= {value.dtype, value.args[0].dtype}
                if not floats or not self._takes(value):
                    break
                value = value.args[0]

    def _join_row_statistics(self) -> None:
        """Let elementwise operators compute the means and the like of rows that they need, if nothing else needs these:
        a row stays in the cache meanwhile."""
        if self.anchor is not None or not self.limits.row_statistics or len(self.root.shape) in (0, 1):
            return
        found = self._of_rows()
        while any(map(reduces_rows, found)):  # what something else needs, too, or too often, is not computed here
            times = self._times_of(found)
            inside = [*self.members, *found]
            made = [
                node for node in found
                if self.uses[node] == sum(user.args.count(node) for user in inside) and self._is_of_rows(node, found)
                and self._intensity(node, times.get(node, 0)) <= self.limits.recompute_intensity
            ]  # fmt: skip
            if len(made) == len(found):
                if len(self.members) + len(found) <= self.limits.depth:
                    self.members += found
                    self.times |= times
                break
            found = made

    def _of_rows(self) -> list[Call]:
        """Reductions of rows behind the members, and what is elementwise between, with one value a row or an element.
        No more than a kernel may have."""
        shape = self.root.shape
        found: dict[Call, None] = {}
        waiting = list(self.members)
        while waiting and len(found) <= self.limits.depth:
            for arg in waiting.pop().args:
                if not isinstance(arg, Call) or arg in found or arg in self.times or arg in self.elsewhere:
                    continue
                if not isinstance(arg.type, TensorType) or arg.shape not in (shape, (*shape[:-1], 1)):
                    continue
                wanted = _kind(arg) is Fusion.ELEMENTWISE or (reduces_rows(arg) and arg.args[0].shape == shape)
                if wanted and not self.why_not_compiled(arg):
                    found[arg] = None
                    waiting.append(arg)
        return list(found)

    def _times_of(self, found: list[Call]) -> dict[Expr, int]:
        """How often each expression would stand in that of the result, or of a reduction: that is computed once."""
        times: dict[Expr, int] = {}
        within = {*self.times, *found}
        for node in reversed(ordered_members(self.root, within)):
            if node in found:
                users = [user for user in (*self.members, *found) if node in user.args]
                repeats = sum(user.args.count(node) * (self.times | times).get(user, 1) for user in users)
                times[node] = 1 if reduces_rows(node) else repeats
        return times

    def _is_of_rows(self, node: Call, found: list[Call]) -> bool:
        """Whether a value is one of rows, or is made for or of such: any other is left to the kernel that makes it. A
        value of a row that takes long is made once, in a kernel of its own."""
        if node.shape != self.root.shape:
            return reduces_rows(node) or operator(str(node.op)).cost <= COST_OF_ROWS
        if any(arg in found for arg in node.args):
            return True
        users = [user for user in (*self.members, *found) if node in user.args]
        behind = any(isinstance(arg, Call) and starts(arg) and self.uses[arg] == 1 for arg in node.args)
        return (all(map(reduces_rows, users)) and not behind) or widened_by(node, self.uses)

    def _before(self, user: Call, value: Expr) -> FusedGroup | None:
        """The kernel that would make an operand which nothing but ``user`` needs; None where there is no such."""
        alone = isinstance(value, Call) and self.uses[value] == 1 == user.args.count(value)
        if not isinstance(value, Call) or not alone or value in self.elsewhere or self.why_not_compiled(value):
            return None
        limits = replace(self.limits, attention=None)
        return _Fuser(value, self.uses, self.elsewhere, limits, self.why_not_compiled).fused()

    def _is_taken(self, value: Expr) -> bool:
        return value in self.elsewhere or value in self.times

    def _intensity(self, arg: Call, repeats: int) -> float:
        """Operations repeated for each byte of traffic saved, where the expression of ``arg`` stands so often."""
        return (repeats - 1) * operator(str(arg.op)).cost * arg.tensor_type.size / max(1, 2 * nbytes(arg))

    def _repeats(self, value: Call) -> int:
        """How often the expression of ``value`` would stand in that of the result."""
        return sum(self.times[member] * member.args.count(value) for member in self._elementwise)

    @property
    def _elementwise(self) -> list[Call]:
        """The members behind the anchor: they read each element once, so that it can be computed there."""
        return [member for member in self.members if member != self.anchor]

    def _reason(self, value: Expr) -> str:
        """Why an input is not a member."""
        if not isinstance(value, Call):
            return "one of several results"
        first = self.anchor or self.root
        return self.refused.get(value) or f"{first.op} stands first in its kernel"

    def _why_not(self, arg: Call) -> str:
        """Why ``arg`` cannot be in one kernel with all its consumers; empty when it can."""
        if arg in self.elsewhere:
            return "it is part of another kernel"
        inside = sum(member.args.count(arg) for member in self._elementwise)
        if self.uses[arg] != inside:
            return f"{self.uses[arg]} uses, {inside} of them in this kernel"
        kind = _kind(arg)
        if kind is not Fusion.ELEMENTWISE and not starts(arg):
            return "it is computed on its own"
        if arg.shape != self.root.shape:
            return f"its shape {arg.shape} is not {self.root.shape}"
        return self.why_not_compiled(arg)

    def _why_not_here(self, arg: Call) -> str:
        """What this kernel, or a limit of the target, has against ``arg``; empty when nothing."""
        limits = self.limits
        if starts(arg) and self.anchor is not None:
            return f"the kernel has {self.anchor.op} already"
        if len(self.members) >= limits.depth:
            return f"the kernel has {len(self.members)} operators, the most for this target (depth)"
        before, alone, together = (sum(map(nbytes, outside(tuple(each)))) for each in (
            self.members, [arg], [*self.members, arg]
        ))  # fmt: skip
        if together > limits.input_bytes and together > max(before, alone):
            return f"the kernel would read {together:,} bytes, more than {limits.input_bytes:,} (input_bytes)"
        intensity = self._intensity(arg, self._repeats(arg))
        if intensity > limits.recompute_intensity:
            return (f"it would be computed {self._repeats(arg)} times: {intensity:g} operations for each byte saved, "
                    f"more than {limits.recompute_intensity:g} (recompute_intensity)")  # fmt: skip
        return ""


def why_not_compiled(node: Call) -> str:
    """Why an operator has no machine code; empty when it has."""
    if isinstance(node.op, Function):
        return "it is a function"
    try:
        views = [_stand_in(arg, number) for number, arg in enumerate(node.args)]
        view = lower_call(Builder(), node, views)
        index = tuple(tir.Var(f"i{axis}") for axis in range(len(node.shape)))
        view[index]
    except NotLoweredError as error:
        return error.message
    except te.IRError as error:
        return f"{node.op}: {error.message}"
    return ""


def _lowered_by(node: Call) -> object:
    """All that an operator's rule may look at: of operands that are known their values, of others the types."""
    return node.op, node.attrs, node.type, *(arg.digest if arg.static else arg.type for arg in node.args)


def _stand_in(arg: Expr, number: int) -> View:
    dtype = element_type(arg.dtype)
    if 0 in arg.shape:
        raise NotLoweredError("a tensor without elements")
    tensor = te.placeholder(arg.shape, dtype, f"operand{number}")
    return View(arg.shape, dtype, lambda index: tensor[index])
