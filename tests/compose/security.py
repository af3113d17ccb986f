"""What must be refused, and what nobody may see, asked of the running containers. Standard library only."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.compose.listening import READ, listening, not_as_told
from tests.compose.stack import ROOT, Stack, StackError

__all__ = ["listens", "refusals", "secrets_kept"]

SECRETS = ROOT / "deploy" / "secrets"
OWN = ("simulator", "gateway", "mlflow", "ray-head", "ray-worker", "front", "service")
PORCH = "hothouse/v1/demo/tomato-1/porch/sample"
OTHERS = "hothouse/v1/demo/tomato-1/climate/sample"
JOIN = (
    "import ray; ray.init(address='ray-head:6379', logging_level='ERROR', log_to_driver=False); print(len(ray.nodes()))"
)
Check = tuple[str, bool, str]  # what, whether it holds, what was seen


def refusals(stack: Stack) -> Iterator[Check]:
    """Each with its counterpart that must work, so that a refusal is no mere failure."""

    def publish(login: str, topic: str) -> dict[str, str]:
        file = f"/passwords/mqtt_{login}"
        mount = {SECRETS / f"mqtt_{login}": file} if login else {}
        found: dict[str, str] = stack.run_inside(
            "simulator", "publish.py", "mosquitto", login, file, topic, mount=mount
        )
        return found

    said = publish("porch", PORCH)
    yield "a device publishes to its own topic", said["publish"] in ("Success", "No matching subscribers"), str(said)
    said = publish("porch", OTHERS)
    yield "a publish to another device's topic is refused", said["publish"] == "Not authorized", str(said)
    said = publish("", PORCH)
    yield "a publish without a login is refused", said["connect"] == "Not authorized", str(said)
    seen = _join(stack)
    yield "a Ray job with the token runs", seen.isdigit(), seen
    for what, variable in (
        ("without a token", "RAY_AUTH_MODE=disabled"),
        ("with a wrong token", "RAY_AUTH_TOKEN=wrong"),
    ):
        seen = _join(stack, variable)
        yield f"a Ray job {what} is refused", not seen.isdigit(), seen.splitlines()[-1]


def listens(stack: Stack) -> Iterator[Check]:
    """What listens is what docs/security.md says: in each container, and on the host."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    published = set[str]()
    for container, service in stack.containers().items():
        seen[service] |= listening(stack.docker("exec", container, *READ))
        (one,) = json.loads(stack.docker("inspect", container))
        published |= {
            f"{bound['HostIp']}:{bound['HostPort']}"
            for bindings in one["NetworkSettings"]["Ports"].values() for bound in bindings or ()
        }  # fmt: skip
    wrong = not_as_told("compose", seen)
    said = "; ".join(wrong) or f"{sum(map(len, seen.values()))} ports of {len(seen)} parts"
    yield "what listens is what docs/security.md says", not wrong, said
    yield "the API alone is published, on loopback", published == {f"127.0.0.1:{stack.port}"}, " ".join(published)


def secrets_kept(stack: Stack) -> Iterator[Check]:
    """Nothing of `deploy/secrets` in an image, a log, a list of processes or a setting; containers may do little."""
    secrets = [word for file in sorted(SECRETS.iterdir()) if file.is_file() for word in _words(file)]
    services = stack.compose("ps", "-a", "--services").split()

    def clean(text: str) -> bool:
        return not any(secret in text for secret in secrets)

    logs = stack.compose("logs", "--no-color")
    yield "no secret in a log", clean(logs), f"{len(logs.splitlines())} lines of {len(services)} containers"
    processes = stack.compose("top")
    yield "no secret in ps", clean(processes), f"{len(processes.splitlines())} lines"
    settings = stack.docker("inspect", *(stack.container(service) for service in services))
    yield "no secret in a container's environment or command", clean(settings), f"{len(services)} containers"
    images = sorted({one["Image"] for one in json.loads(settings)})
    told = "".join(stack.docker("history", "--no-trunc", image) for image in images)
    found = [_in_files(stack, service, secrets) for service in ("simulator", "service")]
    yield (
        "no secret in an image",
        clean(told) and not any(found),
        f"{len(images)} histories, files of our two images {found}",
    )
    wrong = [
        service for service in OWN
        if (one := stack.inspect(service))["Config"]["User"].split(":")[0] in ("", "0", "root")
        or not one["HostConfig"]["ReadonlyRootfs"] or one["HostConfig"]["CapDrop"] != ["ALL"]
    ]  # fmt: skip
    yield "our containers run as nobody's root, on a read-only file system", not wrong, " ".join(wrong) or "all"


def _words(file: Path) -> list[str]:
    """What is secret in a file: passwords, tokens and hashes; not the rules."""
    if file.name == "mosquitto_acl":
        return []
    if file.name == "storage_credentials":
        return [file.read_text().split()[-1]]
    return [line.split(":")[-1] for line in file.read_text().split()]


def _join(stack: Stack, *variables: str) -> str:
    options = [word for variable in variables for word in ("-e", variable)]
    try:
        return stack.compose("exec", "-T", *options, "service", "timeout", "60", "python3", "-c", JOIN).strip()
    except StackError as error:
        return str(error)


def _in_files(stack: Stack, service: str, secrets: list[str]) -> str:
    """The files of a service's image that hold a secret, but for those that come in from outside."""
    image = stack.inspect(service)["Config"]["Image"]
    command = "cat >/tmp/words; grep -rlFf /tmp/words / --exclude-dir=proc --exclude-dir=sys --exclude-dir=tmp || true"
    run = ["docker", "run", "--rm", "-i", "--network=none", "--user=0", "--entrypoint=sh", image, "-c", command]
    return stack.pipe(run, "\n".join(secrets), timeout_s=300).strip()
