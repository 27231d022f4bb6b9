"""Faults in what makes machine code: layouts, fusion, plans of memory, loops, LLVM."""

from __future__ import annotations

from .mutant import Mutant

PAIRS = ("tests/compiler/targets/cpu/test_pair_products.py",)
ORDER = ("tests/compiler/targets/loops/test_order.py",)
PAIR_IMAGES = ("tests/compiler/targets/cpu/test_pair_convolutions.py",)
SINGLE_PIXELS = ("tests/compiler/targets/cpu/test_single_pixels.py",)
IMAGES = ("tests/compiler/targets/cpu/test_convolution.py",)
LEVELS = ("tests/compiler/targets/cpu/test_levels.py",)
DEPTHWISE = ("tests/compiler/targets/cpu/test_depthwise.py",)
FEW_CHANNELS = ("tests/compiler/targets/cpu/test_few_channels.py",)
COLUMNS = ("tests/compiler/targets/loops/test_columns.py",)

SMALL_MOVES = ("tests/compiler/targets/loops/test_small_moves.py",)

WINOGRAD = ("tests/compiler/targets/loops/test_winograd.py", "tests/compiler/targets/cpu/test_winograd.py")

MUTANTS = (
    Mutant(
        "fewer-products-where-their-sums-wrap", "compiler/targets/loops/winograd.py", "check ignored",
        "largest * BYTES_LIMIT << axes < SUM_LIMIT", "largest * BYTES_LIMIT < SUM_LIMIT", WINOGRAD,
    ),
    Mutant(
        "last-results-of-tiles-as-wanted", "compiler/targets/cpu/winograd.py", "condition",
        "apart = first.whole == first.size and first.dilation == 1", "apart = first.dilation == 1", WINOGRAD,
    ),
    Mutant(
        "dilated-tiles-side-by-side", "compiler/targets/loops/winograd.py", "index",
        "return position // self.dilation * (MADE * self.dilation) + position % self.dilation",
        "return position * MADE", WINOGRAD,
    ),
    Mutant(
        "rows-moved-again-at-each-read", "compiler/targets/loops/kernels.py", "check ignored",
        '"moved") if node in group.moved_rows else narrow', '"moved") if False else narrow', SMALL_MOVES,
    ),
    Mutant(
        "rows-written-though-others-read-the-moves", "compiler/targets/loops/small_moves.py", "condition",
        "(uses[value] > 1 or value in elsewhere)", "value in elsewhere", SMALL_MOVES,
    ),
    Mutant(
        "loops-along-rows-around-rows", "compiler/targets/cpu/schedules.py", "wrong order",
        "        schedule.reorder(*rows, *along)", "        pass", SMALL_MOVES,
    ),
    Mutant(
        "axes-in-the-order-of-their-numbers", "compiler/targets/loops/one_transposition.py", "wrong order",
        "sorted(groups, key=lambda group: place[group[0]])", "sorted(groups)",
        ("tests/compiler/targets/loops/test_one_transposition.py",),
    ),
    Mutant(
        "moves-before-what-combines-more-than-rows", "compiler/targets/loops/small_moves.py", "condition",
        "bool(combining) and all(map(_along_rows", "bool(combining) and any(map(_along_rows", SMALL_MOVES,
    ),
    Mutant(
        "dequantise-contracted-with-what-follows", "compiler/targets/llvm/expressions.py", "wrong value",
        'if op == "mul" and a.dtype == "float32" and _is_whole(a)',
        'if op == "rem" and a.dtype == "float32" and _is_whole(a)',
        ("tests/compiler/targets/loops/test_row_statistics.py",),
    ),
    Mutant(
        "described-without-features", "compiler/targets/cpu/processor.py", "part of a key left out",
        '"CPU revision", *FEATURES_TOLD}', '"CPU revision"}', ("tests/compiler/targets/cpu/test_processor.py",),
    ),
    Mutant(
        "described-as-not-pretended", "compiler/targets/cpu/processor.py", "part of a key left out",
        "return os.environ.get(PRETENDED), os", "return None, os", ("tests/compiler/targets/cpu/test_processor.py",),
    ),
    Mutant(
        "sources-without-names", "compiler/targets/sources.py", "part of a key left out",
        'f"{path[len(str(folder)) :]}\\n".encode() + file.read()', "file.read()",
        ("tests/compiler/targets/test_sources.py",),
    ),
    Mutant(
        "reshape-taken-by-some-readers", "compiler/targets/loops/placement.py", "check ignored",
        "kept and bool(readers) and all(", "kept and bool(readers) and any(",
        ("tests/compiler/targets/loops/test_placement.py",),
    ),
    # Memory and fusion of loop nests
    Mutant(
        "memory-shared-at-the-last-step", "compiler/targets/memory_plan.py", "overlap",
        "met = (lasts[:count] >= tensor.first)", "met = (lasts[:count] > tensor.first)",
        ("tests/compiler/targets/loops/test_memory.py",),
    ),
    Mutant(
        "arena-forgets-a-refusal", "compiler/targets/loops/arena.py", "check ignored",
        "            if isinstance(each, ArenaSlot) and each not in refused\n",
        "            if isinstance(each, ArenaSlot)\n",
        ("tests/compiler/targets/loops/test_memory.py",),
    ),
    Mutant(
        "fusion-of-what-others-use", "compiler/targets/loops/fusion.py", "condition",
        "if self.uses[arg] != inside:", "if self.uses[arg] < inside:",
        ("tests/compiler/targets/loops/test_fusion.py",),
    ),
    Mutant(
        "proof-of-a-shift-by-all-bits", "compiler/targets/loops/check_kernel.py", "bound off by one",
        "high >= 8 * ITEM_BYTES[a.dtype]", "high > 8 * ITEM_BYTES[a.dtype]",
        ("tests/compiler/targets/loops/test_check_kernel.py",),
    ),
    Mutant(
        "program-trusts-overwritten-indices", "compiler/targets/loops/check_program.py", "overlap",
        "if not _overlap(known, place)}", "if known != place}",
        ("tests/compiler/targets/loops/test_check_program.py",),
    ),
    # Machine code
    Mutant(
        "vector-loop-without-its-rest", "compiler/targets/cpu/llvm/emit.py", "bound",
        "        while done < extent:\n", "        while False:\n", ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "divides-exactly-and-rounds-down", "compiler/targets/llvm/expressions.py", "rounding",
        "low = builder.and_(builder.icmp_signed(\"!=\", rest, zero), differ)", "low = differ",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "minimum-loses-nan", "compiler/targets/llvm/expressions.py", "nan",
        "return builder.select(builder.fcmp_unordered(\"uno\", a, a), a, chosen)", "return chosen",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "bfloat16-ties-away", "compiler/targets/llvm/floats.py", "tie rule",
        "constant(I32, 0x7FFF, lanes)", "constant(I32, 0x8000, lanes)",
        ("tests/compiler/targets/cpu/llvm/test_floats.py",),
    ),
    # Products of bfloat16 by twos
    Mutant(
        "pairs-without-the-odd-one", "compiler/targets/loops/pair_product.py", "forgotten part",
        "        if depth % PAIR:\n", "        if False:\n", PAIRS,
    ),
    Mutant(
        "odd-row-of-a-constant-as-zero", "compiler/targets/loops/pair_product.py", "condition",
        "if len(matrix) % PAIR == 0:", "if len(matrix) % PAIR != 0:", PAIRS,
    ),
    Mutant(
        "pairs-from-the-wrong-half", "compiler/targets/loops/pair_product.py", "swapped operands",
        "index[-3] * PAIR + index[-1], index[-2])", "index[-3] + index[-1] * (depth // PAIR), index[-2])", PAIRS,
    ),
    Mutant(
        "instruction-for-any-processor", "compiler/targets/cpu/llvm/micro_kernels.py", "check ignored",
        "emitter.target.pairs and count in PAIR_LANES", "count in PAIR_LANES", PAIRS,
    ),
    Mutant(
        "pairs-for-any-processor", "compiler/targets/loops/pair_product.py", "check ignored",
        "PLAIN if self.schedule.pairs and group", "PLAIN if group", PAIRS,
    ),
    Mutant(
        "first-of-a-pair-first", "compiler/targets/cpu/llvm/micro_kernels.py", "order",
        "for part in (upper, lower):", "for part in (lower, upper):", PAIRS,
    ),
    Mutant(
        "pairs-in-steps-of-one", "compiler/targets/cpu/schedules.py", "stride",
        "step = transposed_pairs(sizes[0], written.terms[row], read.terms[column])",
        "step = transposed_pairs(sizes[0], read.terms[column], read.terms[column])", PAIRS,
    ),
    Mutant(
        "convolution-of-pairs-anywhere", "compiler/targets/loops/convolution.py", "check ignored",
        " and (self.schedule.pairs or anchor.args[0].dtype != \"bfloat16\")", "", PAIR_IMAGES,
    ),
    Mutant(
        "convolution-takes-one-of-a-pair", "compiler/targets/loops/convolution_sums.py", "index",
        "window), kb * PAIR + q)].astype(\"float32\")", "window), kb * PAIR)].astype(\"float32\")", PAIR_IMAGES,
    ),
    Mutant(
        "words-are-one-of-a-pair", "compiler/targets/loops/convolution_sums.py", "index",
        "kb * together + q)].astype(\"int32\")", "kb * together)].astype(\"int32\")", LEVELS,
    ),
    Mutant(
        "words-of-products-are-added-to-nothing", "compiler/targets/cpu/llvm/byte_products.py", "forgotten part",
        "return in_order(builder, builder.add(acc, builder.call(function, [data, weight])))",
        "return in_order(builder, builder.call(function, [data, weight]))", LEVELS,
    ),
    Mutant(
        "a-pixel-has-the-number-of-its-column", "compiler/targets/loops/single_pixels.py", "index",
        "pixel = pixel * size + place", "pixel = place", SINGLE_PIXELS,
    ),
    Mutant(
        "pixels-are-brought-from-the-first-row", "compiler/targets/loops/single_pixels.py", "index",
        "return [pixel, *reversed(places)]", "return [pixel * 0, *reversed(places)]", SINGLE_PIXELS,
    ),
    Mutant(
        "blocks-of-pixels-as-large-as-an-image", "compiler/targets/cpu/single_pixels.py", "check ignored",
        "if FEWEST_PIXELS <= pixels <= most]", "if FEWEST_PIXELS <= pixels]", SINGLE_PIXELS,
    ),
    Mutant(
        "pixels-in-the-same-lines", "compiler/targets/cpu/single_pixels.py", "forgotten part",
        "if stride % apart:", "if True:", SINGLE_PIXELS,
    ),
    Mutant(
        "passes-where-all-weights-are-in-the-cache", "compiler/targets/cpu/convolution.py", "wrong bound",
        "channels * part < least * cache", "channels * part > least * cache", LEVELS,
    ),
    Mutant(
        "passes-whose-weights-nobody-uses-again", "compiler/targets/cpu/convolution.py", "check ignored",
        "if tiles < FEWEST_TILES or channels", "if channels", LEVELS,
    ),
    Mutant(
        "the-bias-keeps-what-data-is-too-high-by", "compiler/targets/loops/convolution.py", "wrong result",
        "(bias.value.astype(np.int64) - excess).astype(np.int32)", "(bias.value.astype(np.int64)).astype(np.int32)",
        LEVELS,
    ),
    Mutant(
        "blocks-are-filled-beside-what-is-not", "compiler/targets/loops/convolution.py", "check ignored",
        "all(has_them(value) for", "all(True for", IMAGES,
    ),
    Mutant(
        "constants-of-channels-nobody-uses-are-missing", "compiler/targets/loops/convolution.py", "index",
        "whole = replace(node, value=filled(node.value, anchor.shape[1], channels))", "whole = node", IMAGES,
    ),
    Mutant(
        "unused-channels-hold-nothing", "compiler/targets/loops/convolution.py", "wrong value",
        "value = value.take(np.minimum(np.arange(wanted), size - 1), axis)",
        "value = np.pad(value, [(0, wanted - size if each == axis else 0) for each in range(value.ndim)])", IMAGES,
    ),
    Mutant(
        "channels-that-fill-blocks-are-0", "compiler/targets/loops/layouts.py", "wrong value",
        "if view.dtype in (\"float32\", \"bfloat16\"):", "if False:", IMAGES,
    ),
    Mutant(
        "blocks-that-fill-no-register", "compiler/targets/cpu/tiles.py", "check ignored",
        "return best if cycles(best) <", "return best if cycles(best) > 2 *", IMAGES,
    ),
    Mutant(
        "constants-of-depthwise-channels-are-missing", "compiler/targets/loops/blocked.py", "index",
        "whole = replace(node, value=filled(node.value, group.root.shape[1], channels))", "whole = node", DEPTHWISE,
    ),
    Mutant(
        "plain-operands-stay-plain", "compiler/targets/loops/link.py", "forgotten part",
        "if layout.is_plain and brought_into_blocks(", "if not layout.is_plain and brought_into_blocks(",
        ("tests/compiler/targets/loops/test_placement.py",),
    ),
    Mutant(
        "a-column-keeps-the-order-of-its-window", "compiler/targets/loops/rewrite_convolutions.py", "index",
        "(*part[:-2], part[-1], part[-2])", "part", ("tests/compiler/targets/loops/test_rewrite_convolutions.py",),
    ),
    Mutant(
        "the-row-left-over-is-the-first", "compiler/targets/loops/depthwise.py", "index",
        "(tir.Const(rows - 1) + one, s)", "(tir.Const(0) + one, s)", DEPTHWISE,
    ),
    Mutant(
        "taps-are-as-far-apart-as-pixels", "compiler/targets/cpu/llvm/micro_kernels.py", "stride",
        "row * row_stride + tap * tap_stride, []", "row * row_stride + tap * row_stride, []", DEPTHWISE,
    ),
    Mutant(
        "all-pixels-of-a-tile-are-the-first", "compiler/targets/cpu/llvm/micro_kernels.py", "stride",
        "row * row_stride + first * QUAD, I8)", "first * QUAD, I8)", FEW_CHANNELS,
    ),
    Mutant(
        "channels-nobody-uses-have-weights", "compiler/targets/loops/convolution_sums.py", "forgotten part",
        "wide = np.zeros((out, wanted,", "wide = np.ones((out, wanted,", IMAGES,
    ),
    Mutant(
        "infinities-meet-weights-of-0", "compiler/targets/loops/convolution_sums.py", "case lost",
        'if weights.dtype.kind not in "iu":', "if weights.dtype.kind in \"V\":", IMAGES,
    ),
    Mutant(
        "the-last-weight-is-shared-unevenly", "compiler/targets/loops/convolution_sums.py", "off by one",
        "< whole - sharing, 2, 1)", "<= whole - sharing, 2, 1)", IMAGES,
    ),
    Mutant(
        "models-of-the-first-processor", "kept_models.py", "case lost",
        "return *_installed(), host_described()", "return _installed()", ("tests/test_kept_models.py",),
    ),
    Mutant(
        "multipliers-whatever-their-shifts", "compiler/targets/loops/narrow_requantise.py", "forgotten part",
        "multiplier << spare, offset", "multiplier << SPARE, offset",
        ("tests/compiler/targets/loops/test_narrow_requantise.py",),
    ),
    Mutant(
        "odd-channels-by-twos", "compiler/targets/loops/convolution.py", "forgotten part",
        "\"bytes\": QUAD, \"pairs\": PAIR,", "\"bytes\": QUAD, \"pairs\": 1,", PAIR_IMAGES,
    ),
    Mutant(
        "columns-are-gathered-from-another-axis", "compiler/targets/loops/columns.py", "index",
        "self.met.attr(\"axis\") + 1 :]", "self.met.attr(\"axis\") :]", COLUMNS,
    ),
    Mutant(
        "columns-that-others-need", "compiler/targets/loops/fusion.py", "check ignored",
        "isinstance(each, Call) and self.uses[each] == 1 and each", "isinstance(each, Call) and each", COLUMNS,
    ),
    Mutant(
        "rows-of-columns-end-anywhere", "compiler/targets/loops/columns.py", "bound off by one",
        "accumulate(met.shape[:end], mul)", "accumulate(met.shape, mul)", COLUMNS,
    ),
    Mutant(
        "operands-are-cast-that-others-need", "compiler/targets/loops/fusion.py", "check ignored",
        "if self._is_taken(value) or self.uses[value] > 1 or not room", "if self._is_taken(value) or not room", COLUMNS,
    ),
    Mutant(
        "state-is-read-after-its-next-value", "compiler/targets/loops/order.py", "check ignored",
        "[reads_first.get(group.root), *map(makes_first.get, types)]", "[reads_first.get(group.root)]", ORDER,
    ),
    Mutant(
        "kernels-wait-whatever-they-free", "compiler/targets/loops/order.py", "condition",
        "stop = stop if nbytes(group.root) >= freed else None", "pass", ORDER,
    ),
    Mutant(
        "what-is-read-last-is-what-came-last", "compiler/targets/loops/order.py", "condition",
        "if value not in reads_last or placed.is_before(reads_last[value], group):", "if True:", ORDER,
    ),
    Mutant(
        "a-row-without-room-is-not-numbered-anew", "compiler/targets/loops/order.py", "check ignored",
        "if self._labels[group] == least:", "if False:", ORDER,
    ),
    Mutant(
        "bytes-of-data-have-a-sign", "compiler/targets/cpu/llvm/byte_products.py", "sign",
        "data = _by_byte(builder, value, builder.lshr)", "data = _by_byte(builder, value, builder.ashr)",
        ("tests/compiler/targets/cpu/test_cross.py",),
    ),
    Mutant(
        "signed-products-keep-what-was-taken-off", "compiler/targets/cpu/llvm/byte_products.py", "wrong result",
        "return builder.sub(_dot(name, builder, acc, moved, weight), of_weights)",
        "return _dot(name, builder, acc, moved, weight)", ("tests/compiler/targets/cpu/test_cross.py",),
    ),
    Mutant(
        "a-tight-plan-is-the-last-one", "compiler/targets/memory_plan.py", "wrong result",
        "best = min(best, (offsets, end), key=lambda each: each[1])", "best = (offsets, end)", ORDER,
    ),
    Mutant(
        "a-tight-plan-begins-with-two-orders", "compiler/targets/memory_plan.py", "case left out",
        "(_nbytes, _byte_times, _length))", "(_nbytes, _length))", ORDER,
    ),
    Mutant(
        "widened-for-all-at-once", "compiler/targets/loops/widening.py", "order",
        "np.array(user, np.int32)", "np.array(0, np.int32)", ("tests/compiler/targets/loops/test_widening.py",),
    ),
    # Threads
    Mutant(
        "one-sleeper-is-woken", "compiler/targets/cpu/llvm/threads.py", "wake-up lost",
        "i32 WAKE, i32 2147483647", "i32 WAKE, i32 1", ("tests/compiler/targets/cpu/llvm/test_threads.py",),
    ),
    Mutant(
        "the-bell-stays-as-it-is", "compiler/targets/cpu/llvm/threads.py", "race",
        "atomicrmw add ptr %bell, i32 1 seq_cst", "atomicrmw add ptr %bell, i32 0 seq_cst",
        ("tests/compiler/targets/cpu/llvm/test_threads.py",),
    ),
)  # fmt: skip
