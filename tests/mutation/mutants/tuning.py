"""Faults in tuning: costs of tilings, the judge of layers, schedules of a processor's kernels."""

from __future__ import annotations

from .mutant import Mutant

COSTS = ("tests/compiler/targets/accel/cost/test_tile_costs.py",)
LAYERS = ("tests/tune/test_layers.py",)
CPU = ("tests/tune/test_cpu.py",)
SEARCH = ("tests/tune/test_search.py",)
PROVE = ("tests/tune/test_prove.py",)
BOUND = ("tests/compiler/targets/accel/cost/test_space.py",)
TUNED = ("tests/compiler/targets/accel/link/test_tuned.py",)
LEAST = ("tests/tune/test_least_cycles.py",)
STUDY = ("tests/explore/test_study.py",)

MUTANTS = (
    Mutant(
        "loads-at-every-loop", "compiler/targets/accel/cost/tile_costs.py", "forgotten part",
        "loads = np.where(home >= 0, self._times[home, self._each], 1)", "loads = self.tiles", COSTS,
    ),
    Mutant(
        "widest-tiles-alone", "compiler/targets/accel/cost/tile_costs.py", "off by one",
        "islice(_fitting(problem), WIDTHS_TRIED))", "islice(_fitting(problem), 1))", COSTS,
    ),
    Mutant(
        "parts-of-rows-lie-together", "compiler/targets/accel/cost/bursts.py", "case left out",
        "np.where(tiling.reduction < problem.reduction, tiling.reduction, np.inf)", "np.array(np.inf)", COSTS,
    ),
    Mutant(
        "rows-of-a-matrix-one-by-one", "compiler/targets/accel/schedule/tiling.py", "case left out",
        'return ("y", "cd", "no", "x") if self.images_are_rows else AXES', "return AXES", COSTS,
    ),
    Mutant(
        "no-narrower-tiles", "compiler/targets/accel/link/compile_kernel.py", "fall-back lost",
        "if afresh and problem.threads == 1 and not kernel.producers:", "if False:",
        ("tests/compiler/targets/accel/test_random_shapes.py",),
    ),
    Mutant(
        "layers-of-any-number-of-threads", "tune/layers.py", "check ignored",
        "(each for each in results if each.point == self._point)", "results", LAYERS,
    ),
    Mutant(
        "layers-of-any-memory", "tune/layers.py", "forgotten part",
        "*machine_texts(self.config, self.rate), judged_by()", "*machine_texts(self.config, DramRate()), judged_by()",
        LAYERS,
    ),
    Mutant(
        "first-of-the-ranking-for-the-nearest", "tune/search.py", "forgotten part",
        "return sorted(texts, key=apart)[:NEARBY]", "return list(texts[:NEARBY])", SEARCH,
    ),
    Mutant(
        "whole-reductions-as-portions", "compiler/targets/accel/cost/space.py", "check ignored",
        "cut - {0, problem.reduction}", "{*cut, problem.reduction} - {0}", SEARCH,
    ),
    Mutant(
        "reads-of-all-rows", "compiler/targets/accel/cost/space.py", "forgotten part",
        "* int(rows.sum() * columns.sum())", "* rows.size * columns.size", BOUND,
    ),
    Mutant(
        "bound-of-what-no-pooling-reads", "compiler/targets/accel/cost/space.py", "forgotten part",
        "    if reader.window is None:\n        return wanted\n",
        "    return np.ones(shape[2], np.bool_), np.ones(shape[3], np.bool_)\n", LEAST,
    ),
    Mutant(
        "records-count-as-bytes", "compiler/targets/accel/cost/space.py", "wrong size",
        "return nbytes // (records * config.wgt_bytes) * config.weight_record_bytes", "return nbytes", LEAST,
    ),
    Mutant(
        "nothing-is-loaded-ahead", "tune/least_cycles.py", "forgotten part",
        "outside[ENGINES.index(\"bus\")] += self._ahead", "outside[ENGINES.index(\"bus\")] += 0 * self._ahead", LEAST,
    ),
    Mutant(
        "results-of-chains-are-stored", "tune/least_cycles.py", "check ignored",
        "0 if node in self.joined else least.written", "least.written", LEAST,
    ),
    Mutant(
        "bound-of-the-first-form", "tune/least_cycles.py", "forgotten part",
        "(self.weights @ times.T).min(axis=1)", "(self.weights @ times.T)[:, 0]", LEAST,
    ),
    Mutant(
        "programs-do-not-add-up", "tune/least_cycles.py", "forgotten part",
        "for program in self.programs for each", "for program in self.programs[:1] for each", LEAST,
    ),
    Mutant(
        "bound-without-the-vector-engine", "compiler/targets/accel/cost/space.py", "forgotten part",
        "least.array, least.vector, bus_cycles(problem, least)", "least.array, bus_cycles(problem, least)",
        BOUND,
    ),
    Mutant(
        "bound-of-a-tiling-that-reads-and-writes-on-one-bus", "compiler/targets/accel/cost/least_tiles.py", "bound",
        "np.maximum((read + written) / problem.rate.bytes_per_cycle,", "np.maximum((read + written) / bus,", PROVE,
    ),
    Mutant(
        "bound-of-a-tiling-whose-padding-is-loaded", "compiler/targets/accel/cost/least_tiles.py", "bound",
        "len(range(begin, min(stop, extent), step))", "len(range(start, stop, step))", PROVE,
    ),
    Mutant(
        "points-left-out-that-are-below-the-best", "tune/prove.py", "check ignored",
        "            if bound < self.best:", "            if 1.1 * bound < self.best:", PROVE,
    ),
    Mutant(
        "first-product-waits-for-one-group", "compiler/targets/accel/cost/least_tiles.py", "bound",
        "waited = np.where(every & (products == 1), 1, tile)", "waited = np.where(every, 1, 1)", PROVE,
    ),
    Mutant(
        "last-product-of-the-first-tile-begins-at-once", "compiler/targets/accel/cost/least_tiles.py", "bound",
        "np.maximum(first, whole - done * problem.bytes_per_cycle)", "np.maximum(first, 0 * whole)", PROVE,
    ),
    Mutant(
        "choice-behind-another-layer-is-judged", "tune/prove.py", "wrong part",
        "in self.task.alone():", "in self.task.settings():", PROVE,
    ),
    Mutant(
        "proof-ends-where-the-best-is-close", "tune/prove.py", "check ignored",
        "judged = self.default if self.default <= (1 + share) * self.best else self.best", "judged = self.best", PROVE,
    ),
    Mutant(
        "regions-of-one-thread", "tune/tasks.py", "forgotten part",
        "    for threads in THREADS:\n        threaded = replace(problem, threads=threads)\n        tiles",
        "    for threads in (1,):\n        threaded = replace(problem, threads=threads)\n        tiles", PROVE,
    ),
    Mutant(
        "form-of-the-record-not-taken", "compiler/targets/accel/link/slices.py", "forgotten part",
        "config, found.setting) if found is not None else None", "config, found.setting) if False else None", TUNED,
    ),
    Mutant(
        "forms-that-the-core-lacks", "compiler/targets/accel/link/slices.py", "check ignored",
        "0 < setting.on_array < groups:", "True:", TUNED,
    ),
    Mutant(
        "chains-of-any-order", "compiler/targets/accel/schedule/tiling.py", "check ignored",
        'tuple(order for order in LOOP_ORDERS if order.endswith("c"))', "tuple(LOOP_ORDERS)", TUNED,
    ),
    Mutant(
        "front-made-exact-once", "explore/study.py", "off by one",
        "while inexact := study.inexact():", "if inexact := study.inexact():", STUDY,
    ),
    Mutant(
        "best-of-the-search-is-believed", "tune/cpu_search.py", "check ignored",
        "if median < min(share, WORTH) and three_quarters < 1:", "if median < share:", CPU,
    ),
    Mutant(
        "former-winner-stays", "tune/cpu_search.py", "check ignored",
        "if state.winner in task.points and state.winner != chosen:", "if not state.winner:", CPU,
    ),
    Mutant(
        "schedules-outside-of-the-space", "compiler/targets/cpu/tuned.py", "check ignored",
        "if all(each.answer != answer for", "if not all(True for", CPU,
    ),
    Mutant(
        "schedules-for-any-number-of-threads", "compiler/targets/cpu/tuned.py", "forgotten part",
        'f"{threads} threads, confirmed"', '"confirmed"', CPU,
    ),
    Mutant(
        "always-in-the-same-order", "tune/cpu_kernels.py", "order",
        "if number % 2 == 0 else", "if number >= 0 else", CPU,
    ),
    Mutant(
        "engines-never-hold-each-other-up", "compiler/targets/accel/cost/work.py", "cost forgotten",
        "total = total + share", "total = np.maximum(total, share)",
        ("tests/compiler/targets/accel/cost/test_work.py",),
    ),
    Mutant(
        "weights-without-room", "tune/layers.py", "check ignored", "free = min(free - ahead + idle, room)",
        "free = free - ahead + idle", LAYERS,
    ),
    Mutant(
        "time-of-the-bus-used-twice", "tune/layers.py", "forgotten part", "free = min(free - ahead + idle, room)",
        "free = min(free + idle, room)", LAYERS,
    ),
)  # fmt: skip
