"""PTX text as kernels: their parameters, registers, memory and blocks of instructions.

All that a compiler writes for a kernel without calls is read; debug information is skipped. Names of registers are
taken to be different in nested scopes, as compilers make them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from .errors import PtxSyntaxError
from .types import BITS, COMPUTED, STORED

WARP = 32
OPEN_ALIGNMENT = 16
"""Bytes that the start of shared memory of open size is a multiple of."""
MOST_THREADS = 1024
"""Of a block, on every device."""

MOST_BLOCKS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
"""Of a grid, along x, y and z."""

MOST_REGISTERS = 65536
"""Of one name; a device has no more of them for a whole block."""

LARGEST_VARIABLE = 1 << 30
"""In bytes."""

_ENDS = ("bra", "brx", "ret", "exit", "bar", "barrier")  # a block of instructions ends behind one of these
_LINES = (".version", ".target", ".address_size", ".file", ".loc")  # directives without a semicolon


@dataclass(frozen=True)
class Instruction:
    """``operation`` and ``modifiers`` of ``text``, such as "ld" and ("global", "f32"). ``predicate``: register, and
    whether it must be false."""

    text: str
    operation: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    predicate: tuple[str, bool] | None
    line: int

    @property
    def types(self) -> tuple[str, ...]:
        """The types among the modifiers, in order."""
        return tuple(each for each in self.modifiers if each in BITS)

    @property
    def type(self) -> str:
        """The last type; untyped bits where there is none."""
        return self.types[-1] if self.types else "b32"

    @property
    def place(self) -> str:
        """Where it stands, for errors."""
        return f"line {self.line}: {self.text}"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: a number, or an address."""

    name: str
    type: str


@dataclass(frozen=True)
class Kernel:
    """An entry. ``capability``: of the devices that it is for, 80 for sm_80; 0 where none is named. ``registers``: bits
    of each; ``shared`` and ``local``: byte at which each variable starts; ``constants``: bytes of initialised tables.
    ``threads``: the most of a block, and ``exact`` whether it must have so many. ``dynamic_shared``: whether it has
    shared memory of which the launch tells the size. ``ways``: labels of which a branch chooses one by number."""

    name: str
    parameters: tuple[Parameter, ...]
    registers: Mapping[str, int]
    shared: Mapping[str, int]
    shared_bytes: int
    dynamic_shared: bool
    local: Mapping[str, int]
    local_bytes: int
    constants: Mapping[str, bytes]
    blocks: tuple[tuple[Instruction, ...], ...]
    labels: Mapping[str, int]
    threads: int | None
    exact: bool
    capability: int = 0
    ways: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def named_once(self) -> frozenset[str]:
        """Registers that one place of the text names: what is put there is never used."""
        named = Counter[str]()
        for instruction in (each for block in self.blocks for each in block):
            named.update(re.findall(r"[\w$%]+", instruction.text))
        return frozenset(name for name, count in named.items() if count == 1)


def parse(text: str) -> dict[str, Kernel]:
    """All kernels of a PTX text, by name. PtxSyntaxError names the line."""
    return _Parser(text).run()


def split_operands(text: str) -> tuple[str, ...]:
    """Operands between commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return (*found, last) if last else tuple(found)


@dataclass
class _Space:
    """Variables of a memory space, one behind the other."""

    places: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0

    def declare(self, name: str, nbytes: int, align: int) -> None:
        start = -(-self.nbytes // align) * align
        self.places[name] = start
        self.nbytes = start + nbytes


_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|internal)\s+)*\.(?P<space>shared|local|global|const)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$%.]+)(?P<sizes>(?:\[\d*\])*)"
    r"(?:\s*=\s*(?P<values>.*))?$",
    re.DOTALL,
)


_HEAD = re.compile(r"\.(entry|func|section)\b")
_KINDS = {"{": "open", "}": "close", ":": "label", ";": "statement"}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = re.sub(r"/\*.*?\*/|//[^\n]*", _blank, text, flags=re.DOTALL)
        self.kernels: dict[str, Kernel] = {}
        self.shared, self.constants = _Space(), dict[str, bytes]()
        self.open: set[str] = set()
        target = re.search(r"^\s*\.target\s+sm_(\d{1,4})", self.text, re.MULTILINE)
        self.capability = int(target[1]) if target else 0

    def run(self) -> dict[str, Kernel]:
        head = ""
        for kind, text, line in self.pieces():
            if kind == "open" and re.search(r"\.(entry|func)\b", text):
                head = text
                self.entry_start(text, line)
            elif kind == "open":
                if not head:
                    raise PtxSyntaxError(f"a block of {text or 'nothing'!r} outside of a kernel", at=f"line {line}")
            elif kind == "close":
                if not self.depth:
                    self.entry_end(head, line)
                    head = ""
            elif kind == "label":
                self.label(text, head, line)
            elif head:
                self.inside(text, line)
            else:
                self.outside(text, line)
        if head:
            raise PtxSyntaxError("the text ends inside of a kernel", at=head.split("(")[0].strip())
        return self.kernels

    # Pieces

    def pieces(self) -> Iterator[tuple[str, str, int]]:
        """("open", what stands before the brace), ("close", ""), ("label", name) and ("statement", text), each with its
        line."""
        text, done, line, begun, pending = self.text, 0, 1, 1, ""
        self.depth = 0
        for match in re.finditer(r"[;:{}\n\"]", text):
            place, letter = match.start(), match.group()
            if place < done:
                continue
            if not pending.strip():
                begun = line
            pending += text[done:place]
            done = place + 1
            statement = " ".join(pending.split())
            if letter == "\n":
                line += 1
                pending = "" if statement.startswith(_LINES) else f"{pending} "
            elif letter == '"' or (letter == "{" and statement and not _HEAD.search(statement)):
                end = text.find('"' if letter == '"' else "}", place + 1)
                if end < 0:
                    raise PtxSyntaxError(f"a {letter} is not closed", at=f"line {line}")
                pending += text[place : end + 1]
                line += text.count("\n", place, end)
                done = end + 1
            elif letter == ":" and (not re.fullmatch(r"[\w$%]+", statement) or text[place + 1 : place + 2] == ":"):
                pending += letter * 2 if text[place + 1 : place + 2] == ":" else letter
                done += text[place + 1 : place + 2] == ":"
            elif letter == "{" and ".section" in statement:
                end = text.find("}", place)
                if end < 0:
                    raise PtxSyntaxError("a section has no end", at=f"line {line}")
                line += text.count("\n", place, end)
                done, pending = end + 1, ""
            else:
                pending = ""
                if letter == "}":
                    self.depth -= 1
                    if self.depth < 0 or statement:
                        raise PtxSyntaxError(f"a brace behind {statement!r} closes nothing", at=f"line {line}")
                elif letter == "{":
                    self.depth += 1
                if statement or letter in "{}":
                    yield _KINDS[letter], statement, begun
        rest = " ".join((pending + text[done:]).split())
        if rest and not rest.startswith(_LINES):
            raise PtxSyntaxError(f"no semicolon behind {rest[:60]!r}", at=f"line {begun}")

    # Outside of kernels

    def outside(self, text: str, line: int) -> None:
        if text.split()[0] in (".pragma", *_LINES) or re.search(r"\.func\b", text):  # a function that is only declared
            return
        match = _VARIABLE.match(text)
        if match is None:
            raise PtxSyntaxError(f"it is not known: {text[:60]!r}", at=f"line {line}")
        self.variable(match, self.shared, line)

    def variable(self, match: re.Match[str], space: _Space, line: int) -> None:
        kind, name = match["type"], match["name"]
        if kind not in BITS:
            raise PtxSyntaxError(f"there is no type {kind!r}", at=f"line {line}")
        each = max(1, BITS[kind] // 8)
        sizes = re.findall(r"\[(\d*)\]", match["sizes"])
        nbytes = each * prod(_count(size or "0", LARGEST_VARIABLE, line) for size in sizes)
        if nbytes > LARGEST_VARIABLE:
            raise PtxSyntaxError(f"a variable of {nbytes} bytes", at=f"line {line}")
        if match["space"] in ("global", "const"):
            self.constants[name] = _initial(match["values"], kind, nbytes, line)
            return
        if "" in sizes and match["space"] == "shared":
            self.open.add(name)
        align = _count(match["align"] or str(each), LARGEST_VARIABLE, line)
        if align.bit_count() != 1:
            raise PtxSyntaxError(f"aligned to {align} bytes, which is no power of 2", at=f"line {line}")
        space.declare(name, nbytes, align)

    # Kernels

    def entry_start(self, head: str, line: int) -> None:
        if ".entry" not in head:
            raise PtxSyntaxError("functions that are called are not known", at=f"line {line}: {head[:60]}",
                                 hint="let the compiler inline them")  # fmt: skip
        self.own_shared, self.local = _Space(dict(self.shared.places), self.shared.nbytes), _Space()
        self.registers: dict[str, int] = {}
        self.blocks: list[list[Instruction]] = [[]]
        self.labels: dict[str, int] = {}
        self.ways: dict[str, tuple[str, ...]] = {}
        self.named = ""

    def entry_end(self, head: str, line: int) -> None:
        match = re.search(r"\.entry\s+([\w$]+)\s*(?:\((.*?)\))?([^()]*)$", head)
        if match is None:
            raise PtxSyntaxError(f"it is no head of a kernel: {head[:60]!r}", at=f"line {line}")
        name, parameters, rest = match[1], match[2] or "", match[3]
        bounds = re.search(r"\.(maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", rest)
        threads = prod(_count(each, MOST_THREADS, line) for each in bounds.groups()[1:] if each) if bounds else None
        if not self.blocks[-1]:
            self.blocks.pop()
        # What a launch tells the size of lies behind everything else, aligned as any device does.
        behind = -(-self.own_shared.nbytes // OPEN_ALIGNMENT) * OPEN_ALIGNMENT if self.open else self.own_shared.nbytes
        places = {**self.own_shared.places, **dict.fromkeys(self.open, behind)}
        self.kernels[name] = Kernel(
            name, tuple(_parameter(each, line) for each in parameters.split(",") if each.strip()), self.registers,
            places, behind, bool(self.open), self.local.places, self.local.nbytes,
            dict(self.constants), tuple(map(tuple, self.blocks)), self.labels, threads,
            bounds is not None and bounds[1] == "reqntid", self.capability, self.ways,
        )  # fmt: skip

    def inside(self, text: str, line: int) -> None:
        if text.startswith(".reg"):
            self.declare_registers(text, line)
            return
        match = _VARIABLE.match(text)
        if match is not None:
            self.variable(match, self.own_shared if match["space"] == "shared" else self.local, line)
            return
        if text.startswith("."):
            if text.startswith(".pragma"):
                return
            if text.startswith(".branchtargets") and self.named:
                self.ways[self.named] = tuple(each.strip() for each in text.removeprefix(".branchtargets").split(","))
                return
            raise PtxSyntaxError(f"it is not known: {text[:60]!r}", at=f"line {line}")
        made = _instruction(text, line)
        self.blocks[-1].append(made)
        if made.operation in _ENDS and "warp" not in made.modifiers:
            self.blocks.append([])

    def label(self, name: str, head: str, line: int) -> None:
        if not head:
            raise PtxSyntaxError(f"a label {name!r} outside of a kernel", at=f"line {line}")
        if self.blocks[-1]:
            self.blocks.append([])
        self.labels[name] = len(self.blocks) - 1
        self.named = name

    def declare_registers(self, text: str, line: int) -> None:
        match = re.match(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.*)$", text)
        if match is None or match[1] not in BITS:
            raise PtxSyntaxError(f"it declares no registers: {text!r}", at=f"line {line}")
        for name in match[2].split(","):
            counted = re.fullmatch(r"([\w%$]+)<(\d+)>", name.strip())
            many = _count(counted[2], MOST_REGISTERS, line) if counted else 0
            names = [f"{counted[1]}{each}" for each in range(many)] if counted else [name.strip()]
            self.registers.update(dict.fromkeys(names, BITS[match[1]]))


def _blank(match: re.Match[str]) -> str:
    """A comment without its letters: lines stay where they are."""
    return re.sub(r"[^\n]", " ", match.group())


def _parameter(text: str, line: int) -> Parameter:
    match = re.search(r"\.param\b.*?\.([bsuf]\d+)\b(?:.*\s)([\w$]+)\s*$", text.strip())
    if match is None or match[1] not in COMPUTED:
        raise PtxSyntaxError(f"a parameter of this kind is not known: {text.strip()!r}", at=f"line {line}",
                             hint="parameters are numbers and addresses")  # fmt: skip
    return Parameter(match[2], match[1])


def _instruction(text: str, line: int) -> Instruction:
    rest, predicate = text, None
    if text.startswith("@"):
        first, _, rest = text.partition(" ")
        predicate = (first.lstrip("@!"), "!" in first)
    name, _, operands = rest.strip().partition(" ")
    operation, *modifiers = name.replace("::", ".").split(".")
    return Instruction(text, operation, tuple(modifiers), split_operands(operands), predicate, line)


def _count(digits: str, most: int, line: int) -> int:
    if len(digits) > len(str(most)) or int(digits) > most:
        raise PtxSyntaxError(f"{digits[:20]} is more than the {most} that are known", at=f"line {line}")
    return int(digits)


def _initial(values: str | None, kind: str, nbytes: int, line: int) -> bytes:
    """The bytes of a table; zeros where nothing is said."""
    if not values:
        return bytes(nbytes)
    texts = [each.strip().rstrip("U") for each in values.strip("{} ").split(",") if each.strip()]
    try:
        numbers = [int(each[2:], 16) if each[:2] in ("0f", "0d") else int(each, 0) for each in texts]
    except ValueError:
        raise PtxSyntaxError(f"a table of other things than numbers: {values[:60]!r}", at=f"line {line}") from None
    if BITS[kind] not in STORED:
        raise PtxSyntaxError(f"a table of {kind}", at=f"line {line}")
    mask = (1 << BITS[kind]) - 1
    data = np.array([number & mask for number in numbers], STORED[BITS[kind]]).tobytes()
    return data.ljust(nbytes, b"\0")
