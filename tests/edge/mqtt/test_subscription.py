"""What a link asks the broker for, and what it does where the broker does not give it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.connection import MqttAddress
from edge.mqtt.subscription import Subscription
from edge.tls_files import TlsFiles
from tests.certificates import make_certificate


class Client:
    """A connected client that notes what it is asked to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []
        self.said: list[tuple[str, bytes, int]] = []

    def socket(self) -> None:
        """There is none."""

    def subscribe(self, topics: list[tuple[str, int]]) -> None:
        """Note."""
        self.asked += [topic for topic, _ in topics]

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> SimpleNamespace:
        """Note."""
        self.said.append((topic, payload, qos))
        return SimpleNamespace(rc=MQTTErrorCode.MQTT_ERR_SUCCESS)

    def unsubscribe(self, topics: list[str]) -> None:
        """Note."""
        self.left += topics


def link(*topics: list[str], tls: TlsFiles | None = None) -> Subscription:
    """One that has nothing to say of itself."""
    return Subscription(
        MqttAddress(port=1, tls=tls), "test", topics, lambda *_: None, receive_maximum=1, session_expiry_s=1
    )


def connect(of: Subscription) -> Client:
    """Let a client be connected; what it then asked for."""
    client: Any = Client()
    of._lost.clear()
    of._connected(client, None, None, ReasonCode(PacketTypes.CONNACK, "Success"), None)
    return client  # type: ignore[no-any-return]


def answer(of: Subscription, client: Any, name: str) -> None:
    """Let the broker answer the subscription."""
    of._subscribed(client, None, 1, [ReasonCode(PacketTypes.SUBACK, name)], None)


def lose(of: Subscription, client: Any) -> None:
    """Let the connection end."""
    of._disconnected(client, None, None, ReasonCode(PacketTypes.DISCONNECT, "Unspecified error"), None)


def test_nothing_is_published_without_a_connection() -> None:
    """Neither before there is one nor after it was lost: whoever publishes is told, and nothing waits to be sent."""
    of = link(["hothouse/#"])
    assert not of.publish("plant/ask", b"", 1)
    client = connect(of)
    of._client = client  # type: ignore[assignment]
    assert not of.publish("plant/ask", b"", 1)
    answer(of, client, "Granted QoS 1")
    assert of.publish("plant/ask", b"who?", 1)
    lose(of, client)
    assert not of.publish("plant/ask", b"", 1)
    assert client.said == [("plant/ask", b"who?", 1)]


def test_who_is_not_let_in_is_told_when_a_password_counts() -> None:
    """A corrected file at the next try, another user name after a restart; nothing of it where a login is not why."""
    of = link(["hothouse/#"])
    client: Any = Client()
    for name, told in (("Not authorized", True), ("Server busy", False)):
        of._connected(client, None, None, ReasonCode(PacketTypes.CONNACK, name), None)
        assert (name in of.last_error, "mqtt.password_file is read at each try" in of.last_error) == (True, told)


def test_a_broker_that_refuses_all_topics_is_asked_for_fewer() -> None:
    """From the next connection on, and the first refusal is no error; a second one is."""
    of = link(["hothouse/#"], ["hothouse/v1/#"])
    answer(of, connect(of), "Not authorized")
    assert (of._lost.is_set(), of.last_error) == (True, "")
    client = connect(of)
    assert client.asked == ["hothouse/v1/#"]
    answer(of, client, "Not authorized")
    assert "refuses the subscription to hothouse/v1/#" in of.last_error
    answer(of, connect(of), "Granted QoS 1")
    assert of.connected


def test_a_broker_that_hangs_up_at_the_question_is_asked_for_fewer() -> None:
    """Once may be chance; twice in a row is an answer."""
    of = link(["hothouse/#", "/hothouse/#"], ["hothouse/#"], ["hothouse/v1/#"])
    asked = []
    for _ in range(6):
        client = connect(of)
        asked.append(len(client.asked) if len(client.asked) > 1 else client.asked[0])
        lose(of, client)
    assert asked == [2, 2, "hothouse/#", "hothouse/#", "hothouse/v1/#", "hothouse/v1/#"]


@pytest.mark.parametrize(("topics", "left"), [(["hothouse/#"], ["hothouse/v1/#"]), (["plant/#", "hothouse/v1/#"], [])])
def test_a_session_keeps_one_subscription_a_topic(topics: list[str], left: list[str]) -> None:
    """What a session still has from an older version goes once the wider one holds: messages would come twice."""
    of = link(topics, ["hothouse/v1/#"])
    client = connect(of)
    answer(of, client, "Granted QoS 1")
    assert (client.asked, client.left) == (topics, left)


def test_strays_are_given_up_first() -> None:
    """A broker that refuses a topic of many is asked for fewer, and then for fewer again."""
    of = link(["hothouse/#", "/hothouse/#"], ["hothouse/#"], ["hothouse/v1/#"])
    asked = []
    for said in ("Not authorized", "Not authorized", "Granted QoS 1"):
        client = connect(of)
        asked.append(client.asked)
        answer(of, client, said)
    assert asked == [["hothouse/#", "/hothouse/#"], ["hothouse/#"], ["hothouse/v1/#"]]
    assert of.connected


def test_a_connection_that_does_not_hold_names_the_reason_that_is_likely() -> None:
    """Another gateway with our client id ends each connection soon; one that held for long ends for other reasons."""
    of = link(["hothouse/#"])

    def ends(after_s: float) -> str:
        client = connect(of)
        answer(of, client, "Granted QoS 1")
        of._now_s = of._started_s + after_s
        lose(of, client)
        return of.last_error

    assert ["another gateway" in ends(1.0) for _ in range(4)] == [False, False, True, True]
    assert "with the client id test (mqtt.client_id)?" in of.last_error
    assert "another gateway" not in ends(3600.0)


def test_who_takes_the_session_over_is_told_at_once() -> None:
    """Brokers of MQTT 5 may say why a connection ends."""
    of = link(["hothouse/#"])
    client: Any = connect(of)
    of._disconnected(client, None, None, ReasonCode(PacketTypes.DISCONNECT, "Session taken over"), None)
    assert "was lost: Session taken over; is there another gateway with the client id test" in of.last_error


def test_a_certificate_that_is_just_renewed_is_tried_again(tmp_path: Path) -> None:
    """Its key comes a moment later: until then the two do not fit, which is told, and ends nothing."""
    (tmp_path / "new").mkdir()
    cert, key = make_certificate(tmp_path)
    of = link(["hothouse/#"], tls=TlsFiles(cert, make_certificate(tmp_path / "new")[0], key))
    of.tend(0.0)
    assert "cannot be asked: " in of.last_error
    assert "with its own key" in of.last_error
    key.write_bytes((tmp_path / "new" / "key.pem").read_bytes())
    of.tend(60.0)
    assert "no broker at 127.0.0.1:1" in of.last_error
    of.close()


FILES = TlsFiles(Path("ca.pem"))
SHOWN = replace(FILES, cert=Path("cert.pem"), key=Path("key.pem"))


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (None, "does it want TLS (mqtt.tls_ca_file)?"),
        (FILES, "does it want a client certificate (mqtt.tls_cert_file)?"),
        (SHOWN, "does it want another client certificate (mqtt.tls_cert_file)?"),
    ],
)
def test_a_connection_that_ends_without_an_answer_names_what_may_be_missing(tls: TlsFiles | None, said: str) -> None:
    """A broker that speaks TLS only ends it without a word, and so does one that wants a certificate."""
    of = link(["hothouse/#"], tls=tls)
    lose(of, Client())
    assert "ended the connection before it answered; " in of.last_error
    assert said in of.last_error
