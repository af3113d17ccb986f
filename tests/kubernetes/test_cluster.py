"""What a real API server says of the manifests: `KUBECONFIG` names one that has KubeRay's kinds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.kubernetes.accounts import ACCOUNTS, QUESTIONS, may
from tests.kubernetes.cluster import ClusterError, kubeconfig, run
from tests.kubernetes.manifests import OVERLAYS, objects, text

pytestmark = pytest.mark.kubernetes
PROMETHEUS = "monitoring.coreos.com"
"""Kinds of Prometheus' operator: a cluster may have their definitions by `python3 -m tests.kubernetes.definitions`."""


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[str]:
    """The one that the manifests name: a dry run makes none for what is in it."""
    if problem := kubeconfig():
        pytest.skip(f"no Kubernetes: {problem}")
    there = (
        subprocess.run(["kubectl", "get", "namespace", "hothouse"], capture_output=True, check=False).returncode == 0
    )
    if not there:
        run("kubectl", "create", "namespace", "hothouse")
    yield "hothouse"
    if not there:
        run("kubectl", "delete", "namespace", "hothouse")


def dry_run(manifest: str) -> str:
    """What the API server would do, every field known to it; raises :class:`ClusterError`."""
    command = ("kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    return run(*command, "-f", "-", text=manifest)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_manifest(overlay: str) -> None:
    """Kubernetes', KubeRay's and, where they are there, Prometheus' schemas, strictly; and what admission says."""
    known = run("kubectl", "api-resources", f"--api-group={PROMETHEUS}", "--output=name")
    wanted = [one for one in objects(overlay) if known or not one["apiVersion"].startswith(PROMETHEUS)]
    said = dry_run("\n---\n".join(json.dumps(one) for one in wanted))
    assert said.count("(server dry run)") == len(wanted)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("gcsFaultToleranceOptions:", "gcsFaultToleranceOption:"), ("runAsNonRoot:", "runAsNonroot:"),
     ("maxUnavailable:", "maxUnavailble:"), ("minReplicas:", "minReplica:")],
)  # fmt: skip
def test_a_misspelt_field_fails(right: str, wrong: str) -> None:
    """Else a typing error would be a setting that is silently not there."""
    manifest = text("small")
    assert right in manifest
    with pytest.raises(ClusterError, match=f"{wrong[:-1]}: field not declared in schema"):
        dry_run(manifest.replace(right, wrong))


def test_the_namespace_refuses_a_pod_that_asks_for_more() -> None:
    """Its profile is `restricted`: the API server itself refuses a pod that runs as root."""
    labels = next(one for one in objects("small") if one["kind"] == "Namespace")["metadata"]["labels"]
    name = "hothouse-refuses"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    run("kubectl", "apply", "-f", "-", text=json.dumps(made))
    try:
        with pytest.raises(ClusterError, match="violates PodSecurity"):
            run("kubectl", "-n", name, "run", "root", "--image=redis:7", "--dry-run=server")
    finally:
        run("kubectl", "delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("what", QUESTIONS)
def test_no_account_may_ask_the_api_server_for_anything(account: str, what: str) -> None:
    """`kubectl auth can-i`: none of ours needs it. ``tests.kubernetes.run`` asks the same of the installation."""
    assert not may(account, what)


@pytest.mark.parametrize(("verb", "can"), [("get", True), ("delete", False)])
def test_what_a_role_allows_is_seen(verb: str, can: bool) -> None:
    """Else the questions above would be answered by no whatever an account may do."""
    role = ("create", "role", "reader", "--verb=get", "--resource=secrets")
    binding = ("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=hothouse:gateway")
    run("kubectl", "-n", "hothouse", *role)
    try:
        run("kubectl", "-n", "hothouse", *binding)
        assert may("gateway", f"{verb} secrets") == can
    finally:
        run("kubectl", "-n", "hothouse", "delete", "role,rolebinding", "reader", "--ignore-not-found")
