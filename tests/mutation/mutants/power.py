"""Faults in power: cells of a liberty file, netlists, activity, energies, samples of cycles."""

from __future__ import annotations

from .mutant import Mutant

LIBERTY = ("tests/power/test_liberty.py",)
ACTIVITY = ("tests/power/test_activity.py",)
ENERGIES = ("tests/power/test_energies.py",)
MEASURE = ("tests/power/test_measure.py",)
RUN = ("tests/power/test_run.py",)

MUTANTS = (
    Mutant(
        "ideal-input-transition", "power/liberty.py", "off by one",
        "values[:, min(1, values.shape[1] - 1)]", "values[:, 0]", LIBERTY,
    ),
    Mutant(
        "energies-per-volt", "power/liberty.py", "forgotten part",
        '_unit(library.text("voltage_unit", "1V")) ** 2', '_unit(library.text("voltage_unit", "1V"))', LIBERTY,
    ),
    Mutant(
        "rise-alone", "power/liberty.py", "forgotten part",
        '("rise_power", "fall_power")', '("rise_power",)', LIBERTY,
    ),
    Mutant(
        "leakage-of-the-first-state", "power/liberty.py", "forgotten part",
        "float(np.mean(leaks)) if leaks else 0.0", "leaks[0] if leaks else 0.0", LIBERTY,
    ),
    Mutant(
        "exclusive-or-after-and", "power/liberty.py", "order",
        'return joined("*&", np.bitwise_and, exclusive)', 'return joined("*&", np.bitwise_and, single)', LIBERTY,
    ),
    Mutant(
        "netlists-of-any-library", "power/cell_modules.py", "stale result",
        "module.identity, SCRIPT, cells, versions, FORM", "module.identity, SCRIPT, versions, FORM", ACTIVITY,
    ),
    Mutant(
        "port-drives-what-drives-it", "power/flat.py", "order",
        "same.append((own[bit], net, number))", "same.append((net, own[bit], number))", ACTIVITY,
    ),
    Mutant(
        "pairs-across-the-last-cycle", "power/activity.py", "off by one",
        "< cycles - 1, bitorder", "< cycles, bitorder", ACTIVITY,
    ),
    Mutant(
        "words-of-cycles-apart", "power/activity.py", "forgotten part",
        "after[..., :-1] |= values[..., 1:] << np.uint64(63)", "pass", ACTIVITY,
    ),
    Mutant(
        "registers-give-no-inverse", "power/activity.py", "flag",
        'inverted = function.strip("() ") == cell.state[1]', "inverted = False", ENERGIES,
    ),
    Mutant(
        "reads-without-a-clock-in-each-cycle", "power/activity.py", "check ignored",
        "np.bitwise_or.reduce(changed[data]) if enable == ONE else", "", ENERGIES,
    ),
    Mutant(
        "changes-charge-nothing", "power/estimate.py", "forgotten part",
        "table.at(load[own]) + charge * load[own]", "table.at(load[own])", ACTIVITY,
    ),
    Mutant(
        "clock-goes-up-alone", "power/estimate.py", "constant",
        "counts * 2 * once", "counts * once", ACTIVITY,
    ),
    Mutant(
        "held-by-the-last-name", "power/estimate.py", "order",
        "np.maximum(still[nets], pairs - cycles)", "pairs - cycles", ENERGIES,
    ),
    Mutant(
        "leakage-of-one-cell-a-kind", "power/estimate.py", "forgotten part",
        "counts * cell.leakage_w", "cell.leakage_w * (counts > 0)", ENERGIES,
    ),
    Mutant(
        "windows-leave-the-end-out", "power/measure.py", "off by one",
        "max(1, count - 1)", "count", MEASURE,
    ),
    Mutant(
        "cycles-for-pairs", "power/measure.py", "off by one",
        "layer.cycles / pairs)", "layer.cycles / sum(stop - first for first, stop in windows))", MEASURE,
    ),
    Mutant(
        "deviation-of-one-window", "power/measure.py", "forgotten part",
        "rates.std(ddof=1) / np.sqrt(len(rates))", "rates.std(ddof=1)", MEASURE,
    ),
    Mutant(
        "every-layer-from-the-first-cycle", "power/measure.py", "forgotten part",
        "start, place = place, place + stop - first", "start, place = 0, place + stop - first", RUN,
    ),
    Mutant(
        "arrays-of-one-entry-unknown", "power/measure.py", "check ignored",
        'name.removesuffix("[0]")', "name", RUN,
    ),
    Mutant(
        "layers-without-leakage", "power/report.py", "forgotten part",
        "each.picojoules * 1e-3 + leakage * seconds * 1e9", "each.picojoules * 1e-3", MEASURE,
    ),
)  # fmt: skip
