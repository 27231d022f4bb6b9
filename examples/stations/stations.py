"""From random weights to the accelerator, station by station, with the accuracy on test images at each.

Trained in floats; in 8 bits by calibration; the same with channels equalised; with offsets corrected and weights
rounded by AdaRound, too; trained on in 8 bits; and what the core computes then, which is the last one to the bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import weft
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from weft.compiler.graph import Array, Module
from weft.progress import Updates, progress

from examples.stations.networks import Body, Parameters, inference_form, initial_parameters, training_form
from examples.stations.shapes import Images, shapes

BATCH = 64
TEST_SEED, CALIBRATION_SEED, FIRST_TRAINING_SEED = 1, 2, 100
CALIBRATION_BATCH = 16
STATISTICS_BATCHES = 16


@dataclass(frozen=True)
class Settings:
    """How much of everything. Each epoch has images of its own."""

    epochs: int = 14
    more_epochs: int = 3
    epoch_images: int = 4000
    test_images: int = 1000
    calibration_images: int = 128
    rtl_images: int = 0
    spread: float = 0.0
    rate: float = 5e-3
    more_rate: float = 1e-3
    seed: int = 1
    core: str = "pynq"


@dataclass(frozen=True)
class Station:
    """``signal``: decibels of the scores in floats above what differs from them; ``agree``: share of the images whose
    class is that of the floats."""

    name: str
    accuracy: float
    agree: float
    signal: float
    images: int


@dataclass
class Journey:
    """What was found. ``differing``: images for which a device's scores are not those of the CPU, by device."""

    stations: list[Station] = field(default_factory=list)
    differing: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def journey(body: Body, settings: Settings, status: Updates) -> Journey:
    """All stations of one network."""
    found = Journey()
    status.update("drawing images")
    test = shapes(settings.test_images, TEST_SEED)
    calibration = shapes(settings.calibration_images, CALIBRATION_SEED).images
    examples = [{"image": calibration[start : start + CALIBRATION_BATCH]}
                for start in range(0, len(calibration) - CALIBRATION_BATCH + 1, CALIBRATION_BATCH)]  # fmt: skip

    started = time.perf_counter()
    parameters, statistics = train_in_floats(body, settings, status)
    found.seconds["training in floats"] = time.perf_counter() - started

    def plan(batch: int) -> weft.quantise.Plan:
        return weft.quantise.plan(inference_form(body, parameters, statistics, batch))

    def arrive(name: str, module: Module) -> Array:
        status.update(f"{name}: {len(test)} images")
        scores = on_processor(module, test.images, CALIBRATION_BATCH)
        exact = scores if not found.stations else floats
        found.stations.append(_station(name, scores, exact, test.labels))
        return scores

    plain = plan(CALIBRATION_BATCH)
    floats = arrive("floats", plain.module)
    arrive("8 bits, calibrated", weft.quantise.quantised(plain, weft.quantise.calibrate(plain, examples)))
    status.update("equalising")
    equal = weft.quantise.equalised(plain, examples, progress=status.update)
    ranges = weft.quantise.calibrate(equal, examples)
    arrive("+ equalised", weft.quantise.quantised(equal, ranges))
    started = time.perf_counter()
    refined = weft.quantise.refined(equal, ranges, examples, progress=status.update)
    found.seconds["AdaRound"] = time.perf_counter() - started
    arrive("+ offsets, AdaRound", weft.quantise.quantised(refined, ranges))

    started = time.perf_counter()
    # Values have the same names for every size of a batch, so those of the equalised plan start the training.
    start = weft.quantise.trainable(equal, ranges).start
    values = train_in_eight_bits(weft.quantise.trainable(plan(BATCH), ranges), start, settings, status)
    found.seconds["training in 8 bits"] = time.perf_counter() - started
    final = weft.quantise.deployed(weft.quantise.trainable(plan(1), ranges), values)
    status.update("trained in 8 bits")
    expected = on_processor(final, test.images, 1)
    found.stations.append(_station("trained in 8 bits", expected, floats, test.labels))

    compiled = weft.compile(final, settings.core, progress=status.update)
    for device, count in (("fsim", len(test)), ("rtl", settings.rtl_images)):
        if not count:
            continue
        loaded = weft.load(compiled, device=device, progress=status.update)
        started = time.perf_counter()
        scores = on_device(loaded, test.images[:count], lambda done, device=device: status.update(f"{device}: {done}"))
        found.seconds[f"{count} images on {device}"] = time.perf_counter() - started
        found.stations.append(_station(f"on the core, {device}", scores, floats[:count], test.labels[:count]))
        found.differing[device] = int((scores != expected[:count]).any(axis=1).sum())
    return found


def train_in_floats(body: Body, settings: Settings, status: Updates) -> tuple[Parameters, Parameters]:
    """Parameters, and the statistics of normalisations, measured with them."""
    start = initial_parameters(body, settings.seed, settings.spread)
    module, start = weft.lift_constants(training_form(body, start, BATCH), list(start))
    step = weft.train.adam(weft.train.cross_entropy(module, scores="logits"), list(start))
    status.update("compiling the training step")
    training = weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
    last = run(training, settings.epochs, settings.rate, settings.epoch_images, status, "floats")
    measuring = weft.load(weft.compile(training_form(body, training.parameters, BATCH), target="cpu"))
    batches = [last.images[start : start + BATCH] for start in range(0, len(last) - BATCH + 1, BATCH)]
    measured = [measuring.run({"image": batch}) for batch in batches[:STATISTICS_BATCHES]]
    names = [name for name in measured[0] if name != "logits"]
    return training.parameters, {name: np.mean([each[name] for each in measured], axis=0) for name in names}


def train_in_eight_bits(
    eight: weft.quantise.Trainable, start: Mapping[str, Array], settings: Settings, status: Updates
) -> dict[str, Array]:
    """What was trained with rounded values, scales among it."""
    loss = weft.train.cross_entropy(eight.module)
    step = weft.train.adam(loss, list(start), custom=weft.quantise.GRADIENTS)
    status.update("compiling the training step in 8 bits")
    training = weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
    run(training, settings.more_epochs, settings.more_rate, settings.epoch_images, status, "8 bits")
    return training.parameters


def run(
    training: weft.train.Training, epochs: int, rate: float, images: int, status: Updates, what: str
) -> Images:  # fmt: skip
    """Train with rates that fall with a cosine; gives the images of the last epoch."""
    steps = epochs * (images // BATCH)
    drawn = shapes(images, FIRST_TRAINING_SEED)
    mean = float("nan")
    for epoch in range(epochs):
        drawn = shapes(images, FIRST_TRAINING_SEED + epoch)
        losses, started = [], time.perf_counter()
        for start in range(0, len(drawn) - BATCH + 1, BATCH):
            batch = drawn[start : start + BATCH]
            falling = 0.5 * rate * (1 + np.cos(np.pi * training.steps / steps))
            result = training.step({"image": batch.images, "labels": batch.labels}, falling)
            losses.append(float(result["loss"]))
            speed = len(losses) * BATCH / (time.perf_counter() - started)
            status.update(f"{what}: step {training.steps} of {steps}, loss {mean:.3f}, {speed:,.0f} images/s")
            mean = float(np.mean(losses))
    return drawn


def on_processor(module: Module, images: Array, batch: int) -> Array:
    """Scores (N, classes), of a module for ``batch`` images."""
    loaded = weft.load(weft.compile(module, target="cpu"))
    rows = np.resize(np.arange(len(images)), -(-len(images) // batch) * batch)
    scores = [loaded.run({"image": images[rows[start : start + batch]]})["logits"]
              for start in range(0, len(rows), batch)]  # fmt: skip
    return np.concatenate(scores)[: len(images)]


def on_device(loaded: weft.LoadedModule, images: Array, progress: Callable[[int], None]) -> Array:
    scores = []
    for number, image in enumerate(images, 1):
        scores.append(loaded.run({"image": image[None]})["logits"])
        progress(number)
    return np.concatenate(scores)


def _station(name: str, scores: Array, floats: Array, labels: NDArray[np.int64]) -> Station:
    power, lost = (float((each.astype(np.float64) ** 2).sum()) for each in (floats, scores - floats))
    signal = float("inf") if not lost else 10 * np.log10(power / lost)
    chosen = scores.argmax(axis=1)
    accuracy, agree = np.mean(chosen == labels), np.mean(chosen == floats.argmax(axis=1))
    return Station(name, float(accuracy), float(agree), float(signal), len(scores))


def main(body: Body, description: str | None, settings: Settings, arguments: Sequence[str] | None = None) -> None:
    """The command of one network."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=settings.epochs, help="of training in floats")
    parser.add_argument("--more", type=int, default=settings.more_epochs, help="epochs of training in 8 bits")
    parser.add_argument("--images", type=int, default=settings.test_images, help="of the test")
    parser.add_argument("--epoch-images", type=int, default=settings.epoch_images, help="of one epoch")
    parser.add_argument("--rtl", type=int, default=settings.rtl_images, help="images that the RTL computes, too")
    parser.add_argument("--spread", type=float, default=settings.spread,
                        help="factors of normalisations start between 2 ** -SPREAD and 2 ** SPREAD")  # fmt: skip
    parser.add_argument("--core", default=settings.core)
    chosen = parser.parse_args(arguments)
    if min(chosen.epochs, chosen.more, chosen.images) < 1 or chosen.epoch_images < BATCH or chosen.rtl > chosen.images:
        parser.error(f"at least one epoch, one image, {BATCH} images an epoch, and no more on the RTL than in the test")
    wanted = Settings(
        epochs=chosen.epochs, more_epochs=chosen.more, test_images=chosen.images, epoch_images=chosen.epoch_images,
        rtl_images=chosen.rtl, spread=chosen.spread, core=chosen.core,
    )  # fmt: skip
    with progress("starting") as status:
        found = journey(body, wanted, status)
    show(found)
    if wrong := {device: count for device, count in found.differing.items() if count}:
        raise SystemExit(f"the core computes other scores: {wrong}")
    print("the core's scores are those of the CPU, to the bit")


def show(found: Journey) -> None:
    table = Table("station", "accuracy", "as in floats", "signal / noise", "images")
    for each in found.stations:
        signal = "" if np.isinf(each.signal) else f"{each.signal:.1f} dB"
        table.add_row(each.name, f"{each.accuracy:.1%}", f"{each.agree:.1%}", signal, str(each.images))
    Console(width=100).print(table)
    print(", ".join(f"{what}: {seconds:.0f} s" for what, seconds in found.seconds.items()))
