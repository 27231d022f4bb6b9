"""Code of kernels for GPUs in the page."""

from __future__ import annotations

import re

import pytest
import weft
from weft.cli import view_kernels
from weft.cli.view_kernels import gpu_roof, host_codes
from weft.compiler.model import CompiledModel
from weft.view.assembly import KINDS
from weft.view.gpu_code import ptx_listing
from weft.view.page import view_page
from weft.view.side import side

from tests.browser import shown_by_browser

from .conftest import DIGITS
from .test_page import SETTLED, WIDE

LOOP = """.visible .entry one(
    .param .u64 one_param_0
)
{
    .reg .pred %p<3>;
    ld.param.u64    %rd1, [one_param_0];
$L__BB0_1:
    mov.u32     %r1, 0;
$L__BB0_2:
    ld.shared.f32   %f1, [%rd1];
    fma.rn.f32  %f2, %f1, %f1, %f2;
    st.local.f32    [%rd3], %f2;
    mul.wide.u32    %rd2, %r1, 4;
    @%p1 bra    $L__BB0_2;
    st.global.f32   [%rd1], %f2;
    @%p2 bra    $L__BB0_1;
    ret;
}
"""


def test_loops_and_kinds_of_ptx() -> None:
    found = ptx_listing(LOOP)
    assert [(loop.depth, loop.inner) for loop in found.loops] == [(2, True), (1, False)]
    hot = dict(zip(KINDS, found.counts(found.hottest), strict=True))
    assert {kind: count for kind, count in hot.items() if count} == {
        "multiply-accumulate": 1, "load": 1, "kept in memory": 1, "address and branch": 2,
    }  # fmt: skip
    assert found.forms(found.hottest) == [("fma.rn.f32", 1, "float, multiplied and added in one")]
    assert sum(found.counts(range(len(found.lines)))) == 10


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_a_page_of_a_gpu_has_each_kernel_and_says_that_it_is_counted(target: str) -> None:
    model = weft.compile(DIGITS, target=target)
    assert isinstance(model, CompiledModel)
    codes = host_codes(model, lambda _: None)
    assert codes is not None
    assert (codes.roof is not None) == (target == "cuda")
    roof = codes.roof
    if roof is not None:  # each point lies on the roof
        working = [each for each in codes.profiles if each.operations]
        assert len(working) > 3
        for each in working:
            peak = roof.byte_gops if each.on_bytes else roof.float_gops
            assert each.gops == pytest.approx(min(peak, each.intensity * roof.bandwidth(0)))
    assert all(re.findall(rf"\b({symbol}_0)\(", text) == [f"{symbol}_0"] for symbol, text in codes.texts.items())
    probe = (
        SETTLED
        + """
      choose(layersOf(0).findIndex(layer => layer.name === "conv3")); await settle();
      const all = what => [...document.querySelectorAll(what)].map(each => each.textContent);
      return { said: find("runs").textContent, panes: all("#layer-box h3"), forms: all("#layer-box p code"),
        rows: all(".code.asm .row").length, spots: all(".roof .spot").length, notes: all(".roof .tick"),
        facts: all("#layer-box td.quiet"), verdict: all("#layer-box .verdict"), head: all("#table thead th") };
    """
    )
    found = shown_by_browser(view_page([side(model, None, {}, codes)]), probe, WIDE)
    if target == "cuda":
        assert "by the data sheet of the A100" in found["said"]
        assert "Nothing was measured: it is code for a GPU" in found["said"]
        assert found["spots"] > 3
        assert "memory: 1,555 GB/s" in found["notes"]
        assert not [each for each in found["notes"] if "cache" in each]
        assert "least time" in found["facts"]
        assert "least time" in found["head"]
        assert found["verdict"] == ["bound by memory"]
    else:
        assert "Static counts only, nothing was measured" in found["said"]
        assert "A roof needs the peaks of one device" in found["said"]
    assert found["rows"] > 8
    assert ("Its instructions" in found["panes"]) == (target == "cuda")
    title = "PTX for sm_" if target == "cuda" else "OpenCL C for generic"
    assert any(each.startswith(title) for each in found["panes"])
    assert [each.split(".")[0] for each in found["forms"]] == (["mma"] if target == "cuda" else [])


def test_the_roof_of_a_data_sheet_has_the_peaks_that_it_states() -> None:
    """Beside NVIDIA's: A100 19.5 TFLOPS, 624 TOPS, 1,555 GB/s; T4 8.1, 130, 320."""
    for name, floats, products, rate in (("sm_80", 19_500, 624_000, 1555), ("sm_75", 8_100, 130_000, 320)):
        roof = gpu_roof(name)
        assert roof.float_gops == pytest.approx(floats, rel=0.01)
        assert roof.byte_gops == pytest.approx(products, rel=0.01)
        assert roof.bandwidth(1 << 40) == rate


def test_products_that_no_data_sheet_tells_have_no_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    model = weft.compile(DIGITS, target="cuda")
    assert isinstance(model, CompiledModel)
    texts = {"f": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}"}
    monkeypatch.setattr(view_kernels, "kernel_texts", lambda code: texts)
    codes = host_codes(model, lambda _: None)
    assert codes is not None
    assert codes.roof is None
    assert "floats of 16 bits or TF32" in codes.why
