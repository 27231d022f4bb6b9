"""What a user prints says what it is: a line with names, no address and no page of arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler import tensor as t

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def values() -> dict[str, object]:
    model = weft.compile(DIGITS, "pynq")
    recorder = weft.RecordingDevice(weft.FsimDevice(weft.PYNQ))
    module = weft.load(model, recorder)
    module.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    x = t.placeholder((4,), "int32", "x")
    schedule = t.create_schedule(t.compute((4,), lambda i: x[i] + 1, "y"), name="next")
    schedule.split("i", 2)
    return {
        "model": model,
        "module": module,
        "host": weft.load(weft.compile(DIGITS, target="cpu")),
        "recorder": recorder,
        "recording": recorder.recording(model),
        "schedule": schedule,
        "built": weft.build(schedule, "interpreter"),
    }


SAID = {
    "model": ("CompiledModel('digits', 'accel', 9 layers", "image: float32[1, 1, 8, 8] -> logits: float32[1, 10])"),
    "module": ("<LoadedModule of CompiledModel('digits'", "on device 'fsim'>"),
    "host": ("<LoadedModule of CompiledModel('digits', 'cpu'", "on the host>"),
    "recorder": ("<RecordingDevice 'fsim' of core 'pynq'>",),
    "recording": ("<Recording of 'digits' on device 'fsim', core 'pynq', 1 launches>",),
    "schedule": ("<Schedule of 'next'(x: int32[4], y: int32[4]), 1 steps>",),
    "built": ("<InterpretedFunction 'next'(x: int32[4], y: int32[4])>",),
}


@pytest.mark.parametrize("name", SAID)
def test_a_value_says_what_it_is(values: dict[str, object], name: str) -> None:
    text = repr(values[name])
    assert all(part in text for part in SAID[name]), text
    assert " at 0x" not in text
    assert len(text) < 200
    assert "\n" not in text


def test_a_module_that_is_closed_says_so() -> None:
    module = weft.load(weft.compile(DIGITS, "pynq"))
    module.close()
    assert repr(module).endswith("on device 'fsim', closed>")


def test_from_onnx_is_public() -> None:
    assert weft.from_onnx(DIGITS).main.params[0].name == "image"
