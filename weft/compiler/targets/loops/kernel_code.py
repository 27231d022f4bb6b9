"""A scheduled function as text with all that stands beside it in a program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ...model import KernelCode, windows_text
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Buffer, PrimFunc
from ...tensor.printer import function_text
from .workspace import plan_workspace

KERNEL = "weft_kernel"
"""Name of every kernel's function, so that equal ones have equal text."""


def kernel_code(func: PrimFunc, windows: Mapping[str, tuple[int, ...]], threads: int) -> KernelCode:
    """A scheduled function for a program on so many threads. ``windows``: as in `KernelCode`.

    Whoever makes code of it proves it first: before this (`require_bounds`), or from its text (`check_kernel`).
    """
    text = function_text(func)
    workspace = plan_workspace(func)
    return KernelCode(
        kernel_symbol(text, windows), text, dict(windows),
        tuple(touched_bytes(buffer, windows.get(buffer.name, buffer.strides)) for buffer in func.params),
        workspace.total(threads), workspace.parts if threads > 1 else 0,
    )  # fmt: skip


def kernel_symbol(text: str, windows: Mapping[str, tuple[int, ...]]) -> str:
    """The name of a kernel in a program, which stands for its content."""
    key = f"{windows_text(windows)}\n{text}"
    return f"weft_{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}"


def touched_bytes(buffer: Buffer, strides: tuple[int, ...]) -> int:
    """Bytes from the first element of a parameter to behind its last."""
    last = sum((extent - 1) * stride for extent, stride in zip(buffer.shape, strides, strict=True))
    return (last + 1) * ITEM_BYTES[buffer.dtype]
