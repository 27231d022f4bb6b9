"""Samples of PyTorch's own database of operators, beside eager PyTorch: a short form of `torch_suite.py`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from weft.compiler.frontends.torch.complex import reads_complex
from weft.compiler.frontends.torch.reader import CREATED, is_known
from weft.compiler.frontends.torch.site import REFUSED, RULES

from benchmarks.frontends import torch_suite

FAMILIES = [
    "add", "sub", "mul", "div", "pow", "clamp", "where", "floor_divide", "remainder", "fmod", "atan2", "log1p", "expm1",
    "nn.functional.gelu", "nn.functional.elu", "nn.functional.softplus", "sum", "mean", "var", "amax", "argmax", "prod",
    "softmax", "cumsum", "sort", "topk", "cat", "slice", "select_scatter", "diagonal", "as_strided", "roll", "flip",
    "unfold", "nn.functional.pad", "index_put", "index_select", "gather", "scatter_reduce", "masked_scatter", "matmul",
    "addmm", "nn.functional.conv", "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.max_pool", "nn.functional.avg_pool", "nn.functional.adaptive_", "nn.functional.interpolate",
    "nn.functional.grid_sample", "nn.functional.upsample", "cdist", "nn.functional.embedding", "tril", "bitwise",
    "logical", "isnan", "linalg.vector_norm", "__rpow__", "median", "nonzero_static", "searchsorted", "dist",
    "copysign", "signbit", "hypot", "ldexp", "index_reduce", "permute_copy", "narrow_copy", "bilinear", "linalg.inv",
    "linalg.solve_ex", "linalg.det", "logdet", "slogdet", "triangular_solve", "cholesky", "angle", "put", "isclose",
    "nn.functional.cosine_similarity", "linalg.qr", "geqrf", "ormqr", "householder_product", "linalg.lu", "lu_unpack",
    "linalg.svd", "linalg.eigh", "linalg.eigvalsh", "linalg.pinv", "matrix_exp", "matrix_rank", "linalg.cond",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_are_equal_to_eager_pytorch(family: str) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entries = torch_suite.operators(family).values()
        outcomes = [outcome for entry in entries for outcome in torch_suite.all_of(entry, 2, False)]
    bad = [each for each in outcomes if each.result not in ("equal", "apart")]
    assert not bad, bad
    assert any(each.result == "equal" for each in outcomes)


def test_every_core_operator_has_a_rule_or_a_reason() -> None:
    """Of the operators that PyTorch calls core; those that are left are named."""
    import torch

    left = set()
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, form = name.removeprefix("aten::").partition(".")
        overload = getattr(getattr(torch.ops.aten, base), form or "default", None)
        if overload is None or torch.Tag.core not in overload.tags:
            continue
        target = f"aten.{base}.{form or 'default'}"
        if not is_known(target) and not reads_complex(target) and target not in REFUSED:
            left.add(target)
    assert left <= {
        "aten._embedding_bag.default", "aten.atan2.out", "aten.resize_.default", "aten.sym_is_contiguous.default",
        "aten.sym_numel.default", "aten.sym_size.int", "aten.sym_storage_offset.default", "aten.sym_stride.int",
    }  # fmt: skip


def test_there_are_rules_for_250_operators() -> None:
    assert len(set(RULES) | CREATED) >= 250
