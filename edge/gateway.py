"""Step 2 of the way of a reading: from the broker into the log, acknowledged after the append is durable.

The network thread puts messages into a queue; the writer thread drains it, turns a batch into records
(``edge.intake``), appends them with one fsync and only then acknowledges. What is not acknowledged, the broker
sends again: after a crash between append and acknowledgement a message is in the log twice, and step 5 drops the
copy by its sample id. The main thread keeps the connection and writes the status file.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from paho.mqtt import client as paho

from edge.clock import CLOCK_TOPIC, ReceiveClock, ReplayedClock, WallClock
from edge.gateway_metrics import MetricsServer
from edge.intake import Intake, Message
from edge.lifeline import when_stdin_ends
from edge.link import Link, delay_s
from edge.log_contract import Log, LogError, NewRecord
from edge.mqtt import MqttAddress
from edge.open_log import is_kafka, open_log

if TYPE_CHECKING:
    from edge.kafka_address import KafkaAddress
    from edge.kafka_source import KafkaSource

__all__ = ["Gateway", "GatewaySettings", "GatewayStatus", "main"]

_logger = logging.getLogger(__name__)
_TOPIC = "hothouse/v1/#"
_IDLE_S = 0.1
_REPORT_S = 1.0
_STOP_S = 1.5


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """How a gateway works. ``step_s`` is the length of a row: ticks come every tenth of it.

    A batch is what came within ``linger_s``, at most ``max_batch`` messages. ``in_flight`` bounds what the broker
    may send before we acknowledge, so also what waits here while the log is full. Gateways with the same ``share``
    split the broker's messages among them. ``direct`` is a Kafka topic that sites write samples to themselves.
    """

    broker: MqttAddress = field(default_factory=MqttAddress)
    client_id: str = "hothouse-gateway"
    step_s: int = 300
    status_file: Path | None = None
    max_batch: int = 1000
    linger_s: float = 0.02
    in_flight: int = 4000
    session_expiry_s: int = 7 * 86_400
    retry_s: float = 5.0
    share: str = ""
    direct: KafkaAddress | None = None


@dataclass(frozen=True, kw_only=True)
class GatewayStatus:
    """What a gateway did since it started, and how it is; ``last_error`` is empty when all is well."""

    pid: int
    updated_ms: int
    connected: bool
    connects: int
    messages: int
    samples: int
    refused: int
    records: int
    queued: int
    dropped_qos0: int
    last_error: str


class _Incoming(NamedTuple):
    message: Message
    acknowledge: Callable[[], object]


class Gateway:
    """Carries messages from a broker into ``log``, stamped by ``clock``, from :meth:`run` until :meth:`stop`.

    ``after_append`` is called between a durable append and its acknowledgements: tests crash there.
    """

    def __init__(
        self, settings: GatewaySettings, log: Log, clock: ReceiveClock, after_append: Callable[[], None] | None = None
    ) -> None:
        times = [ms for p in range(log.partitions) if (ms := log.last_receive_ms(p)) is not None]
        newest_ms = max(times, default=None)
        if isinstance(clock, ReplayedClock) and newest_ms is not None:
            clock.advance(newest_ms)
        self._settings = settings
        self._log = log
        self._clock = clock
        self._after_append = after_append
        self._intake = Intake(clock, settings.step_s * 1000, log.sites(), newest_ms)
        self._durable_ms = newest_ms or 0
        self._held: _Incoming | None = None
        self._queue: queue.SimpleQueue[_Incoming] = queue.SimpleQueue()
        self._records = 0
        self._dropped_qos0 = 0
        self._log_error = ""
        self._crash: BaseException | None = None
        self._stopping = threading.Event()
        self._link = Link(
            settings.broker,
            settings.client_id,
            f"$share/{settings.share}/{_TOPIC}" if settings.share else _TOPIC,
            self._receive,
            receive_maximum=settings.in_flight,
            session_expiry_s=settings.session_expiry_s,
            presence_topic=f"hothouse/presence/{settings.client_id}",  # outside of what we subscribe to
        )
        self._source = self._kafka_source(settings.direct) if settings.direct else None

    def run(self) -> None:
        """Work until :meth:`stop`; then append and acknowledge what was received, and leave. Once only."""
        writer = threading.Thread(target=self._write, name="gateway-writer", daemon=True)
        writer.start()
        if self._source is not None:
            self._source.start()
        report_at = 0.0
        while not self._stopping.wait(_IDLE_S / 2):
            now_s = time.monotonic()
            self._link.tend(now_s)
            if now_s >= report_at:
                report_at = now_s + _REPORT_S
                self._report()
        writer.join(_STOP_S)
        if self._source is not None:
            self._source.close()
        self._link.close()
        self._report()
        if self._crash is not None:
            raise self._crash

    def stop(self) -> None:
        """Make :meth:`run` return soon; may be called from a signal handler or another thread."""
        self._stopping.set()

    def status(self) -> GatewayStatus:
        """How the gateway is now."""
        return GatewayStatus(
            pid=os.getpid(),
            updated_ms=time.time_ns() // 1_000_000,
            connected=self._link.connected,
            connects=self._link.connects,
            messages=self._intake.messages,
            samples=self._intake.samples,
            refused=self._intake.refused,
            records=self._records,
            queued=self._queue.qsize(),
            dropped_qos0=self._dropped_qos0,
            last_error=self._log_error or self._link.last_error or (self._source.last_error if self._source else ""),
        )

    def _receive(self, client: paho.Client, message: paho.MQTTMessage) -> None:
        """Network thread. What arrives while we stop is not acknowledged, so it comes again."""
        if self._stopping.is_set():
            return
        # QoS 1 is bounded by what the broker may send unacknowledged; QoS 0 promises nothing, so it may be dropped.
        if message.qos == 0 and self._queue.qsize() >= self._settings.in_flight:
            self._dropped_qos0 += 1
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "?"  # refused as an unknown topic
        acknowledge = partial(client.ack, message.mid, message.qos) if message.qos > 0 else _nothing
        self._queue.put(_Incoming(Message(topic, bytes(message.payload)), acknowledge))

    def _kafka_source(self, address: KafkaAddress) -> KafkaSource:
        from edge.kafka_source import KafkaSource  # the bare install has no Kafka client

        def receive(message: Message, acknowledge: Callable[[], None]) -> None:
            if not self._stopping.is_set():
                self._queue.put(_Incoming(message, acknowledge))

        return KafkaSource(address, receive, self._settings.in_flight)

    def _write(self) -> None:
        try:
            while True:
                batch = self._drain()
                if not batch and self._stopping.is_set():
                    return
                records = self._intake.take([incoming.message for incoming in batch])
                if records and not self._append(records):
                    return
                self._acknowledge(batch)
        except BaseException as error:
            self._crash = error
            self._stopping.set()

    def _drain(self) -> list[_Incoming]:
        batch: list[_Incoming] = []
        try:
            batch.append(self._queue.get(timeout=0.0 if self._stopping.is_set() else _IDLE_S))
            if self._queue.qsize() < self._settings.max_batch:
                time.sleep(self._settings.linger_s)  # one wake-up and one fsync for many messages
            while len(batch) < self._settings.max_batch:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _append(self, records: Sequence[NewRecord]) -> bool:
        """Try until it is durable; ``False`` when we were stopped before it was."""
        attempt = 0
        while True:
            try:
                self._log.append(records)
            except LogError as error:
                attempt += 1
                if str(error) != self._log_error:
                    _logger.warning("nothing is acknowledged while the log refuses: %s", error)
                self._log_error = str(error)
                if self._stopping.wait(min(delay_s(attempt, 0.5), self._settings.retry_s)):
                    return False
                continue
            self._log_error = ""
            self._records += len(records)
            self._durable_ms = max(self._durable_ms, records[-1].receive_ms)
            if self._after_append is not None:
                self._after_append()
            return True

    def _acknowledge(self, batch: Sequence[_Incoming]) -> None:
        """Acknowledge what is durable. The newest clock message is so only when a record carries its time: until
        then it is held, because a restart takes the clock from the log.
        """
        done = [self._held, *batch] if self._held is not None else list(batch)
        self._held = None
        if isinstance(self._clock, ReplayedClock) and self._durable_ms < self._clock.now_ms():
            clocks = [incoming for incoming in done if incoming.message.topic == CLOCK_TOPIC]
            self._held = clocks[-1] if clocks else None
        for incoming in done:
            if incoming is not self._held:
                incoming.acknowledge()

    def _report(self) -> None:
        """Replace the status file as a whole, so that a reader never sees half of one."""
        path = self._settings.status_file
        if path is None:
            return
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_bytes(msgspec.json.encode(asdict(self.status())))
            beside.replace(path)
        except OSError as error:
            _logger.warning("the status file cannot be written: %s", error)


def _nothing() -> None:
    """The acknowledgement of quality 0."""


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
    parser.add_argument("--share", default="", help="gateways with the same name split the messages among them")
    parser.add_argument("--clock", choices=("wall", "replayed"), default="wall", help="of receive times")
    parser.add_argument("--step-s", type=int, default=300, help="length of a row (default: %(default)s)")
    parser.add_argument("--status-file", type=Path, help="JSON, replaced every second")
    parser.add_argument("--metrics-port", type=int, help="answer GET /metrics for Prometheus there")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="address of it (default: %(default)s)")
    kafka = parser.add_argument_group("a log on Kafka")
    kafka.add_argument("--kafka-username", default="", help="SASL, if the servers want one")
    kafka.add_argument("--kafka-password-file", type=Path, help="file that holds the password")
    kafka.add_argument(
        "--kafka-mechanism", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), default="SCRAM-SHA-512",
        help="of SASL (default: %(default)s)",
    )  # fmt: skip
    kafka.add_argument("--kafka-tls-ca", type=Path, help="CA certificate; TLS is used when it is given")
    kafka.add_argument("--kafka-replication", type=int, default=-1, help="of topics that are created")
    kafka.add_argument("--kafka-retention-h", type=int, default=720, help="of topics that are created; 0: for ever")
    kafka.add_argument("--kafka-direct-topic", default="", help="topic that sites write samples to themselves")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input ends")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = "python -m edge.gateway") -> int:
    """Run a gateway until SIGTERM or SIGINT; help and usage call it ``prog``.

    Exit codes: 0 stopped, 1 failed, 2 a wrong argument or log.
    """
    parser = _parser(prog)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        password = _secret(given.password_file)
        kafka_password = _secret(given.kafka_password_file)
        for certificate in (given.tls_ca, given.kafka_tls_ca):
            if certificate is not None:
                certificate.read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read a file: {error}")
    kafka = {
        "username": given.kafka_username, "password": kafka_password, "mechanism": given.kafka_mechanism,
        "tls_ca": given.kafka_tls_ca, "replication": given.kafka_replication, "retention_h": given.kafka_retention_h,
    }  # fmt: skip
    try:
        log = open_log(given.log, given.partitions, **kafka)
    except (LogError, ValueError) as error:
        parser.error(str(error))
    direct = None
    if given.kafka_direct_topic:
        if not is_kafka(given.log):
            parser.error("--kafka-direct-topic needs a log on Kafka")
        from edge.kafka_address import kafka_address

        own_group = f"{given.client_id}-direct"
        direct = replace(kafka_address(given.log, **kafka), topic=given.kafka_direct_topic, group=own_group)
    broker = MqttAddress(
        host=given.host,
        port=given.port,
        username=given.username,
        password=password,
        tls_ca=given.tls_ca,
        v5=given.mqtt == "5",
    )
    settings = GatewaySettings(
        broker=broker,
        client_id=given.client_id,
        step_s=given.step_s,
        status_file=given.status_file,
        share=given.share,
        direct=direct,
    )
    with contextlib.closing(log):
        gateway = Gateway(settings, log, ReplayedClock() if given.clock == "replayed" else WallClock())
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


def _secret(path: Path | None) -> str:
    return path.read_text().strip() if path else ""


if __name__ == "__main__":
    sys.exit(main())
