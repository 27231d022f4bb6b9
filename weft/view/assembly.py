"""A kernel's assembly, as LLVM prints it with its comments: instructions by kind, loops, and the one that most of the
time goes to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

KINDS = (
    "multiply-accumulate", "other arithmetic", "load", "store", "kept in memory", "move", "address and branch", "call",
)  # fmt: skip
"""Of instructions, as `kind_of` tells them. ``kept in memory``: what registers had no room for, written or read
again; ``move``: also shuffles and changes of width; ``address and branch``: all else of the scalar unit."""

MULTIPLY, ARITHMETIC, LOAD, STORE, KEPT, MOVE, SCALAR, CALL = KINDS

FORMS = (
    (r"vpdpb\w+|[su]dot|v[su]dot\S*|usdot|sudot", "four products of bytes, added up into 32 bits"),
    (r"vpdpw\w+", "two products of 16 bits, added up into 32"),
    (r"(us?|s)mmla", "products of two rows of eight bytes with two others"),
    (r"v?pmaddubsw", "products of bytes, added up by pairs into 16 bits"),
    (r"v?pmaddwd", "products of 16 bits, added up by pairs into 32"),
    (r"vdpbf16ps|bfdot|bfmmla|bfmlal\w", "products of bfloat16, added up into float32"),
    (r"v?[su]?ml[as]l2?\S*|[su]mull2?\S*|vmull\S*", "products of 16 bits or 8, lane by lane, twice as wide"),
    (r"vfn?m(add|sub)\d+[ps][sd]|fmla\S*|fmls\S*|fn?m(add|sub)|vfn?m[as]\S*", "float, multiplied and added in one"),
    (r"v?mul[ps][sd]|fn?mul\S*|vn?mul\.f\d+|vn?ml[as]\.f\d+", "float, multiplied; added by another"),
    (r"v?pmul\w+|mul|ml[as]|vmul\S*|vml[as]\S*|sq\w*mul\w+", "integers, lane by lane"),
)
"""Mnemonics that multiply, and how: what bytes are multiplied with differs from processor to processor."""

_FORMS = tuple((re.compile(rf"(?:{mnemonic})$"), how) for mnemonic, how in FORMS)
_VECTOR = re.compile(r"%(?:[xyz]mm|k)\d|\b[vqdsbh]\d+\b|\{[vqd]\d")
_STORES = re.compile(r"(?:st(?:r|p|ur|[1-4])|vst|stm|push)\w*")
_LOADS = re.compile(r"(?:ld(?:r|p|ur|[1-4]|m)|vld|pop)\w*")
_MOVES = re.compile(
    r"(?:v?mov|v?p?broadcast|v?pshuf|v?shuf|v?perm|v?pack|v?p?unpck|v?p?blend|v?p?insert|v?pinsr|v?p?extr|v?p?alignr|"
    r"valign|vpmov|vzero|vp?compress|vp?expand|kmov|"
    r"fmov|dup|vdup|ins$|[us]mov|zip|uzp|trn|ext$|tbl|vext|vzip|vtrn|vuzp|xtn|[su]xtl|[su]shll|vqmovn|bit$|bsl|rev|"
    r"vswp|vrev|vbsl|vbit)"
)
_CALLS = re.compile(r"(?:call|bl$|blx$|blr$)")
_LABEL = re.compile(r"\.?L(BB\d+_\d+):|[#@/]+ %bb\.\d+:")
_HEADER = re.compile(r"=>\s*This (?:Inner )?Loop Header: ")
_INSIDE = re.compile(r"in Loop: Header=(BB\d+_\d+) ")
_PARENT = re.compile(r"Parent Loop (BB\d+_\d+) Depth=\d+")
_OF_LOOPS = re.compile(r"Loop BB|Loop: Header=|Loop Header:|Parent Loop")
_ENCODING = re.compile(r"^\{\w+\}\s+")
"""LLVM writes it before what could be encoded otherwise, too."""

_COMMENT = re.compile(r"\s+(?:#|@|//)\s")


@dataclass(frozen=True)
class AsmLoop:
    """``header``: LLVM's name of its first block. ``lines``: of the listing, also those of loops in it. ``depth``: 1
    for one that is in no other. ``inner``: whether no other is in it."""

    header: str
    depth: int
    lines: tuple[int, ...]
    inner: bool


@dataclass(frozen=True)
class Listing:
    """A function. ``lines``: labels and instructions; ``kinds``: of each the number of its kind, -1 for a label.
    ``hottest``: the lines that most of the time goes to, those of an inner loop, or all where there is no loop.
    ``form_of``: says of a mnemonic how it multiplies."""

    lines: tuple[str, ...]
    kinds: tuple[int, ...]
    loops: tuple[AsmLoop, ...]
    hottest: tuple[int, ...]
    form_of: Callable[[str], str] = field(compare=False)

    def counts(self, lines: Sequence[int]) -> list[int]:
        """Instructions of each kind in some lines."""
        found = Counter(self.kinds[line] for line in lines)
        return [found[kind] for kind in range(len(KINDS))]

    def readers(self, lines: Sequence[int]) -> int:
        """How many that compute in some lines read an operand from memory: a load that is no instruction of its own."""
        computing = (KINDS.index(MULTIPLY), KINDS.index(ARITHMETIC))
        return sum(self.kinds[line] in computing and _reads(self.lines[line]) for line in lines)

    def forms(self, lines: Sequence[int]) -> list[tuple[str, int, str]]:
        """What multiplies in some lines: mnemonic, how often, and how; the most frequent first."""
        words = (self.lines[line].split() for line in lines if self.kinds[line] == KINDS.index(MULTIPLY))
        found = Counter(next(word for word in each if word[0] != "@").rstrip(";") for each in words)  # no predicate
        return [(mnemonic, count, self.form_of(mnemonic)) for mnemonic, count in found.most_common()]


def listing(assembly: str, symbol: str) -> Listing:
    """The function ``symbol`` of an assembly file; empty where it has none."""
    lines: list[str] = []
    members: dict[str, list[int]] = {}
    blocks = _blocks(_body(assembly, symbol))
    around = {block.header: block.loops for block in blocks if block.header}
    for block in blocks:
        here = range(len(lines), len(lines) + len(block.lines))
        lines += block.lines
        for header in around.get(block.inside, ()):
            members.setdefault(header, []).extend(here)
    outer = {each for loops in around.values() for each in loops[:-1]}
    loops = tuple(
        AsmLoop(header, len(around[header]), tuple(inside), header not in outer) for header, inside in members.items()
    )
    return listing_of(lines, ["" if line.endswith(":") else kind_of(line) for line in lines], loops, form_of)


def listing_of(
    lines: Sequence[str], kinds: Sequence[str], loops: tuple[AsmLoop, ...], form_of: Callable[[str], str]
) -> Listing:
    """``kinds``: of each line, empty for one that is no instruction."""
    numbers = tuple(KINDS.index(kind) if kind else -1 for kind in kinds)
    return Listing(tuple(lines), numbers, loops, _hottest(numbers, loops), form_of)


def _hottest(kinds: Sequence[int], loops: Sequence[AsmLoop]) -> tuple[int, ...]:
    """The innermost loop with the most products, or with the most instructions where none multiplies: of those that
    are as deep, how often each turns is not known from the code alone."""

    def work(loop: AsmLoop) -> tuple[int, int, int]:
        products = sum(kinds[line] == KINDS.index(MULTIPLY) for line in loop.lines)
        return min(products, 1), loop.depth, products or len(loop.lines)

    inner = [loop for loop in loops if loop.inner]
    return max(inner, key=work).lines if inner else tuple(range(len(kinds)))


@dataclass
class _Block:
    """A basic block. ``header``: its name, where a loop starts with it, with ``loops`` from the outermost to that one.
    ``inside``: the header of the innermost loop that it is in."""

    name: str
    lines: list[str]
    header: str = ""
    loops: tuple[str, ...] = ()
    inside: str = ""


def _blocks(body: Sequence[str]) -> list[_Block]:
    blocks = [_Block("", [])]
    parents: list[str] = []
    for line in body:
        if (label := _LABEL.match(line)) is not None:
            blocks.append(_Block(label[1] or "", []))
            parents = []
        block = blocks[-1]
        parents += _PARENT.findall(line)
        if _HEADER.search(line):
            block.header = block.inside = block.name
            block.loops = (*parents, block.name)
        elif (found := _INSIDE.search(line)) is not None:
            block.inside = found[1]
        if shown := _shown(line):
            block.lines.append(shown)
    return blocks


def _body(assembly: str, symbol: str) -> list[str]:
    """The lines from behind a function's label to its end."""
    lines = assembly.splitlines()
    first = next((number + 1 for number, line in enumerate(lines) if line.split(":")[0] == symbol), len(lines))
    last = next((number for number in range(first, len(lines)) if "Lfunc_end" in lines[number]), len(lines))
    return lines[first:last]


def _shown(line: str) -> str:
    """A label or an instruction, with what LLVM says of it beside loops; empty for directives and other comments."""
    code, *comments = _COMMENT.split(line.expandtabs(), maxsplit=1)
    text = _ENCODING.sub("", code.strip())
    if not text or text[0] in "#@/" or (text[0] == "." and not text.endswith(":")):
        return ""
    if text.endswith(":"):
        return text
    mnemonic, _, operands = text.partition(" ")
    told = f"  # {comments[0].strip()}" if comments and not _OF_LOOPS.search(comments[0]) else ""
    return f"{mnemonic:<11} {operands.strip()}{told}".rstrip()


def mnemonic_of(line: str) -> str:
    """The first word of a listing's instruction."""
    return line.split(maxsplit=1)[0]


def form_of(mnemonic: str) -> str:
    """How an instruction multiplies; empty for one that does not."""
    return next((how for pattern, how in _FORMS if pattern.match(mnemonic)), "")


def _reads(line: str) -> bool:
    """Whether an operand is memory, which only x86 has, in AT&T's syntax."""
    return "(" in line.partition("  # ")[0]


def kind_of(line: str) -> str:
    """The kind of a listing's instruction, one of `KINDS`."""
    code, _, comment = line.partition("  # ")
    mnemonic, operands = mnemonic_of(code), code.split(maxsplit=1)[-1]
    vector = _VECTOR.search(operands) is not None
    if _CALLS.match(mnemonic):
        return CALL
    if form_of(mnemonic) and vector:
        return MULTIPLY
    moving = _STORES.match(mnemonic) or _LOADS.match(mnemonic) or _MOVES.match(mnemonic)
    if moving and re.search(r"Spill|Reload", comment):
        return KEPT
    if _STORES.match(mnemonic):
        return STORE
    if _LOADS.match(mnemonic):
        return LOAD
    if moving and _reads(line):
        return STORE if operands.rstrip().endswith(")") else LOAD
    if not vector:
        return SCALAR
    return MOVE if moving else ARITHMETIC
