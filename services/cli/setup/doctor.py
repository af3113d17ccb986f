"""Is this machine ready? Each check is one function that looks, and says what to do; none changes anything."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

from services.cli.base import CLUSTER_MODULES
from services.cli.setup.check import Check, CheckState
from services.cli.setup.doctor_broker import check_broker, running_here
from services.cli.setup.doctor_files import check_files
from services.cli.setup.doctor_servers import (
    check_influx,
    check_kafka,
    check_mlflow,
    check_ray,
    check_uplink,
)
from services.cli.setup.doctor_storage import check_storage
from services.cli.setup.doctor_units import check_units
from services.cli.setup.settings_view import unknown_variables
from services.config import Settings
from services.errors import StartError
from services.runtime.leftovers import no_room
from services.runtime.ports import listening_ports, shared_ports

__all__ = ["examine"]

GIB = 2**30
ENDS_SOON = timedelta(days=14)


def examine(settings: Settings) -> list[Check]:
    """Run every check, in the order in which a person would mend things; takes at most some seconds a server."""
    checks: list[Callable[[Settings], Check | None]] = [
        _configuration, check_files, _python, _packages, _cluster_part, _memory, _data_folder, _temporary_folder,
        check_storage, check_units, _clock, _ports, _certificate, check_broker, check_kafka,
        check_uplink, _decoders, _ingress, check_ray, check_influx, check_mlflow,
    ]  # fmt: skip
    return [found for check in checks if (found := check(settings)) is not None]


def _configuration(_: Settings) -> Check:
    name = "configuration"
    if unknown := unknown_variables():
        return Check(
            name, CheckState.WARN, f"{', '.join(unknown)} is no setting", "`hothouse config` lists every setting."
        )
    return Check(name, CheckState.OK, "every setting is valid")


def _python(_: Settings) -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("Python", CheckState.FAIL, found, "Use Python 3.11, 3.12 or 3.13.")
    return Check("Python", CheckState.OK, found)


def _packages(_: Settings) -> Check:
    name = "packages"
    try:
        wanted = metadata.requires("hothouse") or []
    except metadata.PackageNotFoundError:
        return Check(name, CheckState.WARN, "hothouse itself is not installed", "pip install -e . in its folder.")
    wrong = []
    for requirement in wanted:
        package, lowest, highest, optional = _parse(requirement)
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            if not optional:
                wrong.append(f"{package} is missing")
            continue
        if _numbers(version) < _numbers(lowest) or (highest and _numbers(version) >= _numbers(highest)):
            wrong.append(f"{package} {version} (wanted {lowest} or newer{f', below {highest}' if highest else ''})")
    if wrong:
        return Check(
            name, CheckState.FAIL, "; ".join(wrong), "Install the tested set: pip install -r requirements.lock"
        )
    return Check(name, CheckState.OK, "all versions fit")


def _parse(requirement: str) -> tuple[str, str, str, bool]:
    """A requirement of our own metadata: (package, lowest version, first version too new, is it of an extra).

    >>> _parse('ray[data,serve]<2.61,>=2.60; extra == "cluster"')
    ('ray', '2.60', '2.61', True)
    """
    text, _, marker = requirement.partition(";")
    package = re.match(r"[A-Za-z0-9._-]+", text)
    lowest = re.search(r">=\s*([0-9.]+)", text)
    highest = re.search(r"<\s*([0-9.]+)", text)
    return (
        package.group() if package else text,
        lowest.group(1) if lowest else "0",
        highest.group(1) if highest else "",
        "extra" in marker,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without closing zeros: 2.60.0 is 2.60.

    >>> _numbers("2.60.0+cpu") == _numbers("2.60"), _numbers("3.1rc1")
    (True, (3, 1))
    """
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    numbers = [int(part) for part in match.group().split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _decoders(settings: Settings) -> Check | None:
    names = settings.gateway.decoders
    if not names or settings.mqtt.gateway == "elsewhere":
        return None
    from edge.gateway.decoders import DecoderError, load_decoders  # `hothouse --help` must not pay for the gateway

    try:
        load_decoders(names)
    except DecoderError as error:
        return Check("decoders", CheckState.FAIL, str(error), "docs/decoders.md says what a decoder is.")
    return Check("decoders", CheckState.OK, ", ".join(names))


def _cluster_part(_: Settings) -> Check:
    missing = [name for name in CLUSTER_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        return Check(
            "cluster part",
            CheckState.WARN,
            f"edge install: without {', '.join(missing)}",
            "Enough for simulate, replay and gateway. For the rest: pip install '.[cluster]' in Hothouse's folder",
        )
    return Check("cluster part", CheckState.OK, f"Ray {metadata.version('ray')}, torch {metadata.version('torch')}")


def _memory(_: Settings) -> Check | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024 / GIB
    except (OSError, StopIteration, ValueError):
        return None  # only Linux tells
    cores = len(os.sched_getaffinity(0))
    found = f"{free:.1f} GiB free, {cores} {'core' if cores == 1 else 'cores'}"
    if free < 2:
        return Check("memory", CheckState.FAIL, found, "The whole system needs about 3 GiB; close other programs.")
    if free < 4 or cores < 2:
        return Check("memory", CheckState.WARN, found, "4 GiB and 2 cores leave room for retraining.")
    return Check("memory", CheckState.OK, found)


def _data_folder(settings: Settings) -> Check:
    name = "data folder"
    folder = settings.data_dir.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check(
            name, CheckState.FAIL, f"{existing} cannot be written: {error.strerror}", "Set data_dir to another folder."
        )
    free = shutil.disk_usage(existing).free / GIB
    found = f"{folder}, {free:.1f} GiB free"
    if free < 0.5:
        return Check(name, CheckState.FAIL, found, "Make room, or set data_dir to another disk.")
    if free < 5:
        return Check(name, CheckState.WARN, found, "Log and history grow; 5 GiB or more is comfortable.")
    return Check(name, CheckState.OK, found)


def _temporary_folder(settings: Settings) -> Check | None:
    why, advice = no_room()
    return Check("temporary files", CheckState.FAIL, why, advice) if why and not settings.ray.address else None


def _clock(_: Settings) -> Check:
    now = datetime.now(UTC)
    found = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if not 2025 <= now.year < 2100:
        return Check("clock", CheckState.FAIL, found, "Set it: samples from the future or from long ago are refused.")
    if Path("/run/systemd/timesync").is_dir() and not Path("/run/systemd/timesync/synchronized").exists():
        return Check("clock", CheckState.WARN, f"{found}, not synchronised", "Switch NTP on: timedatectl set-ntp true")
    return Check("clock", CheckState.OK, found)


def _ports(settings: Settings) -> Check:
    name, ports = "ports", listening_ports(settings)
    if not ports:
        return Check(name, CheckState.OK, "free ones are chosen")
    named = ", ".join(f"{one.setting} {one.host}:{one.port}" for one in ports)
    problems = shared_ports(ports)
    if running_here(settings) is None:
        problems += [problem for one in ports if (problem := one.problem())]
    elif not problems:
        return Check(name, CheckState.OK, f"{named}: of the Hothouse that runs here")
    if problems:
        advice = " ".join(dict.fromkeys(problem.advice for problem in problems))
        return Check(name, CheckState.FAIL, "; ".join(problem.why for problem in problems), advice)
    return Check(name, CheckState.OK, f"{named}: free")


def _certificate(settings: Settings) -> Check | None:
    api = settings.api
    if api.tls_cert_file is None or api.tls_key_file is None:
        return None
    from services.runtime.certificate import checked, end_ms

    name = "certificate"
    try:
        ends_ms = end_ms(checked(api.tls_cert_file, api.tls_key_file))
    except StartError as error:
        return Check(name, CheckState.FAIL, error.message, error.hint)
    if ends_ms is None:
        return Check(name, CheckState.WARN, f"{api.tls_cert_file} does not tell when it ends", "Give it as plain PEM.")
    ends, now = datetime.fromtimestamp(ends_ms / 1000, UTC), datetime.now(UTC)
    said = f"{api.tls_cert_file} ends on {ends:%Y-%m-%d}"
    if ends <= now:
        return Check(name, CheckState.FAIL, said, "Renew it; a running system follows.")
    if ends - now < ENDS_SOON:
        return Check(name, CheckState.WARN, said, "Renew it; a running system follows.")
    return Check(name, CheckState.OK, said)


def _ingress(_: Settings) -> Check | None:
    if importlib.util.find_spec("ray") is None:
        return None
    from services.runtime.ingress import probe_ingress

    ingress = probe_ingress()
    if ingress.kind == "haproxy":
        return Check("HTTP ingress", CheckState.OK, f"HAProxy ({ingress.binary})")
    return Check(
        "HTTP ingress",
        CheckState.WARN,
        f"Serve's own proxy: {ingress.reason}",
        "/predict answers slower than with HAProxy.",
    )
