"""Factors of matrices whose rows are exchanged, orthogonal ones, singular values and eigenvalues, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn

from tests.compiler.frontends.torch.test_source import results_of

CLOSE = 1e-10
"""Of the largest result, in float64."""


def both(module: nn.Module, *given: torch.Tensor) -> list[tuple[Any, Any]]:
    """Results of weft's machine code beside PyTorch's own, of one type and shape."""
    wanted = [each.numpy() for each in torch.utils._pytree.tree_leaves(module(*given))]
    found = list(results_of(weft.from_torch(module, given), *given).values())
    assert [(each.dtype, each.shape) for each in found] == [(each.dtype, each.shape) for each in wanted]
    return list(zip(found, wanted, strict=True))


def assert_close(found: Any, wanted: Any, close: float = CLOSE) -> None:
    np.testing.assert_allclose(found, wanted, rtol=close, atol=close * np.abs(wanted).max(initial=1e-30))


class Rows(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        packed, order, info = torch.linalg.lu_factor_ex(x)
        solve = torch.linalg.lu_solve
        own, own_order = torch.linalg.lu_factor(x @ x.mT + torch.eye(x.shape[-2]))
        return (
            packed, order, info, *torch.linalg.lu(x), *torch.lu_unpack(packed, order),
            solve(own, own_order, y), solve(own, own_order, y, adjoint=True),
            solve(own, own_order, y.mT, left=False), solve(own, own_order, y.mT, left=False, adjoint=True),
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 5), (2, 4, 7), (3, 2, 6, 3), (1, 1)], ids=str)
def test_rows_that_are_exchanged(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for found, wanted in both(Rows(), torch.randn(shape).double(), torch.randn(*shape[:-1], 2).double()):
        assert_close(found, wanted)


def test_rows_of_a_singular_matrix() -> None:
    """What would be divided by zero stays, and the column is named."""
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double()
    x[:, 2] = 0.0
    for found, wanted in both(Rows(), x, torch.ones(6, 1).double()):
        assert_close(found, wanted)


class InOrder(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.linalg.lu(x, pivot=False)


def test_rows_that_stay_are_refused() -> None:
    """PyTorch has that on GPUs alone."""
    with pytest.raises(weft.WeftError, match="without exchanges"):
        results_of(weft.from_torch(InOrder(), (torch.randn(3, 3),)), torch.randn(3, 3))


class Orthogonal(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        packed, factors = torch.geqrf(x)
        q = [torch.linalg.qr(x, mode=mode) for mode in ("reduced", "complete", "r")]
        return (
            packed, factors, *q[0], *q[1], q[2][1],
            torch.ormqr(packed, factors, y), torch.ormqr(packed, factors, y, transpose=True),
            torch.ormqr(packed, factors, y.mT, left=False),
            torch.ormqr(packed, factors, y.mT, left=False, transpose=True),
            torch.linalg.householder_product(packed[..., : factors.shape[-1]], factors),
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 5), (2, 4, 7), (3, 2, 6, 3), (1, 1), (4, 1)], ids=str)
def test_orthogonal_factors(shape: tuple[int, ...]) -> None:
    """With LAPACK's signs, also of columns that are zero below the diagonal."""
    torch.manual_seed(0)
    x = torch.randn(shape).double()
    x[..., 1:, 0] = x[..., 1:, 0] * (torch.arange(x.shape[0]) if len(shape) > 2 else torch.ones(1)).view(
        -1, *(1 for _ in shape[1:-1])
    )
    for found, wanted in both(Orthogonal(), x, torch.randn(*shape[:-1], 2).double()):
        assert_close(found, wanted)


class Singular(nn.Module):
    def __init__(self, full: bool) -> None:
        super().__init__()
        self.full = full

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.linalg.pinv(x), torch.linalg.matrix_rank(x, rtol=1e-8), torch.linalg.svdvals(x),
            *torch.linalg.svd(x, full_matrices=self.full),
        )  # fmt: skip


def graded(*shape: int) -> torch.Tensor:
    return torch.randn(shape).double() * 10.0 ** -torch.arange(shape[-1]).double()


MATRICES = {
    "tall": lambda: torch.randn(2, 7, 3).double(),
    "wide": lambda: torch.randn(3, 4, 9).double(),
    "odd": lambda: torch.randn(11, 11).double(),
    "one column": lambda: torch.randn(4, 1).double(),
    "of rank 2": lambda: torch.randn(8, 2).double() @ torch.randn(2, 6).double(),
    "zero": lambda: torch.zeros(3, 2).double(),
    "graded": lambda: graded(9, 7) @ torch.randn(7, 7).double(),
    "equal values": lambda: torch.linalg.qr(torch.randn(6, 6).double())[0],
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", MATRICES)
def test_singular_values(kind: str, full: bool) -> None:
    """Vectors have either sign, and those of equal values any direction: what they must be is checked."""
    torch.manual_seed(0)
    x = MATRICES[kind]()
    (inverse, rank, values, *made) = both(Singular(full), x)
    if kind != "graded":  # whose inverse is as unsure as its least value
        assert_close(*inverse)
    assert (rank[0] == rank[1]).all()
    assert_close(*values)
    u, s, vh = (found for found, _ in made)
    assert_close(s, made[1][1])
    for vectors in (u, np.swapaxes(vh, -1, -2)):
        whole = np.swapaxes(vectors, -1, -2) @ vectors
        assert_close(whole, np.broadcast_to(np.eye(whole.shape[-1]), whole.shape))
    size = s.shape[-1]
    assert_close(u[..., :size] * s[..., None, :] @ vh[..., :size, :], x.numpy(), CLOSE * 10)


class Eigen(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        upper, lower = torch.linalg.eigh(x, UPLO="U"), torch.linalg.eigh(x)
        whole = x.tril() + x.tril(-1).mT
        return (*upper, *lower, torch.linalg.eigvalsh(x), torch.linalg.pinv(whole, hermitian=True))


@pytest.mark.parametrize("shape", [(6, 6), (2, 5, 5), (1, 1), (24, 24)], ids=str)
def test_eigenvalues(shape: tuple[int, ...]) -> None:
    """Of matrices whose other triangle is another one."""
    torch.manual_seed(0)
    x = torch.randn(shape).double()
    values, vectors, lower_values, lower_vectors, only, inverse = both(Eigen(), x)
    assert_close(*values)
    assert_close(*lower_values)
    assert_close(*only)
    assert_close(*inverse, close=1e-8)
    upper, lower = x.triu() + x.triu(1).mT, x.tril() + x.tril(-1).mT
    for matrix, (found, _), (v, _) in ((upper, values, vectors), (lower, lower_values, lower_vectors)):
        assert_close(np.swapaxes(v, -1, -2) @ v, np.broadcast_to(np.eye(shape[-1]), shape))
        assert_close(v * found[..., None, :] @ np.swapaxes(v, -1, -2), matrix.numpy())


def test_eigenvalues_of_both_signs() -> None:
    """Vectors of 1 and -1 must not be mixed, as those of singular values would be."""
    x = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    values, (v, _), *_ = both(Eigen(), x)
    assert_close(*values)
    assert_close(v * values[0][None, :] @ v.T, x.numpy())


class Exponential(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.matrix_exp(x), torch.matrix_exp(300 * (x - x.mT)), torch.matrix_exp(x * 0), torch.matrix_exp(x / 9)


@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 4, 4), (1, 1)], ids=str)
def test_exponentials_of_matrices(shape: tuple[int, ...]) -> None:
    """Of turns by many rounds, too."""
    torch.manual_seed(0)
    for found, wanted in both(Exponential(), torch.randn(shape).double()):
        assert_close(found, wanted)


class Empty(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        square = x.new_zeros(2, 0, 0)
        return (
            *torch.linalg.lu(x), *torch.linalg.lu_factor_ex(x), *torch.linalg.qr(x), *torch.linalg.svd(x),
            *torch.linalg.eigh(square), torch.linalg.pinv(x), torch.matrix_exp(square), *torch.geqrf(x),
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 2, 2)], ids=str)
def test_factors_of_empty_matrices(shape: tuple[int, ...]) -> None:
    """Unit matrices, or nothing."""
    for found, wanted in both(Empty(), torch.zeros(shape)):
        assert_close(found, wanted)


def test_float32_is_computed_in_float64() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 40)
    _, _, values, *_ = both(Singular(False), x)
    assert_close(values[0], np.linalg.svd(x.double().numpy())[1], 1e-6)


class Nearest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(x, x).solution


def test_what_pytorch_cannot_capture_names_what_it_can() -> None:
    with pytest.raises(weft.WeftError, match=r"linalg_lstsq.*pinv\(a\) @ b"):
        weft.from_torch(Nearest(), (torch.randn(3, 2),))
