"""Faults in exploration: spaces, points, workers, fronts, figures of area and energy."""

from __future__ import annotations

from .mutant import Mutant

SPACE = ("tests/explore/test_space.py",)
STUDY = ("tests/explore/test_study.py",)
FRONT = ("tests/explore/test_front.py",)
WORKERS = ("tests/explore/test_workers.py",)
ENERGY = ("tests/explore/test_energy.py",)
AREA = ("tests/boards/test_area.py",)
PAGE = ("tests/explore/test_page.py",)
SYSTEMS = ("tests/explore/test_systems.py",)

MUTANTS = (
    Mutant(
        "front-keeps-equal-points", "explore/front.py", "bound",
        "np.all(values[kept] <= values[place], axis=1)", "np.all(values[kept] < values[place], axis=1)", FRONT,
    ),
    Mutant(
        "volume-of-the-first-slice-alone", "explore/front.py", "off by one",
        "_volume(values[order[: place + 1], :-1], limit[:-1])", "_volume(values[order[:1], :-1], limit[:-1])", FRONT,
    ),
    Mutant(
        "scratchpads-in-kib-of-another-entry", "explore/space.py", "forgotten part",
        "entry = any_depths.entry_bytes(memory)", "entry = CoreConfig().entry_bytes(memory)", SPACE,
    ),
    Mutant(
        "memory-always-as-fast-as-the-bus", "explore/space.py", "check ignored",
        "cores[0].bus_bytes if given == BUS else given", "cores[0].bus_bytes", SPACE,
    ),
    Mutant(
        "cycles-of-all-images", "explore/measure.py", "forgotten part",
        "return self.cycles / self.batch", "return self.cycles", STUDY,
    ),
    Mutant(
        "knobs-take-no-part-in-what-is-known", "explore/study.py", "check ignored",
        "if point_text(result.point) == point_text(knobs):", "if result.point:", STUDY,
    ),
    Mutant(
        "what-failed-counts-as-refused", "explore/study.py", "flag",
        "features={FAILED: not result.refused}", "features={FAILED: False}", STUDY,
    ),
    Mutant(
        "order-of-ends-instead-of-proposals", "explore/study.py", "order",
        "outcomes[text] = outcomes.pop(text, point)", "outcomes.setdefault(text, point)", STUDY,
    ),
    Mutant(
        "limit-of-cycles-ignored", "explore/outcome.py", "check ignored",
        'status: Status = "refused" if broken else "measured"', 'status: Status = "measured"', STUDY,
    ),
    Mutant(
        "part-is-full-at-all-of-it", "explore/outcome.py", "constant",
        "SHARE_LIMIT * getattr(part.resources, name), f", "getattr(part.resources, name), f", STUDY,
    ),
    Mutant(
        "samplers-propose-again", "explore/proposals.py", "check ignored",
        "if text in self._known:", "if text in found:", STUDY,
    ),
    Mutant(
        "a-job-whose-worker-died-is-lost", "explore/workers.py", "forgotten part",
        "waiting.append((number, everything[number]))", "pass", WORKERS,
    ),
    Mutant(
        "dead-workers-are-given-jobs", "explore/workers.py", "forgotten part",
        "self._workers.remove(worker)", "pass", WORKERS,
    ),
    Mutant(
        "accumulators-are-read-once", "explore/energy.py", "forgotten part",
        "entry_pj(config, Memory.WGT) + 2 * acc", "entry_pj(config, Memory.WGT) + acc", ENERGY,
    ),
    Mutant(
        "one-product-in-each-dsp", "boards/area.py", "constant",
        "config.macs_per_cycle // 2 + of_a_lane", "config.macs_per_cycle + of_a_lane", AREA,
    ),
    Mutant(
        "enables-cost-no-block-ram", "boards/area.py", "rounding",
        "bits // chunk * math.ceil(chunk / UNIT_BITS)", "math.ceil(bits / UNIT_BITS)", AREA,
    ),
    Mutant(
        "banks-of-acc-take-no-luts", "boards/area.py", "forgotten part",
        "data = bits * (banks + 4 * _mux_luts(banks))", "data = bits * (2 + 4 * _mux_luts(2))", AREA,
    ),
    Mutant(
        "data-may-end-its-script", "runtime/web_page.py", "check ignored",
        '.replace("<", "\\\\u003c")', "", PAGE,
    ),
    Mutant(
        "system-has-one-name-for-all-cores", "explore/system_space.py", "forgotten part",
        "names += [match[2]] * count", "names += [CORE] * count", SYSTEMS,
    ),
    Mutant(
        "system-own-ports-from-one", "explore/system_space.py", "off by one",
        "return tuple(range(count))", "return tuple(range(1, count + 1))", SYSTEMS,
    ),
    Mutant(
        "idle-axes-are-points", "explore/system_space.py", "check ignored",
        "if idle and assignment[axis] != values[0]:", "if False:", SYSTEMS,
    ),
    Mutant(
        "unlike-cores-share-reads", "explore/system_space.py", "check ignored",
        "or not self.alike)", "or False)", SYSTEMS,
    ),
    Mutant(
        "banks-of-a-point-forgotten", "explore/space.py", "forgotten part",
        "banks=None if banks == FLAT else parse_dram_kind(banks),", "banks=None,", SYSTEMS,
    ),
    Mutant(
        "placement-forgets-the-host", "explore/rounds.py", "forgotten part",
        "return left + sum(", "return 0 * left + sum(", SYSTEMS,
    ),
    Mutant(
        "placement-of-the-fastest-core-of-a-turn", "explore/rounds.py", "bound",
        "sum(max(cycles[number][core] for", "sum(min(cycles[number][core] for", SYSTEMS,
    ),
    Mutant(
        "second-turn-starts-at-once", "explore/rounds.py", "wrong state",
        "replace(found, started=begun)", "replace(found, started=0)", SYSTEMS,
    ),
    Mutant(
        "turn-ends-with-its-first-core", "explore/rounds.py", "bound",
        "begun += max(each.profile.cycles for", "begun += min(each.profile.cycles for", SYSTEMS,
    ),
    Mutant(
        "pictures-end-with-the-fastest-core", "explore/rounds.py", "sign",
        "key=lambda each: -each[1].profile.cycles", "key=lambda each: each[1].profile.cycles", SYSTEMS,
    ),
    Mutant(
        "all-cores-read-one-part-of-the-memory", "explore/rounds.py", "wrong address",
        "program_offset, window_start=part)", "program_offset)", SYSTEMS,
    ),
    Mutant(
        "a-rounds-second-program-starts-at-once", "explore/rounds.py", "forgotten event",
        "now += done.cycles or 0", "now += 0", SYSTEMS,
    ),
    Mutant(
        "other-networks-take-no-part-in-keys", "explore/measure.py", "forgotten part",
        'if design.system.split == "networks" else ""', 'if design.system.split == "" else ""', SYSTEMS,
    ),
    Mutant(
        "one-arbiter-for-all-ports", "explore/parts.py", "forgotten part",
        "for count in sharing if count > 1)", "for count in sharing[:1] if count > 1)", SYSTEMS,
    ),
    Mutant(
        "throughput-of-one-network", "explore/outcome.py", "forgotten part",
        "1e9 * sum(each.batch for each", "1e9 * max(each.batch for each", SYSTEMS,
    ),
    Mutant(
        "host-does-one-image-of-a-round", "explore/outcome.py", "forgotten part",
        "host_cycles(space, each) * each.batch for", "host_cycles(space, each) for", SYSTEMS,
    ),
    Mutant(
        "energy-of-the-first-core-alone", "explore/energy.py", "forgotten part",
        "in measure.parts:\n", "in measure.parts[:1]:\n", SYSTEMS,
    ),
)  # fmt: skip
