"""All proofs, by name."""

from __future__ import annotations

from . import queues, tokens
from .prover import Proof

PROOFS: dict[str, Proof] = {proof.name: proof for module in (tokens, queues) for proof in module.PROOFS}
