"""Faults in the compiler and the runtime: typical mistakes in bounds, orders, types and bookkeeping."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # Loops and expressions
    Mutant(
        "split-drops-the-tail", "compiler/tensor/loops.py", "rounding",
        "counts.insert(0, (counts[0] + (factor - 1)) // factor)", "counts.insert(0, counts[0] // factor)",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "split-shifted-starts-late", "compiler/tensor/loops.py", "off by one",
        "minimum(outer * factor, node.extent - factor) + inner",
        "minimum(outer * factor, node.extent - factor + 1) + inner",
        ("tests/compiler/tensor/test_overlap.py",),
    ),
    Mutant(
        "fuse-swaps-quotient-and-rest", "compiler/tensor/loops.py", "swapped operands",
        "{outer: fused // below.extent, inner: fused % below.extent}",
        "{outer: fused % below.extent, inner: fused // below.extent}",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "fuse-joins-a-reduction", "compiler/tensor/loops.py", "check ignored",
        "(outer in leaf.reduce_vars) != (inner in leaf.reduce_vars)",
        "outer in leaf.reduce_vars and inner not in leaf.reduce_vars",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "reorder-past-what-depends", "compiler/tensor/loops.py", "check ignored",
        "for later in ordered[position:]}", "for later in ordered[:position]}",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "vectorize-without-proof", "compiler/tensor/loops.py", "check ignored",
        "if kind not in (\"unroll\", \"serial\") and node.extent",
        "if kind not in (\"unroll\", \"serial\", \"vectorize\") and node.extent",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "mod-of-another-period", "compiler/tensor/simplify.py", "off by one",
        "rest.constant -= (low // divisor) * divisor", "rest.constant -= low",
    ),
    Mutant(
        "less-than-at-the-edge", "compiler/tensor/simplify.py", "bound",
        "outcome = True if high < 0 else False if low >= 0 else None",
        "outcome = True if high <= 0 else False if low >= 0 else None",
    ),
    Mutant(
        "product-of-two-corners", "compiler/tensor/simplify.py", "interval",
        "corners = [x * y for x in (a_low, a_high) for y in (b_low, b_high)]",
        "corners = [a_low * b_low, a_high * b_high]",
    ),
    Mutant(
        "bound-of-a-subtracted-part", "compiler/tensor/simplify.py", "wrong sign",
        "self._eliminate(atom, var, extent, upper == (coefficient > 0))", "self._eliminate(atom, var, extent, upper)",
    ),
    Mutant(
        "mod-loses-its-remainder", "compiler/tensor/simplify.py", "arithmetic",
        "return factor, reduced, rest.constant % factor", "return factor, reduced, 0",
    ),
    Mutant(
        "index-beyond-by-one", "compiler/tensor/bounds.py", "bound off by one",
        "(low < 0 or high >= size)", "(low < 0 or high > size)",
    ),
    Mutant(
        "either-guard-holds", "compiler/tensor/bounds.py", "condition",
        "case BinOp(\"and\", a, b):", "case BinOp(\"and\" | \"or\", a, b):",
    ),
    Mutant(
        "variable-of-an-earlier-loop", "compiler/tensor/verify.py", "check ignored",
        "if isinstance(node, Var) and node not in loops:", "if isinstance(node, Var) and node.name not in self.seen:",
        ("tests/compiler/tensor/test_verify.py",),
    ),
    Mutant(
        "buffer-outside-of-its-scope", "compiler/tensor/verify.py", "check ignored",
        "if buffers.get(buffer.name) != buffer:", "if buffer.name not in self.seen:",
        ("tests/compiler/tensor/test_verify.py",),
    ),
    # Stages, storage and intrinsics
    Mutant(
        "neighbours-meet-by-one", "compiler/tensor/independence.py", "off by one",
        "max(highest) - min(lowest) < abs(common[0])", "max(highest) - min(lowest) <= abs(common[0])",
        (
            "tests/compiler/tensor/test_schedule.py",
            "tests/compiler/tensor/test_storage.py",
            "tests/compiler/tensor/test_tensorize.py",
        ),
    ),
    Mutant(
        "shifted-loop-by-minimum", "compiler/tensor/overlap.py", "condition",
        "node.op in (\"min\", \"max\")", "node.op == \"max\"",
        ("tests/compiler/tensor/test_overlap.py",),
    ),
    Mutant(
        "alignment-added-to-the-old", "compiler/tensor/storage.py", "bookkeeping",
        "kept = [item for item in buffer.alignments if item.axis != axis]", "kept = list(buffer.alignments)",
        ("tests/compiler/tensor/test_storage.py",),
    ),
    Mutant(
        "doubled-alignment-of-the-old-axis", "compiler/tensor/storage.py", "off by one",
        "replace(item, axis=item.axis + 1)", "replace(item, axis=item.axis)",
        ("tests/compiler/tensor/test_storage.py",),
    ),
    Mutant(
        "inplace-at-one-matching-read", "compiler/tensor/caching.py", "condition",
        "if any(read.indices != leaf.body.indices for read in reads):",
        "if all(read.indices != leaf.body.indices for read in reads):",
        ("tests/compiler/tensor/test_schedule.py", "tests/compiler/tensor/test_storage.py"),
    ),
    Mutant(
        "inline-of-a-changed-source", "compiler/tensor/caching.py", "check ignored",
        "if position > here and writer[-1] is not leaf:", "if position < here and writer[-1] is leaf:",
        (
            "tests/compiler/tensor/test_schedule.py",
            "tests/compiler/tensor/test_storage.py",
            "tests/compiler/tensor/test_functions.py",
        ),
    ),
    Mutant(
        "init-inside-the-reduction", "compiler/tensor/reductions.py", "check ignored",
        "outside = [outer.var.name for outer in loops_of(path[:position]) if outer.var in leaf.reduce_vars]",
        "outside: list[str] = []",
        ("tests/compiler/tensor/test_schedule.py", "tests/compiler/tensor/test_reductions.py"),
    ),
    Mutant(
        "tile-with-another-stride", "compiler/tensor/tensorize.py", "check ignored",
        "if need != step:", "if need > step:",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "tile-aligned-at-its-first", "compiler/tensor/tensorize.py", "check ignored",
        "for value in (*position.terms.values(), position.constant)", "for value in (position.constant,)",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "scalar-limit-exclusive", "compiler/tensor/tensorize.py", "bound off by one",
        "(high is not None and value.value > high)", "(high is not None and value.value >= high)",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "scalar-that-varies", "compiler/tensor/tensorize.py", "check ignored",
        "if value.dtype != param.dtype or varying or any(", "if value.dtype != param.dtype or any(",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    # Programs of the core
    Mutant(
        "checker-misses-writes-after-reads", "compiler/targets/accel/check.py", "missing hazard check",
        "if other == engine or not (write or wrote):", "if other == engine or not wrote:",
    ),
    Mutant(
        "checker-sends-tomorrow's-clock", "compiler/targets/accel/check.py", "vector clock",
        "tokens.append(state.clock.copy())", "tokens.append(state.clock)",
    ),
    Mutant(
        "checker-one-entry-more", "compiler/targets/accel/check.py", "bound off by one",
        "if first + length > memory.size:", "if first + length > memory.size + 1:",
    ),
    Mutant(
        "checker-leaves-one-token", "compiler/targets/accel/check.py", "check ignored",
        "            if tokens:\n", "            if len(tokens) > 1:\n",
    ),
    Mutant(
        "checker-reads-beside-constants", "compiler/targets/accel/check.py", "check ignored",
        "            if inside.any():\n", "            if not write:\n",
    ),
    Mutant(
        "checker-of-rows-without-stride", "compiler/targets/accel/check.py", "address",
        "(transfer.rows, transfer.stride * units))", "(transfer.rows, transfer.columns * units))",
    ),
    Mutant(
        "tokens-for-writes-after-reads", "compiler/targets/accel/tokens.py", "missing hazard check",
        "histories.latest(access, selector, engine, False, needed)", "pass",
    ),
    Mutant(
        "tokens-know-only-the-last-sender", "compiler/targets/accel/tokens.py", "vector clock",
        "clock[index] = max(clock[index], sender[index])", "clock[index] = sender[index]",
    ),
    Mutant(
        "tokens-one-more-than-fit", "compiler/targets/accel/tokens.py", "queue depth",
        "if len(tokens) == config.token_depth:", "if len(tokens) > config.token_depth:",
    ),
    Mutant(
        "early-over-what-is-read", "compiler/targets/accel/issue_early.py", "missing hazard check",
        "int(written[memory][selector].max()), int(read[memory][selector].max()))",
        "int(written[memory][selector].max()))",
    ),
    Mutant(
        "early-gemm-overtakes", "compiler/targets/accel/issue_early.py", "order",
        "REORDERED = (Engine.LOAD, Engine.LOADW)", "REORDERED = (Engine.LOAD, Engine.LOADW, Engine.GEMM)",
    ),
    Mutant(
        "fold-joins-other-starts", "compiler/targets/accel/fold.py", "condition",
        "return outer.starts == inner.starts and outer.strides", "return outer.strides",
        ("tests/compiler/targets/accel/test_fold.py",),
    ),
    Mutant(
        "fold-level-that-reduces", "compiler/targets/accel/fold.py", "first-iteration flag",
        "return not has_start or (loop.strides[0] == 0) == loop.starts",
        "return not has_start or loop.strides[0] == 0 or not loop.starts",
        ("tests/compiler/targets/accel/test_fold.py",),
    ),
    Mutant(
        "fold-pads-swapped", "compiler/targets/accel/fold.py", "swapped operands",
        "left, right = columns.low, columns.extent - columns.high",
        "right, left = columns.low, columns.extent - columns.high",
        ("tests/compiler/targets/accel/test_fold.py",),
    ),
    Mutant(
        "fold-one-level-more", "compiler/targets/accel/fold.py", "bound off by one",
        "split = max(0, len(inner) - LOOP_LEVELS)", "split = max(0, len(inner) - LOOP_LEVELS - 1)",
        ("tests/compiler/targets/accel/test_fold.py",),
    ),
    Mutant(
        "emit-levels-of-the-other-engine", "compiler/targets/accel/emit.py", "state shared",
        "held = self.stream.levels[engine]", "held = self.stream.levels[Engine.GEMM]",
        ("tests/compiler/targets/accel/test_kernels.py",),
    ),
    Mutant(
        "emit-one-parameter-of-three", "compiler/targets/accel/emit.py", "missing hazard check",
        "folded.levels, 2, instruction.b_entries))", "folded.levels, 2))",
        ("tests/compiler/targets/accel/test_tokens.py", "tests/compiler/targets/accel/test_kernels.py"),
    ),
    Mutant(
        "emit-starts-in-any-iteration", "compiler/targets/accel/emit.py", "first-iteration flag",
        "zero=int(starts and at_start), levels=len(folded.levels),\n                dst=dst",
        "zero=int(starts), levels=len(folded.levels),\n                dst=dst",
        ("tests/compiler/targets/accel/test_kernels.py", "tests/compiler/targets/accel/test_fold.py"),
    ),
    Mutant(
        "emit-padding-is-zero", "compiler/targets/accel/emit.py", "pad value ignored",
        "pad = nest.scalars[\"pad\"](context.environment) if emits.padded else 0", "pad = 0",
        ("tests/compiler/targets/accel/test_kernels.py",),
    ),
    Mutant(
        "ring-overlaps-by-one", "compiler/targets/accel/scratchpads.py", "off by one",
        "if begin < start + entries and start < stop:", "if begin < start + entries - 1 and start < stop:",
        ("tests/compiler/targets/accel/test_placement.py", "tests/compiler/targets/accel/test_kernels.py"),
    ),
    Mutant(
        "grouped-weights-in-the-first-block", "compiler/targets/accel/packed_layout.py", "index",
        "channel // group_in * group_in % block", "channel // group_in % block",
        (
            "tests/compiler/targets/accel/test_layout_kernels.py",
            "tests/compiler/targets/accel/passes/test_pack_layout.py",
        ),
    ),
    Mutant(
        "accumulator-parts-transposed", "compiler/targets/accel/packed_layout.py", "order",
        "moved = split.transpose(0, 1, 3, 4, 2, 5, 6, 7)\n    return np.asc",
        "moved = split.transpose(0, 1, 3, 4, 5, 2, 6, 7)\n    return np.asc",
        ("tests/compiler/targets/accel/test_kernels.py",),
    ),
    Mutant(
        "tiling-of-one-thread", "compiler/targets/accel/tiling.py", "too small",
        "return (threads if home and home == axis else 1), loads", "return 1, loads",
        ("tests/compiler/targets/accel/test_placement.py", "tests/compiler/targets/accel/test_schedule.py"),
    ),
    Mutant(
        "tiling-rounds-chunks-down", "compiler/targets/accel/tiling.py", "rounding",
        "return -(-problem.reduction // tiling.reduction) if problem.reduction else 1",
        "return problem.reduction // tiling.reduction if problem.reduction else 1",
        ("tests/compiler/targets/accel/test_placement.py", "tests/compiler/targets/accel/test_schedule.py"),
    ),
    # Memory and fusion of loop nests
    Mutant(
        "memory-shared-at-the-last-step", "compiler/targets/memory_plan.py", "overlap",
        "if other.last < tensor.first or tensor.last < other.first:",
        "if other.last <= tensor.first or tensor.last < other.first:",
        ("tests/compiler/targets/loops/test_memory.py",),
    ),
    Mutant(
        "memory-gap-too-small", "compiler/targets/memory_plan.py", "overlap",
        "if offset + tensor.nbytes <= begin:", "if offset < begin:",
        ("tests/compiler/targets/loops/test_memory.py",),
    ),
    Mutant(
        "arena-reuses-what-is-read-later", "compiler/targets/loops/arena.py", "overlap",
        "if self.allocations[other].last == each.filled", "if self.allocations[other].last >= each.filled",
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
        "fusion-of-a-smaller-shape", "compiler/targets/loops/fusion.py", "condition",
        "if arg.shape != self.root.shape:", "if len(arg.shape) != len(self.root.shape):",
        ("tests/compiler/targets/loops/test_fusion.py",),
    ),
    Mutant(
        "overwrites-what-it-reads-later", "compiler/targets/loops/in_place.py", "order",
        "order.index(path[-1]) > order.index(writer):", "order.index(path[-1]) < order.index(writer):",
        ("tests/compiler/targets/loops/test_memory.py",),
    ),
    Mutant(
        "proof-of-a-shift-by-all-bits", "compiler/targets/loops/check_kernel.py", "bound off by one",
        "high >= 8 * ITEM_BYTES[a.dtype]", "high > 8 * ITEM_BYTES[a.dtype]",
        ("tests/compiler/targets/loops/test_check_kernel.py",),
    ),
    Mutant(
        "proof-of-one-element-more", "compiler/targets/loops/check_kernel.py", "bound off by one",
        "if not _is_within(index, extent - 1, facts, loops):", "if not _is_within(index, extent, facts, loops):",
        ("tests/compiler/targets/loops/test_check_kernel.py",),
    ),
    Mutant(
        "proof-of-a-tile's-first-element", "compiler/targets/loops/check_kernel.py", "bound",
        "if not _is_within(position, last - span, facts, loops):", "if not _is_within(position, last, facts, loops):",
        ("tests/compiler/targets/loops/test_check_kernel.py",),
    ),
    Mutant(
        "proof-of-a-place's-first-byte", "compiler/targets/loops/check_program.py", "bound",
        "or place.offset + nbytes > size or not aligned", "or place.offset > size or not aligned",
        ("tests/compiler/targets/loops/test_check_program.py",),
    ),
    Mutant(
        "program-writes-to-its-input", "compiler/targets/loops/check_program.py", "check ignored",
        "if place.kind in (\"input\", \"constant\"):", "if place.kind == \"constant\":",
        ("tests/compiler/targets/loops/test_check_program.py",),
    ),
    Mutant(
        "program-trusts-overwritten-indices", "compiler/targets/loops/check_program.py", "overlap",
        "if not _overlap(known, place)}", "if known != place}",
        ("tests/compiler/targets/loops/test_check_program.py",),
    ),
    Mutant(
        "interval-of-mod-over-a-period", "compiler/targets/loops/intervals.py", "interval",
        "if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:", "if b[0] == b[1]:",
        ("tests/compiler/targets/loops/test_intervals.py",),
    ),
    Mutant(
        "interval-of-a-difference", "compiler/targets/loops/intervals.py", "interval",
        "return a[0] - b[1], a[1] - b[0]", "return a[0] - b[0], a[1] - b[1]",
        ("tests/compiler/targets/loops/test_intervals.py",),
    ),
    # Machine code
    Mutant(
        "divides-exactly-and-rounds-down", "compiler/targets/cpu/llvm/expressions.py", "rounding",
        "low = builder.and_(builder.icmp_signed(\"!=\", rest, zero), differ)", "low = differ",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "shifts-unsigned-with-a-sign", "compiler/targets/cpu/llvm/expressions.py", "wrong sign",
        "\"shr\": builder.lshr if unsigned else builder.ashr", "\"shr\": builder.ashr",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "minimum-loses-nan", "compiler/targets/cpu/llvm/expressions.py", "nan",
        "return builder.select(builder.fcmp_unordered(\"uno\", a, a), a, chosen)", "return chosen",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "widens-unsigned-with-a-sign", "compiler/targets/cpu/llvm/expressions.py", "wrong sign",
        "return builder.zext(x, kind) if source in UNSIGNED else builder.sext(x, kind)", "return builder.sext(x, kind)",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "nan-is-false", "compiler/targets/cpu/llvm/expressions.py", "nan",
        "return builder.fcmp_unordered(\"!=\", x, zero) if source in FLOATS",
        "return builder.fcmp_ordered(\"!=\", x, zero) if source in FLOATS",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "bfloat16-ties-away", "compiler/targets/cpu/llvm/floats.py", "tie rule",
        "constant(I32, 0x7FFF, lanes)", "constant(I32, 0x8000, lanes)",
        ("tests/compiler/targets/cpu/llvm/test_floats.py",),
    ),
    Mutant(
        "fills-in-every-iteration", "compiler/targets/cpu/llvm/emit.py", "first-iteration flag",
        "                if value:\n                    return\n", "                pass\n",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    Mutant(
        "lanes-skip-the-tail", "compiler/targets/cpu/llvm/emit.py", "off by one",
        "        while done < extent:\n", "        while done + 1 < extent:\n",
        ("tests/compiler/targets/cpu/llvm/test_emit.py",),
    ),
    # Passes
    Mutant(
        "transposes-in-the-wrong-order", "compiler/passes/simplify.py", "order",
        "perm = tuple(inner.attr(\"perm\")[axis] for axis in node.attr(\"perm\"))",
        "perm = tuple(node.attr(\"perm\")[axis] for axis in inner.attr(\"perm\"))",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "clips-of-the-wider-range", "compiler/passes/simplify.py", "condition",
        "low = max(node.attr(\"low\"), inner.attr(\"low\"))", "low = min(node.attr(\"low\"), inner.attr(\"low\"))",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "pads-with-another-value", "compiler/passes/simplify.py", "check ignored",
        "if pad.attr(\"value\") == node.attr(\"pad_value\") and len(", "if len(",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "requantises-to-another-zero", "compiler/passes/simplify.py", "check ignored",
        "if scale == scale_2 and zero == zero_2 and (", "if scale == scale_2 and (",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "limits-without-zero-point", "compiler/passes/emit_integers.py", "offset missing",
        "rounded = int(np.rint(np.float32(digit))) + zero_point", "rounded = int(np.rint(np.float32(digit)))",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "sum-adds-its-zero-points", "compiler/passes/emit_integers.py", "wrong sign",
        "correction = -sum(weight * term.zero_point", "correction = sum(weight * term.zero_point",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "negative-factor-keeps-its-limits", "compiler/passes/integer_form.py", "order",
        "return min(ends), max(ends)", "return ends",
        ("tests/compiler/passes/test_passes.py",),
    ),
    Mutant(
        "shifts-channels-after-a-clip", "compiler/passes/integer_form.py", "check ignored",
        "            if x.clamped and not uniform:\n", "            if False:\n",
        ("tests/compiler/passes/test_passes.py",),
    ),
    # Operators
    Mutant(
        "conv2d-sums-in-float32", "compiler/operators/numerics.py", "precision",
        "_EXACT_IN_FLOAT32 = 1 << 24", "_EXACT_IN_FLOAT32 = 1 << 40",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "requantise-does-not-wrap", "compiler/operators/numerics.py", "width",
        "t = x.astype(np.int32) + bias.astype(np.int32)", "t = x.astype(np.int64) + bias.astype(np.int64)",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "multiplier-carries-positive-only", "compiler/operators/numerics.py", "wrong sign",
        "carried = np.abs(multiplier) == 1 << MULTIPLIER_BITS", "carried = multiplier == 1 << MULTIPLIER_BITS",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "window-padded-alike", "compiler/operators/type_rules.py", "index",
        "pads[i], pads[i + len(size)], dilations[i])", "pads[i], pads[i], dilations[i])",
        ("tests/compiler/operators/test_operators.py",),
    ),
    Mutant(
        "outputs-in-no-whole-groups", "compiler/operators/type_rules.py", "check ignored",
        "x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0,", "x.shape[1] == w.shape[1] * groups,",
        ("tests/compiler/operators/test_operators.py",),
    ),
    Mutant(
        "quantise-rounds-behind-the-zero", "compiler/operators/quantise.py", "tie rule",
        "np.clip(np.rint(ratio).astype(np.float64) + zero, low, high)",
        "np.clip(np.rint(ratio.astype(np.float64) + zero), low, high)",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "requantise-shifts-an-int8", "compiler/operators/integer.py", "check ignored",
        "narrow = left_shift == 0 and low >= -128 and high <= 127", "narrow = low >= -128 and high <= 127",
        ("tests/compiler/operators/test_operators.py",),
    ),
    Mutant(
        "unfold-dilates-by-the-height", "compiler/operators/integer.py", "swapped operands",
        "tap % kernel_w * dilation_w", "tap % kernel_w * dilation_h",
        ("tests/compiler/operators/test_lowerings.py",),
    ),
    Mutant(
        "gather-of-the-size", "compiler/operators/index.py", "bound off by one",
        "(source.value >= -sizes) & (source.value < sizes)", "(source.value >= -sizes) & (source.value <= sizes)",
        ("tests/compiler/operators/test_lowerings.py", "tests/compiler/operators/test_operators.py"),
    ),
    # ONNX
    Mutant(
        "same-upper-is-lower", "compiler/frontends/onnx/window.py", "swapped operands",
        "small + large if upper else large + small", "large + small if upper else small + large",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    Mutant(
        "ceil-mode-starts-in-the-padding", "compiler/frontends/onnx/window.py", "bound off by one",
        "if steps * strides[i] >= size[i] + pads[i]:", "if steps * strides[i] > size[i] + pads[i]:",
        ("tests/compiler/frontends/onnx/test_reader.py", "tests/onnx/test_suite.py"),
    ),
    Mutant(
        "unsqueeze-counts-old-axes", "compiler/frontends/onnx/move.py", "index",
        "rank = len(x.shape) + len(axes)", "rank = len(x.shape)",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    Mutant(
        "slice-back-to-the-first", "compiler/frontends/onnx/move.py", "bound",
        "stop = None if step < 0 and end < -size else end", "stop = end",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    Mutant(
        "integer-sums-in-float32", "compiler/frontends/onnx/quantised.py", "precision",
        "if LARGEST_BYTE * sums.max(initial=0) <= 2**24:", "if LARGEST_BYTE * sums.max(initial=0) <= 2**34:",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    Mutant(
        "scale-of-zero", "compiler/frontends/onnx/quantised.py", "check ignored",
        "np.any(known <= 0)", "np.any(known < 0)",
        ("tests/compiler/frontends/onnx/test_reader.py", "tests/compiler/frontends/onnx/test_limits.py"),
    ),
    # Runtime
    Mutant(
        "inputs-in-the-order-given", "runtime/inputs.py", "order",
        "return {name: _native(np.asarray(inputs[name])) for name in names}",
        "return {name: _native(np.asarray(inputs[name])) for name in inputs}",
        ("tests/runtime/test_inputs.py", "tests/runtime/test_module.py"),
    ),
    Mutant(
        "inputs-in-the-other-byte-order", "runtime/inputs.py", "byte order",
        "return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder(\"=\"))",
        "return array if array.dtype.isnative else array.view(array.dtype.newbyteorder(\"=\"))",
        ("tests/runtime/test_inputs.py", "tests/runtime/test_module.py"),
    ),
    Mutant(
        "window-holds-the-first-byte", "runtime/artifact_check.py", "bound",
        "        if offset + size > core.window_bytes:", "        if offset > core.window_bytes:",
        ("tests/runtime/test_artifact.py",),
    ),
    Mutant(
        "slot-on-a-later-program", "runtime/artifact_check.py", "overlap",
        "place = bisect_left(starts, offset + size) - 1", "place = bisect_left(starts, offset) - 1",
        ("tests/runtime/test_artifact.py",),
    ),
    Mutant(
        "memory-reuses-itself", "runtime/artifact_check.py", "off by one",
        "each.reuses >= number)", "each.reuses > number)",
        ("tests/runtime/test_artifact.py",),
    ),
    Mutant(
        "value-made-twice", "runtime/artifact_check.py", "check ignored",
        "        if name in values:\n", "        if False:\n",
        ("tests/runtime/test_artifact.py",),
    ),
    Mutant(
        "layer-minus-two", "runtime/artifact_check.py", "bound off by one",
        "if count and not -1 <= int(step.layer_of.min())", "if count and not -2 <= int(step.layer_of.min())",
        ("tests/runtime/test_artifact.py",),
    ),
)  # fmt: skip
