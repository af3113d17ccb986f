"""The manifests of deploy/kubernetes as `kubectl kustomize` makes them: no cluster is asked."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.compose.stack import ROOT
from tests.kubernetes.cluster import run

__all__ = ["KUBERNETES", "OVERLAYS", "containers", "init_containers", "objects", "pods", "text"]

KUBERNETES = ROOT / "deploy/kubernetes"
OVERLAYS = ("small", "production", "edge")


@functools.cache
def text(overlay: str) -> str:
    """An overlay, as it is given to a cluster."""
    return run("kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay))


def objects(overlay: str) -> list[dict[str, Any]]:
    """Its objects."""
    return [one for one in yaml.safe_load_all(text(overlay)) if one]


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The template of each pod, also of those that KubeRay's operator makes: its name, its spec."""
    for one in objects(overlay):
        name = f"{one['kind']}/{one['metadata']['name']}"
        spec = one.get("spec", {})
        if one["kind"] == "RayCluster":
            yield f"{name} head", spec["headGroupSpec"]["template"]["spec"]
            for group in spec["workerGroupSpecs"]:
                yield f"{name} {group['groupName']}", group["template"]["spec"]
        elif isinstance(spec.get("template"), dict) and "spec" in spec["template"]:
            yield name, spec["template"]["spec"]


def containers(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each container that stays, the autoscaler's among them: a name for messages, and what the manifest says."""
    for name, spec in pods(overlay):
        for container in spec["containers"]:
            yield f"{name} {container['name']}", container


def init_containers(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each container that runs before those."""
    for name, spec in pods(overlay):
        for container in spec.get("initContainers", ()):
            yield f"{name} {container['name']}", container
