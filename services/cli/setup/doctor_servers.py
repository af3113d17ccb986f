"""Do the servers that are configured answer? One function a server; none that is not configured is asked."""

from __future__ import annotations

import socket
import ssl
import urllib.parse
from collections.abc import Callable
from typing import Any

from edge.tls_files import tls_files
from services.cli.setup.check import Check, CheckState
from services.cli.setup.doctor_broker import TIMEOUT_S, login_at
from services.config import Settings
from services.errors import HothouseError
from services.log import kafka_options, log_address

__all__ = ["check_influx", "check_kafka", "check_mlflow", "check_ray", "check_uplink"]


def check_kafka(settings: Settings) -> Check | None:
    """Whether Kafka lets us in and lists its topics; creates none."""
    if settings.log.kind != "kafka":
        return None
    where = log_address(settings)
    return _ask_kafka("Kafka", where, settings.kafka.topic, lambda: kafka_options(settings), "kafka.")


def check_uplink(settings: Settings) -> Check | None:
    """Whether the central side lets us in; None where nothing is sent on."""
    uplink = settings.uplink
    if not uplink.to:
        return None
    advice = "Check the settings that begin with uplink."
    from edge.gateway.uplink.open_uplink import mqtt_address
    from edge.log.open_log import is_kafka

    if is_kafka(uplink.to):
        login = {
            "username": uplink.username, "password_file": uplink.password_file, "mechanism": uplink.mechanism,
            "tls": tls_files(uplink),
        }  # fmt: skip
        topic = uplink.to.rpartition("/")[2]
        return _ask_kafka("uplink", uplink.to, topic, lambda: login, "uplink.")
    try:
        address = mqtt_address(uplink.to, tls=tls_files(uplink))
        answer = login_at(address.host, address.port, uplink, v5=True)
    except (OSError, ValueError) as error:
        return Check("uplink", CheckState.FAIL, f"{uplink.to}: {error}", advice)
    if answer != "Success":
        return Check("uplink", CheckState.FAIL, f"{uplink.to}: {answer}", f"{advice} It must speak MQTT 5.")
    return Check("uplink", CheckState.OK, f"{uplink.to} answers")


def _ask_kafka(name: str, where: str, topic: str, options: Callable[[], dict[str, Any]], settings: str) -> Check:
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        from edge.log.kafka.address import kafka_address
        from edge.log.kafka.lost_connections import words_of
        from edge.log.kafka.topics import too_few_copies, topic_partitions
    except ModuleNotFoundError:
        return Check(
            name, CheckState.FAIL, "kafka-python is not installed", "pip install '.[kafka]' in Hothouse's folder"
        )
    try:
        admin = KafkaAdminClient(**kafka_address(where, timeout_s=TIMEOUT_S, **options()).options())
        try:
            if topic not in admin.list_topics():
                return Check(name, CheckState.OK, f"{where} answers; the topic will be created")
            partitions, servers = topic_partitions(admin, topic), len(admin.describe_cluster()["brokers"])
        finally:
            admin.close()
    except (KafkaError, OSError, ValueError, HothouseError) as error:
        words = words_of(error) if isinstance(error, KafkaError) else error
        return Check(name, CheckState.FAIL, f"{where}: {words}", f"Check the settings that begin with {settings}")
    behind = sum(set(each["isr_nodes"]) != set(each["replica_nodes"]) for each in partitions)
    if behind:
        return Check(
            name, CheckState.WARN, f"{where} answers; {behind} of {len(partitions)} partitions lack a copy now",
            "Stop no other server of Kafka before this is over (docs/kafka.md, upgrade Kafka's brokers).",
        )  # fmt: skip
    copies = min((len(each["replica_nodes"]) for each in partitions), default=servers)
    if few := too_few_copies(copies, servers):
        return Check(
            name, CheckState.WARN, f"{where} answers; the topic has {few}",
            "Give it three copies (docs/kafka.md, upgrade Kafka's brokers).",
        )  # fmt: skip
    return Check(name, CheckState.OK, f"{where} answers; the topic is there")


def check_ray(settings: Settings) -> Check | None:
    """Whether the cluster to join answers; None where none is configured."""
    address = settings.ray.address
    if not address or address == "auto":
        return None
    target = urllib.parse.urlsplit(address if "://" in address else f"ray://{address}")
    try:
        with socket.create_connection((target.hostname or "", target.port or 6379), TIMEOUT_S):
            return Check("Ray cluster", CheckState.OK, f"{address} answers")
    except (OSError, ValueError) as error:
        return Check(
            "Ray cluster", CheckState.FAIL, f"{address}: {error}", "Check ray.address, or empty it for a local runtime."
        )


def check_influx(settings: Settings) -> Check | None:
    """Whether InfluxDB answers a query with our token; None where none is configured."""
    influx = settings.influx
    if not influx.url:
        return None
    try:
        token = influx.secret
    except OSError as error:
        return Check("InfluxDB", CheckState.FAIL, f"influx.token_file: {error}", "Name a file that can be read.")
    query = f'from(bucket: "{influx.bucket}") |> range(start: -1m) |> limit(n: 1)'
    status, reason = _http(
        "POST", f"{influx.url.rstrip('/')}/api/v2/query", params={"org": influx.org}, json={"query": query},
        headers={"Authorization": f"Token {token}"},
    )  # fmt: skip
    if status == 200:
        return Check("InfluxDB", CheckState.OK, f"{influx.url} answers a query of {influx.bucket}")
    advice = "Check HOTHOUSE_INFLUX__TOKEN or influx.token_file." if status in (401, 403) else ""
    return Check(
        "InfluxDB",
        CheckState.FAIL,
        f"{influx.url}: {reason}",
        advice or "Check influx.url, influx.org and influx.bucket.",
    )


def check_mlflow(settings: Settings) -> Check | None:
    """Whether the MLflow server answers; None where the registry is a local file."""
    uri = settings.learn.mlflow_uri
    if not uri.startswith(("http://", "https://")):
        return None
    status, reason = _http("GET", f"{uri.rstrip('/')}/health")
    if status == 200:
        return Check("MLflow", CheckState.OK, f"{uri} answers")
    return Check(
        "MLflow", CheckState.FAIL, f"{uri}: {reason}", "Check learn.mlflow_uri, or empty it for a local registry."
    )


def _http(method: str, url: str, **content: Any) -> tuple[int, str]:
    """Status and reason of one request; status 0 when nobody answers."""
    import httpx  # `hothouse --help` must not pay for it

    try:
        answer = httpx.request(
            method, url, timeout=TIMEOUT_S, follow_redirects=True, verify=ssl.create_default_context(), **content
        )
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return 0, str(error)
    return answer.status_code, "" if answer.is_success else f"{answer.status_code} {answer.reason_phrase}"
