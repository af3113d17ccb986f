"""Silent zones are told to leave once, by an event that the gateway takes."""

from __future__ import annotations

from edge.mqtt.publish import PublishError
from edge.wire.events import Retirement, decode_change
from edge.wire.topic import parse_topic
from services.ingest.questions import SilentZone
from services.ingest.retirement import AGAIN_S, Retirements

T0 = 1_646_092_800_000


class Broker:
    """Keeps what is published, or is away."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.away = False

    def publish(self, topic: str, payload: bytes) -> None:
        if self.away:
            raise PublishError("the broker at b:1883 did not take it")
        self.taken.append((topic, payload))


def test_a_silent_zone_is_retired_once_and_again_only_if_that_was_lost() -> None:
    """Looks follow each other; a broker that is away is told, and asked again with the next look."""
    broker, now_s = Broker(), [0.0]
    silent = [SilentZone(site="demo", zone="typo", until_ms=T0)]
    retirements = Retirements(lambda: silent, broker.publish, lambda: now_s[0])
    broker.away = True
    retirements.look()
    assert retirements.error == "silent zones cannot leave: the broker at b:1883 did not take it"
    broker.away = False
    for _ in range(3):
        now_s[0] += 10
        retirements.look()
    assert retirements.error == ""
    ((topic, payload),) = broker.taken
    where = parse_topic(topic)
    assert where is not None
    assert (where.site, where.zone, where.kind) == ("demo", "typo", "event")
    assert decode_change(where, payload) == Retirement(until_ms=T0)
    silent.append(SilentZone(site="demo", zone="typo", until_ms=T0 + 300_000))
    retirements.look()
    assert len(broker.taken) == 2
    now_s[0] += AGAIN_S
    retirements.look()
    assert len(broker.taken) == 4
