"""Faults in the compiler's passes and in the core's programs: bounds, orders, types and bookkeeping."""

from __future__ import annotations

from .mutant import Mutant

PASSES = ("tests/compiler/passes/test_passes.py",)
FUSE = ("tests/compiler/targets/accel/passes/test_fuse.py",)
CORE_TABLES = ("tests/compiler/targets/accel/test_core_tables.py",)
RESIZED = ("tests/compiler/passes/test_resized.py",)
FLOATS = ("tests/compiler/passes/test_floats_unasked.py",)
WIDE = ("tests/compiler/passes/test_wide_activations.py",)
DIGITS = ("tests/compiler/passes/test_block_weights.py",)
GATES = ("tests/compiler/passes/test_float_gates.py",)
MEANS = ("tests/compiler/passes/test_mean_in_digits.py",)
CHAIN_TILING = ("tests/compiler/targets/accel/cost/test_chain_tiling.py",)

MUTANTS = (
    Mutant(
        "low-bytes-by-another-zero-point", "compiler/passes/wide_activations.py", "rounding",
        "(middle & 255) - 128", "(middle & 255) - 127", WIDE,
    ),
    Mutant(
        "high-bytes-in-steps-of-255", "compiler/passes/wide_activations.py", "rounding",
        "256 * step, (middle >> 8)", "255 * step, (middle >> 8)", WIDE,
    ),
    Mutant(
        "high-bytes-without-the-offset-of-unsigned-ones", "compiler/passes/wide_activations.py", "condition",
        "less = 128 if q.dtype == \"uint16\" else 0", "less = 0", WIDE,
    ),
    Mutant(
        "bytes-of-small-products-on-the-core", "compiler/passes/wide_activations.py", "check ignored",
        "HOST_BYTE * crossing + TURNS", "HOST_BYTE * crossing", WIDE,
    ),
    Mutant(
        "weights-of-two-bytes-as-one", "compiler/passes/wide_activations.py", "check ignored",
        "or not _in_a_byte(weights.centred)", "or False", WIDE,
    ),
    Mutant(
        "interpolated-from-the-corner", "compiler/passes/resized.py", "wrong address",
        "_phase((phase + start) * step / factor - start)", "_phase(phase * step / factor - start)", RESIZED,
    ),
    Mutant(
        "interpolated-without-the-edges", "compiler/passes/resized.py", "bound",
        "if not np.array_equal(places, np.arange(len(places))):", "if len(places) > size:", RESIZED,
    ),
    Mutant(
        "interpolated-with-weights-of-nine-bits", "compiler/passes/resized.py", "check ignored",
        "if max(map(_largest, pairs)) > _LARGEST:", "if max(map(_largest, pairs)) > 2 * _LARGEST:", RESIZED,
    ),
    Mutant(
        "interpolated-one-axis-first", "compiler/passes/resized.py", "check ignored",
        "alone = id(node) not in first_of_two", "alone = True", RESIZED,
    ),
    Mutant(
        "rolled-rows-in-buffers-of-more-rows", "compiler/targets/accel/schedule/chain_schedule.py", "bound",
        "exact = rolled > 0", "exact = False", CHAIN_TILING,
    ),
    Mutant(
        "sums-of-rolled-rows-in-buffers-of-more-rows", "compiler/targets/accel/schedule/chain_schedule.py", "bound",
        "schedule.compute_at(producer.stages.reduce, at[place], exact=exact)",
        "schedule.compute_at(producer.stages.reduce, at[place])", CHAIN_TILING,
    ),
    Mutant(
        "what-rolled-rows-read-in-buffers-of-more-rows", "compiler/targets/accel/schedule/chain_schedule.py", "bound",
        "schedule.compute_at(section.stages.data, at[place], exact=exact)",
        "schedule.compute_at(section.stages.data, at[place])", CHAIN_TILING,
    ),
    Mutant(
        "epilogue-in-the-roomiest-way", "compiler/targets/accel/cost/chain_tiling.py", "order",
        "np.argmax(room >= (groups * rows * tiles.columns)[:, None], axis=1)", "np.argmax(room, axis=1)", CHAIN_TILING,
    ),
    Mutant(
        "rolled-rows-between-tiles-of-channels", "compiler/targets/accel/schedule/chain_schedule.py", "order",
        "np.logical_not(beside | places[number] & inside)", "np.logical_not(beside)", CHAIN_TILING,
    ),
    # Tables of the core
    Mutant(
        "table-in-the-order-of-signed-bytes", "compiler/targets/accel/operators/packed_layout.py", "order",
        "np.roll(table, -(len(table) // 2))", "np.roll(table, 0)", CORE_TABLES,
    ),
    Mutant(
        "results-past-the-first-table", "compiler/targets/accel/walk/emit_nest.py", "off by one",
        "// TABLE_ENTRIES + 1", "// TABLE_ENTRIES", CORE_TABLES,
    ),
    Mutant(
        "two-tables-in-a-function", "compiler/targets/accel/passes/fuse.py", "check ignored",
        'if group.tables + sum(node.op == "look_up"', 'if 0 * sum(node.op == "look_up"', CORE_TABLES,
    ),
    Mutant(
        "joins-with-a-consumer-outside", "compiler/targets/accel/passes/fuse.py", "check ignored",
        "if self.uses[id(value)] != len(consumers):", "if self.uses[id(value)] < len(consumers):", PASSES,
    ),
    Mutant(
        "gate-computed-for-every-tile", "compiler/targets/accel/passes/fuse.py", "check ignored",
        "if len(consumers) > 1:  # many", "if len(consumers) > 2:  # many", PASSES,
    ),
    Mutant(
        "window-computed-for-every-tile", "compiler/targets/accel/passes/fuse.py", "check ignored",
        "for anchor in anchors if not _is_product(anchor)", "for anchor in anchors if not anchor", FUSE,
    ),
    Mutant(
        "least-work-of-all-that-repeats", "compiler/targets/accel/cost/space.py", "case left out",
        "1 if axis in section.anchor_repeated else size", "size", FUSE,
    ),
    Mutant(
        "table-cut-by-channels", "compiler/targets/accel/link/depthwise_split.py", "case left out",
        "            case Constant() if node in tables:\n                values[node] = node\n", "",
        CORE_TABLES,
    ),
    Mutant(
        "floats-of-all", "compiler/passes/legalise.py", "work for nobody",
        "self.unasked[id(node)] = partial(self._real_on_host, node, described)",
        "self.floats[id(node)] = self._real_on_host(node, described)", FLOATS,
    ),
    Mutant(
        "floats-in-any-order", "compiler/passes/legalise.py", "order",
        "sorted(asked, key=self.order.__getitem__)", "asked", FLOATS,
    ),
    Mutant(
        "floats-by-recursion", "compiler/passes/legalise.py", "recursion",
        "below += each.children", "below += ()", FLOATS,
    ),
    Mutant(
        "picked-of-other-integers", "compiler/passes/legalise.py", "offset",
        '- (node.dtype == "uint8") * 128', "- 0", ("tests/compiler/passes/test_picked.py",),
    ),
    Mutant(
        "nothing-picked", "compiler/passes/legalise.py", "case forgotten",
        "function = self._picked_of_integers(node, source)", "pass", ("tests/compiler/passes/test_picked.py",),
    ),
    Mutant(
        "table-of-what-the-host-makes", "compiler/passes/legalise.py", "check ignored",
        "case Call(args=(Call(op=str()), _)) as found:", "case Call(args=(_, _)) as found:", CORE_TABLES,
    ),
    Mutant(
        "halves-away-by-wide-multipliers-alone", "compiler/passes/emit_roundings.py", "case forgotten",
        "case roundings.HALF_AWAY if wide:", "case roundings.HALF_AWAY:",
        ("tests/compiler/targets/accel/test_halves.py",),
    ),
    # What the core leaves out, joins and bends
    Mutant(
        "empty-chunk-leaves-old-sums", "compiler/targets/accel/walk/emit_nest.py", "forgotten part",
        "if starts:\n            self._fill_unstarted(", "if False:\n            self._fill_unstarted(",
        ("tests/compiler/targets/accel/operators/test_empty_matrices.py",),
    ),
    Mutant(
        "group-without-matrices-writes-nothing", "compiler/targets/accel/operators/empty_matrices.py", "forgotten case",
        "rows[~rows.any(axis=1), 0] = True", "rows[rows.any(axis=1), 0] = True",
        ("tests/compiler/targets/accel/operators/test_empty_matrices.py",),
    ),
    Mutant(
        "gaps-behind-all-channels", "compiler/targets/accel/passes/place_concat.py", "wrong place",
        "wide[:, self.channels] = weights", "wide[:, : weights.shape[1]] = weights",
        ("tests/compiler/targets/accel/passes/test_place_concat.py",),
    ),
    Mutant(
        "ramps-round-to-the-nearest", "compiler/targets/accel/passes/ramps.py", "rounding",
        "np.full(channels, self.start - half)", "np.full(channels, self.start)",
        ("tests/compiler/targets/accel/passes/test_ramps.py",),
    ),
    # Chains of layers
    Mutant(
        "pipeline-reads-before-it-writes", "compiler/targets/accel/schedule/pipelined.py", "missing hazard check",
        "if (used if writes else written) > now:", "if written > now:",
        ("tests/compiler/targets/accel/schedule/test_pipelined.py",),
    ),
    Mutant(
        "pipeline-frees-what-is-read-later", "compiler/targets/accel/schedule/pipelined.py", "lifetime",
        "last.setdefault(end, [])", "last.setdefault(begin, [])",
        ("tests/compiler/targets/accel/schedule/test_pipelined.py",),
    ),
    Mutant(
        "border-is-shifted", "compiler/targets/accel/walk/emit_nest.py", "wrong field",
        "\"high\": scalars[\"pad\"], \"left_shift\": 0}", "\"high\": scalars[\"pad\"]}",
        ("tests/compiler/targets/accel/operators/test_intrinsics.py",),
    ),
    Mutant(
        "border-over-what-lies-inside", "compiler/targets/accel/walk/fold.py", "bound off by one",
        "for start, stop in ((0, low), (high, nest[place].extent)):",
        "for start, stop in ((0, low), (high - 1, nest[place].extent)):",
        ("tests/compiler/targets/accel/walk/test_fold.py",),
    ),
    Mutant(
        "link-without-its-padding", "compiler/targets/accel/operators/builder.py", "wrong constant",
        "tir.select(_without_true(inside), source.astype(dtype), tir.Const(pad_value, dtype))",
        "tir.select(_without_true(inside), source.astype(dtype), tir.Const(0, dtype))",
        ("tests/compiler/targets/accel/test_chains.py",),
    ),
    Mutant(
        "chain-over-a-result-of-the-network", "compiler/targets/accel/passes/chain.py", "check ignored",
        "if uses != 1:", "if uses > 2:",
        ("tests/compiler/targets/accel/passes/test_chain.py",),
    ),
    Mutant(
        "chain-where-layers-apart-are-faster", "compiler/targets/accel/passes/chain.py", "wrong sign",
        "if cycles > apart.cycles - least:", "if cycles < apart.cycles - least:",
        ("tests/compiler/targets/accel/passes/test_chain.py",),
    ),
    Mutant(
        "layer-lowered-for-each-attribute", "compiler/targets/accel/operators/lower.py", "update forgotten",
        "_LOWERED.setdefault(function.body, {})", "_LOWERED.setdefault(function, {})",
        ("tests/compiler/targets/accel/operators/test_lower.py",),
    ),
    Mutant(
        "kernel-of-other-parameters", "compiler/targets/accel/operators/lower.py", "wrong key",
        "own = function.name, function.params", "own = function.name, ()",
        ("tests/compiler/targets/accel/operators/test_lower.py",),
    ),
    Mutant(
        "chain-plan-not-followed", "compiler/targets/accel/link/compile_kernel.py", "check ignored",
        "if chosen is not None:", "if chosen is None:",
        ("tests/compiler/targets/accel/passes/test_chains_pass.py",),
    ),
    Mutant(
        "chains-of-a-packed-module-left-out", "compiler/compile.py", "off by one",
        "reached == places[-1] else passes", "reached >= places[-2] else passes",
        ("tests/compiler/targets/accel/passes/test_chains_pass.py",),
    ),
    Mutant(
        "grouped-weights-in-the-first-block", "compiler/targets/accel/operators/packed_layout.py", "index",
        "channel // group_in * group_in % block", "channel // group_in % block",
        (
            "tests/compiler/targets/accel/test_layout_kernels.py",
            "tests/compiler/targets/accel/passes/test_pack_layout.py",
        ),
    ),
    # Passes
    Mutant(
        "clips-of-the-wider-range", "compiler/passes/simplify.py", "condition",
        "low = max(node.attr(\"low\"), inner.attr(\"low\"))", "low = min(node.attr(\"low\"), inner.attr(\"low\"))",
        PASSES,
    ),
    Mutant(
        "sum-adds-its-zero-points", "compiler/passes/emit_sums.py", "wrong sign",
        "-float(x.zero_point)), x.scale", "float(x.zero_point)), x.scale",
        ("tests/compiler/passes/test_emit_sums.py",),
    ),
    Mutant(
        "sum-rounds-where-it-cannot-be", "compiler/passes/emit_sums.py", "wrong bound",
        "low, high = low - ends[1], high - ends[0]", "low, high = low - ends[0], high - ends[1]",
        ("tests/compiler/passes/test_emit_sums.py",),
    ),
    Mutant(
        "whole-sums-are-rounded", "compiler/passes/emit_sums.py", "case lost",
        "in_whole_parts(scales, peaks, offset, scale) if rounded else None", "None",
        ("tests/compiler/passes/test_emit_sums.py",),
    ),
    Mutant(
        "known-terms-lose-their-lower-half", "compiler/frontends/litert/fixed.py", "precision",
        "for each in (high, known - high))", "for each in (high, high - high))",
        ("tests/compiler/frontends/litert/test_sums.py",),
    ),
    Mutant(
        "tails-begin-too-late", "compiler/frontends/litert/cut.py", "case lost",
        "if info.number in behind or made & set(info.inputs):", "if info.number in behind:",
        ("tests/compiler/frontends/litert/test_cut.py",),
    ),
    Mutant(
        "signatures-share-a-key", "kept_models.py", "case lost",
        "model, choices = model.path, model.choices", "model = model.path",
        ("tests/cli/test_signatures.py",),
    ),
    Mutant(
        "normalised-groups-keep-their-axes", "compiler/passes/integer_rows.py", "wrong axis",
        "for place in parts[axis])\n        factor", "for place in parts[axis][:1])\n        factor",
        ("tests/compiler/passes/test_integer_rows.py",),
    ),
    # Operators
    Mutant(
        "conv2d-sums-in-float32", "compiler/graph/dtypes.py", "precision",
        "EXACT_IN_FLOAT32 = 1 << 24", "EXACT_IN_FLOAT32 = 1 << 40",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "outputs-in-no-whole-groups", "compiler/operators/type_rules.py", "check ignored",
        "x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0,", "x.shape[1] == w.shape[1] * groups,",
        ("tests/compiler/operators/test_operators.py",),
    ),
    Mutant(
        "quantise-rounds-behind-the-zero", "compiler/operators/quantise.py", "tie rule",
        "np.clip(np.rint(ratio).astype(np.float64) + zero.astype(np.float64), low, high)",
        "np.clip(np.rint(ratio.astype(np.float64) + zero), low, high)",
        ("tests/compiler/operators/test_meanings.py", "tests/compiler/operators/test_operators.py"),
    ),
    Mutant(
        "small-floats-round-half-up", "compiler/operators/small_types.py", "tie rule",
        "to_even = bits + (bits >> cut) % 2 + (", "to_even = bits + 1 + (",
        ("tests/compiler/operators/test_cast.py",),
    ),
    Mutant(
        "scale-of-the-place-in-its-block", "compiler/operators/quantise.py", "axis",
        "index[axis] // block,", "index[axis] % block,", ("tests/compiler/operators/test_families.py",),
    ),
    Mutant(
        "an-element-ranks-behind-itself", "compiler/operators/sort.py", "tie rule",
        "tir.Const(False, \"bool\"), r < index[axis])", "tir.Const(False, \"bool\"), r <= index[axis])",
        ("tests/compiler/operators/test_families.py",),
    ),
    Mutant(
        "first-element-in-no-sum", "compiler/operators/reduce.py", "off by one",
        "inside = place < size if reverse else place >= 0", "inside = place < size if reverse else place >= 1",
        ("tests/compiler/operators/test_families.py",),
    ),
    Mutant(
        "mirrored-from-nought", "compiler/operators/sampling_lowerings.py", "forgotten term",
        "return tir.minimum(rest, 2 * span - rest) + low", "return tir.minimum(rest, 2 * span - rest)",
        ("tests/compiler/operators/test_families.py",),
    ),
    # The depthwise mode
    Mutant(
        "taps-columns-first", "compiler/targets/accel/operators/packed_layout.py", "swapped operands",
        "split.transpose(0, 2, 4, 3, 5, 1)", "split.transpose(0, 2, 4, 5, 3, 1)",
        ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",),
    ),
    Mutant(
        "taps-of-dense-rows", "compiler/targets/accel/schedule/schedule.py", "check ignored",
        "factor=2 * entry, offset=entry", "factor=entry, offset=0",
        ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",),
    ),
    Mutant(
        "even-rows-of-taps", "compiler/targets/accel/operators/depthwise_mode.py", "check ignored",
        "if dilation_h % 2 == 0:", "if dilation_h == 0:",
        ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",),
    ),
    Mutant(
        "rounded-kernel-without-padding", "compiler/targets/accel/operators/depthwise_mode.py", "off by one",
        "-kernel_w % TAP_COLUMNS * dilation_w", "0",
        ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",),
    ),
    Mutant(
        "gap-over-part-of-a-row", "compiler/targets/accel/walk/fold.py", "check ignored",
        "if rows and (loop.scratchpad_stride, loop.extent) == (gap.step, gap.columns):",
        "if rows and loop.scratchpad_stride == gap.step:",
        ("tests/compiler/targets/accel/walk/test_fold.py",),
    ),
    Mutant(
        "row-costs-a-cycle-less", "compiler/targets/accel/operators/depthwise_mode.py", "off by one",
        "return columns + TAP_COLUMNS - 1", "return columns + TAP_COLUMNS - 2",
        ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",),
    ),
    # ONNX
    Mutant(
        "second-direction-reads-forwards", "compiler/frontends/onnx/recurrent.py", "order",
        "[fresh, fresh], tuple(starts), (False, True))", "[fresh, fresh], tuple(starts), (False, False))",
        ("tests/compiler/frontends/onnx/test_recurrent.py",),
    ),
    Mutant(
        "directions-with-other-functions-are-one-loop", "compiler/frontends/onnx/recurrent.py", "missing condition",
        "return first == second", "return bool(first and second)",
        ("tests/compiler/frontends/onnx/test_recurrent.py",),
    ),
    Mutant(
        "same-upper-is-lower", "compiler/frontends/onnx/window.py", "swapped operands",
        "small + large if upper else large + small", "large + small if upper else small + large",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    Mutant(
        "unsqueeze-counts-old-axes", "compiler/frontends/onnx/move.py", "index",
        "rank = len(x.shape) + len(axes)", "rank = len(x.shape)",
        ("tests/compiler/frontends/onnx/test_reader.py",),
    ),
    # Runtime
    Mutant(
        "inputs-in-the-order-given", "runtime/inputs.py", "order",
        "return {name: _native(name, inputs[name]) for name in names}",
        "return {name: _native(name, inputs[name]) for name in inputs}",
        ("tests/runtime/test_inputs.py", "tests/runtime/test_module.py"),
    ),
    Mutant(
        "slot-on-a-later-program", "runtime/artifact_check.py", "overlap",
        "place = bisect_left(starts, offset + size) - 1", "place = bisect_left(starts, offset) - 1",
        ("tests/runtime/test_artifact.py",),
    ),
    Mutant(
        "layer-minus-two", "runtime/artifact_check.py", "bound off by one",
        "if count and not -1 <= int(step.layer_of.min())", "if count and not -2 <= int(step.layer_of.min())",
        ("tests/runtime/test_artifact.py",),
    ),
    # Moved stages
    Mutant(
        "quotients-as-products", "compiler/operators/arithmetic.py", "another's role",
        "gradient=_divide_gradient, role=Role.DIVIDE", "gradient=_divide_gradient, role=Role.MULTIPLY",
        ("tests/compiler/passes/test_describe.py", "tests/compiler/passes/test_passes.py"),
    ),
    Mutant(
        "negative-keeps-its-sign", "compiler/integers/arithmetic.py", "wrong sign",
        "return scaled(x, uniform(x, -1.0), name)", "return scaled(x, uniform(x, 1.0), name)",
        ("tests/compiler/passes/test_describe.py",),
    ),
    # Products and gates in digits
    Mutant(
        "zero-point-of-fine-weights", "compiler/integers/two_digits.py", "wrong sign",
        "correction = -x.zero_point * fine", "correction = x.zero_point * fine", DIGITS,
    ),
    Mutant(
        "digits-in-units-of-fine-weights", "compiler/integers/two_digits.py", "another's unit",
        "weight=1 << places - 8", "weight=1 << places - 7", DIGITS,
    ),
    Mutant(
        "next-digit-with-the-one-before", "compiler/integers/two_digits.py", "wrong sign",
        "weight=-(1 << places)", "weight=1 << places", DIGITS,
    ),
    Mutant(
        "digits-that-overflow", "compiler/integers/two_digits.py", "bound off by one",
        "places[-1] - 7, 8", "places[-1] - 9, 8", DIGITS,
    ),
    Mutant(
        "first-digit-too-low", "compiler/integers/two_digits.py", "bound off by one",
        "(largest // 127).bit_length()", "(largest // 255).bit_length()", DIGITS,
    ),
    Mutant(
        "one-digit-of-deep-weights", "compiler/integers/two_digits.py", "condition",
        "2.0 ** (places[-1] - 9)", "2.0 ** (places[-1] - 12)", DIGITS,
    ),
    Mutant(
        "gates-of-second-operands-alone", "compiler/passes/float_gates.py", "order",
        "in (source.args, source.args[::-1]):", "in (source.args,):", GATES,
    ),
    Mutant(
        "gates-up-to-their-lower-end", "compiler/passes/float_gates.py", "condition",
        "max(map(abs, ends))", "abs(ends[0])", GATES,
    ),
    Mutant(
        "gates-of-any-step", "compiler/passes/float_gates.py", "condition",
        "if unit / 2 * 255 * x.scale > scale * _NEGLIGIBLE:", "if scale <= 0:", GATES,
    ),
    Mutant(
        "gated-without-zero-point", "compiler/passes/float_gates.py", "condition",
        "centred = q if x.zero_point == 0 else", "centred = q if x.zero_point > 0 else", GATES,
    ),
    Mutant(
        "low-digits-of-gates-twice", "compiler/passes/float_gates.py", "forgotten state",
        "rest = on_host(\"nn.subtract\", whole", "rest = on_host(\"nn.add\", whole", GATES,
    ),
    Mutant(
        "high-digits-of-gates-in-255", "compiler/passes/float_gates.py", "off by one",
        "weight=256, span=inner", "weight=255, span=inner", GATES,
    ),
    Mutant(
        "means-of-numbers-beyond-an-end", "compiler/passes/mean_in_digits.py", "condition",
        "at_bottom = (x.scale > 0) == (below is not None)", "at_bottom = x.scale > 0", MEANS,
    ),
    Mutant(
        "means-with-one-place-too-few", "compiler/passes/mean_in_digits.py", "bound off by one",
        "> _WIDE << places):", "> 2 * _WIDE << places):", MEANS,
    ),
    Mutant(
        "higher-digits-of-means-rounded-up", "compiler/passes/mean_in_digits.py", "rounding",
        "(1 << places >> 1) - high_unit // 2", "(1 << places >> 1)", MEANS,
    ),
    Mutant(
        "upper-half-of-means-from-the-middle-less-one", "compiler/passes/mean_in_digits.py", "off by one",
        "(x.low + _STEPS * step, x.low)", "(x.low + (_STEPS - 9) * step, x.low)", MEANS,
    ),
    Mutant(
        "lower-digits-of-means-once", "compiler/passes/mean_in_digits.py", "another's unit",
        "low, weight=count, span=span", "low, weight=1, span=span", MEANS,
    ),
)  # fmt: skip
