"""Step 2 of the way of a reading: the gateway's program. What it does is in the settings (``edge.config``)."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edge.clock import ReplayedClock, WallClock
from edge.config import (
    EdgeSettings,
    SettingsError,
    gateway_settings,
    kafka_options,
    log_address,
    read_secret,
    stray_variables,
)
from edge.core_dumps import leave_no_core_dumps
from edge.gateway.decoders import load_decoders
from edge.gateway.loop import Gateway
from edge.gateway.metrics import MetricsServer
from edge.gateway.settings import GatewayOptions
from edge.gateway.uplink.forward import Uplink
from edge.gateway.uplink.open_uplink import mqtt_address, open_target
from edge.listening import why_not_free
from edge.log.contract import Log, LogError
from edge.log.open_log import is_kafka, open_log
from edge.log.sqlite import SqliteLog
from edge.log_lines import formatter
from edge.mqtt.connection import MqttAddress
from edge.parent_watch import when_stdin_ends
from edge.tls_files import TlsFiles, TlsSettings, tls_files

if TYPE_CHECKING:
    from edge.log.kafka.address import KafkaAddress

__all__ = ["FORMER_OPTIONS", "main"]

_logger = logging.getLogger(__name__)
_MIB = 2**20
_LOOPBACK = "127.0.0.1"
_LOOPBACKS = {_LOOPBACK, "localhost", "::1"}

FORMER_OPTIONS = {
    "--log": "data_dir", "--partitions": "log.partitions", "--host": "mqtt.host", "--port": "mqtt.port",
    "--username": "mqtt.username", "--password-file": "mqtt.password_file", "--tls-ca": "mqtt.tls_ca_file",
    "--mqtt": "mqtt.version", "--client-id": "mqtt.client_id", "--linger-ms": "mqtt.linger_ms",
    "--share": "mqtt.share", "--topics": "mqtt.topics", "--clock": "gateway.clock", "--step-s": "stream.step_s",
    "--status-file": "gateway.status_file", "--metrics-port": "gateway.metrics_port",
    "--metrics-host": "gateway.metrics_host", "--max-mib": "log.max_mib", "--reserve-mib": "log.reserve_mib",
    "--kafka-username": "kafka.username", "--kafka-password-file": "kafka.password_file",
    "--kafka-mechanism": "kafka.mechanism", "--kafka-tls-ca": "kafka.tls_ca_file",
    "--kafka-replication": "kafka.replication", "--kafka-retention-h": "kafka.retention_h",
    "--kafka-direct-topic": "kafka.direct_topic", "--uplink": "uplink.to", "--uplink-username": "uplink.username",
    "--uplink-password-file": "uplink.password_file", "--uplink-tls-ca": "uplink.tls_ca_file",
    "--uplink-mechanism": "uplink.mechanism", "--uplink-partitions": "uplink.partitions",
}  # fmt: skip
"""Options that the program had before it read the settings -> the setting that took their place."""


def _parser(prog: str, has_settings: bool) -> argparse.ArgumentParser:
    whose = "hothouse --config hothouse.toml gateway" if has_settings else f"{prog} --config hothouse.toml"
    parser = argparse.ArgumentParser(
        prog=prog, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Carry samples from an MQTT broker into the log, acknowledging what is durable. Broker, log and\n"
        "everything else are settings: docs/configuration.md and `hothouse config` list them.",
        epilog=f"example: {whose}\n     or: HOTHOUSE_MQTT__HOST=broker.example {prog}",
    )  # fmt: skip
    if not has_settings:
        parser.add_argument(
            "--config", type=Path, help="configuration file; else $HOTHOUSE_CONFIG, or hothouse.toml if it is there"
        )
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input ends")
    return parser


def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m edge.gateway", settings: EdgeSettings | None = None
) -> int:
    """Run a gateway until SIGTERM or SIGINT; help and usage call it ``prog``. A caller that has the settings passes
    them.

    Exit codes: 0 stopped, 1 failed, 2 a wrong argument, setting or log.
    """
    leave_no_core_dumps()
    parser = _parser(prog, settings is not None)
    given, rest = parser.parse_known_args(arguments)
    _refuse(parser, rest)
    lines = logging.StreamHandler()
    lines.setFormatter(formatter("text", "gateway"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # ten lines a second while it is away; errors reach us anyway
    for name in stray_variables():
        _logger.warning("%s is no setting, and is not read", name)
    with contextlib.ExitStack() as parts:
        try:
            settings = settings or gateway_settings(given.config)
            lines.setFormatter(formatter(settings.logs.format, "gateway"))
            logging.getLogger("edge").setLevel(settings.logs.level.upper())
            decoders = load_decoders(settings.gateway.decoders)
            log = parts.enter_context(contextlib.closing(_open_log(settings)))
            options = _options(settings)
            uplink = _uplink(settings, options.broker, log)
            clock = ReplayedClock() if settings.gateway.clock == "replayed" else WallClock()
            gateway = Gateway(options, log, clock, uplink, decoders)
        except SettingsError as error:
            return _cannot_begin(error.words)
        except (LogError, ValueError) as error:
            return _cannot_begin(str(error))
        host, port = settings.gateway.metrics_host, settings.gateway.metrics_port
        if port:
            try:
                MetricsServer(host, port, gateway.status)
            except OSError as error:
                why = why_not_free(host, port)[0] or str(error)
                return _cannot_begin(f"metrics cannot be served: {why}. Set gateway.metrics_port to another port.")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: gateway.stop())
        if given.stop_with_stdin:
            when_stdin_ends(gateway.stop)
        gateway.run()
    return 0


def _cannot_begin(why: str) -> int:
    """Say why, as every command does; how it is called is not what is wrong."""
    sys.stderr.write(f"error: {why}\n")
    return 2


def _refuse(parser: argparse.ArgumentParser, rest: Sequence[str]) -> None:
    for option in rest:
        setting = FORMER_OPTIONS.get(option.partition("=")[0])
        if setting is not None:
            variable = "HOTHOUSE_" + setting.upper().replace(".", "__")
            beside = " (the log is log.sqlite there; for Kafka log.kind, kafka.servers)" if option == "--log" else ""
            parser.error(f"{option.partition('=')[0]} is the setting {setting} now{beside}: "
                         f"put it into hothouse.toml, or set {variable}")  # fmt: skip
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")


def _options(settings: EdgeSettings) -> GatewayOptions:
    mqtt, status_file = settings.mqtt, settings.gateway.status_file
    if status_file is None and settings.log.kind == "sqlite":
        status_file = settings.data_dir / "gateway-status.json"
    read_secret(mqtt.password_file, "mqtt.password_file")  # one that is not there stops the start
    broker = MqttAddress(
        host=mqtt.host or _LOOPBACK, port=mqtt.port, username=mqtt.username, password_file=mqtt.password_file,
        tls=_tls(mqtt, "mqtt"), v5=mqtt.version == "5",
        session_secret=read_secret(mqtt.session_secret_file, "mqtt.session_secret_file"),
    )  # fmt: skip
    return GatewayOptions(
        broker=broker, client_id=mqtt.client_id, step_s=settings.stream.step_s, status_file=status_file,
        share=mqtt.share, topics=mqtt.topics, direct=_direct(settings), linger_s=mqtt.linger_ms / 1000,
    )  # fmt: skip


def _direct(settings: EdgeSettings) -> KafkaAddress | None:
    kafka = settings.kafka
    if settings.log.kind != "kafka" or not kafka.direct_topic:
        return None
    from edge.log.kafka.address import kafka_address  # the bare install has no Kafka client

    address = kafka_address(log_address(settings), **kafka_options(settings))
    return replace(address, topic=kafka.direct_topic, group=f"{settings.mqtt.client_id}-direct")


def _open_log(settings: EdgeSettings) -> Log:
    limits, partitions = settings.log, settings.log.partitions
    if limits.kind == "kafka":
        _tls(settings.kafka, "kafka")
        return open_log(log_address(settings), partitions, **kafka_options(settings))
    max_bytes, reserve_bytes = round(limits.max_mib * _MIB) or None, round(limits.reserve_mib * _MIB)
    return SqliteLog(settings.log_path, partitions, max_bytes=max_bytes, reserve_bytes=reserve_bytes)


def _uplink(settings: EdgeSettings, own: MqttAddress, log: Log) -> Uplink | None:
    to = settings.uplink
    if not to.to:
        return None
    assert isinstance(log, SqliteLog)  # the settings refuse any other buffer
    tls = _tls(to, "uplink")
    if not is_kafka(to.to):
        central = mqtt_address(to.to, tls=tls)
        if central.port == own.port and (central.host == own.host or {central.host, own.host} <= _LOOPBACKS):
            raise ValueError("uplink.to names the broker that this gateway reads: its records would come back")
    read_secret(to.password_file, "uplink.password_file")  # one that is not there stops the start
    target = open_target(
        to.to, log.id, username=to.username, password_file=to.password_file, tls=tls, mechanism=to.mechanism,
        partitions=to.partitions, tail_s=to.tail_s,
    )  # fmt: skip
    return Uplink(log, target)


def _tls(of: TlsSettings, section: str) -> TlsFiles | None:
    """Files that can be used: else a server would be tried again and again in vain."""
    files = tls_files(of)
    checks = {} if files is None else {"tls_ca_file": files.check_ca, "tls_cert_file": files.check_certificate}
    for name, check in checks.items():
        try:
            check()
        except OSError as error:
            raise SettingsError(f"{section}.{name} cannot be read: {error}", "Make the file, or unset it.") from error
    return files
