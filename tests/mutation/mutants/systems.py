"""Faults in what several cores share: plans of windows and constants, and layers that are split."""

from __future__ import annotations

from .mutant import Mutant

PLAN = ("tests/runtime/test_system_module.py", "tests/runtime/test_profile_system.py")
SHARED = ("tests/runtime/test_profile_shared.py",)
SPLIT = ("tests/compiler/targets/accel/link/test_split.py",)
STAGES = ("tests/compiler/targets/accel/link/test_stages.py",)
ITEMS = ("tests/runtime/test_split_module.py",)
COMMAND = ("tests/cli/test_system.py",)
WAVES = ("tests/sim/test_system_waves.py",)
BRANCHES = ("tests/compiler/targets/accel/link/test_branches.py",)
UNLIKE = ("tests/compiler/targets/accel/passes/test_unlike_cores.py",)

MUTANTS = (
    Mutant(
        "unlike-cores-leave-layers-to-the-host", "compiler/targets/accel/passes/unlike_cores.py", "dropped condition",
        "(left - few, cycles) for", "(0, cycles) for", UNLIKE,
    ),
    Mutant(
        "unlike-cores-cut-as-if-each-had-a-port", "compiler/targets/accel/passes/unlike_cores.py", "forgotten part",
        "min((cut(self.ports), cut(())), key=whole) if self.ports else cut(())", "cut(())", UNLIKE,
    ),
    Mutant(
        "system-waves-begin-a-cycle-late", "sim/system_rtl.py", "off by one",
        "START_CYCLES = 21", "START_CYCLES = 22", WAVES,
    ),
    Mutant(
        "system-waves-end-with-the-first-run", "sim/system_rtl.py", "forgotten part",
        "more = number < runs - 1", "more = False", WAVES,
    ),
    Mutant(
        "system-waves-of-the-first-core-alone", "sim/waves.py", "wrong index",
        "core_{number}.module", "core_0.module", ("tests/runtime/test_system_waves.py",),
    ),
    Mutant(
        "unlike-cores-always-by-the-host", "compiler/targets/accel/passes/unlike_cores.py", "dropped effect",
        "_where_it_lies(new) or _of_stage(new, number)", "_of_stage(new, number)", UNLIKE,
    ),
    Mutant(
        "unlike-cores-programs-of-the-first", "compiler/targets/accel/link/link.py", "wrong index",
        "linkers[phase.stage if self.cores else 0]", "linkers[0]", UNLIKE,
    ),
    Mutant(
        "plan-constants-of-each-part", "runtime/system_module.py", "wrong address",
        'int(np.searchsorted(starts, byte, "right")) == int(np.searchsorted(ends, byte, "right"))', "True", PLAN,
    ),
    Mutant(
        "plan-tensor-behind-constants-is-shared", "runtime/system_module.py", "bound off by one",
        'int(np.searchsorted(ends, byte, "right"))', 'int(np.searchsorted(ends, byte, "left"))', PLAN,
    ),
    Mutant(
        "plan-last-page-not-shared", "runtime/system_module.py", "bound off by one",
        "-(-stop // PAGE_BYTES) * PAGE_BYTES)", "stop // PAGE_BYTES * PAGE_BYTES)", PLAN,
    ),
    Mutant(
        "plan-all-cores-in-the-first-part", "runtime/system_module.py", "wrong address",
        "in_part(model, number * self.device.pitch) if shared", "in_part(model, 0) if shared", PLAN,
    ),
    Mutant(
        "plan-second-round-begins-again", "runtime/system_module.py", "wrong order",
        "self._round(items[first : first + len(self._modules)])", "self._round(items[: len(self._modules)])", PLAN,
    ),
    Mutant(
        "plan-alone-of-one-item", "runtime/system_module.py", "forgotten part",
        "alone=items * cycles", "alone=cycles", PLAN,
    ),
    Mutant(
        "plan-windows-overlap", "runtime/system_device.py", "overlap",
        "Window(self, number * self.pitch, ", "Window(self, number * self.pitch // 2, ", PLAN,
    ),
    Mutant(
        "plan-profile-in-one-part", "runtime/profile_system.py", "wrong address",
        "window_start=0 if shared else part)", "window_start=0)", PLAN,
    ),
    Mutant(
        "plan-profile-of-the-first-copy", "runtime/profile_system.py", "wrong address",
        "step.program_offset + (part if shared else 0)", "step.program_offset", PLAN,
    ),
    Mutant(
        "shared-profile-all-items-in-one-window", "runtime/profile_shared.py", "wrong address",
        "return item % window_count(model, config) * window_pitch", "return 0 * window_pitch", SHARED,
    ),
    Mutant(
        "shared-profile-turns-begin-again", "runtime/profile_shared.py", "wrong index",
        "(first[0] + number, first[1])", "(number, first[1])", SHARED,
    ),
    Mutant(
        "shared-profile-stretches-at-once", "runtime/profile_shared.py", "wrong order",
        "self.now += done.cycles or 0", "self.now = done.cycles or 0", SHARED,
    ),
    Mutant(
        "shared-profile-alone-on-core-0", "runtime/profile_shared.py", "wrong index",
        "alone[step.core if model.shared_by > 1 else step.stage]", "alone[step.core]", SHARED,
    ),
    Mutant(
        "shared-trace-arrows-of-the-first-run", "runtime/trace.py", "wrong index",
        "(process << 20 | number) << 24 | place", "process << 44 | place", SHARED,
    ),
    Mutant(
        "shared-trace-buses-of-each-run-at-once", "runtime/profile_shared.py", "wrong order",
        "self.bus[port].append((uses, self.now))", "self.bus[port].append((uses, 0))", SHARED,
    ),
    Mutant(
        "shared-profile-dram-of-the-last-program", "runtime/profile_shared.py", "wrong accumulator",
        "(self.dram_use or DramUse()) + dram", "dram", SHARED,
    ),
    Mutant(
        "split-parts-of-the-first-group", "compiler/targets/accel/operators/share.py", "wrong index",
        "core // self.groups, core % self.groups", "core // self.groups, 0", SPLIT,
    ),
    Mutant(
        "split-by-the-slowest-cut", "compiler/targets/accel/link/split.py", "swapped condition",
        "if cut is WHOLE or cycles < least:", "if cut is WHOLE or cycles > least:", SPLIT,
    ),
    Mutant(
        "split-layers-of-one-core-wait-for-all", "compiler/targets/accel/link/split.py", "dropped condition",
        "if all(cuts[each] == WHOLE for each in (*turn, node)):", "if False:", SPLIT,
    ),
    Mutant(
        "branches-share-bytes-as-if-one-by-one", "compiler/targets/accel/link/link.py", "forgotten part",
        "reuse=not self.job.keep, at_once=at_once)", "reuse=not self.job.keep)", BRANCHES,
    ),
    Mutant(
        "branches-torn-apart", "compiler/targets/accel/link/branches.py", "dropped effect",
        "owner.update(dict.fromkeys(other, branch))", "pass", BRANCHES,
    ),
    Mutant(
        "branches-that-never-join", "compiler/targets/accel/link/branches.py", "dropped condition",
        "if count == 1:", "if count == 0:", BRANCHES,
    ),
    Mutant(
        "stretches-of-the-calls-before", "compiler/targets/accel/link/branches.py", "dropped condition",
        "for other in self._needed[at] if other >= first}", "for other in self._needed[at]}", BRANCHES,
    ),
    Mutant(
        "entrances-by-the-first-call-needed", "compiler/targets/accel/link/branches.py", "wrong index",
        "self._behind[max(needed, default=-1) + 1]", "self._behind[min(needed, default=-1) + 1]", BRANCHES,
    ),
    Mutant(
        "branches-before-what-they-need", "compiler/targets/accel/link/branches.py", "dropped condition",
        "all(other in small or other not in waiting for other in needs(node))", "True", BRANCHES,
    ),
    Mutant(
        "branches-as-estimated", "compiler/targets/accel/link/branches.py", "check ignored",
        "best = min([one_by_one, *tried], key=cycles)", "best = min([one_by_one, *tried], key=estimate)", BRANCHES,
    ),
    Mutant(
        "branches-all-on-the-first-core", "compiler/targets/accel/link/branches.py", "wrong index",
        "core = loads.index(min(loads))", "core = 0", BRANCHES,
    ),
    Mutant(
        "branches-where-reads-are-shared", "cli/system_options.py", "dropped condition",
        'if system.shared_reads and parts["split"] > 1:', "if False:", COMMAND,
    ),
    Mutant(
        "split-without-the-ports-of-its-system", "cli/system_options.py", "forgotten part",
        'max(parts.values()) > 1', "False", COMMAND,
    ),
    Mutant(
        "stages-cut-as-if-each-had-a-port", "compiler/targets/accel/link/link.py", "forgotten part",
        "alone, together if self.ports else None)", "alone)", STAGES,
    ),
    Mutant(
        "stages-of-all-cores-on-one-port", "compiler/targets/accel/link/split.py", "wrong index",
        "[used.index(ports[core]) for core in programs]", "[0 for _ in programs]", STAGES,
    ),
    Mutant(
        "stages-take-their-last-program", "compiler/targets/accel/link/split.py", "wrong accumulator",
        "cycles[core] += taken", "cycles[core] = taken", STAGES,
    ),
    Mutant(
        "stages-all-like-the-first", "compiler/targets/accel/link/stages.py", "shared state",
        "[[*costs] for _ in range(count)]", "[costs] * count", STAGES,
    ),
    Mutant(
        "split-reads-met-by-nobody", "compiler/targets/accel/check_turn.py", "check ignored",
        '(first, "read", second, reads.common(others_writes)),', "", SPLIT,
    ),
    Mutant(
        "split-rows-without-their-stride", "compiler/targets/accel/check_turn.py", "wrong address",
        'row * (fields["stride"] * size)[which]', "row * size[which]", SPLIT,
    ),
    Mutant(
        "split-turn-ends-without-its-last-columns", "compiler/targets/accel/check_turn.py", "bound off by one",
        '(fields["columns"] * size)[which])', '((fields["columns"] - 1) * size)[which])', SPLIT,
    ),
    Mutant(
        "split-item-without-the-host-at-its-end", "runtime/split_module.py", "forgotten part",
        "return stretches, tuple(host)", "return stretches, tuple(host[:0])", ITEMS,
    ),
    Mutant(
        "split-stretch-without-what-the-host-gives", "runtime/split_module.py", "dropped condition",
        "return bool(given or taken)", "return bool(taken)", ITEMS,
    ),
    Mutant(
        "split-stretch-without-what-the-host-takes", "runtime/split_module.py", "dropped condition",
        "return bool(given or taken)", "return bool(given)", ITEMS,
    ),
    Mutant(
        "split-latency-of-all-items", "runtime/split_module.py", "forgotten part",
        "return self.cycles // self._items if self._items else 0", "return self.cycles", ITEMS,
    ),
    Mutant(
        "split-window-left-spoiled", "runtime/split_module.py", "forgotten part",
        "            except BaseException:\n                write_model(self.model, self.device.window(0))\n",
        "            except BaseException:\n", ITEMS,
    ),
)  # fmt: skip
