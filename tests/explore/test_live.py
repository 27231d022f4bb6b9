"""The page of a run that goes on: it changes with the run, for this machine's browsers only."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from weft.compiler.tune.database import Database
from weft.explore.errors import ExploreError
from weft.explore.live import LivePage
from weft.explore.measure import Measure, Network
from weft.explore.space import Design, Space
from weft.explore.study import Study, explore

NETWORK = Network("net", "net.onnx", "1" * 32)


def fake(design: Design, network: Network) -> Measure:
    cycles = 10**9 // design.config.macs_per_cycle
    return Measure(cycles, design.config.batch, cycles, cycles // 2, 10, 1000, 1000, ())


def get(page: LivePage, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def shown(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_the_page_follows_the_run(tmp_path: Path) -> None:
    space = Space.model_validate({"core": {"block_in": [8, 16], "block_out": [8, 16, 32], "depthwise": [0]}})
    seen: list[tuple[int, int]] = []
    with LivePage(0) as page, Database(tmp_path / "e.sqlite") as database:
        assert get(page, "/")[0] == 404  # nothing is measured yet
        assert get(page, "/version") == (200, "0")

        def report(study: Study) -> None:
            page.update(study)
            status, text = get(page, "/")
            assert status == 200
            assert "connect-src 'self'" in text
            data = shown(text)
            assert str(data["version"]) == get(page, "/version")[1]
            seen.append((data["version"], len(data["points"])))

        study = explore(space, [NETWORK], database, workers=0, measurer=fake, report=report)
    assert [version for version, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[0][1] < seen[-1][1] == len(study.points)


def test_only_this_machine_and_only_by_its_name() -> None:
    with LivePage(0) as page:
        assert page.url == f"http://127.0.0.1:{page.port}/"
        assert get(page, "/version", f"localhost:{page.port}")[0] == 200
        assert get(page, "/version", f"evil.example:{page.port}")[0] == 403
        assert get(page, "/../explore.sqlite")[0] == 404
        other = socket.gethostbyname(socket.gethostname())
        if not other.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((other, page.port), timeout=5)


def test_a_port_that_is_taken() -> None:
    with (
        LivePage(0) as page,
        pytest.raises(ExploreError, match=f"port {page.port} cannot be served: Address already in use"),
    ):
        LivePage(page.port)


def test_the_end_waits_for_a_browser_that_follows(tmp_path: Path) -> None:
    study = Study(Space(), [NETWORK])
    page = LivePage(0)
    page.update(study)
    get(page, "/version")  # a browser asks, and comes back for the page in a moment
    fetched: list[int] = []
    browser = threading.Timer(0.5, lambda: fetched.append(get(page, "/")[0]))
    browser.start()
    page.close()
    browser.join()
    assert fetched == [200]
