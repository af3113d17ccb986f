"""What the API server lets the accounts of an installation do."""

from __future__ import annotations

import subprocess

__all__ = ["ACCOUNTS", "QUESTIONS", "may", "rights"]

ACCOUNTS = ("gateway", "hothouse", "mlflow", "mosquitto", "ray-head", "ray-worker", "redis")
QUESTIONS = (
    "get secrets", "list pods", "create pods", "create pods/exec", "delete pods", "get configmaps", "list namespaces",
    "patch deployments", "patch rayclusters.ray.io", "create rayjobs.ray.io", "get nodes", "escalate roles",
)  # fmt: skip


def may(account: str, what: str, namespace: str = "hothouse") -> bool:
    """Whether an account may do that: `kubectl auth can-i`."""
    whose = f"--as=system:serviceaccount:{namespace}:{account}"
    command = ["kubectl", "auth", "can-i", *what.split(), "-n", namespace, whose]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()
    assert said, done.stderr
    return said[-1] == "yes"


def rights() -> list[str]:
    """What accounts of the installation may do of :data:`QUESTIONS`."""
    return [f"{account}: {what}" for account in ACCOUNTS for what in QUESTIONS if may(account, what)]
