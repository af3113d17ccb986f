"""Whom the network policies let in, worked out from what they say: the test cluster has nothing that enforces them."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.kubernetes.manifests import OVERLAYS, objects, templates

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
    """Who watches reads figures, also the API's; who reads asks the API; nobody but the operator's pods a head's
    dashboard, whether Helm installed it or not.
    """
    there = parts(overlay)
    api = {("ray-api", 8000)} & {(part, 8000) for part in there}
    watched = reached(overlay, {"hothouse/monitoring": "true"}, {}) - {("mosquitto", 8883)}
    assert watched == api | {(part, 9108 if part == "gateway" else 8080) for part in there if part not in NO_FIGURES}
    readers = reached(overlay, {"hothouse/reads": "true"}, {}) - {("mosquitto", 8883)}
    assert readers == api
    for name in ("kuberay", "kuberay-operator"):
        operator = reached(overlay, {}, {"app.kubernetes.io/name": name}) - {("mosquitto", 8883)}
        assert operator == {("ray-head", 8265), ("pretrain", 8265)} & {(part, 8265) for part in there}


def test_a_job_is_apart_from_the_installation(overlay: str) -> None:
    """A pod of it reaches no other, and no other reaches it."""
    for job in {"pretrain"} & parts(overlay).keys():
        policies = [one["spec"] for one in objects(overlay) if one["kind"] == "NetworkPolicy"]
        own = [one for one in policies if one["podSelector"] and selects(one["podSelector"], parts(overlay)[job])]
        assert own
        assert all("to" not in rule for one in own for rule in one["egress"])
        ports = {port["port"] for one in own for rule in one["egress"] for port in rule["ports"]}
        assert not ports & {1883, 5000, 6379, 8000, 8265, 8883, 10001}
        peers = [peer for one in own for rule in one["ingress"] for peer in rule["from"]]
        assert all("namespaceSelector" in peer for peer in peers)


def parts(overlay: str) -> dict[str, Labels]:
    """The labels of each kind of pod."""
    labels = [template["metadata"]["labels"] for _, template in templates(overlay)]
    return {each[COMPONENT]: each for each in labels}


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
