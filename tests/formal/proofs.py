"""All proofs, by name."""

from __future__ import annotations

from . import array, depthwise, dma, forwarding, liveness, product, queues, reset, tokens, vector_lanes, write_ports
from .prover import Proof

PROOFS: dict[str, Proof] = {
    proof.name: proof
    for module in (
        array,
        tokens,
        queues,
        write_ports,
        dma,
        forwarding,
        depthwise,
        liveness,
        reset,
        vector_lanes,
        product,
    )
    for proof in module.PROOFS
}
