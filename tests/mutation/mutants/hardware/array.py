"""Faults in gemm and the multiply-accumulate array."""

from __future__ import annotations

from ..mutant import Mutant

GEMM_TESTS = ("tests/hw/test_gemm.py",)
ARRAY_TESTS = ("tests/hw/test_mac_array.py",)
INP_TESTS = ("tests/hw/test_inp_memory.py",)

MUTANTS = (
    # Gemm
    Mutant(
        "gemm-three-forwards", "hw/gemm.py", "missing forward", "in stages[:FORWARDS])", "in stages[: FORWARDS - 1])",
    ),
    Mutant(
        "gemm-forward-too-new", "hw/gemm.py", "wrong forward", "old.eq(results[1])", "old.eq(results[0])",
    ),
    Mutant(
        "gemm-always-from-zero", "hw/gemm.py", "first-iteration zero flag",
        "from_zero = zero & micro_op.first", "from_zero = zero",
    ),
    Mutant(
        "gemm-operands-swapped", "hw/gemm.py", "swapped operands",
        'columns.base if columns else gemm.src, "b": gemm.wgt', 'gemm.wgt, "b": columns.base if columns else gemm.src',
    ),
    Mutant(
        "gemm-retires-one-early", "hw/gemm.py", "handshake",
        "control.retire.eq(stages[-1].valid & stages[-1].content.end)",
        "control.retire.eq(stages[-2].valid & stages[-2].content.end)",
    ),
    Mutant(
        "gemm-wgt-bound", "hw/gemm.py", "bound off by a bit",
        "micro_op.b[ceil_log2(config.wgt_depth) :].any()", "micro_op.b[ceil_log2(config.wgt_depth) + 1 :].any()",
    ),
    # Depthwise mode of the array
    Mutant(
        "depthwise-every-wave-writes", "hw/gemm.py", "result too early",
        "issue.eq(wave & last)", "issue.eq(wave)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-stride-two-shares-two", "hw/gemm.py", "column forgotten",
        "2, stride.a == step << 1)", "2, (stride.a == step << 1) << 1)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-other-taps-share", "hw/gemm.py", "sums of other taps",
        "Mux(stride.b != 0, 0, ", "Mux(0, 0, ", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-row-goes-on-from-the-last", "hw/gemm.py", "not restarted",
        "Mux(loops.inner_goes_on, known, 0)", "known", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-far-entry-wraps", "hw/gemm.py", "carry lost",
        "entry[config.index_bits :].any()", "entry[config.index_bits]", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-even-pitch-runs", "hw/gemm.py", "field not checked",
        "self.illegal = gemm.depthwise & ~gemm.row_pitch[0]", "self.illegal = gemm.depthwise & 0", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-pitch-of-the-next", "hw/gemm.py", "pipeline stage missing",
        "self.read_inp.pitch.eq(pitch)", "self.read_inp.pitch.eq(columns.row_pitch)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-mode-of-the-next", "hw/gemm.py", "pipeline stage missing",
        "array.depthwise.eq(depthwise[-1])", "array.depthwise.eq(depthwise[-2])", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-goes-on-at-every-level", "hw/loops.py", "wrong level",
        "self.inner_goes_on.eq(valid & ~levels[0].ended)", "self.inner_goes_on.eq(valid & ~end)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-taps-transposed", "hw/mac_array.py", "swapped indices",
        "[TAP_ROW_OUTPUTS * row + column][channel]", "[TAP_ROW_OUTPUTS * column + row][channel]", ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-product-enters-the-filter", "hw/mac_array.py", "register loads too often",
        '[partial], taps[stage], f"', '[partial], valid, f"', ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-product-of-a-row-above", "hw/mac_array.py", "multiplexer",
        "Mux(self.depthwise, self.above[row], self.inp)", "self.above[row]", ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-sum-of-the-wave-behind", "hw/mac_array.py", "pipeline stage missing",
        "[Mux(taps[stage], partial, values[0])]", "[Mux(taps[stage - 1], partial, values[0])]", ARRAY_TESTS,
    ),
    Mutant(
        "inp-rows-of-one-bank", "hw/inp_memory.py", "bank select",
        "_bank_of(places[1]) == number, places", "_bank_of(places[0]) == number, places", INP_TESTS,
    ),
    Mutant(
        "inp-write-to-all-banks", "hw/inp_memory.py", "bank select",
        "write.enable & (_bank_of(write.index) == number)", "write.enable", INP_TESTS,
    ),
    Mutant(
        "inp-middle-row-two-pitches-up", "hw/inp_memory.py", "address",
        "places[1].eq(read.index - read.pitch)", "places[1].eq(read.index - (read.pitch << 1))", INP_TESTS,
    ),
    Mutant(
        "inp-answer-one-early", "hw/inp_memory.py", "pipeline stage missing",
        "m.d.sync += asked.eq(_bank_of(place))", "m.d.comb += asked.eq(_bank_of(place))", INP_TESTS,
    ),
    # Array
    Mutant(
        "mac-unsigned", "hw/mac_array.py", "wrong sign",
        "element = Signal(signed(8), name=name)", "element = Signal(8, name=name)",
    ),
    Mutant(
        "mac-packed-borrows", "hw/mac_array_packed.py", "constant missing", "(value + OFFSET)[", "(value)[",
    ),
)  # fmt: skip
