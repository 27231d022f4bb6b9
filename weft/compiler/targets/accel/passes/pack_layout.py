"""Give every tensor of the accelerator its layout (`packed_layout`); host functions keep plain tensors.

``pack`` and ``unpack`` stand, as host functions, where the two meet. What cannot be packed goes to the host with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from .....hw.config import CoreConfig
from .....shown import with_article
from ....graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    calls,
    operator_of,
    topological_order,
)
from ....graph.host import host_call, host_function, renumber
from ....passes.manager import Pass
from ..link.folded_moves import costs_nothing
from ..link.phases import function_of
from ..operators import packed_layout
from ..operators.lower import Kernel, copy_kernel, lower_function
from ..operators.moves import entries_of, is_renaming
from ..operators.operators import packed_form
from ..operators.packed_layout import PACKABLE_RANKS, Blocks, is_packable
from ..operators.weight_groups import stays_in_groups
from .core_moves import moved_on_core
from .order_of_bytes import moves_before, order_of_bytes, reading_as_pixel
from .place_concat import Gaps, closing_gaps, reading_gaps
from .turned_moves import turned
from .zero_points import WideProduct, with_channels

WhyNot = Callable[[Kernel], str]
"""Why a kernel does not fit the core's scratchpads; empty if it does."""


def pack_layout(blocks: Blocks, why_not: WhyNot = lambda _: "", group: int = 0, core: CoreConfig | None = None) -> Pass:
    """The pass for an array of this shape. ``why_not``: asked for the kernels that concatenations take. ``group``: of
    weights that share a scale, on a core that unpacks weights of 4 bits; they are not parted. ``core``: moves entries
    between layers; without, the host moves elements."""

    def run(module: Module) -> Module:
        return _Packer(module, blocks, why_not, group, core).run()

    return Pass("pack-layout", run, needs=("fuse",), stage="packed", about=__doc__ or "")


_GIVES_LAYOUT = "gives the data of the host the accelerator's layout"


class _Packer:
    """Every value of ``main`` has a plain form, a packed form, or both; the missing one is made when it is needed.
    ``with_gaps``: concatenations that have a packed form between whose operands are gaps, and perhaps no other."""

    def __init__(self, module: Module, blocks: Blocks, why_not: WhyNot, group: int, core: CoreConfig | None) -> None:
        self.module = module
        self.blocks = blocks
        self.why_not = why_not
        self.group = group
        self.core = core
        self.readers: dict[Expr, list[tuple[Call, int]]] = {}
        for node in calls(module.main.body):
            for place, arg in enumerate(node.args):
                self.readers.setdefault(arg, []).append((node, place))
        self.plain_form: dict[Expr, Expr] = {}
        self.packed_form: dict[Expr, Expr] = {}
        self.with_gaps: dict[Expr, tuple[Call, Gaps]] = {}
        self.functions: dict[Function, Function] = {}

    def run(self) -> Module:
        body = self.module.main.body
        for node in topological_order(body):
            match node:
                case Tuple():
                    continue
                case Call(op=Function() as function):
                    self._call_of_function(node, function)
                case Call(op=str() as name):
                    self._move(node, name)
                case _:
                    self.plain_form[node] = node
        if isinstance(body, Tuple):
            return self.module.with_main(renumber(Tuple(tuple(map(self.plain, body.fields)), body.span)))
        return self.module.with_main(renumber(self.plain(body)))

    def plain(self, node: Expr) -> Expr:
        """``node`` as the host sees it."""
        self._close_gaps(node)
        if node not in self.plain_form:
            attrs = {"blocks": self.blocks.sizes, "shape": node.shape}
            reason = "gives the result of the accelerator its plain layout"
            self.plain_form[node] = host_call("unpack", (self.packed(node),), attrs, reason, node.span)
        return self.plain_form[node]

    def packed(self, node: Expr) -> Expr:
        """``node`` as the accelerator sees it."""
        self._close_gaps(node)
        if node not in self.packed_form:
            moved = self._moved(node)
            self.packed_form[node] = moved if moved is not None else self._pack(self.plain_form[node], node.span)
        return self.packed_form[node]

    def _pack(self, plain: Expr, span: Span) -> Expr:
        return host_call("pack", (plain,), {"blocks": self.blocks.sizes}, _GIVES_LAYOUT, span)

    def _moved(self, node: Expr) -> Expr | None:
        """``node`` as a move of the core makes it."""
        if self.core is None or not is_packable(node.tensor_type) or not self._is_loaded(node):
            return None
        found = moved_on_core(node, self.blocks, self.packed_form.get, self._rows, self.core)
        if found is None:
            return self._turned(node, self.core) if self._spares_the_host(node) else None
        entries = entries_of(function_of(found))
        if entries is None or is_renaming(entries, [arg.shape for arg in found.args]):
            return found
        readers = [(reader.op, place) for reader, place in self.readers[node] if isinstance(reader.op, Function)]
        free = costs_nothing(entries, readers, self.core)
        return found if free or all(map(_is_of_core, found.args)) else None

    def _spares_the_host(self, node: Expr) -> bool:
        """Whether all that read a value are products that have their zero points themselves. Of others, which are
        large, the host sums up operands, so it has them anyway."""
        functions = (reader.op for reader, _ in self.readers[node])
        return all(isinstance(each, Function) and WideProduct.of(each) is not None for each in functions)

    def _turned(self, node: Expr, core: CoreConfig) -> Expr | None:
        """``node`` as moves and a product of the core make it, of what the core has."""

        def pack(value: Expr) -> Expr | None:
            found = moved_on_core(value, self.blocks, self.packed_form.get, lambda _: None, core)
            return found if found is not None and all(map(_is_of_core, found.args)) else None

        def make(function: Function, value: Expr, operand: Expr) -> Expr | None:
            packed = pack_function(function, self.blocks)
            if self.why_not(lower_function(packed)):
                return None
            made = call(function, value)
            self.packed_form[made] = call(packed, operand, span=node.span)
            return made

        moved = turned(node, self.blocks, pack, make)
        return pack(moved) if moved is not None else None

    def _is_loaded(self, node: Expr) -> bool:
        """Whether layers of the core load a value, and nothing else reads it: then moves before it cost nothing."""
        return node not in self.module.main.results and all(
            _is_layer(reader) for reader, _ in self.readers.get(node, ())
        )

    def _rows(self, node: Expr) -> Expr | None:
        """The bytes of a value of the host as they lie, as rows of one entry each."""
        block, size = self.blocks.dram_block, node.tensor_type.size
        if self.blocks.batch != 1 or size % block or node.dtype != "int8":
            return None
        shape = (size // block, block)
        plain = self.plain(node)
        rows = (
            plain if node.shape == shape else host_call("reshape", (plain,), {"shape": shape}, _GIVES_LAYOUT, node.span)
        )
        return self._pack(rows, node.span)

    def _close_gaps(self, node: Expr) -> None:
        """Make a form without gaps of a concatenation that has none: the packed one, or the plain one where the core is
        too small for the kernel that moves the channels."""
        if (
            not isinstance(node, Call)
            or node not in self.with_gaps
            or node in self.plain_form
            or node in self.packed_form
        ):
            return
        source, gaps = self.with_gaps[node]
        function = pack_function(closing_gaps(node, gaps), self.blocks)
        reason = self.why_not(lower_function(function))
        if reason:
            self._on_host(node, "concat", reason)
        else:
            self.packed_form[node] = call(function, source, span=node.span)

    def _on_host(self, node: Call, op: str, reason: str) -> None:
        args = tuple(self.plain(arg) for arg in node.args)
        self.plain_form[node] = host_call(op, args, node.attrs, reason, node.span)

    def _call_of_function(self, node: Call, function: Function) -> None:
        if not function.is_primitive:
            self.plain_form[node] = call(function, *map(self.plain, node.args), span=node.span, **node.attrs)
            return
        odd = [value for value in (*node.args, node) if not is_packable(value.tensor_type)]
        if odd:
            reason = f"the accelerator computes on (N, C) and (N, C, H, W) tensors, but this has {odd[0].type}"
            host = host_function(function, reason)
            self.plain_form[node] = call(host, *map(self.plain, node.args), span=node.span, **node.attrs)
            return
        if function not in self.functions:
            self.functions[function] = pack_function(function, self.blocks)
        packed = self.functions[function]
        wide = WideProduct.of(function)
        if wide is not None:
            operands = self._wide_operands(node, function, wide)
            self.packed_form[node] = call(packed, *operands, span=node.span, **node.attrs)
            return
        if not all(arg in self.packed_form for arg in node.args):
            found = self._reading_as_it_lies(node, function)
            if found is not None:
                self.packed_form[node] = found
                return
        with_gaps: dict[int, Call] = {}
        for place, arg in enumerate(node.args):
            source, gaps = self.with_gaps.get(arg, (None, None))
            other = reading_gaps(function, place, gaps, self.blocks) if gaps is not None else None
            if source is not None and other is not None:
                with_gaps[place], function = source, other
        if with_gaps:  # they are no work of the model
            function = replace(function, attrs=function.attrs.replace(macs=packed.attrs["macs"]))
            packed = pack_function(function, self.blocks)
        args = (with_gaps.get(place) or self.packed(arg) for place, arg in enumerate(node.args))
        self.packed_form[node] = call(packed, *args, span=node.span, **node.attrs)

    def _wide_operands(self, node: Call, function: Function, wide: WideProduct) -> list[Expr]:
        """What a call hands to a packed function with a product that has zero points: `_pack_function` says it."""
        values: dict[Expr, Expr] = dict(zip(function.params, node.args, strict=True))
        operands = [self.packed(values[param]) for param in _read_beside(function, wide)]
        for operand, parts in wide.operands:
            value = values[operand]
            moved = with_channels(value, self.packed(value), parts, self.blocks, behind=True)
            if not self._costs_nothing(moved, self.functions[function], len(operands)):
                moved = with_channels(value, self.packed(value), parts, self.blocks)
            operands.append(moved)
        return operands

    def _costs_nothing(self, moved: Call, function: Function, place: int) -> bool:
        """Whether a packed function loads a move of the core at an operand about as fast as from one piece."""
        entries = entries_of(function_of(moved))
        return self.core is not None and entries is not None and costs_nothing(entries, [(function, place)], self.core)

    def _reading_as_it_lies(self, node: Call, function: Function) -> Call | None:
        """A call of a dense layer that reads its one row where a layer of the core has put it, in another order, with
        its weights in that order; None where it is no such layer, or the host has the row anyway."""
        for place, arg in enumerate(node.args):
            source, moves = moves_before(arg)
            if not moves or source not in self.packed_form:
                continue
            order = order_of_bytes(source, moves, self.blocks)
            other = reading_gaps(function, place, order, self.blocks) if order is not None else None
            if other is None:
                continue
            other = replace(other, attrs=function.attrs.replace(macs=self.functions[function].attrs["macs"]))
            packed = pack_function(other, self.blocks)
            if self.group and not self._stays_in_groups(self.functions[function], packed):
                continue
            made = reading_as_pixel(packed, place, self.packed(source), self.blocks)
            args = (self.packed(source if number == place else each) for number, each in enumerate(node.args))
            return call(made, *args, span=node.span, **node.attrs)
        return None

    def _stays_in_groups(self, before: Function, after: Function) -> bool:
        """Whether weights of 4 bits are such in their new order, too."""
        entries = max(1, self.group // self.blocks.dram_block)
        pairs = zip(_constants(before), _constants(after), strict=True)
        return all(stays_in_groups(old, new, entries) for old, new in pairs)

    def _move(self, node: Call, name: str) -> None:
        if name == "reshape" and _same_pixels(node.args[0].shape, node.shape):
            if node.args[0] in self.packed_form:
                self.packed_form[node] = self.packed_form[node.args[0]]
            else:
                self._on_host(node, name, "changes the shape of a tensor of the host")
            return
        if name == "concat":
            self._concat(node)
            return
        self._on_host(node, name, f"{with_article(name)} between layers moves data, which the accelerator does not do")

    def _concat(self, node: Call) -> None:
        parts = [arg.tensor_type for arg in node.args]
        if node.attr("axis") != 1 or node.tensor_type.rank != 4 or not all(map(is_packable, parts)):
            reason = f"only channels of (N, C, H, W) tensors are concatenated on the accelerator, not {node.type}"
            self._on_host(node, "concat", reason)
        elif reason := next(filter(None, map(self._why_not_copied, parts)), ""):
            self._on_host(node, "concat", reason)
        elif not self._touches_core(node):
            self._on_host(node, "concat", "joins tensors of the host for the host")
        elif all(arg.shape[1] % self.blocks.dram_block == 0 for arg in node.args[:-1]):
            self.packed_form[node] = self._packed_concat(node, node.shape, node.span)
        else:
            gaps = Gaps.between([part.shape for part in parts], self.blocks.dram_block)
            self.with_gaps[node] = self._packed_concat(node, gaps.shape, replace(node.span, tensor="")), gaps

    def _touches_core(self, node: Call) -> bool:
        """Whether the core has an operand of a concatenation, or reads it as it is."""
        made = any(arg in self.packed_form or arg in self.with_gaps for arg in node.args)
        return made or any(_is_layer(reader) for reader, _ in self.readers.get(node, ()))

    def _why_not_copied(self, part: TensorType) -> str:
        """Why an operand of a concatenation that does not lie in its place cannot be copied there; empty if it can."""
        _, *rest = self.blocks.packed_type(part).shape
        return self.why_not(copy_kernel("concat", (1, *rest), self.blocks.sizes))

    def _packed_concat(self, node: Call, shape: tuple[int, ...], span: Span) -> Call:
        params = tuple(Var(f"x{i}", self.blocks.packed_type(arg.tensor_type)) for i, arg in enumerate(node.args))
        body = call("packed_concat", *params, blocks=self.blocks.sizes, span=span)
        name = node.span.node or "concat"
        attrs = Attrs({"name": name, "primitive": True, "anchor": "concat", "shape": shape, "macs": 0})
        return call(Function(params, body, attrs), *map(self.packed, node.args), span=span)


def _is_of_core(packed: Expr) -> bool:
    """Whether the core has made a packed value."""
    return isinstance(packed, Call) and isinstance(packed.op, Function) and not packed.op.host_reason


def _is_layer(node: Call) -> bool:
    """Whether the core computes a call."""
    values = (*node.args, node)
    return isinstance(node.op, Function) and node.op.is_primitive and all(is_packable(x.tensor_type) for x in values)


def _constants(function: Function) -> list[Array]:
    return [arg.value for node in calls(function.body) for arg in node.args if isinstance(arg, Constant)]


def _same_pixels(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether two shapes are the same packed tensor: (N, C) and (N, C, 1, 1)."""
    ranks = {len(before), len(after)}
    return ranks <= set(PACKABLE_RANKS) and packed_layout.spatial(before) == packed_layout.spatial(after)


def pack_function(function: Function, blocks: Blocks) -> Function:
    """A primitive function on packed tensors; made once for each function.

    Its attributes say what the plain result is: ``shape``, and ``macs``, the multiply-accumulates of its convolution.
    """
    made = _PACKED.setdefault(function, {})
    if blocks not in made:
        made[blocks] = _pack_function(function, blocks)
    return made[blocks]


_PACKED: WeakKeyDictionary[Function, dict[Blocks, Function]] = WeakKeyDictionary()
"""Functions that are still in use, packed: what fits is found out from the packed form, before all are packed."""


def _read_beside(function: Function, wide: WideProduct) -> list[Var]:
    """The parameters that something else than a product with zero points reads."""
    read = {arg for node in calls(function.body) if node != wide.product for arg in node.args}
    return [param for param in function.params if param in read]


def _pack_function(function: Function, blocks: Blocks) -> Function:
    wide = WideProduct.of(function)
    operands = wide.params(blocks) if wide is not None else None
    params = {param: Var(param.name, blocks.packed_type(param.type)) for param in function.params}
    values: dict[int, Expr] = {}
    macs = 0
    for node in topological_order(function.body):
        match node:
            case Var():
                values[id(node)] = params[node]
            case Constant():
                continue
            case Call():
                if wide is not None and operands is not None and node == wide.product:
                    values[id(node)] = wide.packed(operands, blocks)
                else:
                    values[id(node)] = _packed_call(node, values, blocks)
                entry = operator_of(node)
                macs += entry.macs(node) if entry is not None else 0
            case _:
                raise GraphError(f"{type(node).__name__} is not expected in a primitive function", at=node.span)
    attrs = function.attrs.replace(shape=function.body.shape, macs=function.attrs.get("macs", macs))
    body = values[id(function.body)]
    taken = [params[param] for param in (function.params if wide is None else _read_beside(function, wide))]
    return Function((*taken, *(operands or ())), body, attrs, function.span)


def _packed_call(node: Call, values: dict[int, Expr], blocks: Blocks) -> Call:
    attrs: dict[str, Any] = {**node.attrs, "blocks": blocks.sizes}
    match node:
        case Call(op="conv2d", args=(x, Constant() as w)):
            groups = attrs.pop("groups")
            if groups > 1 and groups == x.shape[1] == node.shape[1]:
                weights = _packed(w, packed_layout.pack_depthwise_weights(w.value, blocks))
                return _call("packed_depthwise_conv2d", (values[id(x)], weights), attrs, node)
            if groups > 1 and packed_layout.groups_fit_blocks(groups, node.shape[1], w.shape[1], blocks):
                weights = _packed(w, packed_layout.pack_grouped_weights(w.value, blocks))
                return _call("packed_grouped_conv2d", (values[id(x)], weights), attrs, node)
            weights = _packed(w, packed_layout.pack_weights(packed_layout.dense_weights(w.value, groups), blocks))
            return _call("packed_conv2d", (values[id(x)], weights), attrs, node)
        case Call(op="requantise", args=(x, Constant() as bias, Constant() as multiplier, Constant() as shift)):
            together = packed_layout.pack_parameters(bias.value, multiplier.value, shift.value, blocks)
            name = f"{node.span.node}.requantise" if node.span.node else "requantise"
            return _call("packed_requantise", (values[id(x)], Constant(together, name)), attrs, node)
        case Call(op="look_up", args=(x, Constant() as table)):
            packed = _packed(table, packed_layout.pack_table(table.value, blocks))
            match values[id(x)]:
                case Call(op="packed_requantise", args=(source, parameters)) as made if not made.attr("left_shift"):
                    attrs |= {name: made.attr(name) for name in ("zero_point", "low", "high", "rounding")}
                    return _call("packed_requantise_look_up", (source, parameters, packed), attrs, node)
            return _call("packed_look_up", (values[id(x)], packed), attrs, node)
        case Call(op="product"):
            attrs.pop("zero_points")  # there are none, or `WideProduct` brings them in
    operands = tuple(
        _packed(arg, packed_layout.pack_activation(arg.value, blocks)) if isinstance(arg, Constant) else values[id(arg)]
        for arg in node.args
    )
    return _call(packed_form(str(node.op)), operands, attrs, node)


def _packed(w: Constant, value: Array) -> Constant:
    return Constant(value, w.name, w.span)


def _call(op: str, args: tuple[Expr, ...], attrs: dict[str, Any], node: Call) -> Call:
    return call(op, *args, span=node.span, **attrs)
