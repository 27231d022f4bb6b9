"""Random graphs as machine code, in the short form of `benchmarks/campaigns/fuzz_graphs.py`; it sees a fault."""

from __future__ import annotations

from types import ModuleType

import pytest
from weft.compiler.graph import Call, Module, call
from weft.compiler.graph.visit import rewrite
from weft.compiler.targets.loops.prepare import prepare


@pytest.mark.parametrize("block", range(2))
def test_machine_code_agrees_with_numpy(campaign: ModuleType, block: int) -> None:
    tally = campaign.Tally()
    for seed in range(block * 12, block * 12 + 12):
        assert campaign.check(seed, 12, tally) == ""
    assert tally.variants > tally.graphs
    assert tally.in_numpy < tally.operators / 2


def test_a_fault_is_found_and_shrunk(campaign: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(node: Call) -> Call | None:
        return call("nn.round", *node.args, span=node.span) if node.op == "nn.floor" else None

    def spoiled(module: Module) -> Module:
        return prepare(module.with_main(rewrite(module.main.body, wrong)))

    monkeypatch.setattr(campaign, "prepare", spoiled)
    tally = campaign.Tally()
    found = next(filter(None, (campaign.check(seed, 12, tally) for seed in range(200))))
    assert "differs by" in found
    assert "nn.floor(" in found
    assert found.count("nn.") == 1  # of all operators one is left
