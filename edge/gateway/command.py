"""Step 2 of the way of a reading: the gateway's command line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.clock import ReplayedClock, WallClock
from edge.gateway.loop import Gateway
from edge.gateway.metrics import MetricsServer
from edge.gateway.settings import GatewaySettings
from edge.gateway.uplink.forward import Uplink
from edge.gateway.uplink.open import mqtt_address, open_target
from edge.lifeline import when_stdin_ends
from edge.log.contract import Log, LogError
from edge.log.open import is_kafka, open_log
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress

if TYPE_CHECKING:
    from edge.log.kafka.address import KafkaAddress

__all__ = ["main"]

_MIB = 2**20
_MOST_LINGER_MS = 1000
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Carry samples from an MQTT broker into a log, acknowledging what is durable.",
        epilog=f"example: {prog} --log hothouse-data/log.sqlite --host broker.example --port 8883 "
        "--username gateway --password-file secret --tls-ca ca.pem --status-file gateway-status.json",
    )
    parser.add_argument(
        "--log", required=True, help="SQLite file or kafka://host:port[,host:port]/topic; created if it is not there"
    )
    parser.add_argument("--partitions", type=int, default=4, help="of the log (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="broker (default: %(default)s)")
    parser.add_argument("--port", type=int, default=1883, help="of the broker (default: %(default)s)")
    parser.add_argument("--username", default="", help="if the broker wants one")
    parser.add_argument("--password-file", type=Path, help="file that holds the password")
    parser.add_argument("--tls-ca", type=Path, help="CA certificate; TLS is used when it is given")
    parser.add_argument("--mqtt", choices=("5", "3.1.1"), default="5", help="tried first (default: %(default)s)")
    parser.add_argument("--client-id", default="hothouse-gateway", help="names the session (default: %(default)s)")
    parser.add_argument("--linger-ms", type=float, default=20, help="wait for more messages (default: %(default)s)")
    parser.add_argument("--share", default="", help="gateways with the same name split the messages among them")
    parser.add_argument(
        "--topics", default="hothouse/#",
        help="asked for besides what is read, to count what comes on a wrong topic; '': nothing (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--clock", choices=("wall", "replayed"), default="wall", help="of receive times")
    parser.add_argument("--step-s", type=int, default=300, help="length of a row (default: %(default)s)")
    parser.add_argument("--status-file", type=Path, help="JSON, replaced every second")
    parser.add_argument("--metrics-port", type=int, help="answer GET /metrics for Prometheus there")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="address of it (default: %(default)s)")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input ends")
    _add_file_options(parser.add_argument_group("a log in a file"))
    _add_kafka_options(parser.add_argument_group("a log on Kafka"))
    _add_uplink_options(parser.add_argument_group("an uplink: the log is a buffer, its records go on to a central one"))
    return parser


def _add_file_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-mib", type=float, default=0, help="nothing is acknowledged beyond; 0: no limit")
    group.add_argument(
        "--reserve-mib", type=float, default=64,
        help="nothing is acknowledged while the disk has less than this left (default: %(default)s)",
    )  # fmt: skip


def _add_kafka_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kafka-username", default="", help="SASL, if the servers want one")
    group.add_argument("--kafka-password-file", type=Path, help="file that holds the password")
    group.add_argument(
        "--kafka-mechanism", choices=_MECHANISMS, default="SCRAM-SHA-512", help="of SASL (default: %(default)s)"
    )
    group.add_argument("--kafka-tls-ca", type=Path, help="CA certificate; TLS is used when it is given")
    group.add_argument("--kafka-replication", type=int, default=-1, help="of topics that are created")
    group.add_argument("--kafka-retention-h", type=int, default=720, help="of topics that are created; 0: for ever")
    group.add_argument("--kafka-direct-topic", default="", help="topic that sites write samples to themselves")


def _add_uplink_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--uplink", default="", help="kafka://host:port[,host:port]/topic, or mqtt://host[:port] of a central broker"
    )
    group.add_argument("--uplink-username", default="", help="if they want one")
    group.add_argument("--uplink-password-file", type=Path, help="file that holds the password")
    group.add_argument("--uplink-tls-ca", type=Path, help="CA certificate; TLS is used when it is given")
    group.add_argument("--uplink-mechanism", choices=_MECHANISMS, default="SCRAM-SHA-512", help="of SASL, for Kafka")
    group.add_argument("--uplink-partitions", type=int, default=4, help="of the log on Kafka (default: %(default)s)")


def main(arguments: Sequence[str] | None = None, prog: str = "python -m edge.gateway") -> int:
    """Run a gateway until SIGTERM or SIGINT; help and usage call it ``prog``.

    Exit codes: 0 stopped, 1 failed, 2 a wrong argument or log.
    """
    parser = _parser(prog)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # ten lines a second while it is away; errors reach us anyway
    try:
        for certificate in (given.tls_ca, given.kafka_tls_ca, given.uplink_tls_ca):
            if certificate is not None:
                certificate.read_bytes()
        settings = _settings(given)
        log = _open_log(given)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read a file: {error}")
    except (LogError, ValueError) as error:
        parser.error(str(error))
    with contextlib.closing(log):
        try:
            uplink = _uplink(given, log)
        except (LogError, ValueError) as error:
            parser.error(str(error))
        gateway = Gateway(settings, log, ReplayedClock() if given.clock == "replayed" else WallClock(), uplink)
        if given.metrics_port is not None:
            try:
                MetricsServer(given.metrics_host, given.metrics_port, gateway.status)
            except OSError as error:
                parser.error(f"metrics cannot be served at {given.metrics_host}:{given.metrics_port}: {error}")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: gateway.stop())
        if given.stop_with_stdin:
            when_stdin_ends(gateway.stop)
        gateway.run()
    return 0


def _settings(given: argparse.Namespace) -> GatewaySettings:
    if not 0 <= given.linger_ms <= _MOST_LINGER_MS:
        raise ValueError(f"--linger-ms {given.linger_ms:g}: give 0 to {_MOST_LINGER_MS}")
    broker = MqttAddress(
        host=given.host, port=given.port, username=given.username, password=_secret(given.password_file),
        tls_ca=given.tls_ca, v5=given.mqtt == "5",
    )  # fmt: skip
    return GatewaySettings(
        broker=broker, client_id=given.client_id, step_s=given.step_s, status_file=given.status_file,
        share=given.share, topics=given.topics, direct=_direct(given), linger_s=given.linger_ms / 1000,
    )  # fmt: skip


def _kafka(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "username": given.kafka_username, "password": _secret(given.kafka_password_file),
        "mechanism": given.kafka_mechanism, "tls_ca": given.kafka_tls_ca, "replication": given.kafka_replication,
        "retention_h": given.kafka_retention_h,
    }  # fmt: skip


def _direct(given: argparse.Namespace) -> KafkaAddress | None:
    if not given.kafka_direct_topic:
        return None
    if not is_kafka(given.log):
        raise ValueError("--kafka-direct-topic needs a log on Kafka")
    from edge.log.kafka.address import kafka_address

    group = f"{given.client_id}-direct"
    return replace(kafka_address(given.log, **_kafka(given)), topic=given.kafka_direct_topic, group=group)


def _open_log(given: argparse.Namespace) -> Log:
    if is_kafka(given.log):
        return open_log(given.log, given.partitions, **_kafka(given))
    max_bytes = round(given.max_mib * _MIB) or None
    return SqliteLog(given.log, given.partitions, max_bytes=max_bytes, reserve_bytes=round(given.reserve_mib * _MIB))


def _uplink(given: argparse.Namespace, log: Log) -> Uplink | None:
    if not given.uplink:
        return None
    if not isinstance(log, SqliteLog):
        raise ValueError("--uplink needs a log in a file: it is the buffer")
    if not is_kafka(given.uplink):
        to = mqtt_address(given.uplink, tls_ca=given.uplink_tls_ca)
        if (to.host, to.port) == (given.host, given.port):
            raise ValueError("--uplink names the broker that this gateway reads: its records would go round for ever")
    target = open_target(
        given.uplink, log.id, username=given.uplink_username, password=_secret(given.uplink_password_file),
        tls_ca=given.uplink_tls_ca, mechanism=given.uplink_mechanism, partitions=given.uplink_partitions,
    )  # fmt: skip
    return Uplink(log, target)


def _secret(path: Path | None) -> str:
    return path.read_text().strip() if path else ""
