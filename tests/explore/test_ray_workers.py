"""A real Ray cluster of several nodes on this machine: the same points as without it, also when a node is killed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from weft.compiler.tune.database import Database
from weft.explore import ray_workers
from weft.explore.errors import ExploreError
from weft.explore.measure import open_network
from weft.explore.ray_workers import RayWorkers
from weft.explore.space import Space
from weft.explore.study import Study, explore
from weft.explore.workers import Failure

FUNCTIONS = Path(__file__).parent / "functions"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without processors, and two nodes with one each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(FUNCTIONS), prepend=os.pathsep)
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        found.add_node(num_cpus=1)
        found.add_node(num_cpus=1)
        yield found
        found.shutdown()


def a_space() -> Space:
    core = {"block_in": [4, 8, 12], "block_out": [4, 8], "queue_depth": [8, 16], "depthwise": 0}
    return Space.model_validate({"base": "tiny", "core": core})


def run(path: Path, **how: Any) -> Study:
    with Database(path) as database:
        return explore(a_space(), [open_network(DIGITS)], database, **how)


def points_of(study: Study) -> list[tuple[Any, ...]]:
    return [(dict(each.assignment), each.status, each.reason, dict(each.figures)) for each in study.points]


def test_a_node_that_is_killed_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    expected = run(tmp_path / "here.sqlite", workers=0)
    victim = cluster.add_node(num_cpus=1)
    killed = []

    def kill(study: Study) -> None:
        if study.measured >= 2 and not killed:
            killed.append(victim)
            cluster.remove_node(victim, allow_graceful=False)

    found = run(tmp_path / "there.sqlite", cluster=cluster.address, report=kill)
    assert killed
    assert points_of(found) == points_of(expected)
    assert found.front() == expected.front()
    assert found.measured == expected.measured == 8
    again = run(tmp_path / "there.sqlite", cluster=cluster.address)
    assert (again.measured, again.reused) == (0, 8)
    assert points_of(again) == points_of(expected)


def test_a_job_that_breaks_or_has_no_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FUNCTIONS)
    work = importlib.import_module("worker_functions").work
    jobs = [("square", 3), ("die", 0), ("refuse", 0), ("break", 0), ("hang", 0), ("square", 4)]
    with RayWorkers(work, cluster.address, [], seconds=8.0) as workers:
        found = {each.number: each.result for each in workers.run(jobs)}
    assert (found[0], found[5]) == (9, 16)
    assert found[1] == Failure("the worker process ended by signal SIGKILL", refused=False)
    assert found[2] == Failure("no room; hint: more", refused=True)
    assert found[3].reason.startswith("KeyError: 'missing' (worker_functions.py:")
    assert found[4] == Failure("stopped after 8 s", refused=False)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExploreError, match="no Ray cluster at 'nonsense'"):
        run(tmp_path / "a.sqlite", cluster="nonsense")


def test_a_node_with_another_weft(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "measured_by", lambda: "another")
    with pytest.raises(ExploreError, match="a node of the Ray cluster has another weft"):
        run(tmp_path / "a.sqlite", cluster=cluster.address)
    assert not ray.is_initialized()
