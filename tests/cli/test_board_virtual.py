"""``weft board virtual``: a board that is there until it is told to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards.hosts import find_host

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_a_virtual_board_runs_models_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from weft.cli import main; main()"
    command = [sys.executable, "-c", code, "board", "virtual", "pynq-z2", "--config", "tiny", "--pipe", "--name", "z9"]
    board = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert board.stdout is not None
    text = ""
    try:
        for line in board.stdout:
            text += line
            if "Ctrl-C" in line:
                break
        hosts = re.search(r"export WEFT_HOSTS=(\S+)", text)
        assert hosts is not None, (text, board.communicate()[1])
        assert "--device pynq://z9" in text
        monkeypatch.setenv("WEFT_HOSTS", hosts[1])
        assert find_host("z9").overlay is not None
        model = weft.compile(DIGITS, "tiny")
        image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
        with weft.load(model, "pynq://z9") as module:
            found = module.run({"image": image})["logits"]
        assert (found == weft.load(model, "fsim").run({"image": image})["logits"]).all()
    finally:
        board.send_signal(signal.SIGTERM)
        _, errors = board.communicate(timeout=60)
    assert board.returncode == 0
    assert "the board is gone" in errors
    assert not Path(hosts[1]).parent.exists()
