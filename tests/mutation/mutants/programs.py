"""Faults in what makes programs of the core: how layers are cut, the order of instructions, tokens."""

from __future__ import annotations

from .mutant import Mutant

PLANS = ("tests/hw/test_relay_plan.py",)

TOKENS = ("tests/compiler/targets/accel/stream/test_tokens.py",)
DEPTHWISE = ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",)
PREFETCH = ("tests/compiler/targets/accel/stream/test_prefetch.py",)
AT_ONCE = ("tests/compiler/targets/accel/test_check_at_once.py",)
STREAM = ("tests/compiler/targets/accel/stream/test_constants.py",)

MUTANTS = (
    Mutant(
        "tokens-for-writes-after-reads", "compiler/targets/accel/stream/conflicts.py", "missing hazard check",
        "if writes[access]:", "if writes[access] < 0:",
    ),
    Mutant(
        "tokens-one-more-than-fit", "compiler/targets/accel/stream/tokens.py", "queue depth",
        "if held[pair] > depth:", "if held[pair] > depth + 1:",
    ),
    Mutant(
        "early-over-what-another-engine-read", "compiler/targets/accel/stream/conflicts.py", "missing hazard check",
        "range(unit * ENGINES, unit * ENGINES + ENGINES)", "range(unit * ENGINES, unit * ENGINES + 1)",
        ("tests/compiler/targets/accel/stream/test_conflicts.py",),
    ),
    Mutant(
        "tokens-of-the-wrong-sender", "compiler/targets/accel/stream/tokens.py", "swapped operands",
        "senders[joined] = senders[joined + 1]\n", "senders[joined] = senders[joined]\n", TOKENS,
    ),
    Mutant(
        "tokens-taken-away-from-the-first-taker", "compiler/targets/accel/stream/tokens.py", "swapped operands",
        "waits[takers[joined + 1]] &=", "waits[takers[joined]] &=", TOKENS,
    ),
    Mutant(
        "tokens-joined-where-it-costs-most", "compiler/targets/accel/stream/tokens.py", "comparison turned around",
        "if takers[token] - senders[token + 1] >", "if takers[token] - senders[token + 1] <", TOKENS,
    ),
    Mutant(
        "prefetch-before-there-is-room", "compiler/targets/accel/stream/prefetch.py", "check ignored",
        "np.maximum(np.array(moments), table.ends[found] + QUEUED)", "np.array(moments)", PREFETCH,
    ),
    Mutant(
        "prefetch-in-time-that-others-use", "compiler/targets/accel/stream/prefetch.py", "check ignored",
        "            moment = min(moment, end)\n", "", PREFETCH,
    ),
    Mutant(
        "prefetch-one-after-the-other-forgotten", "compiler/targets/accel/stream/prefetch.py", "forgotten part",
        "moment = min(moment, wanted)", "moment = wanted", PREFETCH,
    ),
    Mutant(
        "prefetch-for-the-bus-alone", "compiler/targets/accel/stream/prefetch.py", "forgotten part",
        "rate.for_bus(config)", "config.bus_bytes", PREFETCH,
    ),
    Mutant(
        "prefetch-parameters-for-the-array", "compiler/targets/accel/stream/prefetch.py", "swapped operands",
        "Engine.GEMM if form.sets[form.writes[0]][0] is Memory.WGT else Engine.VECTOR", "Engine.GEMM", PREFETCH,
    ),
    Mutant(
        "prefetch-not-used", "compiler/targets/accel/stream/issue_early.py", "forgotten part",
        "wished[ahead] = np.minimum(wished[ahead],", "np.minimum(wished[ahead],", PREFETCH,
    ),
    Mutant(
        "equal-values-that-outsiders-read", "compiler/targets/accel/passes/fuse.py", "count by equality",
        "id(child) for node in topological_order(body)", "id(child) for node in set(topological_order(body))",
        ("tests/onnx/test_quantised_suite.py",),
    ),
    Mutant(
        "equal-values-lowered-twice", "compiler/targets/accel/operators/lower.py", "check ignored",
        "if node in values and not isinstance(node, Constant):", "if isinstance(node, Var) and node in values:",
        ("tests/onnx/test_quantised_suite.py",),
    ),
    Mutant(
        "pooled-and-written", "compiler/targets/accel/passes/unfold_input.py", "check ignored",
        "if uses[data] == uses[conv] == 1:", "if uses[conv] == 1:",
        ("tests/compiler/targets/accel/passes/test_unfold_input.py",),
    ),
    Mutant(
        "bus-of-others-for-nothing", "compiler/targets/accel/cost/tile_costs.py", "wrong sign",
        "+ BUS_CYCLE_WORTH * works.traffic", "- BUS_CYCLE_WORTH * works.traffic",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    Mutant(
        "cut-load-stride-without-its-unit", "compiler/targets/accel/stream/stream.py", "address off by a factor",
        "(rows, columns * units), (stride * units, 1)", "(rows, columns * units), (stride, 1)",
        ("tests/compiler/targets/accel/stream/test_split_loads.py",),
    ),
    Mutant(
        "ring-head-stays", "compiler/targets/accel/stream/scratchpads.py", "forgotten part",
        "self._heads[zone] = start + entries", "self._heads.setdefault(zone, start + entries)",
        ("tests/compiler/targets/accel/test_placement.py",),
    ),
    Mutant(
        "pipelined-latest-write-not-kept", "compiler/targets/accel/schedule/pipelined.py", "forgotten part",
        "max(used, now), max(written, now) if writes else written", "max(used, now), written",
        ("tests/compiler/targets/accel/schedule/test_pipelined.py",),
    ),
    Mutant(
        "tokens-wait-takes-the-youngest", "compiler/targets/accel/stream/tokens.py", "swapped operands",
        "range(pair * (depth + 1), pair * (depth + 1) + held[pair])", "range(0)", TOKENS,
    ),
    Mutant(
        "early-past-all-but-the-last", "compiler/targets/accel/stream/issue_early.py", "forgotten part",
        "place = max(place, places[earlier[pair]])", "place = max(wished[position], places[earlier[pair]])",
        ("tests/compiler/targets/accel/stream/test_conflicts.py",),
    ),
    Mutant(
        "reads-of-loads-in-the-old-order", "compiler/targets/accel/stream/conflicts.py", "forgotten part",
        "Conflicts(self.engines[order], (places[earlier], places[later]), dram)",
        "Conflicts(self.engines[order], tuple(places[each] for each in self.pairs), replace(dram, sets=dram.sets[:0]))",
        ("tests/compiler/targets/accel/stream/test_conflicts.py",),
    ),
    Mutant(
        "depthwise-rows-padded-without-dilation", "compiler/targets/accel/operators/depthwise_mode.py",
        "address off by a factor",
        "-kernel_h % TAP_ROWS * dilation_h,", "-kernel_h % TAP_ROWS,", DEPTHWISE,
    ),
    Mutant(
        "depthwise-columns-padded-without-dilation", "compiler/targets/accel/operators/depthwise_mode.py",
        "address off by a factor",
        "-kernel_w % TAP_COLUMNS * dilation_w", "-kernel_w % TAP_COLUMNS", DEPTHWISE,
    ),
    Mutant(
        "chain-reader-also-adds-its-operand", "compiler/targets/accel/passes/chain.py", "check ignored",
        "if other.args[0] != param or use_counts(reads.body)[param] != 1:", "if other.args[0] != param:",
        ("tests/compiler/targets/accel/passes/test_chain.py",),
    ),
    # Cores that start each other
    Mutant(
        "plan-circles-are-not-seen", "hw/relay_plan.py", "dropped condition",
        "if distances[core][core] == 0]", "if distances[core][core] == 0 and core in plan.after[core]]", PLANS,
    ),
    Mutant(
        "plan-barrier-without-order", "hw/relay_plan.py", "missing order",
        "(frozenset(range(cores)),) * cores)", "(frozenset(),) * cores)", PLANS,
    ),
    Mutant(
        "plan-one-window-too-few", "hw/relay_plan.py", "off by one",
        "distance > plan.slots:", "distance > plan.slots + 1:", PLANS,
    ),
    Mutant(
        "plan-cores-in-one-window", "hw/relay_plan.py", "wrong test",
        "if 0 not in (distances[first][second], distances[second][first]):",
        "if None in (distances[first][second], distances[second][first]):", PLANS,
    ),
    # What instructions of the core share
    Mutant(
        "written-memory-taken-for-constants", "compiler/targets/accel/stream/constants.py", "check ignored",
        "access[meets & ~dram.writes[access]]", "access[meets & dram.writes[access]]", STREAM,
    ),
    Mutant(
        "results-forgotten-although-read", "compiler/targets/accel/stream/constants.py", "check ignored",
        "if not len(needed) and (", "if (", STREAM,
    ),
    # Loops and expressions
    Mutant(
        "room-given-back-but-counted", "compiler/targets/accel/stream/scratchpads.py", "count not kept",
        "        self._used -= stop - begin\n", "",
        ("tests/compiler/targets/accel/test_placement.py",),
    ),
    Mutant(
        "engines-in-turn-but-for-the-first", "compiler/targets/accel/stream/tokens.py", "condition turned around",
        "engines[:-1] != engines[1:]", "engines[:-1] > engines[1:]",
        ("tests/compiler/targets/accel/stream/test_latency_hiding.py",),
    ),
    Mutant(
        "fixed-places-that-move-on", "compiler/targets/accel/stream/scratchpads.py", "check ignored",
        "        if self.turns:\n", "        if True:\n",
        ("tests/compiler/targets/accel/stream/test_latency_hiding.py",),
    ),
    Mutant(
        "chains-against-the-option", "compiler/targets/accel/target.py", "option ignored",
        "options.chains and core.inp_takes_results", "core.inp_takes_results",
        ("tests/compiler/targets/accel/stream/test_latency_hiding.py",),
    ),
    Mutant(
        "threads-load-the-same", "compiler/targets/accel/walk/emit.py", "case left out",
        "self.stream.shares and len(contexts) > 1", "self.stream.shares and len(contexts) > 9",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    Mutant(
        "threads-without-rings-share", "compiler/targets/accel/walk/emit.py", "check ignored",
        "self.stream.shares and len(contexts) > 1", "len(contexts) > 1",
        ("tests/compiler/targets/accel/stream/test_latency_hiding.py",),
    ),
    Mutant(
        "threads-share-what-differs", "compiler/targets/accel/walk/emit.py", "check ignored",
        "any(free_vars(each) & threads for each in used)", "any(free_vars(each) - free_vars(each) for each in used)",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    Mutant(
        "small-loads-cost-nothing", "compiler/targets/accel/cost/tile_costs.py", "cost forgotten",
        "(cycles + LOAD_OVERHEAD) * buffer.loads", "cycles * buffer.loads",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    Mutant(
        "shared-loads-cost-a-load-a-thread", "compiler/targets/accel/cost/tile_costs.py", "cost counted twice",
        "np.where(own, self.tiles, turns)", "np.where(own, self.tiles, self.tiles)",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    Mutant(
        "parts-of-products-read-one-place", "compiler/targets/accel/stream/split_products.py", "stride left out",
        "src=gemm.src + to_src", "src=gemm.src", ("tests/compiler/targets/accel/stream/test_split_products.py",),
    ),
    Mutant(
        "last-products-cut-without-their-loop", "compiler/targets/accel/stream/split_end.py", "forgotten part",
        "[_loop(product, size, whole), *product.parts(whole, size)]", "[*product.parts(whole, size)]",
        ("tests/compiler/targets/accel/stream/test_split_end.py",),
    ),
    Mutant(
        "last-products-cut-with-others-weights", "compiler/targets/accel/stream/split_end.py", "check ignored",
        "load.index == product.gemm.wgt and ", "", ("tests/compiler/targets/accel/stream/test_split_end.py",),
    ),
    Mutant(
        "products-cut-before-the-last", "compiler/targets/accel/stream/split_end.py", "check ignored",
        "place = last_of(rows, Opcode.GEMM)",
        "place = next((each for each in reversed(range(len(rows))) if product_at(stream, each)), -1)",
        ("tests/compiler/targets/accel/stream/test_split_end.py",),
    ),
    Mutant(
        "last-products-of-unequal-parts-without-their-loop", "compiler/targets/accel/stream/split_end.py",
        "forgotten part", "if count % size:", "if False:",
        ("tests/compiler/targets/accel/stream/test_split_end.py",),
    ),
    Mutant(
        "last-results-by-others-factors", "compiler/targets/accel/stream/split_results.py", "stride left out",
        "first * to_b)", "0)", ("tests/compiler/targets/accel/stream/test_split_results.py",),
    ),
    Mutant(
        "last-results-stored-from-one-place", "compiler/targets/accel/stream/split_results.py", "stride left out",
        "index=store.index + first", "index=store.index",
        ("tests/compiler/targets/accel/stream/test_split_results.py",),
    ),
    Mutant(
        "last-results-of-sums-in-any-order", "compiler/targets/accel/stream/split_results.py", "check ignored",
        "cuts if (np.diff(needs) >= 0).all() else []", "cuts",
        ("tests/compiler/targets/accel/stream/test_split_results.py",),
    ),
    Mutant(
        "last-results-in-rows-that-are-no-rows", "compiler/targets/accel/stream/split_results.py", "check ignored",
        "return of_row == 0 and ", "return ", ("tests/compiler/targets/accel/stream/test_split_results.py",),
    ),
    Mutant(
        "products-wait-for-all-readers", "compiler/targets/accel/stream/split_products.py", "case left out",
        "taken | given_back & products.zero > 0", "taken > 0",
        ("tests/compiler/targets/accel/stream/test_split_products.py",),
    ),
    Mutant(
        "parts-of-loads-pad-below", "compiler/targets/accel/stream/split_loads.py", "check ignored",
        "load.pad_bottom if stop == end else 0", "load.pad_bottom",
        ("tests/compiler/targets/accel/stream/test_split_loads.py",),
    ),
    Mutant(
        "parts-of-rows-with-padding-above", "compiler/targets/accel/stream/split_loads.py", "forgotten case",
        "count > 1, (top | bottom) > 0", "count > 1, bottom > 0",
        ("tests/compiler/targets/accel/stream/test_split_loads.py",),
    ),
    Mutant(
        "parts-of-loads-between-addresses", "compiler/targets/accel/stream/split_loads.py", "check ignored",
        "cut * apart % config.granule_bytes == 0", "cut * apart >= 0",
        ("tests/compiler/targets/accel/stream/test_split_loads.py",),
    ),
    Mutant(
        "checker-of-small-matrices-touches-nothing", "compiler/targets/accel/check.py", "missing hazard check",
        "shape = ((reach, 1), (1, 0))", "pass",
        ("tests/compiler/targets/accel/test_check.py",),
    ),
    Mutant(
        "proof-of-small-matrices-ends-early", "compiler/targets/accel/check_at_once.py", "rounding",
        "reach = granules_reached(config, rows, columns, stride, size)",
        "reach = ((rows - 1) * stride + columns) * (size // granule)", AT_ONCE,
    ),
    Mutant(
        "spilled-results-cost-nothing", "compiler/targets/accel/cost/tile_costs.py", "cost left out",
        "spilled: Array = results > room * epilogue", "spilled: Array = results < 0 * epilogue",
        ("tests/compiler/targets/accel/cost/test_tile_costs.py",),
    ),
    # Programs of the core
    Mutant(
        "checker-misses-writes-after-reads", "compiler/targets/accel/check.py", "missing hazard check",
        "or other == engine or not (write or wrote):", "or other == engine or not wrote:",
    ),
    Mutant(
        "checker-misses-races-in-inp", "compiler/targets/accel/check.py", "missing hazard check",
        "self.touch(number, instruction.target.memory, instruction.dst",
        "self.touch(number, Memory.OUT if instruction.target else Memory.ACC, instruction.dst",
    ),
    Mutant(
        "checker-sends-tomorrow's-clock", "compiler/targets/accel/check.py", "vector clock",
        "tokens.append(state.clock.copy())", "tokens.append(state.clock)",
    ),
    Mutant(
        "proof-without-reads-before-writes", "compiler/targets/accel/check_at_once.py", "missing hazard check",
        "written > clock or (write[access] and read > clock)", "written > clock", AT_ONCE,
    ),
    Mutant(
        "proof-without-writes-before-accesses", "compiler/targets/accel/check_at_once.py", "missing hazard check",
        "written > clock or (", "(", AT_ONCE,
    ),
    Mutant(
        "proof-that-forgets-what-was-written", "compiler/targets/accel/check_at_once.py", "forgotten part",
        "past[first + write[access] * ENGINES + engine] =", "past[first + engine] =", AT_ONCE,
    ),
    Mutant(
        "proof-with-the-clock-of-the-end", "compiler/targets/accel/check_at_once.py", "vector clock",
        "now[own + engine] = counts[number]", "now[own + engine] = counts[length - 1]", AT_ONCE,
    ),
    Mutant(
        "proof-of-loops-set-later", "compiler/targets/accel/check_at_once.py", "off by one",
        "computing.numbers) - 1", "computing.numbers)", AT_ONCE,
    ),
    Mutant(
        "fold-pads-swapped", "compiler/targets/accel/walk/fold.py", "swapped operands",
        "left, right = columns.low, columns.extent - columns.high",
        "right, left = columns.low, columns.extent - columns.high",
        ("tests/compiler/targets/accel/walk/test_fold.py",),
    ),
)  # fmt: skip
