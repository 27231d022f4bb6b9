"""``torch.compile`` by weft: weights that change, sizes that change, gradients, and a loop of training as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from weft.pytorch import backend


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(y.mean((2, 3)))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def compiled(module: nn.Module, **options: Any) -> Callable[..., Any]:
    return torch.compile(module, backend=backend.weft, options=options or None)


def assert_close(made: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["constants", "inputs"])
def test_results_follow_the_weights_whoever_changes_them(weights: str) -> None:
    first, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(first, weights=weights)
    with torch.no_grad():
        assert_close(run(x), first(x))
        second = Net().eval()
        run_second = compiled(second, weights=weights)
        assert_close(run_second(x), second(x))
        assert_close(run(x), first(x))
        for factor in (2.0, 0.5, 3.0, 0.25, 1.5):  # more often than weights are compiled in
            first.head.weight.mul_(factor)
            assert_close(run(x), first(x))
        first.load_state_dict(second.state_dict())
        assert_close(run(x), second(x))
        first.head.weight = nn.Parameter(torch.randn(5, 8))
        assert_close(run(x), first(x))
        first.norm.running_mean.add_(1)
        assert_close(run(x), first(x))


def test_weights_are_compiled_in_for_inference_and_an_unchanged_run_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = []
    original = backend.compile
    monkeypatch.setattr(backend, "compile", lambda module, **kw: modules.append(module) or original(module, **kw))
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(net)
    with torch.no_grad():
        for _ in range(3):
            run(x)
    assert [len(module.main.params) for module in modules] == [1]


def test_open_sizes_are_one_graph_for_pytorch() -> None:
    net = Net().eval()
    run = compiled(net)
    with torch.no_grad():
        for batch in (2, 3, 5, 4, 3):
            x = torch.randn(batch, 3, 8, 8)
            assert_close(run(x), net(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_a_training_loop_of_pytorchs_own_runs_unchanged() -> None:
    mine = Net().train()
    theirs = copy.deepcopy(mine)
    run = compiled(mine)
    optimisers = [torch.optim.SGD(net.parameters(), 0.1, momentum=0.9) for net in (mine, theirs)]
    for _ in range(4):
        x, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
        losses = []
        for call, optimiser in zip((run, theirs), optimisers, strict=True):
            loss = functional.cross_entropy(call(x), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        assert_close(losses[0], losses[1])
    for name, value in mine.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "module", "shape"),
    [
        ("encoder", lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), (2, 5, 16)),
        ("lstm", lambda: nn.LSTM(6, 8, batch_first=True), (2, 4, 6)),
        ("norms", lambda: nn.Sequential(nn.Conv1d(4, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.GELU(),
                                        nn.ConvTranspose1d(8, 4, 4, stride=2)), (2, 4, 11)),
        ("pools", lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2, dilation=2), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                                        nn.ELU(), nn.AdaptiveAvgPool2d((2, 3))), (2, 2, 13, 14)),
    ],
)  # fmt: skip
def test_gradients_of_networks(name: str, module: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    mine = module().train()
    theirs = copy.deepcopy(mine)
    x = torch.randn(shape)
    for call in (compiled(mine), theirs):
        result = call(x)
        (result[0] if isinstance(result, tuple) else result).pow(2).sum().backward()
    for (part, one), two in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-4, msg=lambda m, part=part: f"{part}: {m}")


def test_inputs_that_lie_in_another_order_and_are_written_to() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum(1) + x.permute(1, 0)[0, 0]

    one = torch.randn(6, 4).t()
    two = one.clone()
    assert_close(torch.compile(program, backend=backend.weft)(one), program(two))
    assert_close(one, two)


def test_what_cannot_be_compiled_says_so() -> None:
    with pytest.raises(Exception, match="lgamma"):
        torch.compile(torch.lgamma, backend=backend.weft)(torch.rand(3))
    with pytest.raises(Exception, match="no option 'threds'"):
        compiled(nn.Linear(2, 2), threds=2)(torch.rand(1, 2))
