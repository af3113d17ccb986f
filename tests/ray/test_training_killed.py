"""A training whose worker, process or whole node is killed goes on from the newest epoch that it had kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from models import artefact
from models.network.progress import PROGRESS_FILE, Epoch, ProgressError, TrainingProgress
from services.config import Settings
from services.forecast_spec import forecast_spec, place_of
from services.learn.training.job import Job
from services.learn.training.task import run_job
from services.store.history import History
from tests.patience import patience_s, until
from tests.ray.runtime import once_more
from tests.services.learn.synthetic import small_settings, write_history

pytestmark = [pytest.mark.ray, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(900)]

EPOCHS = 10
DIES_AFTER = 2
"""Epochs that are kept when something dies, in the middle of a later one."""


@dataclass
class Nodes:
    """Two Ray nodes; the driver is on the first, the second may be killed."""

    cluster: Cluster
    first: str
    second: str
    raylet: int
    """Process id of the second node's."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster whose first node holds the driver."""
    folder = tempfile.mkdtemp(prefix="hh-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        # Ray writes there which cluster is the newest: no other program on this machine may take ours for its own.
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_worker_niceness", "0")
        head = {
            "num_cpus": 1, "include_dashboard": False,
            # A node whose process is gone is given up after 5 s instead of 20 to 30.
            "_system_config": {"health_check_period_ms": 1000, "health_check_timeout_ms": 5000},
        }  # fmt: skip
        started = once_more(lambda: Cluster(initialize_head=True, head_node_args=head))
        try:
            ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
            yield started
        finally:
            ray.shutdown()
            started.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    """The cluster with a second node of its own for each test."""
    added = once_more(lambda: cluster.add_node(num_cpus=1))
    second = added.node_id
    raylet = added.all_processes["raylet"][0].process.pid
    yield Nodes(cluster, ray.get_runtime_context().get_node_id(), second, raylet)
    cluster.remove_node(added, allow_graceful=False)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with a history whose epochs take a second or so."""
    settings = small_settings(tmp_path_factory.mktemp("data"), epochs=EPOCHS, max_windows=12_000)
    write_history(settings, days=6, zones=tuple(f"z{n}" for n in range(40)))
    return settings


def job_of(settings: Settings, name: str, workers: int) -> Job:
    """A retraining as the retrainer asks for it."""
    spec = forecast_spec(settings)
    return Job(
        name=name, storage=str(settings.storage_folder), spec=spec, learn=settings.learn,
        places={"demo": place_of(settings, "demo")},
        files=tuple(History(settings.storage_folder, spec.channels, settings.stream.step_s).files()),
        after_ms=0, to_ms=2**53,
        log_offsets={}, champion="online", champion_folder="", use_gpu=False, workers=workers,
    )  # fmt: skip


def start(job: Job, node: str, soft: bool) -> Any:
    """Begin it on a node; ``soft``: if the node is gone, on another one."""
    variables = {
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        # Ray Train's controller looks every two seconds whether its workers live: too late for epochs of one.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.2",
        # A group of more workers than there is room for, while the death of a node spreads, is waited for so long.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "25",
    }
    where = NodeAffinitySchedulingStrategy(node, soft=soft)
    return run_job.options(runtime_env={"env_vars": variables}, scheduling_strategy=where).remote(job)


def kept(job: Job) -> tuple[Epoch, ...]:
    """The epochs of the newest progress on the storage."""
    found = []
    for path in Path(job.storage, "train", job.name).rglob(PROGRESS_FILE):
        try:
            found.append(TrainingProgress.load(path.parent).history)
        except ProgressError:  # just being written, or removed
            continue
    return max(found, key=len, default=())


def processes_of(raylet: int, title: str = "") -> list[psutil.Process]:
    """What a node has started, with this in its title."""
    found = []
    for process in psutil.Process(raylet).children(recursive=True):
        try:
            if title in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def raylets(cluster: Cluster) -> list[int]:
    """The process ids of all nodes' raylets."""
    return [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]


def kill_mid_epoch(job: Job, running: Any, kill: Callable[[], None]) -> tuple[Epoch, ...]:
    """Wait until some epochs are kept, kill a good moment later, and return what was kept then."""
    until(lambda: len(kept(job)) >= DIES_AFTER or _ended(running), "the first epochs are kept", 240)
    time.sleep(0.3)
    before = kept(job)
    assert DIES_AFTER <= len(before) < EPOCHS, "the training was too fast to be killed in its middle"
    kill()
    return before


def _ended(running: Any) -> bool:
    if ray.wait([running], timeout=0)[0]:
        ray.get(running)
    return False


def weights(candidate: dict[str, Any], job: Job) -> dict[str, Any]:
    """The network's arrays, of an artefact that is whole."""
    model = artefact.load(Path(candidate["folder"]), job.spec.hash)
    model.verify_golden()
    assert all(np.isfinite(array).all() for array in model.model.arrays().values())
    return model.model.arrays()


def assert_went_on(job: Job, running: Any, before: tuple[Epoch, ...]) -> dict[str, Any]:
    """The training ends, its loss curve continues what was kept, every epoch is in it once, and the record says so."""
    candidate: dict[str, Any] = ray.get(running, timeout=patience_s(300))
    losses = candidate["curves"]["loss"]
    assert losses[: len(before)] == [epoch.loss for epoch in before]
    assert [epoch.number for epoch in kept(job)] == list(range(1, EPOCHS + 1))
    assert [epoch.loss for epoch in kept(job)] == losses
    assert "went on from a checkpoint" in candidate["recipe"]["not_replayable"]
    assert losses[-1] < losses[0]
    weights(candidate, job)
    return candidate


def test_training_process_killed(nodes: Nodes, settings: Settings) -> None:
    """Without workers: the job's process is killed in an epoch; Ray runs it again, and it ends in the very weights of
    a training that nobody killed.
    """
    job = job_of(settings, "alone", workers=0)
    running = start(job, nodes.second, soft=False)

    def kill() -> None:
        (process,) = processes_of(nodes.raylet, "ray::run_job")
        os.kill(process.pid, signal.SIGKILL)

    before = kill_mid_epoch(job, running, kill)
    candidate = assert_went_on(job, running, before)
    quiet = job_of(settings, "alone-in-peace", workers=0)
    whole = ray.get(start(quiet, nodes.second, soft=False), timeout=patience_s(300))
    assert whole["recipe"]["not_replayable"] == ""
    assert candidate["weights_sha256"] == whole["weights_sha256"]


def test_training_worker_killed(nodes: Nodes, settings: Settings) -> None:
    """A Ray Train worker is killed in an epoch; another one goes on from the checkpoint."""
    job = job_of(settings, "worker", workers=1)
    running = start(job, nodes.first, soft=False)

    def kill() -> None:
        (process,) = [p for raylet in raylets(nodes.cluster) for p in processes_of(raylet, "RayTrainWorker")]
        os.kill(process.pid, signal.SIGKILL)

    assert_went_on(job, running, kill_mid_epoch(job, running, kill))


class _Busy:
    """Takes a node's CPU."""

    def there(self) -> bool:
        return True


def kill_node(nodes: Nodes) -> None:
    """Kill the second node at once: its raylet and all that it started."""
    victims = [nodes.raylet, *(process.pid for process in processes_of(nodes.raylet))]
    for pid in victims:
        with suppress(ProcessLookupError):  # a worker ends by itself soon after its raylet
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("whole", [False, True], ids=["the worker is there", "all of the training is there"])
def test_training_node_killed(nodes: Nodes, settings: Settings, whole: bool) -> None:
    """The node that trains is killed, raylet and workers; training goes on from its checkpoint on the other node,
    also where the job and Ray Train's controller died with it.
    """
    on_first = NodeAffinitySchedulingStrategy(nodes.first, soft=False)
    busy = ray.remote(_Busy).options(num_cpus=1, scheduling_strategy=on_first).remote()
    assert ray.get(busy.there.remote(), timeout=patience_s(60))
    job = job_of(settings, f"node-{'all' if whole else 'worker'}", workers=1)
    running = start(job, nodes.second if whole else nodes.first, soft=whole)

    def kill() -> None:
        assert processes_of(nodes.raylet, "RayTrainWorker"), "the worker is not on the node that is killed"
        ray.kill(busy)  # from now on there is room on the other one
        kill_node(nodes)

    before = kill_mid_epoch(job, running, kill)
    assert_went_on(job, running, before)
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    assert alive == [nodes.first]
    until(
        lambda: {group["state"] for group in placement_group_table().values()} == {"REMOVED"},
        "no CPUs are held for workers that are gone",
    )


def test_training_node_reclaimed(nodes: Nodes, settings: Settings) -> None:
    """The node that trains is reclaimed, with notice, as spot instances are: training goes on from its newest epoch on
    the other node when the notice is over, and the node is not needed any more.
    """
    on_first = NodeAffinitySchedulingStrategy(nodes.first, soft=False)
    busy = ray.remote(_Busy).options(num_cpus=1, scheduling_strategy=on_first).remote()
    assert ray.get(busy.there.remote(), timeout=patience_s(60))
    job = job_of(settings, "reclaimed", workers=1)
    running = start(job, nodes.first, soft=False)

    def reclaim() -> None:
        assert processes_of(nodes.raylet, "RayTrainWorker"), "the worker is not on the node that is reclaimed"
        ray.kill(busy)  # from now on there is room on the other one
        told = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", "drain-node",
             "--address", ray.get_runtime_context().gcs_address, "--node-id", nodes.second,
             "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "reclaimed",
             "--deadline-remaining-seconds", "2"],
            capture_output=True, text=True, timeout=patience_s(60), check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    before = kill_mid_epoch(job, running, reclaim)
    until(lambda: not processes_of(nodes.raylet, "RayTrainWorker"), "the node is left", 60)
    assert_went_on(job, running, before)


def test_training_goes_on_with_fewer_workers(nodes: Nodes, settings: Settings) -> None:
    """Three workers have no room on one node. Of the two nodes one is killed: with ``learn.min_workers`` those that
    there is room for on the other go on.
    """
    elastic = settings.model_copy(update={"learn": settings.learn.model_copy(update={"min_workers": 1})})
    job = job_of(elastic, "fewer", workers=3)
    running = start(job, nodes.first, soft=False)

    def kill() -> None:
        assert processes_of(nodes.raylet, "RayTrainWorker"), "no worker is on the node that is killed"
        kill_node(nodes)

    before = kill_mid_epoch(job, running, kill)
    assert_went_on(job, running, before)
    assert [node["NodeID"] for node in ray.nodes() if node["Alive"]] == [nodes.first]
