"""The job that pre-trains, on the cluster under test: from manifest to artefact. Standard library only."""

from __future__ import annotations

import json

from tests.compose.stack import ROOT
from tests.compose.waiting import until
from tests.kubernetes.cluster import NAMESPACE, SERVERS_NAMESPACE, Cluster, ClusterError

__all__ = ["FILES", "pretrain"]

PRETRAIN = ROOT / "tests/kubernetes/pretrain"
FILES = ["golden.safetensors", "manifest.json", "weights.safetensors"]
ENDS_S, GONE_S = 1200.0, 120.0


def pretrain(cluster: Cluster) -> list[str]:
    """Run it until its pod is gone; the files of the artefact that the bucket has then.

    Raises :class:`ClusterError` with the end of its log where it fails, ``TimeoutError`` where it does not end; all of
    it is there then.
    """
    cluster.apply(PRETRAIN)
    until(lambda: _state(cluster) in ("Complete", "Failed"), "the job ends", ENDS_S, every_s=2)
    if _state(cluster) == "Failed":
        raise ClusterError(f"the job failed:\n{_status(cluster).get('message', '')[-800:]}")
    own = "app.kubernetes.io/component=pretrain"
    until(lambda: not cluster.pods(own), "the job's cluster is gone", GONE_S, every_s=2)
    cluster.kubectl("delete", "-k", str(PRETRAIN), timeout_s=180)
    said = cluster.exec(
        "deployment/storage", "sh", "-c", "cd /data/buckets/hothouse/pretrained && ls */", of=SERVERS_NAMESPACE
    )
    return sorted(name for name in said.split() if not name.endswith(":"))


def _status(cluster: Cluster) -> dict[str, str]:
    found = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "rayjob", "pretrain", "-o", "json"))
    status: dict[str, str] = found.get("status", {})
    return status


def _state(cluster: Cluster) -> str:
    return _status(cluster).get("jobDeploymentStatus", "")
