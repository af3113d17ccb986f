"""What every manifest must say, read from what `kubectl kustomize` makes of it; no cluster is asked."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest

from tests.kubernetes.accounts import ACCOUNTS
from tests.kubernetes.manifests import KUBERNETES, OVERLAYS, containers, init_containers, objects, pods, templates

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.parametrize("overlay", OVERLAYS),
]
FROM_SECRETS = {"REDIS_PASSWORD"}
"""What KubeRay puts into a variable and knows no file for; the manifests themselves have none."""


def test_no_container_may_do_what_it_need_not(overlay: str) -> None:
    """Nobody's root, no capability, a root file system that nobody writes."""
    seen = [*containers(overlay), *init_containers(overlay)]
    assert seen
    for name, container in seen:
        said = container["securityContext"]
        assert said["allowPrivilegeEscalation"] is False, name
        assert said["readOnlyRootFilesystem"] is True, name
        assert said["capabilities"] == {"drop": ["ALL"]}, name


def test_every_pod_is_nobodys_root_and_has_no_token(overlay: str) -> None:
    """A user by number, the runtime's seccomp profile, an account of its own, and no token of it."""
    accounts = {one["metadata"]["name"] for one in objects(overlay) if one["kind"] == "ServiceAccount"}
    for name, spec in pods(overlay):
        said = spec["securityContext"]
        assert said["runAsNonRoot"] is True, name
        assert said["runAsUser"] > 0, name
        assert said["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["serviceAccountName"] in accounts, name
        assert spec["enableServiceLinks"] is False, f"{name}: its variables would look like our settings"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name


def test_the_accounts_are_those_that_the_cluster_is_asked_for(overlay: str) -> None:
    """test_cluster.py asks for each whether it may do anything."""
    assert {one["metadata"]["name"] for one in objects(overlay) if one["kind"] == "ServiceAccount"} <= set(ACCOUNTS)


def test_every_container_has_requests_limits_and_probes(overlay: str) -> None:
    """A pod without a limit takes its node along; one without a probe is never missed."""
    for name, container in [*containers(overlay), *init_containers(overlay)]:
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][kind].keys(), f"{name}: {kind}"
    for name, container in containers(overlay):
        assert {"readinessProbe", "livenessProbe"} <= container.keys(), name


def test_every_secret_is_a_file(overlay: str) -> None:
    """A variable is seen by whoever may look at the pod, and inherited by every process."""
    for name, container in [*containers(overlay), *init_containers(overlay)]:
        for variable in container.get("env", ()):
            assert "secretKeyRef" not in variable.get("valueFrom", {}), f"{name}: {variable['name']}"
        assert not any("secretRef" in source for source in container.get("envFrom", ())), name
    for name, spec in pods(overlay):
        for volume in spec.get("volumes", ()):
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] & 0o007 == 0, f"{name}: {volume['name']} is for everybody"
    clusters = [one for one in objects(overlay) if one["kind"] == "RayCluster"]
    exceptions = {"REDIS_PASSWORD" for one in clusters if "redisPassword" in one["spec"]["gcsFaultToleranceOptions"]}
    assert exceptions <= FROM_SECRETS


def test_no_device_guesses_a_gateways_client_id(overlay: str) -> None:
    """The broker would give it what it keeps for that gateway. The id is made with a secret of the gateways alone."""
    gateways = [container for _, container in containers(overlay) if container["name"] == "gateway"]
    assert gateways
    for gateway in gateways:
        said = {each["name"]: each.get("value") for each in gateway["env"]}
        assert said["HOTHOUSE_MQTT__SESSION_SECRET_FILE"] == "/run/secrets/mqtt/session-secret"
        assert "/run/secrets/mqtt" in {mount["mountPath"] for mount in gateway["volumeMounts"]}
    made = (KUBERNETES / "secrets.sh").read_text()
    assert re.search(r"^secret hothouse-mqtt-gateway .*\bsession-secret=gateway_session$", made, re.MULTILINE)


def test_no_device_guesses_the_systems_client_id(overlay: str) -> None:
    """It could cut Home Assistant's link off, again and again. Who publishes for the system has its secret."""
    made = (KUBERNETES / "secrets.sh").read_text()
    assert re.search(r"^secret hothouse-mqtt-system .*\bsession-secret=system_session$", made, re.MULTILINE)
    if overlay != "edge":
        settings = (KUBERNETES / "base/system/settings.env").read_text().splitlines()
        assert "HOTHOUSE_MQTT__SESSION_SECRET_FILE=/run/secrets/mqtt/session-secret" in settings


def test_redis_is_asked_by_tls(overlay: str) -> None:
    """It has no other port; the head asks it so, and knows by which authority to check it."""
    redis = [container["args"][0] for name, container in containers(overlay) if name.endswith(" redis")]
    heads = [(name, container) for name, container in containers(overlay) if name.endswith(" ray-head")]
    assert len(redis) == len(heads) == (0 if overlay == "edge" else 1)
    assert all(r"\nport 0\ntls-port 6379\n" in said for said in redis)
    for cluster in (one for one in objects(overlay) if one["kind"] == "RayCluster"):
        assert cluster["spec"]["gcsFaultToleranceOptions"]["redisAddress"] == "rediss://redis:6379"
    for name, head in heads:
        [authority] = [one["value"] for one in head["env"] if one["name"] == "RAY_REDIS_CA_CERT"]
        assert any(authority == f"{mount['mountPath']}/ca.crt" for mount in head["volumeMounts"]), name


def test_no_secret_is_in_the_repository(overlay: str) -> None:
    """They are made where they are used (deploy/kubernetes/secrets.sh)."""
    assert not [one["metadata"]["name"] for one in objects(overlay) if one["kind"] == "Secret"]


def test_every_secret_that_is_mounted_is_made(overlay: str) -> None:
    """By deploy/kubernetes/secrets.sh; a site writes down itself how it reaches the central broker."""
    script = (KUBERNETES / "secrets.sh").read_text()
    made = set(re.findall(r"^secret (\S+)", script, re.MULTILINE))
    keys = {name: set(re.findall(r" (\S+?)=", line)) for name, line in re.findall(r"^secret (\S+)(.*)$", script, re.M)}
    for name, spec in pods(overlay):
        volumes = spec.get("volumes", ())
        secrets = [one["secret"] for one in volumes if "secret" in one]
        secrets += [
            one["secret"]
            for volume in volumes
            for one in volume.get("projected", {}).get("sources", ())
            if "secret" in one
        ]
        for secret in secrets:
            wanted = secret.get("secretName") or secret["name"]  # of a volume, and of a source of one
            if wanted != "hothouse-uplink":
                assert wanted in made, name
                assert {item["key"] for item in secret.get("items", ())} <= keys[wanted], name


def test_images_are_never_pulled_anew_by_a_tag_that_moves(overlay: str) -> None:
    """A tag `latest` means Always otherwise, and no node would start without the registry."""
    for name, container in [*containers(overlay), *init_containers(overlay)]:
        assert container["imagePullPolicy"] == "IfNotPresent", name


def test_policies_select_pods_that_there_are(overlay: str) -> None:
    """A policy or a budget for a label that nothing has protects nothing."""
    labels = [{**label, **_ray(name)} for name, label in _labels(overlay)]
    for one in objects(overlay):
        match one["kind"]:
            case "NetworkPolicy":
                selector = one["spec"]["podSelector"]
            case "PodDisruptionBudget":
                selector = one["spec"]["selector"]
            case "Service":
                selector = {"matchLabels": one["spec"]["selector"]}
            case _:
                continue
        if one["metadata"]["name"] == "redis-cleanup":  # the operator's job, when a cluster is deleted
            continue
        assert any(_selects(selector, label) for label in labels), f"{one['kind']}/{one['metadata']['name']}"


def test_a_budget_of_ray_nodes_says_how_many_stay(overlay: str) -> None:
    """A RayCluster has no subresource `scale`: Kubernetes can make nothing of `maxUnavailable`."""
    budgets = [one for one in objects(overlay) if one["kind"] == "PodDisruptionBudget"]
    rays = [one["spec"] for one in budgets if one["metadata"]["name"].startswith("ray")]
    assert rays or overlay == "edge"
    assert all("minAvailable" in spec for spec in rays)


def test_a_job_takes_no_pod_that_the_operator_makes_up(overlay: str) -> None:
    """It asks its cluster by HTTP; a submitter of its own making has no limits, and one beside the head is refused."""
    for job in (one["spec"] for one in objects(overlay) if one["kind"] == "RayJob"):
        assert job["submissionMode"] == "HTTPMode"
        assert job["shutdownAfterJobFinishes"] is True
        assert job["activeDeadlineSeconds"] > 0
        assert job["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "hothouse-ray"}


def test_a_job_finds_its_settings(overlay: str) -> None:
    """The ConfigMap that a container names is there: it has a hash in its name."""
    there = {one["metadata"]["name"] for one in objects(overlay) if one["kind"] == "ConfigMap"}
    for name, container in containers(overlay):
        for source in container.get("envFrom", ()):
            assert source["configMapRef"]["name"] in there, name


def test_the_api_is_asked_where_its_replicas_are(overlay: str) -> None:
    """What settings, worker group and service call it, and the port that a replica takes, belong together."""
    found = {one["kind"]: one for one in objects(overlay) if one["kind"] == "RayCluster"}
    if not found:
        return
    [group] = [one for one in found["RayCluster"]["spec"]["workerGroupSpecs"] if one["groupName"] == "api"]
    [settings] = [
        one["data"] for one in objects(overlay)
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("hothouse-settings")
    ]  # fmt: skip
    has = json.loads(json.loads(group["rayStartParams"]["resources"]))
    assert has == {settings["HOTHOUSE_RAY__API_RESOURCE"]: 1}
    assert group["rayStartParams"]["num-cpus"] == "0"
    assert int(settings["HOTHOUSE_API__REPLICAS"]) == group["replicas"]
    [service] = [one["spec"] for one in objects(overlay) if one["metadata"]["name"] == "hothouse-api"]
    labels = group["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert labels["app.kubernetes.io/component"] == "ray-api"
    container = group["template"]["spec"]["containers"][0]
    env = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    first, after = (int(env[f"RAY_SERVE_DIRECT_INGRESS_{end}_HTTP_PORT"]) for end in ("MIN", "MAX"))
    [http] = [port["containerPort"] for port in container["ports"] if port["name"] == "http"]
    assert [*range(first, after)] == [service["ports"][0]["targetPort"]] == [http]


def test_a_generation_asks_its_own_api(overlay: str) -> None:
    """Not by the head's proxy, whose loss would hold a replica up; and not the generation that is being replaced."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects(overlay)}
    if ("RayCluster", "hothouse-a") not in found:
        return
    service, public = (found["Service", name]["spec"] for name in ("hothouse-a-api", "hothouse-api"))
    assert service == public
    [container] = found["Deployment", "hothouse-a"]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["HOTHOUSE_API__URL"] == "http://hothouse-a-api"


def test_nothing_goes_in_or_out_by_default(overlay: str) -> None:
    """One policy for all pods, of both directions, that allows nothing."""
    found = [one["spec"] for one in objects(overlay) if one["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in found


def _labels(overlay: str) -> list[tuple[str, dict[str, str]]]:
    return [(name, template["metadata"]["labels"]) for name, template in templates(overlay)]


def _ray(name: str) -> dict[str, str]:
    """What the operator adds to the pods of a group."""
    kind, _, group = name.partition(" ")
    if not kind.startswith("Ray"):
        return {}
    return {"ray.io/node-type": "head"} if group == "head" else {"ray.io/node-type": "worker", "ray.io/group": group}


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", ()))
