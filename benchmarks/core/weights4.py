"""Convolutional networks with weights of 4 bits where layers wait for them: cycles, and the accuracy that is left.

`weft.quantise.four_bits_that_pay` chooses the weights by the timing model's cycles of the whole network. Those of
MobileNetV1, MobileNetV2 and ResNet-50 come from a seed (`examples/models`), so noise says nothing there and bounds
nothing. Beside the cycles stand those of the same network with weights of 8 bits, and what is wanted. ResNet-50 is
compiled for `wide`, whose array has 1,024 multipliers, with its memory and with one of half the rate.

`--accuracy` trains the two networks of `examples/stations` on the way, for as many epochs, and counts what they read
right of 4,000 images: in floats, in 8 bits, with 4 bits in the weights that pay on the core, and in all that can have
them. Exit status 1 where a target is missed.

    python benchmarks/core/weights4.py --json weights4.json
    python benchmarks/core/weights4.py mobilenet_v2
    python benchmarks/core/weights4.py --accuracy 14
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import weft
from weft.compiler.graph import Array, Module
from weft.compiler.model import CompiledModel, OpenModel
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.progress import progress
from weft.quantise import Paying
from weft.runtime.device import memory_of
from weft.runtime.profile_whatif import predicted_cycles

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build
from examples.models.images import images
from examples.stations import depthwise, residual
from examples.stations.networks import Body, inference_form
from examples.stations.networks import depthwise as depthwise_network
from examples.stations.networks import residual as residual_network
from examples.stations.shapes import shapes
from examples.stations.stations import (
    CALIBRATION_BATCH,
    CALIBRATION_SEED,
    TEST_SEED,
    Settings,
    on_processor,
    train_in_floats,
)

GROUP = 64
NO_LIMIT = -1000.0
"""Decibels that any noise lies below the results."""


@dataclass(frozen=True)
class Case:
    """``wanted``: cycles at most, or the share of the array's multiplications that are useful at least. ``half``: what
    half the DRAM rate may add, of the cycles."""

    core: CoreConfig
    cycles: int = 0
    useful: float = 0.0
    half: float = 0.0


CASES = {
    "mobilenet_v1": Case(PYNQ, cycles=2_500_000),
    "mobilenet_v2": Case(PYNQ, cycles=1_540_000),
    "resnet50": Case(WIDE, useful=0.91, half=0.06),
}
TRAINED: dict[str, tuple[Body, Settings]] = {
    "residual": (residual_network, residual.SETTINGS),
    "depthwise": (depthwise_network, depthwise.SETTINGS),
}
MOST_LOST, TEST_IMAGES = 0.005, 4000


def with_four_bits(core: CoreConfig, group: int = GROUP) -> CoreConfig:
    return replace(core, name=f"{core.name}, groups of {group}", weight_group=group)


def compiled_for(core: CoreConfig, rate: DramRate, module: Module) -> CompiledModel:
    model = weft.compile(module, core, dram=rate)
    assert not isinstance(model, OpenModel)
    return model


def measured(name: str, case: Case) -> tuple[list[Record], bool]:
    core = with_four_bits(case.core)
    plan = weft.quantise.plan(weft.from_onnx(build(name, form="float"), require_quantised=False))
    examples = [{plan.module.main.params[0].name: image[None]} for image in images(2, 224, 2)]
    ranges = weft.quantise.calibrate(plan, examples)
    full = DramRate.of(core)
    with progress(name) as status:
        paying = weft.quantise.four_bits_that_pay(
            plan, ranges, examples, lambda module: compiled_for(core, full, module), least_decibels=NO_LIMIT,
            progress=status.update,
        )  # fmt: skip
    records = [
        Record(core.name, name, "weights with 4 bits", len(paying.found), len(plan.weights)),
        Record(core.name, name, "cycles, beside 8 bits", paying.cycles, paying.before),
    ]
    fine = True
    if case.cycles:
        records.append(Record(core.name, name, "cycles, beside what is wanted", paying.cycles, case.cycles))
        fine &= paying.cycles <= case.cycles
    if case.useful:
        four = weft.quantise.quantised(plan, ranges, paying.found)
        macs = sum(layer.macs for layer in compiled_for(core, full, four).layers)
        peak = core.batch * core.block_in * core.block_out
        useful, before = (macs / peak / cycles for cycles in (paying.cycles, paying.before))
        records.append(
            Record(core.name, name, "useful share of the array, beside 8 bits", round(useful, 4), round(before, 4))
        )
        records.append(
            Record(core.name, name, "useful share of the array, beside what is wanted", round(useful, 4), case.useful)
        )
        slow = replace(full, bytes_per_cycle=full.bytes_per_cycle // 2)
        for bits, module in ((4, four), (8, weft.quantise.quantised(plan, ranges))):
            model = compiled_for(core, slow, module)
            more = predicted_cycles(model, memory_of(model)) / (paying.cycles if bits == 4 else paying.before) - 1
            records.append(
                Record(core.name, name, f"more cycles at half the rate, {bits} bits", round(more, 4), case.half)
            )
            fine &= bits == 8 or more <= case.half
        fine &= useful >= case.useful
    return records, fine


def right(module: Module, test: Array, labels: Array) -> float:
    scores = on_processor(module, test, CALIBRATION_BATCH)
    return float(np.mean(scores.argmax(1) == labels))


def accuracy(name: str, epochs: int) -> tuple[list[Record], bool]:
    """Of a network that is trained here; its core has the group that fits most of its weights."""
    body, settings = TRAINED[name]
    test = shapes(TEST_IMAGES, TEST_SEED)
    calibration = shapes(settings.calibration_images, CALIBRATION_SEED).images
    starts = range(0, len(calibration) - CALIBRATION_BATCH + 1, CALIBRATION_BATCH)
    examples = [{"image": calibration[start : start + CALIBRATION_BATCH]} for start in starts]
    with progress(name) as status:
        parameters, statistics = train_in_floats(body, replace(settings, epochs=epochs), status)
        floats = inference_form(body, parameters, statistics, CALIBRATION_BATCH)
        plan = weft.quantise.equalised(weft.quantise.plan(floats), examples, progress=status.update)
        ranges = weft.quantise.calibrate(plan, examples)
        core = with_four_bits(PYNQ, weft.quantise.best_group(plan))
        paying = chosen_for(core, body, parameters, statistics, examples)
    every = weft.quantise.four_bits(plan, core.weight_group)
    forms = {
        "in floats": plan.module,
        "8 bits": weft.quantise.quantised(plan, ranges),
        "4 bits that pay": weft.quantise.quantised(plan, ranges, {each: every[each] for each in paying.found}),
        "4 bits in all that can": weft.quantise.quantised(plan, ranges, every),
    }
    shares = {form: right(module, test.images, test.labels) for form, module in forms.items()}
    lost = shares["8 bits"] - shares["4 bits that pay"]
    records = [Record(core.name, name, f"right, {form}", round(share, 4)) for form, share in shares.items()]
    records += [
        Record(core.name, name, "weights with 4 bits that pay", len(paying.found), len(plan.weights)),
        Record(core.name, name, "cycles, beside 8 bits", paying.cycles, paying.before),
        Record(core.name, name, "accuracy that 4 bits lose", round(lost, 4), MOST_LOST),
    ]
    return records, lost < MOST_LOST


def chosen_for(
    core: CoreConfig, body: Body, parameters: dict[str, Array], statistics: dict[str, Array],
    batches: list[dict[str, Array]],
) -> Paying:  # fmt: skip
    """The weights that pay for one image a run."""
    examples = [{"image": batch["image"][:1]} for batch in batches]
    plan = weft.quantise.equalised(weft.quantise.plan(inference_form(body, parameters, statistics, 1)), examples)
    ranges = weft.quantise.calibrate(plan, examples)
    return weft.quantise.four_bits_that_pay(
        plan, ranges, examples, lambda module: compiled_for(core, DramRate.of(core), module)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join([*CASES, *TRAINED])}")
    parser.add_argument("--accuracy", type=int, metavar="EPOCHS", help="trained networks instead, for so many epochs")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    known = [*TRAINED] if options.accuracy else [*CASES]
    if unknown := set(options.networks) - set(known):
        parser.error(f"there is no network {min(unknown)!r}; choose from {', '.join(known)}")
    records: list[Record] = []
    fine = True
    for name in options.networks or known:
        found, good = accuracy(name, options.accuracy) if options.accuracy else measured(name, CASES[name])
        records += found
        fine &= good
    rows = [(each.config, each.workload, each.figure, str(each.value), str(each.reference or "")) for each in records]
    print_table("weights of 4 bits that pay", ["core", "network", "figure", "value", "beside"], rows)
    if options.json:
        write_json(options.json, records)
    print("targets met" if fine else "a target is missed")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
