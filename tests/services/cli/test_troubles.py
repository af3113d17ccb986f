"""What is wrong with devices is told in the terminal: once, in a sentence, with what to do."""

from __future__ import annotations

from pathlib import Path

from services.cli.setup.troubles import BrokerRefusals, Troubles
from services.store.deadletters import DeadLetters
from services.store.rows import DeadLetter

TOPIC = "hothouse/v1/demo/north-1/bench/sample"


class Clock:
    """Stands until it is told."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def letter(
    offset: int, detail: str = "air_temp_c 71.6 °C, allowed -20 to 60; is it in °F?", partition: int = 0
) -> DeadLetter:
    return DeadLetter(partition, offset, 0, 1000 + offset, TOPIC, "out_of_range", detail, b"{}")


def test_a_dead_letter_is_told_with_what_to_do(tmp_path: Path) -> None:
    """What was there before is not told; what comes is, from every partition, also one that is new."""
    letters = DeadLetters(tmp_path, 0)
    others = DeadLetters(tmp_path, 3)
    letters.put([letter(1)])
    troubles = Troubles(tmp_path, Clock())
    assert troubles.lines() == []
    letters.put([letter(2)])
    others.put([letter(9, "vents -3 %", 3)])
    told = troubles.lines()
    assert told == [
        f"device bench on topic {TOPIC}: air_temp_c 71.6 °C, allowed -20 to 60; is it in °F? [out_of_range]. "
        "What to do: send the unit that the metric's name says, such as °C for air_temp_c.",
        f"device bench on topic {TOPIC}: vents -3 % [out_of_range]. "
        "What to do: send the unit that the metric's name says, such as °C for air_temp_c.",
    ]
    assert troubles.lines() == []


def test_the_advice_is_for_the_format_that_was_sent(tmp_path: Path) -> None:
    """Who uses ESPHome or Zigbee2MQTT cannot send our own JSON."""
    letters, troubles = DeadLetters(tmp_path, 0), Troubles(tmp_path, Clock())
    troubles.lines()
    of_esphome = "esphome/demo/north-1/stove/sensor/rh_pct/state"
    letters.put([letter(1)._replace(reason="malformed"), letter(2)._replace(reason="malformed", topic=of_esphome)])
    ours, theirs = troubles.lines()
    assert "send one JSON object with boot, ts, seq and values" in ours
    assert "docs/sensors.md shows what ESPHome and Zigbee2MQTT need" in theirs


def test_the_first_letter_of_a_partition_is_told(tmp_path: Path) -> None:
    """A data folder without any letter gets its first file while somebody watches."""
    troubles = Troubles(tmp_path, Clock())
    assert troubles.lines() == []
    letters = DeadLetters(tmp_path, 0)
    letters.put([letter(1)])
    assert len(troubles.lines()) == 1


def test_the_same_trouble_is_told_once_a_minute(tmp_path: Path) -> None:
    """In between it is counted; another trouble of the same device is told at once."""
    clock = Clock()
    letters = DeadLetters(tmp_path, 0)
    troubles = Troubles(tmp_path, clock)
    troubles.lines()
    letters.put([letter(1), letter(2, "air_temp_c 80.1 °C, allowed -20 to 60; is it in °F?"), letter(3, "no")])
    assert len(troubles.lines()) == 2
    letters.put([letter(4), letter(5)])
    assert troubles.lines() == []
    clock.now_s = 61.0
    letters.put([letter(6)])
    (told,) = troubles.lines()
    assert "(3 more like it)" in told


def test_refusals_of_the_broker_are_told(tmp_path: Path) -> None:
    """A login and a foreign topic, in both brokers' words; half a line waits for its rest."""
    log = tmp_path / "broker.log"
    log.write_text("1: Client old disconnected, not authorised.\n")
    refusals = BrokerRefusals(log, Clock())
    assert refusals.lines() == []
    with log.open("a") as file:
        file.write("2: New connection from 192.168.1.7:5000 on port 1883.\n3: Client x disconnected, not auth")
        file.flush()
        assert refusals.lines() == []
        file.write("orised.\n4: New client connected from 192.168.1.7:5001 as dev1 (p2, c1, k60, u'bench').\n")
        file.write("5: Bad socket read/write on client dev1: Unknown error.\n")
        file.write("WARNING client y of 192.168.1.9 with the name 'stove': not authorised\n")
        file.write("WARNING edge.mqtt the device 'stove' may not publish on '/esphome/demo'\n" * 2)
    login, topic, other, dropped = refusals.lines()
    assert login.startswith("a device at 192.168.1.7 may not log in: the broker does not know the name")
    assert topic.startswith("device bench: the broker ended its connection, as it does when a device publishes")
    assert other.startswith("a device at 192.168.1.9 may not log in as stove: ")
    assert dropped.startswith("device stove may not publish on '/esphome/demo': the broker drops that message")
    assert all("What to do: " in line for line in (login, topic, other, dropped))
    assert "discovery: false" in topic
    log.write_text("WARNING client y of 192.168.1.8 with the name 'oven': not authorised\n")  # it had grown too long
    assert [line[:41] for line in refusals.lines()] == ["a device at 192.168.1.8 may not log in as"]


def test_devices_with_one_client_id_are_told(tmp_path: Path) -> None:
    """They end each other's connection for ever. One that was cut off, and came back, is none of them."""
    log, clock = tmp_path / "broker.log", Clock()
    log.touch()
    refusals = BrokerRefusals(log, clock)
    for at_s in (0.0, 100.0, 200.0, 300.0, 400.0, 405.0, 410.0, 415.0, 420.0):
        clock.now_s = at_s
        with log.open("a") as file:
            file.write("4: New client connected from 192.168.1.7:5001 as ESP8266Client (p2, c1, k60, u'bench').\n")
            file.write("5: Client ESP8266Client already connected, closing old connection.\n")
        told = refusals.lines()
        assert bool(told) == (at_s == 420.0)
    assert told[0].startswith("several devices have the client id ESP8266Client (one is bench): ")
