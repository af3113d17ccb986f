"""The manifests of deploy/kubernetes as `kubectl kustomize` makes them: no cluster is asked."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.compose.stack import ROOT
from tests.kubernetes.cluster import run

__all__ = [
    "JOBS", "KUBERNETES", "OVERLAYS", "containers", "init_containers", "objects", "pods", "templates", "text",
]  # fmt: skip

KUBERNETES = ROOT / "deploy/kubernetes"
JOBS = ("pretrain",)
"""Each is applied beside an installation: here with the overlay `small`."""
OVERLAYS = ("small", "production", "edge", *JOBS)


@functools.cache
def text(overlay: str) -> str:
    """An overlay, or an installation and a job, as it is given to a cluster."""
    if overlay in JOBS:
        return f"{text('small')}---\n{run('kubectl', 'kustomize', str(KUBERNETES / 'jobs' / overlay))}"
    return run("kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay))


@functools.cache
def objects(overlay: str) -> list[dict[str, Any]]:
    """Its objects; nobody changes them."""
    return [one for one in yaml.safe_load_all(text(overlay)) if one]


def templates(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The template of each pod, also of those that KubeRay's operator makes: its name, and what it says."""
    for one in objects(overlay):
        name, spec = f"{one['kind']}/{one['metadata']['name']}", one.get("spec", {})
        cluster = {"RayCluster": spec, "RayJob": spec.get("rayClusterSpec")}.get(one["kind"])
        if cluster is not None:
            yield f"{name} head", cluster["headGroupSpec"]["template"]
            for group in cluster.get("workerGroupSpecs", ()):
                yield f"{name} {group['groupName']}", group["template"]
        elif isinstance(spec.get("template"), dict) and "spec" in spec["template"]:
            yield name, spec["template"]


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pod's name and specification."""
    for name, template in templates(overlay):
        yield name, template["spec"]


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
