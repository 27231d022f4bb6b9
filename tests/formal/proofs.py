"""All proofs, by name."""

from __future__ import annotations

from . import dma, forwarding, queues, reset, tokens
from .prover import Proof

PROOFS: dict[str, Proof] = {
    proof.name: proof for module in (tokens, queues, dma, forwarding, reset) for proof in module.PROOFS
}
