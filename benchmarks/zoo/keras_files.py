"""Networks of keras.applications with random weights as LiteRT files of int8, made by TensorFlow's converter.

    pip install tensorflow-cpu                              # in an environment of its own; weft is not needed there
    python benchmarks/zoo/keras_files.py build/keras
    python benchmarks/frontends/litert_suite.py --target cpu --file build/keras/*.tflite

Pictures have 96 x 96 pixels. Weights are stirred: as Keras makes them, many are zero or one everywhere, which hides
what is done with them. Ranges are calibrated with a few random pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PIXELS = 96
EXAMPLES = 4
STIRRED = 0.2
"""How far a weight is moved at most: of its tensor's deviation, or of 1 where all are alike."""

NETWORKS = (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "ResNet50", "NASNetMobile", "DenseNet121",
    "InceptionV3", "Xception", "MobileNetV3Large", "ResNet50V2", "EfficientNetV2B0", "VGG16", "ConvNeXtTiny",
)  # fmt: skip


def stirred(weight: Any, rng: np.random.Generator) -> Any:
    spread = float(weight.std()) if weight.size > 1 else 0.0
    noise = rng.uniform(-1, 1, weight.shape) * STIRRED * (spread or 1.0)
    return (weight + noise).astype(weight.dtype)


def converted(name: str) -> bytes:
    """The file of one network."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    build = getattr(keras.applications, name)  # without the softmax, whose bytes would nearly all be the same
    network = build(weights=None, input_shape=(PIXELS, PIXELS, 3), classes=100, classifier_activation=None)
    network.set_weights([stirred(weight, rng) for weight in network.get_weights()])

    def examples() -> Iterator[list[Any]]:
        for _ in range(EXAMPLES):
            yield [rng.uniform(-1, 1, (1, PIXELS, PIXELS, 3)).astype(np.float32)]

    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = examples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.networks:
        started = time.process_time()
        data = converted(name)
        (arguments.folder / f"{name}.tflite").write_bytes(data)
        print(f"{name}: {len(data):,} bytes, {time.process_time() - started:.0f} CPU s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
