"""Whom the network policies let in, worked out from what they say: the test cluster has nothing that enforces them."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.kubernetes.manifests import OVERLAYS, objects

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.parametrize("overlay", OVERLAYS),
]
Labels = dict[str, str]
COMPONENT = "app.kubernetes.io/component"
EVERY_PORT = -1
NO_FIGURES = ("mosquitto", "mlflow", "redis")


def test_a_pod_of_another_namespace_reaches_the_broker_alone(overlay: str) -> None:
    """Also one that calls itself a part of ours: a pod's labels count within a namespace. At the broker it needs a
    login.
    """
    allowed = {("mosquitto", 8883)} & {(part, 8883) for part in parts(overlay)}
    assert reached(overlay, {}, {"app": "curious"}) == allowed
    for labels in parts(overlay).values():
        assert reached(overlay, {"kubernetes.io/metadata.name": "other"}, labels) == allowed


def test_a_namespace_gets_what_its_label_says(overlay: str) -> None:
    """Who watches reads figures, who reads asks the API; nobody but the operator's pods the head's dashboard."""
    there = parts(overlay)
    watched = reached(overlay, {"hothouse/monitoring": "true"}, {}) - {("mosquitto", 8883)}
    assert watched == {(part, 9108 if part == "gateway" else 8080) for part in there if part not in NO_FIGURES}
    readers = reached(overlay, {"hothouse/reads": "true"}, {}) - {("mosquitto", 8883)}
    assert readers == {("ray-worker", 8000)} & {(part, 8000) for part in there}
    operator = reached(overlay, {}, {"app.kubernetes.io/name": "kuberay"}) - {("mosquitto", 8883)}
    assert operator == {("ray-head", 8265)} & {(part, 8265) for part in there}


def parts(overlay: str) -> dict[str, Labels]:
    """The labels of each kind of pod."""
    found = {}
    for one in objects(overlay):
        spec = one.get("spec", {})
        groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]] if one["kind"] == "RayCluster" else [spec]
        for group in groups:
            if isinstance(group.get("template"), dict):
                labels = group["template"]["metadata"]["labels"]
                found[labels[COMPONENT]] = labels
    return found


def reached(overlay: str, namespace: Labels, pod: Labels) -> set[tuple[str, int]]:
    """Parts and ports that a pod with these labels gets to from another namespace with these, once some policy of both
    directions selects every pod of ours.
    """
    policies = [one["spec"] for one in objects(overlay) if one["kind"] == "NetworkPolicy"]
    found = set()
    for part, labels in parts(overlay).items():
        own = [one for one in policies if "Ingress" in one["policyTypes"] and selects(one["podSelector"], labels)]
        assert own, f"no policy is about {part}: it would be open"
        for rule in (rule for policy in own for rule in policy.get("ingress", ())):
            if "from" not in rule or any(lets_in(peer, namespace, pod) for peer in rule["from"]):
                found |= {(part, port["port"]) for port in rule.get("ports", [{"port": EVERY_PORT}])}
    return found


def lets_in(peer: dict[str, Any], namespace: Labels, pod: Labels) -> bool:
    """Without a namespaceSelector a peer is a pod of our own namespace; by addresses any pod may be one."""
    if "ipBlock" in peer:
        return True
    if "namespaceSelector" not in peer:
        return False
    return selects(peer["namespaceSelector"], namespace) and selects(peer.get("podSelector", {}), pod)


def selects(selector: dict[str, Any], labels: Labels) -> bool:
    """As Kubernetes does; an empty selector selects all."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
