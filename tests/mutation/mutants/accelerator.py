"""Faults in what decides the programs of the accelerator: moves, layouts, operators, linking, streams, the walk."""

from __future__ import annotations

from .mutant import Mutant

ACCEL = "compiler/targets/accel/"
TESTS = "tests/compiler/targets/accel/"


def _fault(name: str, path: str, kind: str, old: str, new: str, *tests: str) -> Mutant:
    whole = tuple(test if test.startswith("tests/") else TESTS + test for test in tests)
    return Mutant(name, ACCEL + path, kind, old, new, whole)


MUTANTS = (
    _fault(
        "registers-hold-what-they-held-before", "walk/unplaced.py", "stale state",
        "held[engine][level] = last", "held[engine][level] = first",
        "walk/test_unplaced.py", "test_kernels.py",
    ),
    _fault(
        "walks-serve-any-zeros", "link/compile_kernel.py", "incomplete key",
        "None if buffer.kept is None else buffer.kept.tobytes()", "None", "walk/test_unplaced.py",
    ),
    _fault(
        "full-scratchpads-lose-their-rings", "walk/emit.py", "forgotten part",
        "rings = self._copied_rings()\n        room", "rings = self.rings\n        room", "walk/test_unplaced.py",
    ),
    _fault(
        "moves-in-the-order-of-loads", "walk/emit_move.py", "wrong order",
        "walks(places.astype(np.int64)):", "walks(np.sort(places).astype(np.int64)):",
        "passes/test_core_moves.py",
    ),
    _fault(
        "rows-stay-images", "passes/rows_as_pixels.py", "missing condition",
        "if steps and (_is_of_host(source)", "if False and (_is_of_host(source)",
        "passes/test_rows_as_pixels.py",
    ),
    _fault(
        "pixels-for-any-reader", "passes/rows_as_pixels.py", "missing condition",
        "if reading and all(reads(reader)", "if reading and any(reads(reader)", "passes/test_rows_as_pixels.py",
    ),
    _fault(
        "values-are-turned-in-another-order", "passes/turned_moves.py", "wrong order",
        "(images, pixels // block, channels, block), (0, 2, 1, 3)",
        "(images, channels, pixels // block, block), (0, 1, 2, 3)",
        "passes/test_turned_moves.py",
    ),
    _fault(
        "values-are-turned-by-twos", "passes/turned_moves.py", "wrong constant",
        "exact(product, 1.0)", "exact(product, 2.0)", "passes/test_turned_moves.py",
    ),
    _fault(
        "channels-in-parts-of-blocks-are-turned", "passes/turned_moves.py", "check ignored",
        "if channels % block or pixels % block:", "if False:", "passes/test_turned_moves.py",
    ),
    _fault(
        "channels-of-a-moved-operand-as-it-lay", "passes/zero_points.py", "wrong operand",
        "sources, own = before[0], before[1].reshape(own.shape)", "sources = before[0]",
        "passes/test_rows_as_pixels.py",
    ),
    _fault(
        "moved-fills-are-zeros", "walk/emit_move.py", "wrong constant",
        "pad_top=1, pad_value=fill_of_entry(number))", "pad_top=1, pad_value=0)",
        "passes/test_core_moves.py",
    ),
    _fault(
        "moved-parts-over-the-first", "walk/emit_move.py", "address",
        "result + part.start * self._config.out_bytes, context)", "result, context)",
        "passes/test_core_moves.py",
    ),
    _fault(
        "walks-step-as-one-loop", "walk/emit_move.py", "wrong factor",
        "steps.insert(0, steps[0] * extent)", "steps.insert(0, extent)",
        "passes/test_core_moves.py",
    ),
    _fault(
        "moved-pieces-from-the-start", "walk/moved_loads.py", "address",
        "yield Rectangle(start + piece.scratchpad,", "yield Rectangle(piece.scratchpad,",
        "passes/test_core_moves.py",
    ),
    _fault(
        "moved-rows-of-any-length", "walk/moved_loads.py", "check ignored",
        "runs[place + rows] == (first + rows * stride, columns)", "runs[place + rows][0] == first + rows * stride",
        "passes/test_core_moves.py",
    ),
    _fault(
        "moved-neighbours-in-any-order", "walk/moved_loads.py", "comparison",
        "np.flatnonzero(np.diff(entries) != each) + 1", "np.flatnonzero(np.diff(entries) > each) + 1",
        "passes/test_core_moves.py",
    ),
    _fault(
        "matrices-by-their-first-entries", "walk/moved_loads.py", "check ignored",
        "return first if np.array_equal(numbers.reshape(-1, each), first[:, None] + steps) else None", "return first",
        "passes/test_core_moves.py", "test_computed_product.py",
    ),
    _fault(
        "strides-of-matrices-in-entries", "walk/moved_loads.py", "wrong factor",
        "stride // each if rows > 1 else 0", "stride if rows > 1 else 0",
        "passes/test_core_moves.py", "test_computed_product.py",
    ),
    _fault(
        "zero-points-of-the-other-operand", "passes/zero_points.py", "swapped operands",
        "of_x, of_w = (_bytes_of", "of_w, of_x = (_bytes_of",
        "test_computed_product.py",
    ),
    _fault(
        "zero-points-without-their-product", "passes/zero_points.py", "wrong constant",
        "rest = -x.shape[1] * first * second", "rest = -node.attr('depth') * first * second",
        "test_computed_product.py",
    ),
    _fault(
        "arithmetic-behind-moves-for-one-reader", "passes/behind_moves.py", "check ignored",
        "if value.op != \"requantise\" or uses[value] != 1 or", "if value.op != \"requantise\" or",
        "passes/test_behind_moves.py",
    ),
    _fault(
        "numbers-of-channels-behind-moves", "passes/behind_moves.py", "check ignored",
        "any(len(np.unique(each)) != 1 for each in numbers)", "not numbers",
        "passes/test_behind_moves.py",
    ),
    _fault(
        "fills-one-too-high", "operators/moves.py", "off by one",
        "return number + _LARGEST + 1", "return number + _LARGEST",
        "passes/test_core_moves.py",
    ),
    _fault(
        "sorted-entries-are-a-renaming", "operators/moves.py", "check ignored",
        "np.array_equal(entries, np.arange(len(entries)))", "np.array_equal(np.sort(entries), np.arange(len(entries)))",
        "passes/test_core_moves.py",
    ),
    _fault(
        "channels-picked-the-other-way", "passes/channel_moves.py", "swapped operands",
        "weights[np.arange(len(picked)), picked] = 1", "weights[picked, np.arange(len(picked))] = 1",
        "passes/test_channel_moves.py",
    ),
    _fault(
        "channel-moves-backwards", "passes/channel_moves.py", "wrong order",
        "    for move in reversed(chain):\n        moved", "    for move in chain:\n        moved",
        "passes/test_channel_moves.py",
    ),
    _fault(
        "moves-of-a-row-backwards", "passes/order_of_bytes.py", "wrong order",
        "    for move in moves:\n", "    for move in reversed(moves):\n",
        "passes/test_order_of_bytes.py",
    ),
    _fault(
        "gaps-without-whole-blocks", "passes/place_concat.py", "rounding",
        "start += -(-shape[1] // block) * block", "start += shape[1] // block * block + block",
        "passes/test_place_concat.py",
    ),
    _fault(
        "tables-behind-no-zero-point", "passes/pack_layout.py", "forgotten part",
        'for name in ("zero_point", "low", "high", "rounding")}', 'for name in ("low", "high", "rounding")}',
        "test_core_tables.py",
    ),
    _fault(
        "pictures-are-vectors", "passes/pack_layout.py", "check ignored",
        "return ranks <= set(PACKABLE_RANKS) and packed_layout.spatial(before) == packed_layout.spatial(after)",
        "return ranks <= set(PACKABLE_RANKS)",
        "passes/test_pack_layout.py", "passes/test_place_concat.py",
    ),
    _fault(
        "ramps-below-their-table", "passes/ramps.py", "rounding",
        "-((value - low[rest]) // distance)", "(low[rest] - value) // distance",
        "passes/test_ramps.py",
    ),
    _fault(
        "ramps-begin-one-late", "passes/ramps.py", "off by one",
        "places.append(here - 128)", "places.append(here - 127)",
        "passes/test_ramps.py",
    ),
    _fault(
        "unfolded-taps-channels-first", "passes/unfold_input.py", "swapped operands",
        "split.transpose(0, 2, 4, 1, 3, 5)", "split.transpose(0, 1, 2, 4, 3, 5)",
        "passes/test_unfold_input.py",
    ),
    _fault(
        "unfolded-with-the-pads-of-the-start", "passes/unfold_input.py", "swapped operands",
        "pads=(kept_top, kept_left, kept_bottom, kept_right)", "pads=(kept_top, kept_left, kept_top, kept_left)",
        "passes/test_unfold_input.py",
    ),
    _fault(
        "phases-of-columns-as-rows", "passes/dilation_phases.py", "swapped operands",
        "perm=(0, 3, 5, 1, 2, 4)", "perm=(0, 5, 3, 1, 2, 4)",
        "passes/test_dilation_phases.py",
    ),
    _fault(
        "phases-filled-up-with-zeros", "passes/dilation_phases.py", "check ignored",
        'float(anchor.attr("pad_value")) if _has(anchor, "pad_value") else LEAST_VALUE', "0.0",
        "passes/test_dilation_phases.py",
    ),
    _fault(
        "phases-beside-a-gate", "passes/dilation_phases.py", "check ignored",
        "readers != [anchor] or any(", "readers != [anchor] and any(",
        "passes/test_dilation_phases.py",
    ),
    _fault(
        "columns-from-the-right-padding", "operators/builder.py", "wrong field",
        "row, column = y * step - top, x - left", "row, column = y * step - top, x - right",
        "test_random_shapes.py", "test_kernels.py",
    ),
    _fault(
        "filled-at-the-other-end", "operators/filled_parameters.py", "swapped operands",
        "return Filled(place == 0, value)", "return Filled(place != 0, value)",
        "test_filled_parameters.py",
    ),
    _fault(
        "filled-where-one-is-so", "operators/filled_parameters.py", "check ignored",
        "(parameters[:, place] == value).all()", "(parameters[:, place] == value).any()",
        "test_filled_parameters.py",
    ),
    _fault(
        "filled-with-the-wrong-rest", "operators/filled_parameters.py", "swapped operands",
        "parameters[:, 1:] if self.first else parameters[:, :-1]",
        "parameters[:, :-1] if self.first else parameters[:, 1:]",
        "test_filled_parameters.py",
    ),
    _fault(
        "condition-holds-one-later", "operators/intrinsic_nest.py", "bound",
        "return max(low, -(rest // self.coefficient)), high", "return max(low, -(rest // self.coefficient) + 1), high",
        "operators/test_intrinsics.py", "test_kernels.py",
    ),
    _fault(
        "condition-ends-one-early", "operators/intrinsic_nest.py", "off by one",
        "min(high, rest // -self.coefficient + 1)", "min(high, rest // -self.coefficient)",
        "operators/test_intrinsics.py", "test_kernels.py",
    ),
    _fault(
        "less-is-less-or-equal", "operators/intrinsic_nest.py", "off by one",
        "return [linear_form(b).add(linear_form(a), -1).add(Linear({}, -1))]",
        "return [linear_form(b).add(linear_form(a), -1)]",
        "operators/test_intrinsics.py", "test_kernels.py",
    ),
    _fault(
        "requantised-without-left-shifts", "operators/intrinsics.py", "forgotten part",
        "rounds = tuple(param.name for param in scalars), ", "rounds = tuple(param.name for param in _CLAMPS), ",
        "operators/test_intrinsics.py", "test_kernels.py",
    ),
    _fault(
        "bytes-loaded-as-words", "operators/intrinsics.py", "wrong field",
        "emits = EmitLoad(Scratchpad.ACC8, engine, padded)", "emits = EmitLoad(Scratchpad.ACC, engine, padded)",
        "operators/test_intrinsics.py", "test_kernels.py",
    ),
    _fault(
        "weights-filled", "operators/lower.py", "check ignored",
        "if stage != builder.reduce} - ", "if stage} - ",
        "test_kernels.py", "test_filled_parameters.py", "test_shared_parameters.py",
    ),
    _fault(
        "parameters-of-the-first-group", "operators/operators.py", "wrong index",
        "group = index[1] if params.shape[0] > 1 else tir.Const(0)", "group = tir.Const(0)",
        "test_random_shapes.py", "test_quantised_operators.py",
    ),
    _fault(
        "subtracts-by-adding", "operators/operators.py", "wrong sign",
        "lambda x, value: x - value)", "lambda x, value: x + value)",
        "test_random_shapes.py", "test_quantised_operators.py",
    ),
    _fault(
        "sums-of-a-tile-overwritten", "operators/operators.py", "lifetime",
        "if accumulator.name == builder.reduce or operands", "if accumulator.name == builder.data or operands",
        "test_random_shapes.py", "test_quantised_operators.py",
    ),
    _fault(
        "codes-without-their-zero", "operators/weight_groups.py", "forgotten part",
        "// scales[:, None, :, None] + zeros[:, None, :, None])", "// scales[:, None, :, None])",
        "operators/test_weight_groups.py",
    ),
    _fault(
        "codes-high-half-first", "operators/weight_groups.py", "swapped operands",
        "nibbles[:, 0::2] | nibbles[:, 1::2] << 4", "nibbles[:, 1::2] | nibbles[:, 0::2] << 4",
        "operators/test_weight_groups.py",
    ),
    _fault(
        "scales-and-zeros-swapped", "operators/weight_groups.py", "swapped operands",
        "scales | zeros << 4", "zeros | scales << 4",
        "operators/test_weight_groups.py",
    ),
    _fault(
        "convolved-with-columns-as-rows", "operators/window_operators.py", "swapped operands",
        "weight = w[ko, k, kh, kw, ro * sub + so, rk * sub + sk]",
        "weight = w[ko, k, kw, kh, ro * sub + so, rk * sub + sk]",
        "operators/test_window_operators.py", "test_kernels.py",
    ),
    _fault(
        "depthwise-with-columns-as-rows", "operators/window_operators.py", "swapped operands",
        "value * weights[index[1], kh, kw, index[4]", "value * weights[index[1], kw, kh, index[4]",
        "operators/test_window_operators.py", "test_kernels.py",
    ),
    _fault(
        "pooled-with-zeros-around", "operators/window_operators.py", "wrong constant",
        "pad = pad_value if isinstance(pad_value, int) else", "pad = 0 if isinstance(pad_value, int) else",
        "operators/test_window_operators.py", "test_kernels.py",
    ),
    _fault(
        "product-of-matrices-by-columns", "operators/window_operators.py", "swapped operands",
        "weight = w[no, k, ko, ro *", "weight = w[no, ko, k, ro *",
        "test_computed_product.py",
    ),
    _fault(
        "matrices-with-a-zero-are-empty", "operators/empty_matrices.py", "check ignored",
        "mask: Mask = np.any(weights, axis=(-2, -1))", "mask: Mask = weights[..., 0, 0] != 0",
        "operators/test_empty_matrices.py",
    ),
    _fault(
        "engines-wait-for-the-first-of-them", "cost/work.py", "wrong operator",
        "most = np.maximum(most, each)", "most = np.minimum(most, each)", "cost/test_work.py",
    ),
    _fault(
        "nothing-is-exposed", "cost/work.py", "forgotten part",
        "overlapped(self.matrix, self.vector, self.traffic) + self.exposed",
        "overlapped(self.matrix, self.vector, self.traffic)", "cost/test_work.py",
    ),
    _fault(
        "slices-begin-at-the-first-group", "link/depthwise_split.py", "address",
        "batch_group or 0, start)", "batch_group or 0, 0)",
        "link/test_depthwise_split.py",
    ),
    _fault(
        "operands-without-their-shift", "link/link.py", "address",
        "DramBuffer(self._offset(arg) + shift, constant=isinstance(arg, Constant))",
        "DramBuffer(self._offset(arg), constant=isinstance(arg, Constant))",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "results-without-their-shift", "link/link.py", "address",
        ".offset + part.output_shift", ".offset",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "matrices-without-their-pitch", "link/link.py", "forgotten part",
        "spread_matrices(value, kernel.pitch_of(name))", "spread_matrices(value, 1)",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "parameters-stored-as-if-filled", "link/link.py", "check ignored",
        "if filled is not None and fills_pay(self.config, self.rate):", "if filled is not None:",
        "test_filled_parameters.py",
    ),
    _fault(
        "copies-that-lie-there-already", "link/link.py", "check ignored",
        "return places[next(iter(part.inputs))].offset == places[part.kernel.output.name].offset",
        "return places[next(iter(part.inputs))].offset <= places[part.kernel.output.name].offset",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "operands-of-concatenations-at-the-start", "link/window.py", "address",
        "places.setdefault(names[arg], (names[node], shift))", "places.setdefault(names[arg], (names[node], 0))",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "operands-in-the-place-of-several-images", "link/window.py", "check ignored",
        "if node.shape[0] == 1 and not isinstance(arg, Constant):", "if not isinstance(arg, Constant):",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "nested-concatenations-at-the-start", "link/window.py", "address",
        "return whole, shift + more", "return whole, more",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "concatenations-of-the-first-image", "link/slices.py", "address",
        "source = (places[operand], outer * nbytes)", "source = (places[operand], 0)",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "concatenations-over-the-first-image", "link/slices.py", "address",
        "shift = outer * sum(group_bytes)", "shift = 0",
        "link/test_link.py", "test_placement.py",
    ),
    _fault(
        "order-not-told-to-conflicts", "link/function_program.py", "forgotten part",
        "conflicts.moved(order)", "conflicts",
        "stream/test_issue_early.py", "stream/test_conflicts.py",
    ),
    _fault(
        "places-of-a-state-by-their-number", "link/residents.py", "wrong index",
        "places.reshape(-1)[flat[there] - 1] = there", "places.reshape(-1)[flat[there] - 1] = flat[there] - 1",
        "tests/runtime/test_residents.py",
    ),
    _fault(
        "states-share-bytes", "link/window.py", "check ignored",
        "if reuse and name not in states else (0, time)", "if reuse else (0, time)",
        "tests/runtime/test_residents.py",
    ),
    _fault(
        "accesses-without-their-last-unit", "stream/stream.py", "off by one",
        "return self.start + offsets_of(self.extents, self.strides)[1]",
        "return self.start + offsets_of(self.extents, self.strides)[1] - 1",
        "stream/test_conflicts.py",
    ),
    _fault(
        "runs-without-their-last-unit", "stream/accesses.py", "off by one",
        "offsets[np.concatenate([gaps, [len(offsets) - 1]])] + 1",
        "offsets[np.concatenate([gaps, [len(offsets) - 1]])]",
        "stream/test_conflicts.py",
    ),
    _fault(
        "writes-taken-for-reads", "stream/accesses.py", "forgotten part",
        "writes[access].astype(np.bool_)", "np.zeros(len(access), np.bool_)",
        "stream/test_conflicts.py",
    ),
    _fault(
        "accesses-stay-where-parts-came-before", "stream/accesses.py", "address",
        "[places[old.positions[rows]], ", "[old.positions[rows], ",
        "stream/test_accesses.py",
    ),
    _fault(
        "loads-judged-behind-what-they-bring", "stream/split_loads.py", "off by one",
        "loads[load] <= positions[access]", "loads[load] < positions[access]",
        "stream/test_split_loads.py",
    ),
    _fault(
        "constants-that-changed-where-they-were", "link/window.py", "check ignored",
        "if not value.flags.writeable:", "if True:",
        "link/test_window.py",
    ),
    _fault(
        "reads-of-one-piece-are-constants", "stream/constants.py", "off by one",
        "> written[dram.starts[run]]\n", "> written[dram.starts[run]] + 1\n",
        "stream/test_constants.py",
    ),
    _fault(
        "early-past-all-but-the-last-of-them", "stream/issue_early.py", "forgotten part",
        "place = max(place, places[earlier[pair]])", "place = places[earlier[pair]]",
        "stream/test_issue_early.py", "stream/test_conflicts.py",
    ),
    _fault(
        "parts-of-products-with-the-first-weights", "stream/split_products.py", "stride left out",
        "wgt=gemm.wgt + to_wgt", "wgt=gemm.wgt",
        "stream/test_split_products.py",
    ),
    _fault(
        "parts-start-only-once", "walk/emit_nest.py", "forgotten part",
        "first = starts and part[:results] != started", "first = starts and started is None",
        "operators/test_empty_matrices.py",
    ),
    _fault(
        "records-from-the-first", "walk/emit_nest.py", "address",
        "self._offset(source.offset + first * config.weight_record_bytes)", "self._offset(source.offset)",
        "operators/test_weight_groups.py",
    ),
    _fault(
        "groups-that-meet-another-one", "passes/smaller_forms.py", "address",
        "first = output // (outputs * each // channels) * each", "first = (output + 1) % channels // each * each",
        "passes/test_smaller_forms.py",
    ),
    _fault(
        "narrow-values-without-their-shift", "passes/smaller_forms.py", "forgotten part",
        "weight=1 << shift, span", "weight=1, span", "passes/test_smaller_forms.py",
    ),
    _fault(
        "unfolded-values-are-read-no-more", "passes/smaller_forms.py", "condition",
        "if param != x or param in still", "if param != x", "passes/test_smaller_forms.py",
    ),
)  # fmt: skip
