"""All proofs, by name."""

from __future__ import annotations

from . import depthwise, dma, forwarding, liveness, queues, reset, tokens, write_ports
from .prover import Proof

PROOFS: dict[str, Proof] = {
    proof.name: proof
    for module in (tokens, queues, write_ports, dma, forwarding, depthwise, liveness, reset)
    for proof in module.PROOFS
}
