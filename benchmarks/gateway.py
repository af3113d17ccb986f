"""What a message costs the gateway, in CPU seconds of its process, with a real Mosquitto.

    python -m benchmarks.gateway [--messages 60000] [--batched 4000] [--rate 10000]

The broker is the one that HOTHOUSE_TEST_MQTT (host:port) names, else a Mosquitto of our own. The gateway runs in a
process of its own with a log in a file; so does the reference, a bare paho subscriber that acknowledges and drops.
What publishes is a plain socket with packets made beforehand. First it keeps ``--waiting`` messages under way, of one
sample and then of 50: what a message costs at least. Then it sends ``--rate`` messages of one sample a second, as
devices do: what a message costs when all is well. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import secrets
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks._load import remaining_length
from edge.clock import WallClock
from edge.gateway import Gateway, GatewayOptions
from edge.log import NewRecord
from edge.log.sqlite import SqliteLog
from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.wire.reading import Sample, encode_message
from edge.wire.topic import sample_topic
from models.durations import MINUTE_MS

METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "par_umol_m2_s", "soil_vwc_pct", "vent_lee_pct")
DEVICES = 1000
SITES = 10
Handled = Any  # multiprocessing's Value: how many samples the subscriber is done with


class CountingLog(SqliteLog):
    """Tells the publisher how far the gateway is: by its own count when an append is durable."""

    def __init__(self, path: Path, handled: Handled) -> None:
        super().__init__(path)
        self._handled = handled
        self.gateway: Gateway | None = None

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append, and count."""
        places = super().append(records)
        assert self.gateway is not None
        self._handled.value = self.gateway.status()["messages"]
        return places


def answer_cpu(pipe: Connection) -> None:
    """Say how many CPU seconds this process has taken whenever asked; end with it when the other side is gone."""
    with contextlib.suppress(EOFError):
        while pipe.recv():
            pipe.send(time.process_time())
    os._exit(0)


def run_gateway(address: MqttAddress, handled: Handled, pipe: Connection) -> None:
    """The gateway's process."""
    with tempfile.TemporaryDirectory() as folder:
        log = CountingLog(Path(folder) / "log.sqlite", handled)
        settings = GatewayOptions(broker=address, client_id=f"bench-{secrets.token_hex(4)}", session_expiry_s=1)
        log.gateway = gateway = Gateway(settings, log, WallClock())
        threading.Thread(target=gateway.run, daemon=True).start()
        while not gateway.status()["connected"]:
            time.sleep(0.05)
        pipe.send("connected")
        answer_cpu(pipe)


def run_bare(address: MqttAddress, handled: Handled, pipe: Connection) -> None:
    """The reference's process."""
    client = new_client(address, f"bench-{secrets.token_hex(4)}", v5=address.v5, persistent=True)

    def on_message(client: Any, _: object, message: Any) -> None:
        client.ack(message.mid, message.qos)
        handled.value += 1

    client.on_connect = lambda client, *_: client.subscribe("hothouse/v1/#", qos=1)
    client.on_subscribe = lambda *_: pipe.send("connected")
    client.on_message = on_message
    open_connection(client, address, receive_maximum=GatewayOptions.in_flight)
    answer_cpu(pipe)


def measure(
    target: Any, address: MqttAddress, messages: list[tuple[str, bytes]], waiting: int, rate: float = math.inf
) -> tuple[float, float]:
    """CPU and wall seconds from the first message to when all are done with."""
    context = multiprocessing.get_context("spawn")
    handled = context.Value("q", 0)
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(address, handled, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(30) or ours.recv() != "connected":
            raise SystemExit("the subscriber did not connect within 30 s")
        ours.send(True)
        before, started = ours.recv(), time.perf_counter()
        with connected(address) as broker:
            packets = [packet(n % 65535 + 1, *message) for n, message in enumerate(messages)]
            publish(broker, packets, handled, waiting, rate)
            wall_s = time.perf_counter() - started
        ours.send(True)
        return ours.recv() - before, wall_s
    finally:
        ours.close()
        process.join(10)


def packet(number: int, topic: str, payload: bytes) -> bytes:
    """An MQTT 3.1.1 PUBLISH with QoS 1."""
    body = struct.pack("!H", len(topic)) + topic.encode() + struct.pack("!H", number) + payload
    return b"\x32" + remaining_length(len(body)) + body


def publish(broker: socket.socket, packets: list[bytes], handled: Handled, waiting: int, rate: float) -> None:
    """Send all, at most ``rate`` a second and ``waiting`` more than were handled; back when all are."""
    sent, started_s = 0, time.monotonic()
    deadline_s = started_s + 120 + len(packets) / 500
    while handled.value < len(packets):
        due = len(packets) if rate == math.inf else int(rate * (time.monotonic() - started_s))
        room = min(waiting - (sent - handled.value), 200, min(due, len(packets)) - sent)
        if room > 0:
            broker.sendall(b"".join(packets[sent : sent + room]))
            sent += room
        else:
            time.sleep(0.002)
        while select.select([broker], [], [], 0)[0]:
            if not broker.recv(1 << 16):
                raise SystemExit("the broker closed the connection")
        if time.monotonic() > deadline_s:
            raise SystemExit(f"only {handled.value} of {len(packets)} messages came through")


@contextlib.contextmanager
def connected(address: MqttAddress) -> Iterator[socket.socket]:
    """A clean session, by hand: paho would take a core for what is sent here."""

    def text(value: str) -> bytes:
        return struct.pack("!H", len(value.encode())) + value.encode()

    flags, login = (0xC2, text(address.username) + text(address.password)) if address.username else (0x02, b"")
    body = text("MQTT") + bytes([4, flags]) + struct.pack("!H", 0) + text(f"bench-{secrets.token_hex(4)}") + login
    with socket.create_connection((address.host, address.port), 10) as broker:
        broker.sendall(b"\x10" + remaining_length(len(body)) + body)
        if broker.recv(4) != b"\x20\x02\x00\x00":
            raise SystemExit("the broker refused the publisher")
        yield broker


def make_messages(count: int, samples: int) -> list[tuple[str, bytes]]:
    """``count`` messages of the devices in turn; each sample carries six values."""
    now_ms = time.time_ns() // 1_000_000
    made = []
    for n in range(count):
        d, first = n % DEVICES, n // DEVICES * samples
        site, zone, device = f"site-{d % SITES}", f"zone-{d}", f"climate-{d}"
        values = {metric: round(20 + (n * 7 + m) % 100 / 10, 2) for m, metric in enumerate(METRICS)} | {
            "co2_ppm": 412.5
        }
        points = [
            Sample(site, zone, device, f"9f3c62d1a07b{d:04x}", seq, now_ms - 10_000 * (samples - seq + first), values)
            for seq in range(first, first + samples)
        ]
        made.append((sample_topic(site, zone, device), encode_message(points)))
    return made


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="CPU seconds of the gateway.")
    parser.add_argument("--messages", type=int, default=MINUTE_MS, help="of one sample (default: %(default)s)")
    parser.add_argument("--batched", type=int, default=4_000, help="of 50 samples (default: %(default)s)")
    parser.add_argument("--waiting", type=int, default=900, help="messages under way (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=10_000, help="messages a second (default: %(default)s)")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = os.environ.get("HOTHOUSE_TEST_MQTT", "")
        if server:
            host, port = server.rsplit(":", 1)
            address = MqttAddress(host=host, port=int(port))
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            address = stack.enter_context(LocalBroker(folder, "mosquitto")).address
        figures: dict[str, float] = {}
        for label, samples, count, waiting, rate in (
            ("1", 1, given.messages, given.waiting, math.inf),
            ("50", 50, given.batched, given.waiting, math.inf),
            ("paced", 1, given.messages, given.messages, given.rate),
        ):
            messages = make_messages(count, samples)
            how = f"{rate:,.0f} messages a second" if rate < math.inf else "as fast as it goes"
            print(f"{samples} samples a message, {how}:")
            for name, target in (("gateway", run_gateway), ("bare", run_bare)):
                cpu_s, wall_s = measure(target, address, messages, waiting, rate)
                total = count * samples
                print(
                    f"  {name:8} {1e6 * cpu_s / count:7.1f} µs a message, {total / cpu_s:10,.0f} samples a CPU-second"
                    f" ({cpu_s:.2f} s of CPU, {wall_s:.2f} s of wall)",
                    flush=True,
                )
                figures[f"{name}_{label}_cpu_s"] = round(cpu_s, 3)
                figures[f"{name}_{label}_samples_per_cpu_s"] = round(total / cpu_s)
            ratio = figures[f"gateway_{label}_cpu_s"] / figures[f"bare_{label}_cpu_s"]
            print(f"  gateway / bare paho: {ratio:.2f}")
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
