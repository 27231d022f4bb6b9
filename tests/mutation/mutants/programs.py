"""Faults in what makes programs of the core: how layers are cut, the order of instructions, tokens."""

from __future__ import annotations

from .mutant import Mutant

PLANS = ("tests/hw/test_relay_plan.py",)

TOKENS = ("tests/compiler/targets/accel/stream/test_tokens.py",)
DEPTHWISE = ("tests/compiler/targets/accel/operators/test_depthwise_mode.py",)
PREFETCH = ("tests/compiler/targets/accel/stream/test_prefetch.py",)

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
        "max(moment, table.ends[position] + QUEUED)", "moment", PREFETCH,
    ),
    Mutant(
        "prefetch-in-time-that-others-use", "compiler/targets/accel/stream/prefetch.py", "check ignored",
        "            moment = min(moment, end)\n", "", PREFETCH,
    ),
    Mutant(
        "prefetch-one-after-the-other-forgotten", "compiler/targets/accel/stream/prefetch.py", "forgotten part",
        "moment = min(moment, table.wanted.get(position, inf))", "moment = table.wanted.get(position, inf)", PREFETCH,
    ),
    Mutant(
        "prefetch-for-the-bus-alone", "compiler/targets/accel/stream/prefetch.py", "forgotten part",
        "rate.for_bus(config)", "config.bus_bytes", PREFETCH,
    ),
    Mutant(
        "prefetch-parameters-for-the-array", "compiler/targets/accel/stream/prefetch.py", "swapped operands",
        "Engine.GEMM if writes[0].memory is Memory.WGT else Engine.VECTOR", "Engine.GEMM", PREFETCH,
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
)  # fmt: skip
