"""What is wrong with devices, as it happens: a line each, with what to do, for the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from edge.wire.topic import parse_topic
from services.store.deadletters import NewDeadLetters
from services.store.rows import DeadLetter
from services.store.storage import Storage, stored_in

__all__ = ["ADVICE", "BrokerRefusals", "Troubles", "device_of"]

TOLD_AGAIN_S = 60.0
"""Seconds in which the same trouble of the same device is told once; in between it is counted."""
MOST_CLIENTS = 1000
TAKEN_OVER = 5
"""A client id is taken to be that of several devices once this many of its connections ended for another one within
``TOLD_AGAIN_S``: fewer may be of one device that was cut off."""
AT_ONCE = 50
"""Letters of a partition that are looked at in one go, for each second between looks."""

ADVICE = {
    "malformed": "send one JSON object with boot, ts, seq and values, as docs/sensors.md shows",
    "oversized": "send fewer samples in one message",
    "unknown_topic": "publish on hothouse/v1/SITE/ZONE/DEVICE/sample, or name a decoder in gateway.decoders",
    "future_ts": "send ts as Unix time in milliseconds, UTC, and set the device's clock (NTP); "
    "where all devices are told so, this computer's clock is behind",
    "ancient_ts": "send ts as Unix time in milliseconds, UTC, and set the device's clock (NTP)",
    "out_of_range": "send the unit that the metric's name says, such as °C for air_temp_c",
    "unknown_metric": "use a name of the vocabulary (docs/sensors.md lists them)",
    "no_values": "send at least one metric with a number",
    "unit": "send the unit that the metric's name says, or `hothouse change calibrate`",
    "late": "set the device's clock if it is behind (NTP), and send samples within stream.lateness_s, or raise that; "
    "publish without retain, or the broker sends the last one again at each connection; history comes in by "
    "`hothouse import`; where all devices are told so, this computer's clock may have been ahead",
    "decoder_failed": "the gateway's log says where the decoder fails; tell its author",
}
"""What to do about a reason, for those with which people that connect devices meet."""
_OF_DECODERS = "docs/sensors.md shows what ESPHome and Zigbee2MQTT need; of another format its decoder's author knows"
"""The same about a message that is not of our own format and holds no reading."""
_OTHERWISE = "docs/operations.md says what the reason means"


def device_of(topic: str) -> str:
    """Who sent it, as far as the topic says.

    >>> device_of("hothouse/v1/demo/north-1/bench/sample"), device_of("zigbee2mqtt/bench"), device_of("")
    ('bench', 'bench', 'unknown')
    >>> device_of("/hothouse/v1/demo/north-1/bench/sample"), device_of("hothouse/demo/bench/Sample/")
    ('bench', 'bench')
    >>> device_of("hothouse/v1/demo/north-1/bench/sampel")
    'bench'
    """
    where = parse_topic(topic)
    if where is not None:
        return where.device
    parts = [part for part in topic.split("/") if part]
    if parts and parts[0] == "esphome" and len(parts) > 3:
        return parts[3]
    is_ours = len(parts) == 6 and parts[0].strip().lower() == "hothouse"  # with another last word
    if is_ours or (len(parts) > 1 and parts[-1].strip().lower() in ("sample", "samples")):
        parts.pop()
    return parts[-1] if parts else "unknown"


class Troubles:
    """Dead letters of the storage from now on. ``clock_s`` is monotonic."""

    def __init__(self, storage: Storage | Path, clock_s: Callable[[], float]) -> None:
        self._storage, self._clock_s = stored_in(storage), clock_s
        self._new: NewDeadLetters | None = None
        self._told_s: dict[tuple[str, str], float] = {}
        self._more: dict[tuple[str, str], int] = {}

    def lines(self) -> list[str]:
        """What is new since the last call; what was there at the first call is not told."""
        try:
            if self._new is None:
                self._new = NewDeadLetters(self._storage)
                return []
            letters = self._new.read(round(AT_ONCE * max(self._storage.poll_s, 1.0)))
        except OSError:
            return []  # it is away: the next look finds it
        return [line for letter in letters if (line := self._line(letter)) is not None]

    def _line(self, letter: DeadLetter) -> str | None:
        key, now_s = (letter.topic, re.sub(r"[0-9]+", "", letter.detail)), self._clock_s()
        if now_s - self._told_s.get(key, -TOLD_AGAIN_S) < TOLD_AGAIN_S:
            self._more[key] = self._more.get(key, 0) + 1
            return None
        self._told_s[key] = now_s
        more = self._more.pop(key, 0)
        if len(self._told_s) > MOST_CLIENTS:  # somebody makes topics up
            self._told_s.clear()
            self._more.clear()
        again = f" ({more} more like it)" if more else ""
        said = f"device {device_of(letter.topic)} on topic {letter.topic or '?'}: {letter.detail}{again}"
        return f"{said} [{letter.reason}]. What to do: {_advice(letter)}."


def _advice(letter: DeadLetter) -> str:
    if letter.reason in ("malformed", "no_values") and not letter.topic.startswith("hothouse/"):
        return _OF_DECODERS
    return ADVICE.get(letter.reason, _OTHERWISE)


class BrokerRefusals:
    """What the local broker has refused since this was made, from its log: logins, and messages on topics that are not
    a device's own. Such a device reaches nobody, so no dead letter tells of it.
    """

    _CONNECTS = re.compile(r"New connection from ([0-9a-fA-F.:]+):[0-9]+ on port")
    _CLIENT = re.compile(r"New client connected from [^ ]+ as ([^ ]+) \(.*u'([^']{1,64})'")
    _LOGIN = re.compile(
        r"disconnected, not authorised|of ([0-9a-fA-F.:?]+) with the name '([^']{1,64})': not authorised"
    )
    _TOPIC = re.compile(r"Bad socket read/write on client ([^ ]+): Unknown error")
    """Mosquitto 2.0 ends a connection so, of a device that publishes where it may not."""
    _DROPPED = re.compile(r"the device '([^']{1,64})' may not publish on (['\"].*)")
    """The embedded broker drops such a message."""
    _TAKEN = re.compile(r"Client ([^ ]+) already connected, closing old connection")

    def __init__(self, log_file: Path, clock_s: Callable[[], float]) -> None:
        self._log_file, self._clock_s = log_file, clock_s
        self._at = log_file.stat().st_size if log_file.exists() else 0
        self._address = "an unknown address"
        self._names: dict[str, str] = {}  # client -> name that it logged in with
        self._told_s: dict[str, float] = {}
        self._taken_s: dict[str, list[float]] = {}  # client -> when its last connections ended for another one

    def lines(self) -> list[str]:
        """What is new since the last call, of a device once a minute."""
        try:
            with self._log_file.open("rb") as file:
                if self._log_file.stat().st_size < self._at:
                    self._at = 0  # it had grown too long, and was emptied
                file.seek(self._at)
                text = file.read(1 << 20)
        except OSError:
            return []
        whole, newline, _ = text.rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return [said for line in whole.decode(errors="replace").splitlines() if (said := self._of(line))]

    def _of(self, line: str) -> str | None:
        if (found := self._CONNECTS.search(line)) is not None:
            self._address = found[1]
        elif (found := self._CLIENT.search(line)) is not None:
            if len(self._names) > MOST_CLIENTS:
                self._names.clear()
            self._names[found[1]] = found[2]
        elif (found := self._LOGIN.search(line)) is not None:
            who = f"a device at {found[1] or self._address}"
            name = f" as {found[2]}" if found[2] else ""
            return self._once(
                f"{who} may not log in{name}: the broker does not know the name, or the password is wrong. What to do: "
                "`hothouse devices list` shows the names; revoke the device and add it again for a new password."
            )
        elif (found := self._TOPIC.search(line)) is not None and found[1] in self._names:
            return self._once(
                f"device {self._names[found[1]]}: the broker ended its connection, as it does when a device publishes "
                "on a topic that is not its own. What to do: `hothouse devices list` shows where it may publish; "
                "ESPHome needs `discovery: false` (docs/sensors.md)."
            )
        elif (found := self._TAKEN.search(line)) is not None:
            return self._taken(found[1])
        elif (found := self._DROPPED.search(line)) is not None:
            return self._once(
                f"device {found[1]} may not publish on {found[2][:300]}: the broker drops that message. What to do: "
                "`hothouse devices list` shows where it may publish."
            )
        return None

    def _taken(self, client: str) -> str | None:
        now_s = self._clock_s()
        if len(self._taken_s) > MOST_CLIENTS:
            self._taken_s.clear()
        times = self._taken_s.setdefault(client, [])
        times[:] = [*times, now_s][-TAKEN_OVER:]
        if len(times) < TAKEN_OVER or now_s - times[0] > TOLD_AGAIN_S:
            return None
        name = f" (one is {self._names[client]})" if client in self._names else ""
        return self._once(
            f"several devices have the client id {client}{name}: the broker ends the connection of one for the other. "
            "What to do: give each a client id of its own."
        )

    def _once(self, line: str) -> str | None:
        now_s = self._clock_s()
        if now_s - self._told_s.get(line, -TOLD_AGAIN_S) < TOLD_AGAIN_S:
            return None
        self._told_s[line] = now_s
        return line
