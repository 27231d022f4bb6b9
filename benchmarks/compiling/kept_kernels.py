"""A network compiled for a core again: unchanged, with other weights in one layer, and with one other layer.

Each compilation is a process of its own; all share a cache, which is empty at first, and Python's files of bytecode, as
an installed package has them. CPU seconds of `weft.compile`, imports included, and the entries that it made. Exit
status 1 where one takes longer than allowed.

    python benchmarks/compiling/kept_kernels.py
    python benchmarks/compiling/kept_kernels.py --networks resnet18 --core tiny --json kept.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import numpy_helper

from benchmarks.common import Record, print_table, processor, write_json
from examples.models.build import build

ALLOWED = {"cold": 10.3, "unchanged": 0.3, "other weights": 1.5, "another layer": 1.5}
"""CPU seconds for ResNet-50 on ``pynq``. Cold: half of what it took before kernels were kept."""

CHILD = """
import json, resource, sys
import weft
from weft.cache import made_entries
weft.compile(sys.argv[1], sys.argv[2])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, made_entries()]))
"""


def with_other_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The middle convolution has other weights, none of them zero where it was not."""
    weights = [each for each in model.graph.initializer if len(each.dims) == 4]
    middle = weights[len(weights) // 2]
    values = numpy_helper.to_array(middle).copy()
    values[values > 1] -= 1
    middle.CopyFrom(numpy_helper.from_array(values, middle.name))
    return model


def with_another_layer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The middle one of the convolutions of 3 x 3 that keep an image's size is dilated."""
    found = []
    for node in model.graph.node:
        attributes = {each.name: each for each in node.attribute}
        ints = {name: list(each.ints) for name, each in attributes.items()}
        if ints.get("kernel_shape") == [3, 3] and ints.get("pads") == [1] * 4 and ints.get("strides", [1, 1]) == [1, 1]:
            found.append(node)
    node = found[len(found) // 2]
    kept = [each for each in node.attribute if each.name not in ("pads", "dilations")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", [2] * 4),
                           onnx.helper.make_attribute("dilations", [2, 2])])  # fmt: skip
    return model


def measured(name: str, core: str) -> list[Record]:
    path = build(name)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WEFT_CACHE": str(Path(folder) / "cache"), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
        _used(build("resnet18", size=32), core, {**environment, "WEFT_CACHE_LIMIT": "0"})
        changed = {"other weights": with_other_weights, "another layer": with_another_layer}
        for state, allowed in ALLOWED.items():
            file = path
            if state in changed:
                file = Path(folder) / f"{state}.onnx"
                onnx.save(changed[state](onnx.load(path)), file)
            seconds, made = _used(file, core, environment)
            reference = allowed if (name, core) == ("resnet50", "pynq") else None
            records += [
                Record(core, f"{name}, {state}", "CPU s", round(seconds, 2), reference),
                Record(core, f"{name}, {state}", "kernels made", made.get("kernels", 0)),
            ]
            print(f"{name}, {state}: {seconds:.2f} CPU s, made {made}", file=sys.stderr, flush=True)
    return records


def _used(model: Path, core: str, environment: Mapping[str, str]) -> tuple[float, dict[str, int]]:
    """CPU seconds of a process, and the entries of the cache that it made."""
    command = [sys.executable, "-c", CHILD, str(model), core]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, made = json.loads(done.stdout.splitlines()[-1])
    return seconds, made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet50"])
    parser.add_argument("--core", default="pynq")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    records = [record for name in arguments.networks for record in measured(name, arguments.core)]
    rows = [[each.workload, each.figure, str(each.value), "" if each.reference is None else str(each.reference)]
            for each in records]  # fmt: skip
    print_table(f"compiled again for {arguments.core} ({processor()}, load {os.getloadavg()[0]:.1f})",
                ["network", "figure", "value", "allowed"], rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    slow = [each for each in records if each.reference is not None and float(each.value) > float(each.reference)]
    for each in slow:
        print(f"missed: {each.workload}: {each.value} CPU s, allowed {each.reference}", file=sys.stderr)
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
