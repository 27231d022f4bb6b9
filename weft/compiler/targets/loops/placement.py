"""Which kernel each group becomes, and how each tensor lies in memory: decided once for the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...graph.ir import Call, Expr
from ..errors import CompileError
from .fusion import FusedGroup
from .joins import joined_block, written_in_place
from .kernels import Kernel
from .layouts import NO_HALO, PLAIN, Layout
from .phases import written_around


class KernelKind(Protocol):
    """One way to make a kernel of a group. A target lists its kinds in order: the first that fits makes the group."""

    @property
    def name(self) -> str:
        """For tables."""

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        """The layout in which it makes the result; None where this kind does not fit."""

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        """The layout in which it needs the data of the group's anchor; None if it can read any."""

    def needs_blocks(self, anchor: Call) -> bool:
        """Whether it reads the data of such an anchor in blocks, those of its own layouts."""

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        """The kernel. ``layouts``: of the group's inputs; ``layout``: of its result."""


@dataclass
class Placement:
    """Decisions by value, or by the root of a group.

    ``groups``: in order, without reshapes that all their readers do themselves. ``kernels``: the kind of each group
    that is compiled. ``aliases``: groups whose result is an input's memory.
    ``native``: the layout in which each value is made; ``data``: the layout that a group needs its anchor's data in.
    ``joins``: concatenations into which operands are written; ``parts``: those operands, with the result and the byte.
    """

    kinds: Sequence[KernelKind]
    readers: Mapping[Expr, list[FusedGroup]]
    groups: list[FusedGroup] = field(default_factory=list)
    kernels: dict[Expr, KernelKind] = field(default_factory=dict)
    aliases: set[Expr] = field(default_factory=set)
    native: dict[Expr, Layout] = field(default_factory=dict)
    data: dict[Expr, Layout] = field(default_factory=dict)
    joins: dict[Expr, None] = field(default_factory=dict)
    parts: dict[Expr, tuple[Expr, int]] = field(default_factory=dict)

    def layout(self, value: Expr) -> Layout:
        return self.native.get(value, PLAIN)

    def written_directly(self, outputs: Sequence[Expr]) -> dict[Expr, int]:
        """The values that a kernel writes to the memory of an output, with its number: the output itself, or what it is
        a reshape of, of which it becomes an alias."""
        found: dict[Expr, int] = {}
        for number, output in enumerate(outputs):
            if not self._is_plain_kernel(output):
                continue
            source = output
            while isinstance(source, Call) and source.op == "reshape":
                source = source.args[0]
            if source != output and self._is_plain_kernel(source):
                del self.kernels[output]
                self.aliases.add(output)
                found.setdefault(source, number)
            else:
                found.setdefault(output, number)
        return found

    def _is_plain_kernel(self, value: Expr) -> bool:
        """Whether a kernel makes a value, by itself and in the plain layout."""
        return value in self.kernels and value not in self.parts and self.layout(value) == PLAIN

    def feeds_blocks(self, value: Expr) -> bool:
        """Whether the anchor of some reader needs ``value`` in blocks."""
        anchors = [group.anchor for group in self.readers.get(value, []) if group.anchor is not None]
        return any(
            held(anchor.args[0]) == value and any(kind.needs_blocks(anchor) for kind in self.kinds)
            for anchor in anchors
        )


def held(value: Expr) -> Expr:
    """What a barrier hands on; any other value itself."""
    while isinstance(value, Call) and value.op == "barrier":
        value = value.args[0]
    return value


def place_groups(groups: Sequence[FusedGroup], outputs: Sequence[Expr], kinds: Sequence[KernelKind]) -> Placement:
    """Kinds and layouts. A value's halo is the widest that its convolutions ask for.

    CompileError if no kind fits a group.
    """
    readers: dict[Expr, list[FusedGroup]] = {}
    for group in groups:
        for value in group.inputs:
            readers.setdefault(held(value), []).append(group)
    placement = Placement(kinds, readers)
    takers: dict[FusedGroup, FusedGroup] = {}  # groups that take in the reshapes that they read
    for given in groups:
        group = takers.get(given, given)
        if group.root not in outputs and _goes_into_readers(group, placement):
            takers |= {reader: takers.get(reader, reader).behind(group.root) for reader in readers[group.root]}
            continue
        placement.groups.append(group)
        if group.is_alias and group.root not in outputs:
            placement.aliases.add(group.root)
        elif block := joined_block(group, placement.layout, outputs):
            placement.joins[group.root] = None
            placement.native[group.root] = Layout(block)
        elif not group.reason:
            _choose_kind(group, placement)
    for group in placement.groups:
        kind = placement.kernels.get(group.root)
        layout = kind.data_layout(group, placement) if kind is not None else None
        if layout is None or group.anchor is None:
            continue
        placement.data[group.root] = layout
        data = held(group.anchor.args[0])
        own = placement.layout(data)
        if own.is_like(layout) and (NO_HALO in (own.halo, layout.halo) or own.fill == layout.fill):
            placement.native[data] = own.merged(layout)
    for group in placement.groups:
        own, around = placement.layout(group.root), written_around(group.root)
        if own.block and around != NO_HALO and group.anchor != group.root:  # its readers say what the halo holds
            placement.native[group.root] = Layout(own.block, around, own.fill).merged(own)
    made = lambda value: value in placement.kernels or value in placement.joins  # noqa: E731
    placement.parts = written_in_place(placement.joins, placement.native, made)
    for alias in placement.aliases:
        if held(alias) != alias:  # in whatever layout the value itself is
            placement.native[alias] = placement.layout(held(alias))
    return placement


def _goes_into_readers(group: FusedGroup, placement: Placement) -> bool:
    """Whether a group is a reshape of the pixels of an image in blocks, and all its readers put channels last, as the
    tokens of a vision transformer: neighbours in the image are neighbours for them, in whatever layout."""
    root = group.root
    if not group.is_alias or root.op != "reshape" or placement.layout(root.args[0]).is_plain:
        return False
    readers = placement.readers.get(root, [])
    kept = root.shape[:2] == root.args[0].shape[:2]
    return kept and bool(readers) and all(_puts_channels_last(reader, root) for reader in readers)


def _puts_channels_last(group: FusedGroup, image: Expr) -> bool:
    users = [member for member in group.members if image in member.args]
    return not group.reason and all(user.op == "transpose" and user.attr("perm")[-1] == 1 for user in users)


def _choose_kind(group: FusedGroup, placement: Placement) -> None:
    for kind in placement.kinds:
        layout = kind.result_layout(group, placement)
        if layout is not None:
            placement.kernels[group.root] = kind
            if not layout.is_plain:
                placement.native[group.root] = layout
            return
    raise CompileError("no kind of kernel fits it", at=f"kernel {group.name!r}",
                       hint="let the target's last kind make any group, or refuse the operator")  # fmt: skip
