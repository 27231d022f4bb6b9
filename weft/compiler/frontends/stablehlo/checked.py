"""Strangers' modules: MLIR's parser trusts what it is given, so a process of its own reads them first."""

from __future__ import annotations

import subprocess
import sys

from ..errors import ModelError

SECONDS = 300

CHILD = """
import sys
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

data, version = sys.stdin.buffer.read(), stablehlo.get_current_version()
if not data.startswith(b"ML\\xefR"):
    data = stablehlo.serialize_portable_artifact_str(data, version)
context = ir.Context()
stablehlo.register_dialect(context)
chlo.register_dialect(context)
with context:
    module = stablehlo.deserialize_portable_artifact(context, data)
    sys.stdout.buffer.write(stablehlo.serialize_portable_artifact(module, version))
"""
"""From text or an artifact to an artifact that this version of MLIR wrote."""


def checked(data: bytes, file: str) -> bytes:
    """The module of StableHLO in text or in a portable artifact, as an artifact that can be trusted to be one.

    Raises ModelError for what is none; a parser that does not come back ends with its process.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD], input=data, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"{file} cannot be read as a module of StableHLO: it took over {SECONDS} seconds") from None
    if done.returncode == 0 and done.stdout:
        return done.stdout
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if "error: " in line]
    reason = lines[0].partition("error: ")[2] if lines else "its parser failed"
    raise ModelError(f"{file} cannot be read as a module of StableHLO: {reason}",
                     hint="is it damaged, or of a newer version than the installed jaxlib?")  # fmt: skip
