"""What the API server lets the accounts of an installation do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

__all__ = ["ACCOUNTS", "QUESTIONS", "may", "rights"]

ACCOUNTS = ("gateway", "hothouse", "mlflow", "mosquitto", "ray-head", "ray-worker", "redis")
QUESTIONS = (
    "get secrets", "list pods", "create pods", "create pods/exec", "delete pods", "get configmaps", "list namespaces",
    "patch deployments.apps", "patch rayclusters.ray.io", "create rayjobs.ray.io", "get nodes",
    "escalate roles.rbac.authorization.k8s.io",
)  # fmt: skip
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def may(account: str, what: str, namespace: str = "hothouse") -> bool:
    """Whether an account may do that: `kubectl auth can-i`."""
    whose = f"--as=system:serviceaccount:{namespace}:{account}"
    command = ["kubectl", "auth", "can-i", *what.split(), "-n", namespace, whose]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()
    assert said, done.stderr
    return said[-1] == "yes"


def rights(post: Callable[[str, Any], Any], namespace: str = "hothouse") -> list[str]:
    """What accounts of the installation may do of :data:`QUESTIONS`, by one review each.

    ``post`` sends an object to a path of the API server and returns the answer: 84 starts of `kubectl` take half a
    minute. An administrator, who may do all, is asked for, too: reviews that allow nobody anything say nothing.
    """

    def allowed(user: str, groups: list[str], what: str) -> bool:
        verb, of = what.split()
        resource, _, sub = of.partition("/")
        resource, _, group = resource.partition(".")
        wanted = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub}
        spec = {"user": user, "groups": groups, "resourceAttributes": wanted}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(post(REVIEWS, review)["status"]["allowed"])

    refused = [what for what in QUESTIONS if not allowed("anybody", ["system:masters"], what)]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    users = {account: f"system:serviceaccount:{namespace}:{account}" for account in ACCOUNTS}
    may_do = [f"{one}: {what}" for one, user in users.items() for what in QUESTIONS if allowed(user, groups, what)]
    return [*(f"an administrator may not {what}" for what in refused), *may_do]
