"""Code of kernels for GPUs: which functions are a kernel's; PTX by kind and loop, as `assembly` does it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..compiler.model import GpuCode
from .assembly import ARITHMETIC, CALL, KEPT, LOAD, MOVE, MULTIPLY, SCALAR, STORE, AsmLoop, Listing, listing_of

PTX_FORMS = (
    (r"(?:w?mma)\.", "products of small matrices on tensor cores"),
    (r"dp[24]a\.", "products of bytes, added up into 32 bits"),
    (r"fma\.", "float, multiplied and added in one"),
    (r"mul\.(?:\w+\.)*[bf]\w*(?:16|32|64)(?:x2)?$", "float, multiplied; added by another"),
)
"""Instructions of PTX that multiply values, not addresses, and how."""

_KINDS = (
    (r"(?:ld|st)\.(?:\w+\.)?local", KEPT),
    (r"ld\.param", SCALAR),
    (r"ld\.|ldmatrix|ldu\.|cp\.async\.c[ag]", LOAD),
    (r"st\.|red\.|atom\.", STORE),
    (r"call", CALL),
    (r"shfl|prmt|movmatrix|cvt\.(?:\w+\.)*(?:[su]8|f16|f32|f64|bf16\w*)\b|mov\.f|mov\.b(?:16|32)|selp\.f", MOVE),
    (r"(?:add|sub|div|min|max|abs|neg|sqrt|rcp|ex2|lg2|tanh|rsqrt|sin|cos)\.(?:\w+\.)*[bf]\w*(?:16|32|64)", ARITHMETIC),
)
_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")
_FUNCTION = re.compile(r"^(?:\.visible \.entry|__kernel\b)", re.MULTILINE)


def kernel_texts(code: GpuCode) -> dict[str, str]:
    """By a kernel's symbol, the functions that are launched for one run of it."""
    starts = [found.start() for found in _FUNCTION.finditer(code.text)]
    parts = [code.text[start:end] for start, end in zip(starts, [*starts[1:], len(code.text)], strict=True)]
    functions = [part[: part.index("\n}") + 2] if "\n}" in part else part for part in parts]
    return {
        symbol: "\n\n".join(
            text for call in calls for text in functions if re.search(rf"\b{re.escape(call.function)}\(", text)
        )
        for symbol, calls in code.calls.items()
    }


def source_listing(text: str) -> Listing:
    """Of a language in which instructions are not seen: its lines alone."""
    lines = tuple(text.splitlines())
    return listing_of(lines, [""] * len(lines), (), form_of_ptx)


def ptx_listing(text: str) -> Listing:
    """The functions of a kernel in PTX. A loop is what lies between a label and a later branch to it."""
    lines: list[str] = []
    for line in (each.expandtabs(4).rstrip() for each in text.splitlines()):
        if lines and re.match(r" *[a-z@][^;]*$", lines[-1]):  # an instruction that LLVM writes on several lines
            lines[-1] += f" {line.strip()}"
        elif line.strip() and not line.strip().startswith("//"):
            lines.append(line)
    kinds = [_kind(line.strip()) for line in lines]
    return listing_of(lines, kinds, _loops(lines), form_of_ptx)


def _loops(lines: Sequence[str]) -> tuple[AsmLoop, ...]:
    labels = {found[1]: number for number, line in enumerate(lines) if (found := _LABEL.match(line.strip()))}
    spans: dict[int, int] = {}
    for number, line in enumerate(lines):
        found = _BRANCH.search(line)
        if found is not None and labels.get(found[1], number) < number:
            spans[labels[found[1]]] = number
    pairs = list(spans.items())
    return tuple(
        AsmLoop(
            lines[first].strip().rstrip(":"),
            sum(one <= first and last <= other for one, other in pairs),
            tuple(range(first, last + 1)),
            not any(first < one and other <= last for one, other in pairs),
        )
        for first, last in pairs
    )


def form_of_ptx(mnemonic: str) -> str:
    """How an instruction multiplies values; empty for one that does not."""
    return next((how for pattern, how in PTX_FORMS if re.match(pattern, mnemonic)), "")


def ptx_mnemonic(line: str) -> str:
    """The first word of an instruction, behind its predicate."""
    return re.sub(r"^@!?%\w+\s+", "", line.strip()).split(maxsplit=1)[0].rstrip(";")


def _kind(line: str) -> str:
    """The kind of a line; empty for what is no instruction: a label, a declaration, the frame."""
    if not re.match(r"@|[a-z]", line) or not line.endswith(";"):
        return ""
    mnemonic = ptx_mnemonic(line)
    if form_of_ptx(mnemonic):
        return MULTIPLY
    return next((kind for pattern, kind in _KINDS if re.match(pattern, mnemonic)), SCALAR)
